"""The compressed buffer tree: a group-by that takes rows lazily and keeps its groups compressed.

Paper, section 2.2 and Figure 5: rows are appended to the root's buffer, the only one that is not compressed.
Full buffers are sorted by key hash, combined, and emptied into the buffers of the children; `flush` reads
everything, `empty` forgets it. This module knows only what is needed to combine rows: no streams, no jobs, no
clock.

Work is paid for as it is caused. A row is merged once in the root's buffer and once in each inner level's. A
leaf is merged when it is full; after a merge it is at most half full, so at least half of what is merged
there is new: two rows a row. An insert of n rows into a tree of h levels below the root therefore causes at
most n (h + 1) rows of merging below the root, in the long run, and does up to n (h + 2): what is owed never
grows without bound. A node is merged whole or not at all, and what an insert could not spend is saved while
something is owed; so the longest stall is the root's buffer and one node more than that.

The tree is not safe to share among threads. Reading merges the runs of a leaf, and stores nothing: `flush` is
O(n log n) for n rows held.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from elf.aggregates import State
from elf.cbt import image
from elf.cbt.finals import Asked, Finals
from elf.cbt.node import Fuel, Inner, Leaf, Node, Sinking, buffers, closed_up, height, leaves, sever
from elf.cbt.rootbuffer import PART_ROWS, RootBuffer
from elf.cbt.run import Layout, weight
from elf.cbt.spill import Shelf, SpillStore
from elf.errors import ElfBug, ElfError, PeerError
from elf.keys import KeyHash, hash_keys

NODE_BYTES_MAX = 4 << 20
FANOUT = 64

_ROOT_NODES = 2
"""The root's buffer is as large as that many nodes: emptied, it gives each child a run worth compressing."""

_WORKING_ROOTS = 6
"""Working space within a memory limit, in root buffers: itself, its copies while it is sorted, and what the
allocators hold back."""

_ROOT_BYTES_MIN = 256 << 10
_ROOT_PART = 8
"""Of what a tree may hold the root's buffer is one part in so many, but for a buffer of the least size."""

_GAP_ROOTS = 4
"""Up to so much more, but at most three quarters of the rest, is for the gaps that removed pieces leave."""


