"""Trees that go by regions: who is a head, and what becomes of a tree when one dies, or comes back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from lab.overlay.oracles import tree_faults
from overlay import key_of, node_id
from overlay.context import Context
from overlay.ids import Peer, closeness, to_int
from overlay.regions import Regions, key_of_head, region_of
from tests.overlay import plants
from tests.support.placed import TOPIC, crosses_once, crossings, head_of, place_of, tell, world_of
from tests.support.worlds import host, names, subscribe

RECOVERED_MS = 6_000
"""A crash is found within 3 s, as any; then its children ask the next one."""


@pytest.mark.parametrize(("count", "seed", "fanout_max"), [(6, 1, 16), (30, 2, 16), (45, 3, 4), (45, 4, 4)])
def test_each_border_is_crossed_once(count: int, seed: int, fanout_max: int) -> None:
    world = world_of(count, seed, fanout_max=fanout_max)
    host(world, TOPIC, "n0")
    subscribe(world, TOPIC, names(world), top="n0")
    assert world.run_until(lambda: crosses_once(world), 15_000), crossings(world)
    for region in ("us", "ap"):
        parent = world.nodes[head_of(world, region)].overlay.parent(TOPIC)
        assert region_of(place_of(parent or head_of(world, region))) != region
    world.run(30_000)
    assert crosses_once(world), "whoever climbs or is sent on does not cross"


def test_whoever_asks_the_host_crosses_the_border(monkeypatch: pytest.MonkeyPatch) -> None:
    plants.asks_the_host_from_anywhere(monkeypatch)
    world = world_of(24, 2)
    host(world, TOPIC, "n0")
    subscribe(world, TOPIC, names(world), top="n0")
    world.run(15_000)
    assert not tree_faults(world, TOPIC, names(world))
    assert not crosses_once(world)


def test_without_regions_a_tree_crosses_as_it_comes() -> None:
    world = world_of(30, 2, known=False)
    host(world, TOPIC, "n0")
    subscribe(world, TOPIC, names(world), top="n0")
    world.run(15_000)
    assert not tree_faults(world, TOPIC, names(world))
    assert sum(crossings(world).values()) > 6


@pytest.mark.parametrize("seed", range(4))
def test_the_next_nearest_is_the_head_of_a_region_whose_head_dies_and_the_first_one_again(seed: int) -> None:
    world = world_of(24, seed)
    host(world, TOPIC, "n0")
    subscribe(world, TOPIC, names(world), top="n0")
    assert world.run_until(lambda: crosses_once(world), 15_000)
    first = head_of(world, "us")
    world.crash(first)
    second = head_of(world, "us")
    assert world.run_until(lambda: crosses_once(world), RECOVERED_MS), crossings(world)
    assert world.nodes[second].overlay.children(TOPIC)
    world.add(first, ["n0"])
    assert world.run_until(world.all_ready, 10_000)
    tell(world, names(world))
    subscribe(world, TOPIC, [first], top="n0")
    assert world.run_until(lambda: crosses_once(world) and head_of(world, "us") == first, 30_000)
    assert region_of(place_of(world.nodes[first].overlay.parent(TOPIC) or "n1")) != "us"


def test_where_all_that_a_node_knows_of_in_its_region_are_gone_it_asks_the_host() -> None:
    world = world_of(24, 7)
    host(world, TOPIC, "n0")
    subscribe(world, TOPIC, names(world), top="n0")
    assert world.run_until(lambda: crosses_once(world), 15_000)
    ours = [name for name in names(world) if region_of(place_of(name)) == "us"]
    for name in ours[1:]:
        world.crash(name)
    left = world.nodes[ours[0]].overlay
    assert world.run_until(
        lambda: not tree_faults(world, TOPIC, names(world)) and left.parent(TOPIC) is not None, 20_000
    )
    assert region_of(place_of(left.parent(TOPIC) or "")) != "us"


def test_a_node_with_an_old_list_is_a_second_head_for_a_while() -> None:
    world = world_of(24, 5)
    host(world, TOPIC, "n0")
    second = [name for name in names(world) if region_of(place_of(name)) == "us"][2]
    told = {name: place_of(name) for name in names(world) if name == second or place_of(name)[:2] != "us"}
    world.nodes[second].overlay.know_places(told)
    subscribe(world, TOPIC, names(world), top="n0")
    world.run(10_000)
    assert not tree_faults(world, TOPIC, names(world))
    assert crossings(world)["us"] == 2
    tell(world, names(world))
    assert world.run_until(lambda: crosses_once(world), 10_000), "it goes below the first one"


def test_the_host_moves_to_another_region() -> None:
    world = world_of(24, 6)
    host(world, TOPIC, "n0")
    subscribe(world, TOPIC, names(world), top="n0")
    assert world.run_until(lambda: crosses_once(world), 15_000)
    new = next(name for name in names(world) if region_of(place_of(name)) == "us")
    host(world, TOPIC, new)
    for overlay in world.running():
        address = overlay.me.address
        if address == "n0":
            world.perform(address, overlay.unhost(TOPIC, world.now, new))
        elif address != new:
            world.perform(address, overlay.rehost(TOPIC, new, world.now))
    assert world.run_until(
        lambda: (
            not tree_faults(world, TOPIC, names(world)) and crossings(world) == {"eu": 1, "us": 0, "ap": 1}
        ),
        20_000,
    ), crossings(world)


def test_heads_are_found_without_a_look_at_all_nodes_of_the_region(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever avoids some finds the next nearest, as ``closeness`` orders them; to look at each of 1,000,
    for each tree and second, would hold the event loop."""
    me, far = Peer("n0", 1), "far:1"
    regions = Regions(cast(Context, SimpleNamespace(me=me)))
    ours = [f"n{number}" for number in range(1_000)]
    regions.know({**dict.fromkeys(ours, "eu/r1"), far: "us/r1"})
    looks = 0

    def counted(key: int, at: int) -> tuple[int, int]:
        nonlocal looks
        looks += 1
        return closeness(key, at)

    monkeypatch.setattr("overlay.regions.closeness", counted)
    for number in range(100):
        topic = key_of(f"t{number}".encode())
        key = to_int(key_of_head(topic, "eu"))
        nearest = sorted(ours, key=lambda name: closeness(key, node_id(name)))
        dead = {node_id(name) for name in nearest[: number % 4]}
        head = nearest[number % 4]
        assert regions.above(topic, far, dead.__contains__) == (far if head == "n0" else head)
    assert looks < 100 * 10
    small = Regions(cast(Context, SimpleNamespace(me=me)))
    small.know({"n0": "eu", "n1": "eu", "n2": "eu", far: "us"})
    for topic in (key_of(b"one"), key_of(b"two"), key_of(b"three")):
        key = to_int(key_of_head(topic, "eu"))
        order = sorted(("n0", "n1", "n2"), key=lambda name: closeness(key, node_id(name)))
        assert [name for _, name in small._nearest(small._in["eu"], key)] == order
