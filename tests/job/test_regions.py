"""Fleets in several regions, on virtual time: what crosses borders, and what people see of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial

import pytest

from agents.answering.about import regions_told
from elf.batch import decode
from elf.cli.tree import heads_of, read_tree
from elf.job.catalog.log import CatalogLog
from elf.job.group.versions import Version
from elf.job.messages.inquiries import FlowStatus, TreeEdge
from elf.job.messages.log import MemberJoined, MemberLeft
from elf.job.rollup.panes import Panes
from elf.job.spec import Flow, JobSpec
from elf.ql.plan import Plan
from elf.wire.base import Answer
from elf.wire.clients import Failed, Reply
from lab.chaos.engine import STREAM, plan, united
from lab.chaos.world import World
from tests.chaos import plants
from tests.support.histories import asked, begun, call, check_all, said, settled
from tests.support.members import joined
from tests.support.regions import REGIONS, heads, one_head_each, world_of


def test_a_region_has_one_head_and_windows_are_right_whoever_dies() -> None:
    world = world_of(3, 9)
    spec, until = begun(world, 20_000)
    world.run_until(lambda: one_head_each(world, spec), 20_000)
    (first,) = next(iter(heads(world).values()))
    first.crash()
    world.run_until(lambda: one_head_each(world, spec), 8_000)
    world.run(3_000)
    world.restart(first)
    world.run_until(lambda: one_head_each(world, spec) and first.is_head(), 20_000)
    world.run(max(0, until - world.now) + 10_000)
    check_all(world, spec, until, 8)


def test_people_see_regions_and_heads() -> None:
    world = world_of(5, 9)
    spec, _ = begun(world, 20_000)
    world.run_until(lambda: one_head_each(world, spec), 20_000)
    world.run(5_000)
    names = {region: f"a{agent.index}" for region, (agent,) in heads(world).items()}
    described = said(world, 2, "DESCRIBE job")
    assert isinstance(described, Reply)
    for region in REGIONS:
        assert f"{region}: 3 agents{f' through {names[region]}' if region in names else ''}" in str(described)
    call(world, world.agents[1], "tree", "job")
    (answer,) = [one for one in world.client_inbox if isinstance(one, Reply)][-1:]
    tree = read_tree(json.loads(answer.body)).flows[0]
    assert {edge.region for edge in tree.edges} == {*REGIONS}
    assert {e.name for e in tree.edges if e.address in heads_of(tree)} == {*names.values()}
    _, told = asked(world, 2, "EXPLAIN ANALYZE job")
    assert sum(level["crossed_bytes"] for level in told["live"]["flows"][0]["levels"]) > 0
    assert " across " in asked(world, 2, "EXPLAIN ANALYZE job")[0]
    shown = said(world, 2, "SHOW MEMBERS")
    assert isinstance(shown, Reply)
    assert "us/r1" in str(decode(shown.body).to_pylist() if shown.body else shown)
    across = {a.index: a.node.sender.across for a in world.agents}
    assert all(across[agent.index] for (agent,) in heads(world).values())


def test_each_flow_of_a_job_has_heads_of_its_own() -> None:
    def root_below(head: str, other: str) -> FlowStatus:
        """The flow's root is a0; a3 and a4 stand in the other region."""
        parents = {"a0": "", "a1": "a0", "a2": "a0", head: "a0", other: head}
        edges = [
            TreeEdge(int(name[1]), name, name, parent, None, "us" if name in ("a3", "a4") else "eu")
            for name, parent in parents.items()
        ]
        return FlowStatus("f", STREAM, "a0", None, None, (), tuple(edges))

    one, other = root_below("a3", "a4"), root_below("a4", "a3")
    assert regions_told([one, None]) == "eu: 3 agents; us: 2 agents through a3"
    assert regions_told([one, other]) == "eu: 3 agents; us: 2 agents through a3, a4"
    assert regions_told([None]) == ""


def test_who_left_stands_nowhere_and_regions_that_were_there_once_count() -> None:
    log = CatalogLog([joined(1, 0, place="eu/r1"), joined(2, 1), joined(3, 2, place="eu")])
    assert not log.spans_regions
    assert log.places() == {"a0:1": "eu/r1", "a2:1": "eu"}
    log = CatalogLog(
        [
            joined(1, 0, place="eu"),
            joined(2, 1, place="us"),
            MemberLeft(seq=3, stream=STREAM, number=1, until_us=9),
        ]
    )
    assert log.places() == {"a0:1": "eu"}
    assert log.spans_regions


@pytest.mark.parametrize("places", [True, False])
def test_what_an_agent_says_of_its_place_is_in_the_log(places: bool) -> None:
    world = world_of(7, 3, places=places)
    world.start_all()
    log = world.agents[0].node.log
    assert {m.place for m in log.members(STREAM)} == ({"eu/r0", "us/r1", "ap/r2"} if places else {""})
    assert world.agents[1].node.overlay.regions.region == ("us" if places else "")


def test_of_many_members_at_once_the_overlay_hears_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_of(7, 3)
    world.start_all()
    node, told = world.agents[0].node, list[Mapping[str, str]]()
    joined = [entry for entry in node.log.after(0) if isinstance(entry, MemberJoined)]
    assert len(joined) == 3
    monkeypatch.setattr(node.overlay, "know_places", told.append)
    node._follow(joined, world.now)
    assert told == [node.log.places()]


