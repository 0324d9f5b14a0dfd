"""The compressed buffer tree: a group-by that takes rows lazily and keeps its groups compressed.

Paper, section 2.2 and Figure 5: rows are appended to the root's buffer, which alone is not compressed; full
buffers are sorted by key hash, combined, and emptied into the buffers of the children; `flush` reads
everything out, `empty` forgets it. Only what is needed to combine rows is known here: no streams, no jobs,
no clock.

The tree is not safe to share among threads. Costs, with n rows inserted since the last flush: `insert` is
O(1) a row until the root's buffer is full, then O(root) for emptying it, and now and then more below;
`flush` is O(groups + n log n).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from elf.aggregates import State
from elf.cbt import image
from elf.cbt.finals import Finals
from elf.cbt.node import Inner, Leaf, Node, Sinking, buffers, leaf_of, leaves
from elf.cbt.run import HASH, Layout, weight
from elf.errors import ElfBug, ElfError, PeerError
from elf.keys import KeyHash, hash_keys

NODE_BYTES_MAX = 4 << 20
FANOUT = 16

_ROOT_NODES = 8
"""The root's buffer is that many nodes large: emptied, it gives each child a run worth compressing."""

_REPEATING = 0.5
"""Below that ratio of groups to rows a hash table is quicker than sorting."""


