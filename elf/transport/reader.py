"""Reading a ZeroMQ socket on an asyncio loop, without a future for each message."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import zmq

READ_IN_A_ROW_MAX: Final = 64


class Reader:
    """Reads one socket whenever it can be read and its owner is not ``full``; ``take`` reads one message, and
    says whether there was one; ``came`` is called after those of one turn.

    ZeroMQ signals *changes* only, and any other call on the socket may use a signal up: so it reads until
    there is nothing, and must be touched after every send. So many messages are read in one turn of the loop
    at most.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        socket: zmq.Socket[bytes],
        take: Callable[[zmq.Socket[bytes]], bool],
        full: Callable[[], bool] = lambda: False,
        came: Callable[[], None] = lambda: None,
    ) -> None:
        self.socket = socket
        self._loop = loop
        self._take = take
        self._full = full
        self._came = came
        self._held_back = False
        self._next: asyncio.Handle | None = None
        self._fd: int = socket.getsockopt(zmq.FD)  # type: ignore[assignment]
        loop.add_reader(self._fd, self._read)
        self.touch()

    def touch(self) -> None:
        """Look at the socket soon."""
        if self._next is None and not self._held_back:
            self._next = self._loop.call_soon(self._read)

    def resume(self) -> None:
        """Its owner is no longer full."""
        if self._held_back:
            self._held_back = False
            self.touch()

    def close(self) -> None:
        self._loop.remove_reader(self._fd)
        if self._next is not None:
            self._next.cancel()
        self.socket.close()

    def _read(self) -> None:
        if self._next is not None:
            self._next.cancel()
            self._next = None
        try:
            self._read_on()
        finally:
            self._came()

    def _read_on(self) -> None:
        for _ in range(READ_IN_A_ROW_MAX):
            if self._full():
                self._held_back = True
                return
            if not self._take(self.socket):
                return
        self.touch()
