"""``ALTER JOB … SCALE``: a job gets roots, and loses some, while it runs (protocol 5.15)."""

from __future__ import annotations

import pytest

from agents.node.hosting import Hosting
from elf.batch import decode
from elf.fields import replace
from elf.job.group.groups import JobGroups
from elf.job.messages.log import AssignJobGroup, DecideTrees, TreesDecided
from elf.job.spec import JobSpec
from elf.planning.pacing import Pace
from elf.windows import Landmark
from elf.wire.clients import Failed, Reply
from lab.chaos.engine import SECOND, plan
from lab.chaos.world import World
from tests.chaos import plants
from tests.support.histories import begun, said
from tests.support.jobgroups import exact, leader, staffed
from tests.support.versions import versions

PACE = Pace(period_ms=3_000, follow_ms=6_000, rest_ms=12_000)


def told(world: World, sql: str, through: int = 0) -> str:
    reply = said(world, through, sql)
    assert isinstance(reply, Reply | Failed)
    return reply.text


def now(world: World, spec: JobSpec) -> JobSpec:
    found = world.agents[0].node.log.job(spec.uid)
    assert found is not None
    return found


def takes(monkeypatch: pytest.MonkeyPatch, world: World, cores: float) -> None:
    """The roots of the job take so much, all together. Loads are looked at often, and what follows is soon
    done."""

    def spent(groups: JobGroups) -> dict[str, int]:
        trees = max((spec.plan.trees for spec in groups._log.jobs()), default=1)
        return {uid: round(world.now * 1_000 * cores / trees) for uid in groups._led}

    monkeypatch.setattr(JobGroups, "spent", spent)
    monkeypatch.setattr(JobGroups, "spent_on_windows", lambda groups: {})
    monkeypatch.setattr("agents.node.deciding.Pace", lambda: PACE)
    monkeypatch.setattr("agents.node.balancing.LOOK_MS", 2_000)


def facts(world: World) -> dict[str, str]:
    reply = said(world, 2, "DESCRIBE job")
    assert isinstance(reply, Reply)
    return {row["fact"]: row["value"] for row in decode(reply.payload).to_pylist()}


