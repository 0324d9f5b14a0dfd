"""A stream that falls behind: rows of jobs with WITHIN are left out by weight, others' are not, windows say
whose promise it was, and their sums are estimates; on virtual time, where what work costs is made up."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from agents.answering.about import job_row
from elf.batch import decode
from elf.fields import replace
from elf.job import events as was
from elf.job.commands import SetWeights
from elf.job.group import group
from elf.job.spec import JobSpec
from elf.job.work import EstimateWork
from elf.planning.turns import CUT_FIRST, CUT_LAST, UNCUT, Bound
from elf.ql.promises import Promise
from lab.chaos.agent import SimAgent
from lab.chaos.engine import STREAM, plan
from lab.chaos.overload import overload, relieve
from lab.chaos.world import World
from tests.support.histories import begun

WHOSE = "the promise of job me/job"


def overloaded(agent: SimAgent, monkeypatch: pytest.MonkeyPatch, **ppt: int) -> None:
    """From now on flows take so many thousandths of all time, and the stream falls behind."""
    sender, began = agent.node.sender, agent.now_ms
    monkeypatch.setattr(
        sender, "spent", lambda: {uid: part * (agent.now_ms - began) for uid, part in ppt.items()}
    )

    def tell(lag_ms: int) -> None:
        if lag_ms <= 20_000:
            agent.handle(was.Lagging(STREAM, lag_ms))
            agent.world.after(1_000, agent, lambda: tell(lag_ms + 400))

    tell(400)


def statuses(world: World, spec: JobSpec) -> list[dict[str, Any]]:
    rows = world.leader(spec).store.windows(spec.uid, -(1 << 62), 1 << 62)
    return [one for row in rows for one in decode(row.status).to_pylist()]


def counts(world: World, spec: JobSpec) -> dict[int, dict[str, int]]:
    return {start: keys for start, (_, keys, _) in world.committed(spec).items()}


def written(world: World, pane_us: int) -> dict[int, int]:
    """Lines of all agents, by window."""
    rows = Counter(ts // pane_us * pane_us for agent in world.agents for ts, _ in agent.logs[STREAM].rows)
    return dict(rows)


def test_rows_of_a_promised_job_are_weighed_and_its_windows_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(48, 3, checking=False)
    spec, _ = begun(world, 60_000, query=replace(plan(2), promise=Promise(500_000, 99.0)), rate_ms=12)
    world.run(6_000)
    slow = next(agent for agent in world.agents if agent.address != world.leader(spec).address)
    overloaded(slow, monkeypatch, **{spec.flows[0].uid: 900})
    world.run(16_000)
    held = {agent.index: agent.worker.states()[spec.flows[0].uid].weight for agent in world.agents}
    assert held[slow.index] > 1
    assert {weight for index, weight in held.items() if index != slow.index} == {1}
    found = [one for one in statuses(world, spec) if one["budgets"]]
    assert found
    assert {budget["budget"] for one in found for budget in one["budgets"]} == {WHOSE}
    assert sum(one["sampled"] for one in found) > 0
    exact, known = written(world, spec.flows[0].fragment.pane_us), counts(world, spec)
    assert len(known) > 5
    for start in sorted(known)[1:]:
        n, total = sum(known[start].values()), exact[start]
        assert abs(n - total) <= 4 * math.sqrt(max(held.values()) * total) + 9 * max(held.values())
    world.drop(spec)
    world.run(4_000)
    assert slow.node.lending._late == {STREAM: {}}


def test_the_weight_that_a_flow_has_from_an_earlier_life_is_asked_for_anew_once() -> None:
    world = World(51, 2, checking=False)
    spec, _ = begun(world, 20_000, query=plan(2))
    uid, agent = spec.flows[0].uid, world.agents[1]

    def weigh() -> None:
        agent.tasks[STREAM].give(SetWeights(((uid, 8, "the agent"),)))
        world.run(12_000)

    world.run(8_000)
    weigh()
    assert agent.worker.states()[uid].weight == 8, "nothing has changed: nothing is asked for"
    agent.crash()
    world.restart(agent)
    world.run(8_000)
    assert agent.worker.states()[uid].weight == 1
    weigh()
    assert agent.worker.states()[uid].weight == 8


def test_a_flow_that_somebody_reads_without_a_promise_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(49, 2, checking=False)
    spec, _ = begun(world, 40_000, query=replace(plan(2), promise=Promise(500_000, 99.0)))
    reader = world.create(0, plan(2), "reader")
    assert reader.flows[0].uid == spec.flows[0].uid
    overloaded(world.agents[1], monkeypatch, **{spec.flows[0].uid: 900})
    world.run(15_000)
    assert all(agent.worker.states()[spec.flows[0].uid].weight == 1 for agent in world.agents)


def left_out(world: World, spec: JobSpec) -> int:
    return sum(one["sampled"] for one in statuses(world, spec))


def whose(world: World, spec: JobSpec) -> set[str]:
    return {budget["budget"] for one in statuses(world, spec) for budget in one["budgets"]}


def test_research_gives_way_to_a_job_that_promises_and_windows_say_to_whom() -> None:
    """They promise different things, so they take turns; whose rows go first is held elsewhere
    (``test_turns``)."""
    world = World(52, 2, checking=False)
    spec, _ = begun(world, 40_000, query=replace(plan(2), promise=Promise(500_000, 99.0)), rate_ms=12)
    research = world.create(0, replace(plan(2, where="abcdef"), gives_way=True), "research")
    both = world.create(0, plan(2, lateness_us=600_000), "other")
    beside = world.create(0, replace(plan(2, lateness_us=600_000), gives_way=True), "beside")
    assert beside.flows[0].uid == both.flows[0].uid
    world.run(4_000)
    slow = next(agent for agent in world.agents if agent.address != world.leader(research).address)
    bounds = slow.worker.turns._bounds
    assert replace(bounds[spec.flows[0].uid], rest_ms=0.0) == Bound(500.0, CUT_LAST, WHOSE)
    assert bounds[research.flows[0].uid] == Bound(None, CUT_FIRST, WHOSE), "it promises nothing itself"
    assert bounds[both.flows[0].uid].rank == UNCUT, "a flow that production reads is production"
    overload(slow, 300)
    world.run(14_000)
    relieve(slow)
    world.run(20_000)
    assert left_out(world, spec)
    assert whose(world, spec) == {WHOSE}
    assert not left_out(world, both)
    log = world.agents[0].node.log
    told = [job_row(one, log, "", None)["priority"] for one in (spec, research)]
    assert told == ["production", "research"]


def test_who_promises_other_things_takes_turns_and_who_promises_the_same_does_not() -> None:
    world = World(53, 2, checking=False)
    spec, _ = begun(world, 30_000, query=replace(plan(2), promise=Promise(500_000, 99.0)))
    other = world.create(0, replace(plan(2, where="abcdef"), promise=Promise(2_000_000, 99.0)), "other")
    world.run(6_000)
    bounds = [agent.worker.turns._bounds for agent in world.agents]
    within = {spec.flows[0].uid: 500.0, other.flows[0].uid: 2_000.0}
    assert [{uid: one.within_ms for uid, one in each.items()} for each in bounds] == [within] * 2
    world.run(20_000)
    rests = [one.rest_ms for agent in world.agents for one in agent.worker.turns._bounds.values()]
    assert len(rests) == 4
    assert all(rests), "roots have told of stamped panes at once"
    world.drop(other)
    world.run(25_000)
    assert not any(agent.worker.turns._bounds for agent in world.agents)


def test_all_key_ranges_of_a_flow_have_one_weight_and_its_windows_say_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(48, 3, checking=False)
    query = replace(plan(2), promise=Promise(2_000_000, 99.0), trees=2)
    spec, _ = begun(world, 60_000, query=query, rate_ms=12)
    other = world.create(0, plan(2, lateness_us=600_000), "other")
    world.run(6_000)
    slow = next(agent for agent in world.agents if agent.address != world.leader(spec).address)
    ranges = sorted(spec.flows, key=lambda flow: flow.fragment.range)
    overloaded(slow, monkeypatch, **{flow.uid: 480 + 20 * at for at, flow in enumerate(ranges)})
    weights = []
    for _ in range(16):
        world.run(1_000)
        states = slow.worker.states()
        weights.append([states[flow.uid].weight for flow in ranges])
    assert all(len(set(both)) == 1 for both in weights), weights
    assert weights[-1][0] > 1
    exact = counts(world, other)
    told = {one["window_start"]: one for one in statuses(world, spec)}
    wrong = [start for start, keys in counts(world, spec).items() if exact.get(start, keys) != keys]
    assert wrong
    assert len(told) > len(wrong)
    said = [one for one in told.values() if one["budgets"] and one["sampled"]]
    assert len(said) >= len(wrong)


def test_research_gives_way_to_a_promise_over_a_flow_that_somebody_else_reads_too() -> None:
    world = World(52, 2, checking=False)
    spec, _ = begun(world, 40_000, query=replace(plan(2), promise=Promise(500_000, 99.0)), rate_ms=12)
    reader = world.create(0, plan(2), "reader")
    assert reader.flows[0].uid == spec.flows[0].uid
    research = world.create(0, replace(plan(2, where="abcdef"), gives_way=True), "research")
    world.run(4_000)
    bounds = world.agents[1].worker.turns._bounds
    assert bounds[research.flows[0].uid] == Bound(None, CUT_FIRST, WHOSE)
    assert bounds[spec.flows[0].uid].rank == UNCUT, "its reader has not agreed"


def test_what_the_last_window_says_is_read_once_however_often_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(48, 2, checking=False)
    spec, _ = begun(world, 20_000, query=plan(2))
    master = world.leader(spec).node.job_groups
    read = list[int]()

    def estimate_of(status: pa.Table) -> EstimateWork:
        read.append(status.num_rows)
        return EstimateWork(len(read))

    monkeypatch.setattr(group, "estimate_of", estimate_of)
    world.run(8_000)
    assert [work.estimate for _ in range(3) for work in master.work([spec.uid])] == 3 * [EstimateWork(1)]
    world.run(4_000)
    assert [work.estimate for work in master.work([spec.uid])] == [EstimateWork(2)], "a later window"
