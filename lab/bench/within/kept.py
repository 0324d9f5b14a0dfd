"""A fleet that is asked what it can promise, and then has to keep it."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from typing import Final

import msgspec

from elf.client import Client, Window
from elf.errors import ElfError, UserError
from lab.bench.control_fleet import ControlFleet, on_fleet
from lab.bench.within.load import Load, Workload

STREAM: Final = "words"
TIMES_MAX: Final = 2.0
"""Of the rate at which costs are learnt, at which the promise is kept then."""
LEARN_SECS: Final = 120.0
RETRY_SECS: Final = 2.0
LEARNT: Final = "measured of job learnt"
_SAY: Final = re.compile(r"Say WITHIN (\d+) MILLISECONDS")
_REGION: Final = re.compile(r"it is kept for rates from \S+ to (\S+) times the present one")


class Kept(msgspec.Struct, frozen=True):
    """``bound_ms``: the least that the fleet takes as a promise for 99 windows of 100; ``rate``: lines a
    second at which it says that it keeps that; ``took_ms``: of each window then; ``left_out``: rows that were
    sampled, shed or late."""

    bound_ms: int
    rate: float
    took_ms: list[float]
    left_out: int

    @property
    def within(self) -> float:
        """The share of the windows that were within the bound."""
        return sum(ms <= self.bound_ms for ms in self.took_ms) / len(self.took_ms)

    @property
    def met(self) -> bool:
        return self.within >= 0.99 and not self.left_out


def stream_of(folder: Path) -> dict[str, object]:
    """The stream of an agent whose lines are there."""
    return {"streams": {STREAM: files_of(folder / "*.jsonl")}}


def files_of(include: Path) -> dict[str, object]:
    """A stream of lines as ``Lines`` makes them."""
    return {
        "include": [str(include)],
        "format": "json",
        "timestamp": "ts",
        "columns": {"ts": "timestamp", "person": "text", "word": "text", "text": "text"},
        "idle_timeout_secs": 3600,
    }


def kept(folder: Path, workload: Workload, agents: int, rate: float, seconds: float) -> Kept:
    """``rate``: the highest that is tried, lines a second of all agents. Raises ``ElfError``."""
    more = {f"web-{number:03}": stream_of(folder / f"web-{number:03}") for number in range(agents)}
    return on_fleet(
        folder, agents, lambda fleet: _kept(fleet, workload.query(STREAM), rate, seconds), more=more
    )


async def _kept(fleet: ControlFleet, query: str, rate: float, seconds: float) -> Kept:
    await fleet.start()
    load = Load([place.clicks for place in fleet.places], rate / TIMES_MAX)
    async with load.on(), fleet.client() as client:
        await client.sql(f"CREATE JOB learnt AS {query}")
        bound_ms = await _suggested(client, query)
        load.rate *= min(TIMES_MAX, await _region(client, query, bound_ms))
        await client.sql("DROP JOB learnt")
        windows = await windows_of(client, "promised", seconds)
    took = [float(str(one.status["took_ms"])) for one in windows if one.status["promised_ms"] is not None]
    if not took:
        raise ElfError(f"no window that was promised after {seconds:g} s")
    left_out = sum(int(str(one.status[what])) for one in windows for what in ("sampled", "shed", "late"))
    return Kept(bound_ms, load.rate, took, left_out)


async def _suggested(client: Client, query: str) -> int:
    """Create the job with what it is told to promise, once that rests on what was measured."""
    bound_ms, deadline = 1, time.monotonic() + LEARN_SECS
    while True:
        promise = f"WITHIN {bound_ms} MILLISECONDS FOR 99 PERCENT"
        try:
            await client.sql(f"CREATE JOB promised AS {query} {promise}")
            return bound_ms
        except UserError as error:
            said = _SAY.search(str(error))
            if said is None or time.monotonic() > deadline:
                raise
            if LEARNT in str(error):
                bound_ms = int(said[1])
            else:
                await asyncio.sleep(RETRY_SECS)


async def _region(client: Client, query: str, bound_ms: int) -> float:
    """For how many times the present rate the promise is kept, by the model."""
    told = await client.sql(f"EXPLAIN {query} WITHIN {bound_ms} MILLISECONDS FOR 99 PERCENT")
    found = _REGION.search(told.text or "")
    return max(1.0, float(found[1])) if found else 1.0


async def windows_of(client: Client, job: str, seconds: float) -> list[Window]:
    """Those that come for the first time within so many seconds."""
    found: list[Window] = []

    async def read() -> None:
        async for window in client.subscribe(job):
            found.extend([window] if not window.revision else [])

    reading = asyncio.create_task(read())
    await asyncio.wait([reading], timeout=seconds)
    if reading.done():
        reading.result()
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    return found
