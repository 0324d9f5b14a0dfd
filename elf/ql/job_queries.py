"""What the rules know of jobs whose queries stand in place of their names (``elf.ql.jobs``).

After FROM: the query is over the rows of the job's windows. ``FROM JOB a JOIN JOB b ON …``: in each window of
jobs with the same windows, their rows are joined. Each job stands there as a query of its own, with
fragments, panes and groups of its own; a window is complete when the flows of all of them are. To the clauses
after FROM the rows of the first job are just wider, as with tables (``elf.ql.tables``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

from msgspec import Struct, field
from sqlglot import exp

from elf.fields import replace
from elf.ql.draft import Draft, timed
from elf.ql.own import OwnAggregate
from elf.ql.plan import Function, Plan, Table
from elf.ql.rules_joins import join_table
from elf.ql.rules_streams import together
from elf.ql.source import JOB, Source
from elf.ql.tables import Joined
from elf.schema import Column, ColumnType, Schema
from elf.windows import Counted, Kind, Landmark, Session, Sliding
from elf.windows.kinds import span


class JobQuery(Struct, frozen=True):
    """``source``: what the tree is of; ``columns``: those that the job's fragments read, by stream;
    ``tables``: what they join, by its name in the query, in lower case; ``pane_us``: the panes of its flows,
    which may be shorter than its windows need (``elf.windows.sharing``)."""

    name: str
    source: Source
    windows: tuple[Kind, ...]
    columns: Mapping[str, tuple[Column, ...]] = field(default_factory=dict)
    tables: Mapping[str, Table] = field(default_factory=dict)
    functions: tuple[Function, ...] = ()
    pane_us: int = 0
    owns: tuple[OwnAggregate, ...] = ()


def of_job(draft: Draft, inner: exp.Select) -> Draft:
    """What a job's query is over: its own text, its streams with the types that it was planned with, its
    tables, its functions, aggregates and panes, and no windows but its own."""
    job: JobQuery = inner.meta[JOB]
    schemas = {
        stream: _typed(draft.schemas[stream], columns, inner) for stream, columns in job.columns.items()
    }
    own = replace(
        draft,
        tree=inner,
        ctes={},
        source=job.source,
        schemas=schemas,
        schema=together(schemas, job.source, inner),
        tables=job.tables,
        functions=job.functions,
        pane_us=job.pane_us,
        owns={one.name: one for one in job.owns},
    )
    return timed(own, None)


def _typed(now: Schema, columns: tuple[Column, ...], inner: exp.Select) -> Schema:
    """A stream's columns with the types that the job knows, its own first, so that its fragment is the same
    whatever has been seen since. (In a UNION ALL ``*`` goes by the places of columns: there they stay.)"""
    known = {column.name: column for column in columns}
    if inner.find(exp.SetOperation) is not None:
        there = [known.pop(column.name, column) for column in now.columns]
        return replace(now, columns=(*there, *known.values()))
    others = (column for column in now.columns if column.name not in known)
    return replace(now, columns=(*columns, *others))


def with_windows_of(draft: Draft, below: Draft, table: exp.Expr, inner: exp.Select) -> Draft:
    """A query over a job's rows: in its windows, or in larger ones, each a number of whole windows of it. The
    job decides when a row is late, when a window is published, and which agents it waits for. Raises
    ``QueryError``."""
    job: JobQuery = inner.meta[JOB]
    lateness_us = None if draft.counts else draft.lateness_us  # windows of rows have none of their own
    given = {
        "lateness": lateness_us,
        "emit": draft.revise_us or draft.changes_us,
        "stragglers": draft.wait_us or draft.leap or draft.mirror or None,
    }
    for word, value in given.items():
        at = draft.tree.args.get(word)
        if at is not None or value is not None:
            has = f"FROM JOB {job.name} has the {word.upper()} of the job; leave {word.upper()} out"
            raise draft.source.at(table if at is None else at, has)
    windows, clause = draft.windows, draft.tree.args.get("windowing")
    if windows in ((), below.windows):
        windows = below.windows
    else:
        _check_larger(draft, windows, below.windows, job.name, table if clause is None else clause)
    return replace(timed(draft, below), windows=windows)


def _check_larger(
    draft: Draft, windows: tuple[Kind, ...], below: tuple[Kind, ...], name: str, at: exp.Expr
) -> None:
    has = "; ".join(kind.text for kind in below)
    if any(one.beside for one in _down(draft)):
        raise draft.source.at(
            at, f"larger windows over joined jobs ({name}) are not supported; leave WINDOWING out"
        )
    one = below[0] if len(below) == 1 else None
    if not isinstance(one, Sliding) or not one.is_tumbling:
        raise draft.source.at(
            at,
            f"larger windows are made of tumbling ones, and those of job {name} are {has or 'none'}; leave "
            "WINDOWING out",
        )
    for kind in windows:
        if isinstance(kind, Session | Counted):
            what = "sessions" if isinstance(kind, Session) else "windows of rows"
            raise draft.source.at(
                at, f"{what} are of single rows, and job {name} has windows of {has}; choose other windows"
            )
        if kind.unit_us % one.size_us:
            raise draft.source.at(
                at,
                f"larger windows are a number of whole windows of job {name}, which are of {has}; "
                f"these ({kind.text}) are not",
            )


def _down(draft: Draft) -> Iterator[Draft]:
    at = draft.below
    while at is not None:
        yield at
        at = at.below


def has_larger(draft: Draft) -> bool:
    """Whether its windows are made of smaller ones of the query below."""
    return draft.below is not None and draft.below.windows != draft.windows


def join_job(draft: Draft, join: exp.Join, right: Draft) -> Draft:
    """``right``: the job's query, bound. Raises ``QueryError``."""
    table, source = join.this, draft.source
    job: JobQuery = table.this.meta[JOB]
    _check_joined(draft, right, table, job.name)
    columns = tuple(Column(one.name, cast(ColumnType, one.value.kind)) for one in right.outputs)
    contents = Table(columns, b"", name=table.alias)
    draft = join_table(draft, join, Joined(table.alias, "", contents, windowed=True))
    if len({column.name.lower() for column in columns}) < len(columns):
        raise source.at(table, f"two columns of job {job.name} differ only in case; rename one with AS there")
    return replace(draft, beside=(*draft.beside, right))


