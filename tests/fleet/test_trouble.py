"""Fleets of real processes on full disks and a broken network: agents stay up, and every window is right."""

from __future__ import annotations

import asyncio
import http.client
import os
import resource
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from elf.client import Client, split
from elf.errors import UserError
from tests.support.broken import BrokenNetwork, Trouble
from tests.support.fleet import Agent, Fleet
from tests.support.waiting import eventually
from tests.support.watching import (
    SECOND_US,
    Windows,
    check,
    clicks,
    connected,
    create,
    start_us,
    watched,
)

FILE_BYTES_MAX = 64 << 10
"""Less than the state file of an agent that has worked for a second, more than its log lines."""


@contextmanager
def limited(agent: Agent) -> Iterator[None]:
    """No file of the agent may grow beyond this. Needs no rights."""
    assert agent.process is not None
    pid = agent.process.pid
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (FILE_BYTES_MAX, hard))
    yield
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))


@contextmanager
def filled(agent: Agent) -> Iterator[None]:
    """Nothing is left of the small file system with the agent's data."""
    ballast = agent.folder / "data" / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12):
            with suppress(OSError):
                while True:
                    file.write(bytes(size))
    yield
    ballast.unlink()


@contextmanager
def small_file_system(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


WAYS: dict[str, tuple[Callable[[Agent], AbstractContextManager[None]], str]] = {
    "limit": (limited, "File too large")
}
if os.geteuid() == 0:
    WAYS["tmpfs"] = (filled, "No space left on device")


@pytest.mark.parametrize("way", WAYS)
async def test_an_agent_whose_disk_is_full_stands_aside_and_comes_back(way: str, tmp_path: Path) -> None:
    """It is the job group of the job, which goes on elsewhere; nobody starts the agent again."""
    filling, why = WAYS[way]
    fleet = Fleet(tmp_path, 4)
    with ExitStack() as opened:
        if way == "tmpfs":
            for agent in fleet.agents:
                opened.enter_context(small_file_system(agent.folder / "data"))
        opened.callback(fleet.stop)
        fleet.start()
        client = await connected(fleet, 1)
        fleet.begin_writing()
        await create(client)
        full = fleet.agent_at(str((await client.tree("popular"))["master"]))
        if full is fleet.agents[1]:
            await client.close()
            client = await connected(fleet, 2)
        assert full.process is not None
        pid = full.process.pid
        async with watched(client, "popular") as windows:
            await eventually(lambda: len(windows) >= 2, "two windows")
            with filling(full):
                full_us = time.time_ns() // 1000
                await eventually(
                    lambda: "stands aside" in full.said(), "the word of the agent on a full disk"
                )
                await eventually(lambda: why in health(full), "why it is not well")
                await eventually(lambda: max(windows) > full_us + 2 * SECOND_US, "windows without it")
                for start in (start for start in windows if start > full_us + 2 * SECOND_US):
                    assert windows[start].status["missing"] == [full.name]
                    truth = fleet.truth(start, start + 2 * SECOND_US, without=[full.name])
                    assert clicks(windows[start]) == truth
            await eventually(
                lambda: "there is room again" in full.said(), "the agent's word that there is room"
            )
            await eventually(lambda: len(windows) >= 6, "six windows")
            assert health(full) == '200 {"ok":true}'
            end_us = fleet.end_writing() - SECOND_US
            await eventually(lambda: max(windows) + 4 * SECOND_US >= end_us, "the last windows", 40)
            await eventually(
                lambda: not any(w.status["missing"] for w in windows.values()), "complete windows"
            )
            check(fleet, windows, end_us - 2 * SECOND_US, least=4)
        assert (full.process.poll(), full.process.pid) == (None, pid)
        assert why in full.said()
        for agent in fleet.agents:
            assert "Traceback" not in agent.said()


async def test_an_agent_alone_makes_its_windows_when_there_is_room_again(tmp_path: Path) -> None:
    """Nobody takes its jobs over. A window that could not be stored is made then, and is no failure."""
    fleet = Fleet(tmp_path, 1)
    (agent,) = fleet.agents
    try:
        fleet.start()
        client = await connected(fleet, 0)
        fleet.begin_writing()
        await create(client)
        async with watched(client, "popular") as windows:
            await eventually(lambda: len(windows) >= 2, "two windows")
            with limited(agent):
                await eventually(
                    lambda: "stands aside" in agent.said(), "the word of the agent on a full disk"
                )
                await asyncio.sleep(3)  # more than a window, which cannot be stored
        client = await connected(fleet, 0)
        await kept_to(client, time.time_ns() // 1000 + 4 * SECOND_US)
        end_us = fleet.end_writing() - SECOND_US
        kept = await kept_to(client, end_us - 4 * SECOND_US)
        await client.close()
        check(fleet, kept, end_us - 2 * SECOND_US, least=4)
        assert sorted(kept) == list(range(min(kept), max(kept) + 1, 2 * SECOND_US)), "none is left out"
        assert windows.keys() <= kept.keys()
    finally:
        fleet.stop()


async def test_answers_are_right_on_a_network_that_delays_corrupts_and_cuts(tmp_path: Path) -> None:
    fleet, network = Fleet(tmp_path, 4), BrokenNetwork()
    for agent in fleet.agents:
        agent.advertise = network.before("127.0.0.1", agent.port)
    for agent in fleet.agents[1:]:
        agent.bootstrap = (fleet.agents[0].reached,)
    try:
        fleet.start()
        client = await connected(fleet, 1)
        fleet.begin_writing()
        await create(client)
        async with watched(client, "popular") as windows:
            await eventually(lambda: len(windows) >= 2, "two windows")
            network.trouble = Trouble(delay_s=0.05, corrupt=0.1, checkpoint=0.02)
            await eventually(lambda: network.done["corrupted"] > 20 and network.done["cut"] > 4, "trouble")
            network.trouble = Trouble()
            await eventually(lambda: len(windows) >= 8, "eight windows")
            end_us = fleet.end_writing() - SECOND_US
            await eventually(lambda: max(windows) + 4 * SECOND_US >= end_us, "the last windows", 40)
            await eventually(
                lambda: not any(w.status["missing"] for w in windows.values()), "complete windows"
            )
            check(fleet, windows, end_us - 2 * SECOND_US, least=5)
        for agent in fleet.agents:
            assert agent.process is not None
            assert agent.process.poll() is None
            assert "Traceback" not in agent.said()
            assert "Assertion" not in agent.said(), "libzmq's own: what is damaged costs its connection"
    finally:
        fleet.stop()
        network.close()


async def kept_to(client: Client, least_us: int) -> Windows:
    """All windows that the job has committed, by start (µs), as soon as one begins that late."""

    async def kept() -> Windows | None:
        committed = (await client.compare_facts("popular")).job.windows
        ordered = sorted(committed, key=lambda result: result.revision)
        found = {start_us(w): w for result in ordered for w in split(result)}
        return found if max(found, default=0) >= least_us else None

    # The job group begins some seconds after its agent.
    found = await eventually(kept, "windows to then", despite=(UserError,))
    assert found is not None
    return found


def health(agent: Agent) -> str:
    """Its status and answer; empty while nobody listens there."""
    connection = http.client.HTTPConnection("127.0.0.1", agent.http_port, timeout=5)
    try:
        connection.request("GET", "/health")
        answer = connection.getresponse()
        return f"{answer.status} {answer.read().decode()}"
    except ConnectionError:
        return ""
    finally:
        connection.close()


async def test_an_agent_whose_bytes_are_no_tables_stops_nobody(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, 4)
    bad = fleet.agents[3]
    bad.module = "tests.support.spoiling"
    fleet.start()
    try:
        client = await connected(fleet, 0)
        fleet.begin_writing()
        await create(client)
        async with watched(client, "popular") as seen:
            await eventually(
                lambda: sum(w.status["missing"] == [bad.name] for w in seen.values()) >= 4, "windows"
            )
            for window in seen.values():
                end_us = start_us(window) + 2 * SECOND_US
                missing = window.status["missing"]
                assert isinstance(missing, list)
                assert clicks(window) == fleet.truth(start_us(window), end_us, missing)
        assert all(agent.process is not None and agent.process.poll() is None for agent in fleet.agents)
        said = [
            line for agent in fleet.agents for line in agent.said().splitlines() if "cannot be opened" in line
        ]
        assert said
        assert all(bad.name in line and "not a whole Arrow table" in line for line in said)
        fleet.end_writing()
    finally:
        fleet.stop()
