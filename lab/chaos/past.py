"""The archive of a simulated agent: the rows of its log that it has read, in rolls of a few rows.

What is below ``lost_to`` retention has eaten. As in the archive of a real agent a position is the same row
for ever: what a crash takes back is read again from the log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from agents.tasks.past import Roll, Survey
from elf.job.past import Records

if TYPE_CHECKING:
    from lab.chaos.task import Log

ROLL_ROWS: Final = 7
SLICE_ROWS: Final = 10
"""So that a slice ends within a roll."""


class SimArchive:
    """``fed``: how many rows the stream task has been given."""

    def __init__(self, log: Log, fed: Callable[[], int]) -> None:
        self._log = log
        self._fed = fed

    @property
    def position(self) -> int:
        return self._fed()

    def close_roll(self) -> int:
        self._log.rolled.add(self.position)
        return self.position

    def _end(self, start: int) -> int:
        """Where the roll that begins there ends."""
        return min((at for at in self._log.rolled if at > start), default=1 << 62)

    def survey(self, start: int, end: int, since_us: int) -> Survey:
        rows, lost_to = self._log.rows, min(self._log.lost_to, end)
        begin = max(start, lost_to)
        if begin >= end:
            return Survey((), None, ((since_us, since_us),) if 0 < start < end else ())
        self._log.rolled |= {begin, *range(0, end, ROLL_ROWS)}
        starts = sorted(at for at in self._log.rolled if begin <= at < end)
        times = {at: [ts for ts, _ in rows[at : self._end(at)] if ts >= since_us] for at in starts}
        rolls = tuple(Roll(at, min(found)) for at, found in times.items() if found)
        first = [ts for ts, _ in rows[begin : self._end(begin)]]
        holes = ((min(first), max(first)),) if begin > start else ()
        return Survey(rolls, max(first) + 1 if holes else min(first), holes)

    def read(
        self, start: int, done: int, rows_max: int, since_us: int
    ) -> tuple[tuple[Records, ...], int, bool]:
        here = self._log.rows[start : self._end(start)][done : done + rows_max]
        chosen = [(place, row) for place, row in enumerate(here, start + done) if row[0] >= since_us]
        lines = pa.array([f"{ts},{key}" for _, (ts, key) in chosen], pa.string())
        offsets = np.array([place for place, _ in chosen], dtype=np.int64)
        over = start + done + len(here) >= self._end(start)
        return (Records("log", lines, offsets),) if chosen else (), len(here), over
