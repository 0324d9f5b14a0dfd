"""Gives flows of a stream that begin in the past (SINCE) what is archived, a slice at a time
(``agents.tasks.past``), beside what is fed to them as it comes.

A flow is installed when it is known where its past begins. Slices come as fast as their share of a core lets
them. What cannot be read waits; the archive may come back.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Final

from agents.logs import Logger
from agents.ports import WhenDone
from agents.tasks.archive import ArchiveError
from agents.tasks.streamtask import FoundPast, StreamTask
from elf.job.commands import Install, Outcome

POLL_S: Final = 0.5
"""Between two looks whether some flow reads its past, or may go on."""
RETRY_S: Final = 1.0
"""The same while the archive cannot be read."""
TOLD_EVERY_MS: Final = 60_000
"""An archive that goes on not being read is said so often."""


class Replaying:
    """Of one stream. ``thread``: that of its stream task; ``archived``: where what was archived is read;
    ``worked`` is told what a command comes to, by its name."""

    def __init__(
        self,
        task: StreamTask,
        thread: Executor,
        archived: Executor,
        log: Logger,
        *,
        now_ms: Callable[[], int],
        leaving: Callable[[], bool],
        when_done: WhenDone,
        worked: Callable[[str, Outcome], None],
    ) -> None:
        self._task, self._thread, self._archived = task, thread, archived
        self._log = log
        self._now_ms = now_ms
        self._leaving = leaving
        self._when_done = when_done
        self._worked = worked
        self._beginning: dict[str, Install] = {}
        """Flows that begin in the past: it is being found out where."""
        self._due = asyncio.Event()
        """Flows may have a past to read: so it is after a start."""
        self._due.set()
        self._told_ms: int | None = None

    @property
    def begins(self) -> bool:
        """Whether a flow is still to be installed."""
        return bool(self._beginning)

    def begin(self, install: Install) -> None:
        """Install a flow that begins in the past."""
        self._beginning[install.flow.uid] = install
        self._due.set()

    def look(self) -> None:
        """Flows may have come to a helper, or back."""
        self._due.set()

    def forget(self, uid: str) -> None:
        """It goes, be it installed or not."""
        self._beginning.pop(uid, None)

    async def run(self, reading: asyncio.Event) -> None:
        """Until the agent leaves, while there is ``reading`` at all."""
        share = self._task.past_share
        while not self._leaving() or self._task.is_behind:
            await self._due.wait()
            await reading.wait()
            began = time.perf_counter()
            try:
                pause_s = POLL_S
                await self._install_all()
                for name, outcome in await asyncio.wrap_future(
                    self._thread.submit(self._task.offload, self._now_ms())
                ):
                    self._worked(name, outcome)
                if await self._next():
                    pause_s = (time.perf_counter() - began) * (1 / share - 1)
                if self._told_ms is not None:
                    self._told_ms = None
                    self._log.info("the archive is read again", stream=self._task.facts.stream)
            except ArchiveError as error:
                await asyncio.wrap_future(self._thread.submit(self._task.past_failed))
                self._tell(error)
                pause_s = RETRY_S
            await asyncio.sleep(pause_s)

    async def _install_all(self) -> None:
        """The flows that wait for it; one that has gone meanwhile is none."""
        for uid, install in tuple(self._beginning.items()):
            work = await asyncio.wrap_future(self._thread.submit(self._task.begin_past, install))
            found = None if work is None else await asyncio.wrap_future(self._archived.submit(work))
            if self._beginning.pop(uid, None) is not None:
                self._when_done(
                    self._install(install, found), lambda outcome: self._worked("Install", outcome)
                )

    def _install(self, install: Install, found: FoundPast | None) -> Future[Outcome]:
        if found is None:
            return self._thread.submit(self._task.perform, install, self._now_ms())
        return self._thread.submit(self._task.install_found, found, self._now_ms())

    async def _next(self) -> bool:
        """Read a slice; False where there is none."""
        work = await asyncio.wrap_future(self._thread.submit(self._task.ask_past))
        if work is None:
            if not self._beginning and not self._task.reads_past:
                self._due.clear()
            return False
        found = await asyncio.wrap_future(self._archived.submit(work))
        taken = self._thread.submit(self._task.take_past, found, self._now_ms())
        self._worked("Replay", await asyncio.wrap_future(taken))
        return True

    def _tell(self, error: ArchiveError) -> None:
        """What is archived cannot be read now: it is said when it begins, and each minute."""
        now_ms = self._now_ms()
        if self._told_ms is None or now_ms - self._told_ms >= TOLD_EVERY_MS:
            self._told_ms = now_ms
            text = "archived lines cannot be read: what began in the past (SINCE) waits for them"
            self._log.warning(text, stream=self._task.facts.stream, reason=str(error))
