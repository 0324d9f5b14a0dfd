"""Holds the inputs of an agent back while it has taken, or holds, more than it may: files can wait.

Two things hold back. While the process has more memory than ``memory_max_bytes``, or too many rolls wait for
the archive, nothing is read at all. What was taken (``agents.tasks.allowance``) is known when a chunk is
taken, so a pause follows it, and then a chunk is read.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from typing import Final

import psutil

from agents.logs import Logger
from agents.tasks.allowance import PAUSE_S_MIN, Bound
from agents.tasks.streamtask import StreamTask
from elf.job.commands import Outcome
from elf.job.events import HeldBack

ROOM_POLL_S: Final = 0.2
ROLLS_WAITING_MAX: Final = 32
"""Rolls that may wait for an archive that cannot be reached before reading is held back: about 2 GiB of a
stream's lines (``archive.roll_bytes`` each), which the log files hold as well."""
WEIGHED_BYTES: Final = 1 << 20
"""After so many bytes were read it is looked how much memory the process has."""
TOLD_EVERY_MS: Final = 60_000
"""That reading waits for what the agent may take is said so often."""


class Holding:
    """Of all streams of an agent. ``allowances``: by the settings that they are of. ``tell``: how far a pause
    will have put a stream behind; ``waited``: a stream has waited for the agent's own budget."""

    def __init__(
        self,
        log: Logger,
        *,
        now_ms: Callable[[], int],
        tell: Callable[[HeldBack], None],
        waited: Callable[[str], None],
        memory_max_bytes: int | None,
        allowances: Mapping[str, Bound],
    ) -> None:
        self._log = log
        self._now_ms = now_ms
        self._tell = tell
        self._waited = waited
        self._memory_max_bytes = memory_max_bytes
        self._allowances = {name: one for name, one in allowances.items() if one.bounds}
        self._pausing = threading.Lock()
        self._told_ms: int | None = None
        self._unweighed = 0
        self._process = psutil.Process()

    @property
    def allows(self) -> bool:
        """Whether what is taken is bounded, so that a chunk is better small."""
        return bool(self._allowances)

    def read(self, size: int) -> None:
        """So many bytes more."""
        self._unweighed += size

    async def room(self, task: StreamTask, at_end_ms: int) -> None:
        """Wait while the process, or the archive's folder, holds more than it may. ``at_end_ms``: when all
        was read that the stream's files had; 0: never yet."""
        waited_s = told_s = 0.0
        while (over := self._over_memory()) or task.unshipped > ROLLS_WAITING_MAX:
            await asyncio.sleep(ROOM_POLL_S)
            waited_s += ROOM_POLL_S * over
            if waited_s - told_s >= PAUSE_S_MIN:
                told_s = waited_s
                self._say(task, at_end_ms, PAUSE_S_MIN, "memory_max_bytes")
        if told_s:
            self._waited(task.facts.stream)

    async def within(self, task: StreamTask, at_end_ms: int, fed: Future[Outcome], reader: Executor) -> None:
        """Wait while the process has taken more than it may, when a chunk is ``fed``. ``reader``: where
        inputs of the stream are read."""
        if not self._allowances:
            return
        await asyncio.wrap_future(fed)
        pause_s, name = await asyncio.get_running_loop().run_in_executor(reader, self._pause)
        if pause_s:
            self._say(task, at_end_ms, pause_s, name)
            await asyncio.sleep(pause_s)
            self._waited(task.facts.stream)

    def _pause(self) -> tuple[float, str]:
        """How long to read nothing, and for which setting. On a reader's thread: folders are looked through
        for it, and what was sent today is written down."""
        with self._pausing:
            return max((one.pause_s(), name) for name, one in self._allowances.items())

    def _say(self, task: StreamTask, at_end_ms: int, pause_s: float, name: str) -> None:
        """How far a pause will have put the inputs behind."""
        now_ms, stream = self._now_ms(), task.facts.stream
        lag_ms = now_ms - (at_end_ms or now_ms) + int(1000 * pause_s)
        if self._told_ms is None or now_ms - self._told_ms >= TOLD_EVERY_MS:
            self._told_ms = now_ms
            text = f"reading waits: the agent has taken what it may ({name})"
            self._log.warning(text, stream=stream, behind_secs=round(lag_ms / 1e3))
        self._tell(HeldBack(lag_ms))
        task.metrics.held_back(stream, pause_s)

    def _over_memory(self) -> bool:
        """Looked at once for so many bytes read: asking the system takes longer than a few lines do."""
        limit = self._memory_max_bytes
        if limit is None or self._unweighed < WEIGHED_BYTES:
            return False
        over = self._process.memory_info().rss > limit
        self._unweighed = self._unweighed if over else 0
        return over
