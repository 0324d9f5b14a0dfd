"""The clauses ``WITHIN … FOR n PERCENT | ON AVERAGE [BEST EFFORT]`` and ``PRIORITY …`` of a query."""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from elf.ql.bind_windows import duration_us
from elf.ql.dialect import RESEARCH, Priority, Within
from elf.ql.plan import Plan
from elf.ql.promises import PERCENT_MAX, Promise
from elf.ql.source import JOB, Source

WITHIN_US_MAX: Final = 3_600_000_000
"""An hour."""


def promise_of(source: Source, tree: exp.Expr, plan: Plan) -> Promise | None:
    """What a query promises of the windows of its plan. Raises ``QueryError``."""
    clause = _outer(source, tree, Within, "within")
    if not isinstance(clause, Within):
        return None
    if not plan.windows:
        raise source.at(clause, "WITHIN is about windows: add WINDOWING …")
    if plan.fragment.count is not None:
        raise source.at(clause, "windows of rows have no time at which they are due: leave WITHIN out")
    within_us = duration_us(source, clause.this)
    if not 0 < within_us <= WITHIN_US_MAX:
        raise source.at(clause, "WITHIN takes more than 0 and 1 HOUR at most, from the end of a window on")
    written = clause.args["percent"]
    percent = None if written is None else float(written)
    if percent is not None and not 1 <= percent <= PERCENT_MAX:
        raise source.at(clause, f"WITHIN … FOR takes 1 to {PERCENT_MAX:g} PERCENT of the windows")
    return Promise(within_us, percent, bool(clause.args["effort"]))


def gives_way(source: Source, tree: exp.Expr) -> bool:
    """Whether a query says ``PRIORITY RESEARCH``. Raises ``QueryError``."""
    clause = _outer(source, tree, Priority, "priority")
    return clause is not None and clause.this == RESEARCH


def _outer(source: Source, tree: exp.Expr, kind: type[exp.Expr], name: str) -> exp.Expr | None:
    """A clause that is of the whole query. Raises ``QueryError`` where it is anywhere else."""
    clause: exp.Expr | None = tree.args.get(name)
    inner = next((one for one in tree.find_all(kind) if one is not clause and not _of_a_job(one)), None)
    if inner is not None:
        raise source.at(inner, f"{name.upper()} is of the whole query: say it once, at the end")
    return clause


def _of_a_job(clause: exp.Expr) -> bool:
    """Whether it is what a job that is read says of its own windows."""
    above: exp.Expr | None = clause.parent
    while above is not None:
        if JOB in above.meta:
            return True
        above = above.parent
    return False
