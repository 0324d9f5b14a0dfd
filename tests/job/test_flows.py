"""Flows apart from jobs: shared ones, read from other nodes, over several streams; exact through it all."""

from __future__ import annotations

import os

import pytest

from agents.codec import Message
from elf.fields import replace
from elf.job.catalog.admission import grow
from elf.job.catalog.log import CatalogLog
from elf.job.catalog.readers import not_taken, readable_as
from elf.job.messages.log import AddJob, AddVersion, JobAdded, JobDropped, VersionAdded, VersionEnded
from elf.job.messages.rollup import PaneRow
from elf.job.rollup.decide import RootSettings
from elf.job.spec import Flow, flow_uid
from elf.wire.base import Answer
from lab.chaos.agent import SimAgent
from lab.chaos.engine import SECOND, STREAM, plan, planned, spec_of
from lab.chaos.world import World
from tests.support.histories import begun, check_all, settled
from tests.support.stories import another, both, crashes_loss_and_doubles_below_readers

SEEDS = range(int(os.environ.get("ELF_TEST_SEEDS", "1")))
"""Of random histories. More: ``ELF_TEST_SEEDS=50 pytest tests/job/test_flows.py -k reader_wrong``."""


def computed(world: World) -> set[int]:
    """How many flows each agent computes."""
    return {len(agent.worker.flows()) for agent in world.agents if agent.up}


def test_two_jobs_share_a_flow_from_different_nodes_and_one_is_dropped() -> None:
    world = World(21, 5)
    first, until = begun(world, 20_000)
    world.run(4_000)
    second = another(world, first, least=2)
    world.run(4_000)
    assert computed(world) == {1}
    assert not settled(world, first, until).keys() <= settled(world, second, until).keys()
    seen = settled(world, first, world.now)
    world.drop(first)
    world.run(14_000)
    check_all(world, second, until, least=4)
    assert len(seen) >= 2
    assert computed(world) == {1}
    world.drop(second)
    world.run(14_000)
    assert computed(world) == {0}, "nobody reads the flow any more"
    for agent in world.agents:
        assert agent.store.flows() == {}
        assert not agent.node.sender.flows()
        assert not any(tree.topic == first.flows[0].topic for tree in agent.node.overlay._scribe.links)


def test_longer_windows_on_the_panes_of_another_job_outlive_it() -> None:
    """Windows of 6 s of panes of 2 s (``elf.windows.sharing``), from another node."""
    world = World(27, 5)
    first, until = begun(world, 30_000, query=plan(2))
    world.run(4_000)
    longer = replace(plan(6), fragment=plan(2).fragment)
    others = (world.create(n % 5, longer, f"longer{n}") for n in range(20))
    second = next(other for other in others if other.leader != first.leader)
    assert second.flows == first.flows
    world.run(4_000)
    assert computed(world) == {1}
    world.drop(first)
    world.run(30_000)
    check_all(world, second, until, least=3)
    assert computed(world) == {1}, "it goes on with the panes that it began with"


def test_twenty_jobs_of_two_fragments_are_two_flows_on_every_agent() -> None:
    """Ten of each are submitted at once, through all agents: the log lets one flow of each begin."""
    world = World(22, 4, checking=False)
    world.start_all()
    for n in range(20):
        world.submit(n % 4, plan(2, where="ab"[n % 2], least=n), f"job{n}")
    specs = [world.active(f"job{n}") for n in range(20)]
    assert computed(world) == {2}
    assert {agent.node.flows for agent in world.agents} == {2}
    assert len({flow.uid for spec in specs for flow in spec.flows}) == 2
    assert len({spec.leader for spec in specs}) > 1
    uid = specs[0].flows[0].uid
    facts = world.by_address[specs[0].flows[0].leader].node.job_groups.roots.facts(uid)
    assert facts is not None
    assert {reader.name for reader in facts.readers} == {f"job{n}" for n in range(0, 20, 2)}


def test_a_flow_ends_after_a_grace_in_which_another_job_may_take_it_up() -> None:
    world = World(23, 4)
    first, until = begun(world, 32_000)
    world.drop(first)
    world.run(3_000)
    second = world.create(2, plan(2), "again")
    assert second.flows == first.flows
    world.run(2_000)
    world.drop(second)
    world.run(14_000)
    third = world.create(2, plan(2), "later")
    assert third.flows != first.flows, "nothing is attached to a flow that has ended"
    world.run(20_000)
    check_all(world, third, until, least=3)


def test_the_root_of_a_shared_flow_is_away_for_a_while() -> None:
    world = World(24, 4)
    world.group_members = 1
    first, until = begun(world, 24_000, rate_ms=400)
    world.run(2_000)
    second = another(world, first)
    world.run(4_000)
    root = world.by_address[first.flows[0].leader]
    root.crash()
    names = [f"meanwhile{n}" for n in range(3)]
    for name in names:
        world.submit(world.agents.index(world.leader(second)), plan(2), name, "client:1")
    world.run(9_000)
    assert world.leader(second).up
    answers = [answer.error for answer in world.client_inbox if isinstance(answer, Answer)]
    assert any(f"shares, {root.address}, does not answer" in error for error in answers), answers
    world.restart(root)
    world.run(24_000)
    assert all(world.active(name).flows == first.flows for name in names)
    check_all(world, first, until, least=8)
    check_all(world, second, until, least=6)


