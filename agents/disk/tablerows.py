"""The tables of jobs in SQLite: each with its row, its schemas, and its rows (``agents.disk.tablevalues``),
which are counted as they come and go, and bounded."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final, Literal

import msgspec
import pyarrow as pa

from agents.disk.tablevalues import Row, packed, schema_of
from elf.job.ring import is_ring
from elf.job.tables import BYTES_MAX, StoredTable, TableKept, TableState

SCHEMA: Final = """
CREATE TABLE kept_tables (
  id INTEGER PRIMARY KEY, uid TEXT NOT NULL UNIQUE, job TEXT NOT NULL, kept BLOB NOT NULL,
  number INTEGER NOT NULL, newest INTEGER, evicted INTEGER NOT NULL DEFAULT 0,
  unfit INTEGER NOT NULL DEFAULT 0, "count" INTEGER NOT NULL DEFAULT 0, size INTEGER NOT NULL DEFAULT 0,
  rounds INTEGER NOT NULL DEFAULT 0, behind BLOB NOT NULL DEFAULT x'', whole INTEGER NOT NULL DEFAULT 1);
CREATE INDEX kept_tables_by_job ON kept_tables (job);
CREATE TABLE table_schemas (
  tbl INTEGER NOT NULL, number INTEGER NOT NULL, schema BLOB NOT NULL,
  PRIMARY KEY (tbl, number)) WITHOUT ROWID;
CREATE TABLE table_rows (
  tbl INTEGER NOT NULL, id BLOB NOT NULL, "key" BLOB NOT NULL, start INTEGER NOT NULL, "end" INTEGER NOT NULL,
  number INTEGER NOT NULL, "row" BLOB NOT NULL,
  PRIMARY KEY (tbl, id)) WITHOUT ROWID;
