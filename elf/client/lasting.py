"""A client that serves others for long: it outlives the agent that it asks."""

from __future__ import annotations

import asyncio

from elf.client.client import Client
from elf.errors import ElfError, UserError


class Lasting:
    """``client``: whoever asks through it calls ``reached`` before."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._opening = asyncio.Lock()

    async def reached(self) -> Client:
        """The client, which looks for an agent again where it has lost the one that it had. Raises
        ``ElfError``, ``UserError``."""
        async with self._opening:
            try:
                await self._client.status()
            except UserError:
                raise
            except ElfError:
                await self._client.close()
                await self._client.open()
        return self._client
