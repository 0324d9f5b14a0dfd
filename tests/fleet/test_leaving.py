"""``elf leave`` with real processes, where something would have no majority without that agent."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise
from pathlib import Path

import pytest

from elf.client import Client, Window, connect
from elf.client import connection as client_module
from elf.client.results import facts_of
from tests.support.fleet import Fleet
from tests.support.waiting import eventually
from tests.support.watching import SECOND_US, connected, create, leave, watched


async def test_one_of_three_stays_while_another_is_dead_unless_it_is_forced(tmp_path: Path) -> None:
    """It is told no with one line and a status, and windows go on; forced it goes, and they wait for the dead
    one."""
    fleet = Fleet(tmp_path, 3)
    fleet.start()
    try:
        client = await connected(fleet, 0)
        fleet.begin_writing()
        await create(client)
        master = fleet.agent_at(str((await client.tree("popular"))["master"]))
        dead, leaving = [agent for agent in fleet.agents if agent is not master]
        await client.close()
        client = await connected(fleet, fleet.agents.index(master))
        async with watched(client, "popular") as windows:

            async def kept_by_three() -> bool:
                return (await kept_by(client)).count(",") == 2

            await eventually(kept_by_three, "three that keep the job")
            await eventually(lambda: len(windows) >= 2, "two windows")
            dead.kill()
            await eventually(
                lambda: any(dead.name in missing(window) for window in windows.values()),
                "a window that names the dead one",
            )
            refused = await asyncio.to_thread(leave, leaving)
            assert refused.returncode == 1
            (line,) = refused.stderr.splitlines()
            assert f"{leaving.name} stays: {dead.name} does not answer" in line
            assert "that keep the catalog log and job popular; start" in line
            assert "--force" in line
            asked_us = time.time_ns() // 1000
            await eventually(lambda: max(windows) > asked_us + SECOND_US, "windows with the one that stays")
            assert leaving.name not in missing(windows[max(windows)])
            forced = await asyncio.to_thread(leave, leaving, "--force")
            assert forced.returncode == 0, forced.stderr
            assert "no majority of the catalog log's voters has let it go" in forced.stdout
            assert leaving.process is not None
            assert leaving.process.wait(20) == 0
            leaving.process = None
            dead.start()
            back_us = time.time_ns() // 1000
            await eventually(
                lambda: max(windows) > back_us + 2 * SECOND_US, "windows with the one that is back", 90
            )
        await client.close()
    finally:
        fleet.stop()


async def kept_by(client: Client) -> str:
    """The agents that keep the job."""
    facts = facts_of(await client.sql("DESCRIBE popular"))
    return facts.get("kept by", "")


def missing(window: Window) -> list[str]:
    """The names of the agents without which it is."""
    names = window.status["missing"]
    assert isinstance(names, list)
    return names


async def test_who_subscribes_goes_on_at_another_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent that told the windows is killed: none is missing, and none comes twice."""
    monkeypatch.setattr(client_module, "SILENCE_SECS", 2.0)
    fleet = Fleet(tmp_path, 3)
    fleet.start()
    try:
        client = await connected(fleet, 0)
        fleet.begin_writing()
        await create(client)
        master = fleet.agent_at(str((await client.tree("popular"))["master"]))
        await client.close()
        first, second = [agent for agent in fleet.agents if agent is not master]
        told: list[Window] = []
        async with connect(f"{first.address},{second.address}", cluster="test") as reader:
            async for window in reader.subscribe("popular"):
                told.append(window)
                if len(told) == 3:
                    first.kill()
                if reader.address == second.address and len(told) > 8:
                    break
        starts = [window.start for window in told if not window.revision]
        assert len({window.key for window in told}) == len(told)
        assert None not in starts
        steps = {(after - before).total_seconds() for before, after in pairwise(sorted(filter(None, starts)))}
        assert steps == {2.0}
    finally:
        fleet.stop()
