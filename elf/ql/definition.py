"""What a plan is made from: this travels, and lies in the catalog log; plans and their SQL never do.

A definition is the text of a query with everything that its plan rests on: the columns of its streams with
the types that they had when it was planned, the tables that it joins, users' functions, and what is known of
the jobs that it reads. It needs nothing beside it, so every agent makes the same plan of it, now and after a
restart, and renders the SQL that it runs by itself. What a peer says therefore goes through the same rules as
what a person says: a definition of which no plan can be made is a message that cannot be read.

A plan takes some milliseconds. Equal definitions have one plan in a process (``elf.ql.memo``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Final

import msgspec

from elf.errors import ElfBug, QueryError, UserError
from elf.fields import Label, Length, Micros, Statement, replace
from elf.ql.memo import Made, once
from elf.ql.own import OwnAggregate, owns_of
from elf.ql.plan import Fragment, Function, Plan, Table, TableMoment
from elf.ql.promises import Chosen
from elf.schema import LABELS, Column, Schema
from elf.windows import Kind
from elf.windows.sharing import Choice

if TYPE_CHECKING:  # sqlglot takes 10 MB: it is imported with the first plan
    from elf.ql.groups import Groups

MARK: Final = b"elf.Definition"
"""Bytes that have a definition in them have these, whatever they are packed in."""

TABLE_BYTES_MAX: Final = 1 << 20
"""Of the tables of a definition with those of the jobs that it reads, compressed."""


class Contents(msgspec.Struct, frozen=True, array_like=True):
    """A table that a query joins: what the query calls it, the file that it was read from, and an Arrow table
    (``elf.batch``). ``moment``: of rows of a table of a job."""

    name: Label
    file: Label
    data: bytes
    moment: TableMoment | None = None

    @classmethod
    def of(cls, table: Table) -> Contents:
        return cls(table.name, table.file, table.data, table.moment)

    @property
    def table(self) -> Table:
        """Raises ``UserError``."""
        from elf.ql.tables import table_of

        return replace(table_of(self.file, self.data), name=self.name, moment=self.moment)


class Read(msgspec.Struct, frozen=True, array_like=True):
    """A job that a query reads, as far as its readers need to know it (``elf.ql.jobs``).

    ``identity``: its plan's; ``columns``: those that its fragments read, by stream; ``pane_us``: the panes of
    its flows, which may be shorter than its windows need (``elf.windows.sharing``). ``late``: it reads late
    rows; ``final``: it has a final function. Such jobs are not read.
    """

    uid: Label
    name: Label
    identity: Label
    sql: Statement
    windows: tuple[Kind, ...]
    columns: tuple[tuple[Label, tuple[Column, ...]], ...]
    tables: tuple[Contents, ...] = ()
    functions: tuple[Function, ...] = ()
    pane_us: Length = 0
    late: bool = False
    final: bool = False
    owns: tuple[OwnAggregate, ...] = ()

    @classmethod
    def of(cls, uid: str, name: str, plan: Plan) -> Read:
        """The job of this plan."""
        from elf.ql.user_functions import functions_of

        fragments = plan.unranged
        tables = {table.name.lower(): table for one in fragments for table in one.tables}
        return cls(
            uid,
            name,
            plan.identity,
            plan.sql,
            plan.windows,
            tuple({one.stream: one.columns for one in fragments}.items()),
            tuple(map(Contents.of, tables.values())),
            functions_of(replace(plan, beside=(), final=None)),
            plan.fragment.pane_us,
            bool(plan.fragment.late_of),
            plan.final is not None,
            owns_of(fragments),
        )


class Definition(msgspec.Struct, frozen=True, array_like=True, dict=True, tag=MARK.decode()):
    """What a job's plan is made from. ``streams``: their columns, by name; ``jobs``: those that it reads, and
    those that these read; ``pane_us``: the length of its panes, where a flow with shorter ones is shared;
    ``late_of``: of FROM LATE, the flow of each stream; ``since`` and ``choice``: as the plan has them;
    ``past_us``: the event time that SINCE meant when it was asked (None: it begins now); ``owns``: the
    aggregates of people's own that its text calls; ``chosen``: what was worked out for its WITHIN."""

    sql: Statement
    streams: tuple[tuple[Label, Schema], ...]
    tables: tuple[Contents, ...] = ()
    jobs: tuple[Read, ...] = ()
    functions: tuple[Function, ...] = ()
    pane_us: Length | None = None
    late_of: tuple[tuple[Label, Label], ...] = ()
    since: tuple[Micros, Micros] | None = None
    choice: Choice | None = None
    past_us: Micros | None = None
    owns: tuple[OwnAggregate, ...] = ()
    chosen: Chosen | None = None

    @cached_property
    def made(self) -> Made[Plan]:
        """Its plan, or why there is none; held as long as this is."""
        return once(self, _planned)

    @property
    def plan(self) -> Plan:
        """Its plan. Raises ``QueryError`` where none can be made."""
        return self.made.value

    @property
    def table_bytes(self) -> int:
        """What its tables, and those of the jobs that it reads, come to."""
        tables = (*self.tables, *(table for job in self.jobs for table in job.tables))
        return sum(len(table.data) for table in tables)

    def from_now(self) -> Definition:
        """The same query, beginning when it is asked."""
        return self if self.past_us is None else msgspec.structs.replace(self, past_us=None)

    def without(self, kind: str) -> Definition:
        """The same query without the function of this kind."""
        return msgspec.structs.replace(self, functions=tuple(f for f in self.functions if f.kind != kind))