def test_a_reader_on_another_node_is_away_for_a_while() -> None:
    world = World(25, 4)
    first, until = begun(world, 24_000, rate_ms=400)
    world.run(2_000)
    second = another(world, first)
    world.run(4_000)
    reader = world.leader(second)
    reader.crash()
    world.run(7_000)
    world.restart(reader)
    world.run(24_000)
    check_all(world, first, until, least=8)
    check_all(world, second, until, least=6)
    copied = {(c.start, c.end, c.revision) for c in reader.store.committed(first.flows[0].uid)}
    made = {(c.start, c.end, c.revision) for c in world.leader(first).store.committed(first.flows[0].uid)}
    assert copied <= made


def test_a_reader_that_falls_silent_is_waited_for_no_more_and_its_windows_are_skipped() -> None:
    world = World(26, 3, checking=False)
    world.group_members = 1
    world.root_settings = RootSettings(revise_ms=5_000, reader_ms=10_000)
    first, _ = begun(world, 400_000, rate_ms=2_000)
    second = another(world, first)
    world.run(6_000)
    reader = world.leader(second)
    reader.crash()
    gone = world.now
    world.run(190_000)
    kept = world.leader(first).store.committed(first.flows[0].uid)
    assert kept[0].start > gone // 2_000, "panes are not kept for ever"
    world.restart(reader)
    world.run(15_000)
    windows = settled(world, second, world.now - 6_000)
    skipped = [start for start, (_, _, status) in windows.items() if status["skipped"]]
    assert skipped, "what was dropped is told"
    assert gone * 1000 - 60 * SECOND < min(skipped) < max(skipped) < world.now * 1000 - 20 * SECOND
    for start, (_, counts, status) in windows.items():
        if status["skipped"]:
            assert (counts, status["reported"]) == ({}, 0)
        else:
            assert counts == world.truth(second, start, status["missing"]), (start, status)
    assert sorted(windows) == list(range(min(windows), max(windows) + 1, 2 * SECOND)), "no window is left out"
    assert not any(status["skipped"] for _, _, status in settled(world, first, world.now - 6_000).values())


@pytest.mark.parametrize("seed", [4, 6, 11])
def test_a_commit_that_gets_lost_on_its_way_to_a_reader_is_sent_again_while_others_come(seed: int) -> None:
    """A pane a second, whenever in it the reader asks: what it lacks is not taken for being under way each
    time."""
    world = World(60 + seed, 5)
    spec, _ = begun(world, 30_000, query=plan(1))
    world.run(5_000)
    reader = world.leader(another(world, spec, query=plan(2, 1)))
    world.run(3_000)
    (flow,) = spec.flows
    mirror = reader.node.job_groups.mirrors.get(flow.uid)
    assert mirror is not None
    send, lost = world.send, list[int]()

    def lossy(agent: SimAgent, to: str, message: Message) -> None:
        if not lost and isinstance(message, PaneRow) and to == reader.address:
            lost.append(message.end)
            return
        send(agent, to, message)

    world.send = lossy  # type: ignore[method-assign]
    world.run(5_000)
    (end,) = lost
    assert mirror.durable_to() > end + 1


def test_a_job_over_two_streams_counts_an_agent_once() -> None:
    world = both(5, 27)
    spec, until = begun(world, 14_000, query=plan(4, 2, streams=(STREAM, "buys")), rate_ms=400)
    assert [flow.fragment.stream for flow in spec.flows] == [STREAM, "buys"]
    world.run(18_000)
    check_all(world, spec, until, least=3)
    for _, _, status in settled(world, spec, until).values():
        assert (status["expected"], status["reported"], status["skipped"]) == (5, 5, False)
    assert all(revision == 0 for revision, _, _ in world.committed(spec).values())
    alone = world.create(1, plan(2, streams=("buys",)), "alone")
    assert alone.flows == spec.flows[1:]


def test_a_job_over_two_flows_of_others_on_other_nodes() -> None:
    """Its flows have two roots, neither is its job group; an agent with both streams goes and comes back."""
    world = both(5, 28)
    first, until = begun(world, 24_000, rate_ms=400)
    second = world.create(4, plan(2, streams=("buys",)), "second")
    third = world.create(2, plan(2, streams=(STREAM, "buys")), "third0")
    for n in range(1, 20):
        if third.leader not in (first.leader, second.leader):
            break
        world.drop(third)
        third = world.create(2, plan(2, streams=(STREAM, "buys")), f"third{n}")
    assert third.flows == (*first.flows, *second.flows)
    world.run(3_000)
    job_groups = {first.leader, second.leader, third.leader, world.agents[0].address}
    victim = next(a for a in world.agents if len(a.streams) == 2 and a.address not in job_groups)
    victim.crash()
    world.run(9_000)
    without = [status for _, _, status in world.committed(third).values() if status["missing"]]
    assert without
    assert all(status["missing"] == [f"a{victim.index}"] for status in without)
    assert {(status["expected"], status["reported"]) for status in without} == {(5, 4)}
    world.restart(victim)
    world.run(24_000)
    for spec in (first, second, third):
        check_all(world, spec, until, least=7)


