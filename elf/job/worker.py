"""The worker of one stream on one agent: from chunks of lines to sealed panes, and the cut that makes them
durable.

A ``StreamWorker`` is owned by the *lane* of its stream, which gives it one ``Command`` at a time and does
what the ``Outcome`` says: append to the archive, write the cut, then tell the node. Everything that must
agree after a crash (positions, trees, panes sealed, watermarks, snapshots) is decided here, between two
commands, so that it always agrees.

Rules (PROTOCOL section 3):

- each flow has applied its own positions of each source, and skips what it has;
- ``live_from`` of a new flow is the first pane after everything read before, all of which is parsed by then;
- nothing about a sealed pane leaves the agent before the cut that holds it is durable: an outcome with sealed
  panes
  always carries a cut;
- a row is late when its pane is sealed, or when its pane's end plus lateness is not above the highest event
  time that
  its own source had before it: the same rows are late whatever the chunk sizes;
- rows beyond the future bound are counted and move no watermark.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from elf import windows
from elf.aggregates import merge_tables
from elf.batch import decode, encode
from elf.cbt import BufferTree
from elf.job.cut import FlowCut, SourceCut, StreamCut
from elf.job.messages import FlowProgress
from elf.job.ports import ChunkLike, Engine, ExtractedLike, ExtractorPort, Int64s, MapperPort
from elf.job.spec import END_OF_TIME, START_OF_TIME, Flow
from elf.job.tally import TALLY_STATES, tally
from elf.schema import Column

LONG_AGO = -(1 << 62)
"""Event time before every event time: nothing was read yet."""


@dataclass(frozen=True)
class Feed:
    """A chunk was read."""

    chunk: ChunkLike
    now_ms: int


@dataclass(frozen=True)
class Idle:
    """A read at the end of every file returned nothing; ``gone`` are sources that will never say more."""

    now_ms: int
    gone: tuple[str, ...] = ()


@dataclass(frozen=True)
class Finish:
    """The input is finite and was read to its end: seal everything, for ever."""


@dataclass(frozen=True)
class SealOpen:
    """The agent leaves: seal the panes that have rows, early."""


@dataclass(frozen=True)
class Install:
    """Start to compute a flow, at this chunk boundary."""

    flow: Flow


@dataclass(frozen=True)
class Uninstall:
    """Stop to compute a flow and forget it."""

    uid: str


@dataclass(frozen=True)
class TakeCut:
    """Write down where we are."""


Command = Feed | Idle | Finish | SealOpen | Install | Uninstall | TakeCut


@dataclass(frozen=True)
class WorkerSettings:
    """``finite``: nothing is sealed before ``Finish``. ``idle_ms``: a source silent for that long does not
    hold the watermark. ``future_us``: rows further ahead of the clock than that are set aside (None: no
    bound). ``lateness_us``: the stream's own, for flows that name none (None: nothing is late). ``since_us``:
    rows before are outside the roster. ``cut_ms``: a cut at least that often.
    """

    finite: bool = False
    idle_ms: int = 10_000
    future_us: int | None = 60_000_000
    lateness_us: int | None = 2_000_000
    since_us: int = LONG_AGO
    cut_ms: int = 5_000


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


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a command came to. ``accepted`` and ``ts`` are the archive's; ``rejected`` are line numbers of the
    chunk.
    """

    sealed: tuple[Sealed, ...] = ()
    cut: StreamCut | None = None
    progress: tuple[FlowProgress, ...] = ()
    accepted: Int64s | None = None
    ts: pa.Array | None = None
    rejected: Int64s | None = None
    rows: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    until_us: int = 0
    """End of what this worker has answered for: every sealed pane ends by then."""


@dataclass
class _Source:
    """``highest``: event time; ``heard_ms``: clock at the last chunk."""

    highest: int = LONG_AGO
    heard_ms: int = 0
    end: int = 0