class TapDefinition(msgspec.Struct, frozen=True, array_like=True, dict=True, tag=f"{MARK.decode()} of a tap"):
    """What a subscription of a job in Python is made from: a query over a stream, or (``sql`` is empty) these
    ``columns`` of the rows for which ``where`` holds. ``name``: what the job calls it."""

    name: Label
    stream: Label
    schema: Schema
    sql: Statement = ""
    where: Statement = ""
    columns: tuple[Label, ...] = ()

    @cached_property
    def made(self) -> Made[Groups]:
        """What an agent computes for it, or why nothing; held as long as this is."""
        return once(self, _grouped)

    @property
    def groups(self) -> Groups:
        """What an agent computes for it. Raises ``QueryError``."""
        return self.made.value


def why_not(source: Definition | TapDefinition) -> str:
    """Why no plan can be made of it; empty: one can."""
    error = source.made.error
    return "" if error is None else f"no plan can be made of this definition: {error.text}"


def _planned(source: Definition) -> Plan:
    from elf.ql import jobs, planner, since, user_functions
    from elf.ql.statements import parse_query

    if source.table_bytes > TABLE_BYTES_MAX:
        raise QueryError(
            f"its tables come to more than {TABLE_BYTES_MAX >> 10} KiB; leave out rows or columns"
        )
    query = parse_query(source.sql)
    if query is None:
        raise QueryError("a definition is one SELECT")
    read = {job.name: job for job in source.jobs}

    def find(name: str) -> Read:
        if name not in read:
            raise QueryError(f"nothing is said of job {name}, which it reads")
        return read[name]

    expanded = jobs.expand(query, find)
    tables = {one.name: one.table for one in source.tables}
    owns = {one.name: one for one in source.owns}
    plan = planner.plan_streams(expanded.query, dict(source.streams), tables, source.pane_us, owns)
    plan = expanded.finish(plan)
    if source.late_of:
        plan = planner.over_late(expanded.query, plan, dict(source.late_of))
    for function in source.functions:
        plan = user_functions.with_function(plan, function)
    if source.past_us is not None:
        plan = since.begun_at(expanded.query, plan, source.past_us)
    return replace(plan, since=source.since, choice=source.choice, chosen=source.chosen)


def _grouped(source: TapDefinition) -> Groups:
    from elf.ql.groups import Groups, plan_groups, plan_rows
    from elf.ql.statements import parse_query

    if not source.sql:
        return Groups(plan_rows(source.columns, source.where, source.schema, stream=source.stream))
    query = parse_query(source.sql)
    if query is None:
        raise UserError(f"subscription {source.name}: one SELECT is needed")
    return plan_groups(query, source.schema, stream=source.stream)


def least(whole: Definition, plan: Plan) -> Definition:
    """The definition without those columns of streams and tables that its plan does not need. It is whole
    where another plan, or none, would be made of less."""
    less = msgspec.structs.replace(
        whole,
        streams=tuple((name, _needed(schema, plan.unranged)) for name, schema in whole.streams),
        tables=tuple(_least(one, plan.unranged) for one in whole.tables),
    )
    for found in (less, whole):
        try:
            if found.plan == plan:
                return found
        except UserError:
            continue
    raise ElfBug(f"another plan is made of a definition than was made of its query: {plan.sql}")


def least_tap(whole: TapDefinition) -> TapDefinition:
    """The same without those columns of the stream that it does not need. Raises ``QueryError``."""
    less = msgspec.structs.replace(whole, schema=_needed(whole.schema, [whole.groups.fragment]))
    try:
        return less if less.groups == whole.groups else whole
    except UserError:
        return whole


def _needed(schema: Schema, fragments: Iterable[Fragment]) -> Schema:
    names = {column.name for one in fragments for column in one.columns} | {schema.event_time}
    columns = tuple(column for column in schema.columns if column.name in names)
    labels = tuple(label for label in schema.labels if f"{LABELS}{label}" in names)
    return Schema(columns, schema.event_time, labels=labels)


def _least(contents: Contents, fragments: Iterable[Fragment]) -> Contents:
    """What the fragments have of a table, where all have the same of it."""
    had: Mapping[str, Table] = {
        table.digest: table for one in fragments for table in one.tables if table.name == contents.name
    }
    if len(had) != 1:
        return contents
    (table,) = had.values()
    return msgspec.structs.replace(contents, data=table.data)
