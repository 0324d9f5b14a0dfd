"""Whole fleets on virtual time: windows are right in peace, and stay right when agents, roots and messages
are lost.
"""

from __future__ import annotations

import os

import pytest

from elf.job.events import Arrived
from elf.job.rollup.decide import RootSettings
from elf.job.spec import stream_topic
from lab.chaos.engine import SECOND, STREAM, plan
from lab.chaos.world import World
from tests.support.histories import begun, check_all, settled
from tests.support.stories import crashes_loss_and_doubles, snapshots_lost_for_long

SEEDS = range(int(os.environ.get("ELF_TEST_SEEDS", "1")))
"""Of random histories; ``tests/chaos`` has more."""


@pytest.mark.parametrize(("size", "slide"), [(2, 2), (4, 1), (3, 2)])
def test_in_peace_every_window_is_exact_and_final_at_once(size: int, slide: int) -> None:
    world = World(1, 5)
    spec, until = begun(world, 15_000, through=3, query=plan(size, slide))
    world.run(25_000)
    check_all(world, spec, until, least=4)
    assert all(revision == 0 for revision, _, _ in world.committed(spec).values())
    assert sum(a.node.sender.retained() for a in world.agents) <= len(world.agents)


def test_an_agent_that_is_no_root_dies_and_comes_back_with_its_rows_as_revisions() -> None:
    world = World(2, 5)
    spec, until = begun(world, 40_000)
    world.run(8_000)
    victim = next(a for a in world.agents if a.address not in (spec.flows[0].leader, world.agents[0].address))
    died = world.now
    victim.crash()
    before = set(world.committed(spec))
    world.run_until(lambda: bool(set(world.committed(spec)) - before), 4_000)  # nobody waits for the dead
    world.run(died + 12_000 - world.now)
    assert max(world.committed(spec)) >= (died + 12_000 - 2 * 2_000 - 2_500) * 1000
    during = [
        w for s, w in world.committed(spec).items() if died * 1000 + 2 * SECOND < s < (died + 6_000) * 1000
    ]
    assert during
    for _, _, status in during:
        assert status["missing"] == [f"a{victim.index}"]
        assert status["reported"] == 4
    world.restart(victim)
    world.run(40_000)
    check_all(world, spec, until, least=12)
    assert any(revision > 0 for revision, _, _ in world.committed(spec).values())


def test_snapshots_that_were_lost_for_long_come_as_revisions() -> None:
    snapshots_lost_for_long()


def test_the_root_dies_and_comes_back_and_nothing_is_lost_or_twice() -> None:
    world = World(3, 5)
    world.group_members = 1  # as in a fleet of one or two agents
    spec, until = begun(world, 30_000, through=2)
    world.run(7_000)
    root = world.leader(spec)
    before = len(world.committed(spec))
    root.crash()
    world.run(9_000)
    assert len(world.committed(spec)) == before
    world.restart(root)
    world.run(40_000)
    check_all(world, spec, until, least=10)


def test_an_agent_leaves_and_is_expected_no_more() -> None:
    world = World(4, 4)
    spec, until = begun(world, 30_000)
    world.run(6_000)
    goes = next(a for a in world.agents if a.address not in (spec.flows[0].leader, world.agents[0].address))
    goes.perform(goes.node.leave(world.now))
    world.run_until(lambda: bool(goes.ended), 30_000)
    goes.log.rows = goes.log.rows[: goes.tasks[STREAM].position]
    assert goes.ended == "left the cluster"
    world.run(30_000)
    windows = world.committed(spec)
    check_all(world, spec, until, least=8)
    last = windows[max(settled(world, spec, until))]
    assert last[2]["expected"] == 3


def test_an_agent_that_joins_later_is_counted_from_then_on() -> None:
    world = World(5, 4)
    late = world.agents.pop()
    spec, until = begun(world, 30_000)
    world.run(6_000)
    world.agents.append(late)
    world.write(late, until)
    late.start([world.agents[1].address])
    world.run(40_000)
    check_all(world, spec, until, least=8)
    last = world.committed(spec)[max(settled(world, spec, until))]
    assert last[2]["expected"] == 4


