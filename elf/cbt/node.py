"""Nodes of the buffer tree: leaves and inner nodes, their compressed buffers, and how rows sink through them.

An (a, b)-tree over the hash (paper, section 2.2 and Figure 5). Rows are appended to the buffer of a node
and stay there until it is full; then its runs are merged, equal keys combined, and the result cut by the
hash ranges of the children and appended to theirs. A full leaf is compacted and, if it is still more than
half full, split at changes of hash; a node with too many children is split in turn.

Rules: every buffer here is compressed; all leaves have one depth; a node covers the hashes from its ``low``
up to the ``low`` of its right neighbour. Recursion goes as deep as the tree is high: at most 64 levels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import pyarrow as pa

from elf.batch import decode, encode
from elf.cbt.run import HASH, Layout, split_at, split_evenly, weight
from elf.errors import ElfBug

HASH_END = 1 << 64


@dataclass
class Buffer:
    """Runs, compressed. ``rows`` and ``weight`` are sums over them (weight as if not compressed)."""

    runs: list[bytes] = field(default_factory=list)
    rows: int = 0
    weight: int = 0

    @property
    def nbytes(self) -> int:
        return sum(map(len, self.runs))

    def append(self, run: pa.Table) -> None:
        self.runs.append(encode(run))
        self.rows += run.num_rows
        self.weight += weight(run)

    def read(self, layout: Layout) -> list[pa.Table]:
        return [layout.current(decode(run).combine_chunks()) for run in self.runs]

    def clear(self) -> None:
        self.runs, self.rows, self.weight = [], 0, 0


@dataclass
class Leaf:
    """``settled``: its weight when it was last one run. Only what came since may make it full again."""

    low: int
    buffer: Buffer = field(default_factory=Buffer)
    settled: int = 0


@dataclass
class Inner:
    """At least two children, from left to right; the first has this node's own ``low``."""

    low: int
    children: list[Node]
    buffer: Buffer = field(default_factory=Buffer)


Node = Leaf | Inner


def leaf_of(low: int, run: pa.Table) -> Leaf:
    """A leaf that holds one run."""
    leaf = Leaf(low)
    leaf.buffer.append(run)
    leaf.settled = leaf.buffer.weight
    return leaf


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


class Sinking:
    """The moves of rows through nodes, for one layout and one size of node."""

    def __init__(self, layout: Layout, node_bytes_max: int, fanout: int) -> None:
        self._layout = layout
        self._max = node_bytes_max
        self._fanout = fanout

    def add(self, node: Node, run: pa.Table) -> list[Node]:
        """Put a run into a node at the top, whose own buffer stays empty if it is an inner one; see
        ``relieve``."""
        if isinstance(node, Inner):
            return self._scatter(node, run)
        node.buffer.append(run)
        return self.relieve(node) if self._full(node) else [node]

    def grow(self, nodes: list[Node]) -> Node:
        """One node over neighbours of like depth."""
        while len(nodes) > 1:
            nodes = self._bundle(nodes)
        return nodes[0]

    def relieve(self, node: Node) -> list[Node]:
        """Empty a full node's buffer; what takes its place: itself, and its new right neighbours if it was
        split."""
        if isinstance(node, Leaf):
            return self._settle_leaf(node)
        run = self._layout.merge(node.buffer.read(self._layout))
        node.buffer.clear()
        return self._scatter(node, run)

    def settle(self, node: Node) -> list[Node]:
        """Sink everything down to the leaves and leave at most one run in each."""
        if isinstance(node, Leaf):
            return self._settle_leaf(node) if len(node.buffer.runs) > 1 else [node]
        if node.buffer.runs:
            for child, part in self._parts(node, self._layout.merge(node.buffer.read(self._layout))):
                child.buffer.append(part)
            node.buffer.clear()
        node.children = [fresh for child in node.children for fresh in self.settle(child)]
        return self._divide(node)

    def _scatter(self, node: Inner, run: pa.Table) -> list[Node]:
        for child, part in self._parts(node, run):
            child.buffer.append(part)
        node.children = [
            fresh
            for child in node.children
            for fresh in (self.relieve(child) if self._full(child) else [child])
        ]
        return self._divide(node)

    @staticmethod
    def _parts(node: Inner, run: pa.Table) -> list[tuple[Node, pa.Table]]:
        parts = split_at(run, [child.low for child in node.children[1:]])
        return [(c, part) for c, part in zip(node.children, parts, strict=True) if part.num_rows]

    def _full(self, node: Node) -> bool:
        limit = self._max
        if isinstance(node, Leaf):
            # A leaf that can't be split (keys of one hash, a huge key) is merged again only once it has
            # doubled.
            limit = max(limit, 2 * node.settled)
        return node.buffer.weight > limit

    def _settle_leaf(self, leaf: Leaf) -> list[Node]:
        run = self._layout.merge(leaf.buffer.read(self._layout))
        parts = split_evenly(run, max(1, self._max // 2))
        lows = [leaf.low, *(int(part[HASH][0].as_py()) for part in parts[1:])]
        return [leaf_of(low, part) for low, part in zip(lows, parts, strict=True)]

    def _divide(self, node: Inner) -> list[Node]:
        if len(node.children) <= self._fanout:
            return [node]
        if node.buffer.runs:
            raise ElfBug("a node was split before its buffer was empty")
        return self._bundle(node.children)

    def _bundle(self, nodes: list[Node]) -> list[Node]:
        """Inner nodes over neighbours, each of half to all of the fanout (or as many as there are)."""
        count = -(-len(nodes) // self._fanout)
        edges = [i * len(nodes) // count for i in range(count + 1)]
        return [Inner(nodes[a].low, nodes[a:b]) for a, b in pairwise(edges)]

    def check(self, node: Node, low: int = 0, high: int = HASH_END) -> int:
        """Raise ``ElfBug`` if an invariant is broken; else the height."""
        if node.low != low or low >= high:
            raise ElfBug(f"a node begins at {node.low}, not at {low}, and ends at {high}")
        if self._full(node):
            raise ElfBug("a full buffer was not emptied")
        runs = node.buffer.read(self._layout)
        for run in runs:
            self._layout.check_run(run, low, high)
        if sum(run.num_rows for run in runs) != node.buffer.rows:
            raise ElfBug("a buffer miscounts its rows")
        if isinstance(node, Leaf):
            return 0
        if not 2 <= len(node.children) <= self._fanout:
            raise ElfBug(f"a node has {len(node.children)} children, not 2 to {self._fanout}")
        lows = [child.low for child in node.children[1:]]
        heights = {
            self.check(child, start, end)
            for child, start, end in zip(node.children, [low, *lows], [*lows, high], strict=True)
        }
        if len(heights) != 1:
            raise ElfBug("leaves lie at different depths")
        return heights.pop() + 1
