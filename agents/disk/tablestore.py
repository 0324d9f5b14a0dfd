"""The tables of jobs in an agent's store (``elf.job.tables``): rows that each member of a job's group puts in
as it applies windows, found by key.

A row is its values in msgpack, behind the number of its schema; moments are µs, decimals texts. Its window is
beside it, and the number of the commit that it came with. What a table has is a function of the records of
its group alone: of the commits in the order of their numbers, each taken once (``kept_tables.number``).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from itertools import groupby, product
from math import prod
from operator import itemgetter
from typing import Any, Final, Literal

import msgspec
import pyarrow as pa

from agents.disk.sqlite import SqliteFile
from elf.aggregates import range_places
from elf.batch import NO_CAST, WRONG, decode, encode
from elf.client.past import joined
from elf.client.windows import WINDOW_COLUMNS
from elf.errors import PeerError
from elf.fields import replace
from elf.job.commits import WindowCommit
from elf.job.tables import (
    BEHIND,
    BYTES_MAX,
    NO_TABLE,
    PAGE_BYTES,
    ROUND_ROWS,
    CopyShard,
    ReadTable,
    ShardPart,
    ShardRound,
    ShardRows,
    StoredTable,
    TableKept,
    TableRound,
    TableRows,
    TableState,
    cursor,
    generation,
    is_shard,
    lineage,
    takes_back,
)
from elf.ql.fuel import KEYS_MAX

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
_US: Final = pa.int64()
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder().decode
_kept_of: Final = msgspec.msgpack.Decoder(TableKept).decode
_Span = tuple[int, int]
_Row = tuple[bytes, bytes, int, int, int, bytes]
"""Group, key, start and end of the window, the number of its commit, the row."""
_PUT: Final = (
    "INSERT INTO table_rows VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (tbl, id) DO UPDATE SET "
    '"key" = excluded."key", start = excluded.start, "end" = excluded."end", '
    'number = excluded.number, "row" = excluded."row" WHERE '
    '(excluded."end", excluded.start, excluded.number) >= ("end", start, number)'
)
_FIELDS: Final = 'SELECT id, "key", start, "end", number, "row" FROM table_rows'
_READ: Final = f"{_FIELDS} WHERE tbl = ?"
_FIND: Final = f'{_FIELDS} INDEXED BY table_rows_by_key WHERE tbl = ? AND "key" = ? ORDER BY id'
"""SQLite, which knows nothing of the sizes, would rather have the order than the key."""


class TableStore:
    """Those of one agent's store. A method is one transaction, or a part of its thread's."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file
        self.round_rows = ROUND_ROWS

    # -- what groups have committed --------------------------------------------------------------------------

    def begin(self, kept: TableKept, last: WindowCommit | None, number: int) -> None:
        """A table begins with the rows of the last window, behind the results up to ``number``; or without
        rows, and where another one is, if it takes the place of that. One that is there stays."""
        with self._file.writing() as con:
            if _find(con, kept.table) is not None:
                return
            if is_shard(kept.table):
                _add(con, kept, (0, None, 0, 0), (0, b"", not kept.of))
                return
            if _is_past(con, kept):
                return
            if (old := _find(con, kept.of)) is not None:
                _succeed(con, kept, old)
                return
            table = _add(con, kept, (number, None, 0, 0), (0, b"", True))
            if last is not None and last.seq > 0 and not last.provisional and kept.shards == 1:
                _take(con, table, last, last.seq)
                table.number = number
                _save(con, table)

    def end(self, uid: str) -> None:
        with self._file.writing() as con:
            _drop(con, _find(con, uid))

    def copy(self, said: TableRound) -> bool:
        """The next rows of the table whose place this one takes; whether it has all by now."""
        with self._file.writing() as con:
            table = _find(con, said.table)
            if table is None:
                return True
            if not table.whole and said.number == table.rounds + 1:
                _copy(con, table, self.round_rows)
            return table.whole

    def take(self, row: WindowCommit, number: int) -> None:
        """Windows are committed under this number."""
        if row.provisional or number <= 0:
            return
        with self._file.writing() as con:
            for table in _where(con, "job", row.job):
                if table.number < number and table.kept.shards == 1:
                    _take(con, table, row, number)

    def put(self, said: ShardRows) -> None:
        """A shard has more results."""
        with self._file.writing() as con:
            table = _find(con, said.table)
            if table is None or table.number != said.after:
                return
            for row in said.windows:
                if not row.provisional:
                    _take(con, table, row, row.seq)
            table.number, table.unfit = said.upto, table.unfit + said.lost
            _save(con, table)

    def join(self, said: ShardRound) -> None:
        """A shard has more rows of the table whose place its own takes."""
        with self._file.writing() as con:
            table = _find(con, said.table)
            rows = None if table is None else _opened(said.part.schemas, said.part.rows)
            if table is None or table.whole or (said.place, said.after) != cursor(table.behind):
                return
            if table.rounds and table.number != said.part.number:
                return
            table.unfit += rows is None
            numbers = [table.number_of(_schema_of(schema)) for schema in said.part.schemas if rows]
            _put(con, table, [_renumbered(row, numbers) for row in rows or ()])
            ends = [end for end in (table.newest, said.part.newest_us) if end is not None]
            table.number, table.newest = said.part.number, max(ends, default=None)
            table.rounds += 1
            at = (said.place, said.part.next) if said.part.more else (said.place + 1, b"")
            table.behind, table.whole = _encode(at), at[0] == table.kept.shards
            _bound(con, table)  # the new key may have most rows in one shard
            _save(con, table)

    def begins(self, job: str, table: str) -> int | None:
        """The number of the result with which a table with shards begins, which is that of the one that takes
        its place."""
        with self._file.reading() as con:
            there = _where(con, "job", job)
            found = (
                one.number for one in there if table in (one.kept.table, one.kept.of) and not _is_part(one)
            )
            return next(found, None)

    def stored(self, job: str) -> tuple[StoredTable, ...]:
        """The tables of a job, and how far they are."""
        with self._file.reading() as con:
            return tuple(_stored(one) for one in _where(con, "job", job))

    def states(self, job: str) -> tuple[TableState, ...]:
        """All that there is of them."""
        with self._file.reading() as con:
            return tuple(_state(con, table) for table in _where(con, "job", job))

    def install(self, state: TableState) -> None:
        """A table as another member has it; one that is further stays. Of one that cannot be read there are
        no rows, which is counted."""
        with self._file.writing() as con:
            known = _find(con, state.kept.table)
            if known is not None and (known.number, known.rounds) >= (state.number, state.rounds):
                return
            if known is None and _is_past(con, state.kept):
                return
            _drop(con, known)
            rows = _opened(state.schemas, state.rows)
            unfit = state.unfit + (rows is None)
            said = (state.number, state.newest_us, state.evicted, unfit)
            table = _add(con, state.kept, said, (state.rounds, state.behind, state.whole))
            if rows is not None:
                schemas = [(table.id, number, schema) for number, schema in enumerate(state.schemas)]
                con.executemany("INSERT INTO table_schemas VALUES (?, ?, ?)", schemas)
                con.executemany(_PUT, ((table.id, *row) for row in rows))
            table.count, table.size = _counted(con, table)
            _bound(con, table)
            _save(con, table)

    def some(self, asked: CopyShard) -> tuple[str, bytes]:
        """(error, body) of an answer: the next rows for a shard of the table that takes the place of its
        own."""
        with self._file.reading() as con:
            con.execute("BEGIN")  # what is read is of one moment
            try:
                table = _find(con, asked.table)
                if table is None or not table.whole:
                    return NO_TABLE, b""
                if table.number < asked.least:
                    return BEHIND, b""
                return "", _encode(_part(con, table, asked, self.round_rows))
            finally:
                con.execute("COMMIT")

    # -- what people ask -------------------------------------------------------------------------------------

    def read(self, asked: ReadTable) -> TableRows | str:
        """The answer, or why there is none."""
        with self._file.reading() as con:
            con.execute("BEGIN")  # what is read is of one moment
            try:
                there = _asked(con, asked)
                table = next((one for one in there if one.whole), None)
                if table is None:
                    return NO_TABLE
                return BEHIND if table.number < asked.least else _read(con, table, asked, there[0].rounds)
            finally:
                con.execute("COMMIT")


