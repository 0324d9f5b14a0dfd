"""Archives in several regions: each is reduced where it lies to *partial states*, and these are shipped and
merged, wherever there is room for them; rows are made at the end. The lines cross no border.

    region eu   archive ── reduce ──▶ eu.states ──┐ shipped
    region ap   archive ── reduce ──▶ ap.states ──┴─ merge ──▶ both.states ── shipped ──┐
    region us   archive ── reduce ──▶ us.states ────────────────────────────────────────┴─ merge ──▶ rows

A file of states has what its query is made from (``elf.ql.definition``), its span, which archive files are in
it, and a table of groups by pane, the same that agents and attempts of a queue make. Files merge where query,
columns and span are the same, and no record is in two of them: so nothing is counted twice, along whichever
way they come. Records are known by where they stand in the life of an agent's stream
(``agents.archive.manifest.File``), which stays when files are merged or sorted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession

from agents.archive.manifest import File
from elf.aggregates import merge_tables
from elf.batch import decode, encode
from elf.errors import ElfError, UserError
from elf.ql.definition import Contents, Definition
from elf.ql.plan import Plan
from spark_backend import offline
from spark_backend.offline import Damaged
from spark_backend.partials import partials
from spark_backend.queries import Question
from spark_backend.queue.work import finished, is_divisible

FORM: Final = "elf partial states 1"
SOURCES_TOLD: Final = 3
TABLE_BYTES_MAX: Final = 1 << 40
"""Whoever merges has asked for it; a table of another agent's may be as large as ``elf.batch`` says."""


class Source(msgspec.Struct, frozen=True):
    """An archive file whose rows are in states.

    Attributes:
        path (str): the stream, and the file below its folder.
        life (str): of its agent's stream.
        first (int): the file's records are from there on,
        end (int): up to there, without it.

    Example:
        >>> states.sources[0].path.startswith("clicks/")
        True
    """

    path: str
    life: str
    first: int
    end: int

    @classmethod
    def of(cls, stream: str, file: File) -> Source:
        """Of a file that no manifest has only the first record is known."""
        end = file.end if file.rows >= 0 else file.first + 1
        return cls(f"{stream}/{file.path}", file.life, file.first, end)

    @property
    def shelf(self) -> tuple[str, str]:
        """The hour and agent, and the life: of the files of one shelf those have rows in common whose records
        overlap."""
        return self.path.rpartition("/")[0], self.life

    def overlaps(self, other: Source) -> bool:
        """Whether a file of the same shelf has rows in common with this one."""
        return self.first < other.end and other.first < self.end


class States(msgspec.Struct, frozen=True, kw_only=True):
    """What a file of states has.

    Attributes:
        form (str): of the file.
        definition (Definition): what the query's plan is made from.
        span (tuple[int, int] | None): event times ``[from, to)`` in µs; None: all.
        sources (tuple[Source, ...]): the archive files whose rows are in it.
        source_bytes (int): their size.
        data (bytes): the groups, an Arrow table (``elf.batch``): ``_pane``, keys and states.

    Example:
        >>> states.definition.plan.outputs
        ('product', 'n')
    """

    form: str = FORM
    definition: Definition
    span: tuple[int, int] | None
    sources: tuple[Source, ...]
    source_bytes: int
    data: bytes

    @property
    def table(self) -> pa.Table:
        """The groups.

        Example:
            >>> states.table.column_names
            ['_pane', 'k0', 's0_count']
        """
        return decode(self.data, TABLE_BYTES_MAX)


def read(data: bytes, name: str) -> States:
    """A file's contents, under its name.

    Raises:
        UserError: where it is none, or of another release.

    Example:
        >>> read(msgspec.msgpack.encode(states), "eu.states") == states
        True
    """
    try:
        found = msgspec.msgpack.decode(data, type=States)
        found.table.validate()
    except (msgspec.MsgspecError, ElfError) as error:
        raise UserError(f"{name} has no partial states of elf offline reduce: {error}") from None
    if found.form != FORM:
        raise UserError(f"{name} has {found.form}, and this elf reads {FORM}: use one release in all regions")
    return found


