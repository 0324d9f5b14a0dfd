"""A column that looks otherwise after a while: no agent ends of it, and each job goes on by its own types."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from elf.client import Client, connect
from elf.errors import ElfError
from tests.support.fleet import STREAM, Agent, Fleet
from tests.support.waiting import eventually

QUERY = f"SELECT COUNT(*) AS n, SUM(ms) AS s FROM {STREAM} WINDOWING 1 SECOND"


class Writer:
    """Writes what ``value`` is then, ten lines at a time."""

    def __init__(self, path: Path) -> None:
        self.value: object = 1
        self._path = path
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _write(self) -> None:
        while not self._over.wait(0.1):
            line = json.dumps({"ts": datetime.now(UTC).isoformat(), "ms": self.value})
            with self._path.open("a", encoding="utf-8") as file:
                file.write(f"{line}\n" * 10)

    def end(self) -> None:
        self._over.set()
        self._thread.join()


@pytest.fixture
def one(tmp_path: Path) -> Iterator[tuple[Fleet, Writer]]:
    fleet = Fleet(tmp_path, 1)
    fleet.start()
    writer = Writer(fleet.agents[0].log)
    yield fleet, writer
    writer.end()
    fleet.stop()


async def reached(agent: Agent) -> Client:
    """A client, as soon as the agent answers."""
    return await eventually(connect(agent.address, cluster="test").open, agent.said, 30, despite=(ElfError,))


async def said(client: Client, text: str, wanted: str = "") -> str:
    """What comes of a statement, as soon as that has ``wanted`` in it."""
    found = ""

    async def as_wanted() -> bool:
        nonlocal found
        try:
            result = await client.sql(text)
            found = result.text if result.table is None else str(result.table.to_pylist())
        except ElfError as error:
            found = str(error)
            return wanted != "" and wanted in found
        return wanted in found

    await eventually(as_wanted, lambda: f"{wanted} in {found}", 30)
    return found


async def sums(client: Client, job: str) -> list[tuple[int, float | None]]:
    """Of the next windows of a job but the first: (rows, sum)."""
    found = []
    async with asyncio.timeout(30):
        async for window in client.subscribe(job):
            (row,) = window.table.to_pylist() or [{"n": 0, "s": None}]
            found.append((int(row["n"]), None if row["s"] is None else float(row["s"])))
            if len(found) == 4:
                break
    return found[1:]


async def times(client: Client, job: str, value: float) -> None:
    """Three windows one after the other have that value in all rows; those before may have others."""

    async def three() -> bool:
        return {s == value * n for n, s in await sums(client, job)} == {True}

    await eventually(three, f"windows of {value}", 20)


async def test_whole_numbers_become_fractions_and_then_texts(one: tuple[Fleet, Writer]) -> None:
    fleet, writer = one
    (agent,) = fleet.agents
    async with await reached(agent) as client:
        await said(client, f"CREATE JOB whole AS {QUERY}", "job whole created")
        assert {s == n for n, s in await sums(client, "whole")} == {True}
        writer.value = 1.5
        await said(client, f"DESCRIBE {STREAM}", "double")
        await said(client, f"CREATE JOB fractions AS {QUERY}", "job fractions created")
        assert {s == 1.5 * n for n, s in await sums(client, "fractions")} == {True}
        assert {(n > 0, s) for n, s in await sums(client, "whole")} == {(True, None)}
        told = await said(client, "DESCRIBE JOB whole", "uncast")
        assert "values of the last window are NULL" in told
        assert "uncast" not in await said(client, "DESCRIBE JOB fractions")
        (stats,) = (await client.fleet()).agents
        assert stats.stats is not None
        assert stats.stats.streams[0].uncast > 0
        await said(
            client,
            f"CREATE JOB texts AS SELECT ms, COUNT(*) AS n, 0 AS s FROM {STREAM} GROUP BY ms "
            "WINDOWING 1 SECOND",
            "job texts created",
        )
        writer.value = "slow"
        assert {(n > 0, s) for n, s in await sums(client, "whole")} <= {(True, None)}
    agent.kill()
    agent.start()
    async with await reached(agent) as client:
        await said(client, "SHOW JOBS", "fractions")
        writer.value = 2
        await times(client, "fractions", 2)
        assert {s == 2 * n for n, s in await sums(client, "whole")} == {True}
    assert agent.process is not None
    assert agent.process.poll() is None


async def test_what_does_not_fit_is_told_and_alter_takes_the_types_of_now(one: tuple[Fleet, Writer]) -> None:
    fleet, writer = one
    async with await reached(fleet.agents[0]) as client:
        await said(client, f"CREATE JOB whole AS {QUERY}", "job whole created")
        assert "uncast" not in await said(client, "DESCRIBE JOB whole")
        writer.value = 1.5
        await said(client, f"DESCRIBE {STREAM}", "double")
        assert "ALTER JOB" in await said(client, "DESCRIBE JOB whole", "values of the last window are NULL")
        await said(client, f"ALTER JOB whole AS {QUERY}", "version 2")
        await times(client, "whole", 1.5)
        assert "uncast" not in await said(client, "DESCRIBE JOB whole")