_STATE: Final = pa.schema(
    [
        ("id", pa.binary()), ("key", pa.binary()), ("start", _US), ("end", _US),
        ("number", _US), ("row", pa.binary()),
    ]
)  # fmt: skip


def _packed(rows: Sequence[_Row]) -> bytes:
    columns = zip(*rows, strict=True) if rows else ([] for _ in _STATE)
    arrays = [pa.array(one, of.type) for one, of in zip(columns, _STATE, strict=True)]
    return encode(pa.table(arrays, _STATE))


def _serialized(table: _Table) -> tuple[bytes, ...]:
    return tuple(schema.serialize().to_pybytes() for schema in table.schemas())


def _state(con: sqlite3.Connection, table: _Table) -> TableState:
    rows = con.execute(f"{_READ} ORDER BY id", (table.id,)).fetchall()
    return TableState(
        table.kept,
        table.number,
        table.newest,
        table.evicted,
        table.unfit,
        _serialized(table),
        _packed(rows),
        table.rounds,
        table.behind,
        table.whole,
    )


def _opened(schemas: Iterable[bytes], rows: bytes) -> list[_Row] | None:
    """Rows as they travel; None: of bytes that are none."""
    try:
        for schema in schemas:
            _schema_of(schema)
        columns = [column.to_pylist() for column in decode(rows).cast(_STATE).columns]
    except (PeerError, *WRONG):
        return None
    return list(zip(*columns, strict=True))


