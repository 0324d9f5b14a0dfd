"""An archive that cannot be written to: the agent goes on, and says so everywhere until it is over."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from elf.cli.doctor import archived
from elf.client import connect
from elf.errors import UserError
from tests.support.fleet import Agent, Fleet
from tests.support.waiting import wait_until


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    fleet = Fleet(tmp_path, 1)
    fleet.start()
    yield fleet.agents[0]
    fleet.stop()


def until(agent: Agent, path: str, holds: Callable[[str], bool]) -> str:
    def as_wanted() -> str:
        return found if holds(found := agent.fetched(path)) else ""

    return wait_until(as_wanted, path, despite=(OSError,))


def write(agent: Agent) -> None:
    agent.append([(time.time_ns() // 1_000, "book", 1)] * 10)


def test_an_archive_that_takes_nothing_is_told_and_counted_until_it_is_over(agent: Agent) -> None:
    write(agent)
    until(agent, "/health", lambda text: json.loads(text) == {"ok": True})
    assert agent.metric("archive_failures_total") == 0
    archive = agent.folder / "archive"
    shutil.rmtree(archive, ignore_errors=True)
    archive.write_text("not a folder")
    write(agent)
    health = json.loads(until(agent, "/health", lambda text: "warnings" in text))
    assert health["ok"] is True
    assert "wait for an archive that cannot be written to" in health["warnings"][0]
    assert agent.metric("archive_failures_total") >= 1
    assert agent.metric("archive_rolls_waiting") >= 1
    assert agent.said().count("the archive takes no more") == 1
    (row,) = asyncio.run(archives_of(agent))
    assert (row["stream"], row["waiting"] >= 1, "cannot" in row["problem"]) == ("clicks", True, True), row
    assert archived(row)[0] is False
    archive.unlink()
    write(agent)  # what looks for rolls to ship is what the stream task does
    until(agent, "/health", lambda text: json.loads(text) == {"ok": True})
    assert agent.metric("archive_rolls_waiting") == 0
    assert "the archive takes what has waited" in agent.said()
    assert list(archive.rglob("*.parquet"))
    until(agent, "/metrics", lambda text: 'elf_archive_files{stream="clicks"} ' in text)
    (row,) = asyncio.run(archives_of(agent))
    assert (row["problem"], row["waiting"], row["gone"], row["path"]) == ("", 0, 0, str(archive)), row
    assert row["rows"] >= 10
    assert row["files"] >= 1
    assert re.fullmatch(r"20..-..-..T..:00:00.000Z", row["from"])
    right, line = archived(row)
    assert right
    assert line.startswith("archive: clicks on ")
    agent.more["archive"] = {"enabled": False}
    agent.kill()
    agent.start()
    write(agent)
    until(agent, "/health", lambda text: json.loads(text) == {"ok": True})
    files = len(list(archive.rglob("*.parquet")))
    with pytest.raises(UserError, match=r"is not archived on .* \(archive: off\)"):
        asyncio.run(facts_of(agent))
    assert len(list(archive.rglob("*.parquet"))) == files


async def archives_of(agent: Agent) -> list[dict[str, Any]]:
    async with connect(agent.address, cluster=agent.cluster) as client:
        table = (await client.sql("SHOW ARCHIVES")).table
        return [] if table is None else table.to_pylist()


async def facts_of(agent: Agent) -> None:
    async with connect(agent.address, cluster=agent.cluster) as client:
        await client.sql("CREATE JOB busy AS SELECT COUNT(*) AS n FROM clicks WINDOWING 1 SECOND")
        await client.compare_facts("busy")
