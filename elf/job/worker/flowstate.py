"""One flow on one agent: its open panes, its counters and its source offsets (protocol 3.2).

The ``StreamWorker`` of its stream owns it. ``assigning`` says which rows are its own; their groups are in
``openpanes`` until the panes are sealed.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from elf.batch import decode, encode
from elf.cbt import BufferTree
from elf.job import offload
from elf.job.approximate import keep_best, with_cut
from elf.job.checkpoint import FlowCheckpoint
from elf.job.counters import GAP_PANES_MAX, PaneCounters
from elf.job.gaps import Gap, over_budget
from elf.job.messages.rollup import FlowProgress
from elf.job.offload import Mapped
from elf.job.openparts import is_copied_open
from elf.job.parts import LateRows
from elf.job.past import Past, Records
from elf.job.ports import ChunkLike, ExtractedLike, Int64s, MapFailed, MapperPort, Spill
from elf.job.provenance import Traced, is_traced
from elf.job.reexecution import SourceOffsets, Where
from elf.job.sampling import weighted, why_whole
from elf.job.snapshots import Early, Sealed, Threshold
from elf.job.spec import END_OF_TIME, START_OF_TIME, Flow
from elf.job.stragglers import left_over
from elf.job.thresholds import excerpt
from elf.job.work import BEHIND_MS, Clock, no_clock
from elf.job.worker.assigning import FEW_ROWS, Assigner, Mask, Share, Stand, View
from elf.job.worker.counted import CountWindows
from elf.job.worker.openpanes import WAITING_PART, OpenOffsets, OpenPanes
from elf.job.worker.openparts import OpenParts
from elf.job.worker.postponed import Part, PostponedOf, When, gathered, scattered
from elf.job.worker.provenance import OpenProvenance
from elf.planning.budgets import WEIGHT_MAX
from elf.planning.turns import Turns
from elf.ql.plan import PLACES

_FEW_WORTH: Final = 16
"""Rows that are worth a statement while the agent is quiet, so that they do not delay the end of their pane.
Fewer rows (the line that ended the last pane) wait for more, or for that end, where they cost the same."""
_REASONS: Final = ("late", "rejected", "uncast", "future", "unrostered", "leapt", "shed")
EARLY_BYTES_MAX: Final = 16 << 20
"""Open panes that are larger are not sent early."""
LINE_SHOWN: Final = 200
"""Characters shown of a line on which a function fails."""


class FlowState:
    """One flow's tree, counters and source offsets."""

    def __init__(
        self,
        flow: Flow,
        mapper: MapperPort,
        lateness_us: int | None,
        checkpoint: FlowCheckpoint,
        spill: Spill | None = None,
        cpu_us: Clock = no_clock,
        agent: str = "",
        *,
        name: str = "",
        traces: bool = False,
        copies: bool = False,
        turns: Turns[Part] | None = None,
    ) -> None:
        """``name``: the agent's, for people. ``traces``: it is to be known which rows its panes count
        (``elf.job.provenance``). ``copies``: what comes to open panes is to be copied at each checkpoint
        (``elf.job.openparts``). ``turns``: what flows of its stream have postponed."""
        self.flow = flow
        self.work: Counter[str] = Counter()
        self._cpu_us = cpu_us
        self.mapper = mapper
        self.lateness_us = lateness_us
        self.live_from = checkpoint.live_from
        self.sealed = checkpoint.sealed
        self.applied = dict(checkpoint.applied)
        self._copies = copies and is_copied_open(flow.fragment)
        self._parts = OpenParts.of(checkpoint, copies=self._copies)
        self._last_parts: list[Sealed] = []
        apart = self._parts is not None
        self._turns = Turns[Part]() if turns is None else turns
        self.postponed = PostponedOf(flow, lateness_us, self._turns, mapper, checkpoint)
        self.panes = OpenPanes(checkpoint, mapper, self.work, spill, cpu_us, apart=apart)
        self._assigner = Assigner(flow.fragment, mapper, lateness_us, self.work, cpu_us, traces=traces)
        traces = traces and is_traced(flow.fragment)
        self._provenance = OpenProvenance(checkpoint.traced) if traces else None
        self._late_provenance = OpenProvenance(checkpoint.late_traced) if traces else None
        self._traced: list[Traced] = []
        self.late_rows: Mask = np.zeros(0, dtype=np.bool_)
        """The rows of the last chunk that are in no result, for flows that read these."""
        self.after = self._late_rows(checkpoint) if flow.fragment.revise_us is not None else None
        counts = flow.fragment.count is not None
        self._counted = CountWindows(flow.fragment, mapper, agent, checkpoint.counted) if counts else None
        self.counters = PaneCounters(decode(checkpoint.counters) if checkpoint.counters else None)
        self.reexecution = OpenOffsets(flow.uid, self.counters.table(), checkpoint.met)
        """From where others may run it again."""
        self.last: tuple[Int64s, Int64s] = (np.zeros(0, np.int64), np.zeros(0, np.int64))
        """Panes and rows on time of the last chunk."""
        self._rows = self._late = self._future = 0
        self.suspended = checkpoint.suspended
        self.shed = checkpoint.shed
        self.leapt = checkpoint.leapt
        self._since = checkpoint.since
        self._name = name
        self.weight, self.whose = checkpoint.weight, checkpoint.whose
        """One row in ``weight`` is mapped, for that budget."""
        self.past: Past | None = checkpoint.past
        """How far it is in the archive; None: it takes live lines."""
        self.threshold: Threshold | None = None
        """What goes up of a sealed pane, if not all of it."""
        self._early_ms = 0
        self._changed = False
        self._held_max: int | None = None
        self.dirty = True
        self.failure = ""
        """How the user's function has failed, since this was last read."""

    def _late_rows(self, checkpoint: FlowCheckpoint) -> LateRows:
        fragment = self.flow.fragment
        tree = BufferTree.of_partials(("_pane", *fragment.keys), fragment.states)
        return LateRows(
            tree, fragment.pane_us, checkpoint.part, checkpoint.late_tree, checkpoint.late_counters
        )

    def suspend(self) -> None:
        """Drop the open panes; from now on rows are only counted. What is sealed stays, and so do open
        parts."""
        if not self.suspended:
            self.suspended = True
            lost = 0 if self._counted is None else self._counted.drop()
            counts = Counter(self.counters.totals())
            counts.subtract({} if self._parts is None else self._parts.drop())
            self.shed += max(lost, counts.pop("rows_in"))
            counts.pop("archived")
            counts.pop("sampled")
            self.counters = self.counters.emptied()
            self._add_counts(counts)
            self.panes.empty()
            self.postponed.empty()
            self.reexecution.drop()
            for provenance in (self._provenance, self._late_provenance):
                if provenance is not None:
                    provenance.drop()
            self.shed += self.after.drop() if self.after is not None else 0

    def stand(self) -> offload.Stand:
        """Where it stands, for whom maps its rows."""
        return offload.Stand(self.live_from, self.sealed, self.leapt, self._since)

    def resume(self, live_from: int) -> None:
        """Answer for panes from ``live_from`` on; the first of them reports what was shed."""
        if self.suspended:
            self.suspended = False
            self._since = self.live_from if self._since is None else self._since
            self.live_from = self.sealed = max(live_from, self.sealed)
            if self._parts is not None:
                self._parts.begin(self.live_from)
            counts = Counter(self.counters.totals()) + Counter(shed=self.shed)
            self.counters, self.shed = self.counters.emptied(), 0
            self._add_counts(counts)

    def leap(self, below: int, counted: Mapping[str, int]) -> int:
        """Leave out the open panes below, and go on with what was ``counted`` of snapshots that are left out
        (``elf.job.stragglers``); returns how many rows all of them had."""
        counts = Counter(counted)
        if below > self.sealed and not self.suspended:
            counts += left_over(self.counters.take_below(below), [(START_OF_TIME, below)])
            self.panes.drop_below(below)
            self.postponed.drop_below(below)
            if self._provenance is not None:
                self._provenance.take_below(below)
            first = self.leapt[0] if self.leapt[1] == self.sealed else self.sealed
            self.leapt, self.sealed = (first, below), below
            self.dirty = self._changed = True
        rows = counts.pop("rows_in", 0)
        counts.pop("sampled", 0)
        counts["leapt"] += rows
        self._add_counts(counts)
        return rows

    def answered(
        self, spans: Iterable[tuple[int, int, int]], counted: Mapping[str, int], gaps: Iterable[Gap] = ()
    ) -> dict[str, int]:
        """Another agent's piece is in the commits of these panes of our snapshots, made from the source
        offsets with that number. Go on with what was ``counted`` of them, and with their ``gaps``; returns
        how many rows that agent had, and how many it had not."""
        counts = Counter(counted)
        rows = counts.pop("rows_in", 0)
        counts.pop("sampled", 0)  # the other agent counts all rows
        late = rows - min(rows, sum(self.reexecution.read_by(*span) for span in spans))
        counts["late"] += late
        self._late += late
        self._add_counts(counts)
        for gap in gaps:
            self.counters.mark(self._open_pane, self._open_pane, gap)
        return {"answered": rows - late, "late": late}

    def where(self, now: SourceOffsets | None) -> Where:
        """From where others may run it again."""
        return self.reexecution.where(max(self.sealed, self.live_from), now)

    def _add_counts(self, counts: Mapping[str, int]) -> None:
        """Add counts that are reported with the open pane."""
        if any(counts.values()):
            self.counters.add(np.array([self._open_pane], dtype=np.int64), **counts)

    @property
    def _open_pane(self) -> int:
        """The first open pane; ``START_OF_TIME`` before a row has come."""
        return max(self.sealed, self.live_from) if self.flow.fragment.pane_us else 0

    def feed(
        self,
        source: str,
        chunk: ChunkLike,
        view: View,
        late_of: Mask | None = None,
        when: When | None = None,
    ) -> dict[str, int]:
        """Map the flow's rows of a chunk into its tree; returns the counts of the chunk. ``late_of``: for a
        flow over late rows, which rows are late; ``when``: they are mapped in its turn (None: now)."""
        applied = self.applied.get(source, 0)
        self.applied[source] = max(applied, chunk.end)
        done = applied if applied > chunk.start else 0
        at = Stand(self.live_from, self.sealed, self.suspended, self.leapt, self._since)
        if self.flow.fragment.late_of:
            share = self._assigner.late(view, done, late_of, at)
        elif self._counted is not None:
            rows, share = self._assigner.counted(view, done, at)
            self._add_counted(rows, source, getattr(chunk.source, "path", source))
        else:
            part_rows = None if when is None else self._turns.part_rows(self.postponed.map_of)
            share = self._assigner.share(view, done, at, self.weight, part_rows)
        if not self.suspended:
            self._trace(source, share)
        return self._take(share, view, getattr(chunk.source, "path", chunk.source.id), when)

    def replay(self, view: View, records: Records) -> dict[str, int]:
        """The same of archived rows: each is given once (``elf.job.past``)."""
        at = Stand(self.live_from, self.sealed, self.suspended, self.leapt, self._since)
        share = self._assigner.share(view, 0, at, self.weight)
        if not self.suspended:
            self._trace(records.source, share)
        counts = self._take(share, view, records.log)
        if not self.suspended:
            self.counters.add(share.panes, archived=share.rows)
        return counts

    @property
    def is_over(self) -> bool:
        """Whether it has gone over to the archive for a helper (``elf.job.offload``)."""
        return self.past is not None and self.flow.fragment.since_us is None

    def go_over(self, position: int) -> None:
        """From now on it takes no live lines, but what its agent archives from that position on."""
        self.past = Past(position, position, self.sealed, END_OF_TIME)
        self.applied, self.dirty = {}, True

    def pass_over(self, view: View) -> None:
        """Live lines, while it is over: what of them is not in the archive with a time is counted now."""
        place, _ = self.flow.fragment.range
        untimed = len(view.ts) - int(np.count_nonzero(view.timed | view.future)) - view.unrostered
        if not (place or self.suspended) and view.rejected + untimed:
            self.dirty = True
            self._add_counts({"rejected": view.rejected + untimed})

    def taken(self) -> Mapped:
        """For whom a state that began empty has mapped: all that has come to it."""
        self.digest()
        groups, counted = self.panes.take_below(END_OF_TIME), self.counters.table()
        return Mapped(
            groups=encode(groups) if groups is not None and groups.num_rows else b"",
            counters=encode(counted) if counted is not None else b"",
            traced=b"" if self._provenance is None else self._provenance.image(),
            rows=self._rows,
            late=self._late,
            future=self._future,
            failed=self.failure,
        )

    def absorb(self, mapped: Mapped) -> dict[str, int]:
        """What a helper has made of the next rows; returns their counts."""
        self._rows, self._late = self._rows + mapped.rows, self._late + mapped.late
        self._future += mapped.future
        self.dirty = self._changed = True
        self.failure = self.failure or mapped.failed
        counted = decode(mapped.counters) if mapped.counters else None
        totals = PaneCounters(counted).totals()
        totals = {name: totals[name] for name in _REASONS}
        if mapped.groups:
            self.panes.insert(decode(mapped.groups))
        if counted is not None:
            self.counters.include(counted)
        if self._provenance is not None and mapped.traced:
            self._provenance.include(mapped.traced)
        if not self.flow.fragment.range[0]:
            self.work["rows"] += mapped.rows
            self.work["late"] += mapped.late
        return totals

    def catch_up(self, ends: Mapping[str, int]) -> None:
        """From now on it takes live lines: what lies behind these offsets of sources."""
        self.past, self.applied, self.dirty = None, dict(ends), True

    def _take(self, share: Share, view: View, path: str, when: When | None = None) -> dict[str, int]:
        """What a chunk of lines of this file comes to; its counts."""
        self.late_rows = share.late
        self.last = share.panes, share.rows
        late = int(np.count_nonzero(share.late))
        in_time = share.fresh - late - share.leapt
        self._rows += in_time
        self._late += late
        future = int(np.count_nonzero(view.future))
        self._future += future
        if self.suspended:
            self.shed += share.fresh + share.shed
            return {"shed": share.fresh + share.shed}
        groups = share.of(self.flow.fragment)
        place, count = self.flow.fragment.range
        self.work["map_us"] += share.map_us // count
        self.work["rows"] += 0 if place else in_time
        self.work["late"] += 0 if place else late
        for ms, behind in zip(BEHIND_MS, share.behind, strict=False) if not place else ():
            self.work[f"behind_{ms}"] += behind
        if groups is not None:
            self._insert(groups)
        if share.few is not None:
            self.dirty = self._changed = True
            if self.panes.put_by(share.few):
                self._digest_few(END_OF_TIME)
        if when is not None and share.postponed:
            self.dirty = self._changed = True
            self.postponed.put(share.postponed, view.source, self.weight, path, when)
            if self._held_max is not None and self.postponed.nbytes > self._held_max // WAITING_PART:
                self._digest_below(END_OF_TIME)
        if share.after is not None and self.after is not None:
            self.dirty = True
            self.after.add(*share.after)
        if share.failed is not None:
            where = f" (byte {share.failed.offset} of {path})" if share.failed.offset is not None else ""
            self.failure = self.failure or f"{share.failed}{where}"
        left_out = len(view.ts) - int(np.count_nonzero(view.timed | view.future))
        untimed = left_out - view.unrostered if self.flow.fragment.pane_us else 0
        counts = {
            "late": late,
            "rejected": view.rejected + untimed + (share.failed.rows if share.failed is not None else 0),
            "uncast": view.uncast + share.uncast,
            "future": future,
            "unrostered": view.unrostered,
            "leapt": share.leapt,
            "shed": share.shed,
        }
        if not place:  # rows are counted once for all key ranges
            self._count(share, counts)
        sampled = 0 if share.sampled is None else int(share.sampled[1].sum())
        return counts | {"sampled": sampled} if sampled else counts

    def _trace(self, source: str, share: Share) -> None:
        """Write down which rows of a chunk its panes count."""
        if self._provenance is not None and self._late_provenance is not None and share.failed is None:
            self._provenance.saw(source, share.runs)
            self._late_provenance.saw(source, share.late_runs)

    def cut_traces(self) -> None:
        """Between what was read and what comes next, archived rows are gone."""
        for provenance in (self._provenance, self._late_provenance):
            if provenance is not None:
                provenance.cut()

    def take_traced(self) -> list[Traced]:
        """Which rows the panes have counted that were sealed, and the parts that were taken, since this was
        last asked."""
        traced, self._traced = self._traced, []
        return traced

    def miss(self, gap: Gap) -> None:
        """Rows of this time are gone, or of so much before and after it as rows are out of order. Those of
        sealed panes would have been late; those before the flow are not its own."""
        pane_us, place = self.flow.fragment.pane_us, self.flow.fragment.range[0]
        first = last = 0
        if pane_us:
            room_us = (GAP_PANES_MAX * pane_us - (gap.to_us - gap.from_us)) // 2 - pane_us
            around_us = min(self.lateness_us or 0, max(room_us, 0))
            first, last = (gap.from_us - around_us) // pane_us, (gap.to_us + around_us) // pane_us
        if last >= self.live_from and not place:
            self.dirty = self._changed = True
            self.counters.mark(max(first, self._open_pane), max(last, self._open_pane), gap)

    def _add_counted(self, rows: pa.Table | None, source: str, path: str) -> None:
        """Add rows for the windows of a source."""
        if self._counted is not None and rows is not None:
            self._counted.add(source, path, rows)
            self.dirty = True
            if self._counted.waiting >= FEW_ROWS:
                self._digest_counted()

    def _digest_counted(self) -> None:
        """Map what waits; full windows go into the tree."""
        if self._counted is not None:
            began = self._cpu_us()
            full, failures = self._counted.digest(self.sealed)
            for failed in failures:
                self._lost(failed)
            self.work["map_us"] += self._cpu_us() - began
            if full is not None:
                self._insert(full)

    def close_counted(self, gone: Sequence[str] | None) -> None:
        """Windows of rows of these sources (None: of all) will not be filled: they go as they are."""
        if self._counted is not None:
            self._digest_counted()
            rest = self._counted.close(gone, self.sealed)
            if rest is not None:
                self._insert(rest)

    def digest(self, least: int = 0) -> None:
        """Map the rows of small chunks that were put by, if there are enough."""
        if self.panes.few_rows >= least:
            self._digest_few(END_OF_TIME)
        if self._counted is not None and self._counted.waiting >= least:
            self._digest_counted()

    def digest_quietly(self) -> None:
        """The same while there is nothing else to do, and whatever the next rows need first."""
        with contextlib.suppress(MapFailed):  # the rows themselves will say so
            self.mapper.prepare()
        self.digest(_FEW_WORTH)

    def _digest_below(self, below: int) -> None:
        for parts in self.postponed.together(below):
            self.map_postponed(parts)
        self._digest_few(below)

    def _digest_few(self, below: int) -> None:
        try:
            groups = self.panes.map_below(below)
        except MapFailed as failed:
            self._lost(failed)
            return
        if groups is not None:
            self._insert(groups)

    def map_postponed(self, parts: Sequence[Part]) -> None:
        """These have their turn. Where the map fails on them together it is tried on each alone, so that no
        more is lost than in one pass."""
        self.postponed.take(parts)
        self._map(parts)

    def _map(self, parts: Sequence[Part]) -> None:
        self.dirty = self._changed = True
        weights = sorted({part.weight for part in parts})
        try:
            groups, took_us = self.panes.mapped(gathered(parts, weights))
        except MapFailed as failed:
            if len(parts) > 1:
                for part in parts:
                    self._map([part])
                return
            where = f" (byte {failed.offset} of {parts[0].path})" if failed.offset is not None else ""
            self._lost(failed, where, parts[0].left_out)
            return
        self._turns.mapped(parts[0].group, sum(part.rows for part in parts), took_us / 1000)
        for some, weight in scattered(groups, weights):
            self.panes.insert(weighted(some, self.flow.fragment.task_states, weight))

    def cut_short(self, part: Part, whose: str) -> int:
        """Of these rows that wait, one in ``WEIGHT_MAX`` is mapped, for that promise; how many are left
        out."""
        lines = part.lines
        assert lines is not None
        self.postponed.cut_short(part)
        panes, rows = lines.more
        self.dirty = True
        self.counters.add(panes, sampled=rows)
        for pane in lines.panes.tolist():
            self.counters.mark(pane, pane, over_budget(self._name, whose, WEIGHT_MAX))
        return int(rows.sum())

    def _lost(self, failed: MapFailed, where: str = "", left_out: Sequence[tuple[int, int]] = ()) -> None:
        """The map has failed on rows that had waited for it. They were counted as read in their panes: there
        they are rejected, as they would have been at once; so are those of ``left_out``: (pane, rows)."""
        what = where or f" ({failed.rows:,} rows that waited for it are lost)"
        self.failure = self.failure or f"{failed}{what}"
        if not self.flow.fragment.range[0]:
            panes, rows = np.unique(failed.panes, return_counts=True)
            self.dirty = self._changed = True
            self.counters.add(panes, rows_in=-rows, rejected=rows)
            for pane, count in left_out:
                gone = {"rows_in": -count, "rejected": count, "sampled": -count}
                self.counters.add(np.array([pane], dtype=np.int64), **gone)

    def try_out(self, extracted: ExtractedLike, rows: pa.Table, lines: Sequence[str]) -> None:
        """Let the users' code see lines of this agent, before it answers for any pane. ``rows``: of what
        was extracted, with all columns."""
        numbers = extracted.accepted
        if extracted.wanted is not None:
            rows, numbers = rows.filter(pa.array(extracted.wanted)), numbers[extracted.wanted]
        rows = rows.append_column("_offset", pa.array(numbers.astype(np.int64)))
        if self.flow.fragment.count is not None:
            places = (np.arange(len(numbers)), np.zeros(len(numbers), np.int64))
            for name, column in zip(PLACES, places, strict=True):
                rows = rows.append_column(name, pa.array(column))
        try:
            self.mapper.try_out(rows.append_column("_pane", pa.array(np.zeros(len(numbers), np.int64))))
        except MapFailed as failed:
            line = f" (the line {lines[failed.offset][:LINE_SHOWN]!r})" if failed.offset is not None else ""
            self.failure = f"{failed}{line}"

    def weigh(self, weight: int, whose: str) -> None:
        """From now on one row in ``weight`` is mapped, for that budget; of what has no estimate all are. Rows
        that wait for the map are of the weight before."""
        weight = 1 if why_whole(self.flow.fragment) else weight
        if weight != self.weight:
            self.digest()
            self.dirty = True
        self.weight, self.whose = weight, whose if weight > 1 else ""

    def bound(self, held_max_bytes: int | None) -> None:
        """From now on the open panes have so many bytes in memory, and the rest on disk."""
        self._held_max = held_max_bytes
        self.panes.bound(held_max_bytes)

    def weigh_up(self) -> None:
        """Write down what it holds now, in memory and on disk."""
        memory, pinned, spilled = self.panes.held()
        more = self.postponed.nbytes + (0 if self.after is None else self.after.nbytes)
        self.work["memory_bytes"], self.work["pinned_bytes"] = memory + more, pinned + more
        self.work["spilled_bytes"] = spilled

    def waited(self, whose: str, now_ms: int) -> None:
        """The panes that are open by now were read later, for that budget."""
        pane_us, place = self.flow.fragment.pane_us, self.flow.fragment.range[0]
        first, last = self._open_pane, now_ms * 1_000 // pane_us if pane_us else 0
        if START_OF_TIME < first <= last and not (place or self.suspended or self.past is not None):
            self.dirty = True
            self.counters.mark(first, last, over_budget(self._name, whose, 1))

    def _insert(self, groups: pa.Table) -> None:
        self.dirty = self._changed = True
        self.panes.insert(weighted(groups, self.flow.fragment.task_states, self.weight))

    def _count(self, share: Share, counts: dict[str, int]) -> None:
        self.counters.add(share.panes, rows_in=share.rows)
        if share.sampled is not None:
            panes, rows = share.sampled
            self.counters.add(panes, sampled=rows)
            for pane in share.panes.tolist():  # also where all rows are in, by chance
                self.counters.mark(pane, pane, over_budget(self._name, self.whose, self.weight))
        if any(counts.values()):
            self.counters.add(np.array([self._open_pane], dtype=np.int64), **counts)

    def seal(self, below: int) -> Sealed | None:
        """Take all panes below ``below`` out of the tree, as one snapshot."""
        below = below if self.past is None else min(below, self.past.sealable)
        if below <= self.sealed or self.suspended:
            return None
        self._digest_counted()
        start, self.sealed = self.sealed, below
        self._digest_below(below)
        began = self._cpu_us()
        grown = None if self._parts is None else self.panes.grown(below)
        groups = self.panes.take_below(below)
        counted = self.counters.take_below(below)
        if self._parts is not None:
            self._last_parts += self._parts.seal(below, grown, counted)
        self.reexecution.sealed(below)
        if self._provenance is not None:
            self._traced.append(Traced(self.flow.uid, start, below, 0, self._provenance.take_below(below)))
        keep = self.flow.fragment.keep
        if keep is not None:
            counted = with_cut(counted)
            if groups is not None:
                groups, counted = keep_best(groups, counted, keep)
        counters = encode(counted) if counted is not None else b""
        payload = encode(groups) if groups is not None and groups.num_rows else b""
        keys = 0 if groups is None else groups.num_rows
        part = self._excerpt(groups, counted) if keys else None
        self.work.update(snapshots=1, keys=keys, bytes=len(counters) + len(payload))
        self.work["seal_us"] += self._cpu_us() - began
        return Sealed(self.flow.uid, start, below, counters, payload, excerpt=part)

    def _excerpt(self, groups: pa.Table, counted: pa.Table | None) -> tuple[bytes, bytes] | None:
        """(counters, payload) of what goes up, if not all."""
        if self.threshold is None:
            return None
        part = excerpt(groups, counted, self.threshold, self.flow.fragment)
        if part is None:
            return None
        self.work["left_out"] += groups.num_rows - part[0].num_rows
        return encode(part[1]), encode(part[0]) if part[0].num_rows else b""

    def part(self, now_ms: int | None) -> list[Sealed]:
        """Parts of rows that came late and have waited long enough (None: of all)."""
        if self.after is None:
            return []
        uid, found = self.flow.uid, list[Sealed]()
        for pane, part, counted, payload in self.after.take(now_ms):
            found.append(Sealed(uid, pane, pane + 1, counted, payload, part))
            if self._late_provenance is not None:
                self._traced.append(Traced(uid, pane, pane + 1, part, self._late_provenance.take(pane)))
        return found

    def copied(self, now_ms: int | None) -> list[Sealed]:
        """What a checkpoint has of open panes that neighbours are to have too, as open parts; with None only
        the last parts of panes that were sealed."""
        found, self._last_parts = self._last_parts, []
        if (
            self._parts is None
            or not self._copies
            or now_ms is None
            or self.suspended
            or self.past is not None
        ):
            return found
        self._digest_below(END_OF_TIME)
        began, counted = self._cpu_us(), self.counters.table()
        below = self._parts.copied_below(counted)
        grown = None if below == START_OF_TIME else self.panes.grown(below)
        found += self._parts.take(below, grown, counted)
        self.work["seal_us"] += self._cpu_us() - began
        return found

    def early(self, now_ms: int) -> Early | None:
        """The open panes, if something came to them and it is time (``EMIT CHANGES``)."""
        every_us = self.flow.fragment.changes_us
        waits = every_us is None or now_ms - self._early_ms < every_us // 1000
        counted = None if waits or not self._changed else self.counters.table()
        if counted is None:
            return None
        self._digest_below(END_OF_TIME)
        self._digest_counted()
        self._early_ms, self._changed = now_ms, False
        groups = self.panes.partials()
        end = int(counted["_pane"][-1].as_py()) + 1
        payload = encode(groups) if groups.num_rows else b""
        if len(payload) > EARLY_BYTES_MAX:
            return None
        return Early(self.flow.uid, self.sealed, end, encode(counted), payload)

    def progress(self) -> FlowProgress:
        """How far the flow is; the counts are since the start of this process."""
        at = (self.flow.uid, self.live_from, self.sealed)
        past = self.past is not None
        return FlowProgress(*at, rows=self._rows, late=self._late, future=self._future, past=past)

    def checkpoint(self) -> FlowCheckpoint:
        """Rows that wait for the map are in it, if they are few, or postponed."""
        self.digest(FEW_ROWS)
        self._digest_counted()
        parted = self._parts is not None and self._parts.has_all_from(self.sealed)
        tree, fresh, rows, groups = self.panes.images(parted=parted)
        counted = self.counters.table()
        late_tree, late_counters = self.after.image() if self.after is not None else (b"", b"")
        postponed = self.postponed.images()
        waits = len(rows) + sum(len(one.rows) for one in postponed)
        self.work["image_bytes"] = len(tree) + len(groups) + len(fresh) + len(late_tree) + waits
        return FlowCheckpoint(
            flow=self.flow,
            live_from=self.live_from,
            sealed=self.sealed,
            applied=tuple(sorted(self.applied.items())),
            tree=tree,
            counters=encode(counted) if counted is not None else b"",
            suspended=self.suspended,
            shed=self.shed,
            leapt=self.leapt,
            since=self._since,
            rows=rows,
            late_tree=late_tree,
            late_counters=late_counters,
            part=self.after.number if self.after is not None else 0,
            counted=self._counted.image() if self._counted is not None else b"",
            met=self.reexecution.image(),
            traced=self._provenance.image() if self._provenance is not None else b"",
            late_traced=self._late_provenance.image() if self._late_provenance is not None else b"",
            fresh=fresh,
            opened=self._parts.image() if self._parts is not None else None,
            past=self.past,
            weight=self.weight,
            whose=self.whose,
            parted=parted,
            postponed=postponed,
            groups=groups,
        )
