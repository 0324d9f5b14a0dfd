"""The static model's figures: hops, trees and balance of one size of ring, from one seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from elf.cli.pictures import depths
from lab.overlay.simulator import Hops, Lookups, TreeShape
from lab.pictures.scene import fanouts
from lab.sim.balance import ARRIVALS_PER_S, place, places, shares
from lab.sim.ring import Nodes, StaticRing, random_ids
from overlay.config import OverlayConfig

RINGS: Final = 20
"""Balance is the mean over so many rings: one ring of 1,280 nodes is 0.3 points off."""
TREES: Final = 8


@dataclass(frozen=True)
class Balance:
    """Trees → share of nodes below the paper's bound: one key a tree; two, loads known exactly; two, loads
    known as of a heartbeat ago."""

    plain: dict[str, float]
    chosen: dict[str, float]
    stale: dict[str, float]


@dataclass(frozen=True)
class Model:
    """What a ring at rest is like. ``parents`` is the first tree (node → parent), ``first`` and ``roots``
    where one ring's trees have their roots by one key and by two."""

    ring: StaticRing
    hops: Hops
    lookups: Lookups
    tree: TreeShape
    balance: Balance
    parents: Nodes
    first: Nodes
    roots: Nodes


def measure(nodes: int, keys: int, trees: int, seed: int, config: OverlayConfig | None = None) -> Model:
    """Route ``keys`` random keys from random nodes, make ``TREES`` trees with every node in them, and place
    ``trees`` of them on each of ``RINGS`` rings. A million nodes take about 20 s and 200 MB.

    ValueError for sizes that make no ring.
    """
    if nodes < 1 or keys < 1 or trees < 0:
        raise ValueError("at least one node and one key, no negative number of trees")
    config = config or OverlayConfig()
    rng = np.random.default_rng(seed)
    ring = StaticRing(random_ids(nodes, rng), config, seed)
    hops, lookups = _look_up(ring, keys, rng)
    topics = rng.integers(0, 1 << 64, TREES, dtype=np.uint64)
    forest = [ring.parents(topic) for topic in topics]
    candidates = places(ring, trees, rng)
    return Model(
        ring=ring,
        hops=hops,
        lookups=lookups,
        tree=_shape(forest),
        balance=balance(nodes, trees, seed, config),
        parents=forest[0],
        first=candidates[:, 0],
        roots=np.array(place(candidates.tolist()), np.int64),
    )


def balance(nodes: int, trees: int, seed: int, config: OverlayConfig | None = None) -> Balance:
    """Mean shares over ``RINGS`` rings."""
    config = config or OverlayConfig()
    lag = ARRIVALS_PER_S * config.heartbeat_ms // 1000
    found: dict[str, list[dict[str, float]]] = {"plain": [], "chosen": [], "stale": []}
    for number in range(RINGS):
        rng = np.random.default_rng((seed, number))
        candidates = places(StaticRing(random_ids(nodes, rng), config), trees, rng)
        in_order = candidates.tolist()
        found["plain"].append(shares(nodes, candidates[:, 0]))
        found["chosen"].append(shares(nodes, place(in_order)))
        found["stale"].append(shares(nodes, place(in_order, lag)))
    return Balance(**{way: _mean(rings) for way, rings in found.items()})


def _look_up(ring: StaticRing, keys: int, rng: np.random.Generator) -> tuple[Hops, Lookups]:
    numbers = rng.integers(0, 1 << 64, keys, dtype=np.uint64)
    ends, hops = ring.routes(rng.integers(0, len(ring), keys), numbers)
    histogram = np.bincount(hops)
    spread = Hops(
        mean=round(float(hops.mean()), 4),
        p999=int(np.sort(hops)[(keys - 1) * 999 // 1000]),
        max=int(hops.max()),
        histogram=tuple(histogram.tolist()),
    )
    wrong = int((ends != ring.closest(numbers)).sum())
    return spread, Lookups(total=keys, wrong=wrong, lost=0, doubled=0)


def _shape(forest: list[Nodes]) -> TreeShape:
    depth = [depths(parents) for parents in forest]
    return TreeShape(
        depth_mean=round(float(np.mean([one.mean() for one in depth])), 4),
        depth_max=int(max(one.max() for one in depth)),
        fanout_max=int(max(fanouts(parents).max() for parents in forest)),
    )


def _mean(rings: list[dict[str, float]]) -> dict[str, float]:
    return {trees: round(float(np.mean([ring[trees] for ring in rings])), 5) for trees in rings[0]}
