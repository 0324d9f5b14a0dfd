"""Jobs in a simulated world: where their trees have their roots, what shape the trees have, and how soon they
are whole again after a crash."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lab.overlay.oracles import tree_faults
from lab.overlay.world import Simulator
from overlay.placement import candidates, choose

_LOOK_MS = 50
"""How exactly times are told."""


@dataclass(frozen=True)
class TreeShape:
    """Depth in edges from the root, of all nodes of all trees; the most children that a node has in one."""

    depth_mean: float
    depth_max: int
    fanout_max: int


@dataclass(frozen=True)
class Jobs:
    """What became of the jobs.

    ``roots``: of the placed ones, by two choices, in the order of their coming; ``first``: their roots, had
    the first key alone been asked. ``trees``: of some of them, each node's parent (the root's is itself),
    before the crash; ``ungrown`` of them never came to rest. ``recovery_seconds``: of each of these trees
    that became whole again, from the crash on; ``unrepaired`` of them did not.
    """

    unplaced: int
    roots: tuple[str, ...]
    first: tuple[str, ...]
    ungrown: int
    trees: tuple[dict[str, str], ...]
    shape: TreeShape
    unrepaired: int = 0
    recovery_seconds: tuple[float, ...] = ()


def job_keys(count: int) -> Iterator[tuple[bytes, ...]]:
    """The candidate keys of each of so many jobs."""
    return (candidates(b"job %d" % number) for number in range(count))


def place(keys: Sequence[tuple[bytes, ...]], ends: Mapping[bytes, str]) -> list[tuple[bytes, str, str]]:
    """For each job whose keys all ended somewhere: the key that it takes, its root, and the first key's
    root."""
    loads: Counter[str] = Counter()
    placed = []
    for choices in keys:
        if not all(key in ends for key in choices):
            continue
        roots = [ends[key] for key in choices]
        taken = choose([loads[root] for root in roots])
        loads[roots[taken]] += 1
        placed.append((choices[taken], roots[taken], roots[0]))
    return placed


def grow(world: Simulator, topics: Sequence[bytes], limit_ms: int) -> list[int | None]:
    """Let every node take part in these trees; when each was whole, as :func:`first_times` tells."""
    for overlay in world.running():
        for topic in topics:
            world.perform(overlay.me.address, overlay.subscribe(topic, world.now))
    return first_times(world, [whole(world, topic) for topic in topics], limit_ms)


def whole(world: Simulator, topic: bytes) -> Callable[[], bool]:
    """A condition: the tree has no fault, and every node that runs is in it."""
    return lambda: not tree_faults(world, topic, [overlay.me.address for overlay in world.running()])


def first_times(
    world: Simulator, conditions: Sequence[Callable[[], bool]], limit_ms: int
) -> list[int | None]:
    """Let time pass until each condition held once: after how many ms; None for those that never did."""
    start = world.now
    times: list[int | None] = [None] * len(conditions)

    def all_held() -> bool:
        for number, condition in enumerate(conditions):
            if times[number] is None and condition():
                times[number] = world.now - start
        return None not in times

    world.run_until(all_held, limit_ms, every_ms=_LOOK_MS)
    return times


def parents(world: Simulator, topic: bytes) -> dict[str, str]:
    """Each node of a tree and its parent; a root's is itself."""
    return {
        overlay.me.address: overlay.parent(topic) or overlay.me.address
        for overlay in world.running()
        if topic in overlay.topics()
    }


def shape(trees: Sequence[dict[str, str]]) -> TreeShape:
    """The shape of trees that are whole."""
    depths = [_depth(tree, node) for tree in trees for node in tree]
    fanouts = [
        count
        for tree in trees
        for count in Counter(above for node, above in tree.items() if above != node).values()
    ]
    return TreeShape(
        depth_mean=round(sum(depths) / len(depths), 4) if depths else 0.0,
        depth_max=max(depths, default=0),
        fanout_max=max(fanouts, default=0),
    )


def _depth(tree: dict[str, str], node: str) -> int:
    """Edges up to the root; at most as many as there are nodes, whatever the tree links say."""
    depth = 0
    while tree.get(node, node) != node and depth < len(tree):
        node, depth = tree[node], depth + 1
    return depth
