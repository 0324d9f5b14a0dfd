"""The tables of jobs in an agent's store (``elf.job.tables``): rows that each member of a job's group puts in
as it applies windows, found by key.

What a table has is a function of the records of its group alone: of the commits in the order of their
numbers, each taken once (``kept_tables.number``).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from math import prod
from typing import Final

import msgspec
import pyarrow as pa

from agents.disk.sqlite import SqliteFile
from agents.disk.tablepages import Pages
from agents.disk.tablepoints import Points
from agents.disk.tablerows import Table, add, find, in_rings, of_job
from agents.disk.tablevalues import (
    Row,
    Span,
    as_table,
    keys_of,
    opened,
    rekeyed,
    renumbered,
    rows_of,
    schema_of,
    windows_of,
)
from elf.aggregates import range_places
from elf.batch import NO_CAST, WRONG, decode, encode
from elf.client.windows import WINDOW_COLUMNS
from elf.errors import PeerError
from elf.fields import replace
from elf.job.commits import WindowCommit
from elf.job.effects import SaveShard, SaveTable
from elf.job.events import RingKept
from elf.job.tables import (
    BEHIND,
    NO_TABLE,
    PAGE_BYTES,
    ROUND_ROWS,
    TOO_MANY_KEYS,
    CopyShard,
    ReadTable,
    ShardRound,
    ShardRows,
    StoredTable,
    TableKept,
    TableRound,
    TableRows,
    TableState,
    asked_values,
    cursor,
    cursor_after,
    generation,
    has_all,
    is_shard,
    lineage,
    takes_back,
)
from elf.ql.fuel import KEYS_MAX

_encode: Final = msgspec.msgpack.Encoder().encode


class TableStore:
    """Those of one agent's store. A method is one transaction, or a part of its thread's."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file
        self._points = Points()
        self._pages = Pages()
        self.round_rows = ROUND_ROWS

    # -- what groups have committed --------------------------------------------------------------------------

    def begin(self, kept: TableKept, last: WindowCommit | None, number: int) -> None:
        """A table begins with the rows of the last window, behind the results up to ``number``; or without
        rows, and where another one is, if it takes the place of that. One that is there stays."""
        with self._file.writing() as con:
            if find(con, kept.table) is not None:
                return
            if is_shard(kept.table):
                add(con, kept, whole=not kept.of)
                return
            if _is_past(con, kept):
                return
            if (old := find(con, kept.of)) is not None:
                _succeed(con, kept, old)
                return
            table = add(con, kept, number=number)
            if last is not None and last.seq > 0 and not last.provisional and kept.shards == 1:
                _take(table, last, last.seq)
                table.number = number
                table.save()

    def end(self, uid: str) -> None:
        with self._file.writing() as con:
            if (table := find(con, uid)) is not None:
                table.drop()

    def copy(self, said: TableRound) -> bool:
        """The next rows of the table whose place this one takes; whether it has all by now."""
        with self._file.writing() as con:
            table = find(con, said.table)
            if table is None:
                return True
            if not table.whole and said.number == table.rounds + 1:
                _copy(table, find(con, table.kept.of), self.round_rows)
            return table.whole

    def take(self, row: WindowCommit, number: int) -> None:
        """Windows are committed under this number."""
        if row.provisional or number <= 0:
            return
        with self._file.writing() as con:
            for table in of_job(con, row.job):
                if table.number < number and table.kept.shards == 1:
                    _take(table, row, number)

    def put(self, said: ShardRows) -> None:
        """A shard has more results."""
        with self._file.writing() as con:
            table = find(con, said.table)
            if table is None or table.number != said.after:
                return
            for row in said.windows:
                if not row.provisional:
                    _take(table, row, row.seq)
            table.number, table.unfit = said.upto, table.unfit + said.lost
            table.save()

    def join(self, said: ShardRound) -> None:
        """A shard has more rows of the table whose place its own takes."""
        with self._file.writing() as con:
            table = find(con, said.table)
            if table is None or table.whole or (said.place, said.after) != cursor(table.kept, table.behind):
                return
            if table.rounds and table.number != said.part.number:
                return
            rows = opened(said.part.schemas, said.part.rows)
            table.unfit += rows is None
            numbers = [table.number_of(schema_of(schema)) for schema in said.part.schemas if rows]
            table.put(renumbered(row, numbers) for row in rows or ())
            ends = [end for end in (table.newest, said.part.newest_us) if end is not None]
            table.number, table.newest = said.part.number, max(ends, default=None)
            table.rounds += 1
            at = cursor_after(said)
            table.behind, table.whole = _encode(at), has_all(table.kept, at)
            table.bound()  # the new key may have most rows in one shard
            table.save()

    def begins(self, job: str, table: str) -> int | None:
        """The number of the result with which a table with shards begins, which is that of the one that takes
        its place."""
        with self._file.reading() as con:
            there = _no_shards(con, job)
            return next((one.number for one in there if table in (one.kept.table, one.kept.of)), None)

    def stored(self, job: str) -> tuple[StoredTable, ...]:
        """The tables of a job, and how far they are."""
        with self._file.reading() as con:
            return tuple(one.stored() for one in of_job(con, job))

    def replicas(self) -> tuple[StoredTable, ...]:
        """What this agent has of tables with a ring (``elf.job.ring``)."""
        with self._file.reading() as con:
            return tuple(one.stored() for one in in_rings(con))

    def keep(self, effect: SaveTable | SaveShard) -> RingKept:
        """What becomes of a replica, which has no group."""
        if isinstance(effect, SaveTable):
            kept = effect.kept
            if kept.over:
                self.end(kept.table)
            else:
                self.begin(kept, None, 0)
        elif isinstance(effect.rows, ShardRows):
            self.put(effect.rows)
        else:
            self.join(effect.rows)
        uid = effect.kept.table if isinstance(effect, SaveTable) else effect.rows.table
        with self._file.reading() as con:
            table = find(con, uid)
            return RingKept(effect, None if table is None else table.stored())

    def states(self, job: str) -> tuple[TableState, ...]:
        """All that there is of them."""
        with self._file.reading() as con:
            return tuple(one.state() for one in of_job(con, job))

    def install(self, state: TableState) -> None:
        """A table as another member has it; one that is further stays. Of one that cannot be read there are
        no rows, which is counted."""
        with self._file.writing() as con:
            known = find(con, state.kept.table)
            if known is not None and (known.number, known.rounds) >= (state.number, state.rounds):
                return
            if known is None and _is_past(con, state.kept):
                return
            if known is not None:
                known.drop()
            rows = opened(state.schemas, state.rows)
            table = add(
                con,
                state.kept,
                number=state.number,
                newest=state.newest_us,
                evicted=state.evicted,
                unfit=state.unfit + (rows is None),
                rounds=state.rounds,
                behind=state.behind,
                whole=state.whole,
            )
            if rows is not None:
                table.fill(state.schemas, rows)
            table.bound()
            table.save()

    def some(self, asked: CopyShard) -> tuple[str, bytes]:
        """(error, body) of an answer: the next rows for a shard of the table that takes the place of its
        own."""
        with self._file.snapshot() as con:
            table = find(con, asked.table)
            if table is None or not table.whole:
                return NO_TABLE, b""
            if table.number < asked.least:
                return BEHIND, b""
            return "", _encode(self._pages.part(table, asked, self.round_rows))

    # -- what people ask -------------------------------------------------------------------------------------

    def point(self, asked: ReadTable) -> TableRows | str | None:
        """The same to a question for one key; None: ``read`` has to be asked."""
        if not (asked.rows and asked.equals):
            return None
        with self._file.reading() as con:
            return self._points.read(con, asked)

    def read(self, asked: ReadTable) -> TableRows | str:
        """The answer, or why there is none."""
        with self._file.snapshot() as con:
            there = _asked(con, asked)
            table = next((one for one in there if one.whole), None)
            if table is None:
                return NO_TABLE
            self._points.learn(table)
            return BEHIND if table.number < asked.least else _read(table, asked, there[0].rounds)


