"""How much an agent's process may take by the second: of a core (``cpu_max_share``), and of bytes up
(``budgets.up_bytes_per_sec``). When it has taken more, reading waits.

What can wait is the reading of files, and what costs follows from it. So the rate is held by pauses between
chunks; heartbeats, commits and answers go on meanwhile. CPU is the process's own time, of all of its threads;
users' code runs in processes of their own, with limits of their own.

Rules: an agent that has taken little may take ``BURST_S`` of its rate at once. A pause is as long as it
takes to be within the rate again, and never shorter than ``PAUSE_S_MIN``: who has not looked at its files
for that long does not take them for silent (protocol 3.4), so a pause makes no row late. It is never longer
than ``PAUSE_S_MAX``, and a chunk is read after it: where other work alone takes all (a master's, a
question's), reading is slow, and does not stop."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

BURST_S: Final = 5.0
PAUSE_S_MIN: Final = 2.5
"""More than ``elf.job.worker.sources.STALL_MS``."""
PAUSE_S_MAX: Final = 30.0


class Allowance:
    """``rate``: what may be taken in a second (CPU time in s, or bytes); 0: all there is. ``now_s``: the
    clock; ``spent``: what was taken so far."""

    def __init__(
        self,
        rate: float,
        now_s: Callable[[], float] = time.monotonic,
        spent: Callable[[], float] = time.process_time,
    ) -> None:
        self._rate = rate
        self._now_s, self._spent = now_s, spent
        self._looked_s, self._before = now_s(), spent()
        self._left = BURST_S * rate
        """What may be taken at once; less than 0: what was taken too much."""

    @property
    def bounds(self) -> bool:
        """Whether there is a rate."""
        return self._rate > 0

    def pause_s(self) -> float:
        """How long to read nothing; 0: go on."""
        if not self.bounds:
            return 0.0
        now_s, spent = self._now_s(), self._spent()
        gained = self._rate * (now_s - self._looked_s)
        self._left = min(self._left + gained, BURST_S * self._rate) - (spent - self._before)
        self._left = max(self._left, -PAUSE_S_MAX * self._rate)
        self._looked_s, self._before = now_s, spent
        owed_s = -self._left / self._rate
        return owed_s if owed_s >= PAUSE_S_MIN else 0.0
