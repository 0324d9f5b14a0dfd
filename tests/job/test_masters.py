"""The master of a job in Python is kept by its job group: it goes on elsewhere when its machine is gone."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from agents.codec import pack
from elf.fields import replace
from elf.job.catalog.log import CatalogLog
from elf.job.group.records import group_key
from elf.job.messages.log import AddProgram, MoveJobGroup, ProgramAdded
from elf.job.program.masters import Led, Masters
from elf.job.program.messages import DropProgram
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


def test_a_master_whose_agent_leaves_is_elsewhere_and_who_comes_back_is_no_master() -> None:
    world, uid = begun(3)
    world.run(4_000)
    world.run_until(lambda: counted(world, uid) == truth(world, uid))
    world.run(2_000)
    first = master_of(world, uid)
    assert first is not None
    first.guard(lambda: first.perform(first.node.leave(first.now_ms)))
    world.run_until(lambda: not first.up and master_of(world, uid) is not None, limit_ms=30_000)
    second = master_of(world, uid)
    assert second is not None
    second.crash()
    world.run_until(lambda: master_of(world, uid) not in (None, second), limit_ms=20_000)
    world.restart(second)
    world.run(5_000)
    assert master_of(world, uid) is not second
    assert counted(world, uid) == truth(world, uid)


def test_of_a_job_that_is_dropped_no_agent_keeps_a_group() -> None:
    world, uid = begun(4)
    world.run(2_000)
    key = group_key(uid)
    assert sum(key in agent.groups() for agent in world.agents) > 1
    agent = world.agents[2]
    request = DropProgram(id=3, origin="client", app=bytes.fromhex(uid.partition(".")[0]), uid=uid)
    agent.perform(
        agent.node.settle(agent.node.overlay.route(request.app, pack(request), world.now), world.now)
    )
    world.run_until(lambda: not any(key in agent.groups() for agent in world.agents), limit_ms=30_000)
    world.run(1_000)
    assert master_of(world, uid) is None
    assert all(agent.store.master(uid) is None for agent in world.agents)


def test_where_two_have_founded_one_job_the_log_decides() -> None:
    spec = replace(programs.counting(), generation=1, master="a:1")
    log = CatalogLog()
    first, second = Masters("a:1", log), Masters("b:1", log)
    first.take_up(Led(spec, 1, 0, None))
    second.take_up(Led(replace(spec, master="b:1"), 1, 0, None))
    assert [said.message for said in first.tick(0, "voter")] == [AddProgram(spec=spec)]
    assert first.begin() == [], "the log does not have it"
    log.append(ProgramAdded(seq=1, spec=spec))
    assert [led.spec for led in first.begin()] == [spec]
    assert second.begin() == []
    assert (first.is_misfounded(spec.uid), second.is_misfounded(spec.uid)) == (False, True)
    assert second.tick(1_000, "voter") == []
    third = Masters("c:1", log)
    third.take_up(Led(spec, 2, 0, None))
    assert [said.message for said in third.tick(0, "voter")] == [
        MoveJobGroup(uid=spec.uid, leader="c:1", term=2)
    ]