def forget(con: sqlite3.Connection, job: str) -> None:
    """All tables of a job."""
    for table in of_job(con, job):
        table.drop()


def _no_shards(con: sqlite3.Connection, job: str) -> list[Table]:
    """The tables of a job's own group, which may have shards as well."""
    return [one for one in of_job(con, job) if not is_shard(one.kept.table)]


def _is_past(con: sqlite3.Connection, kept: TableKept) -> bool:
    """Whether a later table of that name is there: after a restart, which hears of records again, the word on
    one whose place that has taken comes once more."""
    if is_shard(kept.table):
        return False
    there = (one.kept.table for one in _no_shards(con, kept.job))
    return any(
        lineage(one) == lineage(kept.table) and generation(one) > generation(kept.table) for one in there
    )


def _asked(con: sqlite3.Connection, asked: ReadTable) -> list[Table]:
    """The table that is asked for, and those whose place it takes, the last one first."""
    if not asked.of:
        return [one for one in (find(con, asked.table),) if one is not None]
    there = _no_shards(con, asked.uid)
    there = [one for one in there if lineage(one.kept.table) == lineage(asked.table)]
    return sorted(there, key=lambda one: one.id, reverse=True)


# -- one table to another ------------------------------------------------------------------------------------


def _succeed(con: sqlite3.Connection, kept: TableKept, old: Table) -> None:
    """A table takes the place of another one, whose rows come in rounds; or it is the one that was there
    before that."""
    before = find(con, old.kept.of)
    if before is not None and takes_back(kept.key, old.stored(), before.stored()):
        old.drop()
        before.rename(replace(before.kept, table=kept.table, of=kept.of))
        return
    while not old.whole:
        _copy(old, before, ROUND_ROWS)
    table = add(
        con,
        replace(kept, columns=old.kept.columns),
        number=old.number,
        newest=old.newest,
        evicted=old.evicted,
        unfit=old.unfit,
        whole=False,
    )
    table.take_schemas(old)


