"""The groups of a flow's open panes.

One tree holds all open panes, with the pane as the first key. It was measured against one tree a pane
(seconds to insert and seal, one core, in turns): panes of 300 s, live, 0.48 to 0.60 against 0.43 to 0.46;
panes of 5 s, live, up to 2 s late, 0.11 to 0.13 against 0.07; an hour of 5 s panes sealed at the end, 0.30
against 0.16 but 7 MB against 23, since so many small trees never compress anything. A tree a pane wins most
where rows may be later than several panes are long, as each seal reads all open panes: 5 s panes and rows 30
s late, 0.73 against 0.07 s a minute at 50,000 rows/s, which is one percent of a core. In return one tree has
one limit on memory, one spill and one image in a checkpoint, however many panes are open.

Small chunks wait: rows for the map, groups for the tree. What never came into the tree is taken out without
one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

import pyarrow as pa

from elf.aggregates import merge_tables, normalise, split_by_range
from elf.batch import decode, encode
from elf.cbt import BufferTree
from elf.job.checkpoint import FlowCheckpoint
from elf.job.ports import Int64s, MapFailed, MapperPort, Spill
from elf.job.reexecution import MET_MAX, OFFSETS_MAX, SourceOffsets, Where
from elf.job.work import Clock, no_clock
from elf.job.worker.assigning import FEW_ROWS, GATHERED_ROWS, Mask
from elf.job.worker.fitting import arrow_schema, fitted

_WAITING_MAX: Final = 32
_WAITING_ROWS_MAX: Final = 1 << 16
"""Mapped chunks, and rows of them, that wait for the tree: inserting many small tables one by one costs more
than mapping them."""
_FEW_TABLES_MAX: Final = 64
_FEW_BYTES_MAX: Final = 8 << 20
"""Rows that wait for the map are of so many chunks, and so large, at most; but ``FEW_ROWS`` may wait."""
_FEW_GROUPS: Final = 512
"""So many are merged without a tree."""
_WORTH_US: Final = 20_000
"""Rows that wait for the map are enough once it would take so long, since the end of their pane waits for it
then: a tenth, at most, is what a statement takes by itself."""
WAITING_PART: Final = 8
"""Of what open panes may hold in memory, rows that wait for the map are one part in so many at most, and
groups that wait for the tree another one."""
_THIN_ROWS_MIN: Final = 1 << 15
"""Rows with states of aggregates of people's own that are not worth merging yet."""


