"""A proxy that makes links slow: bytes that go over it wait for their turn at the link's rate, and are on
their way for its delay. It takes no rights and no kernel, and knows nothing of what it carries.

    who connects ── listener ── Link there ──→ target
                        └────── Link back ←──┘

Bytes of a connection stay in their order. All connections over one ``Link`` share its rate. A proxy reads on
only while little waits for a link, so that whoever sends is held back as by a slow network. It is no network
in one thing: it takes a connection at once, and what was said on it waits until the other side is connected.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

PIECE_BYTES: Final = 1_448
"""So many are read at a time, as a packet has them."""
AHEAD_SECS: Final = 0.02
"""What may wait for a link before no more is read."""
UNDER_WAY_MAX: Final = 4_096
"""Pieces of one connection."""

Address = tuple[str, int]
Ways = Callable[[Address], "tuple[Link, Link]"]
"""By who connects: the link to the target, and the one back."""


class Link:
    """One way from a region to another. ``rate``: bytes a second; None: no bound. ``sent``: bytes so far."""

    def __init__(self, delay_s: float = 0.0, rate: float | None = None) -> None:
        self.delay_s = delay_s
        self.rate = rate
        self.sent = 0
        self._free_at = 0.0

    def take(self, size: int, now: float) -> float:
        """When so many bytes have arrived that come to the link now (s)."""
        self.sent += size
        self._free_at = max(self._free_at, now) + (size / self.rate if self.rate else 0.0)
        return self._free_at + self.delay_s

    def waits_s(self, now: float) -> float:
        """What is before the next bytes, in seconds."""
        return max(0.0, self._free_at - now)


class Proxy:
    """Listeners, each before one target. Use it in an ``async with``."""

    def __init__(self) -> None:
        self._servers: list[asyncio.Server] = []
        self._carrying: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Proxy:
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self._servers:
            server.close()
        for task in self._carrying:
            task.cancel()
        await asyncio.gather(*self._carrying, return_exceptions=True)

    async def listen(self, at: Address, target: Address, ways: Ways) -> Address:
        """Take connections there. Returns where, as its port may be 0. Raises ``OSError``."""
        server = await asyncio.start_server(partial(self._taken, target, ways), *at, limit=PIECE_BYTES)
        self._servers.append(server)
        host, port = server.sockets[0].getsockname()[:2]
        return host, port

    async def _taken(
        self, target: Address, ways: Ways, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._carrying.add(task)
        task.add_done_callback(self._carrying.discard)
        with contextlib.suppress(OSError, asyncio.CancelledError):  # at our end nobody waits for it
            there, back = ways(writer.get_extra_info("peername")[:2])
            await _join(reader, writer, target, there, back)
        writer.close()


async def _join(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: Address, there: Link, back: Link
) -> None:
    """Carry both ways until both have come to their end. Raises ``OSError``."""
    await asyncio.sleep(there.delay_s)
    far_reader, far_writer = await asyncio.open_connection(*target, limit=PIECE_BYTES)
    try:
        async with asyncio.TaskGroup() as both:
            both.create_task(_carry(reader, far_writer, there))
            both.create_task(_carry(far_reader, writer, back))
    except* OSError:
        pass  # one side has broken off: the other one hears it
    finally:
        far_writer.close()


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: Link) -> None:
    """One way of a connection, until it ends. Raises ``OSError``."""
    clock, under_way = asyncio.get_running_loop().time, asyncio.Queue[tuple[float, bytes]](UNDER_WAY_MAX)

    async def leave() -> None:
        while True:
            await asyncio.sleep(link.waits_s(clock()) - AHEAD_SECS)
            piece = await reader.read(PIECE_BYTES)
            await under_way.put((link.take(len(piece), clock()), piece))
            if not piece:
                return

    async def arrive() -> None:
        while True:
            at, piece = await under_way.get()
            if (early := at - clock()) > 0:
                await asyncio.sleep(early)
            if not piece:
                writer.write_eof()
                return
            writer.write(piece)
            await writer.drain()

    async with asyncio.TaskGroup() as both:
        both.create_task(leave())
        both.create_task(arrive())


def _always(there: Link, back: Link) -> Ways:
    return lambda _peer: (there, back)


async def _serve(ways: Sequence[tuple[str, str, int, float]]) -> None:
    """Hosts, ports and delays. Until our standard input ends: whoever has begun us has ended."""
    async with Proxy() as proxy:
        for at, target, port, delay_s in ways:
            await proxy.listen((at, port), (target, port), _always(Link(delay_s), Link(delay_s)))
        print("up", flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_serve(json.loads(sys.argv[1])))
