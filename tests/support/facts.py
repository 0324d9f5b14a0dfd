"""An agent as its HTTP server sees it, for tests that set what it says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from decimal import Decimal

from agents.exposition import exposition
from agents.metrics import Metrics
from elf.errors import UserError


class Status:
    """An agent for tests: whatever the test sets."""

    def __init__(self) -> None:
        self.leaving = False
        self.joined = True
        self.warned: list[str] = []
        self.measured = Metrics()
        self.queue: asyncio.Queue[Mapping[str, object] | None] = asyncio.Queue()
        self.readers = 0

    def trouble(self) -> str:
        return "the agent is on its way out" if self.leaving else ""

    def warnings(self) -> Sequence[str]:
        return self.warned

    def unready(self) -> str:
        return "" if self.joined else "it looks for its fleet"

    def gaps(self) -> Sequence[Mapping[str, object]]:
        return ()

    def metrics(self) -> bytes:
        return exposition(self.measured)

    def jobs(self) -> Sequence[Mapping[str, object]]:
        return [{"name": "top", "state": "active", "sum": Decimal(10**20)}]

    def members(self) -> Sequence[Mapping[str, object]]:
        raise ZeroDivisionError

    def streams(self) -> Sequence[Mapping[str, object]]:
        return []

    async def rows(
        self, table: str, equals: Sequence[tuple[str, str]], *, anywhere: bool, creator: str = ""
    ) -> Mapping[str, object] | None:
        if not equals:
            raise UserError("a row is found by its key: add ip=… to the question")
        told = {"rows": [dict(equals)], "number": 3, "anywhere": anywhere}
        return told | ({"creator": creator} if creator else {}) if table == "seen" else None

    async def windows(self, job: str) -> AsyncIterator[Mapping[str, object]] | None:
        return self._feed() if job == "top ten" else None

    def broadcasts(self, job: str) -> Sequence[Mapping[str, object]] | None:
        return [{"text": "half price"}] if job == "top" else None

    async def _feed(self) -> AsyncIterator[Mapping[str, object]]:
        self.readers += 1
        try:
            while (window := await self.queue.get()) is not None:
                yield window
        finally:
            self.readers -= 1
