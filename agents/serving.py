"""An HTTP server of an agent's, in its own event loop: uvicorn behind a ``Door``. Signals are the agent's
business, not the server's.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Iterator
from typing import Final

import uvicorn

from agents.connections import Door
from elf.addresses import split_address
from elf.errors import UserError
from elf.transport.probe import SERVER

STOP_SECS: Final = 2
POLICY: Final = "default-src 'none'; frame-ancestors 'none'"
"""What browsers are told: to run nothing of an answer, and to show it in nobody's page."""


class Served:
    """``start`` it, ``stop`` it. ``key``: the setting that says where it listens; ``policy``: the
    Content-Security-Policy of every answer."""

    def __init__(self, listen: str, door: Door, key: str, policy: str = POLICY) -> None:
        self._listen = listen
        self._door = door
        self._key = key
        self._policy = policy
        self._server: _Server | None = None
        self._serving: asyncio.Task[None] | None = None
        self.port = 0
        self.address = listen

    async def start(self) -> None:
        """Returns when it serves. Raises ``UserError`` when it cannot listen there."""
        found = bound(self._listen, self._key)
        self.port = found.getsockname()[1]
        self.address = f"{split_address(self._listen)[0]}:{self.port}"
        config = uvicorn.Config(
            self._door,
            http=self._door.connection,  # type: ignore[arg-type]  # it makes them, as their class would
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,  # else who is on this host says from where it asks
            timeout_graceful_shutdown=STOP_SECS,
            server_header=False,
            headers=_headers(self._policy),
        )
        self._server = _Server(config, self._door)
        self._serving = asyncio.create_task(self._server.serve(sockets=[found]))
        await self._server.up.wait()

    async def stop(self) -> None:
        """Finish what is being answered, close. Idempotent."""
        if self._server is not None and self._serving is not None:
            self._server.end()
            await self._serving
            self._serving = None


def _headers(policy: str) -> list[tuple[str, str]]:
    """Of every answer."""
    return [
        ("Server", SERVER),
        ("X-Content-Type-Options", "nosniff"),
        ("Content-Security-Policy", policy),
        ("Cross-Origin-Resource-Policy", "same-origin"),
        ("Cross-Origin-Opener-Policy", "same-origin"),
        ("Referrer-Policy", "no-referrer"),
    ]


class _Server(uvicorn.Server):
    """Leaves signals to the agent, says when it serves, and looks at the clock once a second while anybody is
    connected (for the Date header, and for those who keep it waiting); uvicorn's own loop does ten times a
    second. Before the first word of somebody who comes it has looked."""

    def __init__(self, config: uvicorn.Config, door: Door) -> None:
        super().__init__(config)
        self._door = door
        self.up = asyncio.Event()
        self._ending, self._stirred = asyncio.Event(), asyncio.Event()
        door.stir = self._stirred.set

    def end(self) -> None:
        """Serve nobody else; ``serve`` returns when those that are served have their answers."""
        self.should_exit = True
        self._ending.set()
        self._stirred.set()

    async def main_loop(self) -> None:
        while not await self.on_tick(0):
            self._door.sweep(asyncio.get_running_loop().time())
            if self._door.quiet:
                await self._stirred.wait()
                self._stirred.clear()
            else:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(1):
                        await self._ending.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._door.close()
        await super().shutdown(sockets)


def bound(listen: str, key: str, kind: socket.SocketKind = socket.SOCK_STREAM) -> socket.socket:
    """A socket that listens there. ``key``: the setting that says where. Raises ``UserError``."""
    host, port = split_address(listen)
    family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
    try:
        if kind == socket.SOCK_STREAM:
            server = socket.create_server((host.strip("[]"), port), family=family)
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # what it accepts has it too
            return server
        found = socket.socket(family, kind)
        try:
            found.bind((host.strip("[]"), port))
        except OSError:
            found.close()
            raise
        return found
    except OSError as error:
        what = str(error.strerror).partition(" (while ")[0].lower()
        if error.errno == errno.EADDRINUSE:
            what = f"the port is in use; choose another ({key}) or stop what listens there"
        elif error.errno == errno.EADDRNOTAVAIL:
            what = "this machine has no such address"
        to_do = "serve HTTP" if key == "http.listen" else "receive lines"
        raise UserError(f"cannot {to_do} on {listen}: {what}") from None