CREATE INDEX table_rows_by_key ON table_rows (tbl, "key");
CREATE INDEX table_rows_by_end ON table_rows (tbl, "end");
"""
_ROW_BYTES: Final = 'length(id) + length("key") + length("row") + 64'
"""What a row counts as: what it has, and its places in the indexes."""
_AT_ONCE: Final = 500
"""Rows that are put and counted at a time."""
_PUT: Final = (
    "INSERT INTO table_rows VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (tbl, id) DO UPDATE SET "
    '"key" = excluded."key", start = excluded.start, "end" = excluded."end", '
    'number = excluded.number, "row" = excluded."row" WHERE '
    '(excluded."end", excluded.start, excluded.number) >= ("end", start, number)'
)
_FIELDS: Final = 'SELECT id, "key", start, "end", number, "row" FROM table_rows'
_READ: Final = f"{_FIELDS} WHERE tbl = ? AND id > ? ORDER BY id LIMIT ?"
_FIND: Final = f'{_FIELDS} INDEXED BY table_rows_by_key WHERE tbl = ? AND "key" = ? ORDER BY id'
"""SQLite, which knows nothing of the sizes, would rather have the order than the key."""
_POINT: Final = (
    'SELECT t.kept, t.number, t.newest, t.evicted, t.unfit, t."count", t.size, t.rounds, t.whole, '
    "(SELECT max(number) FROM table_schemas WHERE tbl = t.id), "
    "(SELECT schema FROM table_schemas WHERE tbl = t.id AND number = 0), "
    'r.id, r."key", r.start, r."end", r.number, r."row" '
    "FROM kept_tables t LEFT JOIN table_rows r INDEXED BY table_rows_by_key "
    'ON r.tbl = t.id AND r."key" = ? WHERE t.uid = ? ORDER BY r.id'
)
"""One statement is of one moment, and is all that the lock of the interpreter is given up for."""
_HEAD: Final = 9
_COLUMNS: Final = 'id, kept, number, newest, evicted, unfit, "count", size, rounds, behind, whole'
_CHANGING: Final = ("number", "newest", "evicted", "unfit", "count", "size", "rounds", "behind", "whole")
_encode: Final = msgspec.msgpack.Encoder().encode
_kept_of: Final = msgspec.msgpack.Decoder(TableKept).decode


class Table:
    """One of them, in a transaction: its fields are those of its row, which ``save`` writes."""

    def __init__(self, con: sqlite3.Connection, row: tuple[Any, ...]) -> None:
        """``row``: by ``_COLUMNS``."""
        self._con = con
        self.id, kept, self.number, self.newest, self.evicted, self.unfit, *rest = row
        self.stored_kept: bytes = kept
        self.kept: TableKept = _kept_of(kept)
        self.count, self.size, self.rounds, self.behind, whole = rest
        self.whole = bool(whole)

    def save(self) -> None:
        """What has changed."""
        changes = ", ".join(f'"{name}" = ?' for name in _CHANGING)
        values = (getattr(self, name) for name in _CHANGING)
        self._con.execute(f"UPDATE kept_tables SET {changes} WHERE id = ?", (*values, self.id))

    def rename(self, kept: TableKept) -> None:
        """It is this one from now on, with the rows that it has."""
        sql = "UPDATE kept_tables SET uid = ?, kept = ? WHERE id = ?"
        self._con.execute(sql, (kept.table, _encode(kept), self.id))

    def drop(self) -> None:
        self._con.execute("DELETE FROM table_rows WHERE tbl = ?", (self.id,))
        self._con.execute("DELETE FROM table_schemas WHERE tbl = ?", (self.id,))
        self._con.execute("DELETE FROM kept_tables WHERE id = ?", (self.id,))

    def stored(self) -> StoredTable:
        return StoredTable(self.kept, self.rounds, self.whole, self.number, self.behind)

    def state(self) -> TableState:
        """All that there is of it."""
        return TableState(
            self.kept,
            self.number,
            self.newest,
            self.evicted,
            self.unfit,
            self.serialized(),
            packed(self.rows().fetchall()),
            self.rounds,
            self.behind,
            self.whole,
        )

    # -- schemas ---------------------------------------------------------------------------------------------

    def schemas(self) -> list[pa.Schema]:
        """Of its rows, by number."""
        return [schema_of(schema) for schema in self.serialized()]

    def serialized(self) -> tuple[bytes, ...]:
        """The same as they are stored."""
        sql = "SELECT schema FROM table_schemas WHERE tbl = ? ORDER BY number"
        return tuple(schema for (schema,) in self._con.execute(sql, (self.id,)))

    def number_of(self, schema: pa.Schema) -> int:
        """Of a schema, which is kept if it is a new one."""
        known = self.schemas()
        if schema not in known:
            self._add_schemas([schema.serialize().to_pybytes()], len(known))
            known.append(schema)
        return known.index(schema)

    def take_schemas(self, other: Table) -> None:
        """Those of another table, with their numbers."""
        self._add_schemas(other.serialized())

    def _add_schemas(self, schemas: Iterable[bytes], first: int = 0) -> None:
        values = ((self.id, number, schema) for number, schema in enumerate(schemas, first))
        self._con.executemany("INSERT INTO table_schemas VALUES (?, ?, ?)", values)

    # -- rows ------------------------------------------------------------------------------------------------

    def rows(self, after: bytes = b"", most: int = -1) -> sqlite3.Cursor:
        """Of the groups behind one, in their order; so many at most, if that is not negative."""
        return self._con.execute(_READ, (self.id, after, most))

    def found(self, key: bytes) -> sqlite3.Cursor:
        """Those with a key, by group."""
        return self._con.execute(_FIND, (self.id, key))

    def fill(self, schemas: Sequence[bytes], rows: Iterable[Row]) -> None:
        """It has none yet: have these."""
        self._add_schemas(schemas)
        self._con.executemany(_PUT, ((self.id, *row) for row in rows))
        self.count, self.size = self._counted()

    def put(self, rows: Iterable[Row]) -> None:
        """Each takes the place of the row of its group, if it counts before that. What the table has is
        counted by these groups alone: a window may be small beside it."""
        rows = sorted(rows, key=itemgetter(0))
        for begin in range(0, len(rows), _AT_ONCE):
            some = rows[begin : begin + _AT_ONCE]
            where, groups = f"id IN ({', '.join('?' * len(some))})", [row[0] for row in some]
            count, size = self._counted(where, groups)
            self._con.executemany(_PUT, ((self.id, *row) for row in some))
            count_now, size_now = self._counted(where, groups)
            self.count, self.size = self.count + count_now - count, self.size + size_now - size

    def delete(self, where: str, values: Sequence[object]) -> None:
        count, size = self._counted(where, values)
        self._con.execute(f"DELETE FROM table_rows WHERE tbl = ? AND {where}", (self.id, *values))
        self.count, self.size = self.count - count, self.size - size

    def bound(self) -> None:
        """Let go of rows that are too many: the oldest windows' first."""
        if self.size <= BYTES_MAX:
            return
        over: list[bytes] = []
        sql = f'SELECT id, {_ROW_BYTES} FROM table_rows WHERE tbl = ? ORDER BY "end", id'
        oldest = self._con.execute(sql, (self.id,))
        for group, nbytes in oldest:
            if self.size <= BYTES_MAX:
                break
            over.append(group)
            self.size -= nbytes
        oldest.close()
        sql = "DELETE FROM table_rows WHERE tbl = ? AND id = ?"
        self._con.executemany(sql, ((self.id, one) for one in over))
        self.count, self.evicted = self.count - len(over), self.evicted + len(over)

    def _counted(self, where: str = "true", values: Sequence[object] = ()) -> tuple[int, int]:
        """Rows, and their bytes."""
        sql = f"SELECT count(*), coalesce(sum({_ROW_BYTES}), 0) FROM table_rows WHERE tbl = ? AND {where}"
        count, size = self._con.execute(sql, (self.id, *values)).fetchone()
        return count, size


