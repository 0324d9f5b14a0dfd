"""Copies of snapshots with real processes: an agent is killed, and its data folder deleted, when what it had
sealed is in no commit yet."""

from __future__ import annotations

import asyncio
import http.client
import re
import shutil
import signal
import time

from tests.fleet.fleet import Agent, Fleet
from tests.fleet.test_fleet import SECOND_US, clicks, connected, create, until, watched
from tests.fleet.test_stragglers import stop


async def test_windows_have_what_an_agent_had_sealed_that_is_gone_for_good(five: Fleet) -> None:
    """The home stands still when a window ends, so nobody commits it; the agent is gone when its neighbours
    have copies. Then another home commits the window, with its rows."""
    client = await connected(five, 1)
    five.begin_writing()
    await create(client)
    home = five.agent_at(str((await client.tree("popular"))["master"]))
    victim = next(agent for agent in five.agents[2:] if agent is not home)
    if home is five.agents[1]:
        await client.close()
        client = await connected(five, 0)
    async with watched(client, "popular") as windows:
        await until(lambda: len(windows) >= 1, "a window")
        await asyncio.sleep((1.8 - time.time()) % 2)
        start = time.time_ns() // 1000 // (2 * SECOND_US) * 2 * SECOND_US
        stop(home, signal.SIGSTOP)
        await until(lambda: metric(victim, "snapshots_copied") > 0, "copies", 10)
        assert start not in windows
        victim.kill()
        shutil.rmtree(victim.folder / "data")
        lacking = lambda: windows[start].status["missing"] if start in windows else None  # noqa: E731
        await until(lambda: lacking() == [home.name], "the window, by another home, with the victim's rows")
        five.end_writing()
        truth = five.truth(start, start + 2 * SECOND_US, without=[home.name])
        assert clicks(windows[start]) == truth
        assert truth != five.truth(start, start + 2 * SECOND_US, without=[home.name, victim.name])


def metric(agent: Agent, name: str) -> float:
    connection = http.client.HTTPConnection("127.0.0.1", agent.http_port, timeout=5)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    found = re.search(rf"^elf_{name} ([0-9.e+]+)$", text, re.M)
    return float(found[1]) if found else 0.0
