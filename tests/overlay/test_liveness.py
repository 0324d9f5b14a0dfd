"""Who lives: crashes, stalls, departures, restarts, partitions."""

from __future__ import annotations

import random

import pytest

from lab.overlay.oracles import wrong_leaf_sets
from lab.overlay.world import Simulator, plane
from overlay import Overlay, OverlayConfig, Peer, PeerDown, PeerUp, Received, Send, Tick
from overlay.messages import NO_STAMP, Heartbeat, Ping, Pong
from tests.support.worlds import downs, names, ring, ring_rests, ups


def beat(sender: Peer) -> Heartbeat:
    return Heartbeat(sender, 1, NO_STAMP, 0)


@pytest.mark.parametrize("count", [2, 3, 8, 30])
def test_a_crash_is_found_by_its_neighbours_in_three_seconds_and_told(count: int) -> None:
    world = ring(count, latency=plane(10))
    knew = [name for name in names(world) if ups(world, name, "n1") and name != "n1"]
    world.crash("n1")
    world.run(2_000)
    assert not any(downs(world, name, "n1") for name in knew)
    assert world.run_until(lambda: any(downs(world, name, "n1") for name in knew), 1_500)
    assert ring_rests(world, 2_000)
    assert all(downs(world, n, "n1") == [(1, "crashed")] for n in knew if count <= 8)


@pytest.mark.parametrize("seed", range(3))
def test_a_stall_of_two_seconds_is_no_death(seed: int) -> None:
    world = ring(8, seed=seed, latency=plane(10))
    world.stall("n3", 2_000)
    world.run(8_000)
    assert not any(downs(world, name, "n3") for name in names(world))
    assert not any(downs(world, "n3", name) for name in names(world))


def test_who_slept_long_does_not_bury_the_others() -> None:
    """The sleeper is buried and comes back by itself; its old questions prove nothing against the others."""
    world = ring(8)
    world.stall("n3", 10_000)
    world.run(9_900)
    assert downs(world, "n0", "n3") == [(1, "crashed")]
    world.run(8_000)
    assert not any(downs(world, "n3", name) for name in names(world))
    assert ups(world, "n0", "n3") == [1, 1]
    assert ring_rests(world, 100)


def test_one_that_leaves_is_dropped_at_once() -> None:
    world = ring(8)
    world.leave("n5")
    world.run(10)
    assert all(downs(world, name, "n5") == [(1, "left")] for name in names(world))
    assert ring_rests(world, 0)


def test_a_restart_replaces_the_old_one_at_once() -> None:
    world = ring(8)
    world.crash("n5")
    world.add("n5", ["n0"])
    assert world.run_until(world.all_ready, 200)
    assert ring_rests(world, 100)
    for name in names(world):
        if name != "n5":
            assert downs(world, name, "n5") == [(1, "crashed")]
            assert ups(world, name, "n5") == [1, 2]


def test_a_lower_incarnation_is_ignored() -> None:
    overlay = Overlay(Peer("me", 1), OverlayConfig(), random.Random(1))
    overlay.start([], 0)
    new, old = Peer("other", 5), Peer("other", 4)
    assert PeerUp(new) in overlay.handle(Received(beat(new)), 1)
    assert overlay.handle(Received(Ping(old, 1)), 2) == []
    assert Send("other", Pong(Peer("me", 1), 7, False, "")) in overlay.handle(Received(Ping(new, 7)), 3)
    later = overlay.handle(Received(beat(Peer("other", 6))), 4)
    assert [e for e in later if not isinstance(e, Send)] == [
        PeerDown(new, "crashed"),
        PeerUp(Peer("other", 6)),
    ]


def test_halves_of_a_partition_become_one_ring_again() -> None:
    world = ring(16, latency=plane(10))
    left, right = names(world)[:8], names(world)[8:]
    world.partition(left, right)
    world.run(60_000)
    assert {peer.address for peer in world.nodes["n0"].overlay.peers()} == set(left) - {"n0"}
    world.heal()
    assert ring_rests(world, 10_000)