class BufferTree:
    """A group-by over everything inserted so far.

    ``aggregates`` are (name, column): ``("count", None)`` for COUNT(*), else ``count``, ``sum``, ``min``,
    ``max`` or ``avg`` of a column. Results are named ``count``, ``sum_n`` and so on; sums of integers are
    decimal128(38, 0), exact. ``node_bytes_max``: weight of a full buffer before compression, in bytes (plus
    16 a row); ``fanout``: children of a node, at least 4. ``hash_keys`` is there for tests that need
    collisions.
    """

    def __init__(
        self,
        keys: Sequence[str],
        aggregates: Sequence[tuple[str, str | None]],
        *,
        node_bytes_max: int = NODE_BYTES_MAX,
        fanout: int = FANOUT,
        hash_keys: KeyHash = hash_keys,
    ) -> None:
        self._finals: Finals | None = Finals(keys, aggregates)
        self._start(keys, self._finals.states, node_bytes_max, fanout, hash_keys)

    @classmethod
    def of_partials(
        cls,
        keys: Sequence[str],
        states: Sequence[State],
        *,
        node_bytes_max: int = NODE_BYTES_MAX,
        fanout: int = FANOUT,
        hash_keys: KeyHash = hash_keys,
    ) -> Self:
        """A tree over partial aggregates, as the map step of a flow yields them. Use ``insert_partials``."""
        tree = cls.__new__(cls)
        tree._finals = None
        tree._start(keys, states, node_bytes_max, fanout, hash_keys)
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
        self._sinking = Sinking(self._layout, node_bytes_max, fanout)
        self._node_max = node_bytes_max
        self._root_max = node_bytes_max * _ROOT_NODES
        self._version = 0
        self._repeating = True
        self._clear()

    def _clear(self) -> None:
        self._pending: list[pa.Table] = []
        self._pending_weight = 0
        self._top: Node | None = None

    # -- what it holds -------------------------------------------------------------------------------------

    @property
    def rows(self) -> int:
        """Rows stored: 0 if there are no groups, otherwise at least the number of groups."""
        below = sum(buffer.rows for buffer in buffers(self._top)) if self._top else 0
        return below + sum(int(table.num_rows) for table in self._pending)

    @property
    def nbytes(self) -> int:
        """Bytes stored: compressed, but for the root's buffer."""
        below = sum(buffer.nbytes for buffer in buffers(self._top)) if self._top else 0
        return below + sum(int(table.nbytes) for table in self._pending)

    # -- inserting -----------------------------------------------------------------------------------------

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
        pieces = -(-weight(rows) // self._root_max)
        step = max(1, -(-rows.num_rows // max(1, pieces)))
        for start in range(0, rows.num_rows, step):
            self._append(rows.slice(start, step))
            if self._pending_weight > self._root_max:
                self._relieve_root()

    def _append(self, rows: pa.Table) -> None:
        self._pending.append(rows)
        self._pending_weight += weight(rows)

    def _relieve_root(self) -> None:
        """Combine the root's buffer; keep it if that made it half empty, else let it sink."""
        if self._repeating:
            before = sum(table.num_rows for table in self._pending)
            grouped = self._layout.group(self._take_pending())
            self._repeating = grouped.num_rows < before * _REPEATING
            self._append(grouped)
            if self._pending_weight <= self._root_max // 2:
                return
        self._sink()

    def _group_root(self) -> pa.Table:
        """Take the root's buffer, as one table, combined where that promises to make it smaller."""
        tables = self._take_pending()
        if self._repeating and len(tables) > 1:
            return self._layout.group(tables)
        return pa.concat_tables(tables).combine_chunks()

    def _take_pending(self) -> list[pa.Table]:
        tables = [self._layout.fit(table) for table in self._pending]
        self._pending, self._pending_weight = [], 0
        return tables

    def _sink(self) -> None:
        """Empty the root's buffer into the nodes below."""
        if not self._pending:
            return
        before = sum(table.num_rows for table in self._pending)
        run = self._layout.sort(self._take_pending())
        self._repeating = run.num_rows < before * _REPEATING
        self._top = self._sinking.grow(self._sinking.add(self._top or Leaf(0), run))

    # -- reading out ---------------------------------------------------------------------------------------

    def flush(self) -> pa.Table:
        """All groups so far: key columns, then one an aggregate; ordered by key hash. State is kept."""
        return pa.concat_tables([self._final(self._none()), *map(self._final, self._runs())])

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The same, a leaf at a time. The tree must not change meanwhile: that raises ``RuntimeError``."""
        for run in self._runs():
            yield from self._final(run).to_batches()

    def partials(self) -> pa.Table:
        """All groups as merged partial aggregates, ordered by key hash: key columns, then state columns."""
        return pa.concat_tables([self._layout.outward(run) for run in (self._none(), *self._runs())])

    def empty(self) -> None:
        """Forget everything but the types of the columns."""
        self._version += 1
        self._clear()

    def _none(self) -> pa.Table:
        return self._layout.schema.empty_table()

    def _final(self, run: pa.Table) -> pa.Table:
        rows = self._layout.outward(run)
        return rows if self._finals is None else self._finals.of_states(rows)

    def _runs(self) -> Iterator[pa.Table]:
        """Everything as runs, in order of hash, each in turn only."""
        if self._top is None:
            if self._pending:
                yield self._sort_root()
            return
        self._settle()
        version = self._version
        for leaf in leaves(self._top):
            for run in leaf.buffer.read(self._layout):
                yield run
                if self._version != version:
                    raise RuntimeError("the tree changed while it was read")

    def _sort_root(self) -> pa.Table:
        """All that the root's buffer holds as one run, which stays in it."""
        run = self._layout.sort([self._group_root()])
        self._append(run.drop_columns([HASH]))
        return run

    def _settle(self) -> None:
        """Sink all rows to the leaves."""
        self._sink()
        if self._top is not None:
            self._top = self._sinking.grow(self._sinking.settle(self._top))

    # -- taking out ----------------------------------------------------------------------------------------

    def split_off(self, key: str, below: int) -> pa.Table:
        """Remove and return, merged, all groups whose integer key column ``key`` is below ``below``.

        Ordered by key hash. Work in proportion to the tree. Groups with NULL there stay.
        """
        name = self._layout.inner_keys[self._layout.keys.index(key)]
        taken: list[pa.Table] = []
        kept: list[pa.Table] = []
        for run in self._runs():
            mask = pc.fill_null(pc.less(run[name], below), False)
            count = pc.sum(mask, min_count=0).as_py()
            if count:
                taken.append(run.filter(mask))
            if count < run.num_rows:
                kept.append(run.filter(pc.invert(mask)) if count else run)
        self._version += 1
        self._clear()
        self._rebuild(kept)
        return pa.concat_tables([self._layout.outward(run) for run in (self._none(), *taken)])

    def _rebuild(self, runs: list[pa.Table]) -> None:
        """Fill the empty tree from runs in order of hash; few rows stay in the root's buffer."""
        if sum(map(weight, runs)) <= self._root_max // 2:
            for run in runs:
                self._append(run.drop_columns([HASH]))
            return
        nodes: list[Node] = []
        for start, end in _heaps([weight(run) for run in runs], self._node_max // 2):
            run = pa.concat_tables(runs[start:end]).combine_chunks()
            nodes.append(leaf_of(int(run[HASH][0].as_py()) if nodes else 0, run))
        self._top = self._sinking.grow(nodes)

    # -- durability ----------------------------------------------------------------------------------------

    def dump(self) -> bytes:
        """The tree with all of its buffers, for ``load`` of a tree with the same keys and aggregates.

        Nodes are copied as they are; the root's buffer is combined first, which many small inserts pay back.
        """
        if len(self._pending) > 1:
            self._append(self._group_root())
        return image.write(self._layout, self._pending, self._top)

    def load(self, data: bytes) -> None:
        """Become the tree that was dumped. On any other bytes raises ``PeerError`` and stays as it was."""
        before = (self._layout.schema, self._pending, self._pending_weight, self._top)
        self._clear()
        self._layout.forget_types()
        try:
            pending, self._top = image.read(self._layout, data)
            for table in pending:
                self._append(table)
            self.check()
        except (ElfError, ValueError) as error:
            self._layout.schema, self._pending, self._pending_weight, self._top = before
            raise PeerError(f"not a whole tree: {error}") from error
        self._version += 1

    def check(self) -> None:
        """Raise ``ElfBug`` if an invariant is broken. Reads the whole tree."""
        if self._pending_weight != sum(weight(table) for table in self._pending):
            raise ElfBug("the root's buffer miscounts its weight")
        if self._pending_weight > self._root_max and len(self._pending) > 1:
            raise ElfBug("the root's buffer is full")
        if self._top is None:
            return
        if isinstance(self._top, Inner) and self._top.buffer.runs:
            raise ElfBug("the top node has a buffer beside the root's")
        if isinstance(self._top, Leaf) and not self._top.buffer.runs:
            raise ElfBug("the tree has a leaf without rows")
        self._sinking.check(self._top)


def _heaps(weights: Sequence[int], weight_max: int) -> Iterator[tuple[int, int]]:
    """Ranges of neighbours that weigh at most that much together (or are a single one)."""
    start, total = 0, 0
    for index, each in enumerate(weights):
        if index > start and total + each > weight_max:
            yield start, index
            start, total = index, 0
        total += each
    if weights:
        yield start, len(weights)
