"""Nodes of the buffer tree: leaves and inner nodes, their packed buffers, and how rows sink through them.

An (a, b)-tree over the hash (paper, section 2.2 and Figure 5). Rows are appended to the buffer of a node and
stay there until it is full. Then its runs are merged, equal keys combined, and the result is cut by the hash
ranges of the children and appended to theirs. A full leaf is compacted and, if it is still more than half
full, split at changes of hash; a node with too many children is split in turn.

Rules: every buffer here is packed; all leaves have one depth; a node covers the hashes from its ``low`` up to
the ``low`` of its right neighbour. A full node need not be relieved at once, but is never forgotten: it and
all nodes above it are ``owing``. Recursion goes as deep as the tree is high: at most 64 levels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from elf.cbt.combine import HASH
from elf.cbt.pack import pack, unpack
from elf.cbt.run import Layout, split_at, split_evenly, weight
from elf.cbt.spill import Piece, Shelf
from elf.errors import ElfBug, ElfError

HASH_END = 1 << 64

_LEAF_PARTS = 4
"""A full leaf is cut into about so many: so rows are merged 4/3 times on their way to their last leaf."""


@dataclass
class Buffer:
    """Packed runs. ``rows`` and ``weight`` are sums over them (weight as if not packed)."""

    pieces: list[Piece] = field(default_factory=list)
    rows: int = 0
    weight: int = 0


@dataclass
class Leaf:
    """``solid``: its weight when it could not be split (one hash, one huge row). Only twice that is full."""

    low: int
    buffer: Buffer = field(default_factory=Buffer)
    solid: int = 0


@dataclass
class Inner:
    """At least two children, from left to right; the first has this node's own ``low``.

    ``owing``: this node or one below it may be full.
    """

    low: int
    children: list[Node]
    buffer: Buffer = field(default_factory=Buffer)
    owing: bool = False


Node = Leaf | Inner


class Fuel:
    """Rows that may be merged. A merge is begun only if what is left pays for it; after the first that is not
    begun, none is."""

    def __init__(self, rows: int) -> None:
        self.left = rows
        self.spent = 0
        self.missing = 0
        """The rows of the merge that was not begun; 0 if there was none."""
        self.error: ElfError | None = None
        """Why a merge failed. It left everything as it was."""

    def take(self, rows: int) -> bool:
        if self.error or self.missing or rows > self.left:
            self.missing = self.missing or rows
            return False
        self.left -= rows
        self.spent += rows
        return True


def leaves(node: Node) -> Iterator[Leaf]:
    """From left to right."""
    if isinstance(node, Leaf):
        yield node
        return
    for child in node.children:
        yield from leaves(child)


def buffers(node: Node) -> Iterator[Buffer]:
    yield node.buffer
    if isinstance(node, Inner):
        for child in node.children:
            yield from buffers(child)


def height(node: Node | None) -> int:
    """Levels of buffers below the root's."""
    levels = 0 if node is None else 1
    while isinstance(node, Inner):
        node, levels = node.children[0], levels + 1
    return levels


