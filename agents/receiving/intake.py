"""Between a receiver and the spool of its stream: origins, lines, and what is said of either."""

from __future__ import annotations

import asyncio
import hashlib
import time
from typing import Final

from agents.inputs.spool import Spool
from agents.logs import Logger, Seldom
from agents.metrics import Metrics

ORIGINS_MAX: Final = 256
"""Senders that are sources of their own; the lines of all others are one source."""
OTHERS: Final = "other"
ROOM_POLL_S: Final = 0.05
SAID_EVERY_S: Final = 60.0
NEWLINE: Final = b"#012"
"""A newline within a message, as rsyslog writes it."""
ENDS: Final = b"\r\n\0"
"""What ends a message, and is not of it."""


def line(text: bytes) -> bytes:
    """A message as one line."""
    text = text.rstrip(ENDS)
    return (text.replace(b"\n", NEWLINE) if b"\n" in text else text) + b"\n"


class Intake:
    """``kind``: of the receiver. All on the loop."""

    def __init__(self, stream: str, kind: str, spool: Spool, metrics: Metrics, log: Logger) -> None:
        self.stream = stream
        self.kind = kind
        self.spool = spool
        self._metrics = metrics
        self._log = log.bind(stream=stream, input=kind)
        self._origins: dict[str, str] = {}
        self._seldom = Seldom(SAID_EVERY_S)

    def origin(self, address: str) -> str:
        """What ``_source`` says of lines from there."""
        if (known := self._origins.get(address)) is not None:
            return known
        if len(self._origins) >= ORIGINS_MAX:
            return f"{self.kind}:{OTHERS}"
        self._origins[address] = named = f"{self.kind}:{address}"
        return named

    def offer(self, address: str, lines: bytes, key: bytes = b"", *, hurry: bool = False) -> bool:
        """Whether there is room for these lines; nobody hears when they are durable."""
        if self.spool.take(self.origin(address), lines, key, hurry=hurry) is None:
            self._full()
            return False
        self._metrics.received(self.stream, len(lines))
        return True

    async def deliver(self, address: str, lines: bytes, key: bytes = b"") -> bool:
        """True when these lines are durable; False: there is no room for them. ``key``: see
        ``Spool.take``."""
        return await self.keep(address, lines, self._key(key))

    async def keep(self, address: str, lines: bytes, key: bytes) -> bool:
        """The same, with a key that the spool gives back (``Spool.last_key``)."""
        future = self.spool.take(self.origin(address), lines, key)
        if future is None:
            self._full()
            return False
        try:
            await asyncio.shield(asyncio.wrap_future(future))
        except OSError:
            return False
        self._metrics.received(self.stream, len(lines))
        return True

    def _key(self, key: bytes) -> bytes:
        return hashlib.blake2b(key, digest_size=16, person=self.kind.encode()).digest() if key else b""

    async def room(self) -> None:
        """Returns when there may be some: until then a receiver reads nothing."""
        await asyncio.sleep(ROOM_POLL_S)
        while not self.spool.has_room:
            await asyncio.sleep(ROOM_POLL_S)

    def lose(self, address: str, messages: int, size: int) -> None:
        """They are gone, for want of room."""
        self._metrics.receive_refused(self.stream, "lost", messages)
        self.spool.lost(self.origin(address), messages, size)
        if self._seldom.now("lost", time.monotonic()):
            self._log.warning(
                "messages are lost: there was no room, and UDP does not wait", messages=messages
            )

    def refuse(self, reason: str, address: str = "", text: str = "") -> None:
        """Something was sent that is not taken."""
        self._metrics.receive_refused(self.stream, reason)
        if self._seldom.now((reason, address), time.monotonic()):
            self._log.warning("what was sent is refused", reason=text or reason, address=address)

    def failed(self, error: Exception) -> None:
        """A fault of ours ends one connection, and nothing else."""
        self._metrics.receive_refused(self.stream, "fault")
        self._log.error("a connection has ended by a fault of elf's", reason=repr(error), exc_info=error)

    def _full(self) -> None:
        self._metrics.receive_refused(self.stream, "full")
        if self._seldom.now("full", time.monotonic()):
            most = self.spool.bytes_max
            text = "the spool is full: senders wait until lines are read and a checkpoint has passed them"
            self._log.warning(text, spool_bytes_max=most)

    def listens(self, at: str) -> None:
        self._log.info("lines are received", listen=at)
