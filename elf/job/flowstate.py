"""One flow on one agent: its tree, its tally, and which rows of a chunk are its own (PROTOCOL section 3).

Owned by the ``StreamWorker`` of its stream. A row is late when its pane is sealed, or when its pane's end
plus lateness is not above the highest event time that its own source had before it: the same rows are late
whatever the chunk sizes.

One tree holds all open panes, the pane being the first key. A tree a pane was measured beside it (seconds to
insert and seal, one core, in turns): panes of 300 s, live, 0.48 to 0.60 against 0.43 to 0.46; panes of 5 s,
live, up to 2 s late, 0.11 to 0.13 against 0.07; an hour of 5 s panes sealed at the end, 0.30 against 0.16 but
7 MB against 23, since nothing of so many small trees is ever compressed. Most is won where rows may be later
than several panes are long, as each seal reads all open panes: 5 s panes and rows 30 s late, 0.73 against
0.07 s a minute at 50,000 rows/s, which is one percent of a core. For that, one tree has one limit on memory,
one spill and one image in a cut, however many panes are open.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elf import windows
from elf.aggregates import merge_tables, normalise
from elf.batch import decode, encode
from elf.cbt import BufferTree
from elf.job.cut import FlowCut
from elf.job.ports import ChunkLike, Int64s, MapperPort, Spill
from elf.job.spec import END_OF_TIME, START_OF_TIME, Flow
from elf.job.tally import Tallies

Mask = npt.NDArray[np.bool_]
ShareKey = tuple[object, ...]

_WAITING_MAX: Final = 32
_WAITING_ROWS_MAX: Final = 1 << 16
"""Mapped chunks, and rows of them, that wait for the tree: inserting many small tables one by one costs more
than mapping them."""
_FEW_ROWS: Final = 512
"""Rows that wait for the map: a statement over a handful costs as much as one over hundreds (0.6 ms)."""


@dataclass(frozen=True)
class Sealed:
    """Snapshots of panes ``[start, end)`` of a flow by this agent: encoded tables, ``payload`` empty when all
    are.
    """

    flow: str
    start: int
    end: int
    tally: bytes
    payload: bytes


@dataclass
class View:
    """A chunk as every flow sees it: rows with masks beside them, one entry a row. Of rows that are not
    ``wanted`` (None: all are) no flow's WHERE is true."""

    rows: pa.Table
    wanted: Mask | None
    ts: Int64s
    timed: Mask
    future: Mask
    before: Int64s
    offsets: Int64s
    rejected: int
    uncast: int
    unrostered: int
    shares: dict[ShareKey, Share] = field(default_factory=dict)
    """What flows that are alike have in common is computed once a chunk."""


@dataclass(frozen=True)
class Share:
    """What a chunk comes to for every flow of one fragment that stands at the same place.

    ``groups``: the partial aggregates of its rows on time, or ``few``: these rows, which are not worth a
    statement of their own; ``panes`` and ``rows``: how many each pane got.
    """

    fresh: int
    late: int
    panes: Int64s
    rows: Int64s
    groups: pa.Table | None = None
    few: pa.Table | None = None