def _copy(table: Table, old: Table | None, most: int) -> None:
    """A round: the next groups have what the other table has for them."""
    rows: list[Row] = [] if old is None else old.rows(table.behind, most).fetchall()
    table.put(rekeyed(rows, table.kept.columns, table.kept.key))
    table.rounds += 1
    table.behind, table.whole = rows[-1][0] if rows else table.behind, len(rows) < most
    if table.whole:
        table.bound()
    table.save()


# -- windows to rows -----------------------------------------------------------------------------------------


def _take(table: Table, row: WindowCommit, number: int) -> None:
    kept, unfit = table.kept, 0
    gone, new = list[Span](), list[Row]()
    try:
        rows = decode(row.rows) if row.rows else pa.table({})
        gone = windows_of(decode(row.status)) if row.revision else []
        if rows.num_rows and set(rows.column_names) >= {*kept.columns, *WINDOW_COLUMNS}:
            new = rows_of(rows, kept, table.number_of, number)
        else:
            unfit = rows.num_rows
        if not table.whole:  # the others come with the rounds, as the table of before has them by then
            new = _had(table, rows, new)
    except (PeerError, *WRONG):  # all members have it, and go on
        gone, new, unfit = [], [], 1
    # What windows had first: one that is a part of another one by now must not stand in its way.
    for start, end in gone:
        table.delete('"end" = ? AND start = ? AND number < ?', (end, start, number))
    table.put(new)
    table.number, table.unfit = number, table.unfit + unfit
    table.newest = max(row.last_end, row.last_end if table.newest is None else table.newest)
    if kept.retain_us:
        table.delete('"end" <= ?', (table.newest - kept.retain_us,))
    table.bound()
    table.save()


def _had(table: Table, rows: pa.Table, new: list[Row]) -> list[Row]:
    """Those of groups that have come from the table whose place it takes. Raises what Arrow does."""
    if not is_shard(table.kept.table):
        return [one for one in new if one[0] <= table.behind]
    if not new:
        return []
    last = cursor(table.kept, table.behind)
    places = range_places(rows, table.kept.was, table.kept.shards)
    return [one for one, place in zip(new, places, strict=True) if (int(place), one[0]) <= last]


# -- rows to answers -----------------------------------------------------------------------------------------


def _read(table: Table, asked: ReadTable, rounds: int) -> TableRows | str:
    schemas, values = table.schemas(), asked_values(table.kept.key, asked.equals)
    rows: list[Row] = []
    more = False
    if asked.rows and schemas:
        if prod(map(len, values)) > KEYS_MAX:
            return TOO_MANY_KEYS
        try:
            keys = keys_of(table.kept.key, values, schemas[-1]) if values else []
        except (*NO_CAST, OverflowError) as error:
            return f"its key cannot have this value: {error}"
        if values:
            rows = [row for key in keys for row in table.found(key)]
        else:
            rows, more = _page(table.rows(asked.after))
    return TableRows(
        table.kept,
        table.number,
        table.newest,
        table.count,
        table.size,
        table.evicted,
        table.unfit,
        encode(as_table(rows, schemas)) if schemas else b"",
        bool(values),
        more,
        rows[-1][0] if more else b"",
        rounds,
        len(rows),
    )


def _page(rows: Iterable[Row]) -> tuple[list[Row], bool]:
    """The first of these; and whether there are more."""
    found, size = list[Row](), 0
    for row in rows:
        if size > PAGE_BYTES:
            return found, True
        found.append(row)
        size += len(row[-1])
    return found, False


def answer(tables: TableStore, asked: ReadTable) -> tuple[str, bytes]:
    """(error, body) of an answer."""
    return encoded(tables.read(asked))


def encoded(found: TableRows | str) -> tuple[str, bytes]:
    """The same of what was read."""
    return (found, b"") if isinstance(found, str) else ("", _encode(found))
