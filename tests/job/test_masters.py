"""The master of a job in Python is kept by its job group: it goes on elsewhere when its machine is gone."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from elf.job.program.seats import MASTER, key_of
from lab.chaos import programs
from lab.chaos.agent import SimAgent
from lab.chaos.engine import GONE, STREAM
from lab.chaos.world import World


def master_of(world: World, uid: str) -> SimAgent | None:
    """The agent that it is at."""
    return next((a for a in world.agents if a.up and key_of(uid, MASTER) in a.jobs.runners), None)


def counted(world: World, uid: str) -> dict[str, int]:
    """What the master has."""
    agent = master_of(world, uid)
    if agent is None:
        return {}
    job: Any = agent.jobs.runners[key_of(uid, MASTER)].job
    found: dict[str, int] = job.deliver(b"", None)
    return found


def truth(world: World, uid: str) -> Counter[str]:
    """All rows of all agents since the job began, of those that are gone too."""
    rows = [(a.logs[STREAM].rows, a.tapped[STREAM].get(uid, 0)) for a in world.agents]
    return Counter(key for of, first in rows for _, key in of[first:])


def begun(seed: int) -> tuple[World, str]:
    """A fleet in which all agents count, and write for three seconds."""
    world = World(seed, 5)
    world.start_all()
    uid = programs.submit(world, world.agents[1])
    world.run_until(lambda: all(programs.is_begun(agent, uid) for agent in world.agents))
    for agent in world.agents:
        world.write(agent, world.now + 3_000)
    return world, uid


@pytest.mark.parametrize("seed", [1, 2])
def test_a_master_that_is_gone_with_its_disk_goes_on_elsewhere_with_all_that_it_had(seed: int) -> None:
    world, uid = begun(seed)
    world.run(4_000)
    world.run_until(lambda: counted(world, uid) == truth(world, uid))
    world.run(2_000)  # what its own agent has sent is committed
    first = master_of(world, uid)
    assert first is not None
    first.crash()
    first.ended = GONE
    for agent in world.agents:
        if agent.up:
            world.write(agent, world.now + 3_000)
    world.run(3_000)
    world.run_until(lambda: counted(world, uid) == truth(world, uid), limit_ms=20_000)
    assert master_of(world, uid) is not first
    world.run(5_000)
    assert counted(world, uid) == truth(world, uid)