class _Table:
    """The row of a table, by ``_COLUMNS``."""

    def __init__(self, con: sqlite3.Connection, row: tuple[Any, ...]) -> None:
        self._con = con
        self.id, kept, self.number, self.newest, self.evicted, self.unfit, *rest = row
        self.kept: TableKept = _kept_of(kept)
        self.count, self.size, self.rounds, self.behind, whole = rest
        self.whole = bool(whole)

    def schemas(self) -> list[pa.Schema]:
        """Of its rows, by number."""
        sql = "SELECT schema FROM table_schemas WHERE tbl = ? ORDER BY number"
        return [_schema_of(schema) for (schema,) in self._con.execute(sql, (self.id,))]

    def number_of(self, schema: pa.Schema) -> int:
        """Of a schema, which is kept if it is a new one."""
        known = self.schemas()
        if schema not in known:
            values = (self.id, len(known), schema.serialize().to_pybytes())
            self._con.execute("INSERT INTO table_schemas VALUES (?, ?, ?)", values)
            known.append(schema)
        return known.index(schema)


def _stored(table: _Table) -> StoredTable:
    return StoredTable(table.kept, table.rounds, table.whole, table.number, table.behind)


def _renumbered(row: _Row, numbers: Sequence[int]) -> _Row:
    """With the numbers that the schemas have in another table."""
    number, *values = _decode(row[-1])
    return (*row[:-1], _encode((numbers[number], *values)))


def _schema_of(data: bytes) -> pa.Schema:
    return pa.ipc.read_schema(pa.BufferReader(data))


_COLUMNS: Final = 'id, kept, number, newest, evicted, unfit, "count", size, rounds, behind, whole'


def _find(con: sqlite3.Connection, uid: str) -> _Table | None:
    return next(iter(_where(con, "uid", uid)), None)


def _where(con: sqlite3.Connection, column: Literal["uid", "job"], value: str) -> list[_Table]:
    found = con.execute(f"SELECT {_COLUMNS} FROM kept_tables WHERE {column} = ? ORDER BY uid", (value,))
    return [_Table(con, row) for row in found.fetchall()]


def _is_part(table: _Table) -> bool:
    return is_shard(table.kept.table)


def _is_past(con: sqlite3.Connection, kept: TableKept) -> bool:
    """Whether a later table of that name is there: after a restart, which hears of records again, the word on
    one whose place that has taken comes once more."""
    if is_shard(kept.table):
        return False
    there = (one.kept.table for one in _where(con, "job", kept.job) if not _is_part(one))
    return any(
        lineage(one) == lineage(kept.table) and generation(one) > generation(kept.table) for one in there
    )


def _asked(con: sqlite3.Connection, asked: ReadTable) -> list[_Table]:
    """The table that is asked for, and those whose place it takes, the last one first."""
    if not asked.of:
        return [one for one in (_find(con, asked.table),) if one is not None]
    there = [one for one in _where(con, "job", asked.uid) if lineage(one.kept.table) == lineage(asked.table)]
    there = [one for one in there if not _is_part(one)]
    return sorted(there, key=lambda one: one.id, reverse=True)


