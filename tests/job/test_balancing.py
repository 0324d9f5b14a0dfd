"""Jobs go by themselves to agents that have less to do (protocol 5.14)."""

from __future__ import annotations

import pytest

from agents.node.balancing import STALE_MS, Loads, OwnLoad
from agents.node.deciding import Deciding
from agents.process import took_us_of
from elf.batch import decode
from elf.job.catalog.log import CatalogLog
from elf.job.catalog.permission import forbidden
from elf.job.group.groups import JobGroups
from elf.job.messages.log import LOADS_MAX, AgentLoad, AssignJobGroup, GroupLoad, JobGroupAssigned
from elf.job.spec import JobSpec
from elf.planning.pacing import Pace
from elf.wire.clients import Reply
from lab.chaos.agent import SimAgent
from lab.chaos.world import World
from tests.chaos import plants
from tests.support.histories import begun, said
from tests.support.jobgroups import exact, leader, staffed
from tests.support.signed_log import TRUST

PACE = Pace(period_ms=5_000, follow_ms=15_000, rest_ms=20_000)
CORE_US = 1_000
"""CPU time in a millisecond of a whole core."""


def started(world: World, monkeypatch: pytest.MonkeyPatch, busy: float) -> tuple[JobSpec, int, SimAgent]:
    """A job whose first master has much else to do, as nobody else has."""
    spec, until = begun(world, 60_000)
    staffed(world, spec, 3)
    first = leader(world, spec)

    def spent(groups: JobGroups) -> dict[str, int]:
        return {uid: round(world.now * CORE_US * 0.3) for uid in groups._led}

    def rest(agent: SimAgent) -> dict[str, int]:
        return {"": round(world.now * CORE_US * busy) if agent is first else 0}

    monkeypatch.setattr(JobGroups, "spent", spent)
    for agent in world.agents:
        monkeypatch.setattr(agent.node.sender, "spent", lambda agent=agent: rest(agent))
        agent.node.deciding.pace = PACE
    return spec, until, first


def decided(world: World) -> list[JobGroupAssigned]:
    log = next(agent for agent in world.agents if agent.up).node.log
    return [one for one in log.assignments if isinstance(one, JobGroupAssigned)]


def test_a_job_leaves_an_agent_that_has_much_to_do_and_stays_where_it_comes_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(301, 5)
    world.group_members = 3
    spec, until, first = started(world, monkeypatch, busy=0.5)
    world.run(45_000)
    (one,) = decided(world)
    now = leader(world, spec)
    assert (one.uid, one.origin, one.target) == (spec.uid, first.address, now.address)
    assert "it takes 30.0% of a core; its agent did 80.0% of a core, this one 0.0% of a core" in one.why
    assert "the busiest agent has 5.00 times the mean load" in one.why
    reply = said(world, 2, "SHOW DECISIONS")
    assert isinstance(reply, Reply)
    (row,) = decode(reply.payload).to_pylist()
    assert (row["job"], row["changes"], row["state"]) == ("job", "master", "done")
    assert row["why"] == one.why
    reply = said(world, 2, "DESCRIBE job")
    assert isinstance(reply, Reply)
    facts = {row["fact"]: row["value"] for row in decode(reply.payload).to_pylist()}
    assert one.why in facts["moved"]
    world.run(max(0, until - world.now) + 6_000)
    exact(world, spec, until, 20)


def test_without_the_setting_nothing_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(302, 5)
    world.group_members = 3
    spec, _, first = started(world, monkeypatch, busy=0.5)
    for agent in world.agents:
        agent.node.deciding.pace = None
    world.run(45_000)
    assert decided(world) == []
    assert leader(world, spec) is first
    reply = said(world, 2, "SHOW DECISIONS")
    assert isinstance(reply, Reply)
    assert reply.text == "no decisions"


@pytest.mark.parametrize("idle", [False, True])
def test_what_would_only_change_sides_stays_and_so_does_what_matters_to_nobody(idle: bool) -> None:
    world = World(303, 2)
    spec, _ = begun(world, 5_000)
    loads, lead = Loads(world.agents[0].node.log), leader(world, spec).address
    job, rest = (10_000, 9_000) if idle else (300_000, 0)
    loads.heard(lead, AgentLoad(rest, (GroupLoad(spec.uid, job),)), 1_000)
    for address in ("other:1", "other:2"):
        loads.heard(address, AgentLoad(0), 1_000)
    assert Deciding(world.agents[0].node.log, loads, PACE).decide(2_000) == ()


def test_who_decided_with_a_clock_ahead_holds_up_no_other_job() -> None:
    world = World(306, 2)
    spec, _ = begun(world, 5_000)
    lead, other = leader(world, spec).address, "other:1"
    for uid, moves in (("0" * 32 + ".1", [spec.uid]), (spec.uid, [])):
        log = CatalogLog(world.agents[0].node.log.after(0))
        seq, at_ms = log.last + 1, 10**9
        log.append(JobGroupAssigned(seq=seq, uid=uid, origin=other, target=lead, at_ms=at_ms, why="so it is"))
        loads = Loads(log)
        loads.heard(lead, AgentLoad(300_000, (GroupLoad(spec.uid, 300_000),)), 1_000)
        loads.heard(other, AgentLoad(0), 1_000)
        assert [one.uid for one in Deciding(log, loads, PACE).decide(2_000)] == moves