def _check_joined(draft: Draft, right: Draft, table: exp.Expr, name: str) -> None:
    source = draft.source
    mine, theirs = ("; ".join(kind.text for kind in one.windows) or "none" for one in (draft, right))
    if has_larger(draft):
        at = draft.tree.args.get("windowing") or table
        raise source.at(at, "jobs are joined in their own windows; leave WINDOWING out")
    if draft.windows != right.windows:
        raise source.at(
            table,
            f"the rows of windows of {mine} are joined with those of the same windows, and job {name} has "
            f"windows of {theirs}",
        )
    if not draft.windows:
        raise source.at(table, "jobs are joined in their windows, and these have none")
    for kind in draft.windows:
        if isinstance(kind, Session | Landmark):
            raise source.at(
                table,
                f"windows of this kind ({kind.text}) begin with their job or key, so no two are the same",
            )
    for one in (draft, right):
        if one.changes_us is not None:
            raise source.at(table, "jobs that EMIT CHANGES are not joined: leave EMIT CHANGES out of them")


def check_panes(source: Source, tree: exp.Expr, plan: Plan) -> None:
    """Windows that are joined are made of panes of one length. Raises ``QueryError``."""
    lengths = sorted({side.fragment.pane_us for side in plan.sides})
    if len(lengths) > 1:
        table = next(join.this for join in tree.find_all(exp.Join) if join.this.meta.get("job"))
        has = " and of ".join(map(span, lengths))
        raise source.at(
            table,
            f"jobs are joined whose windows are made of panes of one length, and these are of {has}: one "
            "of them joins streams, has windows over another job's or shares a flow with shorter panes "
            "(EXPLAIN tells)",
        )
