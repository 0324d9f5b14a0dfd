"""What windows are made of at a master, and how their final fragments are run.

A job's windows are made of one set of panes, or, where jobs are joined, of one for each *side* of the plan
(``elf.ql.job_joins``), all with the same windows: the final fragment takes the groups of all sides of a
window together. What a side's windows are made of are panes as they are committed, panes in which the rows of
two streams meet (``elf.ql.streamjoins``), or the job's own smaller windows (the plan's stages).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from agents.committing.panetables import merged
from elf.job.assembly.windows import Assembly
from elf.job.ports import FinisherPort
from elf.job.rollup.mirrors import flow_of
from elf.job.spec import JobSpec
from elf.ql.plan import Plan, StreamJoin
from elf.windows import Calendar

FINISH_ROWS: Final = 1 << 20
"""Groups that one run of the final fragment takes, or a little more."""


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


def met(
    join: StreamJoin, rows: pa.Table | None, panes: tuple[int, int], finisher: FinisherPort
) -> pa.Table | None:
    """These panes ``[start, end)`` of joined rows. ``rows``: the flows' panes, as far as partners may be."""
    if rows is None:
        return None
    if not join.side:
        made = merged([finisher.join(rows.combine_chunks())], ("_pane", *join.keys), join.states)
        return None if made is None else made.filter(within(made, panes))
    inside = within(rows, panes)
    return finisher.join(rows.filter(pc.or_(pc.equal(rows[join.side], 1), inside)).combine_chunks())


def within(rows: pa.Table, panes: tuple[int, int]) -> pa.Array:
    """Which rows are of these panes."""
    numbers = rows["_pane"].to_numpy()
    return pa.array((numbers >= panes[0]) & (numbers < panes[1]))


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
