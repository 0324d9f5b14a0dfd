"""Near nodes in tables: routes become shorter in time, not longer in hops; what is known stays bounded."""

from __future__ import annotations

import math
import random
from functools import cache

import pytest

from lab.overlay.world import Simulator, constant, matrix, plane, point
from overlay import OverlayConfig, Peer, key_of
from overlay.context import Context
from overlay.messages import NO_STAMP
from overlay.proximity import Proximity
from tests.support.long import cases
from tests.support.worlds import ring

NODES = 100
KEYS = cases(2_000, 5_000)
WIDTH_MS = 200


@cache
def settled(nearer_percent: int) -> Simulator:
    """Nodes on a plane that joined one after the other, after a minute of peace.

    With two bits a digit, a hundred nodes have as many digits to choose in as thousands have with four.
    """
    config = OverlayConfig(base_bits=2, leaf_set_size=8, nearer_percent=nearer_percent)
    world = Simulator(random.Random(7), config, plane(WIDTH_MS))
    world.add("n0")
    for number in range(1, NODES):
        world.run(200)
        world.add(f"n{number}", [f"n{world.rng.randrange(number // 2 + 1)}"])
    assert world.run_until(world.all_ready, 30_000)
    world.run(60_000)
    return world


def lookups(world: Simulator) -> tuple[float, float]:
    """Mean way in ms and mean hops of lookups, in every world the same ones: of a thousand of them, each from
    any node, the means of equal rings differ by 0.03 hops."""
    sources = random.Random(1)
    asked: dict[bytes, int] = {}
    first = len(world.deliveries)
    for number in range(KEYS):
        key = key_of(b"key %d" % number)
        source = world.nodes[f"n{sources.randrange(NODES)}"].overlay
        asked[key] = world.now
        world.perform(source.me.address, source.route(key, b"", world.now))
        world.run(1)
    world.run(5_000)
    ends = world.deliveries[first:]
    assert len(ends) == KEYS
    return (
        sum(end.time - asked[end.effect.key] for end in ends) / KEYS,
        sum(end.effect.hops for end in ends) / KEYS,
    )


def test_routes_take_a_quarter_less_time_and_no_more_hops() -> None:
    far_ms, far_hops = lookups(settled(nearer_percent=100))
    near_ms, near_hops = lookups(settled(nearer_percent=20))
    assert near_ms < 0.75 * far_ms, (near_ms, far_ms)
    assert near_hops < far_hops + 0.03, (near_hops, far_hops)


def test_tables_and_neighbourhood_hold_the_nearest() -> None:
    world = settled(nearer_percent=20)
    spot = {name: point(name) for name in world.nodes}
    ranks = []
    for overlay in world.running():
        me = spot[overlay.me.address]
        order = sorted(world.nodes, key=lambda name, here=me: math.dist(here, spot[name]))  # type: ignore[misc]
        ranks += [order.index(peer.address) for peer in overlay.neighbourhood()]
    size = OverlayConfig().neighbourhood_size
    assert len(ranks) == NODES * size
    assert sum(ranks) / len(ranks) < 2 * size


def measured(place: str, peers: dict[str, tuple[int, str]]) -> tuple[Proximity, dict[str, int]]:
    """What a node at ``place`` knows after one answer from each peer: round trip in ms, label."""
    context = Context(Peer("me", 1), OverlayConfig(), random.Random(1), place)
    context.now = 1_000
    proximity = Proximity(context)
    ids = {name: Peer(name, 1).id for name in peers}
    for name, (rtt_ms, label) in peers.items():
        proximity.echoed(ids[name], 1_000 - rtt_ms)
        proximity.placed(ids[name], label)
    return proximity, ids


def test_clearly_nearer_wins_and_labels_decide_between_equals() -> None:
    proximity, ids = measured(
        "eu/r1",
        {"far": (50, "eu/r1"), "near": (20, "us/r9"), "same": (21, "eu/r1"), "region": (20, "eu/r2")},
    )
    assert proximity.nearer(ids["near"], ids["far"])
    assert not proximity.nearer(ids["far"], ids["near"])
    assert proximity.nearer(ids["same"], ids["near"])
    assert proximity.nearer(ids["same"], ids["region"])
    assert proximity.nearer(ids["region"], ids["near"])
    assert not proximity.nearer(ids["near"], ids["near"])
    assert not proximity.nearer(12345, ids["far"])  # never measured


def test_a_label_is_a_guess_before_there_is_a_measurement() -> None:
    proximity, ids = measured("eu/r1", {"holder": (9, "us/r1")})
    proximity.placed(77, "eu/r1")
    assert proximity.promising(77, ids["holder"])
    assert not proximity.promising(78, ids["holder"])


def test_round_trips_are_smoothed_bounded_and_checked() -> None:
    config = OverlayConfig(reach_max=3)
    context = Context(Peer("me", 1), config, random.Random(1))
    proximity = Proximity(context)
    context.now = 100
    proximity.echoed(1, 90)
    proximity.echoed(1, 70, held_ms=10)
    assert proximity.rtt_ms(1) == 12.5
    for stamp, held_ms in ((NO_STAMP, 0), (200, 0), (50, -1), (50, 60)):
        proximity.echoed(2, stamp, held_ms)
    assert proximity.rtt_ms(2) is None
    for node in range(10, 13):
        proximity.echoed(node, 99)
    assert proximity.rtt_ms(1) is None


def test_a_node_tells_the_round_trips_that_it_knows() -> None:
    world = ring(6, latency=constant(15))
    world.run(60_000)  # it has asked each of them once
    overlay = world.nodes["n1"].overlay
    assert all(overlay.rtt_ms(peer.address) == pytest.approx(30, abs=1) for peer in overlay.leaf_set())
    assert overlay.rtt_ms("nobody") is None


def region(address: str) -> str:
    """Every other node stands in the east."""
    return "east" if int(address[1:]) % 2 else "west"


REGIONS = matrix(region, {("east", "east"): 2, ("west", "west"): 2, ("east", "west"): 80})


def test_a_matrix_is_read_in_either_order() -> None:
    rng = random.Random(1)
    assert {REGIONS("n0", "n2", rng), REGIONS("n1", "n3", rng)} == {2}
    for source, target in (("n0", "n1"), ("n1", "n0")):
        assert 80 <= REGIONS(source, target, rng) <= 88


def crossings(nearer_percent: int) -> int:
    """Tree links between child and parent, over all trees, that cross from one region to the other."""
    config = OverlayConfig(base_bits=2, leaf_set_size=8, nearer_percent=nearer_percent)
    world = Simulator(random.Random(11), config, REGIONS)
    world.add("n0")
    for number in range(1, 60):
        world.run(200)
        world.add(f"n{number}", [f"n{world.rng.randrange(number // 2 + 1)}"])
    assert world.run_until(world.all_ready, 30_000)
    world.run(60_000)
    topics = [key_of(b"topic %d" % number) for number in range(20)]
    for topic in topics:
        for overlay in world.running():
            world.perform(overlay.me.address, overlay.subscribe(topic, world.now))
    world.run(10_000)
    links = [(o.me.address, o.parent(topic)) for o in world.running() for topic in topics]
    assert sum(parent is None for _, parent in links) == len(topics)
    return sum(region(child) != region(parent) for child, parent in links if parent is not None)


def test_trees_prefer_parents_in_their_own_region() -> None:
    assert crossings(nearer_percent=20) < 0.75 * crossings(nearer_percent=100)
