"""A table of a job: of each of its groups the row of the last window that had it, found by key.

The catalog log has a table as an output of the kind ``TABLE`` (``elf.job.output``): it stays in the fleet.
The job's group has what it is made of (``TableKept``), as a record. From there on each member of the group
puts the rows of every window that it applies into its own store (``agents.disk.tablestore``). So all members
have the same rows after the same windows, whoever leads, and a table needs no messages but those that read
it.

A row is *of* a group, by the columns that the job groups by (``columns``); it is *found* by some of these
(``key``). Which row of a group counts follows from its window alone: the later one, then
what was committed of it last.

**Shards.** The rows of a table with ``SHARDS m`` are divided by the hash of their key, as the groups of a
flow are (``elf.aggregates.split_by_range``). A shard is a table of its own (``shard_uid``), in the job group
of a key range of the job. The leader of that asks the job's master for the results behind the last one that
the shard has (``ReadShard``), and what is of this shard in them becomes a record of its group
(``ShardRows``). The job's own group has of the whole table where it begins, and no rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Final

import msgspec

from elf.fields import Count, GroupUid, JobUid, Label, Length, Micros, Place, Serial, Trees
from elf.job.commits import WindowCommit
from elf.job.output import TABLE, OutputSpec
from elf.job.spec import JobSpec
from elf.ql.fuel import KEYS_MAX
from elf.ql.plan import Plan
from elf.wire.base import Request

TABLES_MAX: Final = 2
"""Of one job."""
BYTES_MAX: Final = 32 << 20
"""Of the rows of a table, with their keys: all of a job's tables are in a state of its group. Beyond it the
rows leave that were longest in no window."""
COLUMNS_MAX: Final = 16
"""Of a key."""
ROUND_ROWS: Final = 1_000
"""That get another key in one record: 10 ms or so, which readers and windows wait for."""
ROUND_PAUSE_MS: Final = 40
"""Between two of these, for readers and windows."""
PAGE_BYTES: Final = 4 << 20
"""Of rows that are read at a time, but for a single larger one."""
WINDOWS_MAX: Final = 64
"""Results that a shard is told at a time."""

Columns = Annotated[tuple[Label, ...], msgspec.Meta(max_length=COLUMNS_MAX)]
OldUid = Annotated[str, msgspec.Meta(max_length=64)]
"""Of a table that was there before; empty: there was none."""
Group = Annotated[bytes, msgspec.Meta(max_length=1 << 20)]
"""The values of the columns by which rows are grouped, encoded."""
Cursor = tuple[int, bytes]
"""Where a shard is that takes rows of the table whose place its own takes: the shard of that from which the
next ones come, and the group behind which they are."""
Scalar = bool | int | float | str
Asked = tuple[Label, Annotated[tuple[Scalar, ...], msgspec.Meta(max_length=KEYS_MAX)]]
"""A column, and the values of which it is to have one."""


class TableKept(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A table, as a record of its job's group: it has the rows of the last window that is committed by then,
    and of all that come. ``columns``: those that the job groups by; ``key``: some of them; ``retain_us``:
    rows of windows that ended so long before the newest one leave; 0: none does. ``over``: there is no such
    table any more. ``of``: the table whose place it takes. It has the rows of that one when so many
    ``TableRound`` have come as that takes, and is not read before. ``shards``: how many the table has, of
    which this may be one."""

    job: GroupUid
    table: GroupUid
    columns: Columns
    key: Columns
    retain_us: Length = 0
    over: bool = False
    of: OldUid = ""
    shards: Trees = 1
    was: Annotated[tuple[Label, ...], msgspec.Meta(max_length=COLUMNS_MAX)] = ()
    """Of a shard of a table that takes the place of another one: the key of that."""

    def __post_init__(self) -> None:
        if not self.key or not set(self.key) <= set(self.columns):
            raise ValueError("a key of other columns")


