"""The archive of a simulated agent: the rows of its log that it has read, in rolls of a few rows.

What is below ``lost_to`` retention has eaten. As in the archive of a real agent a position is the same row
for ever: what a crash takes back is read again from the log.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from agents.tasks.past import COLUMNS, Roll, Survey

if TYPE_CHECKING:
    from lab.chaos.task import Log

ROLL_ROWS: Final = 7
SLICE_ROWS: Final = 10
"""So that a slice ends within a roll."""


class PastArchive:
    """``fed``: how many rows the stream task has been given."""

    def __init__(self, log: Log, fed: Callable[[], int]) -> None:
        self._log = log
        self._fed = fed

    @property
    def position(self) -> int:
        return self._fed()

    def close_roll(self) -> int:
        return self.position

    def survey(self, start: int, end: int, since_us: int) -> Survey:
        rows, lost_to = self._log.rows, min(self._log.lost_to, end)
        begin = max(start, lost_to)
        rolls = []
        for at in range(begin, end, ROLL_ROWS):
            after = min(at + ROLL_ROWS, end)
            wanted = [ts for ts, _ in rows[at:after] if ts >= since_us]
            if wanted:
                rolls.append(Roll(at, after, min(wanted), (partial(self._load, at, after),)))
        gone = [ts for ts, _ in rows[:lost_to] if ts >= since_us]
        gone_to_us = max(gone) + 1 if gone else None
        covers = [us for us in (rows[begin][0] if begin < end else None, gone_to_us) if us is not None]
        return Survey(tuple(rolls), max(covers, default=None), len(gone), gone_to_us)

    def _load(self, start: int, end: int) -> pa.Table:
        rows = self._log.rows[start:end]
        places = pa.array(np.arange(start, end, dtype=np.int64))
        ts = pa.array([ts for ts, _ in rows], pa.int64()).cast(pa.timestamp("us"))
        lines = pa.array([f"{ts},{key}" for ts, key in rows], pa.string())
        return pa.table([lines, ts, ["log"] * len(rows), places, places], names=COLUMNS)
