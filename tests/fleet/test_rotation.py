"""An agent whose pattern matches what rotation makes of its log: each line is in the archive once."""

from __future__ import annotations

import gzip
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from lab.bench.rotation.cells import cells
from lab.bench.rotation.side import Task, run
from tests.support.archived import until_archived
from tests.support.fleet import Agent, Fleet


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    fleet = Fleet(tmp_path, 1)
    (one,) = fleet.agents
    one.pattern = "clicks.log*"
    one.write_config()
    yield one
    fleet.stop()


def write(agent: Agent, count: int) -> None:
    now = time.time_ns() // 1_000
    agent.append((now + number, "book", 1) for number in range(count))


@pytest.mark.parametrize("killed", [False, True])
def test_copytruncate_gives_every_line_once(agent: Agent, *, killed: bool) -> None:
    write(agent, 100)
    agent.start()
    until_archived(agent, 100)
    (agent.log.parent / "clicks.log.2.gz").touch()
    write(agent, 5_000)
    copy = agent.log.with_name("clicks.log.1")
    shutil.copy(agent.log, copy)
    if killed:
        agent.kill()
    os.truncate(agent.log, 0)
    write(agent, 50)
    if killed:
        agent.start()
    until_archived(agent, 5_150)
    (agent.log.parent / "clicks.log.2.gz").write_bytes(gzip.compress(copy.read_bytes()))
    agent.kill()
    agent.start()
    write(agent, 10)
    found = until_archived(agent, 5_160)
    assert set(found.values()) == {1}
    assert len(found) == 5_160


@pytest.mark.parametrize(
    "name", ["compress/killed-2/100", "copytruncate-alone/killed-1/100", "compress/gone/100"]
)
def test_each_row_is_in_a_window_or_in_a_named_gap(tmp_path: Path, name: str) -> None:
    """A cell of ``elf bench rotation``, with a writer and rotations in Python."""
    cell = next(cell for cell in cells() if cell.name == name)
    cell = msgspec.structs.replace(cell, writer="python", rate=200)
    result = run(Task(cell, str(tmp_path), str(tmp_path / "logs")))
    assert not result.error
    assert result.verdict is not None
    assert result.verdict.failures == []
    assert (result.verdict.in_gaps > 0) == cell.gone
