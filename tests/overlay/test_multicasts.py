"""Multicasts under loss, crashes, slow children: each subscriber gets each once, in order, or a named gap."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from lab.overlay.oracles import closest
from lab.overlay.world import Simulator, plane
from overlay import Missed, Multicasted, Overlay, OverlayConfig, Peer, Received, Send, Tick
from overlay.messages import Message
from overlay.treemessages import Head, Heard, Lost, Multicast, Repair, Subscribe, Subscribed
from tests.support.multicasts import TOPIC, Story
from tests.support.worlds import names, ring, subscribe, tree_rests

LOSSY = OverlayConfig(base_bits=2, leaf_set_size=8)


def rested(world: Simulator, some: list[str], limit_ms: int = 15_000) -> bool:
    return tree_rests(world, TOPIC, some, limit_ms)


# -- loss ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_with_five_per_cent_loss_nobody_misses_anything(seed: int) -> None:
    world = ring(24, seed=seed, config=LOSSY, latency=plane(10), loss=0.05, doubling=0.1)
    subscribe(world, TOPIC, names(world))
    assert rested(world, names(world))
    story = Story(world)
    story.say(100, every_ms=50)
    world.run(15_000)
    for name in names(world):
        story.verify(name)
        assert story.missed(name) == 0


def test_the_last_one_is_not_missed_although_nothing_comes_after_it() -> None:
    world = ring(8)
    subscribe(world, TOPIC, names(world))
    world.run(2_000)
    story = Story(world)
    world.loss = 1.0
    story.say()
    world.run(10)
    world.loss = 0.0
    world.run(1_200)
    for name in names(world):
        story.verify(name)
        assert story.missed(name) == 0


def test_reordered_multicasts_come_out_in_order() -> None:
    world = ring(20, config=LOSSY, latency=lambda _source, _target, rng: 1 + rng.randrange(40))
    subscribe(world, TOPIC, names(world))
    assert rested(world, names(world))
    story = Story(world)
    story.say(60, every_ms=3)
    world.run(5_000)
    for name in names(world):
        story.verify(name)
        assert story.missed(name) == 0


def test_in_peace_a_multicast_costs_one_message_a_child_and_few_words() -> None:
    world = ring(16)
    subscribe(world, TOPIC, names(world))
    world.run(3_000)
    before = world.messages.copy()
    Story(world).say(80, every_ms=20)
    world.run(1_000)
    spent = world.messages - before
    assert spent["Multicast"] == 80 * 15
    assert spent["Heard"] == 15 * 80 // (OverlayConfig().window_messages // 4)
    assert spent["Repair"] == spent["Lost"] == 0


# -- crashes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_inner_nodes_crash_under_a_steady_stream_and_nobody_misses_anything(seed: int) -> None:
    world = ring(40, seed=seed, config=LOSSY, latency=plane(10), loss=0.05)
    subscribe(world, TOPIC, names(world))
    assert rested(world, names(world))
    story = Story(world)
    story.say(20, every_ms=100)
    inner = [o.me.address for o in world.running() if o.parent(TOPIC) and o.children(TOPIC)]
    for name in random.Random(seed).sample(inner, 3):
        world.crash(name)
    story.say(60, every_ms=100)
    world.run(15_000)
    for name in names(world):
        story.verify(name)
        assert story.missed(name) == 0


@pytest.mark.parametrize("seed", range(4))
def test_what_a_dying_root_told_one_of_them_all_will_hear(seed: int) -> None:
    world = ring(24, seed=seed, config=LOSSY, latency=plane(10))
    subscribe(world, TOPIC, names(world))
    assert rested(world, names(world))
    story = Story(world)
    story.say(5, every_ms=100)
    world.loss = 0.6
    story.say(3)
    world.crash(closest(world, TOPIC))
    world.run(50)
    world.loss = 0.0
    assert rested(world, names(world))
    story.say(5, every_ms=100)
    world.run(15_000)
    ends = {
        tuple(sum(b - a + 1 for a, b, _ in told) for told in story.heard(name).values())
        for name in names(world)
    }
    assert len(ends) == 1, "all have heard the same of both roots"
    (heard,) = ends
    assert 5 <= heard[0] <= 8
    assert heard[1] == 5
    assert all(story.missed(name) == 0 for name in names(world))


def test_a_root_that_restarts_begins_its_own_numbers() -> None:
    world = ring(8)
    subscribe(world, TOPIC, names(world))
    world.run(1_000)
    story = Story(world)
    story.say(3, every_ms=50)
    root = closest(world, TOPIC)
    world.crash(root)
    world.add(root, [name for name in names(world) if name != root][:1])
    subscribe(world, TOPIC, [root])
    assert rested(world, names(world))
    story.say(3, every_ms=50)
    world.run(12_000)
    assert [(peer.address, peer.incarnation) for peer in story.said] == [(root, 1), (root, 2)]
    for name in names(world):
        story.verify(name)


def test_a_partition_that_outlasts_what_is_kept_is_told_as_a_gap() -> None:
    kept = 10
    world = ring(12, config=OverlayConfig(kept_max=kept, window_messages=8))
    subscribe(world, TOPIC, names(world))
    world.run(1_000)
    story = Story(world)
    story.say(5, every_ms=100)
    root = closest(world, TOPIC)
    alone = next(name for name in names(world) if name != root)
    world.partition([name for name in names(world) if name != alone], [alone])
    story.say(100, every_ms=100)
    others = [n for n in names(world) if n != alone]
    world.heal()
    world.run(30_000)
    first = next(peer for peer in story.said if peer.address == root)
    tiles = [n for a, b, _ in story.heard(alone)[first] for n in range(a, b + 1)]
    assert tiles == list(range(1, story.said[first] + 1))
    assert story.missed(alone) >= 100 - 2 * kept
    assert all(story.missed(name) == 0 or name == alone for name in others)


# -- newcomers -----------------------------------------------------------------------------------------------


def test_who_comes_late_gets_what_is_kept_and_the_gap_before_it() -> None:
    world = ring(16, config=OverlayConfig(kept_max=8))
    late = next(name for name in names(world) if name != closest(world, TOPIC))
    subscribe(world, TOPIC, [name for name in names(world) if name != late])
    world.run(1_000)
    story = Story(world)
    story.say(20, every_ms=50)
    subscribe(world, TOPIC, [late])
    world.run(200)
    ((_, told),) = story.heard(late).items()
    assert told[0] == (1, 12, False)
    assert told[1:] == [(n, n, True) for n in range(13, 21)]
    story.say(1, every_ms=50)
    assert story.heard(late).popitem()[1][-1] == (21, 21, True)


def test_a_forwarder_that_subscribes_hears_what_it_keeps() -> None:
    world = ring(40, config=LOSSY, latency=plane(10))
    subscribe(world, TOPIC, names(world)[::4])
    world.run(1_000)
    story = Story(world)
    story.say(3, every_ms=50)
    only = next(
        o.me.address for o in world.running() if TOPIC in o.topics() and not story.heard(o.me.address)
    )
    subscribe(world, TOPIC, [only])
    story.verify(only)


# -- slow children -------------------------------------------------------------------------------------------


def test_a_stalled_child_is_sent_a_window_and_repairs_the_rest() -> None:
    config = OverlayConfig(window_messages=8)
    world = ring(8, config=config)
    subscribe(world, TOPIC, names(world))
    world.run(3_000)
    slow = next(name for name in names(world) if name != closest(world, TOPIC))
    story = Story(world)
    world.stall(slow, 2_000)
    before = world.messages["Multicast"]
    story.say(40, every_ms=10)
    assert world.messages["Multicast"] - before == 40 * 6 + config.window_messages
    world.run(10_000)
    for name in names(world):
        story.verify(name)
        assert story.missed(name) == 0


def test_a_window_of_which_all_is_lost_opens_again() -> None:
    world = ring(2, config=OverlayConfig(window_messages=4, kept_max=32))
    subscribe(world, TOPIC, names(world))
    world.run(3_000)
    story = Story(world)
    world.loss = 1.0
    story.say(10)
    world.loss = 0.0
    world.run(6_000)
    for name in names(world):
        story.verify(name)
        assert story.missed(name) == 0


def test_one_multicast_may_be_larger_than_the_window_and_than_what_is_kept() -> None:
    world = ring(4, config=OverlayConfig(window_bytes=10, kept_bytes=10))
    subscribe(world, TOPIC, names(world))
    world.run(1_000)
    root = world.nodes[closest(world, TOPIC)].overlay
    for number in range(5):
        world.perform(root.me.address, root.multicast(TOPIC, b"%d" % number * 100, world.now))
        world.run(1_000)
    assert sum(world.multicasts.values()) == 4 * 5


# -- one node ------------------------------------------------------------------------------------------------


def child(config: OverlayConfig | None = None) -> tuple[Overlay, Peer]:
    """A subscriber below a parent, which has said that number 2 of the root is settled with it."""
    overlay = Overlay(Peer("me", 1), config or OverlayConfig(), random.Random(1))
    overlay.start([], 0)
    boss = Peer("boss", 1)
    overlay.subscribe(TOPIC, 0, host="boss")
    overlay.handle(Received(Subscribed(boss, TOPIC, "boss", (), (Head(boss, 2),))), 1)
    return overlay, boss


def sent(effects: Sequence[object], kind: type[Message]) -> list[Message]:
    return [e.message for e in effects if isinstance(e, Send) and isinstance(e.message, kind)]


def test_a_child_asks_for_what_its_parent_has_settled_and_asks_again() -> None:
    overlay, boss = child()
    assert overlay.parent(TOPIC) == "boss"
    found = []
    for now in range(1, 1_000, 10):
        found += sent(overlay.handle(Tick(), now), Repair)
    assert found[0] == Repair(overlay.me, TOPIC, boss, 1, 2)
    assert len(found) == 2, "after 250 ms, then after 500 more"
    assert Multicasted(TOPIC, b"a") in overlay.handle(Received(Multicast(boss, TOPIC, boss, 1, b"a")), 1_001)
    lost = overlay.handle(Received(Lost(boss, TOPIC, boss, 1, 2)), 1_002)
    assert Missed(TOPIC, boss, 2, 2) in lost


def test_what_nobody_gives_is_lost_after_a_time_and_never_given_out_later() -> None:
    overlay, boss = child(OverlayConfig(lost_ms=700, suspect_ms=60_000))
    told = [e for now in range(1, 2_000, 10) for e in overlay.handle(Tick(), now) if isinstance(e, Missed)]
    assert told == [Missed(TOPIC, boss, 1, 2)]
    late = overlay.handle(Received(Multicast(boss, TOPIC, boss, 2, b"late")), 2_001)
    assert not any(isinstance(e, Multicasted) for e in late)


def test_a_parent_sends_what_it_keeps_and_names_what_it_does_not() -> None:
    overlay = Overlay(Peer("me", 1), OverlayConfig(kept_max=2), random.Random(1))
    overlay.start([], 0)
    overlay.host(TOPIC, 0)
    for payload in (b"a", b"b", b"c", b"d"):
        overlay.multicast(TOPIC, payload, 0)
    asker, me = Peer("asker", 1), overlay.me
    answer = overlay.handle(Received(Subscribe(asker, TOPIC, "me", True, False, ())), 1)
    assert Send("asker", Subscribed(me, TOPIC, "me", (), (Head(me, 4),))) in answer
    found = overlay.handle(Received(Repair(asker, TOPIC, me, 1, 4)), 2)
    assert [e.message for e in found if isinstance(e, Send) and e.to == "asker"] == [
        Lost(me, TOPIC, me, 1, 2),
        Multicast(me, TOPIC, me, 3, b"c"),
        Multicast(me, TOPIC, me, 4, b"d"),
    ]
    assert sent(overlay.handle(Received(Repair(Peer("stranger", 1), TOPIC, me, 1, 4)), 3), Multicast) == []


def test_an_acknowledgement_makes_room() -> None:
    overlay = Overlay(Peer("me", 1), OverlayConfig(window_messages=2), random.Random(1))
    overlay.start([], 0)
    overlay.host(TOPIC, 0)
    asker, me = Peer("asker", 1), overlay.me
    overlay.handle(Received(Subscribe(asker, TOPIC, "me", True, False, ())), 1)
    numbers = [len(sent(overlay.multicast(TOPIC, b"x", 2), Multicast)) for _ in range(4)]
    assert numbers == [1, 1, 0, 0]
    overlay.handle(Received(Heard(asker, TOPIC, me, 1)), 3)
    assert [len(sent(overlay.multicast(TOPIC, b"x", 3), Multicast)) for _ in range(2)] == [1, 0]