def test_the_leader_of_the_voters_dies_and_the_next_one_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has loads from what it has heard as a voter, and the last decision from the log."""
    world = World(304, 5)
    world.group_members = 3
    spec, until, first = started(world, monkeypatch, busy=0.5)
    world.run_until(lambda: sum(agent.node.catalog.keeps for agent in world.agents) == 5)
    voters = next(a for a in world.agents if a.node.catalog.leads)
    if voters is not first:
        voters.crash()
    world.run(50_000)
    assert [one.origin for one in decided(world)][:1] == [first.address]
    assert leader(world, spec) is not first
    if voters is not first:
        world.restart(voters)
    world.run(max(0, until - world.now) + 12_000)
    exact(world, spec, until, 10, dead=(voters,))


def goes_twice(world: World) -> tuple[SimAgent, SimAgent]:
    """A decision is proposed twice, the second time late: somebody has moved the job on meanwhile. Where it
    should be, and is."""
    world.group_members = 3
    spec, _ = begun(world, 10_000)
    staffed(world, spec, 3)
    lead, voter = leader(world, spec), next(agent for agent in world.agents if agent.node.catalog.leads)
    target, other = [agent for agent in world.agents if agent not in (lead, voter)][:2]
    asked = AssignJobGroup(uid=spec.uid, origin=lead.address, target=target.address, at_ms=world.now, why="w")

    def propose() -> None:
        voter.perform(voter.node.settle(voter.node.catalog.serve(voter.address, asked, world.now), world.now))

    voter.guard(propose)
    world.run_until(lambda: voter.node.log.leader(spec.uid) == target.address, 10_000)
    world.run(3_000)
    said(world, 0, f"ALTER JOB job MOVE TO 'a{other.index}'")
    voter.guard(propose)
    world.run(10_000)
    return other, leader(world, spec)


def test_a_decision_that_comes_late_moves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted, found = goes_twice(World(305, 5))
    assert found is wanted
    plants.commits.obeys_late_decisions(monkeypatch)
    wanted, found = goes_twice(World(305, 5))
    assert found is not wanted


def test_only_the_leader_of_the_voters_decides_and_nobody_obeys_an_old_word() -> None:
    world = World(306, 5)
    world.group_members = 3
    spec, _ = begun(world, 10_000)
    staffed(world, spec, 3)
    lead = leader(world, spec)
    other = next(agent for agent in world.agents if agent is not lead)
    old = world.now - 120_000
    fact = {"uid": spec.uid, "origin": lead.address, "target": other.address, "at_ms": old, "why": ""}
    lead.node.hosting.assigned(JobGroupAssigned(seq=1, **fact), world.now)  # type: ignore[arg-type]
    world.run(10_000)
    assert leader(world, spec) is lead
    log = CatalogLog(trust=TRUST)
    asked = AssignJobGroup(**fact)  # type: ignore[arg-type]
    assert "nobody else" in forbidden(log, other.address, lead.address, asked, world.now)
    assert forbidden(log, lead.address, lead.address, asked, world.now) == ""


def test_a_load_goes_with_its_job_and_is_said_by_who_has_it() -> None:
    world = World(307, 3)
    spec, _ = begun(world, 5_000)
    staffed(world, spec, 3)
    lead = leader(world, spec)
    other = next(agent for agent in world.agents if agent is not lead)
    heard = Loads(world.agents[0].node.log)
    heard.heard(lead.address, AgentLoad(9, (GroupLoad(spec.uid, 70),)), 1_000)
    heard.heard(other.address, AgentLoad(5, (GroupLoad(spec.uid, 4),)), 2_000)
    loads = heard.loads(3_000)
    assert (loads[lead.address].units, loads[other.address].units) == ({spec.uid: 70}, {})
    said(world, 0, f"ALTER JOB job MOVE TO 'a{other.index}'")
    loads = heard.loads(3_000)
    assert (loads[lead.address].total, loads[other.address].total) == (9, 75)
    # who has led it says it once more, and what it takes in all: that goes with it
    heard.heard(lead.address, AgentLoad(9, (GroupLoad(spec.uid, 70),), 300), 3_000)
    heard.heard(other.address, AgentLoad(5, (), 90), 3_000)
    loads = heard.loads(3_500)
    assert (loads[lead.address].total, loads[other.address].total) == (94, 296)
    assert heard.loads(3_500 + STALE_MS) == {}


def test_an_agent_says_what_has_most_and_what_it_has_seen_for_a_whole_look() -> None:
    load = OwnLoad()
    assert load.due(0)
    load.look({"a": 0, "b": 0}, 1_000, 0)
    assert load.said is None
    assert not load.due(9_999)
    load.look({"a": 4_000_000, "b": 0, "new": 9_000_000}, 2_001_000, 10_000)
    assert load.said == AgentLoad(200_000, (GroupLoad("a", 400_000),))
    many = {f"g{n}": 10_000 * (n + 1) for n in range(LOADS_MAX + 2)}
    load = OwnLoad()
    load.look(dict.fromkeys(many, 0), 0, 0)
    load.look(many, 0, 10_000)
    assert load.said is not None
    assert len(load.said.groups) == LOADS_MAX
    assert load.said.rest == 1_000 + 2_000, "the least"


def test_agents_that_share_a_process_do_not_say_that_each_takes_all_of_it() -> None:
    """What goes from one of them would leave the others as busy as before, and all would give jobs away."""
    alone = took_us_of(1)
    assert alone is not None
    assert 0 < alone() <= alone()
    assert took_us_of(3) is None
