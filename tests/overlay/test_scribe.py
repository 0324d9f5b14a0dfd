"""Trees: shape, hosts, repair, pruning, multicast; each judged from the outside by ``tree_faults``."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from lab.overlay.oracles import closest, tree_faults
from lab.overlay.world import Simulator, plane
from overlay import (
    JoinFailed,
    Missed,
    Multicasted,
    NotRoot,
    Overlay,
    OverlayConfig,
    Peer,
    PeerDown,
    Received,
    Send,
    Tick,
    TreeChanged,
    key_of,
)
from overlay.messages import NO_STAMP, RowReply
from overlay.treemessages import Multicast, Refused, Subscribe
from tests.support.long import cases
from tests.support.worlds import host, names, ring, root, shout, subscribe, tree_rests

TOPIC = key_of(b"clicks")


def away_from(world: Simulator, *taken: str) -> str:
    """A node that is neither the rendezvous of the topic nor one of those."""
    return next(name for name in names(world) if name not in {closest(world, TOPIC), *taken})


def inner(world: Simulator) -> list[str]:
    """Nodes with a parent and children."""
    return [o.me.address for o in world.running() if o.parent(TOPIC) and o.children(TOPIC)]


def deep_tree(seed: int = 1) -> tuple[Simulator, list[str]]:
    """Sixty nodes with short digits, and a tree whose inner nodes are there for others; its subscribers."""
    world = ring(60, seed=seed, config=OverlayConfig(base_bits=2, leaf_set_size=8), latency=plane(10))
    subscribe(world, TOPIC, names(world))
    world.run(500)
    for name in inner(world):
        world.perform(name, world.nodes[name].overlay.unsubscribe(TOPIC, world.now))
    world.run(700)  # before anybody climbs
    return world, [name for name in names(world) if name not in inner(world)]


def test_a_dead_node_of_whom_one_has_only_heard_is_no_way_to_the_root() -> None:
    """It stands in the routing table by hearsay, as the next hop of a JOIN, and never answers."""
    world = ring(30, config=OverlayConfig(base_bits=2, leaf_set_size=4), latency=plane(10))
    one, other = world.nodes["n5"].overlay, world.nodes["n6"].overlay
    ghosts = tuple(Peer(f"ghost{n}", 1) for n in range(50))
    row = RowReply(other.me, 0, ghosts, NO_STAMP, "")
    world.perform("n5", one.handle(Received(row), world.now))
    keys = (key_of(b"%d" % n) for n in range(1_000))
    topic = next(key for key in keys if one.next_hop(key) in ghosts)
    subscribe(world, topic, ["n5"])
    assert tree_rests(world, topic, ["n5"], 1_500)


# -- shape ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 5, 16])
def test_all_hang_below_the_closest_node_and_hear_it_once(count: int) -> None:
    world = ring(count)
    subscribe(world, TOPIC, names(world))
    assert tree_rests(world, TOPIC, names(world), 100, every_ms=5)
    assert root(world, TOPIC) == closest(world, TOPIC)
    assert shout(world, TOPIC, b"hello") == dict.fromkeys(names(world), 1)


def test_who_does_not_subscribe_hears_nothing() -> None:
    world = ring(16)
    some = names(world)[::3]
    subscribe(world, TOPIC, some)
    world.run(100)
    assert shout(world, TOPIC, b"hello") == dict.fromkeys(some, 1)


def test_a_deep_tree_has_forwarders_and_no_crowd_at_the_root() -> None:
    world, some = deep_tree()
    assert tree_faults(world, TOPIC, some) == []
    assert len(inner(world)) > 3
    assert 2 <= max(len(overlay.path(TOPIC)) for overlay in world.running()) <= 5
    assert len(world.nodes[root(world, TOPIC)].overlay.children(TOPIC)) < len(some) / 2
    assert shout(world, TOPIC, b"hello") == dict.fromkeys(some, 1)


def test_a_subscription_before_ready_is_made_when_ready() -> None:
    world = Simulator(random.Random(1), check=True)
    world.add("n0")
    overlay = world.add("n1", ["n0"])
    subscribe(world, TOPIC, ["n0", "n1"])
    assert TOPIC in overlay.topics()
    assert tree_rests(world, TOPIC, ["n0", "n1"], 100, every_ms=5)


def test_paths_lead_to_the_root() -> None:
    world, _ = deep_tree()
    world.run(10_000)  # all have climbed; a forwarder that nobody needs any more has gone
    for overlay in (o for o in world.running() if TOPIC in o.topics()):
        path = (overlay.me.address, *overlay.path(TOPIC))
        assert path[-1] == root(world, TOPIC)
        assert all(world.nodes[child].overlay.parent(TOPIC) == parent for child, parent in pairwise(path))


# -- hosts ---------------------------------------------------------------------------------------------------


def test_a_host_away_from_the_rendezvous_is_the_root() -> None:
    world = ring(16)
    top = away_from(world)
    host(world, TOPIC, top)
    others = [name for name in names(world) if name != top]
    subscribe(world, TOPIC, others, top)
    assert tree_rests(world, TOPIC, others, 200, every_ms=5)
    assert root(world, TOPIC) == top
    assert shout(world, TOPIC, b"hello") == dict.fromkeys(others, 1)
    assert world.nodes[closest(world, TOPIC)].overlay.parent(TOPIC) == top


def test_the_host_hears_itself_if_it_subscribes() -> None:
    world = ring(4)
    top = away_from(world)
    host(world, TOPIC, top)
    subscribe(world, TOPIC, names(world), top)
    world.run(100)
    assert shout(world, TOPIC, b"hello") == dict.fromkeys(names(world), 1)


def test_who_does_not_know_the_host_learns_it_from_the_tree() -> None:
    world = ring(16)
    top = away_from(world)
    rendezvous = closest(world, TOPIC)
    host(world, TOPIC, top)
    first = away_from(world, top)
    subscribe(world, TOPIC, [first])  # makes the rendezvous a root for a while
    world.run(100)
    subscribe(world, TOPIC, [rendezvous], top)
    assert tree_rests(world, TOPIC, [first, rendezvous], 200)
    assert root(world, TOPIC) == top


def test_subscribers_may_come_before_their_host() -> None:
    world = ring(16)
    top = away_from(world)
    others = [name for name in names(world) if name != top]
    subscribe(world, TOPIC, others, top)
    world.run(3_000)
    assert any("is an orphan" in fault for fault in tree_faults(world, TOPIC, others))
    host(world, TOPIC, top)
    assert tree_rests(world, TOPIC, others, 1_200)


def test_while_the_host_is_away_the_tree_keeps_its_shape_and_is_whole_when_it_is_back() -> None:
    world = ring(16)
    top = away_from(world)
    host(world, TOPIC, top)
    others = [name for name in names(world) if name != top]
    subscribe(world, TOPIC, others, top)
    world.run(1_000)
    rendezvous = world.nodes[closest(world, TOPIC)].overlay
    children = rendezvous.children(TOPIC)
    world.crash(top)
    world.run(20_000)
    assert rendezvous.parent(TOPIC) is None
    assert not rendezvous.is_root(TOPIC)
    assert rendezvous.children(TOPIC) == children
    world.add(top, [others[0]])
    host(world, TOPIC, top)
    assert tree_rests(world, TOPIC, others, 1_500)
    assert root(world, TOPIC) == top
    assert rendezvous.children(TOPIC) == children
    assert shout(world, TOPIC, b"again") == dict.fromkeys(others, 1)


@pytest.mark.parametrize("dies", [True, False])
def test_the_host_moves_and_every_node_is_told_by_its_application(dies: bool) -> None:
    world = ring(16)
    top = away_from(world)
    host(world, TOPIC, top)
    others = [name for name in names(world) if name != top]
    subscribe(world, TOPIC, others, top)
    assert tree_rests(world, TOPIC, others, 200, every_ms=5)
    new = away_from(world, top)
    if dies:
        world.crash(top)
    host(world, TOPIC, new)
    for name in others:
        world.run(20)
        world.perform(name, world.nodes[name].overlay.rehost(TOPIC, new, world.now))
    if not dies:
        world.perform(top, world.nodes[top].overlay.unhost(TOPIC, world.now, new))
    assert tree_rests(world, TOPIC, others, 5_000)
    assert root(world, TOPIC) == new
    assert shout(world, TOPIC, b"from another") == dict.fromkeys(others, 1)


def test_a_host_that_restarts_within_the_blink_of_an_eye() -> None:
    world = ring(8)
    top = away_from(world)
    host(world, TOPIC, top)
    others = [name for name in names(world) if name != top]
    subscribe(world, TOPIC, others, top)
    world.run(1_000)
    world.crash(top)
    world.add(top, ["n0" if top != "n0" else "n1"])
    host(world, TOPIC, top)
    assert tree_rests(world, TOPIC, others, 1_500)
    assert shout(world, TOPIC, b"again") == dict.fromkeys(others, 1)


def test_the_rendezvous_of_a_host_dies() -> None:
    world = ring(16)
    top = away_from(world)
    host(world, TOPIC, top)
    world.crash(closest(world, TOPIC)) if closest(world, TOPIC) != top else None
    others = [name for name in names(world) if name != top]
    subscribe(world, TOPIC, others, top)
    assert tree_rests(world, TOPIC, others, 4_500)
    assert root(world, TOPIC) == top


def test_a_node_that_is_not_the_host_says_so() -> None:
    overlay = Overlay(Peer("me", 1), OverlayConfig(), random.Random(1))
    overlay.start([], 0)
    effects = overlay.handle(Received(Subscribe(Peer("z", 1), TOPIC, "me", True, False, ())), 1)
    assert Send("z", Refused(Peer("me", 1), TOPIC, "not the host", "")) in effects
    assert overlay.topics() == ()
    overlay.host(TOPIC, 2)
    overlay.handle(Received(Subscribe(Peer("z", 1), TOPIC, "me", True, False, ())), 3)
    assert overlay.children(TOPIC) == ("z",)


def test_unhosting_ends_the_tree() -> None:
    world = ring(8)
    top = away_from(world)
    host(world, TOPIC, top)
    subscribe(world, TOPIC, ["n1"], top)
    world.run(100)
    for overlay in world.running():
        world.perform(overlay.me.address, overlay.unsubscribe(TOPIC, world.now))
    world.perform(top, world.nodes[top].overlay.unhost(TOPIC, world.now))
    world.run(100)
    assert all(overlay.topics() == () for overlay in world.running())


# -- repair --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_children_of_a_dead_parent_have_a_new_one_within_four_seconds(seed: int) -> None:
    world, some = deep_tree(seed)
    dead = inner(world)[0]
    world.crash(dead)
    assert tree_rests(world, TOPIC, some, 4_000)
    assert shout(world, TOPIC, b"again") == dict.fromkeys(some, 1)


@pytest.mark.parametrize("seed", range(4))
def test_the_root_dies_and_the_next_closest_takes_over(seed: int) -> None:
    world = ring(16, seed=seed)
    subscribe(world, TOPIC, names(world))
    world.run(1_000)
    world.crash(closest(world, TOPIC))
    assert tree_rests(world, TOPIC, names(world), 5_500)
    assert root(world, TOPIC) == closest(world, TOPIC)
    assert shout(world, TOPIC, b"again") == dict.fromkeys(names(world), 1)


def test_a_parent_that_leaves_is_replaced_at_once() -> None:
    world, some = deep_tree()
    world.leave(inner(world)[0])
    assert tree_rests(world, TOPIC, some, 200)


def test_a_parent_that_restarts_is_asked_again() -> None:
    world, some = deep_tree()
    parent = inner(world)[0]
    world.crash(parent)
    world.add(parent, [some[0]])
    assert tree_rests(world, TOPIC, some, 3_000)


def test_a_dead_child_is_dropped() -> None:
    world = ring(8)
    subscribe(world, TOPIC, names(world))
    world.run(1_000)
    child = away_from(world)
    world.crash(child)
    world.run(4_000)
    assert all(child not in overlay.children(TOPIC) for overlay in world.running())


def test_a_nearer_node_that_joins_becomes_the_root() -> None:
    world = ring(16)
    nearest = closest(world, TOPIC)
    world.crash(nearest)
    world.run(5_000)
    subscribe(world, TOPIC, names(world))
    world.run(1_000)
    assert root(world, TOPIC) != nearest
    world.add(nearest, [names(world)[0]])
    world.run(2_500)
    assert tree_faults(world, TOPIC, [name for name in names(world) if name != nearest]) == []
    assert root(world, TOPIC) == nearest


def test_subscribing_while_messages_are_lost_and_doubled() -> None:
    world = ring(20, seed=6, latency=plane(10), loss=0.05, doubling=0.1)
    subscribe(world, TOPIC, names(world))
    assert tree_rests(world, TOPIC, names(world), 4_000)
    world.run(20_000)
    world.loss = 0.0
    assert tree_rests(world, TOPIC, names(world), 3_000)
    assert shout(world, TOPIC, b"hello") == dict.fromkeys(names(world), 1)


def test_multicasts_are_never_doubled_whatever_the_network_does() -> None:
    world = ring(20, seed=7, latency=plane(10), loss=0.05, doubling=0.3)
    subscribe(world, TOPIC, names(world))
    world.run(4_000)
    for number in range(100):
        address = root(world, TOPIC)
        overlay = world.nodes[address].overlay
        world.perform(address, overlay.multicast(TOPIC, b"%d" % number, world.now))
        world.run(50)
    assert set(world.multicasts.values()) == {1}
    assert len(world.multicasts) > 0.8 * 20 * 100


# -- pruning -------------------------------------------------------------------------------------------------


def test_forwarders_go_when_nobody_needs_them() -> None:
    world, some = deep_tree()
    for name in some:
        world.perform(name, world.nodes[name].overlay.unsubscribe(TOPIC, world.now))
    world.run(100)
    assert all(overlay.topics() == () for overlay in world.running())


def test_a_forwarder_below_which_all_died_goes_too() -> None:
    world, some = deep_tree()
    for name in some:
        world.crash(name)
    world.run(12_000)
    assert all(overlay.topics() == () for overlay in world.running())


# -- one node ------------------------------------------------------------------------------------------------


def test_only_the_root_may_multicast() -> None:
    world = ring(4)
    subscribe(world, TOPIC, names(world))
    world.run(100)
    with pytest.raises(NotRoot):
        world.nodes[away_from(world)].overlay.multicast(TOPIC, b"x", world.now)


def test_changes_are_reported_once_each() -> None:
    world = ring(2)
    low, high = sorted(names(world), key=lambda name: name != closest(world, TOPIC))
    subscribe(world, TOPIC, [low, high])
    world.run(3_000)
    world.perform(high, world.nodes[high].overlay.unsubscribe(TOPIC, world.now))
    world.run(100)
    changes = {
        name: [e for e in world.nodes[name].effects if isinstance(e, TreeChanged)] for name in (low, high)
    }
    assert changes[low] == [TreeChanged(TOPIC, None, (high,)), TreeChanged(TOPIC, None, ())]
    assert changes[high] == [TreeChanged(TOPIC, low, ()), TreeChanged(TOPIC, None, ())]


def test_a_multicast_from_a_former_parent_is_taken_once_and_answered() -> None:
    world = ring(3)
    subscribe(world, TOPIC, names(world))
    world.run(100)
    child = away_from(world)
    overlay = world.nodes[child].overlay
    unknown_member = Peer("stranger", 1)
    message = Multicast(unknown_member, TOPIC, Peer("old-root", 3), 1, b"late")
    first = overlay.handle(Received(message), world.now)
    assert Multicasted(TOPIC, b"late") in first
    assert any(isinstance(e, Send) and e.to == "stranger" and "Unsubscribe" in repr(e.message) for e in first)
    assert Multicasted(TOPIC, b"late") not in overlay.handle(Received(message), world.now)


def test_a_join_that_would_close_a_loop_is_refused() -> None:
    world = ring(3)
    subscribe(world, TOPIC, names(world))
    world.run(100)
    overlay = world.nodes[away_from(world)].overlay
    join = Subscribe(Peer("z", 1), TOPIC, "", False, False, ("y", overlay.me.address))
    assert Send("z", Refused(overlay.me, TOPIC, "loop", "")) in overlay.handle(Received(join), world.now)
    assert "z" not in overlay.children(TOPIC)


def test_above_a_root_is_nothing_that_could_close_a_loop() -> None:
    """Whoever once asked for its sake is a child like others."""
    overlay = Overlay(Peer("me", 1), OverlayConfig(), random.Random(1))
    overlay.start([], 0)
    overlay.handle(Received(Subscribe(Peer("z", 1), TOPIC, "", False, False, ("y", "me"))), 1)
    assert overlay.children(TOPIC) == ("z",)
    assert overlay.is_root(TOPIC)
    overlay.check()


def test_a_topic_of_wrong_length_is_the_callers_fault() -> None:
    overlay = Overlay(Peer("me", 1), OverlayConfig(), random.Random(1))
    overlay.start([], 0)
    with pytest.raises(ValueError, match="16 bytes"):
        overlay.subscribe(b"short", 0)
    assert overlay.topics() == ()


def test_one_message_a_parent_refreshes_all_topics() -> None:
    world = ring(2)
    topics = [key_of(b"topic %d" % number) for number in range(30)]
    for topic in topics:
        subscribe(world, topic, names(world))
    world.run(5_000)
    before = world.messages["Refresh"]
    world.run(10_000)
    assert world.messages["Refresh"] - before <= 2 * 12


def many_parents(at_once: int) -> tuple[Simulator, list[bytes]]:
    """Thirty nodes and forty trees of all of them."""
    world = ring(30, config=OverlayConfig(refresh_at_once=at_once), latency=plane(10))
    topics = [key_of(b"topic %d" % number) for number in range(40)]
    for topic in topics:
        subscribe(world, topic, names(world))
    world.run(5_000)
    return world, topics


def test_of_many_parents_each_is_spoken_to_in_its_turn_and_nobody_is_missed() -> None:
    said = {}
    for at_once in (4, 1_000):
        world, topics = many_parents(at_once)
        before = dict(world.messages)
        world.run(cases(10_000, 20_000))
        said[at_once] = {kind: world.messages[kind] - before[kind] for kind in ("Refresh", "Ping")}
        assert not any(tree_faults(world, topic, names(world)) for topic in topics)
        assert not any(isinstance(e, PeerDown) for node in world.nodes.values() for e in node.effects)
    assert said[4]["Refresh"] < said[1_000]["Refresh"] / 3
    assert said[4]["Ping"] <= said[1_000]["Ping"] * 1.1, "who is silent in turn is not asked whether it lives"


def test_of_many_parents_a_dead_one_is_missed_a_little_later() -> None:
    world, topics = many_parents(4)
    world.crash(closest(world, topics[0]))
    world.run(3 * OverlayConfig().tree_refresh_ms + 3_500)
    world.run(1_000)  # they ask elsewhere
    assert not any(tree_faults(world, topic, names(world)) for topic in topics)


def test_what_is_missing_is_missed_though_the_join_fails_and_begins_again() -> None:
    """A node that comes back may hear a multicast before it is in the ring again; when its join failed, all
    deadlines went, this one too (``elf sim chaos``, seed 349788)."""
    config = OverlayConfig(join_timeout_ms=2_000, lost_ms=5_000)
    overlay, boss = Overlay(Peer("me", 1), config, random.Random(1)), Peer("boss", 1)
    overlay.start(["nobody"], 0)
    overlay.subscribe(TOPIC, 0)
    overlay.handle(Received(Multicast(boss, TOPIC, boss, 5, b"five")), 10)
    assert any(
        isinstance(effect, JoinFailed)
        for at in range(100, 2_200, 100)
        for effect in overlay.handle(Tick(), at)
    )
    overlay.start([], 2_200)
    overlay.check()
    heard = [effect for at in range(2_300, 8_000, 100) for effect in overlay.handle(Tick(), at)]
    assert [e for e in heard if isinstance(e, Missed | Multicasted)] == [
        Missed(TOPIC, boss, 1, 4),
        Multicasted(TOPIC, b"five"),
    ]
