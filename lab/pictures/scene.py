"""What is drawn of a simulated overlay, as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from elf.cli.pictures import Numbers, Reals, depths

BOUNDS: Final = {500: 3, 1000: 5, 2000: 5}
"""Trees → the load below which the paper counts an agent (section 4.2, Figure 13)."""


@dataclass(frozen=True)
class Scene:
    """A simulated overlay. Nodes are numbers; ``places`` are theirs on the ring, in turns (0 ≤ place < 1).

    ``parents`` is one tree: node → parent, the root's being itself. ``roots`` are those of all trees by two
    choices, in their order; ``first`` had the first key alone decided.
    """

    places: Reals
    parents: Numbers
    first: Numbers
    roots: Numbers

    @property
    def root(self) -> int:
        """The root of the tree."""
        return int(np.flatnonzero(self.parents == np.arange(len(self.parents)))[0])

    @property
    def bound(self) -> tuple[int, int]:
        """(trees, bound): how many of the trees balance is shown for, and the paper's bound for them.

        With fewer trees than the paper had, all are shown, against its first bound.
        """
        known = [(trees, bound) for trees, bound in BOUNDS.items() if trees <= len(self.roots)]
        return known[-1] if known else (len(self.roots), next(iter(BOUNDS.values())))

    def load_shares(self) -> tuple[Reals, Reals]:
        """Share of nodes by the trees that they root, 0 …: with one key, with two. Of one length."""
        trees, _ = self.bound
        counts = [
            np.bincount(loads(len(self.places), roots[:trees])) / len(self.places)
            for roots in (self.first, self.roots)
        ]
        most = max(map(len, counts))
        first, chosen = (np.pad(count, (0, most - len(count))) for count in counts)
        return first, chosen


def fanouts(parents: Numbers) -> Numbers:
    """Children of each node."""
    below = parents[parents != np.arange(len(parents))]
    return np.bincount(below, minlength=len(parents))


def loads(nodes: int, roots: Sequence[int] | Numbers) -> Numbers:
    """Trees of each node."""
    return np.bincount(np.asarray(roots, np.int64), minlength=nodes)


def nearest_to_root(parents: Numbers, most: int) -> tuple[Numbers, Numbers]:
    """The top of a tree, at most so many nodes: (their numbers, their parents as places among them)."""
    kept = np.argsort(depths(parents), kind="stable")[:most]
    place = np.full(len(parents), -1, np.int64)
    place[kept] = np.arange(len(kept))
    return kept, place[parents[kept]]
