"""What the rules know of a job whose query stands in the place of its name (``elf.ql.jobs``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from sqlglot import exp

from elf.ql.draft import Draft
from elf.ql.plan import Function, Table
from elf.ql.source import JOB, Source
from elf.ql.streams import together
from elf.schema import Column, Schema
from elf.windows import Counted, Kind, Session, Sliding


@dataclass(frozen=True)
class JobQuery:
    """``text``: what the tree is of; ``columns``: those that the job's fragments read, by stream; ``tables``:
    what they join, by what the query calls it, in lower case; ``pane_us``: the panes of its flows, which may
    be shorter than its windows ask for (``elf.windows.sharing``).
    """

    name: str
    text: str
    windows: tuple[Kind, ...]
    columns: Mapping[str, tuple[Column, ...]] = field(default_factory=dict)
    tables: Mapping[str, Table] = field(default_factory=dict)
    functions: tuple[Function, ...] = ()
    pane_us: int = 0


def of_job(draft: Draft, inner: exp.Select) -> Draft:
    """What a job's query is over: its own text, its streams with the types that it was planned with, its
    tables, its functions and its panes, and no windows but its own."""
    job: JobQuery = inner.meta[JOB]
    schemas = {
        stream: _typed(draft.schemas[stream], columns, inner) for stream, columns in job.columns.items()
    }
    source = Source(job.text)
    return replace(
        draft,
        tree=inner,
        ctes={},
        source=source,
        schemas=schemas,
        schema=together(schemas, source, inner),
        tables=job.tables,
        functions=job.functions,
        pane_us=job.pane_us,
        windows=(),
        lateness_us=None,
        revise_us=None,
        changes_us=None,
        wait_us=None,
        leap=False,
        mirror=False,
    )


def _typed(now: Schema, columns: tuple[Column, ...], inner: exp.Select) -> Schema:
    """A stream's columns with the types that the job knows, its own first: so that its fragment is the same,
    whatever has been seen since. (In a UNION ALL ``*`` goes by the places of columns: there they stay.)
    """
    known = {column.name: column for column in columns}
    if inner.find(exp.SetOperation) is not None:
        there = [known.pop(column.name, column) for column in now.columns]
        return replace(now, columns=(*there, *known.values()))
    others = (column for column in now.columns if column.name not in known)
    return replace(now, columns=(*columns, *others))


def with_windows_of(draft: Draft, below: Draft, table: exp.Expr, inner: exp.Select) -> Draft:
    """A query over a job's rows: in its windows, or in larger ones, each a number of whole windows of it.
    When a row may be late, when a window is said, and for whom it waits is the job's business. Raises
    ``QueryError``.
    """
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
    return replace(
        draft,
        windows=windows,
        lateness_us=below.lateness_us,
        revise_us=below.revise_us,
        changes_us=below.changes_us,
        wait_us=below.wait_us,
        leap=below.leap,
        mirror=below.mirror,
    )


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
