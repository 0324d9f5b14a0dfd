"""Final fragments over windows, and what comes before them where windows are made of a job's smaller ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

import pyarrow as pa

from elf.job.assembly.windows import Assembly
from elf.job.ports import FinisherPort
from elf.ql.plan import Plan
from elf.windows import Calendar

FINISH_ROWS: Final = 1 << 20
"""Groups that one run of the final fragment takes, or a little more."""


def finished(groups: Iterable[pa.Table], finish: Callable[[pa.Table], pa.Table]) -> pa.Table:
    """``finish`` over windows, many at a time but never so many that they fill the memory."""
    found: list[pa.Table] = []
    waiting: list[pa.Table] = []
    for table in groups:
        waiting += [table] if table.num_rows else []
        if sum(one.num_rows for one in waiting) >= FINISH_ROWS:
            found.append(finish(pa.concat_tables(waiting)))
            waiting = []
    if waiting:
        found.append(finish(pa.concat_tables(waiting)))
    return pa.concat_tables(found) if found else pa.table({})


def staged(
    plan: Plan, groups: pa.Table | None, start_us: int, end_us: int, finisher: FinisherPort
) -> pa.Table | None:
    """What windows are made of: panes, or what the plan's stages make of the smaller windows of
    ``[start_us, end_us)``, whole ones. It depends on nothing but these panes.
    """
    for place, stage in enumerate(plan.stages):
        smaller = Assembly(plan.before(place), Calendar((stage.window,), plan.fragment.pane_us))
        groups = finished(smaller.windows(start_us, end_us, groups), partial(finisher.stage, place))
        groups = groups if groups.num_rows else None
    return groups