def test_everybody_dies_at_once_and_comes_back() -> None:
    world = World(9, 4)
    spec, until = begun(world, 30_000)
    world.run(6_000)
    for agent in world.agents:
        agent.crash()
    world.run(5_000)
    for agent in reversed(world.agents):
        agent.start([])
        world.run(700)
    world.run(50_000)
    check_all(world, spec, until, least=12)


def test_what_nobody_can_want_any_more_is_forgotten() -> None:
    world = World(7, 3, checking=False)
    world.root_settings = RootSettings(revise_ms=20_000)
    spec, until = begun(world, 240_000, through=1, rate_ms=1_000)
    world.run(230_000)
    leader = world.leader(spec)
    kept = leader.store.committed(spec.flows[0].uid)
    assert 0 < len(kept) < 90
    assert kept[0].start > 1_000_000 // 2_000
    leader.crash()
    world.restart(leader)
    world.run(40_000)
    check_all(world, spec, until, least=100)


def test_a_flow_whose_root_is_away_for_long_sheds_rows_and_says_so() -> None:
    world = World(6, 4)
    world.group_members = 1
    world.retained_bytes_max = 12_000
    spec, until = begun(world, 60_000)
    world.run(6_000)
    root = world.leader(spec)
    root.crash()
    world.run(30_000)
    others = [a for a in world.agents if a is not root]
    assert any(a.worker.suspended() for a in others)
    held = [
        sum(len(s.payload) + len(s.counters) for s in a.store.snapshots(spec.flows[0].uid)) for a in others
    ]
    assert max(held) < 20_000
    world.restart(root)
    world.run(50_000)
    assert not any(a.worker.suspended() for a in world.agents)
    windows = settled(world, spec, until)
    for start, (_, counts, status) in windows.items():
        assert counts == world.truth(spec, start, status["missing"]), (start, status)
    assert sum(status["shed"] for _, _, status in windows.values()) > 0
    assert any(status["missing"] for _, _, status in windows.values())
    assert not windows[max(windows)][2]["missing"]


@pytest.mark.parametrize("seed", range(1))
def test_crashes_loss_and_doubles_never_make_a_window_wrong(seed: int) -> None:
    crashes_loss_and_doubles(seed)


def test_a_member_that_missed_the_word_of_a_job_has_it_from_the_tree() -> None:
    """Its asking of the voters is put off for good, so only the repaired multicast can tell it."""
    world = World(5, 6)
    world.start_all()
    world.run_until(lambda: sum(agent.node.catalog.keeps for agent in world.agents) == 5)
    (deaf,) = (agent for agent in world.agents if not agent.node.catalog.keeps)
    assert deaf.node.overlay.parent(stream_topic(STREAM)) is not None
    world.run(500)
    deaf.node.membership._next_ms = 1 << 60
    world.isolated = {deaf.address}
    spec = world.create(next(agent.index for agent in world.agents if agent is not deaf), plan(2))
    world.run(200)
    assert deaf.node.log.job(spec.uid) is None
    world.isolated = set()
    world.run(1_500)
    assert deaf.node.log.job(spec.uid) is not None
    assert deaf.node.membership._next_ms == 1 << 60


def test_a_flow_whose_end_an_agent_hears_of_before_it_is_on_the_ring_again_leaves_its_lane() -> None:
    world = World(9, 7)
    spec, _ = begun(world, 6_000)
    world.run(6_000)
    away = next(a for a in world.agents if a.address != spec.leader and not a.node.catalog.keeps)
    (flow,) = away.worker.flows()
    away.crash()
    world.drop(spec)
    other = next(a for a in world.agents if a.up)
    world.run_until(lambda: not other.node.log.flows())
    away.start([other.address])
    assert away.worker.flows() == (flow,), "as its last cut has it"
    membership = other.node.catalog.membership
    assert membership.cluster is not None
    word = membership.tail(membership.cluster, 0, other.node.log.after(0))
    away.handle(Arrived(other.address, word))
    assert not away.node.ready
    world.run_until(lambda: away.node.ready)
    world.run(100)
    assert away.worker.flows() == ()