def test_more_roots_and_fewer_as_a_person_wants(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(401, 5)
    world.group_members = 3
    spec, until = begun(world, 35_000, rate_ms=400)
    staffed(world, spec, 3)
    takes(monkeypatch, world, 0.9)
    world.run(14_000)
    now_told = told(world, "EXPLAIN ANALYZE job")
    assert "of late its root takes 90% of a core; 100% of its output waits for its roots\n" in now_told
    text = told(world, "ALTER JOB job SCALE OUT 2")
    assert "job job is version 2 now" in text
    assert text.endswith(
        "it has 3 trees, and had 1: its root takes 90% of a core; 100% of its output waits for its roots; "
        "with 3 of them each takes 30%"
    )
    assert now(world, spec).plan.trees == 3
    assert len({flow.leader for flow in now(world, spec).flows}) == 3
    world.run(5_000)
    assert "it has 2 trees, and had 3" in told(world, "ALTER JOB job SCALE IN 1", 1)
    assert told(world, "ALTER JOB job SCALE IN 9") == "job job has 2 trees, so SCALE IN 1 at most"
    assert told(world, "ALTER JOB job SCALE OUT 64") == "job job has 2 trees, so SCALE OUT 62 at most"
    assert "ALTER JOB job SCALE IN 1: " in " ".join(facts(world).values())
    world.run(max(0, until - world.now) + 6_000)
    exact(world, spec, until, 10)


def test_a_job_that_scales_by_itself_grows_and_shrinks_with_what_it_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(402, 5)
    world.group_members = 3
    spec, until = begun(world, 50_000, rate_ms=400)
    staffed(world, spec, 3)
    takes(monkeypatch, world, 0.9)
    assert told(world, "ALTER JOB job SCALE AUTO (1, 3)").endswith("it has 1 to 3 trees, as many as it needs")
    assert facts(world)["scale"] == "by itself, 1 to 3 trees"
    world.run_until(lambda: now(world, spec).plan.trees == 2, 60_000)
    (one,) = world.agents[0].node.log.assignments
    assert isinstance(one, TreesDecided)
    assert (one.before, one.trees) == (1, 2)
    world.run(5_000)
    assert now(world, spec).scale == (1, 3)
    made = {n: one.by_itself for n, one in versions(world, spec).items()}
    assert made == {1: False, 2: False, 3: True}
    reply = said(world, 2, "SHOW DECISIONS")
    assert isinstance(reply, Reply)
    (row,) = decode(reply.payload).to_pylist()
    assert (row["job"], row["changes"], row["from"], row["to"], row["state"]) == (
        "job",
        "trees",
        "1",
        "2",
        "done",
    )
    assert "its root takes 9" in row["why"]
    assert row["why"] in facts(world)["scaled"]
    assert "scaled by itself to 2 trees: its root" in " ".join(facts(world).values())
    takes(monkeypatch, world, 0.1)
    world.run_until(lambda: now(world, spec).plan.trees == 1, 60_000)
    assert "with one fewer each takes" in list(world.agents[0].node.log.assignments)[-1].why
    world.run(max(0, until - world.now) + 6_000)
    exact(world, spec, until, 20)


@pytest.mark.parametrize("kill", ["voters", "master"])
def test_whoever_dies_after_a_decision_windows_are_right(kill: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The decision is carried out, or is not, and another one comes."""
    world = World(403, 5)
    world.group_members = 3
    spec, until = begun(world, 50_000, rate_ms=400)
    staffed(world, spec, 3)
    takes(monkeypatch, world, 0.9)
    told(world, "ALTER JOB job SCALE AUTO (1, 3)")
    log = world.agents[0].node.log
    world.run_until(lambda: any(True for _ in log.assignments), 60_000)
    dies = leader(world, spec) if kill == "master" else next(a for a in world.agents if a.node.catalog.leads)
    dies.crash()
    world.run(8_000)
    world.restart(dies)
    world.run_until(lambda: now(world, spec).plan.trees == 2, 60_000)
    world.run(max(0, until - world.now) + 12_000)
    exact(world, spec, until, 15, dead=(dies,))


def test_what_cannot_have_other_trees_is_refused() -> None:
    world = World(404, 2)
    begun(world, 10_000, query=replace(plan(2), windows=(Landmark(2 * SECOND),)))
    assert told(world, "ALTER JOB job SCALE IN 1") == "job job has 1 tree, the fewest that there are"
    assert told(world, "ALTER JOB job SCALE AUTO (1, 3)").startswith(
        "job job cannot scale by itself: its landmark windows hold rows that"
    )
    assert "say RESET to begin them anew" in told(world, "ALTER JOB job SCALE OUT 1")


def proposed_twice(world: World) -> JobSpec:
    """A decision is proposed twice, the second time late: its owner wants one tree, for good."""
    world.group_members = 3
    spec, _ = begun(world, 40_000, rate_ms=500)
    staffed(world, spec, 3)
    told(world, "ALTER JOB job SCALE AUTO (1, 3)")
    voter = next(agent for agent in world.agents if agent.node.catalog.leads)
    asked = DecideTrees(uid=spec.uid, before=1, trees=2, at_ms=world.now, why="w")

    def propose() -> None:
        voter.perform(voter.node.settle(voter.node.catalog.serve(voter.address, asked, world.now), world.now))

    voter.guard(propose)
    world.run_until(lambda: now(world, spec).plan.trees == 2, 10_000)
    world.run(4_000)
    told(world, "ALTER JOB job SCALE IN 1")
    world.run(4_000)
    voter.guard(propose)
    world.run(8_000)
    return now(world, spec)


def test_a_decision_that_comes_late_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert proposed_twice(World(405, 4)).plan.trees == 1
    plants.commits.obeys_late_decisions_on_trees(monkeypatch)
    assert proposed_twice(World(405, 4)).plan.trees == 2


def test_what_always_comes_to_nothing_is_not_decided_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until there is another version."""
    world = World(407, 3)
    world.group_members = 3
    spec, _ = begun(world, 170_000, rate_ms=2_000)
    staffed(world, spec, 3)
    takes(monkeypatch, world, 0.9)
    carries = Hosting.is_to_change
    monkeypatch.setattr(Hosting, "is_to_change", lambda *_: False)
    told(world, "ALTER JOB job SCALE AUTO (1, 2)")
    log = world.agents[0].node.log
    world.run(100_000)
    assert len(list(log.assignments)) == 3
    assert facts(world)["scale"] == (
        "by itself, 1 to 2 trees; 3 decisions came to nothing: no more until the job is altered; SCALE OUT 1 "
        "says why"
    )
    told(world, "ALTER JOB job SCALE AUTO (1, 3)")
    monkeypatch.setattr(Hosting, "is_to_change", carries)
    world.run_until(lambda: now(world, spec).plan.trees == 2, 60_000)
    assert facts(world)["scale"] == "by itself, 1 to 3 trees"


def test_who_can_go_reads_no_lines_and_matters_least() -> None:
    world = World(406, 5)
    world.group_members = 3
    idle, busy = world.agents[3:]
    idle.streams = busy.streams = ()
    spec, _ = begun(world, 10_000)
    staffed(world, spec, 3)
    lead = leader(world, spec)
    asked = AssignJobGroup(
        uid=spec.uid, origin=lead.address, target=busy.address, at_ms=world.now, why="to a helper"
    )
    voter = next(agent for agent in world.agents if agent.node.catalog.leads)
    voter.guard(
        lambda: voter.perform(
            voter.node.settle(voter.node.catalog.serve(voter.address, asked, world.now), world.now)
        )
    )
    world.run_until(lambda: busy.node.job_groups.has(spec.uid), 10_000)
    world.run(3_000)
    reply = said(world, 0, "SHOW SCALE IN 2")
    assert isinstance(reply, Reply), reply
    found = decode(reply.payload).to_pylist()
    assert [(row["agent"], row["masters"], row["roots"]) for row in found] == [
        (idle.address, 0, 0),
        (busy.address, 1, 1),
    ]
    assert found[0]["why"] == "it has no master and no root"
    assert "ETPSum 2.00" in found[1]["why"]
    assert found[1]["how"] == f"elf leave --connect {busy.address}"
    assert told(world, "SHOW SCALE IN 3") == (
        "of 5 agents 3 read lines, and never go by themselves: of the others 2 can, not 3; elf leave has any "
        "of them leave"
    )
