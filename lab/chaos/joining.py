"""Jobs of a simulated fleet that join a table of another job (JOIN TABLE), and what must be true of them.

Their plans have no texts, so what is made of one with other rows of its table is said here; all else is what
agents do (``agents.answering.joining``). The oracle knows three things (protocol 7.17): the rows that a
version joins are what the table has after the results up to the number that it names; a flow of a version
joins the rows of that version (``Ledger.assembled``); and a version that no person asked for is the one
before it with other rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from agents.answering import joining
from elf.batch import encode
from elf.fields import replace
from elf.job.output import OutputSpec
from elf.job.spec import VersionRecord
from elf.ql.definition import Contents, Definition, least
from elf.ql.plan import Plan, Table, TableMoment
from elf.ql.tables import table_of
from lab.chaos.engine import BUT, stands_for
from lab.chaos.partners import counts_in

if TYPE_CHECKING:
    from lab.chaos.tables import TableReaders

EMPTY: Final = pa.table({"k0": pa.array([], pa.string()), "s0": pa.array([], pa.int64())})
MADE: Final = ("committed", "finished")


def unread(table: OutputSpec) -> Table:
    """A table of a job, before its first result."""
    data = encode(EMPTY, small=True)
    at = TableMoment(table.app.hex(), 0)
    return replace(table_of(f"TABLE {table.name}", data), name="t", moment=at)


def joined(query: Plan, table: Table) -> Plan:
    """The query, which joins a table."""
    fragment = query.fragment
    counted = fragment.map_sql.partition(BUT)[0]
    return replace(
        query, fragment=replace(fragment, map_sql=f"{counted}{BUT}{table.relation}", tables=(table,))
    )


def renewed(had: Definition, found: Mapping[str, Table]) -> Definition | None:
    """As agents renew what a job joins, who make a plan of a text."""
    whole = joining.later(had, found)
    (contents,) = whole.tables
    plan = joined(had.plan, contents.table)
    stands_for(whole, plan)
    stands_for(least(whole, plan), plan)
    return joining.renewed(had, found)


def wrong(name: str, versions: Sequence[VersionRecord], readers: TableReaders | None) -> Iterator[str]:
    """What must not be of the versions of a job."""
    there = {one.spec.version: one for one in versions if one.state in MADE}
    for number, one in there.items():
        told, new = f"{name}'s version {number}", one.spec.definition.from_now()
        before = max((other for other in there if other < number), default=None)
        if before is not None and one.by_itself and one.note.startswith("joins "):
            old = there[before].spec.definition.from_now()
            if replace(new, tables=()) != replace(old, tables=()):
                yield f"{told} was to be version {before} with other rows, and is not"
        for contents in new.tables if readers is not None else ():
            yield from _otherwise(told, contents, readers)  # type: ignore[arg-type]


def _otherwise(told: str, contents: Contents, readers: TableReaders) -> Iterator[str]:
    """Rows that the table has never had."""
    at, has = contents.moment, counts_in(contents)
    wanted = None if at is None else readers.counts(at.table, at.number)
    if at is not None and wanted is not None and wanted != has:
        yield f"{told} joins {has} as of result {at.number}, when {contents.file} had {wanted}"