class TableRound(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The next rows of the table whose place this one takes, by its new key: ``ROUND_ROWS`` of them, in the
    round of that number, from 1 on."""

    job: JobUid
    table: JobUid
    number: Serial


class ShardPart(msgspec.Struct, frozen=True, array_like=True):
    """After all results up to ``number``, the rows of groups up to ``next``; ``more``: there are some behind
    that. ``rows`` and ``schemas``: see ``agents.disk.tablevalues``."""

    number: Serial
    newest_us: Micros | None
    schemas: Annotated[tuple[bytes, ...], msgspec.Meta(max_length=4_096)]
    rows: bytes
    next: Group
    more: bool


class ShardRows(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """What is of a shard in the results of its job behind number ``after``, up to ``upto``; ``lost`` of them
    were no longer kept when the shard came to them. A shard that is not at ``after`` has it, or will."""

    job: GroupUid
    table: GroupUid
    after: Serial
    upto: Serial
    windows: Annotated[tuple[WindowCommit, ...], msgspec.Meta(max_length=WINDOWS_MAX)]
    lost: Count = 0


class ShardRound(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Rows for a shard of a table that takes the place of another one: a part of those that the shard
    ``place`` of that one has behind the group ``after``. A shard that is at another result, or wants others
    first, has them, or will."""

    job: GroupUid
    table: GroupUid
    place: Place
    after: Group
    part: ShardPart


class TableState(msgspec.Struct, frozen=True, array_like=True):
    """A table in a state of its group, after all windows up to ``number``. ``schemas`` and ``rows``: see
    ``agents.disk.tablevalues``."""

    kept: TableKept
    number: Serial
    newest_us: Micros | None
    evicted: Count
    unfit: Count
    schemas: Annotated[tuple[bytes, ...], msgspec.Meta(max_length=4_096)]
    rows: bytes
    rounds: Serial = 0
    """How many there were; and the group behind which the next one begins, if there is one."""
    behind: bytes = b""
    whole: bool = True


class StoredTable(msgspec.Struct, frozen=True):
    """A table from the store: how many rounds it has had, and whether it has all rows."""

    kept: TableKept
    rounds: int = 0
    whole: bool = True
    number: int = 0
    behind: bytes = b""


class ReadShard(Request, frozen=True, kw_only=True):
    """From the leader of a shard's group to the master of the job ``uid``: what is of the shard ``place`` in
    the results behind ``after``; 0: from where the table begins. ``upto``: none behind that; 0: all. Answered
    with ``ShardWindows``."""

    uid: JobUid
    table: JobUid
    key: Columns
    shards: Trees
    place: Place
    after: Serial
    upto: Serial = 0


class CopyShard(Request, frozen=True, kw_only=True):
    """From the leader of a shard's group to that of a shard ``table`` of the table whose place its own takes,
    in the group ``uid``: the next rows behind ``after`` that are of the shard ``place`` by the new key, after
    all results up to ``least``, or more. Answered with ``ShardPart``."""

    uid: GroupUid
    table: GroupUid
    key: Columns
    place: Place
    after: Group
    least: Serial


class ShardWindows(msgspec.Struct, frozen=True, array_like=True):
    """See ``ShardRows``."""

    upto: Serial
    windows: Annotated[tuple[WindowCommit, ...], msgspec.Meta(max_length=WINDOWS_MAX)] = ()
    lost: Count = 0


class ReadTable(Request, frozen=True, kw_only=True):
    """To the job group of ``uid``, or with ``anywhere`` to a member of it: rows of a table, or of a shard in
    the group of a key range, after all windows that it has by then, which are those up to ``least``, or more.
    Answered with ``TableRows``.

    ``of``: it takes the place of another one; until it has all rows the last one before it that has them is
    read. ``equals``: where
    these are all columns of the key the rows that have it are read, else all rows, in
    portions: those behind ``after``. Without ``rows`` what the table is, and none of them.
    """

    uid: GroupUid
    table: GroupUid
    of: OldUid = ""
    equals: Annotated[tuple[Asked, ...], msgspec.Meta(max_length=COLUMNS_MAX)] = ()
    after: Annotated[bytes, msgspec.Meta(max_length=1 << 20)] = b""
    least: Serial = 0
    anywhere: bool = False
    rows: bool = True


class TableRows(msgspec.Struct, frozen=True):
    """Some rows of a table as an encoded table (``elf.batch``), of the windows up to ``number``; ``more``:
    read on behind ``next``. ``found``: they were found by key. ``count`` and ``size``: rows and bytes of the
    whole table; ``evicted``: rows that were too many; ``unfit``: those of windows without the columns of the
    table, and commits that are not of windows."""

    kept: TableKept
    number: Serial
    newest_us: Micros | None
    count: Count
    size: Count
    evicted: Count
    unfit: Count
    rows: bytes = b""
    found: bool = False
    more: bool = False
    next: bytes = b""
    rounds: Serial = 0
    """Of the table that is to take the place of this one, or had been of this one."""
    told: Count = 0
    """How many rows there are in ``rows``."""


BEHIND: Final = "it has not come so far yet"
"""The error of a member that lacks windows which whoever asks has seen."""
NO_TABLE: Final = "it does not have the table yet"
TOO_MANY_KEYS: Final = f"its key has {KEYS_MAX} values at most in one question"


def begun(spec: OutputSpec, plan: Plan) -> TableKept | str:
    """A table of a job with this plan, or why there can be none."""
    if why := why_no_table(plan):
        return why
    columns = grouped_by(plan)
    known = {name.lower(): name for name in columns}
    asked = spec.option("key").split(",")
    if missing := [name for name in asked if name.lower() not in known]:
        return f"{missing[0]} is no column that the job groups by; those are {', '.join(columns)}"
    key = tuple(dict.fromkeys(known[name.lower()] for name in asked))
    retain_us = int(spec.option("retain", "0"))
    shards = shards_of(spec)
    before = (known.get(name.lower(), name) for name in spec.option("was").split(",") if name)
    was = tuple(dict.fromkeys(before))  # as its own key was
    return TableKept(
        spec.job, spec.uid, columns, key, retain_us, of=spec.option("of"), shards=shards, was=was
    )


def asked_values(key: Iterable[str], equals: Iterable[Asked]) -> list[tuple[Scalar, ...]]:
    """For each column of a key the values of which it is to have one; none: the question names no key."""
    wanted = {name.lower(): values for name, values in equals}
    found = [wanted.get(name.lower()) for name in key]
    values = [one for one in found if one is not None]
    return values if len(values) == len(found) else []


def lineage(table: str) -> str:
    """What the uids of all tables of a name have in common: each may take the place of the one before."""
    return table.rpartition(".")[0]


def generation(table: str) -> int:
    """The place of a table among those of its name."""
    return int(table.rpartition(".")[2])


def heir_of(table: str, there: Iterable[OutputSpec]) -> OutputSpec | None:
    """Of the tables that the log has not dropped: the one that takes the place of this one, which it has."""
    return next((one for one in there if lineage(one.uid) == lineage(table) and one.option("of")), None)


def takes_back(key: Columns, old: StoredTable, before: StoredTable | None) -> bool:
    """Whether a table with this key, that takes the place of ``old``, is just the one ``before`` that: the
    table is still found by its key, as ``old`` has not got all rows."""
    return before is not None and before.whole and not old.whole and before.kept.key == key


def shards_of(spec: OutputSpec) -> int:
    """How many shards a table has."""
    return int(spec.option("shards", "1"))


def shard_uid(table: str, place: int) -> str:
    """The uid of a shard of a table."""
    return f"{table}#{place}"


def is_shard(table: str) -> bool:
    """Whether that is the uid of a shard."""
    return "#" in table


def table_of(table: str) -> str:
    """The uid of the table of which that is one, or a shard."""
    return table.partition("#")[0]


def shard_place(shard: str) -> int:
    """The place of a shard among those of its table."""
    return int(shard.partition("#")[2])


def first_of(kept: TableKept) -> Cursor:
    """Where a shard begins that takes rows: of the table whose place its own takes it may need those of all
    shards, of its own table (a replica that comes later) those of the same one alone."""
    return (shard_place(kept.table) if kept.of == table_of(kept.table) else 0, b"")


def cursor(kept: TableKept, behind: bytes) -> Cursor:
    """What ``StoredTable.behind`` says of a shard."""
    return msgspec.msgpack.decode(behind, type=tuple[int, bytes]) if behind else first_of(kept)


def has_all(kept: TableKept, at: Cursor) -> bool:
    """Whether a shard that is there has all rows that it takes."""
    return at[0] == (first_of(kept)[0] + 1 if kept.of == table_of(kept.table) else kept.shards)


def cursor_after(said: ShardRound) -> Cursor:
    """Where the shard is that has got these rows."""
    return (said.place, said.part.next) if said.part.more else (said.place + 1, b"")


def why_no_table(plan: Plan) -> str:
    """Why the rows of a job's windows have no key; empty: they have one."""
    if not plan.windows:
        return "it has no windows"
    if plan.steps or plan.stages or plan.join is not None or plan.beside or plan.fragment.count is not None:
        return "a table is of a job with one GROUP BY over a stream, in windows of time"
    if plan.final is not None:
        return "its function 'final' may change the rows of a window"
    keys = plan.fragment.group_keys
    if not keys:
        return "it groups by nothing, so its rows have no key"
    if not set(keys) <= dict(plan.named).keys():
        return "its SELECT list lacks something that it groups by"
    if len(keys) > COLUMNS_MAX:
        return f"it groups by more than {COLUMNS_MAX} columns"
    return ""


def why_unfit(tables: Iterable[OutputSpec], had: Plan, new: Plan) -> str:
    """Why one of the tables of a job could not take the rows of its next version; empty: all can."""
    old, now = column_kinds(had), column_kinds(new)
    changed = [name for name in old if old[name] != now.get(name, old[name])]
    why = why_no_table(new)
    if not why and old.keys() != now.keys():
        why = f"it has a row for each {', '.join(old)}, and that version groups by {', '.join(now)}"
    if not why and changed:
        name = changed[0]
        why = f"{name} is {old[name]} in it, and would be {now[name]}"
    for table in filter(is_table, tables) if why else ():
        return f"its table {table.name}: {why}; DROP TABLE {table.name} first"
    return ""


def column_kinds(plan: Plan) -> dict[str, str]:
    """The types of the columns that a job's rows are grouped by."""
    kinds = dict(zip((key for key, _ in plan.named), plan.kinds, strict=False))
    named = dict(plan.named)
    return {named[key]: kinds.get(key, "") for key in plan.fragment.group_keys if key in named}


def grouped_by(plan: Plan) -> tuple[str, ...]:
    """The columns of a job's rows that it groups by."""
    return tuple(column_kinds(plan))


def is_table(spec: OutputSpec) -> bool:
    return spec.kind == TABLE


def joins_tables(job: JobSpec) -> bool:
    """Whether a job joins rows of tables of jobs."""
    return any(one.moment is not None for one in job.definition.tables)


def joined_by(table: OutputSpec, jobs: Iterable[JobSpec]) -> list[str]:
    """The other jobs that join its rows, by name; a SELECT ends with who reads it."""
    app = table.app.hex()
    return [
        job.name
        for job in jobs
        if job.replicated and job.uid != table.job
        if any(one.moment is not None and one.moment.table == app for one in job.definition.tables)
    ]


TABLE_MESSAGES: Final = (ReadTable, ReadShard, CopyShard)
