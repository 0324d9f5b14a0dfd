"""Windows out of committed panes: which panes are needed, kept and let go (``elf.job.stacks`` merges them).

An ``Assembly`` is what a master keeps in memory of one job. It can be thrown away at any time: windows are
the same, bit by bit, when their panes are given again. It never does any I/O.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elf.aggregates import normalise
from elf.job.spec import END_OF_TIME
from elf.job.stacks import Stacks
from elf.ql.plan import Plan, Window

Int64s = npt.NDArray[np.int64]


class Assembly:
    """The windows of one job, from its committed panes. Keeps what the next windows need."""

    def __init__(self, plan: Plan, window: Window) -> None:
        self._plan = plan
        pane_us = plan.fragment.pane_us
        self._slide_us = window.slide_us
        self._size, self._step = window.size_us // pane_us, window.slide_us // pane_us
        self._stacks: Stacks | None = None
        self._waiting: pa.Table | None = None
        self._panes: Int64s = np.empty(0, np.int64)
        self.next = 0
        """The first pane of the next window."""
        self.held_to = 0
        """Panes from ``next`` up to here are held."""

    def range_of(self, first_us: int, last_us: int) -> tuple[int, int]:
        """(first pane, end) of the windows that start in ``[first_us, last_us)``."""
        first, last = (-(-us // self._slide_us) * self._step for us in (first_us, last_us))
        return first, last - self._step + self._size

    def windows(self, first_us: int, last_us: int, panes: pa.Table | None) -> Iterator[pa.Table]:
        """The merged groups of each window: ``window_start``, ``window_end``, keys, states; some windows a
        table, in order. Windows without rows are left out; rows that the LIMIT leaves out may be.

        ``panes`` are those of ``range_of`` that are not held, each (pane, keys) once. To be read to the end.
        """
        start, end = self.range_of(first_us, last_us)
        stop = end - self._size + self._step
        if start != self.next:
            self._stacks, self._waiting, self._panes = None, None, self._panes[:0]
            self.held_to = start
        if panes is not None:
            self._take(panes, max(start, self.held_to), end)
        at = start
        while (at := self._skip(at)) < stop:
            stacks = self._stacks_of(at // self._size)
            slot = stacks.slot_of(at)
            until = min(stacks.count, stacks.slot_of(stop))
            yield from stacks.windows(slot, until)
            at = stacks.start_of(until)
        self.next, self.held_to = stop, end
        self._panes = self._panes[np.searchsorted(self._panes, stop) :]

    def _take(self, panes: pa.Table, start: int, end: int) -> None:
        fragment = self._plan.fragment
        names = ["_pane", *fragment.keys, *(state.name for state in fragment.states)]
        panes = normalise(panes.select(names), fragment.keys, fragment.states)
        numbers = panes["_pane"].to_numpy()
        order = np.argsort(numbers, kind="stable")
        numbers = numbers[order]
        begin, stop = np.searchsorted(numbers, (start, end))
        panes = panes.take(pa.array(order[begin:stop])).combine_chunks()
        self._panes = np.concatenate([self._panes, np.unique(numbers[begin:stop])])
        both = [table for table in (self._waiting, panes) if table is not None and table.num_rows]
        self._waiting = pa.concat_tables(both, promote_options="permissive") if both else None

    def _skip(self, at: int) -> int:
        """The first window from ``at`` on that has a pane."""
        place = int(np.searchsorted(self._panes, at))
        if place == len(self._panes):
            return END_OF_TIME
        return max(at, -(-(int(self._panes[place]) - self._size + 1) // self._step) * self._step)

    def _stacks_of(self, block: int) -> Stacks:
        before, stacks = self._stacks, self._stacks
        if stacks is None or stacks.block != block:
            tables = before.right_tables if before is not None and before.block + 1 == block else []
            tables = [*tables, *self._waiting_below((block + 1) * self._size)]
            whole = pa.concat_tables(tables, promote_options="permissive") if tables else None
            self._stacks = stacks = Stacks(self._plan, self._size, self._step, block)
            stacks.load_left(whole)
        for table in self._waiting_below((block + 2) * self._size):
            stacks.load_right(table)
        return stacks

    def _waiting_below(self, pane: int) -> list[pa.Table]:
        """Take what waits below ``pane``."""
        if self._waiting is None:
            return []
        count = int(np.searchsorted(self._waiting["_pane"].to_numpy(), pane))
        taken, rest = self._waiting.slice(0, count), self._waiting.slice(count)
        self._waiting = rest if rest.num_rows else None
        return [taken] if count else []
