"""Routing: always to the closest live node, once; round the dead; never for ever."""

from __future__ import annotations

import random

import pytest

from lab.overlay.oracles import closest
from lab.overlay.world import Simulator, plane
from overlay import Delivered, Overlay, OverlayConfig, Peer, Received, Send, key_of
from overlay.messages import HopAck, Route
from tests.support.worlds import ring


def route(world: Simulator, source: str, key: bytes) -> None:
    world.perform(source, world.nodes[source].overlay.route(key, b"payload", world.now))


def ends(world: Simulator, key: bytes) -> list[str]:
    return [delivery.at for delivery in world.deliveries if delivery.effect.key == key]


@pytest.mark.parametrize("count", [1, 2, 3, 17, 18, 60])
def test_every_key_ends_at_the_closest_node(count: int) -> None:
    world = ring(count, latency=plane(10))
    keys = [key_of(b"%d" % number) for number in range(60)]
    for number, key in enumerate(keys):
        route(world, f"n{number % count}", key)
    world.run(1_000)
    assert [ends(world, key) for key in keys] == [[closest(world, key)] for key in keys]
    own = [d for d in world.deliveries if d.at == d.effect.origin]
    assert all(d.effect.hops == 0 and d.effect.payload == b"payload" for d in own)


def test_while_many_are_dead_and_nobody_knows_yet() -> None:
    world = ring(60, latency=plane(10), seed=2)
    for number in range(1, 60, 5):
        world.crash(f"n{number}")
    keys = [key_of(b"%d" % number) for number in range(100)]
    for key in keys:
        route(world, "n0", key)
    world.run(10_000)
    assert [ends(world, key) for key in keys] == [[closest(world, key)] for key in keys]


def test_lost_and_doubled_messages_are_delivered_once() -> None:
    world = ring(20, latency=plane(10), loss=0.1, doubling=0.2, seed=5)
    world.run(5_000)
    keys = [key_of(b"%d" % number) for number in range(200)]
    for key in keys:
        route(world, "n7", key)
        world.run(20)
    world.run(10_000)
    assert [ends(world, key) for key in keys] == [[closest(world, key)] for key in keys]


def test_what_is_routed_before_ready_goes_when_ready() -> None:
    world = Simulator(random.Random(1), check=True)
    world.add("a")
    overlay = world.add("b", ["a"])
    keys = [key_of(b"%d" % number) for number in range(20)]
    for key in keys:
        assert overlay.route(key, b"", world.now) == []
    world.run(100)
    assert [ends(world, key) for key in keys] == [[closest(world, key)] for key in keys]


def test_to_a_node_that_is_joining_keys_come_when_it_is_ready() -> None:
    world = ring(4)
    world.stall("n2", 1_000)
    world.add("late", ["n0"])  # n2, stalled, has not answered yet, so it is not ready; others know it already
    world.run(50)
    overlay = world.nodes["late"].overlay
    assert not overlay.ready
    mine = [key for key in (key_of(b"%d" % n) for n in range(200)) if closest(world, key) == "late"]
    for key in mine:
        route(world, "n1", key)
    world.run(400)
    assert [ends(world, key) for key in mine] == [[] for _ in mine]
    world.run(2_500)
    assert overlay.ready
    assert [ends(world, key) for key in mine] == [["late"] for _ in mine]


def node(config: OverlayConfig) -> Overlay:
    overlay = Overlay(Peer("me", 1), config, random.Random(1))
    overlay.start([], 0)
    return overlay


def test_a_key_of_wrong_length_is_the_callers_fault() -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        node(OverlayConfig()).route(b"short", b"", 0)


def test_an_acknowledgement_answers_every_hop_even_of_what_goes_in_circles() -> None:
    overlay, other = node(OverlayConfig(hops_max=4)), Peer("other", 1)
    message = Route(other, 7, key_of(b"x"), other, 1, 4, b"")
    effects = overlay.handle(Received(message), 1)
    assert Send("other", HopAck(Peer("me", 1), 7)) in effects
    assert not any(isinstance(effect, Delivered) for effect in effects)
    assert overlay.dropped == 1


def test_what_waits_is_acknowledged_when_it_goes_on() -> None:
    """A key's node that lacks a lease has not taken over what it keeps: when it dies, nothing is lost."""
    world = ring(12, latency=plane(10))
    key = key_of(b"x")
    first = closest(world, key)
    holder = world.nodes[first].overlay
    world.crash(holder.leaf_set()[0].address)  # its ring neighbour: no lease for a while
    assert world.run_until(lambda: not holder.acts_for(key, world.now), 4_000)
    source = next(o for o in world.running() if o is not holder and o.me not in holder.leaf_set()[:1])
    route(world, source.me.address, key)
    world.run(200)
    assert ends(world, key) == []
    world.crash(first)
    world.run(10_000)
    assert ends(world, key) == [closest(world, key)]


def test_what_finds_no_room_is_dropped_and_counted() -> None:
    overlay, other = Overlay(Peer("me", 1), OverlayConfig(held_max=2), random.Random(1)), Peer("other", 1)
    overlay.start(["nobody"], 0)
    for token in range(1, 6):
        effects = overlay.handle(Received(Route(other, token, key_of(b"x"), other, token, 1, b"")), 1)
        assert not any(isinstance(effect, Send) and type(effect.message) is HopAck for effect in effects)
    assert overlay.dropped == 3
