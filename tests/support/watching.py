"""Clients of fleets of real processes: connect, create a job, read its windows, and check them."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import elf.client
from elf.client import Client, Window
from elf.errors import ElfError
from tests.support.fleet import STREAM, Agent, Fleet
from tests.support.waiting import eventually

SECOND_US = 1_000_000

CREATE = (
    f"CREATE JOB popular AS SELECT product, SUM(clicks_count) AS clicks FROM {STREAM} "
    "GROUP BY product WINDOWING 2 SECONDS"
)

Windows = dict[int, Window]


async def connected(fleet: Fleet, index: int) -> Client:
    """A client of an agent, as soon as all agents are members."""

    async def with_all() -> Client | None:
        client = await elf.client.connect(fleet.agents[index].address, cluster="test", creator="tests").open()
        status = await client.status()
        if status["streams"] == {STREAM: len(fleet.agents)}:
            return client
        await client.close()
        return None

    def lacking() -> str:
        return "the agents find each other:\n" + fleet.agents[index].said()

    client = await eventually(with_all, lacking, 40, despite=(ElfError,))
    assert client is not None
    return client


async def create(client: Client, sql: str = CREATE) -> None:
    """Create a job, as soon as its stream has rows."""

    async def created() -> bool:
        try:
            await client.sql(sql)
        except ElfError as error:
            if "has read a line" not in str(error):
                raise
            return False
        return True

    await eventually(created, "a line of the stream", 20)


@asynccontextmanager
async def watched(client: Client, job: str) -> AsyncIterator[Windows]:
    """The windows of a job as they come, the highest revision of each, by start (µs)."""
    windows: Windows = {}

    async def watch() -> None:
        async for window in client.subscribe(job):
            start = start_us(window)
            if start not in windows or windows[start].revision <= window.revision:
                windows[start] = window

    task = asyncio.create_task(watch())
    try:
        yield windows
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await client.close()


def start_us(window: Window) -> int:
    assert window.start is not None
    return int(window.start.timestamp() * 1e6)


def clicks(window: Window) -> dict[str, int]:
    return {row["product"]: int(row["clicks"]) for row in window.table.to_pylist()}


def check(fleet: Fleet, windows: Windows, until_us: int, *, least: int) -> None:
    """Every window that ended before ``until_us`` has exactly the rows of the agents that it covers: all of
    them.
    """
    done = {start: w for start, w in windows.items() if start + 2 * SECOND_US <= until_us}
    assert len(done) >= least
    for start, window in done.items():
        assert clicks(window) == fleet.truth(start, start + 2 * SECOND_US), window.status
        assert window.status["missing"] == []


def leave(agent: Agent, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "elf.cli.main", "leave", "--connect", agent.address, "--cluster", "test"]
    return subprocess.run([*command, *more], capture_output=True, text=True, timeout=90)


QUERY = f"SELECT product, SUM(clicks_count) AS clicks FROM {STREAM} GROUP BY product WINDOWING 2 SECONDS"


def stop(agent: Agent, number: signal.Signals) -> None:
    assert agent.process is not None
    agent.process.send_signal(number)
