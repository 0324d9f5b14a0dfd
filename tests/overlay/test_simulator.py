"""The required experiment: 200 nodes, 1,000 keys, before and after a fifth dies; and the simulator."""

from __future__ import annotations

import random

import pytest

from lab.overlay.simulator import Lookups, Phase, Simulator, constant, plane, simulate
from overlay import Effect, Event, OverlayConfig, OverlayError, Peer, Send
from overlay.messages import Heartbeat
from tests.support.long import cases
from tests.support.worlds import ring

HOPS_MAX = 3
"""Two digits of base 16 tell 200 nodes apart, and one hop more."""


def right(phase: Phase, keys: int) -> bool:
    return phase.lookups == Lookups(total=keys, wrong=0, lost=0, doubled=0) and phase.wrong_leaf_sets == 0


def test_keys_are_routed_before_and_after_a_fifth_of_the_nodes_crash() -> None:
    nodes, keys = cases((100, 300), (200, 1_000))
    report = simulate(nodes, keys, crash_share=0.2, seed_rng=random.Random(2014), rest_ms=10_000)
    joined, repaired = report.phases
    assert (report.joined, report.crashed, repaired.nodes) == (nodes, nodes // 5, nodes * 4 // 5)
    for phase in (joined, repaired):
        assert right(phase, keys), phase
        assert phase.hops.max <= HOPS_MAX, phase
        assert sum(phase.hops.histogram) == keys
    assert joined.hops.mean < 2.0
    assert repaired.settled_seconds < 8
    assert report.maintenance.messages_per_s < 6


@pytest.mark.parametrize("size", [1, 2, 17, 18, 19])
def test_small_rings(size: int) -> None:
    """Around the size of a leaf set, where everybody just so knows everybody."""
    report = simulate(size, 50, 0.0, random.Random(size), rest_ms=2_000, check=True)
    assert report.joined == size
    assert right(report.phases[0], 50)


def test_under_loss() -> None:
    report = simulate(40, 100, 0.25, random.Random(3), loss=0.03, rest_ms=10_000, check=True)
    assert report.joined == 40
    assert all(phase.lookups == Lookups(100, 0, 0, 0) for phase in report.phases), report


@pytest.mark.parametrize("bits", [1, 2, 8])
def test_other_digits(bits: int) -> None:
    config = OverlayConfig(base_bits=bits, leaf_set_size=8)
    report = simulate(40, 100, 0.0, random.Random(4), config=config, rest_ms=5_000, check=True)
    assert right(report.phases[0], 100)


def test_equal_seeds_make_equal_reports() -> None:
    one, same, other = (simulate(12, 20, 0.25, random.Random(seed), rest_ms=2_000) for seed in (5, 5, 6))
    assert one == same
    assert one.fingerprint != other.fingerprint


def test_what_happens_is_pinned() -> None:
    """Every event of a history, in any process: who changes what nodes say or when, on purpose, changes this
    too; nobody else does."""
    report = simulate(12, 20, 0.25, random.Random(5), jobs=2, loss=0.01, rest_ms=2_000)
    assert report.fingerprint == "7d76ae2bca9380b8"


@pytest.mark.parametrize(("nodes", "keys", "share"), [(0, 1, 0.1), (1, -1, 0.1), (1, 1, 1.0), (1, 1, -0.1)])
def test_worlds_that_cannot_be(nodes: int, keys: int, share: float) -> None:
    with pytest.raises(ValueError, match="at least one node"):
        simulate(nodes, keys, share, random.Random(1))


def test_running_out_of_time_is_said() -> None:
    world = Simulator(random.Random(1))
    world.add("a", ["nobody"])
    assert not world.run_until(world.all_ready, 300)
    assert world.now == 300


def test_a_running_address_cannot_be_started_again() -> None:
    world = ring(2)
    with pytest.raises(OverlayError, match="is running"):
        world.add("n1")


def count_heartbeats(world: Simulator, times: int) -> int:
    """How many of so many messages from n0 reach n1."""
    arrived = 0
    node = world.nodes["n1"].overlay
    original = node.handle

    def handle(event: Event, now_ms: int) -> list[Effect]:
        nonlocal arrived
        arrived += "Probe-of-the-test" in repr(event)
        return original(event, now_ms)

    node.handle = handle  # type: ignore[method-assign]
    for _ in range(times):
        world.perform("n0", [Send("n1", Heartbeat(Peer("Probe-of-the-test", 1), 1, 1, 0))])
    world.run(100)
    return arrived


def test_the_network_loses_doubles_and_cuts_as_told() -> None:
    world = ring(2)
    assert count_heartbeats(world, 1_000) == 1_000
    world.loss = 0.2
    assert 700 < count_heartbeats(ring_with(world.loss, 0.0), 1_000) < 900
    assert 1_200 < count_heartbeats(ring_with(0.0, 0.3), 1_000) < 1_400
    cut = ring(2)
    cut.partition(["n0"], ["n1"])
    assert count_heartbeats(cut, 100) == 0
    cut.heal()
    assert count_heartbeats(cut, 100) == 100


def ring_with(loss: float, doubling: float) -> Simulator:
    world = ring(2)
    world.loss, world.doubling = loss, doubling
    return world


def test_latencies() -> None:
    rng = random.Random(1)
    assert constant(7)("a", "b", rng) == 7
    there, back = plane(100)("a", "b", rng), plane(100)("b", "a", rng)
    assert abs(there - back) <= max(there, back) * 0.1 + 1
    assert 1 <= there <= 160
    assert plane(100)("a", "a", rng) == 1
