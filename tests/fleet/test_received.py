"""An agent that lines are sent to: what it has acknowledged is in the archive once, whenever it is killed."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from elf.cli.processes import free_ports
from tests.support.archived import archived, until_archived
from tests.support.fleet import STREAM, Agent, Fleet
from tests.support.waiting import wait_until


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    fleet = Fleet(tmp_path, 1)
    (one,) = fleet.agents
    yield one
    fleet.stop()


def line(number: int) -> str:
    return json.dumps({"ts": f"2026-11-26T20:00:{number % 60:02}Z", "number": number}, separators=(",", ":"))


def post(port: int, number: int) -> bool:
    """Whether a line was acknowledged."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("POST", "/", f"{line(number)}\n", {"Idempotency-Key": str(number)})
        return connection.getresponse().status == 202
    except OSError:
        return False
    finally:
        connection.close()


def leave(agent: Agent, port: int) -> list[int]:
    """The agent leaves, and somebody sends lines until it takes none; those that were acknowledged."""
    command = [sys.executable, "-m", "elf.cli.main", "leave", "--connect", agent.address, "--cluster", "test"]
    left = subprocess.Popen(command)
    acknowledged, number = [], 1_000
    while left.poll() is None:
        if post(port, number):
            acknowledged.append(number)
        number += 1
    assert left.returncode == 0
    assert agent.process is not None
    assert agent.process.wait(20) == 0
    agent.process = None
    return acknowledged


def test_what_was_acknowledged_is_there_once(agent: Agent) -> None:
    port, syslog = free_ports(2)
    agent.more["streams"] = {
        STREAM: {"type": "http", "format": "json", "receive": {"listen": f"127.0.0.1:{port}"}},
        "system": {"type": "syslog", "format": "syslog", "receive": {"listen": f"127.0.0.1:{syslog}"}},
    }
    agent.more["archive"] = {"path": str(agent.folder / "archive"), "roll_secs": 0.5}
    agent.fork()
    wait_until(partial(post, port, 0), agent.said)
    for number in range(1, 60):
        if number == 30:
            agent.kill()
            assert not post(port, number)
            agent.fork()
        wait_until(partial(post, port, number), agent.said)
        if number % 20 == 0:
            assert post(port, number), "the same once more"
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.sendto(b"<13>Nov 26 20:00:00 web-1 app: over UDP", ("127.0.0.1", syslog))
    with socket.create_connection(("127.0.0.1", syslog)) as tcp:
        tcp.sendall(b"<13>Nov 26 20:00:00 web-1 app: over TCP\n")
    until_archived(agent, 62)
    acknowledged = leave(agent, port)
    found = archived(agent)
    assert {text: count for text, count in found.items() if count > 1} == {}
    assert found.keys() >= {line(number) for number in [*range(60), *acknowledged]}
    assert len(found) >= 62 + len(acknowledged)
    udp.close()