class BufferTree:
    """A group-by over everything inserted so far.

    ``aggregates`` are (name, column): ``("count", None)`` for COUNT(*), else ``count``, ``sum``, ``min``,
    ``max`` or ``avg`` of a column; or (an object of a ``PAO``, its column or columns). Results are named
    ``count``, ``sum_n`` and so on, those of one's own by their class in lower case, ``product_n``; sums of
    integers are decimal128(38, 0), exact. ``node_bytes_max``: weight of a full buffer before compression, in
    bytes (plus 16 a row); ``fanout``: children of a node, at least 4. ``memory_max_bytes`` bounds what the
    tree takes in memory, working space of twelve nodes included; past it buffers are put into ``store``.
    ``hash_keys`` is there for tests that need collisions.

    Any call that merges may raise ``SumOverflow`` (its rows are kept, but there is no answer to give before
    ``empty``), ``UserError`` where an aggregate of one's own fails, ``SpillError`` where there is a store.
    """

    def __init__(
        self,
        keys: Sequence[str],
        aggregates: Sequence[Asked],
        *,
        node_bytes_max: int = NODE_BYTES_MAX,
        fanout: int = FANOUT,
        memory_max_bytes: int | None = None,
        store: SpillStore | None = None,
        hash_keys: KeyHash = hash_keys,
    ) -> None:
        self._finals: Finals | None = Finals(keys, aggregates)
        self._start(keys, self._finals.states, node_bytes_max, fanout, hash_keys)
        self._limit(memory_max_bytes, store)

    @classmethod
    def of_partials(
        cls,
        keys: Sequence[str],
        states: Sequence[State],
        *,
        node_bytes_max: int = NODE_BYTES_MAX,
        fanout: int = FANOUT,
        memory_max_bytes: int | None = None,
        store: SpillStore | None = None,
        hash_keys: KeyHash = hash_keys,
    ) -> Self:
        """A tree over partial aggregates, as the map step of a flow yields them. Use ``insert_partials``."""
        tree = cls.__new__(cls)
        tree._finals = None
        tree._start(keys, states, node_bytes_max, fanout, hash_keys)
        tree._limit(memory_max_bytes, store)
        return tree

    def _start(
        self,
        keys: Sequence[str],
        states: Sequence[State],
        node_bytes_max: int,
        fanout: int,
        hash_keys: KeyHash,
    ) -> None:
        if node_bytes_max < 1 or fanout < 4:
            raise ValueError("node_bytes_max is at least 1 and fanout at least 4")
        self._layout = Layout(keys, states, hash_keys)
        self._sinking = Sinking(self._layout, node_bytes_max, fanout, Shelf())
        self._node_max = node_bytes_max
        self._root_max = node_bytes_max * _ROOT_NODES
        self._version = 0
        self._held_max: int | None = None
        self._clear()

    def _limit(self, memory_max_bytes: int | None, store: SpillStore | None) -> None:
        if (memory_max_bytes is None) != (store is None):
            raise ValueError("a memory limit needs a store, and a store a memory limit")
        self._store = store
        self._sinking.shelf = Shelf(store)
        self._resident_max: int | None = None
        if memory_max_bytes is not None:
            rest = memory_max_bytes - _WORKING_ROOTS * self._root_max
            self._resident_max = rest - min(rest * 3 // 4, _GAP_ROOTS * self._root_max)
            if rest < 0:
                raise ValueError(f"memory_max_bytes is at least {_WORKING_ROOTS * self._root_max} here")

    def _clear(self) -> None:
        self._root = RootBuffer(self._layout, self._root_weight_max())
        self._credit = 0
        self._top: Node | None = None

    # -- what it holds ---------------------------------------------------------------------------------------

    @property
    def rows(self) -> int:
        """Rows stored: 0 if there are no groups, otherwise at least the number of groups."""
        below = sum(buffer.rows for buffer in buffers(self._top)) if self._top else 0
        return below + self._root.rows

    @property
    def nbytes(self) -> int:
        """Bytes stored, in memory or spilled: compressed, except the root's buffer."""
        shelf = self._sinking.shelf
        return shelf.resident_bytes + shelf.spilled_bytes + self._root.nbytes

    @property
    def spilled_bytes(self) -> int:
        """How much of that is in the store."""
        return self._sinking.shelf.spilled_bytes

    @property
    def pinned_bytes(self) -> int:
        """How much of that cannot be put there."""
        return self._root.nbytes

    def bound(self, held_max_bytes: int | None) -> None:
        """From now on hold so many bytes in memory, within ``memory_max_bytes`` (None: as many as that); what
        is merged takes its space besides. Without a store nothing is bounded. Raises ``SpillError``."""
        if self._store is None or held_max_bytes == self._held_max:
            return
        self._held_max = held_max_bytes
        self._root.weight_max = self._root_weight_max()
        self._relieve_root()
        self._bound_memory()

    def _root_weight_max(self) -> int:
        if self._held_max is None:
            return self._root_max
        return min(self._root_max, max(self._held_max // _ROOT_PART, _ROOT_BYTES_MIN))

    # -- inserting -------------------------------------------------------------------------------------------

    def insert(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Add raw rows: the key columns and the columns that are aggregated; others are ignored.

        Raises ``ValueError`` where a column is missing or has another type than before.
        """
        if self._finals is None:
            raise ValueError("this tree is over partial aggregates: use insert_partials")
        self.insert_partials(self._finals.partials_of(batch))

    def insert_partials(self, table: pa.Table) -> None:
        """Add partial aggregates: key and state columns; rows of one key, here or from before, are merged."""
        rows = self._layout.inward(table)
        self._version += 1
        pieces = max(-(-weight(rows) // self._root_max), rows.num_rows // PART_ROWS)
        step = max(1, -(-rows.num_rows // max(1, pieces)))
        for start in range(0, rows.num_rows, step):
            part = rows.slice(start, step)
            self._root.combine(part)
            try:
                self._relieve_root()
                self.work(part.num_rows * (height(self._top) + 2))
            except ElfError:
                self._root.stuck = True
                self._root.append(rows.slice(start + step))
                raise

    def work(self, rows_max: int) -> int:
        """Merge full nodes that inserts have left, up to about so many rows; returns how many were merged.

        A node is merged whole. If the next one has more rows than are allowed, the allowance is saved for the
        next call, so that each call merges at most ``rows_max`` and what was saved, less than one node.
        """
        if self._top is None or not self._sinking.owes(self._top):
            return 0
        fuel = Fuel(self._credit + rows_max)
        self._top = self._sinking.grow(self._sinking.work(self._top, fuel))
        self._version += 1
        self._credit = min(fuel.left, fuel.missing)
        self._bound_memory()
        if fuel.error is not None:
            raise fuel.error
        return fuel.spent

    def _relieve_root(self) -> None:
        run = self._root.relieve() if self._root.full else None
        if run is not None:
            self._sink(run)

    def _sink(self, run: pa.Table) -> None:
        """Put all that the root's buffer holds into the nodes below."""
        if self._top is None:
            self._top = Leaf(0)
        self._sinking.add(self._top, run)
        self._root.replace()
        self._bound_memory()

    def _bound_memory(self) -> None:
        """Keep to the memory limit; what merging took for its work goes back to the system."""
        shelf, most = self._sinking.shelf, self._resident_max
        if most is not None and self._held_max is not None:
            most = min(most, max(0, self._held_max - self._root.weight_max))
        if most is not None and self._top and shelf.resident_bytes > most:
            pieces = (piece for buffer in buffers(self._top) for piece in buffer.pieces)
            shelf.spill(pieces, most * 7 // 8)
        pa.default_memory_pool().release_unused()

    # -- reading out -----------------------------------------------------------------------------------------

    def flush(self) -> pa.Table:
        """All groups so far: key columns, then one an aggregate; ordered by key hash. State is kept."""
        return pa.concat_tables([self._final(self._none()), *map(self._final, self._runs())])

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The same, a leaf at a time. The tree must not change meanwhile: that raises ``RuntimeError``."""
        for run in self._runs():
            yield from self._final(run).to_batches()

    def partials(self, *, few_rows: int = 0) -> pa.Table:
        """All groups as merged partial aggregates, ordered by key hash: key columns, then state columns. No
        more than ``few_rows`` rows are given as they came: in that order, keys perhaps in several."""
        few = self._root.loose() if self._top is None and self.rows <= few_rows else None
        runs = [self._layout.outward(run) for run in (self._runs() if few is None else few)]
        return pa.concat_tables(runs) if runs else self._layout.outward(self._none())

    def empty(self) -> None:
        """Forget everything but the types of the columns; what was spilled is taken out of the store."""
        self._version += 1
        self._sinking.discard(self._top)
        self._clear()

    def _none(self) -> pa.Table:
        return self._layout.schema.empty_table()

    def _final(self, run: pa.Table) -> pa.Table:
        rows = self._layout.outward(run)
        return rows if self._finals is None else self._finals.of_states(rows)

    def _runs(self) -> Iterator[pa.Table]:
        """Everything as runs without hashes, in order of hash, one at a time."""
        version = self._version
        for leaf in self._merged_leaves():
            yield leaf
            if self._version != version:
                raise RuntimeError("the tree changed while it was read")

    def _merged_leaves(self) -> Iterator[pa.Table]:
        self._drain()
        if self._top is None:
            yield from self._root.tables
            return
        read = 0
        for leaf in leaves(self._top):
            if leaf.buffer.pieces:
                yield self._sinking.merged(leaf)
                read += leaf.buffer.weight
                if read > self._root_max:
                    read = 0
                    self._bound_memory()

    def _drain(self) -> None:
        """Empty all buffers but the leaves'; without leaves, make one run of the root's."""
        if self._top is None:
            self._root.settle()
            return
        if self._root:
            self._sink(self._root.sort())
        self._sinking.drain(self._top)
        self._bound_memory()

    # -- taking out ------------------------------------------------------------------------------------------

    def split_off(self, key: str, below: int) -> pa.Table:
        """Remove and return, merged, all groups whose integer key column ``key`` is below ``below``.

        Ordered by key hash. All leaves are read; those that give some are written. Groups with NULL there
        stay. If a merge fails, nothing is removed.
        """
        name = self._layout.inner_keys[self._layout.keys.index(key)]

        def chosen(run: pa.Table) -> pa.ChunkedArray:
            return pc.fill_null(pc.less(run[name], below), False)

        self._version += 1
        self._drain()
        if self._top is not None:
            taken = sever(self._sinking, self._top, chosen, self._bound_memory)
            self._close_up()
        else:
            taken = [run.filter(chosen(run)) for run in self._root.tables]
            stay = [run.filter(pc.invert(chosen(run))).combine_chunks() for run in self._root.tables]
            self._root.replace(*stay)
        return pa.concat_tables([self._layout.outward(run) for run in (self._none(), *taken)])

    def _close_up(self) -> None:
        """As few nodes as the remaining rows need; none for so few that the root's buffer holds them."""
        assert self._top is not None
        self._top = closed_up(self._sinking, self._top, self._node_max // 2)
        few = min(self._node_max // 2, self._root.weight_max)
        if isinstance(self._top, Leaf) and self._top.buffer.weight <= few:
            run = self._sinking.merged(self._top)
            self._sinking.discard(self._top)
            self._top = None
            self._root.append(run)
        self._bound_memory()

    # -- durability ------------------------------------------------------------------------------------------

    def dump(self) -> bytes:
        """The tree with all of its buffers, for ``load`` of a tree with the same keys and aggregates.

        Nodes are copied as they are; the root's buffer is combined first, which many small inserts pay back.
        """
        if len(self._root.tables) > 1:
            self._root.settle()
        return image.write(self._layout, self._sinking, self._root.plain(), self._top)

    def load(self, data: bytes) -> None:
        """Become the tree that was dumped. On any other bytes raises ``PeerError`` and stays as it was."""
        before = dict(vars(self))
        schema, shelf = self._layout.schema, self._sinking.shelf
        self._clear()
        self._layout.forget_types()
        self._sinking.shelf = Shelf(self._store)
        try:
            pending, self._top = image.read(self._layout, self._sinking, data)
            for table in pending:
                self._root.append(table)
            self._bound_memory()
            self.check()
        except (ElfError, ValueError) as error:
            self._sinking.discard(self._top)
            vars(self).update(before)
            self._layout.schema, self._sinking.shelf = schema, shelf
            raise PeerError(f"not a whole tree: {error}") from error
        for buffer in buffers(before["_top"]) if before["_top"] is not None else ():
            shelf.drop(buffer.pieces)
        self._version += 1

    def check(self) -> None:
        """Raise ``ElfBug`` if an invariant is broken. Reads the whole tree."""
        self._root.check()
        if self._resident_max is not None and self._sinking.shelf.resident_bytes > self._resident_max:
            raise ElfBug("there is more in memory than may be")
        if self._top is None:
            return
        if isinstance(self._top, Inner) and self._top.buffer.pieces:
            raise ElfBug("the top node has a buffer beside the root's")
        if isinstance(self._top, Leaf) and not self._top.buffer.pieces:
            raise ElfBug("the tree has a leaf without rows")
        self._sinking.check(self._top)
        held = sum(piece.size for buffer in buffers(self._top) for piece in buffer.pieces)
        if held != self._sinking.shelf.resident_bytes + self._sinking.shelf.spilled_bytes:
            raise ElfBug("the shelf miscounts its bytes")
