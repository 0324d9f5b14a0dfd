"""Looks whether the event loop of a process goes round, and says where it stands when it does not.

A thread asks the loop for a sign of life every ``LOOK_SECS``. When none has come for two looks, the log gets
a line that names each thread that is at work, with its stack, and what of a core each has taken since the
last look; three such lines for one standstill, and one when the loop goes round again. What is counted are
looks and not seconds: a process that was stopped, or got no CPU, has not stood still.

Who holds Python's lock and does not give it up lets nobody look. Then the interpreter itself writes all
stacks to standard error, once, after ``LOCKED_SECS``. It does so on SIGUSR1 too.

It must never end or change anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import PurePath
from types import FrameType
from typing import Final

import psutil

from agents.logs import Logger

LOOK_SECS: Final = 5.0
STILL_LOOKS: Final = 2
TOLD_MAX: Final = 3
"""Lines of one standstill, a look apart: what spins is in all of them."""
LOCKED_SECS: Final = 30.0
FRAMES_MAX: Final = 40
_STANDARD_ERROR: Final = 2


@contextlib.contextmanager
def watched(
    loop: asyncio.AbstractEventLoop,
    log: Logger,
    look_secs: float = LOOK_SECS,
    locked_secs: float = LOCKED_SECS,
) -> Iterator[None]:
    """The loop, while the block runs."""
    watchdog = _Watchdog(loop, log, look_secs, locked_secs)
    faulthandler.register(signal.SIGUSR1, file=_STANDARD_ERROR)
    watchdog.start()
    try:
        yield
    finally:
        watchdog.end()
        faulthandler.unregister(signal.SIGUSR1)


class _Watchdog(threading.Thread):
    def __init__(
        self, loop: asyncio.AbstractEventLoop, log: Logger, look_secs: float, locked_secs: float
    ) -> None:
        super().__init__(name="watchdog", daemon=True)
        self._loop = loop
        self._log = log
        self._look_secs = look_secs
        self._locked_secs = locked_secs
        self._over = threading.Event()
        self._turned = True
        """Since it was asked last."""

    def run(self) -> None:
        looks = 0
        took: dict[int, float] = {}
        while not self._over.wait(self._look_secs):
            faulthandler.dump_traceback_later(self._locked_secs, file=_STANDARD_ERROR)
            if self._turned:
                if looks >= STILL_LOOKS:
                    self._log.warning("the event loop goes round again", stood_secs=looks * self._look_secs)
                looks = 0
                self._turned = False
                with contextlib.suppress(RuntimeError):  # it has ended
                    self._loop.call_soon_threadsafe(self._turns)
                continue
            looks += 1
            before, took = took, _took_secs()
            if STILL_LOOKS <= looks < STILL_LOOKS + TOLD_MAX:
                self._tell(looks, {one: secs - before.get(one, 0.0) for one, secs in took.items()})

    def _turns(self) -> None:
        self._turned = True

    def _tell(self, looks: int, took: dict[int, float]) -> None:
        secs = self._look_secs
        self._log.warning(
            "the event loop stands still: what its threads do is told for whoever looks for the reason",
            stands_secs=looks * secs,
            cpu=_busiest({one: spent / secs for one, spent in took.items()}),
            stacks=stacks(),
        )

    def end(self) -> None:
        self._over.set()
        self.join()
        faulthandler.cancel_dump_traceback_later()


def _took_secs() -> dict[int, float]:
    """CPU time of each thread of this process, by its number in the system."""
    with contextlib.suppress(psutil.Error):
        return {one.id: one.user_time + one.system_time for one in psutil.Process().threads()}
    return {}


def _busiest(shares: dict[int, float]) -> str:
    """Threads that took a hundredth of a core or more. Those of libraries have no name."""
    names = {thread.native_id: thread.name for thread in threading.enumerate()}
    names[os.getpid()] = threading.main_thread().name  # which has the number of before a fork
    some = sorted((one for one in shares.items() if one[1] >= 0.01), key=lambda one: -one[1])
    return ", ".join(f"{names.get(number, number)} {share:.0%}" for number, share in some) or "none"


def stacks() -> dict[str, str]:
    """Where each thread of Python is, by its name, the innermost call first; but for this one, and for those
    of pools that have nothing to do."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    frames = sys._current_frames()
    del frames[threading.get_ident()]
    return {
        names.get(number) or str(number): _stack(frame)
        for number, frame in frames.items()
        if (PurePath(frame.f_code.co_filename).name, frame.f_code.co_name) != ("thread.py", "_worker")
    }


def _stack(frame: FrameType | None) -> str:
    found = list[str]()
    while frame is not None and len(found) < FRAMES_MAX:
        path = "/".join(PurePath(frame.f_code.co_filename).parts[-2:])
        found.append(f"{path}:{frame.f_lineno} {frame.f_code.co_name}")
        frame = frame.f_back
    return " < ".join(found)