def _add(
    con: sqlite3.Connection,
    kept: TableKept,
    said: tuple[int, int | None, int, int],
    rounds: tuple[int, bytes, bool],
) -> _Table:
    """A table without rows. ``said``: its number, where its newest window ends, rows evicted, and unfit."""
    columns = "uid, job, kept, number, newest, evicted, unfit, rounds, behind, whole"
    sql = f"INSERT INTO kept_tables ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    con.execute(sql, (kept.table, kept.job, _encode(kept), *said, *rounds))
    (table,) = _where(con, "uid", kept.table)
    return table


def _succeed(con: sqlite3.Connection, kept: TableKept, old: _Table) -> None:
    """A table takes the place of another one, whose rows come in rounds; or it is the one that was there
    before that."""
    before = _find(con, old.kept.of)
    if before is not None and takes_back(kept.key, _stored(old), _stored(before)):
        _drop(con, old)
        kept = replace(before.kept, table=kept.table, of=kept.of)
        sql = "UPDATE kept_tables SET uid = ?, kept = ? WHERE id = ?"
        con.execute(sql, (kept.table, _encode(kept), before.id))
        return
    while not old.whole:
        _copy(con, old, ROUND_ROWS)
    kept = replace(kept, columns=old.kept.columns)
    table = _add(con, kept, (old.number, old.newest, old.evicted, old.unfit), (0, b"", False))
    sql = "INSERT INTO table_schemas SELECT ?, number, schema FROM table_schemas WHERE tbl = ?"
    con.execute(sql, (table.id, old.id))


def _copy(con: sqlite3.Connection, table: _Table, most: int) -> None:
    """A round: the next groups have what the other table has for them."""
    rows: list[_Row] = []
    if (old := _find(con, table.kept.of)) is not None:
        sql = f"{_READ} AND id > ? ORDER BY id LIMIT ?"
        rows = con.execute(sql, (old.id, table.behind, most)).fetchall()
    places = [table.kept.columns.index(name) for name in table.kept.key]
    keys = (_encode([values[place] for place in places]) for values in (_decode(row[0]) for row in rows))
    _put(con, table, [(row[0], key, *row[2:]) for row, key in zip(rows, keys, strict=True)])
    table.rounds += 1
    table.behind, table.whole = rows[-1][0] if rows else table.behind, len(rows) < most
    if table.whole:
        _bound(con, table)
    _save(con, table)


def _part(con: sqlite3.Connection, table: _Table, asked: CopyShard, most: int) -> ShardPart:
    sql = f"{_READ} AND id > ? ORDER BY id LIMIT ?"
    rows: list[_Row] = con.execute(sql, (table.id, asked.after, most)).fetchall()
    found: list[_Row] = []
    if rows:
        places = range_places(_table_of(rows, table.schemas()), asked.key, table.kept.shards)
        own = [row for row, place in zip(rows, places, strict=True) if place == asked.place]
        columns = [table.kept.columns.index(name) for name in asked.key]
        keys = (_encode([values[place] for place in columns]) for values in (_decode(row[0]) for row in own))
        found = [(row[0], key, *row[2:]) for row, key in zip(own, keys, strict=True)]
    return ShardPart(
        table.number,
        table.newest,
        _serialized(table),
        _packed(found),
        rows[-1][0] if rows else asked.after,
        len(rows) == most,
    )


def forget(con: sqlite3.Connection, job: str) -> None:
    """All tables of a job."""
    for table in _where(con, "job", job):
        _drop(con, table)


def _drop(con: sqlite3.Connection, table: _Table | None) -> None:
    if table is not None:
        con.execute("DELETE FROM table_rows WHERE tbl = ?", (table.id,))
        con.execute("DELETE FROM table_schemas WHERE tbl = ?", (table.id,))
        con.execute("DELETE FROM kept_tables WHERE id = ?", (table.id,))


# -- windows to rows -----------------------------------------------------------------------------------------


