"""What real agents say: why they are not ready, who comes and goes, and what a signal does not do."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from elf import client as elf_client
from elf.errors import ElfError
from tests.support.fleet import Agent, Fleet
from tests.support.waiting import eventually


def lines(agent: Agent, event: str) -> list[dict[str, Any]]:
    """What the agent's log says of that."""
    told = agent.said().splitlines() if (agent.folder / "stderr").exists() else []
    found = [json.loads(line) for line in told if line.startswith("{")]
    return [line for line in found if str(line["event"]).startswith(event)]


def ready(agent: Agent) -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", agent.http_port, timeout=5)
    try:
        connection.request("GET", "/ready")
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


async def test_an_agent_says_why_it_is_not_ready_and_who_comes_and_goes(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, 2)
    first, second = fleet.agents
    try:
        for agent in fleet.agents:
            agent.write_config()
            agent.log.touch()
        second.fork()
        await eventually(lambda: bool(lines(second, "agent is not ready yet")), "why it is not ready")
        (line,) = lines(second, "agent is not ready yet")
        reason = (
            f"it looks for its fleet through {first.address}; "
            f"{first.address}: connection refused (is elf-agent running there?)"
        )
        assert (line["reason"], line["level"]) == (reason, "warning")
        assert ready(second) == (503, {"ok": False, "ready": False, "reason": reason})
        first.fork()
        await eventually(lambda: bool(lines(second, "agent is ready")), "that it is ready")
        assert ready(second) == (200, {"ok": True, "ready": True})
        assert len(lines(second, "agent is not ready yet")) == 1

        second.process.send_signal(signal.SIGHUP)  # type: ignore[union-attr]
        await eventually(lambda: bool(lines(second, "SIGHUP")), "what it says to a SIGHUP")
        second.process.send_signal(signal.SIGHUP)  # type: ignore[union-attr]
        await eventually(lambda: bool(lines(first, "an agent joins a stream")), "who has come")
        (joined,) = lines(first, "an agent joins a stream")
        assert (joined["member"], joined["member_address"]) == ("web-1", second.address)
        first.kill()
        await eventually(lambda: bool(lines(second, "an agent is silent")), "who is gone")
        (gone,) = lines(second, "an agent is silent")
        assert (gone["member"], gone["member_address"]) == ("web-0", first.address)
        first.fork()
        await eventually(lambda: bool(lines(second, "an agent is back")), "who is back")
        assert lines(second, "an agent is back")[0]["member"] == "web-0"
        assert ready(second)[0] == 200
        assert len(lines(second, "SIGHUP")) == 1, "it is said once"
    finally:
        fleet.stop()


async def test_an_agent_outlives_the_terminal_that_started_it(tmp_path: Path) -> None:
    """Which takes its standard error along."""
    (agent,) = Fleet(tmp_path, 1).agents
    path = agent.write_config()
    agent.log.touch()
    pid, terminal = pty.fork()
    if not pid:
        os.execv(sys.executable, [sys.executable, "-m", "agents.main", "--config", str(path)])
    try:
        said = b""
        while b"agent is ready" not in said:
            said += await asyncio.to_thread(os.read, terminal, 4096)
        os.close(terminal)
        await asyncio.sleep(1)  # in which it may die of it
        assert ready(agent)[0] == 200
        os.kill(pid, signal.SIGTERM)
        assert (await asyncio.to_thread(os.waitpid, pid, 0))[1] == 0
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        raise


async def test_an_agent_and_a_client_of_another_cluster_are_told_which(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, 2)
    first, second = fleet.agents
    second.bootstrap = (first.address, f"127.0.0.1:{first.http_port}")
    try:
        for agent in fleet.agents:
            agent.write_config()
            agent.log.touch()
        path = second.folder / "elf.yaml"
        known = yaml.safe_load(path.read_text())
        known["cluster"]["name"] = "other"
        path.write_text(yaml.safe_dump(known))
        first.fork()
        await eventually(lambda: bool(lines(first, "agent is ready")), "the first agent")
        errors = (second.folder / "stderr").open("ab")
        second.process = subprocess.Popen(
            [sys.executable, "-m", "agents.main", "--config", str(path)],
            stdout=errors,
            stderr=errors,
            env=os.environ | {"ELF_CLUSTER_NAME": "third"},
        )
        await eventually(lambda: bool(lines(second, "agent is not ready yet")), "why it is not ready")
        assert [line["event"] for line in lines(second, "ELF_")] == [
            f"ELF_CLUSTER_NAME=third of the environment is used instead of cluster.name: other ({path}:12)"
        ]
        assert lines(second, "agent is not ready yet")[0]["reason"].split("; ", 1)[1] == (
            f"{first.address}: is of cluster 'test', this one is of 'third'; "
            f"127.0.0.1:{first.http_port}: that is the http.listen of an elf-agent; "
            "use its agent.listen (port 7071 if it is not set)"
        )
        with pytest.raises(ElfError, match="it is an agent of cluster 'test', and 'elf' was asked for"):
            await elf_client.connect(first.address).open()
        async with elf_client.connect(first.address, cluster="test") as client:
            assert (await client.status())["agent"] == first.name
    finally:
        fleet.stop()
