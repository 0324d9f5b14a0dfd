"""Sliding windows that overlap, out of units: which stacks there are, and what waits for the next ones."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from elf.job.assembly.rows import Int64s
from elf.job.assembly.twostacks import TwoStacks
from elf.job.spec import END_OF_TIME, START_OF_TIME
from elf.ql.plan import Plan
from elf.windows import Calendar, Sliding


class Overlapping:
    """Two stacks at a time, over units in ascending order. Numbers are of units."""

    def __init__(self, plan: Plan, kind: Sliding, calendar: Calendar) -> None:
        self._plan = plan
        self._unit_us = kind.unit_us
        self.unit = kind.unit_us // calendar.pane_us
        self._kind = kind
        self._size, self._step = kind.size_us // kind.unit_us, kind.slide_us // kind.unit_us
        self._two_stacks: TwoStacks | None = None
        self._waiting: pa.Table | None = None
        self._panes: Int64s = np.empty(0, np.int64)

    def take(self, units: pa.Table) -> None:
        self._panes = np.concatenate([self._panes, np.unique(units["_pane"].to_numpy())])
        both = [table for table in (self._waiting, units) if table is not None and table.num_rows]
        self._waiting = pa.concat_tables(both, promote_options="permissive") if both else None

    def windows(self, first_us: int, last_us: int) -> Iterator[pa.Table]:
        at, stop = (
            us if abs(us) >= END_OF_TIME else self._kind.first_start(us) // self._unit_us
            for us in (first_us, last_us)
        )
        at = max(at, START_OF_TIME)
        while (at := self._skip(at)) < stop:
            two_stacks = self._two_stacks_of(at // self._size, stop - self._step + self._size)
            slot = two_stacks.slot_of(at)
            until = min(two_stacks.count, two_stacks.slot_of(stop))
            yield from two_stacks.windows(slot, until)
            at = two_stacks.start_of(until)
        self._panes = self._panes[np.searchsorted(self._panes, stop) :]

    def _skip(self, at: int) -> int:
        """The first window from ``at`` on that has a unit."""
        place = int(np.searchsorted(self._panes, at))
        if place == len(self._panes):
            return END_OF_TIME
        return max(at, -(-(int(self._panes[place]) - self._size + 1) // self._step) * self._step)

    def _two_stacks_of(self, block: int, end: int) -> TwoStacks:
        """The two stacks of a block, with the units below ``end``, the end of the last window to be made; so
        they have whole slots, though other kinds' windows may end later."""
        before, two_stacks = self._two_stacks, self._two_stacks
        if two_stacks is None or two_stacks.block != block:
            tables = before.right_tables if before is not None and before.block + 1 == block else []
            tables = [*tables, *self._waiting_below((block + 1) * self._size)]
            whole = pa.concat_tables(tables, promote_options="permissive") if tables else None
            self._two_stacks = two_stacks = TwoStacks(
                self._plan, self._unit_us, self._size, self._step, block
            )
            two_stacks.load_left(whole)
        for table in self._waiting_below(min(end, (block + 2) * self._size)):
            two_stacks.load(table)
        return two_stacks

    def _waiting_below(self, pane: int) -> list[pa.Table]:
        """Take what waits below ``pane``."""
        if self._waiting is None:
            return []
        count = int(np.searchsorted(self._waiting["_pane"].to_numpy(), pane))
        taken, rest = self._waiting.slice(0, count), self._waiting.slice(count)
        self._waiting = rest if rest.num_rows else None
        return [taken] if count else []
