"""What ``elf bench control`` measures: a function each, from a fleet that is ready to milliseconds.

A function leaves the fleet as it found it, but for event time. ``MEASURES`` names those that there are, in
the order in which they run; what a fleet is to be measured by and elf can't do yet is in ``WANTED`` alone.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from elf.bench.control_fleet import FIRST_US, SECOND_US, WAIT_SECS, ControlFleet
from elf.client import Client
from elf.errors import ElfError

Measure = Callable[[ControlFleet, Client, int], Awaitable[list[float]]]
"""A fleet, a client of one of its agents, how many times; milliseconds, one for each time (or more)."""

WANTED: Final = ("notify_ms", "filter_ms", "code_ms", "window_ms", "cycle_ms", "route_ms", "submit_ms")

OPERATORS: Final = {
    "top_products": "product, SUM(clicks) AS n FROM clicks GROUP BY product ORDER BY n DESC LIMIT 10",
    "stores": "store, COUNT(*) AS n FROM clicks GROUP BY store",
    "games": "product, MAX(user) AS n FROM clicks WHERE store == 'video_games' GROUP BY product",
    "users": "store, AVG(user) AS n, MIN(user) AS least FROM clicks GROUP BY store",
}
"""Four jobs of one second each, at once."""

LINES: Final = 20
"""Beside each agent, in each window."""

PAUSE_SECS: Final = 0.1
"""Between two times, so that one does not hear the end of the other; drawn anew each time up to twice that,
so that it is no period of anything in an agent."""


async def submit(fleet: ControlFleet, client: Client, rounds: int) -> list[float]:
    """CREATE JOB sent → its answer, which comes when the last agent has said that its worker is active."""
    found = []
    for number in range(rounds):
        began = time.perf_counter()
        await client.sql(_create(f"submit_{number}", OPERATORS["top_products"]))
        found.append(1e3 * (time.perf_counter() - began))
        await client.sql(f"DROP JOB submit_{number}")
        await _pause()
    return found


async def notify(fleet: ControlFleet, client: Client, rounds: int) -> list[float]:
    """The master sends a notice → the last agent has logged it."""
    await client.sql(_create("noticed", OPERATORS["stores"]))
    found = []
    for number in range(5 * rounds):
        fleet.forget()
        text = f"discount {number}"
        await client.sql(f"NOTIFY JOB noticed '{text}'")
        heard = await fleet.heard("a notice", lambda said, text=text: said.facts["text"] == text)  # type: ignore[misc]
        found.append(max(1e3 * said.at - _number(said.facts["sent_ms"]) for said in heard))
        await _pause()
    await client.sql("DROP JOB noticed")
    return found


async def window(fleet: ControlFleet, client: Client, rounds: int) -> list[float]:
    """The last agent has read the line that ends a window → its result is at the subscriber; four jobs."""
    for name, query in OPERATORS.items():
        await client.sql(_create(name, query))
    arrived: dict[tuple[str, int], float] = {}
    readers = [asyncio.create_task(_subscribe(client, name, arrived)) for name in OPERATORS]
    await asyncio.sleep(2 * PAUSE_SECS)
    found = []
    try:
        for number in range(1, 2 * rounds + 1):
            fleet.forget()
            start = FIRST_US + number * SECOND_US
            written = fleet.write(start + LINES * 1000, LINES)
            await fleet.heard("lines read", since=written)
            await _pause()
            written = fleet.write(start + SECOND_US, 1)
            read = await fleet.heard("lines read", since=written)
            wanted = [(name, start) for name in OPERATORS]
            await _until(lambda wanted=wanted: all(one in arrived for one in wanted), readers)  # type: ignore[misc]
            last = max(said.at for said in read)
            found += [1e3 * (arrived[one] - last) for one in wanted]
            await _pause()
    finally:
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
    for name in OPERATORS:
        await client.sql(f"DROP JOB {name}")
    return found


MEASURES: Final[Mapping[str, Measure]] = {"submit_ms": submit, "notify_ms": notify, "window_ms": window}


def _create(name: str, query: str) -> str:
    return f"CREATE JOB {name} AS SELECT {query} WINDOWING 1 SECONDS LATENESS 0 SECONDS"


async def _pause() -> None:
    await asyncio.sleep(PAUSE_SECS * 2 * random.random())


async def _subscribe(client: Client, job: str, arrived: dict[tuple[str, int], float]) -> None:
    """Note when each window of a job comes."""
    async for one in client.subscribe(job):
        if one.start is not None:
            arrived.setdefault((job, round(one.start.timestamp() * 1e6)), time.time())


async def _until(done: Callable[[], bool], readers: list[asyncio.Task[None]]) -> None:
    deadline = time.monotonic() + WAIT_SECS
    while not done():
        for reader in readers:
            if reader.done():
                reader.result()
                raise ElfError("a subscription has ended by itself")
        if time.monotonic() > deadline:
            raise ElfError(f"no result of a window after {WAIT_SECS:g} s")
        await asyncio.sleep(0.005)


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