class _FlowState:
    """One flow's tree, tally and positions."""

    def __init__(self, flow: Flow, mapper: MapperPort, lateness_us: int | None, cut: FlowCut) -> None:
        self.flow = flow
        self.mapper = mapper
        self.lateness_us = lateness_us
        self.live_from = cut.live_from
        self.sealed = cut.sealed
        self.applied = dict(cut.applied)
        self.tree = BufferTree.of_partials(("_pane", *flow.fragment.keys), flow.fragment.states)
        if cut.tree:
            self.tree.load(cut.tree)
        self.tallies: list[pa.Table] = [decode(cut.tally)] if cut.tally else []
        self.dirty = True

    def feed(self, source: str, chunk: ChunkLike, view: _View) -> dict[str, int]:
        """Map the rows of a chunk that are this flow's into its tree; the counts of this chunk are returned."""
        fragment = self.flow.fragment
        keep = view.timed.copy() if fragment.pane_us else np.ones(len(view.ts), dtype=np.bool_)
        applied = self.applied.get(source, 0)
        if applied > chunk.start:
            keep &= view.offsets >= applied
        self.applied[source] = max(applied, chunk.end)
        panes = windows.panes_of(view.ts, fragment.pane_us)
        fresh = keep & (panes >= self.live_from)
        late = fresh & (panes < self.sealed)
        if self.lateness_us is not None and fragment.pane_us:
            late |= fresh & ((panes + 1) * fragment.pane_us + self.lateness_us <= view.before)
        on_time = fresh & ~late
        self._insert(view.rows, panes, on_time)
        counts = {
            "late": int(late.sum()),
            "rejected": view.rejected + (int((~view.timed & ~view.future).sum()) if fragment.pane_us else 0),
            "uncast": view.uncast,
            "future": int(view.future.sum()),
            "unrostered": view.unrostered,
        }
        self._count(panes[on_time], counts)
        return counts

    def _insert(self, rows: pa.Table, panes: Int64s, on_time: np.ndarray) -> None:
        if not on_time.any():
            return
        if not on_time.all():
            rows = rows.filter(pa.array(on_time))
            panes = panes[on_time]
        mapped = self.mapper.run(rows.append_column("_pane", pa.array(panes)))
        if mapped.num_rows:
            self.tree.insert_partials(mapped)
        self.dirty = True

    def _count(self, panes: Int64s, counts: dict[str, int]) -> None:
        numbers, rows = np.unique(panes, return_counts=True)
        if len(numbers):
            self.tallies.append(tally(numbers, rows_in=rows))
        if any(counts.values()):
            open_pane = max(self.sealed, self.live_from)
            at = int(numbers[0]) if open_pane == START_OF_TIME and len(numbers) else open_pane
            self.tallies.append(tally(np.array([at], dtype=np.int64), **counts))
        if len(self.tallies) > 64:
            self.tallies = [merge_tables(self.tallies, ("_pane",), TALLY_STATES)]

    def seal(self, below: int) -> Sealed | None:
        """Take all panes below ``below`` out of the tree, as one slice."""
        if below <= self.sealed:
            return None
        start, self.sealed = self.sealed, below
        groups = self.tree.split_off("_pane", below)
        counted = self._tally_below(below)
        return Sealed(
            self.flow.uid,
            start,
            below,
            encode(counted) if counted is not None and counted.num_rows else b"",
            encode(groups) if groups.num_rows else b"",
        )

    def _tally_below(self, below: int) -> pa.Table | None:
        if not self.tallies:
            return None
        whole = merge_tables(self.tallies, ("_pane",), TALLY_STATES)
        mask = np.asarray(whole["_pane"].to_numpy()) < below
        rest = whole.filter(pa.array(~mask))
        self.tallies = [rest] if rest.num_rows else []
        return whole.filter(pa.array(mask))

    def cut(self) -> FlowCut:
        counted = merge_tables(self.tallies, ("_pane",), TALLY_STATES) if self.tallies else None
        return FlowCut(
            flow=self.flow,
            live_from=self.live_from,
            sealed=self.sealed,
            applied=tuple(sorted(self.applied.items())),
            tree=self.tree.dump() if self.tree.rows else b"",
            tally=encode(counted) if counted is not None else b"",
        )


@dataclass
class _View:
    """A chunk as every flow sees it: rows with masks beside them, one entry a row."""

    rows: pa.Table
    ts: Int64s
    timed: np.ndarray
    future: np.ndarray
    before: Int64s
    offsets: Int64s
    rejected: int
    uncast: int
    unrostered: int


