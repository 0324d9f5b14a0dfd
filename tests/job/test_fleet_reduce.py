"""A reduce function in simulated fleets: panes are committed once, as it makes them of all their rows,
whoever dies; where it fails they are as they were, and the job goes back.
"""

from __future__ import annotations

import pytest

from elf.batch import decode
from elf.fields import replace
from elf.job.spec import END_OF_TIME, START_OF_TIME, JobSpec
from elf.ql.plan import Plan
from lab.chaos.agent import SimAgent
from lab.chaos.engine import plan
from lab.chaos.reference import reducing
from lab.chaos.world import World
from tests.support.histories import begun
from tests.support.versions import answered, check, reconfigure, said, state, versions


def ranged(world: World, size: int = 4, slide: int = 2) -> tuple[JobSpec, Plan, list[SimAgent]]:
    """A job of three key ranges; the roots of its second and third."""
    query = replace(plan(size, slide), trees=3)
    world.start_all()
    roots = tuple(agent.address for agent in world.agents[-2:])
    return world.create(1, query, "job", roots), query, world.agents[-2:]


def wrote(world: World, ms: int) -> int:
    until = world.now + ms
    for agent in world.agents:
        world.write(agent, until, rate_ms=300)
    return until


def words(world: World, flow: str) -> dict[tuple[int, int, int], set[bytes]]:
    """(Start, end, revision) → what any agent has as that commit of a flow."""
    found: dict[tuple[int, int, int], set[bytes]] = {}
    for agent in world.agents:
        for row in agent.store.pane_commits(flow, START_OF_TIME, END_OF_TIME):
            found.setdefault((row.start, row.end, row.revision), set()).add(row.payload)
    return found


def test_panes_of_every_key_range_are_reduced_and_a_root_and_the_master_may_die() -> None:
    world = World(61, 5, checking=False)
    spec, query, (second, _) = ranged(world)
    until = wrote(world, 30_000)
    world.run(4_000)
    reconfigure(world, spec, "alter", reducing(query), note="ALTER …")
    assert answered(world) == ""
    flows = [flow for flow in versions(world, spec)[2].spec.flows if flow.fragment.reduce]
    assert len({flow.leader for flow in flows}) == len(flows) == 3
    world.run_until(lambda: any(one[0] == 2 for one in said(world, spec).values()), 20_000)
    second.crash()
    world.run(1_500)
    world.restart(second)
    world.run(2_000)
    first = world.leader(spec)
    first.crash()
    world.at(world.now + 6_000, lambda: world.restart(first))
    world.run(until - world.now + 24_000)
    windows = check(world, spec, until, least=8)
    assert {one[0] for one in windows.values()} == {1, 2}
    assert not any(one[3]["function_failed"] for one in windows.values())
    for flow in flows:
        commits = words(world, flow.uid)
        assert commits
        assert all(len(contents) == 1 for contents in commits.values()), "one word on each pane"


def test_a_revision_is_of_all_rows_of_its_pane() -> None:
    """Of an agent whose snapshots come late: groups that were left out for a row too few are there then."""
    world = World(62, 4, checking=False)
    spec, until = begun(world, 24_000, query=plan(2), rate_ms=400)
    reconfigure(world, spec, "alter", reducing(plan(2)), note="ALTER …")
    assert answered(world) == ""
    world.run(4_000)
    away = next(agent for agent in world.agents if agent is not world.leader(spec))
    world.unheard.add(away.address)
    world.run(9_000)
    world.unheard.clear()
    world.run(until - world.now + 20_000)
    windows = check(world, spec, until, least=8)
    revised = [one for one in windows.values() if one[1] and one[0] == 2]
    assert revised
    assert all(not one[3]["missing"] for one in revised)


