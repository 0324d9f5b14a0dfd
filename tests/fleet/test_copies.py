"""Copies of snapshots with real processes: an agent is killed, and its data folder deleted, when what it had
sealed is in no commit yet; and neighbours answer for one whose connection to its root stands still."""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import psutil

from elf.client import Window
from tests.support.broken import BrokenNetwork
from tests.support.fleet import Agent, Fleet
from tests.support.waiting import eventually
from tests.support.watching import QUERY, SECOND_US, clicks, connected, create, stop, watched


async def test_windows_have_what_an_agent_had_sealed_that_is_gone_for_good(five: Fleet) -> None:
    """The job group stands still when a window ends, so nobody commits it; the agent is gone when its
    neighbours have copies. Then another job group commits the window, with its rows."""
    client = await connected(five, 1)
    five.begin_writing()
    await create(client)
    leader = five.agent_at(str((await client.tree("popular"))["master"]))
    victim = next(agent for agent in five.agents[2:] if agent is not leader)
    if leader is five.agents[1]:
        await client.close()
        client = await connected(five, 0)
    async with watched(client, "popular") as windows:
        await eventually(lambda: len(windows) >= 1, "a window")
        await asyncio.sleep((1.8 - time.time()) % 2)  # to just before the end of a window
        start = time.time_ns() // 1000 // (2 * SECOND_US) * 2 * SECOND_US
        stop(leader, signal.SIGSTOP)
        before = victim.metric("snapshots_retained")  # a busy machine may owe the window before
        await eventually(lambda: victim.metric("snapshots_copied") > before, "copies", 10)
        assert start not in windows
        victim.kill()
        shutil.rmtree(victim.folder / "data")

        def lacking() -> object:
            return windows[start].status["missing"] if start in windows else None

        await eventually(
            lambda: lacking() == [leader.name], "the window, by another master, with the victim's rows"
        )
        five.end_writing()
        truth = five.truth(start, start + 2 * SECOND_US, without=[leader.name])
        assert clicks(windows[start]) == truth
        assert truth != five.truth(start, start + 2 * SECOND_US, without=[leader.name, victim.name])


async def test_windows_are_whole_while_an_agents_connection_to_its_root_stands_still(tmp_path: Path) -> None:
    """What it says there comes ten seconds late, and changes nothing any more."""
    fleet, network = Fleet(tmp_path, 5), BrokenNetwork()
    for agent in fleet.agents:
        agent.advertise = network.before("127.0.0.1", agent.port)
    for agent in fleet.agents[1:]:
        agent.bootstrap = (fleet.agents[0].reached,)
    try:
        fleet.start()
        client, statements = [await connected(fleet, 1) for _ in range(2)]
        fleet.begin_writing()
        await create(client)
        await statements.sql("DROP JOB popular")
        await statements.sql(f"CREATE JOB mirrored AS {QUERY} STRAGGLERS MIRROR")
        async with watched(client, "mirrored") as windows:
            await eventually(lambda: len(windows) >= 2, "windows")
            told: dict[str, Any] = await statements.tree("mirrored")
            (tree,) = told["flows"]
            leader = fleet.agent_at(tree["root"])
            below = [edge["address"] for edge in tree["edges"] if edge["parent"] == leader.reached]
            victim = next(agent for agent in fleet.agents if agent.reached in below)
            network.stopped = connections(victim, leader)
            stopped_us = time.time_ns() // 1_000

            def mirrored() -> list[Window]:
                return [w for start, w in windows.items() if start >= stopped_us]

            await eventually(lambda: len(mirrored()) >= 3, "windows without its own word")
            assert leader.metric("snapshots_mirrored_total") >= 3
            network.stopped = frozenset()
            end_us = fleet.end_writing() - SECOND_US
            await eventually(lambda: max(windows) + 4 * SECOND_US >= end_us, "the last windows")
            await asyncio.sleep(3)  # for revisions, of which there must be none
            for start, window in windows.items():
                if start + 2 * SECOND_US <= end_us - 2 * SECOND_US:
                    assert (window.status["missing"], window.revision) == ([], 0)
                    assert clicks(window) == fleet.truth(start, start + 2 * SECOND_US)
        table = (await statements.sql("DESCRIBE mirrored")).table
        assert table is not None
        (said,) = [row["value"] for row in table.to_pylist() if row["fact"] == "stragglers"]
        assert re.fullmatch(rf"MIRROR: neighbours have sent .*\d snapshots of {victim.name}.*", said)
        await statements.close()
    finally:
        fleet.stop()
        network.close()


def connections(agent: Agent, other: Agent) -> frozenset[int]:
    """The ports from which an agent is connected to another, or to what stands before it."""
    assert agent.process is not None
    found = psutil.Process(agent.process.pid).net_connections("tcp")
    port = int(other.reached.rpartition(":")[2])
    ports = frozenset(one.laddr.port for one in found if one.raddr and one.raddr.port == port)
    assert ports
    return ports