class StreamWorker:
    """See the module's docstring. ``cut`` is what the last incarnation wrote down, if there was one."""

    def __init__(
        self, stream: str, settings: WorkerSettings, engine: Engine, cut: StreamCut | None = None
    ) -> None:
        self.stream = stream
        self._settings = settings
        self._engine = engine
        self._flows: dict[str, _FlowState] = {}
        self._sources: dict[str, _Source] = {}
        self._extractor: ExtractorPort | None = None
        self._highest = LONG_AGO
        self._cut_at_ms = 0
        self._started_ms: int | None = None
        self._finished = False
        if cut is not None:
            self._restore(cut)

    def _restore(self, cut: StreamCut) -> None:
        self._highest = cut.highest
        for source in cut.sources:
            self._sources[source.id] = _Source(source.highest, 0, source.end)
        for flow in cut.flows:
            self._add(flow)

    def _add(self, cut: FlowCut) -> None:
        fragment = cut.flow.fragment
        lateness = self._settings.lateness_us if fragment.lateness_us is None else fragment.lateness_us
        self._flows[cut.flow.uid] = _FlowState(cut.flow, self._engine.mapper(fragment), lateness, cut)
        self._renew_extractor()

    def _renew_extractor(self) -> None:
        """One extraction serves all flows: the union of the columns that they need."""
        columns: dict[str, Column] = {}
        for state in self._flows.values():
            columns.update((column.name, column) for column in state.flow.fragment.columns)
        if self._extractor is not None:
            self._extractor.close()
        self._extractor = self._engine.extractor(tuple(columns.values()))

    def handle(self, command: Command) -> Outcome:
        """Perform one command."""
        match command:
            case Feed():
                return self._feed(command)
            case Idle():
                return self._idle(command)
            case Finish():
                self._finished = True
                return self._outcome(self._seal_all(lambda _: END_OF_TIME), must_cut=True)
            case SealOpen():
                return self._outcome(self._seal_all(self._open_end), must_cut=True)
            case Install():
                return self._install(command.flow)
            case Uninstall():
                return self._uninstall(command.uid)
            case TakeCut():
                return self._outcome((), must_cut=True)

    # -- reading ---------------------------------------------------------------------------------------------

    def _feed(self, feed: Feed) -> Outcome:
        if self._extractor is None:
            self._renew_extractor()
        extractor = self._extractor
        if extractor is None:
            raise RuntimeError("no extractor")
        chunk = feed.chunk
        source = self._sources.setdefault(chunk.source.id, _Source())
        extracted = extractor.extract(chunk.lines)
        view = self._view(chunk, extracted, source, feed.now_ms)
        counts: dict[str, int] = {"rejected": view.rejected, "uncast": view.uncast}
        for state in self._flows.values():
            for name, count in state.feed(chunk.source.id, chunk, view).items():
                counts[name] = max(counts.get(name, 0), count)
        source.heard_ms = feed.now_ms
        source.end = chunk.end
        self._highest = max(self._highest, source.highest)
        sealed = self._seal_all(self._target(feed.now_ms))
        due = feed.now_ms - self._cut_at_ms >= self._settings.cut_ms
        return self._outcome(
            sealed,
            must_cut=due,
            now_ms=feed.now_ms,
            accepted=extracted.accepted,
            ts=extracted.table["_ts"].combine_chunks(),
            rejected=extracted.rejected,
            rows=len(chunk.lines) + len(chunk.rejects),
            counts=counts,
        )

    def _view(self, chunk: ChunkLike, extracted: ExtractedLike, source: _Source, now_ms: int) -> _View:
        column = extracted.table["_ts"]
        timed = np.asarray(column.is_valid().to_numpy(zero_copy_only=False), dtype=np.bool_)
        ts = np.asarray(column.fill_null(0).to_numpy(), dtype=np.int64)
        future = np.zeros(len(ts), dtype=np.bool_)
        if self._settings.future_us is not None:
            future = timed & (ts > now_ms * 1000 + self._settings.future_us)
        known = timed & ~future
        rostered = known & (ts >= self._settings.since_us)
        read = np.where(known, ts, LONG_AGO)
        before = windows.highest_before(read, source.highest)
        if len(read):
            source.highest = max(source.highest, int(read.max()))
        return _View(
            rows=extracted.table,
            ts=ts,
            timed=rostered,
            future=future,
            before=before,
            offsets=chunk.offsets[extracted.accepted],
            rejected=len(extracted.rejected) + len(chunk.rejects),
            uncast=extracted.uncast,
            unrostered=int(known.sum() - rostered.sum()),
        )

    def _idle(self, idle: Idle) -> Outcome:
        for gone in idle.gone:
            self._sources.pop(gone, None)
        due = idle.now_ms - self._cut_at_ms >= self._settings.cut_ms and any(
            s.dirty for s in self._flows.values()
        )
        return self._outcome(self._seal_all(self._target(idle.now_ms)), must_cut=due, now_ms=idle.now_ms)

    # -- sealing ---------------------------------------------------------------------------------------------

    def _target(self, now_ms: int) -> Callable[[_FlowState], int]:
        watermark = self.watermark_us(now_ms)

        def target(state: _FlowState) -> int:
            pane_us = state.flow.fragment.pane_us
            if watermark == LONG_AGO or state.lateness_us is None or pane_us == 0:
                return START_OF_TIME
            return windows.sealable(watermark, state.lateness_us, pane_us)

        return target

    def _open_end(self, state: _FlowState) -> int:
        pane_us = state.flow.fragment.pane_us
        if self._highest == LONG_AGO or not pane_us:
            return START_OF_TIME
        return self._highest // pane_us + 1

    def watermark_us(self, now_ms: int) -> int:
        """The lowest event time that its sources still promise; with every source idle, the clock less the
        idle timeout.
        """
        if self._settings.finite:
            return LONG_AGO
        idle_ms = self._settings.idle_ms
        self._started_ms = now_ms if self._started_ms is None else self._started_ms
        recently = now_ms - idle_ms
        sources = self._sources.values()
        talking = [
            s.highest
            for s in sources
            if max(s.heard_ms, self._started_ms) > recently and s.highest != LONG_AGO
        ]
        if talking:
            return min(talking)
        if self._started_ms > recently:
            return self._highest
        return max(self._highest, recently * 1000)

    def _seal_all(self, target: Callable[[_FlowState], int]) -> tuple[Sealed, ...]:
        found = (state.seal(target(state)) for state in self._flows.values())
        return tuple(sealed for sealed in found if sealed is not None)

    # -- flows -----------------------------------------------------------------------------------------------

    def _install(self, flow: Flow) -> Outcome:
        if flow.uid in self._flows:
            return self._outcome((), must_cut=False)
        pane_us = flow.fragment.pane_us
        live_from = START_OF_TIME
        if self._highest != LONG_AGO and pane_us:
            live_from = self._highest // pane_us + 1
        applied = tuple(sorted((name, source.end) for name, source in self._sources.items()))
        self._add(
            FlowCut(flow=flow, live_from=live_from, sealed=live_from, applied=applied, tree=b"", tally=b"")
        )
        sealed = self._seal_all(lambda _: END_OF_TIME) if self._finished else ()
        return self._outcome(sealed, must_cut=True)

    def _uninstall(self, uid: str) -> Outcome:
        state = self._flows.pop(uid, None)
        if state is None:
            return self._outcome((), must_cut=False)
        state.mapper.close()
        self._renew_extractor()
        return self._outcome((), must_cut=True)

    # -- the cut ---------------------------------------------------------------------------------------------

    def _outcome(
        self,
        sealed: tuple[Sealed, ...],
        *,
        must_cut: bool,
        now_ms: int | None = None,
        accepted: Int64s | None = None,
        ts: pa.Array | None = None,
        rejected: Int64s | None = None,
        rows: int = 0,
        counts: dict[str, int] | None = None,
    ) -> Outcome:
        cut = None
        if sealed or must_cut:
            cut = self.cut()
            if now_ms is not None:
                self._cut_at_ms = now_ms
        progress = tuple(FlowProgress(s.flow.uid, s.live_from, s.sealed) for s in self._flows.values())
        return Outcome(sealed, cut, progress, accepted, ts, rejected, rows, counts or {}, self._until_us())

    def _until_us(self) -> int:
        ends = [
            s.sealed * s.flow.fragment.pane_us for s in self._flows.values() if abs(s.sealed) < END_OF_TIME
        ]
        return max([self._highest + 1, *ends])

    def cut(self) -> StreamCut:
        """Everything that this worker must remember to go on after a crash."""
        sources = tuple(SourceCut(name, s.highest, s.end) for name, s in sorted(self._sources.items()))
        for state in self._flows.values():
            state.dirty = False
        return StreamCut(
            highest=self._highest, sources=sources, flows=tuple(s.cut() for s in self._flows.values())
        )

    def close(self) -> None:
        for state in self._flows.values():
            state.mapper.close()
        if self._extractor is not None:
            self._extractor.close()
