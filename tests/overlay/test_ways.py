"""Trees that go to their host over another region: whom heads ask, and what becomes of a way."""

from __future__ import annotations

import pytest

from lab.overlay.oracles import tree_faults
from lab.overlay.world import Simulator
from overlay.regions import Way, region_of
from tests.overlay import plants
from tests.support.placed import TOPIC, crosses_once, head_of, place_of, world_of
from tests.support.worlds import host, names, subscribe

OVER_US = {TOPIC: Way("eu", {"ap": "us"})}
"""From ap over us to the host, which stands in eu."""
DIRECTLY = {TOPIC: Way("eu", {})}


def going(count: int, seed: int, *, way: dict[bytes, Way] = OVER_US, fanout_max: int = 16) -> Simulator:
    """A tree of nodes of three regions that has begun without a way."""
    world = world_of(count, seed, fanout_max=fanout_max)
    host(world, TOPIC, "n0")
    subscribe(world, TOPIC, names(world), top="n0")
    assert world.run_until(lambda: crosses_once(world), 15_000)
    go(world, way)
    return world


def go(world: Simulator, ways: dict[bytes, Way]) -> None:
    for overlay in world.running():
        overlay.know_ways(ways)


def goes(world: Simulator, **ways: str) -> bool:
    """Whether the tree is whole, and the only link of each region to another one goes to this one."""
    found = []
    for overlay in world.running():
        here, above = region_of(place_of(overlay.me.address)), overlay.parent(TOPIC)
        if above is not None and region_of(place_of(above)) != here:
            found.append((here, region_of(place_of(above))))
    return sorted(found) == sorted(ways.items()) and not tree_faults(world, TOPIC, names(world))


@pytest.mark.parametrize(("count", "seed", "fanout_max"), [(6, 1, 16), (30, 2, 16), (45, 3, 4)])
def test_a_head_asks_the_head_of_the_region_over_which_its_way_goes(
    count: int, seed: int, fanout_max: int
) -> None:
    world = going(count, seed, fanout_max=fanout_max)
    assert world.run_until(lambda: goes(world, ap="us", us="eu"), 15_000)
    world.run(30_000)
    assert goes(world, ap="us", us="eu"), "nobody climbs past the way"
    go(world, DIRECTLY)
    assert world.run_until(lambda: goes(world, ap="eu", us="eu"), 15_000)


def test_whoever_climbs_past_the_way_crosses_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    plants.climbs_past_the_way(monkeypatch)
    world = going(30, 2)
    assert world.run_until(lambda: goes(world, ap="us", us="eu"), 15_000)
    assert world.run_until(lambda: not goes(world, ap="us", us="eu"), 60_000)


def test_a_way_to_another_region_than_the_hosts_is_none() -> None:
    world = going(12, 4, way={TOPIC: Way("ap", {"us": "eu"})})
    world.run(10_000)
    assert goes(world, ap="eu", us="eu")
    go(world, {TOPIC: Way("eu", {"ap": "eu", "us": "us"})})
    world.run(10_000)
    assert goes(world, ap="eu", us="eu"), "nor does one lead over the target, or over itself"


def test_ways_turn_round_while_nodes_know_different_ones() -> None:
    world = going(24, 5)
    assert world.run_until(lambda: goes(world, ap="us", us="eu"), 15_000)
    for overlay in world.running():
        if region_of(place_of(overlay.me.address)) == "us":
            overlay.know_ways({TOPIC: Way("eu", {"us": "ap"})})
    world.run(15_000)
    go(world, {TOPIC: Way("eu", {"us": "ap"})})
    assert world.run_until(lambda: goes(world, us="ap", ap="eu"), 20_000)


def test_the_next_nearest_takes_over_and_without_any_the_way_is_direct() -> None:
    world = going(24, 6)
    assert world.run_until(lambda: goes(world, ap="us", us="eu"), 15_000)
    world.crash(head_of(world, "us"))
    assert world.run_until(lambda: goes(world, ap="us", us="eu"), 10_000)
    for name in names(world):
        if region_of(place_of(name)) == "us":
            world.crash(name)
    assert world.run_until(lambda: goes(world, ap="eu"), 30_000)
