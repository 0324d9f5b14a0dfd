"""Trees of simulated nodes that stand in three regions, far apart."""

from __future__ import annotations

import random
from collections.abc import Sequence

from lab.overlay.oracles import tree_faults
from lab.overlay.world import Simulator, matrix
from overlay import OverlayConfig, key_of, node_id
from overlay.ids import closeness, to_int
from overlay.regions import key_of_head, region_of
from tests.support.worlds import names

TOPIC = key_of(b"clicks")
REGIONS = ("eu", "us", "ap")
APART_MS = {("eu", "us"): 40, ("eu", "ap"): 90, ("us", "ap"): 60}


def place_of(address: str) -> str:
    number = int(address[1:])
    return f"{REGIONS[number % 3]}/r{number % 2}"


def world_of(count: int, seed: int, *, fanout_max: int = 16, known: bool = True) -> Simulator:
    """Nodes in three regions, far apart; one of eu is the topic's host."""
    ms = APART_MS | {(one, one): 2 for one in REGIONS}
    world = Simulator(
        random.Random(seed),
        OverlayConfig(fanout_max=fanout_max),
        matrix(lambda address: region_of(place_of(address)), ms),
        check=True,
        place_of=place_of,
    )
    world.add("n0")
    for number in range(1, count):
        world.add(f"n{number}", ["n0"])
    assert world.run_until(world.all_ready, 20_000)
    world.run(1_000)
    if known:
        tell(world, names(world))
    return world


def tell(world: Simulator, addresses: Sequence[str]) -> None:
    for overlay in world.running():
        overlay.know_places({address: place_of(address) for address in addresses})


def crossings(world: Simulator) -> dict[str, int]:
    """How many tree links each region has to others."""
    found = dict.fromkeys(REGIONS, 0)
    for overlay in world.running():
        parent, ours = overlay.parent(TOPIC), region_of(place_of(overlay.me.address))
        if parent is not None and region_of(place_of(parent)) != ours:
            found[ours] += 1
    return found


def head_of(world: Simulator, region: str) -> str:
    key = to_int(key_of_head(TOPIC, region))
    ours = (name for name in names(world) if region_of(place_of(name)) == region)
    return min(ours, key=lambda name: closeness(key, node_id(name)))


def crosses_once(world: Simulator) -> bool:
    return not tree_faults(world, TOPIC, names(world)) and crossings(world) == {"eu": 0, "us": 1, "ap": 1}
