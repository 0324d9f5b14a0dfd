"""Connections over TCP, with TLS or without: who may hold one, and for how long.

The connections of all are bounded, and those of one address; one that is too many is closed at once, before a
byte of it is read. A handshake of TLS has ``WAIT_SECS``, and so has whatever was begun. Between two messages
a sender may be silent for as long as it likes: who is cut off loses what it says next. TCP itself finds out
whether it is still there.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, cast

from agents.receiving.intake import Intake
from agents.serving import bound
from elf.addresses import split_address

WAIT_SECS: Final = 10.0
ALIVE_SECS: Final = (60, 10, 3)
"""TCP asks a silent peer after so long whether it lives, again so often, so many times."""
READ_BYTES: Final = 1 << 16

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter, str], Awaitable[None]]
"""With one connection, from an address, until it ends."""


@dataclass(frozen=True)
class Bounds:
    """How many connections there may be: of all, and of one address."""

    connections: int = 200
    an_address: int = 64


class Listener:
    """Has ``talk`` with each connection."""

    def __init__(
        self, listen: str, talk: Talk, intake: Intake, bounds: Bounds, tls: ssl.SSLContext | None = None
    ) -> None:
        self._listen = listen
        self._talk = talk
        self._intake = intake
        self._bounds = bounds
        self._tls = tls
        self._open: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self.address = listen

    async def serve(self) -> None:
        """Until it is cancelled. Raises ``UserError`` where it cannot listen."""
        sock = bound(self._listen, f"streams.{self._intake.stream}.receive.listen")
        self.address = f"{split_address(self._listen)[0]}:{sock.getsockname()[1]}"
        server = await asyncio.start_server(self._accepted, sock=sock, limit=2 * READ_BYTES)
        self._intake.listens(self.address)
        try:
            await asyncio.Event().wait()
        finally:
            server.close()
            for task in tuple(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Called before a byte is read."""
        peer = writer.get_extra_info("peername")
        address = str(peer[0]) if peer else ""
        if self._open.total() >= self._bounds.connections or self._open[address] >= self._bounds.an_address:
            self._intake.refuse("connections", address, "too many connections")
            writer.transport.abort()
            return
        if self._tls is not None:
            # Before a byte has come that is for TLS.
            cast(asyncio.Transport, writer.transport).pause_reading()
        _keep_alive(writer.get_extra_info("socket"))
        self._open[address] += 1
        task = asyncio.ensure_future(self._run(reader, writer, address))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: str) -> None:
        try:
            if self._tls is not None:
                await writer.start_tls(self._tls, ssl_handshake_timeout=WAIT_SECS)
            await self._talk(reader, writer, address)
        except TimeoutError:
            self._intake.refuse("slow", address, "it kept us waiting")
        except (ssl.SSLError, ConnectionError) as error:
            if isinstance(error, ssl.SSLError):
                self._intake.refuse("tls", address, f"TLS: {error.reason or error}")
        except OSError:
            pass  # the connection is gone
        except Exception as error:
            self._intake.failed(error)
        finally:
            self._open[address] -= 1
            if not self._open[address]:
                del self._open[address]
            writer.close()
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(1):
                    await writer.wait_closed()
            writer.transport.abort()


def _keep_alive(sock: socket.socket) -> None:
    first, again, times = ALIVE_SECS
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, first)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, again)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, times)


async def some(reader: asyncio.StreamReader, *, begun: bool) -> bytes:
    """What comes next; nothing at the end. ``begun``: it is awaited. Raises ``TimeoutError``."""
    async with asyncio.timeout(WAIT_SECS if begun else None):
        return await reader.read(READ_BYTES)
