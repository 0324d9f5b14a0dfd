"""Messages on their way from the transport to the node. Those that bring definitions wait until their plans
are made: one may take a good part of a second, and the loop, where messages are decoded and handled, has to
answer.

Nothing is decided here. A thread decodes the message as the loop will; so its plans, and refusals, lie in
``elf.ql.memo`` when the loop does. Rules: what comes from one address is taken in its order, so what it says
meanwhile waits too, and nobody else does. A message that has waited for ``PLAN_SECS`` is dropped and counted,
as if it had been lost on the way: it will be said again, and its plans may be there by then. No clock decides
what cannot be planned: members that differ in what they skip are no group (protocol 12.2).
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Final

import msgspec

from agents import codec
from elf.errors import PeerError
from elf.job.catalog.authors import STATEMENTS_MAX
from elf.job.catalog.voters import proposed_of
from elf.job.group.records import record_of
from elf.job.messages.groups import JobStatus
from elf.job.spec import JobSpec
from elf.ql.definition import MARK, Definition, TapDefinition
from elf.ql.memo import Made
from elf.transport.base import Received, size_of
from elf.wire.frames import Frame, FrameRefused

PLAN_SECS: Final = 5.0
WAITING_MAX: Final = 1_000
WAITING_BYTES_MAX: Final = 16 << 20
"""Of one address, behind the message whose plans are made. One more is dropped and counted."""
DEPTH_MAX: Final = 16
_status_of: Final = msgspec.msgpack.Decoder(JobStatus).decode
_PLAIN: Final = (str, int, float, type(None))
"""What has nothing in it, which most of a message is."""
_CARRIERS: Final = (b"overlay.", b"group.")
"""Tags of messages that may have other messages in their second frame."""


class Arrivals:
    """Of one agent. ``take`` gets each message, ``dropped`` those that have waited for too long, and why;
    ``plan`` makes the plans for the frames of one on a thread, and returns what holds them."""

    def __init__(
        self,
        take: Callable[[Received], None],
        dropped: Callable[[Received, FrameRefused], None],
        plan: Callable[[Sequence[Frame]], Awaitable[object]],
        plan_secs: float = PLAN_SECS,
    ) -> None:
        self._take = take
        self._dropped = dropped
        self._plan = plan
        self._plan_secs = plan_secs
        self._lines: dict[str, _Line] = {}
        """Of those whose messages wait, by address."""

    def came(self, received: Received) -> Awaitable[None] | None:
        """Take it now; or what takes it, and all that comes from there meanwhile, when that is awaited."""
        origin, frames, who = received
        line = self._lines.get(origin)
        if line is not None:
            if not line.take(received):
                self._dropped(received, FrameRefused("slow", "too much waits for plans already"))
        elif brings_definitions(frames) and (who is None or who.kind in ("agent", "local")):
            self._lines[origin] = line = _Line()
            line.take(received)
            return self._in_order(origin)
        else:
            self._take(received)
        return None

    async def _in_order(self, origin: str) -> None:
        line = self._lines[origin]
        try:
            while line.messages:
                frames, held = line.messages[0][1], None
                if brings_definitions(frames):
                    try:
                        held = await asyncio.wait_for(self._plan(frames), self._plan_secs)
                    except TimeoutError:
                        late = FrameRefused("slow", f"its plans are not made within {self._plan_secs:g} s")
                        self._dropped(line.next(), late)
                        continue
                self._take(line.next())
                del held
        finally:
            del self._lines[origin]


class _Line:
    """What waits of one address, the message whose plans are made first."""

    def __init__(self) -> None:
        self.messages: deque[Received] = deque()
        self._bytes = 0

    def take(self, received: Received) -> bool:
        if self.messages and (len(self.messages) > WAITING_MAX or self._bytes > WAITING_BYTES_MAX):
            return False
        self.messages.append(received)
        self._bytes += size_of(received[1])
        return True

    def next(self) -> Received:
        first = self.messages.popleft()
        self._bytes -= size_of(first[1])
        return first


def brings_definitions(frames: Sequence[Frame]) -> bool:
    """Whether there may be a definition in a message; anybody can make it look so."""
    if len(frames) > 1 and not any(tag in bytes(frames[0]) for tag in _CARRIERS):
        frames = frames[:1]
    return any(MARK in bytes(frame) for frame in frames)


def plan_all(frames: Sequence[Frame], cluster: str, bytes_max: int) -> list[Made[Any]]:
    """Make the plans of all definitions in a message; they last as long as what is returned, and if it is
    none, with the recent ones."""
    try:
        message = codec.decode(frames, cluster=cluster, max_bytes=bytes_max).message
    except FrameRefused:
        return []
    return list(_made(message))


def _made(value: object, depth: int = 0) -> Iterator[Made[Any]]:
    if depth > DEPTH_MAX:
        return
    inner: Sequence[object] = ()
    if isinstance(value, JobSpec) and 0 < len(value.authors) <= STATEMENTS_MAX:
        from elf.ql.signed import Signed  # sqlglot, as with the first plan

        yield Signed(value.name, value.authors).made
    match value:
        case Definition() | TapDefinition():
            yield value.made
        case bytes():
            inner = [read for read in _read(value) if not isinstance(read, str)] if MARK in value else ()
        case tuple() | list():
            inner = value
        case msgspec.Struct():
            inner = [getattr(value, name) for name in value.__struct_fields__]
        case _ if dataclasses.is_dataclass(value):
            inner = [getattr(value, field.name) for field in dataclasses.fields(value)]
    for one in inner:
        if not isinstance(one, _PLAIN):
            yield from _made(one, depth + 1)


def _read(data: bytes) -> Iterator[object]:
    """What bytes inside a message may be: a message that is routed or multicast, a record of a group, or what
    a job's master answers; else why not."""
    try:
        yield codec.unpack(data)
    except PeerError:
        yield proposed_of(data)
        yield record_of(data)
        with contextlib.suppress(ValueError, TypeError, RecursionError):
            yield _status_of(data)