def test_a_window_is_not_made_of_panes_that_are_gone_while_it_is_made() -> None:
    """As when the copy moves to another job group's rows, or an agent is put out of the group whose panes it
    reads."""
    world = World(30, 4)
    first, until = begun(world, 14_000, rate_ms=400)
    second = another(world, first)
    reader = world.leader(second)
    mirror = reader.node.job_groups.mirrors.get(first.flows[0].uid)
    (master,) = (m for m in reader.node.job_groups.jobs() if m.spec.uid == second.uid)
    assert mirror is not None
    world.run(5_000)
    world.run_until(lambda: bool(mirror.segments()))
    while master.current._in_flight is None:
        world.run(1)
    reader.store.prune_panes(mirror.stored_as, None)
    mirror.begin_again("another.copy1", mirror.first_pane)
    world.run(until - world.now + 6_000)
    check_all(world, second, until, least=3)


@pytest.mark.parametrize("seed", SEEDS)
def test_crashes_loss_and_doubles_never_make_a_window_of_a_reader_wrong(seed: int) -> None:
    crashes_loss_and_doubles_below_readers(seed)


def test_a_job_whose_creation_comes_after_the_end_of_what_it_reads_never_begins() -> None:
    """Two statements at once, through two agents: the log has one before the other."""
    query = plan(4, 2)
    (fragment,) = query.fragments
    old = spec_of("old", "me", 1, query, (Flow(flow_uid(fragment, ""), fragment, bytes(16), "a:1"),))
    reader = planned(replace(old, name="reader"), replace(old.plan, reads=(old.uid,)))
    log = CatalogLog([JobAdded(seq=1, spec=old)])
    (added,) = grow(log, AddJob(spec=reader))
    assert isinstance(added, JobAdded)
    assert log.read_by(old.uid) == ("reader",)
    log = CatalogLog([JobAdded(seq=1, spec=old), JobDropped(seq=2, uid=old.uid)])
    assert grow(log, AddJob(spec=reader)) == (JobDropped(seq=3, uid=reader.uid),)
    assert grow(log, AddJob(spec=reader)) == ()
    assert log.jobs() == ()


def test_who_reads_a_job_and_who_changes_it_come_one_after_the_other() -> None:
    """Three statements at once, through three agents: what comes later in the log is not taken."""
    query = plan(4, 2)
    (fragment,) = query.fragments
    flows = (Flow(flow_uid(fragment, ""), fragment, bytes(16), "a:1"),)
    job = spec_of("job", "me", 1, query, flows)
    other = planned(replace(job, version=2), replace(query, sql="SELECT 2"))
    resumed = replace(job, version=2)
    over_it = replace(query, reads=(job.uid,), read_as=(query.identity,))
    reader = planned(replace(job, name="reader"), over_it)
    created = JobAdded(seq=1, spec=job)

    log = CatalogLog([created])
    grow(log, AddJob(spec=reader))
    assert (
        not_taken(log, other)
        == "job job is read by reader (FROM JOB), so it stays as it is; drop what reads it first"
    )
    assert grow(log, AddVersion(spec=other)) == (VersionEnded(seq=3, uid=job.uid, version=2),)
    assert log.job(job.uid) == job
    assert grow(log, AddVersion(spec=other)) == (), "nor when it is asked for again"
    (added,) = grow(log, AddVersion(spec=replace(resumed, version=3)))
    assert isinstance(added, VersionAdded), "what makes the same rows may be read meanwhile"

    log = CatalogLog([created, VersionAdded(seq=2, spec=other)])
    assert readable_as(log, job.uid) is None, "either query may be the job's"
    assert not_taken(log, reader) == "job job, which it reads, has been changed meanwhile; try again"
    assert grow(log, AddJob(spec=reader)) == (JobDropped(seq=3, uid=reader.uid),)
    log = CatalogLog([created, VersionAdded(seq=2, spec=other), VersionEnded(seq=3, uid=job.uid, version=2)])
    assert readable_as(log, job.uid) == query.identity, "it was given up"
    assert isinstance(grow(log, AddJob(spec=reader))[0], JobAdded)
    begun = VersionEnded(seq=3, uid=job.uid, version=1)
    log = CatalogLog([created, VersionAdded(seq=2, spec=other), begun])
    assert grow(log, AddJob(spec=reader)) == (JobDropped(seq=4, uid=reader.uid),)
    paused = CatalogLog([created, VersionEnded(seq=2, uid=job.uid, version=1)])
    assert isinstance(grow(paused, AddJob(spec=reader))[0], JobAdded), "its query is what it was"
