"""How much an agent's process may take by the second: of a core (``cpu_max_share``), and of bytes up
(``budgets.up_bytes_per_sec``); by the day (``budgets.up_bytes_per_day``); and how much it may hold on disk
(``budgets.disk_bytes``). When it has taken more, reading waits.

What can wait is the reading of files, and what costs follows from it. So the rate is held by pauses between
chunks; heartbeats, commits and answers go on meanwhile. CPU is the process's own time, of all of its threads;
users' code runs in processes of their own, with limits of their own.

Rules: an agent that has taken little may take ``BURST_S`` of its rate at once. A pause is as long as it
takes to be within the rate again, and never shorter than ``PAUSE_S_MIN``: who has not looked at its files
for that long does not take them for silent (protocol 3.4), so a pause makes no row late. It is never longer
than ``PAUSE_S_MAX``, and a chunk is read after it: where other work alone takes all (a master's, a
question's), reading is slow, and does not stop."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, Protocol

from elf.planning.days import Day, paced
from elf.planning.lent import AGENT

BURST_S: Final = 5.0
PAUSE_S_MIN: Final = 2.5
"""More than ``elf.job.worker.sources.STALL_MS``."""
PAUSE_S_MAX: Final = 30.0
KEEP_MS: Final = 60_000
LOOK_S: Final = 5.0


class Allowance:
    """``rate``: what may be taken in a second (CPU time in s, or bytes); 0: all there is. ``now_s``: the
    clock; ``spent``: what was taken so far."""

    def __init__(
        self,
        rate: float,
        now_s: Callable[[], float] = time.monotonic,
        spent: Callable[[], float] = time.process_time,
    ) -> None:
        self.rate = rate
        self._now_s, self._spent = now_s, spent
        self._looked_s, self._before = now_s(), spent()
        self._left = BURST_S * rate
        """What may be taken at once; less than 0: what was taken too much."""

    @property
    def bounds(self) -> bool:
        """Whether there is a rate."""
        return self.rate > 0

    def pause_s(self) -> float:
        """How long to read nothing; 0: go on."""
        if not self.bounds:
            return 0.0
        now_s, spent = self._now_s(), self._spent()
        gained = self.rate * (now_s - self._looked_s)
        self._left = min(self._left + gained, BURST_S * self.rate) - (spent - self._before)
        self._left = max(self._left, -PAUSE_S_MAX * self.rate)
        self._looked_s, self._before = now_s, spent
        owed_s = -self._left / self.rate
        return owed_s if owed_s >= PAUSE_S_MIN else 0.0


class Bound(Protocol):
    """What holds the inputs back: of what is taken by the second or by the day, or of what is held."""

    @property
    def bounds(self) -> bool:
        """Whether there is a bound."""
        ...

    def pause_s(self) -> float:
        """How long to read nothing; 0: go on."""
        ...


class DayAllowance:
    """The same by the day (``elf.planning.days``). ``budget``: bytes; ``keep`` writes down what has gone up
    today, each minute."""

    def __init__(
        self,
        budget: int,
        spent: Callable[[], float],
        day: Day,
        keep: Callable[[bytes], object],
        now_ms: Callable[[], int],
    ) -> None:
        self._budget, self._spent, self._day = budget, spent, day
        self._keep, self._now_ms = keep, now_ms
        self._before = spent()
        self._pace: Allowance | None = None
        self._kept_ms = 0

    @property
    def bounds(self) -> bool:
        return self._budget > 0

    def pause_s(self) -> float:
        now_ms, spent = self._now_ms(), self._spent()
        self._day.add({str(AGENT): int(spent - self._before)}, now_ms)
        self._before = spent
        if now_ms - self._kept_ms >= KEEP_MS:
            self._kept_ms = now_ms
            self._keep(self._day.image())
        pace = paced(self._budget, self._day.of(str(AGENT)), now_ms)
        if pace is None:
            self._pace = None
            return 0.0
        if self._pace is None:
            self._pace = Allowance(max(pace, 1.0), lambda: self._now_ms() / 1000, self._spent)
        self._pace.rate = max(pace, 1.0)
        return self._pace.pause_s()


class Ceiling:
    """Of what is held: while ``held`` is more than ``most`` (0: any number), pauses get longer. After each of
    them a chunk is read: reading is slow then, and does not stop."""

    def __init__(self, most: int, held: Callable[[], int]) -> None:
        self._most, self._held = most, held
        self._last_s = 0.0

    @property
    def bounds(self) -> bool:
        return self._most > 0

    def pause_s(self) -> float:
        over = self.bounds and self._held() > self._most
        self._last_s = min(max(2 * self._last_s, PAUSE_S_MIN), PAUSE_S_MAX) if over else 0.0
        return self._last_s


class FolderSize:
    """Bytes of the files in a folder, but for these folders in it, and for what is ``free`` in files that do
    not shrink; looked at once in ``LOOK_S``."""

    def __init__(
        self,
        folder: Path,
        without: Iterable[Path],
        now_s: Callable[[], float] = time.monotonic,
        free: Callable[[], int] = lambda: 0,
    ) -> None:
        self._folder, self._without = folder, {str(path) for path in without}
        self._now_s, self._free = now_s, free
        self._looked_s, self._bytes = -LOOK_S, 0

    def __call__(self) -> int:
        if self._now_s() - self._looked_s >= LOOK_S:
            self._looked_s = self._now_s()
            self._bytes = max(0, self._sum(str(self._folder)) - self._free())
        return self._bytes

    def _sum(self, folder: str) -> int:
        found = 0
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    found += 0 if entry.path in self._without else self._sum(entry.path)
                    continue
                with contextlib.suppress(OSError):  # gone meanwhile
                    found += entry.stat(follow_symlinks=False).st_size
        return found
