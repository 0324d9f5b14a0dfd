"""Taking rows out of the nodes of a tree: a sealed pane leaves, the others stay where they are.

A leaf that gives nothing is not touched; one that gives some is packed once, with what stays. What has become
small is put together with its neighbour, piece beside piece: nothing is packed for that.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from elf.cbt.node import Leaf, Node, Sinking, leaves
from elf.errors import ElfError

Choice = Callable[[pa.Table], pa.ChunkedArray]
"""Which rows of a run go: a boolean for each, none NULL."""


def sever(sinking: Sinking, top: Node, chosen: Choice, bound: Callable[[], None]) -> list[pa.Table]:
    """Remove the chosen rows from a tree whose inner buffers are empty; returns them, merged, in order of
    hash, without hashes.

    Leaves that are empty now must be ``closed_up`` after. ``bound`` is called after each leaf, to keep to a
    limit on memory. If a merge fails, everything is put back and the error passed on.
    """
    taken: list[tuple[Leaf, pa.Table]] = []
    try:
        for leaf in leaves(top):
            run = sinking.merged(leaf)
            goes = chosen(run)
            gone = run.filter(goes)
            if not gone.num_rows:
                continue
            sinking.clear(leaf.buffer)
            taken.append((leaf, gone))
            if gone.num_rows < run.num_rows:
                sinking.append(leaf.buffer, run.filter(pc.invert(goes)).combine_chunks())
            bound()
    except ElfError:
        for leaf, gone in taken:
            sinking.append(leaf.buffer, gone.combine_chunks())
        raise
    return [gone for _, gone in taken]


def closed_up(sinking: Sinking, top: Node, weight_max: int) -> Node | None:
    """The tree without its empty leaves, neighbours put together where they weigh no more than that."""
    fresh: list[Node] = []
    for leaf in leaves(top):
        if not leaf.buffer.pieces:
            continue
        last = fresh[-1].buffer if fresh else None
        if last is not None and last.weight + leaf.buffer.weight <= weight_max:
            last.pieces += leaf.buffer.pieces
            last.rows += leaf.buffer.rows
            last.weight += leaf.buffer.weight
        else:
            fresh.append(Leaf(leaf.low if fresh else 0, leaf.buffer, leaf.solid))
    return sinking.grow(fresh) if fresh else None
