"""How much of a core an agent's process may take (``cpu_max_share``): when it has taken more, reading waits.

What can wait is the reading of files, and what costs CPU follows from it. So the share is held by pauses
between chunks; heartbeats, commits and answers go on meanwhile. What was taken is the process's own time, of
all of its threads; users' code runs in processes of their own, with limits of their own.

Rules: an agent that has taken little may take ``BURST_S`` of its share at once. A pause is as long as it
takes to be within the share again, and never shorter than ``PAUSE_S_MIN``: who has not looked at its files
for that long does not take them for silent (protocol 3.4), so a pause makes no row late. It is never longer
than ``PAUSE_S_MAX``, and a chunk is read after it: where other work alone takes the share (a master's, a
question's), reading is slow, and does not stop."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

BURST_S: Final = 5.0
PAUSE_S_MIN: Final = 2.5
"""More than ``elf.job.worker.sources.STALL_MS``."""
PAUSE_S_MAX: Final = 30.0


class CpuShare:
    """``share``: of one core; 0: all there is. ``now_s`` and ``spent_s``: the clock, and the CPU time that
    was taken so far."""

    def __init__(
        self,
        share: float,
        now_s: Callable[[], float] = time.monotonic,
        spent_s: Callable[[], float] = time.process_time,
    ) -> None:
        self._share = share
        self._now_s, self._spent_s = now_s, spent_s
        self._looked_s, self._before_s = now_s(), spent_s()
        self._left_s = BURST_S * share
        """CPU time that may be taken at once; less than 0: what was taken too much."""

    @property
    def bounds(self) -> bool:
        """Whether there is a share."""
        return self._share > 0

    def pause_s(self) -> float:
        """How long to read nothing; 0: go on."""
        if not self.bounds:
            return 0.0
        now_s, spent_s = self._now_s(), self._spent_s()
        gained_s = self._share * (now_s - self._looked_s)
        self._left_s = min(self._left_s + gained_s, BURST_S * self._share) - (spent_s - self._before_s)
        self._left_s = max(self._left_s, -PAUSE_S_MAX * self._share)
        self._looked_s, self._before_s = now_s, spent_s
        owed_s = -self._left_s / self._share
        return owed_s if owed_s >= PAUSE_S_MIN else 0.0
