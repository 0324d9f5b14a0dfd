"""``FROM JOB a JOIN JOB b ON …``: in each window of jobs that have the same windows, their rows are joined.

Each job stands there as a query of its own, with fragments, panes and groups of its own; a window is complete
when the flows of all of them are. To what comes after FROM the rows of the first job are just wider, as with
tables (``elf.ql.tables``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from sqlglot import exp

from elf.ql.draft import Draft
from elf.ql.job_queries import JobQuery, has_larger
from elf.ql.plan import Plan, Table
from elf.ql.rules_joins import join_table
from elf.ql.source import JOB, Source
from elf.ql.tables import Joined
from elf.schema import Column, ColumnType
from elf.windows import Landmark, Session
from elf.windows.kinds import span


def join_job(draft: Draft, join: exp.Join, right: Draft) -> Draft:
    """``right``: the job's query, bound. Raises ``QueryError``."""
    table, source = join.this, draft.source
    job: JobQuery = table.this.meta[JOB]
    _check(draft, right, table, job.name)
    columns = tuple(Column(one.name, cast(ColumnType, one.value.kind)) for one in right.outputs)
    contents = Table(columns, b"", name=table.alias)
    draft = join_table(draft, join, Joined(table.alias, "", contents, windowed=True))
    if len({column.name.lower() for column in columns}) < len(columns):
        raise source.at(table, f"two columns of job {job.name} differ only in case; rename one with AS there")
    return replace(draft, beside=(*draft.beside, right))


def _check(draft: Draft, right: Draft, table: exp.Expr, name: str) -> None:
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
