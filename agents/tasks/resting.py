"""Whether anybody wants what a stream's files have: nobody reads them for nobody.

A stream *rests* while no flow reads it, no job in Python has a tap on it, nobody has asked about it for
``ASKED_MS``, and its lines are not archived. Its files are closed then, and not looked at. Whoever wants it
again waits until it is awake: what was written meanwhile is passed over but for the last ``KEPT_BYTES`` of
each file (``Input.rest``), which are read before anything is done that waits. So a flow begins after all
that was written before it was wanted, as one does whose lines are read all the time (protocol 3.6): the
highest event time is among the last lines, as far as a source is in the order that its lateness says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from elf.job.commands import Command, Install, SealOpen, SetTaps
from elf.job.messages.inquiries import TraceRows
from elf.wire.base import Request

ASKED_MS: Final = 60_000
"""So long after a question the stream is still read: the next one is often of the same person."""
_NEVER_MS: Final = -(1 << 62)


class Resting:
    """Of one stream, on the loop. ``able``: it may rest at all; ``asleep``: it begins at rest."""

    def __init__(self, *, able: bool, asleep: bool = False) -> None:
        self.able = able
        self.asleep = asleep
        self.given = 0
        """What was given to the stream task so far: a look at it holds as long as that is the same."""
        self._asked_ms = _NEVER_MS
        self._wanted = asyncio.Event()
        self._waiting: list[Callable[[], None]] = []

    def command(self, command: Command, perform: Callable[[], None], now_ms: int) -> None:
        """``perform`` a command, now or when the stream is awake, after those that wait already."""
        if isinstance(command, SealOpen):
            self._wanted.set()  # the agent leaves: whoever waits here has to go on
        reads = isinstance(command, Install) or (isinstance(command, SetTaps) and bool(command.taps))
        self._give(perform, now_ms, reads=reads)

    def question(self, request: Request, ask: Callable[[], None], now_ms: int) -> None:
        """The same of a question about the stream. Only what is asked of archived lines needs no others."""
        reads = not isinstance(request, TraceRows)
        if reads:
            self._asked_ms = now_ms
        self._give(ask, now_ms, reads=reads)

    def _give(self, action: Callable[[], None], now_ms: int, *, reads: bool) -> None:
        self.given += 1
        if not self.asleep or not (reads or self._waiting):
            action()
            return
        self._waiting.append(action)
        self._wanted.set()

    def asked_lately(self, now_ms: int) -> bool:
        """Whether somebody has asked about the stream, and may again."""
        return now_ms - self._asked_ms < ASKED_MS

    def begin(self) -> None:
        """From now on what needs the stream waits."""
        self.asleep = True

    async def over(self) -> None:
        """Returns when somebody wants the stream, or the agent leaves."""
        await self._wanted.wait()

    def end(self) -> None:
        """It is awake: what has waited is done, in its order."""
        self.asleep = False
        self._wanted.clear()
        waiting, self._waiting = self._waiting, []
        for action in waiting:
            action()
