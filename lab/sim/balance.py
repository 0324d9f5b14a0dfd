"""Who roots how many trees: each tree at the one place of its name, or at the less loaded of two.

The choice is ``overlay.placement.choose``. Loads may be old: a tree is placed knowing what was placed until
``lag`` trees before it (so many come within a heartbeat).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from lab.pictures.scene import BOUNDS, loads
from lab.sim.ring import Nodes, StaticRing
from overlay.placement import CHOICES, choose

ARRIVALS_PER_S: Final = 100


def places(ring: StaticRing, trees: int, rng: np.random.Generator) -> Nodes:
    """The roots of each tree's candidates: (trees, choices) nodes."""
    keys = rng.integers(0, 1 << 64, (trees, CHOICES), dtype=np.uint64)
    return ring.closest(keys.ravel()).reshape(trees, CHOICES)


def place(candidates: Sequence[Sequence[int]], lag: int = 0) -> list[int]:
    """The root of each tree, one after the other. ``candidates``: for each tree, the roots of its keys.

    Loads are known without the last ``lag`` trees; 0 knows them exactly.
    """
    known: dict[int, int] = {}
    taken: list[int] = []
    for number, roots in enumerate(candidates):
        if number > lag:
            old = taken[number - lag - 1]
            known[old] = known.get(old, 0) + 1
        taken.append(roots[choose([known.get(root, 0) for root in roots])])
    return taken


def shares(nodes: int, roots: Sequence[int] | Nodes) -> dict[str, float]:
    """Trees → share of nodes below the paper's bound, when that many of these were placed; only sizes that
    there are."""
    return {
        str(trees): round(float((loads(nodes, roots[:trees]) < bound).mean()), 5)
        for trees, bound in BOUNDS.items()
        if trees <= len(roots)
    }