@pytest.mark.parametrize("crashes", [False, True], ids=["peace", "the master dies"])
def test_a_function_that_fails_at_a_root_costs_no_window_and_the_job_goes_back(crashes: bool) -> None:
    world = World(63, 4, checking=False)
    spec, until = begun(world, 40_000, query=plan(4, 2), rate_ms=300)
    world.run(4_000)
    reconfigure(world, spec, "alter", reducing(plan(4, 2)), note="ALTER …")
    assert answered(world) == ""
    world.run_until(lambda: any(one[0] == 2 for one in said(world, spec).values()), 20_000)
    world.agents[1].log.rows.append((world.now * 1000, "bang"))
    world.run_until(lambda: 3 in versions(world, spec), 20_000)
    if crashes:
        leader = world.leader(spec)
        leader.crash()
        world.at(world.now + 5_000, lambda: world.restart(leader))
    world.run_until(lambda: state(world, spec, 3) == "committed", 20_000)
    world.run(until - world.now + 20_000)
    windows = check(world, spec, until, least=10)
    _, second, third = versions(world, spec).values()
    assert third.spec.plan == plan(4, 2)
    assert "rolled back by itself to what version 1 did: several.py:5: ValueError: bang" in third.note
    assert " at row " not in third.note, "no row fails by itself in the simulator, which looks for none"
    assert " of the pane from 1970-01-01 " in third.note
    assert " on agent a" in third.note
    failed = {span for span, one in windows.items() if one[3]["function_failed"]}
    assert failed
    assert all(windows[span][0] == 2 for span in failed)
    hit = [one for one in windows.values() if "bang" in one[2]]
    assert hit, "its rows are there"
    assert all(one[0] == 3 or one[3]["function_failed"] for one in hit)
    assert second.state == "finished"


def test_a_failure_in_a_key_range_at_another_agent_is_told_to_the_master() -> None:
    world = World(64, 5, checking=False)
    spec, query, _ = ranged(world, 2, 2)
    until = wrote(world, 30_000)
    world.run(3_000)
    reconfigure(world, spec, "alter", reducing(query), note="ALTER …")
    assert answered(world) == ""
    world.run(5_000)
    world.agents[0].log.rows.append((world.now * 1000, "bang"))
    world.run_until(lambda: state(world, spec, 3) == "committed", 20_000)
    world.run(until - world.now + 20_000)
    windows = check(world, spec, until, least=8)
    failed = [one for one in windows.values() if one[3]["function_failed"]]
    assert failed
    assert all(one[0] == 2 for one in failed)
    roots = {world.by_address[flow.leader].index for flow in versions(world, spec)[2].spec.flows}
    note = versions(world, spec)[3].note
    assert "key range " in note
    assert any(f"on agent a{root}" in note for root in roots)
    for flow in versions(world, spec)[2].spec.flows:
        for agent in world.agents:
            for row in agent.store.pane_commits(flow.uid, START_OF_TIME, END_OF_TIME):
                counted = decode(row.counters) if row.counters else None
                if counted is not None:
                    assert "unreduced" in counted.column_names


def test_jobs_with_one_function_share_a_flow_and_another_keeps_its_own() -> None:
    world = World(65, 4, checking=False)
    spec, until = begun(world, 34_000, query=plan(2), rate_ms=300)
    other = world.create(2, plan(4, 2), "other")
    world.run(4_000)
    for one, query in ((spec, plan(2)), (other, plan(4, 2))):
        reconfigure(world, one, "alter", reducing(query), note="ALTER …")
        assert answered(world) == ""
    world.run(19_000)
    assert {len(agent.worker.flows()) for agent in world.agents} == {1}, "one flow, for both"
    reconfigure(world, other, "rollback", version=1)
    assert answered(world) == ""
    world.run(3_000)
    assert {len(agent.worker.flows()) for agent in world.agents} == {2}
    world.run(until - world.now + 20_000)
    for one in (spec, other):
        windows = check(world, one, until, least=5)
        assert {1, 2} <= {window[0] for window in windows.values()}
