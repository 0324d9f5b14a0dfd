"""One open request of a client, and what has arrived for it: bounded, and ended by an error at any time."""

from __future__ import annotations

import asyncio
from typing import Final

from elf.errors import ElfError
from elf.wire.clients import Failed, Published, Reply

WAITING_MAX: Final = 1024
"""Replies that may wait for a slow reader; with more its request fails."""

Incoming = Reply | Failed | Published


class Request:
    """See the module's docstring. ``number`` is the client's own."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._arrived: asyncio.Queue[Incoming | ElfError] = asyncio.Queue()

    def put(self, message: Incoming) -> None:
        """Something arrived."""
        if self._arrived.qsize() >= WAITING_MAX:
            self.fail(ElfError(f"the reader is too slow: more than {WAITING_MAX} results wait for it"))
        else:
            self._arrived.put_nowait(message)

    def fail(self, error: ElfError) -> None:
        """Nothing will arrive any more. What waits is given up: the error must not wait behind it."""
        while not self._arrived.empty():
            self._arrived.get_nowait()
        self._arrived.put_nowait(error)

    async def get(self, limit_secs: float | None) -> Incoming | None:
        """The next message; None when there was none in time. Raises what ``fail`` was given."""
        try:
            async with asyncio.timeout(limit_secs):
                arrived = await self._arrived.get()
        except TimeoutError:
            return None
        if isinstance(arrived, ElfError):
            raise arrived
        return arrived
