"""The sides of a plan at the master: a job's windows are made of one set of panes, or, where jobs are joined
(``elf.ql.job_queries``), of one for each, all with the same windows. The final fragment takes the groups of
all sides of a window together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from agents.committing.finishing import FINISH_ROWS, finished
from elf.job.assembly.windows import Assembly
from elf.job.ports import FinisherPort
from elf.job.rollup.mirrors import flow_of
from elf.job.spec import JobSpec
from elf.ql.plan import Plan
from elf.windows import Calendar


class Sides:
    """The windows of each side of a plan. See ``Assembly``, as which it is kept and resumed."""

    def __init__(self, plan: Plan, calendar: Calendar) -> None:
        self._sides = [Assembly(side, calendar) for side in plan.sides]

    @property
    def next_us(self) -> int | None:
        """Windows that end by here were made."""
        return self._sides[0].next_us

    @property
    def held_from_us(self) -> int:
        return self._sides[0].held_from_us

    @property
    def calendar(self) -> Calendar:
        return self._sides[0].calendar

    @calendar.setter
    def calendar(self, calendar: Calendar) -> None:
        for side in self._sides:
            side.calendar = calendar

    def rows(
        self, first_us: int, last_us: int, panes: Sequence[pa.Table | None], finisher: FinisherPort
    ) -> pa.Table:
        """The result rows of the windows that end in ``(first_us, last_us]``; ``panes`` of each side, as
        ``Assembly.windows`` takes them."""
        made = [
            side.windows(first_us, last_us, table) for side, table in zip(self._sides, panes, strict=True)
        ]
        if len(made) == 1:
            return finished(made[0], finisher.run)
        tables = [[table for table in windows if table.num_rows] for windows in made]
        groups = [pa.concat_tables(some) if some else pa.table({}) for some in tables]
        found = [finisher.run(*parts) for parts in _parts(groups)]
        return pa.concat_tables(found) if found else pa.table({})


def _parts(groups: Sequence[pa.Table]) -> Iterator[list[pa.Table]]:
    """Some windows at a time, of all sides."""
    ends = [table["window_end"].cast(pa.int64()).to_numpy() if table.num_rows else None for table in groups]
    every = [some for some in ends if some is not None]
    if not every:
        return
    distinct, counts = np.unique(np.concatenate(every), return_counts=True)
    number = np.cumsum(counts) // FINISH_ROWS
    for part in range(int(number[-1]) + 1):
        of_part = distinct[number == part]
        if len(of_part):
            low, high = of_part[0], of_part[-1]
            yield [
                table if some is None else table.filter(pa.array((some >= low) & (some <= high)))
                for table, some in zip(groups, ends, strict=True)
            ]


Flows = frozenset[str] | None
"""Uids of flows; None for all of them."""


def flows_of_sides(spec: JobSpec) -> Iterator[tuple[Plan, Flows, Flows]]:
    """Each side with the flows that it reads, and those of them whose counts are a window's: a stream that
    several sides read is counted once."""
    if not spec.plan.beside:
        yield spec.plan, None, None
        return
    known: set[str] = set()
    for side in spec.plan.sides:
        read = set(side.own_fragments)
        flows = [flow for flow in spec.flows if flow.fragment in read]
        counted = frozenset(flow.uid for flow in flows if flow.fragment.stream not in known)
        known |= {flow.fragment.stream for flow in flows}
        yield side, frozenset(flow.uid for flow in flows), counted


def is_of(stored_as: str, flows: Flows) -> bool:
    """Whether what the store has under that name are panes of one of these flows."""
    return flows is None or flow_of(stored_as) in flows
