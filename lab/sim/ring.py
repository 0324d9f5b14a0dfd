"""A ring at rest: leaf sets are the sorted truth, and every table cell that some node could fill is filled.

Then the next hop is a function of node and key, ``overlay.pastry.Pastry.next_hop`` without a protocol, and
here it is one for arrays of nodes and keys at once. Nodes are numbers 0 … N - 1 in the order of their ids.

Rules:

- Ids are the first 64 bits of the overlay's 128: two of a million nodes share them once in 30 million rings,
  and such a ring is refused.
- A cell that several nodes could fill holds any one of them, drawn by a hash of (owner, cell, seed): the same
  each time, independent between nodes. (A real table prefers near ones; near is random on the ring.)
- Memory is bounded by N and by slices of ``_SLICE`` routes, not by the number of routes.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from overlay.config import OverlayConfig

Ids = npt.NDArray[np.uint64]
Nodes = npt.NDArray[np.int64]

ID_BITS: Final = 64
_SLICE: Final = 1 << 17
_RARE_SLICE: Final = 1 << 13
"""Routes that find an empty cell look at all that their node knows, some 200 peers."""
_NOBODY: Final = -1


def random_ids(nodes: int, rng: np.random.Generator) -> Ids:
    """So many different ids, sorted."""
    found = np.unique(rng.integers(0, 1 << ID_BITS, nodes, dtype=np.uint64, endpoint=False))
    while len(found) < nodes:
        more = rng.integers(0, 1 << ID_BITS, nodes - len(found), dtype=np.uint64, endpoint=False)
        found = np.unique(np.concatenate([found, more]))
    return found


class StaticRing:
    """N nodes with perfect leaf sets and tables. ``config`` gives the digits and the size of leaf sets.

    Raises ValueError for no nodes, for ids that are equal in 64 bits, and for digits that do not divide 64.
    """

    def __init__(self, ids: Ids, config: OverlayConfig | None = None, seed: int = 0) -> None:
        config = config or OverlayConfig()
        self.ids = np.sort(ids)
        self._bits = config.base_bits
        self._size = config.leaf_set_size
        self._seed = _mix(np.array([seed], np.uint64))
        if not len(ids):
            raise ValueError("a ring needs at least one node")
        if (self.ids[1:] == self.ids[:-1]).any():
            raise ValueError("two ids are equal in their first 64 bits")
        if ID_BITS % self._bits:
            raise ValueError(f"digits of {self._bits} bits do not divide {ID_BITS}")
        near = self.ids[1:] ^ self.ids[:-1]
        self._rows = 1 + int(self._shared(near).max()) if len(near) else 0
        """Rows of the deepest table: no two nodes share more digits than two neighbours do."""

    def __len__(self) -> int:
        return len(self.ids)

    def closest(self, keys: Ids) -> Nodes:
        """The node numerically closest to each key: where its route ends, the root of its tree."""
        after = np.searchsorted(self.ids, keys) % len(self)
        before = (after - 1) % len(self)
        one, other = self.ids[before], self.ids[after]
        near, far = _distance(keys, one), _distance(keys, other)
        first = (near < far) | ((near == far) & (one < other))
        return np.where(first, before, after).astype(np.int64)

    def next_hop(self, nodes: Nodes, keys: Ids) -> Nodes:
        """For each (node, key), the node that it hands the key to: itself where the route ends.

        Both arrays have one shape (n,), and so has the answer.
        """
        found = np.empty(len(nodes), np.int64)
        for start in range(0, len(nodes), _SLICE):
            part = slice(start, start + _SLICE)
            found[part] = self._hops(nodes[part], keys[part])
        return found

    def routes(self, nodes: Nodes, keys: Ids) -> tuple[Nodes, npt.NDArray[np.int8]]:
        """Follow each key from its node: where the route ends, and after how many hops."""
        at = nodes.astype(np.int64, copy=True)
        hops = np.zeros(len(at), np.int8)
        moving = np.arange(len(at))
        while len(moving):
            onward = self.next_hop(at[moving], keys[moving])
            gone = onward != at[moving]
            moving = moving[gone]
            at[moving] = onward[gone]
            hops[moving] += 1
        return at, hops

    def parents(self, key: np.uint64) -> Nodes:
        """The tree of a key in which every node takes part: node → parent, the root's being itself."""
        everybody = np.arange(len(self), dtype=np.int64)
        return self.next_hop(everybody, np.broadcast_to(np.uint64(key), len(self)))

    def entry(self, nodes: Nodes, row: Ids, column: Ids) -> Nodes:
        """Who stands in a cell of each node's table; ``_NOBODY`` where no node belongs."""
        me, shift, bits = self.ids[nodes], self._shift(row), np.uint64(self._bits)
        first = ((me >> shift >> bits << bits) | column) << shift
        last = first | ((np.uint64(1) << shift) - np.uint64(1))
        low = np.searchsorted(self.ids, first)
        count = np.searchsorted(self.ids, last, side="right") - low
        draw = _mix(me ^ _mix(first ^ self._seed)) % np.maximum(count, 1).astype(np.uint64)
        return np.where(count > 0, low + draw.astype(np.int64), _NOBODY)

    # -- the parts -------------------------------------------------------------------------------------------

    def _hops(self, nodes: Nodes, keys: Ids) -> Nodes:
        found = self.closest(keys)
        if len(self) - 1 < self._size:
            return found
        far = np.flatnonzero(~self._covered(nodes, keys))
        nodes, keys = nodes[far], keys[far]
        row = self._shared(self.ids[nodes] ^ keys)
        hop = self.entry(nodes, row, self._digit(keys, row))
        empty = np.flatnonzero(hop == _NOBODY)
        for start in range(0, len(empty), _RARE_SLICE):
            part = empty[start : start + _RARE_SLICE]
            hop[part] = self._nearest_known(nodes[part], keys[part], row[part])
        found[far] = hop
        return found

    def _covered(self, nodes: Nodes, keys: Ids) -> npt.NDArray[np.bool_]:
        """Whether a key lies between the farthest leaves of its node."""
        me, half = self.ids[nodes], self._size // 2
        successor = self.ids[(nodes + half) % len(self)] - me
        predecessor = self.ids[(nodes - half) % len(self)] - me
        ahead = keys - me
        return ~((successor < ahead) & (ahead < predecessor))

    def _shared(self, differing: Ids) -> Ids:
        """How many leading digits two ids have in common, given their exclusive or."""
        smeared = differing.copy()
        for shift in (1, 2, 4, 8, 16, 32):
            smeared |= smeared >> np.uint64(shift)
        length = np.bitwise_count(smeared).astype(np.uint64)
        return (np.uint64(ID_BITS) - length) // np.uint64(self._bits)

    def _shift(self, row: Ids) -> Ids:
        return np.uint64(ID_BITS) - (row + np.uint64(1)) * np.uint64(self._bits)

    def _digit(self, numbers: Ids, row: Ids) -> Ids:
        return (numbers >> self._shift(row)) & np.uint64((1 << self._bits) - 1)

    def _nearest_known(self, nodes: Nodes, keys: Ids, row: Ids) -> Nodes:
        """The peer nearest to the key that shares as many digits with it as the node; the node if none is
        nearer."""
        known = np.hstack([nodes[:, None], self._leaves(nodes, keys, row), self._cells(nodes, row)])
        ids = self.ids[known]
        away = _distance(keys[:, None], ids)
        away[known == _NOBODY] = np.iinfo(np.uint64).max
        nearest = away == away.min(axis=1, keepdims=True)
        best = np.argmin(np.where(nearest, ids, np.iinfo(np.uint64).max), axis=1)
        return np.asarray(np.take_along_axis(known, best[:, None], axis=1)[:, 0])

    def _leaves(self, nodes: Nodes, keys: Ids, row: Ids) -> Nodes:
        half = self._size // 2
        offsets = np.concatenate([np.arange(-half, 0), np.arange(1, half + 1)])
        leaves = (nodes[:, None] + offsets) % len(self)
        return np.where(self._shared(self.ids[leaves] ^ keys[:, None]) >= row[:, None], leaves, _NOBODY)

    def _cells(self, nodes: Nodes, row: Ids) -> Nodes:
        """All entries of the rows from ``row`` down."""
        depth, width = self._rows, 1 << self._bits
        shape = (len(nodes), depth * width)
        owner = np.broadcast_to(nodes[:, None], shape).ravel()
        rows = np.broadcast_to(np.repeat(np.arange(depth, dtype=np.uint64), width), shape)
        columns = np.broadcast_to(np.tile(np.arange(width, dtype=np.uint64), depth), shape).ravel()
        wanted = (rows >= row[:, None]).ravel() & (columns != self._digit(self.ids[owner], rows.ravel()))
        found = np.full(shape[0] * shape[1], _NOBODY, np.int64)
        found[wanted] = self.entry(owner[wanted], rows.ravel()[wanted], columns[wanted])
        return found.reshape(shape)


def _distance(keys: Ids, ids: Ids) -> Ids:
    """Steps the short way round."""
    way = keys - ids
    short: Ids = np.minimum(way, np.uint64(0) - way)
    return short


def _mix(numbers: Ids) -> Ids:
    """Every bit of the answer depends on every bit of the number (SplitMix64, Steele and others 2014)."""
    mixed: Ids = numbers + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