class FlowState:
    """One flow's tree, tally and positions."""

    def __init__(
        self,
        flow: Flow,
        mapper: MapperPort,
        lateness_us: int | None,
        cut: FlowCut,
        spill: Spill | None = None,
    ) -> None:
        self.flow = flow
        self.mapper = mapper
        self.lateness_us = lateness_us
        self.live_from = cut.live_from
        self.sealed = cut.sealed
        self.applied = dict(cut.applied)
        self.tree = BufferTree.of_partials(
            ("_pane", *flow.fragment.keys),
            flow.fragment.states,
            memory_max_bytes=None if spill is None else spill.tree_bytes_max,
            store=None if spill is None else spill.store(flow.uid),
        )
        if cut.tree:
            self.tree.load(cut.tree)
        self.tallies = Tallies(decode(cut.tally) if cut.tally else None)
        self.suspended = cut.suspended
        self.shed = cut.shed
        self._waiting: list[pa.Table] = []
        self._few: list[pa.Table] = [decode(cut.rows)] if cut.rows else []
        self.dirty = True

    def suspend(self) -> None:
        """Drop the open panes; from now on rows are only counted. What is sealed stays."""
        if not self.suspended:
            self.suspended = True
            self.shed += self.tallies.total("rows_in")
            self.tallies, self._waiting, self._few = Tallies(), [], []
            self.tree.empty()

    def resume(self, live_from: int) -> None:
        """Answer for panes from ``live_from`` on; what was shed is told with the first of them."""
        if self.suspended:
            self.suspended = False
            self.live_from = self.sealed = max(live_from, self.sealed)
            self.tallies = Tallies()
            self.tallies.add(np.array([self.live_from], dtype=np.int64), shed=self.shed)
            self.shed = 0

    def feed(self, source: str, chunk: ChunkLike, view: View) -> dict[str, int]:
        """Map the rows of a chunk that are this flow's into its tree; returns the counts of the chunk."""
        applied = self.applied.get(source, 0)
        self.applied[source] = max(applied, chunk.end)
        share = self._share(view, applied if applied > chunk.start else 0)
        if self.suspended:
            self.shed += share.fresh
            return {"shed": share.fresh}
        if share.groups is not None:
            self._insert(share.groups)
        if share.few is not None:
            self.dirty = True
            self._few.append(share.few)
            if sum(rows.num_rows for rows in self._few) >= _FEW_ROWS:
                self.digest()
        left_out = int((~view.timed & ~view.future).sum())
        untimed = left_out - view.unrostered if self.flow.fragment.pane_us else 0
        counts = {
            "late": share.late,
            "rejected": view.rejected + untimed,
            "uncast": view.uncast,
            "future": int(view.future.sum()),
            "unrostered": view.unrostered,
        }
        self._count(share, counts)
        return counts

    def _share(self, view: View, applied: int) -> Share:
        """This chunk for flows like this one; computed by the first of them."""
        fragment = self.flow.fragment
        what = (fragment.map_sql, fragment.columns, fragment.pane_us, self.lateness_us)
        key = (*what, self.live_from, self.sealed, self.suspended, applied)
        if key not in view.shares:
            view.shares[key] = self._apply(view, applied)
        return view.shares[key]

    def _apply(self, view: View, applied: int) -> Share:
        fragment = self.flow.fragment
        fresh = view.timed.copy() if fragment.pane_us else np.ones(len(view.ts), dtype=np.bool_)
        if applied:
            fresh &= view.offsets >= applied
        panes = windows.panes_of(view.ts, fragment.pane_us)
        fresh &= panes >= self.live_from
        late = fresh & (panes < self.sealed)
        if self.lateness_us is not None and fragment.pane_us:
            late |= fresh & ((panes + 1) * fragment.pane_us + self.lateness_us <= view.before)
        on_time = fresh & ~late
        numbers, counted = np.unique(panes[on_time], return_counts=True)
        share = Share(int(fresh.sum()), int(late.sum()), numbers, counted)
        rows = None if self.suspended else self._chosen(view, panes, on_time)
        if rows is None:
            return share
        if rows.num_rows < _FEW_ROWS:
            return replace(share, few=rows)
        return replace(share, groups=self.mapper.run(rows))

    def _chosen(self, view: View, panes: Int64s, on_time: Mask) -> pa.Table | None:
        """The rows on time with their panes, None if there are none that are wanted."""
        rows = view.rows
        chosen = on_time if view.wanted is None else on_time & view.wanted
        if not chosen.all():
            rows, panes = rows.filter(pa.array(chosen)), panes[chosen]
        if not len(panes):
            return None
        rows = rows.append_column("_pane", pa.array(panes))
        few = len(panes) < _FEW_ROWS
        return rows.select([c.name for c in self.flow.fragment.columns] + ["_pane"]) if few else rows

    def digest(self) -> None:
        """Map the rows of small chunks that were put by for it."""
        self._digest_below(END_OF_TIME)

    def _digest_below(self, below: int) -> None:
        """Map what was put by of the panes below. The rest stays: it need not hold up what is sealed now."""
        if self._few:
            rows = pa.concat_tables(self._few)
            chosen = rows["_pane"].to_numpy() < below
            self._few = []
            if not chosen.all():
                self._few = [rows.filter(pa.array(~chosen))]
            if chosen.any():
                self._insert(self.mapper.run(rows.filter(pa.array(chosen))))

    def _insert(self, groups: pa.Table) -> None:
        self.dirty = True
        if groups.num_rows:
            self._waiting.append(groups)
        rows = sum(table.num_rows for table in self._waiting)
        if len(self._waiting) >= _WAITING_MAX or rows >= _WAITING_ROWS_MAX:
            self._settle()

    def _settle(self) -> None:
        """Put what waits into the tree."""
        if self._waiting:
            groups = pa.concat_tables(self._waiting)
            self._waiting = []
            self.tree.insert_partials(groups)

    def _count(self, share: Share, counts: dict[str, int]) -> None:
        self.tallies.add(share.panes, rows_in=share.rows)
        if any(counts.values()):
            open_pane = max(self.sealed, self.live_from)
            at = int(share.panes[0]) if open_pane == START_OF_TIME and len(share.panes) else open_pane
            self.tallies.add(np.array([at], dtype=np.int64), **counts)

    def seal(self, below: int) -> Sealed | None:
        """Take all panes below ``below`` out of the tree, as one slice."""
        if below <= self.sealed or self.suspended:
            return None
        start, self.sealed = self.sealed, below
        self._digest_below(below)
        groups = self._take_below(below)
        counted = self.tallies.take_below(below)
        return Sealed(
            self.flow.uid,
            start,
            below,
            encode(counted) if counted is not None else b"",
            encode(groups) if groups is not None and groups.num_rows else b"",
        )

    def _take_below(self, below: int) -> pa.Table | None:
        """The groups of the panes below, merged. What never came into the tree, since it is so little, needs
        no tree to be merged (0.3 ms instead of 2)."""
        if self.tree.rows or sum(table.num_rows for table in self._waiting) > _FEW_ROWS:
            self._settle()
            return self.tree.split_off("_pane", below)
        if not self._waiting:
            return None
        fragment = self.flow.fragment
        keys = ("_pane", *fragment.keys)
        if len(self._waiting) > 1:
            whole = merge_tables(self._waiting, keys, fragment.states)
        else:
            names = [*keys, *(state.name for state in fragment.states)]
            whole = normalise(self._waiting[0].select(names), keys, fragment.states)
        chosen = whole["_pane"].to_numpy() < below
        self._waiting = []
        if chosen.all():
            return whole
        self._waiting = [whole.filter(pa.array(~chosen))]
        return whole.filter(pa.array(chosen))

    def cut(self) -> FlowCut:
        self._settle()
        counted = self.tallies.table()
        return FlowCut(
            flow=self.flow,
            live_from=self.live_from,
            sealed=self.sealed,
            applied=tuple(sorted(self.applied.items())),
            tree=self.tree.dump() if self.tree.rows else b"",
            tally=encode(counted) if counted is not None else b"",
            suspended=self.suspended,
            shed=self.shed,
            rows=encode(pa.concat_tables(self._few)) if self._few else b"",
        )