def test_a_ring_that_is_no_clique_in_halves_for_a_minute_is_one_in_seconds() -> None:
    """64 nodes with leaf sets of 8 know a part of each other only (``elf sim overlay --partition``: more)."""
    config = OverlayConfig(base_bits=2, leaf_set_size=8)
    world = Simulator(random.Random(3), config, plane(10))
    world.add("n0")
    for number in range(1, 64):
        world.add(f"n{number}", [f"n{number // 2}"])
        world.run(20)
    assert ring_rests(world, 20_000, 8)
    everybody = names(world)
    world.partition(everybody[:32], everybody[32:])
    world.run(60_000)
    known = [{peer.address for peer in overlay.peers()} for overlay in world.running()]
    assert all(some <= set(everybody[:32]) or some <= set(everybody[32:]) for some in known)
    assert min(map(len, known)) < 31
    world.heal()
    assert ring_rests(world, 5_000, 8)


def test_a_founder_that_restarts_alone_finds_back() -> None:
    world = ring(8)
    world.crash("n0")
    world.run(5_000)
    world.add("n0")  # as the first time: without contacts
    assert world.nodes["n0"].overlay.ready
    assert ring_rests(world, 4_000)


def test_alone_a_node_goes_on_calling_its_contacts() -> None:
    world = ring(2)
    world.partition(["n0"], ["n1"])
    world.run(OverlayConfig().dead_forget_ms + 10_000)
    world.heal()
    assert ring_rests(world, 12_000)


def test_half_of_a_ring_dies_at_once() -> None:
    world = ring(40, latency=plane(10), seed=4)
    for number in range(0, 40, 2):
        world.crash(f"n{number}")
    assert ring_rests(world, 12_000)


@pytest.mark.parametrize("count", [1, 2, 8, 40])
def test_upkeep_is_a_few_messages_a_second(count: int) -> None:
    world = ring(count, latency=plane(10))
    world.run(20_000)
    before = sum(world.messages.values())
    world.run(20_000)
    assert (sum(world.messages.values()) - before) / count / 20 < 6


def test_the_dead_are_forgotten_in_the_end() -> None:
    config = OverlayConfig(dead_forget_ms=20_000)
    world = ring(3, config=config)
    world.crash("n1")
    world.run(10_000)
    pings = world.messages["Ping"]
    assert pings > 0
    world.run(20_000)
    settled = world.messages["Ping"]
    world.run(20_000)
    assert world.messages["Ping"] == settled


def test_deadlines_come_one_by_one() -> None:
    """A node asks for time rarely: not more than its periods."""
    overlay = Overlay(Peer("me", 1), OverlayConfig(), random.Random(1))
    overlay.start([], 0)
    ticks = 0
    while (due := overlay.deadline()) is not None and due < 60_000:
        overlay.handle(Tick(), due)
        ticks += 1
    assert 20 < ticks < 300


def test_a_world_without_nodes_is_at_rest() -> None:
    world = Simulator(random.Random(1))
    world.run(1_000)
    assert world.all_ready()


def test_halves_that_have_forgotten_each_other_become_one_ring_where_somebody_keeps_a_list() -> None:
    """As the members of a catalog log: each node is told of all again and again, and calls its own leaves."""
    config = OverlayConfig(base_bits=2, leaf_set_size=8, dead_forget_ms=20_000)
    world = ring(64, seed=3, config=config, latency=plane(10))
    everybody = names(world)
    world.partition(everybody[:32], everybody[32:])
    world.run(60_000)
    world.heal()
    world.run(30_000)
    assert wrong_leaf_sets(world, 8)
    for _ in range(3):
        for name in everybody:
            called = world.messages["Ping"]
            world.perform(name, world.nodes[name].overlay.seek(everybody, world.now))
            assert world.messages["Ping"] <= called + 1
        world.run(3_000)
    assert not wrong_leaf_sets(world, 8)
    quiet = world.messages["Ping"]
    for name in everybody:
        world.perform(name, world.nodes[name].overlay.seek(everybody, world.now))
    assert world.messages["Ping"] == quiet
