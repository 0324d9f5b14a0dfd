"""The archive of a simulated agent: the rows of its log that it has read, in rolls of a few rows.

Retention eats the oldest of them, also out of a roll that a flow is reading, but only of those that are in a
durable checkpoint. As in the archive of a real agent a position is the same row for ever: what a crash takes
back is read again from the log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from agents.archive.partitions import ArchiveError
from agents.tasks.past import COLUMNS, Roll, Survey
from elf.job.offload import Archive

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

    @property
    def shipped(self) -> int:
        return self._log.kept

    @property
    def about(self) -> Archive:
        return Archive("life")

    def close_roll(self) -> int:
        return self.position

    def survey(self, start: int, end: int, since_us: int) -> Survey:
        log = self._log
        there = [row for row in range(start, end) if row not in log.lost]
        rolls = []
        for at in range(start, end, ROLL_ROWS):
            after = min(at + ROLL_ROWS, end)
            some = [row for row in there if at <= row < after]
            wanted = [log.rows[row][0] for row in some if log.rows[row][0] >= since_us]
            if wanted:
                rolls.append(Roll(at, after, min(wanted), (partial(self._load, some),)))
        gone = [row for row in range(end) if row in log.lost and log.rows[row][0] >= since_us]
        gone_to_us = 1 + max(log.rows[row][0] for row in gone) if gone else None
        covers = [us for us in (log.rows[there[0]][0] if there else None, gone_to_us) if us is not None]
        return Survey(tuple(rolls), max(covers, default=None), len(gone), gone_to_us)

    def _load(self, places: Sequence[int]) -> pa.Table:
        if not self._log.lost.isdisjoint(places):
            raise ArchiveError("a file of the archive is gone")
        rows = [self._log.rows[row] for row in places]
        ts = pa.array([ts for ts, _ in rows], pa.int64()).cast(pa.timestamp("us"))
        lines = pa.array([f"{ts},{key}" for ts, key in rows], pa.string())
        numbers = pa.array(places, pa.int64())
        names = pa.array(["log"] * len(rows), pa.string())
        return pa.table([lines, ts, names, names, numbers, numbers], names=COLUMNS)