@pytest.mark.parametrize("seed", range(2))
def test_units_cross_the_border_and_windows_are_right(seed: int) -> None:
    world = world_of(seed, 9)
    spec, until = begun(world, 30_000, query=united(6, 6), rate_ms=800)
    world.run_until(lambda: one_head_each(world, spec), 20_000)
    world.run(max(0, until - world.now) + 15_000)
    check_all(world, spec, until, 3)
    root = world.by_address[spec.leader].node.job_groups.roots.get(spec.flows[0].uid)
    assert root is not None
    assert root.stragglers.unit == 6
    assert sum(end - start == 6 for start, end in root.covered._wholes) >= 3


def lagging(world: World, spec: JobSpec, behind: list[bool]) -> None:
    """While ``behind`` says so the root does not see what the log says, and all others take its panes for
    parts of units."""
    root = world.by_address[spec.leader]
    take_fresh = root.node.membership.take_fresh
    root.node.membership.take_fresh = lambda: [] if behind else take_fresh()  # type: ignore[method-assign]
    for agent in world.agents:
        agent.node.sender._unit_of = partial(_believed, agent.node.sender._unit_of, behind)


def _believed(unit_of: Callable[[Flow], int], behind: list[bool], flow: Flow) -> int:
    return 6 if behind else unit_of(flow)


@pytest.mark.parametrize("planted", [False, True])
def test_a_version_counts_from_behind_a_commit_of_a_root_that_knows_it(
    planted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if planted:
        plants.versions.counts_from_any_pane_of_a_running_flow(monkeypatch)
    world = world_of(2, 6)
    spec, until = begun(world, 45_000, query=united(6, 6), rate_ms=800)
    world.run_until(lambda: one_head_each(world, spec), 20_000)
    world.run(8_000)
    behind = [True]
    lagging(world, spec, behind)
    there = next(agent for agent in world.agents if agent.address != spec.leader)
    world.client_inbox.clear()
    world.submit(there.index, plan(2, 1), world.name_at("finer", there), client="client:5")
    world.run(10_000)
    (answer,) = world.client_inbox
    assert isinstance(answer, Answer)
    assert ("is created, and begins when" in answer.error) is not planted
    behind.clear()
    world.run(max(0, until - world.now) + 10_000)
    (other,) = [one for one in world.agents[0].node.log.jobs() if one.name.startswith("finer")]
    assert other.flows[0].uid == spec.flows[0].uid
    assert other.leader != spec.leader
    check_all(world, spec, until, 4)
    right = [
        counts == world.truth(other, start) for start, (_, counts, _) in settled(world, other, until).items()
    ]
    assert len(right) > 10
    assert all(right) is not planted


def joining(planned: Callable[[], Plan]) -> tuple[World, JobSpec]:
    """Four seconds behind the beginning of a unit of thirty panes another job over these is created."""
    world = world_of(2, 6)
    spec, _ = begun(world, 200_000, query=united(30, 30), rate_ms=4_000)
    world.run(32_000)
    world.run(-world.now % 30_000 + 4_000)
    there = next(agent for agent in world.agents if agent.address != spec.leader)
    world.client_inbox.clear()
    world.submit(there.index, planned(), world.name_at("other", there), client="client:5")
    return world, spec


def test_who_joins_a_flow_whose_units_fit_waits_for_nobody() -> None:
    world, spec = joining(lambda: united(30, 30))
    world.run_until(lambda: bool(world.client_inbox), 2_000)
    for statement in ("PAUSE JOB job", "RESUME JOB job", "PAUSE JOB job"):
        now = world.now
        assert isinstance(said(world, 1, statement), Reply)
        assert world.now - now < 2_000
    (other,) = [one for one in world.agents[0].node.log.jobs() if one.name.startswith("other")]
    assert other.flows[0].uid == spec.flows[0].uid


def test_who_changes_a_job_that_waits_for_a_unit_hears_when_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_of(2, 3)
    spec, _ = begun(world, 60_000, query=united(10, 10), rate_ms=4_000)
    world.run(12_000)
    assert isinstance(said(world, 1, "PAUSE JOB job"), Reply)
    monkeypatch.setattr("elf.job.group.reading.joined_at", lambda log, spec: (log.last + 1,))
    answer = said(world, 1, "RESUME JOB job")
    assert isinstance(answer, Failed)
    root = world.by_address[spec.leader].node.job_groups.roots.get(spec.flows[0].uid)
    assert root is not None
    at = datetime.fromtimestamp(root.durable_to() // 10 * 10 + 10, UTC)
    assert "version 2 of job job begins when panes that its flow merges" in answer.text
    assert f"end, at {at:%H:%M:%S} UTC or soon after; until then nothing is changed" in answer.text


def test_who_changes_a_job_that_waits_for_a_unit_before_any_pane_hears_no_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = world_of(2, 3)
    begun(world, 60_000, query=united(10, 10), rate_ms=4_000)
    assert isinstance(said(world, 1, "PAUSE JOB job"), Reply)
    monkeypatch.setattr("elf.job.group.reading.joined_at", lambda log, spec: (log.last + 1,))
    waits = Version.waits_for_roots

    def young(version: Version) -> list[Panes]:
        return [Panes(one.flow) for one in waits(version)]

    monkeypatch.setattr(Version, "waits_for_roots", young)
    answer = said(world, 1, "RESUME JOB job")
    assert isinstance(answer, Failed)
    assert "merges for the windows of other jobs end; until then nothing is changed" in answer.text
