"""``ALTER JOB … MOVE TO``: another agent leads a job's group; nothing is lost or said twice."""

from __future__ import annotations

import pytest

from agents.node.heirs import READY_MS
from elf.errors import ElfBug
from elf.job.spec import JobSpec
from elf.wire.base import Message
from elf.wire.clients import Failed, Reply
from lab.chaos import programs
from lab.chaos.agent import SimAgent
from lab.chaos.world import World
from overlay.raft.messages import AppendRequests
from tests.chaos import plants
from tests.support.histories import begun, said
from tests.support.jobgroups import exact, leader, members, staffed


def moved(world: World, to: SimAgent, asked: int = 0) -> str:
    reply = said(world, asked, f"ALTER JOB job MOVE TO 'a{to.index}'")
    assert isinstance(reply, Reply | Failed)
    return reply.text


def of(world: World, spec: JobSpec, *, member: bool) -> SimAgent:
    """An agent that does not lead the job."""
    inside = members(world, spec)
    return next(a for a in world.agents if (a in inside) is member and a is not leader(world, spec))


@pytest.mark.parametrize("agents", [2, 5])
def test_it_goes_to_a_member_to_another_agent_and_back(agents: int) -> None:
    world = World(101, agents)
    world.group_members = 3
    spec, until = begun(world, 30_000)
    staffed(world, spec, 3 if agents > 2 else 1)
    first = leader(world, spec)
    others = [of(world, spec, member=False)]
    others += [of(world, spec, member=True)] if agents > 2 else []
    for to in (*others, first):
        world.run(3_000)
        assert moved(world, to) == f"job job is led by a{to.index} now"
        assert leader(world, spec) is to
    assert moved(world, first) == f"job job is led by a{first.index} now"
    world.run(3_000)
    assert len(members(world, spec)) == (3 if agents > 2 else 1), "who has made room comes back"
    world.run(max(0, until - world.now) + 6_000)
    exact(world, spec, until, 10)


def test_the_master_of_a_job_in_python_is_not_moved() -> None:
    world = World(103, 1)
    world.start_all()
    uid = programs.submit(world, world.agents[0])
    world.run_until(lambda: programs.is_begun(world.agents[0], uid))
    name = programs.counting().name
    reply = said(world, 0, f"ALTER JOB {name} MOVE TO 'a0'")
    assert isinstance(reply, Failed)
    assert reply.text == (
        f"job {name} is written in Python: its master goes elsewhere only when its agent leaves or dies"
    )


def test_it_stays_where_it_is_when_nobody_is_there_to_take_it() -> None:
    """And an agent that comes back too late takes nothing."""
    world = World(102, 5)
    world.group_members = 3
    spec, until = begun(world, 34_000)
    staffed(world, spec, 3)
    first, dead = leader(world, spec), of(world, spec, member=False)
    dead.crash()
    world.run(3_000)
    told = moved(world, dead, first.index)
    assert told == (
        f"job job is not moved: a{dead.index} has not entered its group in time; it stays at {first.address}"
    )
    assert leader(world, spec) is first
    world.restart(dead)
    world.run(10_000)
    assert leader(world, spec) is first
    assert moved(world, dead, first.index) == f"job job is led by a{dead.index} now"
    world.run(max(0, until - world.now) + 6_000)
    exact(world, spec, until, 10)


@pytest.mark.parametrize(
    ("to", "why"),
    [
        ("web-9", "no agent web-9 is expected; elf members names those that are"),
        ("", "no agent  is expected; elf members names those that are"),
    ],
)
def test_who_is_not_expected_gets_no_job(to: str, why: str) -> None:
    world = World(103, 3)
    begun(world, 5_000)
    reply = said(world, 0, f"ALTER JOB job MOVE TO '{to}'")
    assert isinstance(reply, Failed)
    assert reply.text == why


@pytest.mark.parametrize("kill", ["leader", "heir"])
def test_whoever_dies_in_between_one_leads_and_windows_are_right(kill: str) -> None:
    world = World(104, 5)
    world.group_members = 3
    spec, until = begun(world, 20_000)
    staffed(world, spec, 3)
    world.run(3_000)
    first, heir = leader(world, spec), of(world, spec, member=False)
    asker = next(a for a in world.agents if a not in (first, heir))
    dies = first if kill == "leader" else heir
    world.after(300, dies, dies.crash)
    moved(world, heir, asker.index)
    world.restart(dies)
    world.run(max(0, until - world.now) + 6_000)
    exact(world, spec, until, 6)


def moved_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """To a member that has not heard of the last records, which the others have committed."""
    world = World(105, 5)
    world.group_members = 3
    spec, until = begun(world, 20_000)
    staffed(world, spec, 3)
    world.run(3_000)
    heir, deaf_ms = of(world, spec, member=True), world.now + 3_500 + READY_MS
    send = World.send

    def lossy(world: World, agent: SimAgent, to: str, message: Message) -> None:
        if to != heir.address or world.now > deaf_ms or not isinstance(message, AppendRequests):
            send(world, agent, to, message)

    monkeypatch.setattr(World, "send", lossy)
    world.run(2_500)
    moved(world, heir)
    world.run(max(0, until - world.now) + 8_000)
    exact(world, spec, until, 6)


def test_nobody_leads_what_it_has_not_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        moved_behind(patch)
    plants.commits.skips_the_last_round(monkeypatch)
    with pytest.raises(ElfBug, match="replaces the committed entry"):
        moved_behind(monkeypatch)
