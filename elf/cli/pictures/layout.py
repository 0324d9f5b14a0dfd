"""What is drawn, as arrays, and where it stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]

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


@dataclass(frozen=True)
class Stand:
    """Where the nodes of a forest stand: ``depth`` below its root, and ``across``: leaves at 0, 1, 2 …,
    others in the middle of their children."""

    depth: Numbers
    across: Reals
    leaves: int


def depths(parents: Numbers) -> Numbers:
    """Edges between each node and the root of its tree."""
    at = np.arange(len(parents))
    depth = np.zeros(len(parents), np.int64)
    while (moving := parents[at] != at).any():
        depth += moving
        at = parents[at]
    return depth


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


def stand(parents: Numbers) -> Stand:
    """Lay a forest out so that no two edges cross; the larger subtrees come first."""
    depth = depths(parents)
    children: list[list[int]] = [[] for _ in parents]
    size = np.ones(len(parents), np.int64)
    for node in np.argsort(-depth, kind="stable").tolist():
        if parents[node] != node:
            size[parents[node]] += size[node]
            children[parents[node]].append(node)
    across = np.zeros(len(parents))
    leaves = 0
    waiting = [(int(root), False) for root in np.flatnonzero(parents == np.arange(len(parents)))[::-1]]
    while waiting:
        node, below_done = waiting.pop()
        if below_done:
            across[node] = (across[children[node][0]] + across[children[node][-1]]) / 2
        elif children[node]:
            children[node].sort(key=lambda child: (-size[child], child))
            waiting.append((node, True))
            waiting.extend((child, False) for child in reversed(children[node]))
        else:
            across[node] = leaves
            leaves += 1
    return Stand(depth, across, leaves)
