"""Server-sent events: what an iterator gives, for a browser or any other reader, with comments while nothing
comes.

Rules: a stream ends when its server stops, and when its reader's right has ended. Its iterator is closed
then, also when the reader vanishes. An event whose data several streams tell is encoded once (``Once``).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from typing import Final, Generic, TypeVar

import msgspec

K = TypeVar("K")
V = TypeVar("V")
KEEP_ALIVE_SECS: Final = 15.0
"""A silent stream says that it is still there this often; also how long a vanished reader may go unnoticed.
"""
KEPT_BYTES_MAX: Final = 1 << 20
"""Of an event that is kept for other streams."""
HEADERS: Final = {"content-type": "text/event-stream", "cache-control": "no-store"}
Event = tuple[str, Mapping[str, object]]
"""Its name, and its data."""

_json: Final = msgspec.json.Encoder(decimal_format="number").encode


class Once(Generic[K, V]):
    """What ``make`` makes of a value that several ask about at about the same time: made once for the last
    ones, which are told apart as objects. What does not ``fit`` is too large to be kept."""

    def __init__(self, make: Callable[[K], V], fits: Callable[[K, V], bool], kept: int = 2) -> None:
        self._make = make
        self._fits = fits
        self._kept = kept
        self._last: OrderedDict[int, tuple[K, V]] = OrderedDict()

    def of(self, value: K) -> V:
        """It is not changed afterwards, and neither is the value."""
        found = self._last.get(id(value))
        if found is not None:
            return found[1]
        made = self._make(value)
        if self._fits(value, made):
            self._last[id(value)] = value, made  # who is kept keeps its id
            if len(self._last) > self._kept:
                self._last.popitem(last=False)
        return made


class EventStreams:
    """Those of one server."""

    def __init__(self, keep_alive_secs: float = KEEP_ALIVE_SECS) -> None:
        self._keep_alive_secs = keep_alive_secs
        self._encoded = Once[Mapping[str, object], bytes](_json, lambda _, told: len(told) <= KEPT_BYTES_MAX)
        self._stopping = asyncio.Event()
        self._closing: set[asyncio.Future[None]] = set()

    def stop(self) -> None:
        """End all that go on. Idempotent."""
        self._stopping.set()

    async def settle(self) -> None:
        """Wait until those that have ended are closed."""
        await asyncio.gather(*self._closing)

    def _bytes(self, event: Event) -> bytes:
        name, data = event
        return b"event: " + name.encode() + b"\ndata: " + self._encoded.of(data) + b"\n\n"

    async def of(
        self, events: AsyncIterator[Event], ended: Callable[[], str] = lambda: ""
    ) -> AsyncIterator[bytes]:
        """One stream. ``ended``: why its reader may read no more; empty: it may."""
        stopping = asyncio.ensure_future(self._stopping.wait())
        coming = asyncio.ensure_future(_next(events))
        try:
            yield b": here they come\n\n"
            while True:
                waiting = {coming, stopping}
                await asyncio.wait(
                    waiting, timeout=self._keep_alive_secs, return_when=asyncio.FIRST_COMPLETED
                )
                if stopping.done():
                    return
                if why := ended():
                    yield self._bytes(("error", {"error": why}))
                    return
                if not coming.done():
                    yield b": still here\n\n"
                    continue
                event = coming.result()
                if event is None:
                    return
                yield self._bytes(event)
                coming = asyncio.ensure_future(_next(events))
        finally:
            # In a task of its own: a reader that vanishes cancels this one again at every await.
            closing = asyncio.ensure_future(_let_go(events, stopping, coming))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)


async def _next(events: AsyncIterator[Event]) -> Event | None:
    """The next event; None when there are no more."""
    return await anext(events, None)


async def _let_go(
    events: AsyncIterator[Event], *tasks: asyncio.Future[Event | None] | asyncio.Task[bool]
) -> None:
    """Nobody reads these any more."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    if isinstance(events, AsyncGenerator):
        await events.aclose()
