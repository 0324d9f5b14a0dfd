"""Suspicion: what is dead is found in three seconds, and nothing else: not the slow, not the badly heard."""

from __future__ import annotations

import random

import pytest

from lab.overlay.world import Simulator, plane
from overlay import Overlay, OverlayConfig, Peer, PeerDown, Received, Send
from overlay.context import Context
from overlay.health import Health
from overlay.messages import NO_STAMP, Heartbeat, Ping, ProbeReport, ProbeRequest
from tests.support.worlds import downs, names, ring, ring_rests

FOUND_MS = 3_000
A_LITTLE_MS = 100
REPAIRED_MS = 2_500
STALL_MS = 2_000
FAST = OverlayConfig(heartbeat_ms=300, suspect_ms=450, probe_ms=120, tree_refresh_ms=300, child_ttl_ms=1_500)


def all_downs(world: Simulator) -> list[tuple[str, str]]:
    """Who has seen whom die."""
    return [
        (name, effect.peer.address)
        for name, node in world.nodes.items()
        for effect in node.effects
        if isinstance(effect, PeerDown)
    ]


def detections(world: Simulator, victims: list[str]) -> list[int]:
    """Crash one after the other; the times until the first node sees it. A little later all leaf sets are
    repaired."""
    found = []
    for victim in victims:
        world.run(world.rng.randrange(1_500))
        knew = [name for name in names(world) if name != victim]
        start = world.now
        world.crash(victim)
        assert world.run_until(lambda v=victim, k=knew: any(downs(world, n, v) for n in k), 6_000, 20)  # type: ignore[misc]
        found.append(world.now - start)
        assert ring_rests(world, REPAIRED_MS)
    return sorted(found)


def test_a_crash_is_found_in_three_seconds() -> None:
    world = ring(50, latency=plane(10), seed=9)
    found = detections(world, [f"n{number}" for number in range(1, 13)])
    assert found[0] > STALL_MS
    assert found[-1] <= FOUND_MS + A_LITTLE_MS, found


def test_under_loss_too() -> None:
    world = ring(50, latency=plane(10), seed=10)
    world.loss = 0.01
    found = detections(world, [f"n{number}" for number in range(1, 16)])
    assert found[-2] <= FOUND_MS + A_LITTLE_MS, found


def test_a_ring_in_a_hurry_finds_it_in_one() -> None:
    world = ring(30, latency=plane(5), config=FAST, seed=3)
    found = detections(world, [f"n{number}" for number in range(1, 11)])
    assert found[-1] <= 1_000, found


@pytest.mark.parametrize("seed", range(3))
def test_many_stall_at_once_and_nobody_dies(seed: int) -> None:
    """All of them at the same moment, then half of them at any moments, while keys are looked up."""
    world = ring(30, latency=plane(10), seed=seed)
    for name in names(world):
        world.stall(name, STALL_MS)
    world.run(6_000)
    for name in names(world)[::2]:
        world.run(world.rng.randrange(200))
        world.stall(name, STALL_MS)
        source = world.nodes["n1"].overlay
        world.perform("n1", source.route(Peer(name, 1).id.to_bytes(16, "big"), b"", world.now))
    world.run(8_000)
    assert all_downs(world) == []
    assert len(world.deliveries) == 15


def neighbours(world: Simulator) -> tuple[str, str]:
    """Two ring neighbours."""
    return "n0", world.nodes["n0"].overlay.leaf_set()[0].address


@pytest.mark.parametrize("both_ways", [False, True])
def test_a_broken_way_between_two_is_no_death(both_ways: bool) -> None:
    """The one that hears nothing asks others, who hear well."""
    world = ring(12, latency=plane(10))
    one, two = neighbours(world)
    world.cut(one, two)
    if both_ways:
        world.cut(two, one)
    world.run(60_000)
    assert all_downs(world) == []
    assert world.messages["ProbeReport"] > 0


def test_who_is_asked_to_probe_says_what_it_hears() -> None:
    overlay, asker, target = node(), Peer("asker", 1), Peer("target", 1)
    asked = overlay.handle(Received(ProbeRequest(asker, target)), 1_000)
    assert Send("target", Ping(overlay.me, 1_000)) in asked
    heard = overlay.handle(Received(Heartbeat(target, 5, NO_STAMP, 0)), 1_010)
    assert Send("asker", ProbeReport(overlay.me, target, True, False, 0)) in heard


def test_a_report_about_us_is_answered_for_ourselves() -> None:
    overlay, asker = node(), Peer("asker", 1)
    said = overlay.handle(Received(ProbeRequest(asker, overlay.me)), 5)
    assert Send("asker", ProbeReport(overlay.me, overlay.me, True, False, 0)) in said


def test_who_is_late_itself_waits_longer_and_recovers() -> None:
    context = Context(Peer("me", 1), OverlayConfig(), random.Random(1))
    health = Health(context, lambda: 0)
    assert health.stretch == 1
    health.ticked(OverlayConfig().suspect_ms)
    assert health.stretch == 2
    context.now += 5_000
    assert health.stretch == 1.5
    health.ticked(1_000_000)
    assert health.stretch == OverlayConfig().stretch_max
    context.now += 120_000
    assert health.stretch == 1


def test_whose_probes_mostly_fail_waits_longer() -> None:
    context = Context(Peer("me", 1), OverlayConfig(), random.Random(1))
    health = Health(context, lambda: 0)
    for peer in range(4):
        assert health.stretch == 1
        health.probed(peer, answered=False)
    assert health.stretch == 2
    health.probed(0, answered=True)
    health.probed(1, answered=True)
    assert health.stretch == 1
    for _ in range(8):
        health.probed(9, answered=False)  # one silent peer says nothing about us
    assert health.stretch == 1


def test_who_still_hears_many_others_believes_that_many_have_died() -> None:
    context = Context(Peer("me", 1), OverlayConfig(), random.Random(1))
    heard = 12
    health = Health(context, lambda: heard)
    for peer in range(4):
        health.probed(peer, answered=False)
    assert health.stretch == 1
    heard = 11
    assert health.stretch == 2


def node() -> Overlay:
    overlay = Overlay(Peer("me", 1), OverlayConfig(), random.Random(1))
    overlay.start([], 0)
    return overlay