def reduced(
    spark: SparkSession,
    asked: Question,
    sql: str,
    span: tuple[int, int] | None,
    damaged: Damaged = offline.refuse,
) -> States:
    """Reduce archives to partial states.

    Args:
        spark (SparkSession): of ``spark_backend.session.opened``.
        asked (Question): the query over these archives.
        sql (str): its text.
        span (tuple[int, int] | None): event times in µs.
        damaged (Damaged): as ``spark_backend.offline.run`` takes it.

    Returns:
        States: groups of all of them.

    Raises:
        UserError: for a query whose states cannot be merged elsewhere.
        SparkFailed: when Spark cannot run the map.

    Example:
        >>> reduced(spark, asked, "SELECT product, COUNT(*) AS n FROM clicks GROUP BY product", None).span
    """
    if not is_divisible(asked.plan):
        raise UserError(
            "partial states of this query cannot be merged in another place: joins of streams, jobs over "
            "jobs, aggregates of one's own, SINCE, TREES and APPROXIMATE are for elf offline run"
        )
    streams = tuple((one.stream, one.schema) for one in asked.streams)
    tables = tuple(map(Contents.of, asked.plan.fragment.tables))
    definition = Definition(sql=sql, streams=streams, tables=tables)
    plan = definition.plan
    reach = None if span is None else offline.reached(plan, span)
    fragments = {one.stream: one for one in (plan.fragment, *plan.more)}
    tables_made, parts, size = [], list[tuple[str, list[Source]]](), 0
    for one in asked.archived:
        fragment = fragments.get(one.stream, plan.fragment)
        files = offline.files_of(one, reach, fragment, damaged)
        parts.append((one.path, [Source.of(one.stream, file) for file in files]))
        size += sum(file.bytes for file in files)
        if files:
            tables_made.append(partials(spark, fragment, [one], reach, files=files))
    sources = _apart(parts)
    if not tables_made:
        raise UserError("no file of these archives has rows of the query in this range")
    table = _merged(plan, tables_made)
    return States(definition=definition, span=span, sources=sources, source_bytes=size, data=encode(table))


def merged(parts: Sequence[tuple[str, States]]) -> States:
    """Partial states of several regions as one; ``parts``: each with a name.

    Raises:
        UserError: where they are of different queries, columns or spans, or a record is in two.

    Example:
        >>> merged([("eu.states", states)]).sources == states.sources
        True
    """
    (first, one), *others = parts
    for name, other in others:
        if other.definition.sql != one.definition.sql:
            raise UserError(f"{name} is of another query than {first}")
        if other.definition != one.definition:
            raise UserError(
                f"{name} has other columns than {first}: {_differ(one, other)}; declare them alike in all "
                "regions (--column NAME=TYPE)"
            )
        if other.span != one.span:
            raise UserError(f"{name} is of another span than {first}: say --from and --to as dates or times")
    sources = _apart((name, part.sources) for name, part in parts)
    table = _merged(one.definition.plan, [part.table for _, part in parts])
    return States(
        definition=one.definition,
        span=one.span,
        sources=sources,
        source_bytes=sum(part.source_bytes for _, part in parts),
        data=encode(table),
    )


def rows_of(states: States) -> pa.Table:
    """The rows of the query, as ``spark_backend.offline.answer`` gives them.

    Example:
        >>> rows_of(states)["n"].to_pylist()
        [2]
    """
    return finished(states.definition.plan, states.table, states.span)


def _apart(parts: Iterable[tuple[str, Sequence[Source]]]) -> tuple[Source, ...]:
    """All sources of these parts, each with a name. Raises ``UserError`` where two parts have a record in
    common; in one, files may overlap: some that were sorted together name the records between them, too."""
    known: dict[tuple[str, str], list[tuple[str, Source]]] = {}
    for name, sources in parts:
        twice = {
            source.path: other
            for source in sources
            for other, its in known.get(source.shelf, ())
            if source.overlaps(its)
        }
        if twice:
            told, (other, *_) = ", ".join([*twice][:SOURCES_TOLD]), twice.values()
            raise UserError(f"{name} and {other} both have rows of {told}: they would count twice")
        for source in sources:
            known.setdefault(source.shelf, []).append((name, source))
    return tuple(source for shelf in known.values() for _, source in shelf)


def _merged(plan: Plan, tables: Sequence[pa.Table]) -> pa.Table:
    keys = ("_pane", *plan.fragment.keys)
    table = merge_tables(list(tables), keys, plan.fragment.task_states)
    return table.sort_by([(name, "ascending") for name in keys])


def _differ(one: States, other: States) -> str:
    """Which columns."""
    types = [
        {(name, c.name): c.type for name, schema in part.definition.streams for c in schema.columns}
        for part in (one, other)
    ]
    named = sorted({*types[0], *types[1]})
    found = [column for of, column in named if types[0].get((of, column)) != types[1].get((of, column))]
    return ", ".join(found[:SOURCES_TOLD]) or "its joined tables"