def _take(con: sqlite3.Connection, table: _Table, row: WindowCommit, number: int) -> None:
    kept, unfit = table.kept, 0
    gone, new = list[_Span](), list[_Row]()
    try:
        rows = decode(row.rows) if row.rows else pa.table({})
        gone = _windows(decode(row.status)) if row.revision else []
        if rows.num_rows and set(rows.column_names) >= {*kept.columns, *WINDOW_COLUMNS}:
            new = _rows(table, rows, number)
        else:
            unfit = rows.num_rows
        if not table.whole:  # the others come with the rounds, as the table of before has them by then
            new = _had(table, rows, new)
    except (PeerError, *WRONG):  # all members have it, and go on
        gone, new, unfit = [], [], 1
    # What windows had first: one that is a part of another one by now must not stand in its way.
    for start, end in gone:
        _delete(con, table, '"end" = ? AND start = ? AND number < ?', (end, start, number))
    _put(con, table, new)
    table.number, table.unfit = number, table.unfit + unfit
    table.newest = max(row.last_end, row.last_end if table.newest is None else table.newest)
    if kept.retain_us:
        _delete(con, table, '"end" <= ?', (table.newest - kept.retain_us,))
    _bound(con, table)
    _save(con, table)


def _had(table: _Table, rows: pa.Table, new: list[_Row]) -> list[_Row]:
    """Those of groups that have come from the table whose place it takes. Raises what Arrow does."""
    if not is_shard(table.kept.table):
        return [one for one in new if one[0] <= table.behind]
    if not new:
        return []
    places, last = range_places(rows, table.kept.was, table.kept.shards), cursor(table.behind)
    return [one for one, place in zip(new, places, strict=True) if (int(place), one[0]) <= last]


def _windows(table: pa.Table) -> list[_Span]:
    """Start and end of each row's. Raises what Arrow does, or ``ValueError``, where there are none."""
    us = pa.timestamp("us")
    starts, ends = (table[name].cast(us).cast(_US).to_pylist() for name in WINDOW_COLUMNS)
    if None in starts or None in ends:
        raise ValueError("a window without bounds")
    return list(zip(starts, ends, strict=True))


def _rows(table: _Table, rows: pa.Table, number: int) -> list[_Row]:
    """Raises as ``_windows`` does."""
    windows = _windows(rows)
    own = rows.drop_columns(list(WINDOW_COLUMNS))
    columns = {name: _plain(own[name]) for name in own.column_names}
    schema = table.number_of(own.schema.remove_metadata())
    values = zip(*columns.values(), strict=True)
    groups = zip(*(columns[name] for name in table.kept.columns), strict=True)
    keys = zip(*(columns[name] for name in table.kept.key), strict=True)
    return [
        (_encode(group), _encode(key), *window, number, _encode((schema, *said)))
        for group, key, window, said in zip(groups, keys, windows, values, strict=True)
    ]


def _plain(column: pa.ChunkedArray) -> list[Any]:
    """Its values as they are stored."""
    values: list[Any] = column.cast(_stored_as(column.type)).to_pylist()
    return values


