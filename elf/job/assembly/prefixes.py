"""Windows that grow (cumulative, landmark), made of units: each is the one before it and one more unit."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from elf.job.assembly.rows import Int64s
from elf.job.assembly.twostacks import Prefixes
from elf.job.spec import END_OF_TIME
from elf.ql.plan import Plan
from elf.windows import Calendar, Cumulative, Landmark

TERMS_MAX: Final = 1 << 31
"""The most units in a landmark window: two thousand years of 30 s."""


class Growing:
    """One block at a time: a cumulative window's size, or from a landmark to the next."""

    def __init__(self, plan: Plan, kind: Cumulative | Landmark, calendar: Calendar) -> None:
        self._plan = plan
        self._kind = kind
        self._calendar = calendar
        self.unit = kind.unit_us // calendar.pane_us
        self._block: Block | None = None
        self._waiting: list[pa.Table] = []

    def take(self, units: pa.Table) -> None:
        starts = self._calendar.starts_of(self._kind, (units["_pane"].to_numpy() + 1) * self._kind.unit_us)
        edges = [0, *(np.flatnonzero(np.diff(starts)) + 1).tolist(), len(starts)]
        self._waiting += [units.slice(a, b - a) for a, b in itertools.pairwise(edges)]

    def windows(self, first_us: int, last_us: int) -> Iterator[pa.Table]:
        for table in self._waiting:
            ends = (table["_pane"].to_numpy()[:1] + 1) * self._kind.unit_us
            start_us = int(self._calendar.starts_of(self._kind, ends)[0])
            if self._block is None or self._block.start_us != start_us:
                if self._block is not None:
                    yield from self._block.windows(first_us, last_us)
                self._block = Block(self._plan, self._kind, start_us)
            self._block.load(table)
        self._waiting = []
        if self._block is not None:
            yield from self._block.windows(first_us, last_us)


class Block:
    """Windows that begin at ``start_us``."""

    def __init__(self, plan: Plan, kind: Cumulative | Landmark, start_us: int) -> None:
        self.start_us = start_us
        self._kind = kind
        self._unit = start_us // kind.unit_us
        terms = kind.size_us // kind.step_us if isinstance(kind, Cumulative) else TERMS_MAX
        self._prefixes = Prefixes(plan, kind.unit_us, self._unit, 1, terms, start_us)
        self._busy: Int64s = np.empty(0, np.int64)
        self._next = 0

    def load(self, units: pa.Table) -> None:
        self._busy = np.concatenate([self._busy, np.unique(units["_pane"].to_numpy()) - self._unit])
        self._prefixes.load(units)

    def windows(self, first_us: int, last_us: int) -> Iterator[pa.Table]:
        """The windows that were not made before, end in ``(first_us, last_us]`` and have rows; of a landmark,
        those with new rows."""
        if not len(self._busy):
            return
        unit_us = self._kind.unit_us
        first = max(self._next, int(self._busy[0]))
        if first_us > -END_OF_TIME:
            first = max(first, first_us // unit_us - self._unit)
        if isinstance(self._kind, Cumulative):
            stop = self._kind.size_us // unit_us
        else:
            stop = int(self._busy[-1]) + 1
        if last_us < END_OF_TIME:
            stop = min(stop, last_us // unit_us - self._unit)
        if isinstance(self._kind, Cumulative):
            runs = [(first, stop)]
        else:
            slots = self._busy[(self._busy >= first) & (self._busy < stop)]
            edges = [0, *(np.flatnonzero(np.diff(slots) != 1) + 1).tolist(), len(slots)]
            runs = [(int(slots[a]), int(slots[b - 1]) + 1) for a, b in itertools.pairwise(edges) if a < b]
        for a, b in runs:
            yield from self._prefixes.windows(a, b)
        self._next = max(self._next, stop)
        self._prefixes.forget()
