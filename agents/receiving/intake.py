"""Between a receiver and the spool of its stream: origins, lines, and what is said of either."""

from __future__ import annotations

import asyncio
import hashlib
import time
from typing import Final

from agents.inputs.spool import Spool
from agents.inputs.spooled import SILENT_MS
from agents.logs import Logger, Seldom
from agents.metrics import Metrics
from agents.receiving.unpacking import TooLarge

ORIGINS_MAX: Final = 256
"""Senders that are sources of their own, until they are silent for as long as sources may be; the lines of
all others are one source."""
LINES_TIMES: Final = 4
"""So many times its size may a message have as lines."""
_HERE_BYTES: Final = 256 << 10
"""The digest of more is made on a thread."""
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
        self._heard: dict[str, float] = {}
        """When each of them was, the last one last."""
        self._seldom = Seldom(SAID_EVERY_S)

    def origin(self, address: str) -> str:
        """What ``_source`` says of lines from there."""
        now = time.monotonic()
        if self._heard.pop(address, None) is None and len(self._heard) >= ORIGINS_MAX:
            oldest = next(iter(self._heard), None)
            if oldest is None or now - self._heard[oldest] < SILENT_MS / 1_000:
                return f"{self.kind}:{OTHERS}"
            del self._heard[oldest]
        self._heard[address] = now
        return f"{self.kind}:{address}"

    def lines_max(self, message_bytes_max: int) -> int:
        """Bytes of the lines of one message."""
        return min(LINES_TIMES * message_bytes_max, self.spool.record_bytes_max)

    def _check(self, lines: bytes) -> None:
        if len(lines) > self.spool.record_bytes_max:
            most = self.spool.record_bytes_max
            raise TooLarge(
                f"its lines have {len(lines)} bytes, and {most} fit at once (receive.spool_bytes_max)"
            )

    def offer(self, address: str, lines: bytes) -> bool:
        """Whether there is room for these lines; nobody hears when they are durable. Raises ``TooLarge``
        where there never will be."""
        self._check(lines)
        if self.spool.take(self.origin(address), lines, hurry=False) is None:
            self._full()
            return False
        self._metrics.received(self.stream, len(lines))
        return True

    async def deliver(self, address: str, lines: bytes, key: bytes = b"") -> bool:
        """True when these lines are durable; False: there is no room for them. ``key``: what its sender
        says with the same lines again; others may say it with other lines. Raises ``TooLarge``."""
        if len(lines) + len(key) < _HERE_BYTES:
            return await self.keep(address, lines, self._key(key, lines))
        return await self.keep(address, lines, await asyncio.to_thread(self._key, key, lines))

    async def keep(self, address: str, lines: bytes, key: bytes) -> bool:
        """The same, with a key that the spool gives back (``Spool.last_key``)."""
        self._check(lines)
        repeated = self.spool.repeated
        future = self.spool.take(self.origin(address), lines, key)
        if future is None:
            self._full()
            return False
        is_new = self.spool.repeated == repeated
        try:
            await asyncio.shield(asyncio.wrap_future(future))
        except OSError:
            return False
        if is_new:
            self._metrics.received(self.stream, len(lines))
        return True

    def _key(self, key: bytes, lines: bytes) -> bytes:
        if not key:
            return b""
        found = hashlib.blake2b(len(key).to_bytes(8, "big"), digest_size=16, person=self.kind.encode())
        found.update(key)
        found.update(lines)
        return found.digest()

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
                "messages are lost: there was no room, and their sender does not wait", messages=messages
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