def _stored_as(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return _US
    return pa.string() if pa.types.is_decimal(kind) else kind


def _counted(
    con: sqlite3.Connection, table: _Table, where: str = "true", values: Sequence[object] = ()
) -> tuple[int, int]:
    """Rows, and their bytes."""
    sql = f"SELECT count(*), coalesce(sum({_ROW_BYTES}), 0) FROM table_rows WHERE tbl = ? AND {where}"
    count, size = con.execute(sql, (table.id, *values)).fetchone()
    return count, size


def _put(con: sqlite3.Connection, table: _Table, rows: Iterable[_Row]) -> None:
    """Each takes the place of the row of its group, if it counts before that. What the table has is counted
    by these groups alone: a window may be small beside it."""
    rows = sorted(rows, key=itemgetter(0))
    for begin in range(0, len(rows), _AT_ONCE):
        some = rows[begin : begin + _AT_ONCE]
        where, groups = f"id IN ({', '.join('?' * len(some))})", [row[0] for row in some]
        count, size = _counted(con, table, where, groups)
        con.executemany(_PUT, ((table.id, *row) for row in some))
        count_now, size_now = _counted(con, table, where, groups)
        table.count, table.size = table.count + count_now - count, table.size + size_now - size


def _delete(con: sqlite3.Connection, table: _Table, where: str, values: Sequence[object]) -> None:
    count, size = _counted(con, table, where, values)
    con.execute(f"DELETE FROM table_rows WHERE tbl = ? AND {where}", (table.id, *values))
    table.count, table.size = table.count - count, table.size - size


def _bound(con: sqlite3.Connection, table: _Table) -> None:
    """Let go of rows that are too many: the oldest windows' first."""
    if table.size <= BYTES_MAX:
        return
    over: list[bytes] = []
    oldest = con.execute(
        f'SELECT id, {_ROW_BYTES} FROM table_rows WHERE tbl = ? ORDER BY "end", id', (table.id,)
    )
    for group, nbytes in oldest:
        if table.size <= BYTES_MAX:
            break
        over.append(group)
        table.size -= nbytes
    oldest.close()
    con.executemany("DELETE FROM table_rows WHERE tbl = ? AND id = ?", ((table.id, one) for one in over))
    table.count, table.evicted = table.count - len(over), table.evicted + len(over)


def _save(con: sqlite3.Connection, table: _Table) -> None:
    """What has changed of the row of a table."""
    names = ("number", "newest", "evicted", "unfit", "count", "size", "rounds", "behind", "whole")
    changes = ", ".join(f'"{name}" = ?' for name in names)
    sql = f"UPDATE kept_tables SET {changes} WHERE id = ?"
    con.execute(sql, (*(getattr(table, name) for name in names), table.id))


# -- rows to answers -----------------------------------------------------------------------------------------


def _read(con: sqlite3.Connection, table: _Table, asked: ReadTable, rounds: int) -> TableRows | str:
    schemas = table.schemas()
    wanted = {name.lower(): values for name, values in asked.equals}
    found = all(name.lower() in wanted for name in table.kept.key)
    rows: list[_Row] = []
    more = False
    if asked.rows and schemas:
        if found and prod(len(wanted[name.lower()]) for name in table.kept.key) > KEYS_MAX:
            return f"its key has {KEYS_MAX} values at most in one question"
        try:
            some = _by_key(con, table, wanted, schemas[-1]) if found else _behind(con, table, asked.after)
        except (*NO_CAST, OverflowError) as error:
            return f"its key cannot have this value: {error}"
        size = 0
        for row in some:
            if not found and size > PAGE_BYTES:
                more = True
                break
            rows.append(row)
            size += len(row[-1])
    return TableRows(
        table.kept,
        table.number,
        table.newest,
        table.count,
        table.size,
        table.evicted,
        table.unfit,
        encode(_table_of(rows, schemas)) if schemas else b"",
        found,
        more,
        rows[-1][0] if more else b"",
        rounds,
    )


def _by_key(
    con: sqlite3.Connection, table: _Table, wanted: dict[str, tuple[Any, ...]], schema: pa.Schema
) -> list[_Row]:
    """Of each key that is asked for, by key and group. Raises what Arrow raises for a value of another
    type."""
    columns: list[Sequence[Any]] = []
    for name in table.kept.key:
        kind = schema.field(name).type
        values = (pa.array([value]).cast(kind) for value in wanted[name.lower()])
        columns.append([value for one in values for value in one.cast(_stored_as(kind)).to_pylist()])
    keys = sorted({_encode(key) for key in product(*columns)})
    return [row for key in keys for row in con.execute(_FIND, (table.id, key))]


def _behind(con: sqlite3.Connection, table: _Table, after: bytes) -> Iterable[_Row]:
    return con.execute(f"{_READ} AND id > ? ORDER BY id", (table.id, after))


def _table_of(rows: Sequence[_Row], schemas: Sequence[pa.Schema]) -> pa.Table:
    """As a window's rows are: its bounds, then its columns."""
    tables = [_of_schema([], schemas[-1])]
    opened = [(row, _decode(row[-1])) for row in rows]
    for number, some in groupby(opened, lambda one: int(one[1][0])):
        tables.append(_of_schema(list(some), schemas[number]))
    return joined(tables)


def _of_schema(rows: Sequence[tuple[_Row, Sequence[Any]]], schema: pa.Schema) -> pa.Table:
    us = pa.timestamp("us")
    bounds = [pa.array([row[place] for row, _ in rows], _US).cast(us) for place in (2, 3)]
    columns = dict(zip(WINDOW_COLUMNS, bounds, strict=True))
    for place, field in enumerate(schema, 1):
        values = [said[place] for _, said in rows]
        columns[field.name] = pa.array(values, _stored_as(field.type)).cast(field.type)
    return pa.table(columns)


def answer(tables: TableStore, asked: ReadTable) -> tuple[str, bytes]:
    """(error, body) of an answer."""
    found = tables.read(asked)
    return (found, b"") if isinstance(found, str) else ("", _encode(found))
