"""Anycasts find one subscriber that takes them, while nodes decline, die, and messages are lost."""

from __future__ import annotations

import random

import pytest

from overlay import (
    Anycast,
    AnycastAck,
    Anycasted,
    AnycastFailed,
    Overlay,
    OverlayConfig,
    Peer,
    Received,
    Send,
    Tick,
    key_of,
)
from overlay.treemessages import Subscribe
from overlay.world import Simulator, plane
from tests.support.worlds import names, ring, subscribe

TOPIC = key_of(b"clicks")
SHORT = OverlayConfig(base_bits=2, leaf_set_size=8, fanout_max=4)


def offers(world: Simulator) -> list[tuple[str, Anycasted]]:
    return [(name, e) for name, node in world.nodes.items() for e in node.effects if isinstance(e, Anycasted)]


def failures(world: Simulator, name: str) -> int:
    return sum(isinstance(e, AnycastFailed) for e in world.nodes[name].effects)


def anycast(world: Simulator, name: str, payload: bytes = b"x") -> None:
    world.perform(name, world.nodes[name].overlay.anycast(TOPIC, payload, world.now))


def decline_all(world: Simulator, source: str) -> list[str]:
    """Send one that everybody declines; who was offered it, in order."""
    asked: list[str] = []
    anycast(world, source)

    def fresh() -> list[tuple[str, Anycasted]]:
        return [(name, effect) for name, effect in offers(world) if name not in asked]

    while not failures(world, source):
        assert world.run_until(lambda: bool(fresh() or failures(world, source)), 3_000, every_ms=20), asked
        for name, effect in fresh():
            asked.append(name)
            world.perform(name, world.nodes[name].overlay.decline(effect, world.now))
    return asked


@pytest.mark.parametrize("member", [True, False])
def test_one_subscriber_gets_it_and_never_the_origin(member: bool) -> None:
    world = ring(40, config=SHORT, latency=plane(10))
    some = names(world)[::3]
    subscribe(world, TOPIC, some)
    world.run(3_000)
    source = some[3] if member else next(name for name in names(world) if name not in some)
    anycast(world, source)
    world.run(500)
    ((taker, offered),) = offers(world)
    assert taker in some
    assert taker != source
    assert (offered.payload, offered.origin) == (b"x", source)


def test_when_all_decline_each_is_asked_once_and_the_origin_is_told() -> None:
    world = ring(40, config=SHORT, latency=plane(10))
    some = names(world)[::3]
    subscribe(world, TOPIC, some)
    world.run(3_000)
    asked = decline_all(world, some[0])
    assert sorted(asked) == sorted(some[1:])
    assert failures(world, some[0]) == 1


def test_without_subscribers_it_fails_at_once() -> None:
    world = ring(8)
    anycast(world, "n3")
    world.run(100)
    assert (offers(world), failures(world, "n3")) == ([], 1)


@pytest.mark.parametrize("seed", range(3))
def test_dead_nodes_are_gone_round_and_lost_hops_repeated(seed: int) -> None:
    world = ring(40, seed=seed, config=SHORT, latency=plane(10))
    subscribe(world, TOPIC, names(world))
    world.run(3_000)
    rng = random.Random(seed)
    inner = [o.me.address for o in world.running() if o.parent(TOPIC) and o.children(TOPIC)]
    for name in rng.sample(inner, 3):
        world.crash(name)
    world.loss = 0.05
    for number in range(20):
        anycast(world, rng.choice(names(world)), b"%d" % number)
    world.run(10_000)
    taken = {effect.payload for name, effect in offers(world)}
    assert taken == {b"%d" % number for number in range(20)}


def test_it_goes_no_further_than_it_may() -> None:
    world = ring(20, config=OverlayConfig(anycast_hops_max=3))
    subscribe(world, TOPIC, names(world))
    world.run(2_000)
    assert len(decline_all(world, "n0")) <= 3


def test_a_repeated_hop_is_acknowledged_and_offered_once() -> None:
    overlay = Overlay(Peer("me", 1), OverlayConfig(), random.Random(1))
    overlay.start([], 0)
    overlay.subscribe(TOPIC, 0)
    peer = Peer("p", 1)
    message = Anycast(peer, 7, TOPIC, peer, 1, ("p",), b"x")
    for times in (1, 0):
        effects = overlay.handle(Received(message), 1)
        assert Send("p", AnycastAck(overlay.me, 7)) in effects
        assert sum(isinstance(e, Anycasted) for e in effects) == times


def test_an_unanswered_hop_is_made_three_times() -> None:
    overlay = Overlay(Peer("me", 1), OverlayConfig(), random.Random(1))
    overlay.start([], 0)
    overlay.host(TOPIC, 0)
    overlay.handle(Received(Subscribe(Peer("z", 1), TOPIC, "me", True, False, ())), 1)
    effects = overlay.anycast(TOPIC, b"x", 2)
    for now in range(3, 1_500, 10):
        effects += overlay.handle(Tick(), now)
    assert sum(isinstance(e, Send) and isinstance(e.message, Anycast) for e in effects) == 3
    assert AnycastFailed(TOPIC, b"x") in effects