class Sinking:
    """The moves of rows through nodes, for one layout, one size of node and one shelf."""

    def __init__(self, layout: Layout, node_bytes_max: int, fanout: int, shelf: Shelf) -> None:
        self._layout = layout
        self._max = node_bytes_max
        self._fanout = fanout
        self.shelf = shelf

    # -- buffers ---------------------------------------------------------------------------------------------

    def append(self, buffer: Buffer, run: pa.Table, *, passing: bool = False) -> None:
        """Pack a run, with or without its hashes, into a buffer. ``passing``: it soon goes on from there."""
        rows = run.drop_columns([HASH]) if run.column_names[:1] == [HASH] else run
        buffer.pieces.append(self.shelf.keep(pack(rows, passing=passing), rows.num_rows, rows.schema))
        buffer.rows += rows.num_rows
        buffer.weight += weight(rows)

    def read(self, buffer: Buffer) -> list[pa.Table]:
        """The runs of a buffer, without hashes, in today's types. Raises ``SpillError``."""
        return [self._layout.current(unpack(self.shelf.open(piece), piece.schema)) for piece in buffer.pieces]

    def clear(self, buffer: Buffer) -> None:
        """Forget what a buffer holds."""
        self.shelf.drop(buffer.pieces)
        buffer.pieces, buffer.rows, buffer.weight = [], 0, 0

    def leaf_of(self, low: int, run: pa.Table) -> Leaf:
        """A leaf that holds one run."""
        leaf = Leaf(low)
        self.append(leaf.buffer, run)
        return leaf

    def discard(self, top: Node | None) -> None:
        """Forget what all buffers of a tree hold."""
        if top is not None:
            for buffer in buffers(top):
                self.clear(buffer)

    # -- sinking ---------------------------------------------------------------------------------------------

    def add(self, node: Node, run: pa.Table) -> None:
        """Put a run, with its hashes, into the top node: an inner one passes it on to its children."""
        if isinstance(node, Leaf):
            self.append(node.buffer, run)
        else:
            self._scatter(node, run)

    def work(self, node: Node, fuel: Fuel) -> list[Node]:
        """Relieve full nodes, as far as the fuel goes. Returns what takes the node's place: itself, and its
        new right neighbours if it was split."""
        if isinstance(node, Leaf):
            return self._split_leaf(node, fuel) if self._full(node) else [node]
        if self._full(node):
            self._sink_by(node, fuel)
        if not node.owing:
            return [node]
        node.children = [
            fresh
            for child in node.children
            for fresh in (self.work(child, fuel) if self.owes(child) else [child])
        ]
        node.owing = self._full(node) or any(map(self.owes, node.children))
        return self._divide(node, fuel)

    def grow(self, nodes: list[Node]) -> Node:
        """One node over neighbours of like depth."""
        while len(nodes) > 1:
            nodes = self._bundle(nodes)
        return nodes[0]

    def owes(self, node: Node) -> bool:
        """Whether the node is full, or a node below it."""
        return self._full(node) if isinstance(node, Leaf) else node.owing

    def _sink_by(self, node: Inner, fuel: Fuel) -> None:
        if fuel.take(node.buffer.rows):
            try:
                self.sink(node)
            except ElfError as error:
                fuel.error = error

    def drain(self, node: Node) -> None:
        """Empty the buffers of all inner nodes into the leaves."""
        if isinstance(node, Inner):
            self.sink(node)
            for child in node.children:
                self.drain(child)
            node.owing = any(map(self.owes, node.children))

    def sink(self, node: Inner) -> None:
        """Empty an inner node's buffer into its children's."""
        if node.buffer.pieces:
            run = self._layout.sort(self.read(node.buffer))
            self.clear(node.buffer)
            self._scatter(node, run)

    def merged(self, leaf: Leaf) -> pa.Table:
        """The contents of a non-empty leaf, as one run without hashes. The leaf stays as it is."""
        runs = self.read(leaf.buffer)
        return runs[0] if len(runs) == 1 else self._layout.sort(runs).drop_columns([HASH])

    def _scatter(self, node: Inner, run: pa.Table) -> None:
        parts = split_at(run, [child.low for child in node.children[1:]])
        for child, part in zip(node.children, parts, strict=True):
            if part.num_rows:
                self.append(child.buffer, part, passing=isinstance(child, Inner))
                if self._full(child):
                    node.owing = True
                    if isinstance(child, Inner):
                        child.owing = True

    def _full(self, node: Node) -> bool:
        return node.buffer.weight > (max(self._max, 2 * node.solid) if isinstance(node, Leaf) else self._max)

    def _split_leaf(self, leaf: Leaf, fuel: Fuel) -> list[Node]:
        if not fuel.take(leaf.buffer.rows):
            return [leaf]
        try:
            run = self._layout.sort(self.read(leaf.buffer))
        except ElfError as error:
            fuel.error = error
            return [leaf]
        keep = weight(run) <= self._max // 2
        parts = [run] if keep else split_evenly(run, max(1, self._max // _LEAF_PARTS))
        self.clear(leaf.buffer)
        lows = [leaf.low, *(int(part[HASH][0].as_py()) for part in parts[1:])]
        fresh = [self.leaf_of(low, part) for low, part in zip(lows, parts, strict=True)]
        for each in fresh:
            each.solid = each.buffer.weight if each.buffer.weight > self._max else 0
        return [*fresh]

    def _divide(self, node: Inner, fuel: Fuel) -> list[Node]:
        """Split a node of too many children, once its buffer is empty. It stays owing until then."""
        if len(node.children) <= self._fanout:
            return [node]
        if node.buffer.pieces:
            node.owing = True
            self._sink_by(node, fuel)
        return [node] if node.buffer.pieces else self._bundle(node.children)

    def _bundle(self, nodes: list[Node]) -> list[Node]:
        """Inner nodes over neighbours, each of half to all of the fanout (or as many as there are)."""
        count = -(-len(nodes) // self._fanout)
        edges = [i * len(nodes) // count for i in range(count + 1)]
        groups = [nodes[a:b] for a, b in pairwise(edges)]
        return [Inner(group[0].low, group, owing=any(map(self.owes, group))) for group in groups]

    # -- invariants ------------------------------------------------------------------------------------------

    def check(self, node: Node, low: int = 0, high: int = HASH_END) -> int:
        """Raise ``ElfBug`` if an invariant is broken; else the height."""
        if node.low != low or low >= high:
            raise ElfBug(f"a node begins at {node.low}, not at {low}, and ends at {high}")
        runs = self.read(node.buffer)
        for run in runs:
            self._layout.check_run(run, low, high)
        if sum(run.num_rows for run in runs) != node.buffer.rows:
            raise ElfBug("a buffer miscounts its rows")
        if isinstance(node, Leaf):
            return 0
        if not node.owing and (self._full(node) or any(map(self.owes, node.children))):
            raise ElfBug("a full buffer was forgotten")
        if len(node.children) < 2 or (len(node.children) > self._fanout and not node.owing):
            raise ElfBug(f"a node has {len(node.children)} children, not 2 to {self._fanout}")
        lows = [child.low for child in node.children[1:]]
        heights = {
            self.check(child, start, end)
            for child, start, end in zip(node.children, [low, *lows], [*lows, high], strict=True)
        }
        if len(heights) != 1:
            raise ElfBug("leaves lie at different depths")
        return heights.pop() + 1


Choice = Callable[[pa.Table], pa.ChunkedArray]
"""Which rows of a run go: a boolean for each, none NULL."""


def sever(sinking: Sinking, top: Node, chosen: Choice, bound: Callable[[], None]) -> list[pa.Table]:
    """Remove the chosen rows from a tree whose inner buffers are empty; returns them, merged, in order of
    hash, without hashes.

    A leaf without chosen rows is not touched; others are packed once, with the rest of their rows. Leaves
    that are empty now must be ``closed_up`` after. ``bound`` is called after each leaf, to keep to a limit on
    memory. If a merge fails, everything is put back and the error passed on.
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
    """The tree without its empty leaves; neighbours are joined where they weigh no more than that."""
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