@dataclass(frozen=True)
class Point:
    """A table as it is stored, without opening it, and its rows with a key. ``kept`` and ``schema``: encoded;
    this is its only schema."""

    kept: bytes
    number: int
    newest: int | None
    evicted: int
    unfit: int
    count: int
    size: int
    rounds: int
    schema: bytes
    rows: list[Row]


def point(con: sqlite3.Connection, uid: str, key: bytes) -> Point | None:
    """None: there is no such table, it has not got all rows, or rows of several schemas, or of none."""
    found = con.execute(_POINT, (key, uid)).fetchall()
    if not found or not found[0][_HEAD - 1] or found[0][_HEAD] != 0:
        return None
    rows: list[Row] = [one[_HEAD + 2 :] for one in found if one[_HEAD + 2] is not None]
    kept, number, newest, evicted, unfit, count, size, rounds = found[0][: _HEAD - 1]
    return Point(kept, number, newest, evicted, unfit, count, size, rounds, found[0][_HEAD + 1], rows)


def find(con: sqlite3.Connection, uid: str) -> Table | None:
    return next(iter(_where(con, "uid", uid)), None)


def of_job(con: sqlite3.Connection, job: str) -> list[Table]:
    """Those of a job group, by uid."""
    return _where(con, "job", job)


def in_rings(con: sqlite3.Connection) -> list[Table]:
    """Those that are replicas of tables with a ring."""
    jobs = (job for (job,) in con.execute("SELECT DISTINCT job FROM kept_tables ORDER BY job").fetchall())
    return [table for job in jobs if is_ring(job) for table in of_job(con, job)]


def _where(con: sqlite3.Connection, column: Literal["uid", "job"], value: str) -> list[Table]:
    found = con.execute(f"SELECT {_COLUMNS} FROM kept_tables WHERE {column} = ? ORDER BY uid", (value,))
    return [Table(con, row) for row in found.fetchall()]


def add(
    con: sqlite3.Connection,
    kept: TableKept,
    *,
    number: int = 0,
    newest: int | None = None,
    evicted: int = 0,
    unfit: int = 0,
    rounds: int = 0,
    behind: bytes = b"",
    whole: bool = True,
) -> Table:
    """A table without rows."""
    columns = "uid, job, kept, number, newest, evicted, unfit, rounds, behind, whole"
    sql = f"INSERT INTO kept_tables ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    values = (number, newest, evicted, unfit, rounds, behind, whole)
    con.execute(sql, (kept.table, kept.job, _encode(kept), *values))
    (table,) = _where(con, "uid", kept.table)
    return table
