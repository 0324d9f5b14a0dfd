"""Tables of jobs whose rows are joined to a stream (``agents.answering.asks``): JOIN TABLE.

What a query needs of such a table is read when it is planned, and is in its definition, as the contents of a
file are. So a version of a job has one state of the table: whichever agents map its rows, and however often,
they join the same (protocol 7.17). While the job runs the leader of its group looks every few minutes; where
the rows are others, they become a version of the job by itself, from whose first window on they are joined.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from agents.answering.asks import Ask, offload
from agents.answering.past import moment
from agents.answering.tablereads import TableReads
from elf.batch import NO_CAST, decode, encode
from elf.client.past import joined
from elf.errors import UserError
from elf.fields import replace
from elf.job.messages.groups import ReconfigureJob, altered
from elf.job.output import OutputSpec
from elf.job.spec import JobSpec
from elf.ql.definition import Contents, Definition, least
from elf.ql.plan import TABLE_OF, Plan, Table, TableMoment
from elf.windows import Counted, Landmark, Session
from elf.wire.base import Answer

if TYPE_CHECKING:  # sqlglot, as in agents.answering.statements
    from elf.ql.statements import Query

_GO_ON: Final = (Landmark, Session, Counted)
"""Windows of which another version would begin new ones."""


class Joining:
    """At one agent."""

    def __init__(self, tables: TableReads) -> None:
        self._tables = tables
        self.renewing: Callable[[Definition, Mapping[str, Table]], Definition | None] = renewed
        """What becomes of a definition with these rows of its tables."""

    def read(
        self, query: Query, creator: str, known: Mapping[str, Table] | None
    ) -> Generator[list[Ask], list[Answer], Mapping[str, Table] | None]:
        """The tables that are ``known``, and those of jobs that a query joins. Raises ``UserError``."""
        from elf.ql.files import tables_asked

        asked = tables_asked(query)
        if not asked:
            return known
        found = dict(known or {})
        for called, name in asked.items():
            if called not in found:
                found[called] = yield from self._rows(self._tables.find(name, creator))
        return found

    def _rows(self, spec: OutputSpec) -> Generator[list[Ask], list[Answer], Table]:
        """A table as it is now."""
        parts = yield from self._tables.gathered(spec)
        oldest, rows = min(parts, key=lambda one: one.number), [one.rows for one in parts if one.rows]
        if not rows:
            raise UserError(
                f"table {spec.name} has had no row yet, and so no columns: join it when it has had one"
            )
        at = TableMoment(spec.app.hex(), oldest.number, oldest.newest_us)
        return (yield from offload(partial(_table, spec.name, rows, at)))

    def renewed(self, spec: JobSpec) -> Generator[list[Ask], list[Answer], ReconfigureJob | None]:
        """What its master is to make of a job, as rows that it joins are others now; None: they are the same.
        Raises ``UserError``."""
        had, found = spec.definition.from_now(), dict[str, Table]()
        for one in had.tables:
            if one.moment is not None:
                found[one.name] = yield from self._rows(self._tables.lasting(one.moment.table, one.file))
        definition = yield from offload(partial(self.renewing, had, found))
        if definition is None:
            return None
        note = f"joins {' and '.join(map(as_of, definition.tables))}"
        return altered(spec, definition, note, scale=spec.scale, in_place_of=spec.version, by_itself=True)


def _table(name: str, rows: Sequence[bytes], at: TableMoment) -> Table:
    """Rows of a table of a job as a query joins them. Columns of types that ELF-QL does not have are left
    out."""
    from elf.ql.tables import table_of

    table, columns = joined([decode(one) for one in rows]), dict[str, pa.ChunkedArray]()
    for column in table.column_names:
        kind = _type(table[column].type)
        if kind is not None:
            try:
                columns[column] = table[column].cast(kind)
            except NO_CAST:
                continue
    data = encode(pa.table(columns).combine_chunks(), small=True)
    return replace(table_of(f"{TABLE_OF}{name}", data), moment=at)


def _type(kind: pa.DataType) -> pa.DataType | None:
    """That of a joined column (``elf.ql.tables.TYPES``)."""
    if pa.types.is_integer(kind):
        return pa.int64()
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return pa.float64()
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return pa.timestamp("us")
    return kind if pa.types.is_boolean(kind) or pa.types.is_string(kind) else None


def renewed(had: Definition, found: Mapping[str, Table]) -> Definition | None:
    """The same query over other rows of its tables; None: they are the same, or older. Raises ``UserError``
    where the query cannot be asked of them, or would have other columns."""
    whole = later(had, found)
    plan = whole.plan
    if (plan.named, plan.kinds) != (had.plan.named, had.plan.kinds):
        raise UserError("with the columns that the table has now its own rows would have others")
    return None if plan.does_as(had.plan) else least(whole, plan)


def later(had: Definition, found: Mapping[str, Table]) -> Definition:
    """The same query over rows that have come later. Raises ``UserError`` where a column is gone."""
    return msgspec.structs.replace(had, tables=tuple(_again(one, found.get(one.name)) for one in had.tables))


def _again(had: Contents, table: Table | None) -> Contents:
    """What is needed of a table, of rows that have come later."""
    if table is None or had.moment is None or table.moment is None:
        return had
    if table.moment.number < had.moment.number:  # of another member of its group, which is behind
        return had
    rows, names = decode(table.data), decode(had.data).schema.names
    if missing := [name for name in names if name not in rows.column_names]:
        raise UserError(f"{had.file} has no column {missing[0]} any more")
    data = encode(rows.select(names).combine_chunks(), small=True)
    return msgspec.structs.replace(had, data=data, moment=table.moment)


def as_of(table: Contents | Table) -> str:
    """What is joined, for people: a table of a job with the moment of its rows."""
    at = table.moment
    if at is None:
        return table.file
    when = "" if at.as_of_us is None else f" as of {moment(at.as_of_us)}"
    return f"{table.file}{when} (result {at.number:,})"


def check_windows(plan: Plan, tables: Mapping[str, Table]) -> None:
    """Raises ``UserError`` where a query joins a table of a job, whose rows change between two windows, and
    has windows that go on, or look at the one before."""
    joins = next((table.file for table in tables.values() if table.moment is not None), "")
    if joins and (plan.join is not None or any(isinstance(kind, _GO_ON) for kind in plan.windows)):
        raise UserError(
            f"JOIN {joins}: its rows are read anew between two windows, and sessions, landmark windows, "
            "windows of rows and LAG go on from one to the next; save the rows in a file, and join that"
        )