class OpenPanes:
    """The open panes of the flow of a checkpoint. ``work``: what it counts. ``apart``: what has come since it
    was last asked for (``grown``) is kept apart (``elf.job.worker.openparts``)."""

    def __init__(
        self,
        checkpoint: FlowCheckpoint,
        mapper: MapperPort,
        work: Counter[str],
        spill: Spill | None = None,
        cpu_us: Clock = no_clock,
        *,
        apart: bool = False,
    ) -> None:
        self._fragment = checkpoint.flow.fragment
        self._mapper = mapper
        self._work = work
        self._cpu_us = cpu_us
        self._tree = self._new_tree(spill, checkpoint.flow.uid)
        if checkpoint.tree:
            self._tree.load(checkpoint.tree)
        for part in checkpoint.parts:
            self._tree.insert_partials(decode(part))
        self._apart = self._new_tree(spill, f"{checkpoint.flow.uid}.apart") if apart else None
        if checkpoint.fresh:
            self._into.load(checkpoint.fresh)
        self._few: list[pa.Table] = []
        self._few_bytes = 0
        self._row_us = 0.0
        """What the map took for a row that had waited for it, the last time."""
        if checkpoint.rows:
            self._few.append(fitted(decode(checkpoint.rows), arrow_schema(self._fragment.columns))[0])
        self._waiting: list[pa.Table] = [decode(checkpoint.groups)] if checkpoint.groups else []
        self._thin_at = _THIN_ROWS_MIN
        self._held_max: int | None = None

    def _new_tree(self, spill: Spill | None, name: str) -> BufferTree:
        return BufferTree.of_partials(
            ("_pane", *self._fragment.keys),
            self._fragment.task_states,
            memory_max_bytes=None if spill is None else spill.tree_bytes_max,
            store=None if spill is None else spill.store(name),
        )

    @property
    def _into(self) -> BufferTree:
        """The tree that new groups go into."""
        return self._tree if self._apart is None else self._apart

    def empty(self) -> None:
        """Drop everything."""
        self._waiting, self._few, self._few_bytes = [], [], 0
        self._tree.empty()
        if self._apart is not None:
            self._apart.empty()

    # -- memory ----------------------------------------------------------------------------------------------

    def bound(self, held_max_bytes: int | None) -> None:
        """From now on hold so many bytes in memory, and the rest in the store; None: as many as a tree may.
        Raises ``SpillError``."""
        self._held_max = held_max_bytes
        parts = 1 if self._apart is None else 2
        for tree in (self._tree, self._apart):
            if tree is not None:
                tree.bound(None if held_max_bytes is None else held_max_bytes // parts)

    def held(self) -> tuple[int, int, int]:
        """Bytes in memory; of these, those that cannot be put into the store; those that are there."""
        waiting = self._few_bytes + sum(int(table.nbytes) for table in self._waiting)
        trees = [tree for tree in (self._tree, self._apart) if tree is not None]
        spilled = sum(tree.spilled_bytes for tree in trees)
        pinned = waiting + sum(tree.pinned_bytes for tree in trees)
        return waiting + sum(tree.nbytes for tree in trees) - spilled, pinned, spilled

    def _waits_enough(self) -> bool:
        rows = sum(table.num_rows for table in self._waiting)
        if len(self._waiting) >= _WAITING_MAX or rows >= _WAITING_ROWS_MAX:
            return True
        if self._held_max is None:
            return False
        return sum(int(table.nbytes) for table in self._waiting) >= self._held_max // WAITING_PART

    # -- rows ------------------------------------------------------------------------------------------------

    @property
    def few_rows(self) -> int:
        """Rows that wait for the map."""
        return sum(rows.num_rows for rows in self._few)

    def put_by(self, rows: pa.Table) -> bool:
        """Put by rows that are too few for a statement of their own. Returns whether all that wait are enough
        now."""
        self._few.append(rows)
        self._few_bytes += rows.get_total_buffer_size()
        waiting = self.few_rows
        if self._held_max is not None and self._few_bytes >= self._held_max // WAITING_PART:
            return True
        if waiting * self._row_us >= _WORTH_US:
            return True
        full = len(self._few) >= _FEW_TABLES_MAX or self._few_bytes >= _FEW_BYTES_MAX
        return waiting >= GATHERED_ROWS or (waiting >= FEW_ROWS and full)

    def _leave(self, rest: pa.Table) -> None:
        """These go on waiting for the map."""
        self._few = [rest] if rest.num_rows else []
        self._few_bytes = rest.get_total_buffer_size()

    def map_below(self, below: int) -> pa.Table | None:
        """The groups of the put-by rows of the panes below. The rest stays, so that it does not delay what is
        sealed now. Raises ``MapFailed`` with the panes of the rows, which are lost."""
        if not self._few:
            return None
        rows = pa.concat_tables(self._few)
        chosen = rows["_pane"].to_numpy() < below
        if not chosen.any():
            return None
        rows, rest = parted(rows, chosen)
        self._leave(rest)
        groups, took_us = self.mapped(rows)
        self._row_us = took_us / rows.num_rows
        return groups

    def mapped(self, rows: pa.Table) -> tuple[pa.Table, int]:
        """The groups of rows that had waited, and what the map took (µs). Raises ``MapFailed`` as above."""
        began, (place, count) = self._cpu_us(), self._fragment.range
        try:
            groups = self._mapper.run(rows)
        except MapFailed as failed:
            failed.panes = rows["_pane"].to_numpy()
            raise
        if count > 1:
            groups = split_by_range(groups, self._fragment.ranged_by, count)[place]
        took_us = self._cpu_us() - began
        self._work["map_us"] += took_us
        return groups, took_us

    # -- groups ----------------------------------------------------------------------------------------------

    def insert(self, groups: pa.Table) -> None:
        """Insert partial aggregates, with their panes."""
        self._work["groups"] += groups.num_rows
        if groups.num_rows:
            self._waiting.append(groups)
        if self._waits_enough():
            self.settle()

    def settle(self) -> None:
        """Put what waits into the tree."""
        if self._waiting:
            began = self._cpu_us()
            groups = self._merged(pa.concat_tables(self._waiting))
            self._waiting = []
            self._into.insert_partials(groups)
            self._thin(self._into)
            self._work["tree_us"] += self._cpu_us() - began

    def _merged(self, groups: pa.Table) -> pa.Table:
        return self._mapper.merged(groups) if self._fragment.owns else groups

    def _thin(self, tree: BufferTree) -> None:
        """Merge the states of aggregates of people's own, which the tree cannot, each time that there are
        twice as many rows: each is merged a few times in all."""
        if self._fragment.owns and tree.rows >= self._thin_at:
            groups = self._merged(tree.partials())
            tree.empty()
            tree.insert_partials(groups)
            self._thin_at = max(_THIN_ROWS_MIN, 2 * tree.rows)

    def partials(self) -> pa.Table:
        """All groups, merged; they stay."""
        self.settle()
        if self._apart is None or not self._apart.rows:
            return self._tree.partials()
        keys = ("_pane", *self._fragment.keys)
        both = [self._tree.partials(), self._apart.partials()]
        return merge_tables([one for one in both if one.num_rows], keys, self._fragment.task_states)

    def grown(self, below: int) -> pa.Table | None:
        """The groups that have come of the panes below since the last time, merged; they stay."""
        taken = self._split_off(self._into, below)
        began = self._cpu_us()
        if taken is not None and taken.num_rows:
            self._tree.insert_partials(taken)
            self._thin(self._tree)
        self._work["tree_us"] += self._cpu_us() - began
        return taken

    def take_below(self, below: int) -> pa.Table | None:
        """The groups of the panes below, merged."""
        if self._apart is not None:
            self.grown(below)
            return self._merged(self._tree.split_off("_pane", below)) if self._tree.rows else None
        return self._split_off(self._tree, below)

    def _split_off(self, tree: BufferTree, below: int) -> pa.Table | None:
        """From what waits for a tree, and from the tree. What never came into it, because it is so little, is
        merged without one (0.3 ms instead of 2)."""
        if tree.rows or not self._waits_for_none():
            self.settle()
            return self._merged(tree.split_off("_pane", below))
        if not self._waiting:
            return None
        whole = self._merged_waiting()
        chosen = whole["_pane"].to_numpy() < below
        taken, rest = parted(whole, chosen)
        self._waiting = [rest] if rest.num_rows else []
        return self._merged(taken)

    def _merged_waiting(self) -> pa.Table:
        """What waits for the tree, each group once."""
        fragment = self._fragment
        keys = ("_pane", *fragment.keys)
        if len(self._waiting) > 1:
            return merge_tables(self._waiting, keys, fragment.task_states)
        names = [*keys, *(state.name for state in fragment.task_states)]
        return normalise(self._waiting[0].select(names), keys, fragment.task_states)

    def drop_below(self, below: int) -> None:
        """Forget the panes below."""
        if self._few:
            rows = pa.concat_tables(self._few)
            self._leave(rows.filter(pa.array(rows["_pane"].to_numpy() >= below)))
        self.take_below(below)

    def images(self, *, parted: bool) -> tuple[bytes, bytes, bytes, bytes]:
        """(tree, what is kept apart, rows that wait for the map, groups that are too few for a tree), for the
        checkpoint. ``parted``: what was kept apart before is in open parts."""
        few = encode(pa.concat_tables(self._few)) if self._few else b""
        if self._apart is None and not self._tree.rows and self._waits_for_none():
            if self._waiting:
                self._waiting = [self._merged_waiting()]
            return b"", b"", few, encode(self._waiting[0]) if self._waiting else b""
        self.settle()
        tree = self._tree.dump() if self._tree.rows and not parted else b""
        apart = self._apart.dump() if self._apart is not None and self._apart.rows else b""
        return tree, apart, few, b""

    def _waits_for_none(self) -> bool:
        """Whether all that waits for the tree can do without."""
        return bool(sum(table.num_rows for table in self._waiting) <= _FEW_GROUPS)


def parted(rows: pa.Table, chosen: Mask) -> tuple[pa.Table, pa.Table]:
    """The chosen rows, and the others. Rows mostly come in the order of time: then nothing is copied."""
    first = int(chosen.sum())
    if chosen[:first].all():
        return rows.slice(0, first), rows.slice(first)
    return rows.filter(pa.array(chosen)), rows.filter(pa.array(~chosen))


class OpenOffsets:
    """What an agent knows of the flow ``uid`` for those who may run it again (``elf.job.reexecution``): where
    each open pane began, and which sources its rows came from. Nothing is kept of a flow that nobody may run.

    ``counters`` and ``met``: from the checkpoint that it begins with; from where its open panes were read is
    no longer known.
    """

    def __init__(self, uid: str, counters: pa.Table | None, met: Iterable[tuple[int, int, int]]) -> None:
        self._uid = uid
        panes = [] if counters is None else counters["_pane"].to_pylist()
        self._offsets: dict[int, SourceOffsets | None] = dict.fromkeys(panes)
        self._met: dict[tuple[int, int], int] = {(pane, number): rows for pane, number, rows in met}

    def saw(self, panes: Int64s, rows: Int64s, offsets: SourceOffsets | None, number: int) -> None:
        """A chunk had rows on time in these panes, of the source with this number; ``offsets``: before it."""
        for pane, count in zip(panes.tolist(), rows.tolist(), strict=True):
            self._offsets.setdefault(pane, offsets)
            self._met[pane, number] = self._met.get((pane, number), 0) + count
        while len(self._met) > MET_MAX:
            del self._met[next(iter(self._met))]

    def sealed(self, below: int) -> None:
        """Panes below this one are not run again."""
        if self._offsets:
            self._offsets = {pane: offsets for pane, offsets in self._offsets.items() if pane >= below}

    def drop(self) -> None:
        """The open panes are dropped."""
        self._offsets.clear()

    def read_by(self, start: int, end: int, number: int) -> int:
        """How many rows of these panes an agent that began at the source offsets with this number has read
        too."""
        inside = [key for key in self._met if start <= key[0] < end]
        return sum(self._met.pop(key) for key in inside if key[1] <= number)

    def where(self, sealed: int, now: SourceOffsets | None) -> Where:
        """What others are told of it."""
        told = sorted(self._offsets.items())
        return Where(self._uid, sealed, tuple(told[:OFFSETS_MAX]), now if len(told) <= OFFSETS_MAX else None)

    def image(self) -> tuple[tuple[int, int, int], ...]:
        """For the checkpoint."""
        return tuple((pane, number, rows) for (pane, number), rows in self._met.items())
