"""What a job costs is learned, is in the record of its group, and is there for who plans after a crash
(protocol 5.16); on virtual time."""

from __future__ import annotations

from collections.abc import Generator
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from agents.answering.asks import Ask, ToAddress
from agents.answering.costs import Costs
from agents.answering.promising import Promising
from elf.fields import replace
from elf.job.costs import flow_costs
from elf.job.effects import Send
from elf.job.group.group import LEARN_FIRST_MS
from elf.job.spec import JobSpec
from elf.job.work import FlowWork, InspectWork, JobWork, WorkStatus
from elf.planning.budgets import BudgetKeeper
from elf.planning.costs import PANES_MIN, Delays, FlowCost, JobCosts, MemberCost, RootCost, is_news
from elf.planning.lent import Budgets
from elf.wire.base import Answer, Request
from elf.wire.clients import Reply
from lab.chaos.agent import SimAgent
from lab.chaos.engine import plan
from lab.chaos.world import Armed, World
from tests.chaos import plants
from tests.support.histories import asked, begun, said
from tests.support.jobgroups import exact, leader, members, staffed

FLOW = "0" * 24
JOB = f"{'0' * 32}.1"
LONG_AGO = MemberCost(900, rows=100.0, map_us=50.0, mapped=10.0, groups=8.0, bytes=640.0)


def known(agent: SimAgent, spec: JobSpec) -> JobCosts | None:
    """What the group of a job, which an agent leads, has learned."""
    group = agent.node.job_groups.get(spec.uid)
    assert group is not None
    return group.costs


def learned(world: World, pane_s: int = 2) -> JobSpec:
    """A job that has run until something was learned of it."""
    spec, _ = begun(world, 200_000, query=plan(pane_s))
    staffed(world, spec, 3)
    world.run(LEARN_FIRST_MS + 5_000)
    return spec


def next_leader(world: World, spec: JobSpec) -> SimAgent:
    """The leader dies; who leads next, at once."""
    first = leader(world, spec)
    first.crash()
    world.run_until(lambda: bool(leading(world, spec)), 30_000)
    return leader(world, spec)


def test_it_is_kept_by_all_that_keep_the_job_and_the_next_leader_begins_with_it() -> None:
    world = World(61, 3, checking=False)
    spec = learned(world)
    costs = known(leader(world, spec), spec)
    assert costs is not None
    (flow,) = costs.flows
    assert [address for address, _ in flow.members] == sorted(agent.address for agent in world.agents)
    for _, one in flow.members:
        assert one.rows == pytest.approx(10, rel=0.3), "a row in 200 ms, panes of 2 s"
        assert 0 < one.selectivity <= 1
        assert one.bytes
    assert flow.root is not None
    assert flow.root.rows == pytest.approx(30, rel=0.3)
    assert costs.delays is not None
    assert {name for name, _, _ in costs.delays.phases} >= {"wait", "seal", "commit"}
    world.run_until(lambda: all(a.store.costs(spec.uid) for a in members(world, spec)), 5_000)
    assert known(next_leader(world, spec), spec) == costs


def test_a_leader_that_learns_for_itself_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    plants.commits.learns_for_itself(monkeypatch)
    world = World(61, 3, checking=False)
    spec = learned(world)
    assert known(leader(world, spec), spec) is not None
    assert known(next_leader(world, spec), spec) is None


@pytest.mark.parametrize("points", [2, 40])
def test_whoever_dies_while_it_is_learned_windows_are_right_and_it_is_learned(points: int) -> None:
    world = World(64 + points, 3, loss=0.05, checking=False)
    spec, until = begun(world, 75_000, query=plan(2))
    staffed(world, spec, 3)
    world.run_until(lambda: bool(leader(world, spec).node.clients._running), LEARN_FIRST_MS + 5_000)
    dies = leader(world, spec)
    world.arm(dies, Armed(points, 1_500))
    world.run_until(lambda: not dies.up, 5_000)
    world.run_until(lambda: any(known(a, spec) is not None for a in leading(world, spec)), 90_000)
    world.run(max(0, until - world.now) + 8_000)
    exact(world, spec, until, 10)
    kept = {a.store.costs(spec.uid) for a in members(world, spec)}
    assert len(kept) == 1
    assert None not in kept


def leading(world: World, spec: JobSpec) -> list[SimAgent]:
    """Who leads the group of a job, or takes itself for that."""
    return [a for a in world.agents if a.up and a.node.job_groups.get(spec.uid) is not None]


def test_what_nobody_knows_is_asked_for_less_and_less_often() -> None:
    world = World(63, 1, checking=False)
    world.start_all()
    spec = world.create(0, plan(2))
    group = world.agents[0].node.job_groups.get(spec.uid)
    assert group is not None
    world.run_until(lambda: group.is_saved)
    begun_ms = world.now
    asked_s = [s for s in range(0, 4 * 3_600, 10) if group.is_to_learn(begun_ms + 1_000 * s)]
    apart = [b - a for a, b in pairwise(asked_s)]
    assert 50 <= asked_s[0] <= 60
    assert apart[:5] == [120, 240, 480, 960, 1_800]
    assert set(apart[5:]) == {1_800}


