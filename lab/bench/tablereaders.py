"""Who reads rows of a table by key in ``elf bench tables``: in SQL from the leader, in SQL from any copy, or
over HTTP, and how they follow one another.

In a closed loop a reader asks again when it has its answer, so a slow answer holds the next question back,
and the fleet is asked as much as it can do. In an open loop questions come at times that were drawn before;
what one took counts from when it was due (``lab.bench.openload``). All of it is on one event loop: threads
that wait for each other's lock would be measured with the fleet.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Final

from elf.client import Client
from elf.errors import ElfError
from lab.bench.openload import schedule

WAYS: Final = ("sql", "any", "http")
Ask = Callable[[int], Awaitable[int]]
"""Asks for a user; returns how many rows there are."""
LATE_SECS: Final = 30.0
"""So long an open loop waits for its last answers."""


class HttpReader:
    """Asks one agent over connections that stay open: one, or as many as wait at a time."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._free: deque[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = deque()

    async def ask(self, user: int) -> int:
        """Raises ``ElfError`` for any other answer than rows."""
        host, _, port = self._address.rpartition(":")
        while self._free and self._free[-1][0].at_eof():  # an agent ends what it hears nothing of
            self._free.pop()[1].close()
        reader, writer = self._free.pop() if self._free else await asyncio.open_connection(host, int(port))
        path = f"/api/v1/tables/seen?user={user}"
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {self._address}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        said = json.loads(await reader.readexactly(int(length)))
        if not head.startswith(b"HTTP/1.1 200 "):
            raise ElfError(f"{self._address} says {said}")
        self._free.append((reader, writer))
        return len(said["rows"])

    async def close(self) -> None:
        for _, writer in self._free:
            writer.close()


class Readers:
    """Of one fleet: a reader for each client, in each way."""

    def __init__(self, asks: Mapping[str, Sequence[Ask]]) -> None:
        self._asks = asks

    async def closed(self, way: str, users: Sequence[Sequence[int]], warm: int) -> tuple[list[float], int]:
        """One reader for each list of users: milliseconds of each read, and how many found no row."""
        both = zip(self._asks[way], users, strict=False)
        found = await asyncio.gather(*(_one_by_one(ask, own, warm) for ask, own in both))
        return [ms for times, _ in found for ms in times], sum(missed for _, missed in found)

    async def opened(self, way: str, users: Sequence[int], rate: float, seed: int) -> tuple[list[float], int]:
        """The same of a question for each of these, so many a second, of one agent after the other."""
        asks = self._asks[way]
        due = schedule(4 * len(users) / rate, rate, seed)[: len(users)]
        began, found, missed = time.perf_counter(), list[float](), 0

        async def ask(place: int) -> None:
            nonlocal missed
            missed += not await asks[place % len(asks)](users[place])
            found.append(1e3 * (time.perf_counter() - began - due[place]))

        asked = list[asyncio.Task[None]]()
        for place, at in enumerate(due):
            await asyncio.sleep(max(at - (time.perf_counter() - began), 0))
            asked.append(asyncio.create_task(ask(place)))
        async with asyncio.timeout(LATE_SECS):
            await asyncio.gather(*asked)
        return found, missed


async def readers(clients: Sequence[Client], addresses: Sequence[str], opened: AsyncExitStack) -> Readers:
    """``addresses``: where the agents of these serve HTTP."""
    over_http = [HttpReader(address) for address in addresses]
    for one in over_http:
        opened.push_async_callback(one.close)
    return Readers(
        {
            "sql": [_in_sql(client, "") for client in clients],
            "any": [_in_sql(client, " AS OF ANY") for client in clients],
            "http": [one.ask for one in over_http],
        }
    )


def _in_sql(client: Client, as_of: str) -> Ask:
    async def ask(user: int) -> int:
        found = await client.sql(f'SELECT * FROM seen{as_of} WHERE "user" = {user}')
        return 0 if found.table is None else found.table.num_rows

    return ask


async def _one_by_one(ask: Ask, users: Sequence[int], warm: int) -> tuple[list[float], int]:
    found, missed = list[float](), 0
    for user in range(warm):  # an agent reads its first statement with libraries that it had not needed
        await ask(user)
    for user in users:
        began = time.perf_counter()
        missed += not await ask(user)
        found.append(1e3 * (time.perf_counter() - began))
    return found, missed