def test_who_plans_after_everybody_has_begun_again_has_what_was_learned() -> None:
    """No agent has sealed anything since: a new job and a promise are still told what they come to."""
    world = World(62, 3, checking=False)
    spec = learned(world, 10)
    text, told = asked(world, 1, "EXPLAIN ANALYZE job")
    assert "clicks: of 3 agents each takes 0.000 µs of CPU a row" in text
    assert set(told["live"]["learned"]["delays"]) >= {"sync", "phases", "draft"}
    reply = said(world, 1, "DESCRIBE JOB job")
    assert isinstance(reply, Reply)
    assert b"learned 1970-01-01T" in reply.payload
    for agent in world.agents:
        agent.crash()
    world.run(1_000)
    for agent in world.agents:
        world.restart(agent)
    world.run_until(lambda: bool(leading(world, spec)), 60_000)
    node = leader(world, spec).node
    counted = [one for a in world.agents for one in done(world, a, spec)]
    assert all(one.snapshots < PANES_MIN for one in counted), "they have just begun again"
    longer = plan(20)
    told = came_to(world, Costs(node.log, node.fleet, node.me.address, BudgetKeeper(Budgets())).of(longer))
    assert len(told["told"]) == 3
    for one in told["told"]:
        assert 2 < one["lines_per_sec"] < 8, "a row in 200 ms"
        assert one["up_bytes_per_sec"] > 0
    found, job, _ = came_to(world, Promising(node.log, node.fleet)._known(longer))
    assert (job, len(found.members)) == ("job", 3)
    assert found.measured["wait"].mean > 0


def done(world: World, agent: SimAgent, spec: JobSpec) -> tuple[FlowWork, ...]:
    """What an agent has counted since it began."""
    request = InspectWork(id=1, origin="x", flows=tuple(flow.uid for flow in spec.flows))
    return msgspec.msgpack.decode(answered(world, agent.address, request).body, type=WorkStatus).flows


def answered(world: World, address: str, request: Request) -> Answer:
    """What a node answers at once."""
    for step in world.by_address[address].node.requests.answer(request, world.now):
        if isinstance(step, Send) and isinstance(step.message, Answer):
            return step.message
    return Answer(id=1, error="no answer in time")


def came_to(world: World, procedure: Generator[list[Ask], list[Answer], Any]) -> Any:
    """What a procedure comes to that asks agents, each of which answers at once, or not at all."""
    answers: list[Answer] | None = None
    while True:
        try:
            asks = next(procedure) if answers is None else procedure.send(answers)
        except StopIteration as end:
            return end.value
        asked = [one for one in asks if isinstance(one, ToAddress)]
        answers = [
            answered(world, one.to, msgspec.structs.replace(one.request, id=1, origin="x")) for one in asked
        ]


# -- who is believed -----------------------------------------------------------------------------------------


def status(agent: str, *flows: FlowWork, costs: JobCosts | None = None) -> WorkStatus:
    return WorkStatus(agent, flows, () if costs is None else (JobWork(JOB, costs=costs),))


def test_an_agent_speaks_for_itself_when_it_has_sealed_enough_and_the_record_until_then() -> None:
    root = RootCost(90, rows=200.0)
    record = JobCosts(JOB, 5, (FlowCost(FLOW, (("a:1", LONG_AGO), ("b:1", LONG_AGO)), root),))
    others = (("a:1", MemberCost(1)), ("c:1", MemberCost(2)))
    older = replace(record, at_ms=4, flows=(FlowCost(FLOW, others),))
    live = {
        "a:1": status("a", FlowWork(FLOW, rows=40, snapshots=2), costs=older),
        "b:1": status("b", FlowWork(FLOW, rows=90, late=9, groups=18, snapshots=3), costs=record),
        "d:1": status("d", FlowWork(FLOW, rows=7, snapshots=1)),
        "e:1": status("e", FlowWork(FLOW, rows=7)),
    }
    (cost,) = flow_costs([FLOW], live).values()
    found = dict(cost.members)
    assert found["a:1"] == LONG_AGO, "two panes say less than the record"
    assert (found["b:1"].rows, found["b:1"].late, found["b:1"].mapped) == (30, 3, 6)
    assert found["c:1"].panes == 2, "what only an older record names"
    assert found["d:1"].rows == 7, "of which nothing else is known"
    assert "e:1" not in found
    assert cost.root == root


def test_only_what_is_different_is_kept() -> None:
    delays = Delays((("wait", 40.0, 9.0),), (4.0, 1.0), 0.5, 1, 2.0, None, 50, 1)
    before = JobCosts(JOB, 5, (FlowCost(FLOW, (("a:1", LONG_AGO),), RootCost(9, groups=8.0)),), delays)

    def member(**changes: float) -> JobCosts:
        flow = FlowCost(FLOW, (("a:1", replace(LONG_AGO, **changes)),), RootCost(9, groups=8.0))
        return replace(before, flows=(flow,))

    assert is_news(before, None)
    assert not is_news(replace(before, at_ms=9), before)
    assert not is_news(member(rows=110.0), before)
    assert is_news(member(rows=200.0), before)
    assert is_news(member(map_us=90.0), before)
    assert is_news(member(bytes=1_000.0), before)
    assert is_news(replace(before, delays=None), before)
    assert is_news(replace(before, delays=replace(delays, sync=(40.0, 1.0))), before)
    assert is_news(replace(before, flows=()), before)
