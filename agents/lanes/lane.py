"""The lane of a stream: one thread that owns the stream's worker, archive and reject file, and writes its
cuts.

Commands are performed one at a time, in order. What a command did is durable before it is told: the archive
is fsynced first, then one SQLite transaction holds the worker's cut, the positions of the inputs, of the
archive and of the rejects, and the snapshots of the panes that were sealed. So after a crash everything goes
on from the same point.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from agents.disk.store import Store
from agents.formats import Format
from agents.inputs import Chunk, Position, Reject
from agents.inputs.values import REJECT_KEPT_BYTES
from agents.lanes.ahead import Ahead, Parsed
from agents.lanes.archive import Archive
from agents.lanes.leaping import counted, forgotten
from agents.lanes.peeks import Peeks
from agents.lanes.rejects import RejectFile
from agents.lanes.samples import spread
from agents.lanes.streams import FunctionsAt, StreamEngine
from agents.lanes.whereabouts import found_at
from agents.metrics import Metrics
from elf.job import messages as say
from elf.job.again import Reading
from elf.job.commands import Answered, Command, Feed, Idle, Install, Leap, Outcome
from elf.job.cut import StreamCut
from elf.job.gaps import Missed
from elf.job.ports import Spill
from elf.job.snapshots import SnapshotName
from elf.job.worker.stream import StreamWorker, WorkerSettings
from elf.ql.plan import Table
from elf.schema import ColumnType, declare

SAMPLE_LINES: Final = 1_000
"""Lines that are remembered to infer the columns of a stream from."""

_HEAP_KEPT_BYTES: Final = 8 << 20


@dataclass(frozen=True)
class StoredCut:
    """A cut as it is stored: the worker's, and where its neighbours were at that moment."""

    worker: StreamCut
    positions: tuple[Position, ...]
    archive: int
    rejects: int
    event_time: str | None = None


@dataclass(frozen=True)
class LaneFacts:
    """What a lane knows about its stream without reading it."""

    stream: str
    format: Format
    timestamp: str | None
    archive_path: str
    declared: Mapping[str, ColumnType] = field(default_factory=dict)


class Lane:
    """See the module's docstring. Everything here is called on the lane's own thread, but for ``load``."""

    def __init__(
        self,
        facts: LaneFacts,
        settings: WorkerSettings,
        store: Store,
        *,
        archive: Archive | None = None,
        rejects: RejectFile | None = None,
        samples: Sequence[str] = (),
        metrics: Metrics | None = None,
        spill: Spill | None = None,
        cores: int | None = None,
        reading: Reading | None = None,
        functions: FunctionsAt | None = None,
        engine: StreamEngine | None = None,
    ) -> None:
        _keep_heap()
        self.facts = facts
        self.metrics = metrics or Metrics()
        self._store = store
        self._reading = reading
        self._archive = archive
        self._rejects = rejects
        stored = load_cut(store, facts.stream)
        self._joined = frozenset(store.joined(facts.stream))
        self._positions: tuple[Position, ...] = stored.positions if stored else ()
        self._durable = stored.archive if stored else 0
        self._engine = engine or StreamEngine(
            facts.format, facts.timestamp, stored.event_time if stored else None, functions
        )
        self._engine.look_at(pa.array(list(samples), pa.string()))
        self.worker = StreamWorker(
            facts.stream, settings, self._engine, stored.worker if stored else None, spill, cpu_us
        )
        self.ahead = Ahead(facts.stream, self._engine, cores)
        if archive is not None:
            archive.restore(stored.archive if stored else 0)
        if rejects is not None:
            rejects.truncate_to(stored.rejects if stored else 0)
        self._samples: deque[str] = deque(spread(samples, SAMPLE_LINES), maxlen=SAMPLE_LINES)
        self._learning = not samples
        self._peeks = Peeks(facts.stream)
        self.rows_read = 0
        self.rejected = Counter[str]()
        """Lines that are in no result since they did not parse, or have no time, by path."""
        self.why_not = ""
        """What is wrong with the first line that was rejected for its format."""
        self.uncast = 0
        """Values that are NULL since they did not fit their columns."""
        self.beyond = Counter[str]()
        """Lines with more fields than their format, by path."""
        self.late = 0
        """Lines that are in no result since they came too late."""
        self.bytes_read = 0

    def feed(
        self,
        chunk: Chunk,
        positions: tuple[Position, ...],
        now_ms: int,
        ahead: Future[Parsed] | None = None,
        missed: tuple[Missed, ...] = (),
        *,
        new_sources: bool = False,
    ) -> Outcome:
        """A chunk that was read; ``positions`` are those of the input after it, ``missed`` what it could not
        read before it. ``ahead``: it is being parsed by ``self.ahead``, and is waited for.
        ``new_sources``: see ``Feed``."""
        self._positions = positions
        self._learn(chunk.lines)
        self.rows_read += len(chunk.lines) + len(chunk.rejects)
        self.bytes_read += chunk.end - chunk.start
        parsed = None if ahead is None else ahead.result()
        began = time.perf_counter()
        outcome = self.perform(Feed(chunk, now_ms, parsed, missed, new_sources), now_ms, chunk)
        stream = self.facts.stream
        self.metrics.mapped(stream, time.perf_counter() - began)
        self.metrics.rows(stream, outcome.rows, chunk.end - chunk.start)
        for reject in chunk.rejects:
            self.metrics.rejected(stream, reject.reason)
        if outcome.rejected is not None and len(outcome.rejected):
            self.metrics.rejected(stream, "format", len(outcome.rejected))
        self.uncast += outcome.counts.get("uncast", 0)
        if beyond := outcome.counts.get("beyond", 0):
            self.beyond[chunk.source.path] += beyond
            self.metrics.beyond(stream, beyond)
        self.late += outcome.counts.get("late", 0)
        if count := outcome.counts.get("rejected", 0):
            self.rejected[chunk.source.path] += count
            if not self.why_not and outcome.rejected is not None and len(outcome.rejected):
                self.why_not = self.facts.format.why_not(chunk.lines[int(outcome.rejected[0])].as_py())
        self._peeks.see(chunk.lines, now_ms)
        return outcome

    def idle(self, idle: Idle, positions: tuple[Position, ...]) -> Outcome:
        """Nothing new was read; ``positions`` as for ``feed``."""
        self._positions = positions
        return self.perform(idle, idle.now_ms)

    def perform(self, command: Command, now_ms: int, chunk: Chunk | None = None) -> Outcome:
        """Perform a command, durably."""
        if isinstance(command, Install) and command.flow.fragment.function is not None:
            command = replace(command, samples=tuple(self._samples))
        elif isinstance(command, Leap | Answered):
            command = counted(command, self._store)
        outcome = self.worker.handle(command)
        if outcome.counts:
            self._measure(outcome.counts)
        for gap, _ in outcome.gaps:
            self.metrics.gap(self.facts.stream, max(gap.bytes, 0))
        if chunk is not None:
            self._keep(chunk, outcome)
        if self._archive is not None and self._archive.due(now_ms):
            self._archive.roll()
            self._cut(outcome, outcome.cut or self.worker.cut())
        elif outcome.cut is not None:
            self._cut(outcome, outcome.cut)
        if outcome.where and self._reading is not None:
            reading = msgspec.structs.replace(self._reading, event_time=self._engine.event_time)
            return replace(outcome, where=found_at(outcome.where, self._positions, reading))
        return outcome

    def _measure(self, counts: Mapping[str, int]) -> None:
        stream = self.facts.stream
        self.metrics.left_out(stream, "late", counts.get("late", 0))
        self.metrics.left_out(stream, "future", counts.get("future", 0))
        self.metrics.left_out(stream, "unrostered", counts.get("unrostered", 0))
        self.metrics.left_out(stream, "shed", counts.get("shed", 0))
        self.metrics.left_out(stream, "leapt", counts.get("leapt", 0))
        self.metrics.uncast(stream, counts.get("uncast", 0))
        self.metrics.answered(stream, counts.get("answered", 0))

    def _keep(self, chunk: Chunk, outcome: Outcome) -> None:
        """Lines that parsed go to the archive, the others to the reject file."""
        accepted, rejected = outcome.accepted, outcome.rejected
        if self._archive is not None and accepted is not None and outcome.ts is not None and len(accepted):
            whole = len(accepted) == len(chunk.lines)
            lines = chunk.lines if whole else chunk.lines.take(pa.array(accepted))
            self._archive.append(lines, outcome.ts, chunk.source.id, chunk.offsets[accepted])
        if self._rejects is None:
            return
        for reject in chunk.rejects:
            self._rejects.add(reject)
        for index in rejected if rejected is not None else np.empty(0, np.int64):
            line = chunk.lines[int(index)].as_py().encode()
            offset = int(chunk.offsets[int(index)])
            kept = line[:REJECT_KEPT_BYTES]
            why = self.facts.format.why_not(kept.decode(errors="replace"))
            reason = f"no {self.facts.format.name} line" + (f": {why}" if why else "")
            self._rejects.add(Reject(chunk.source.id, chunk.source.path, offset, reason, kept, len(line)))

    def _cut(self, outcome: Outcome, cut: StreamCut) -> None:
        began = time.perf_counter()
        archive = self._archive.sync() if self._archive is not None else 0
        rejects = self._rejects.sync() if self._rejects is not None else 0
        joined, cut = _without_tables(cut)
        stored = StoredCut(cut, self._positions, archive, rejects, self._engine.event_time)
        data, news = msgspec.msgpack.encode(stored), None if joined.keys() == self._joined else joined
        self._store.save_cut(self.facts.stream, data, outcome.sealed, forget=forgotten(outcome), joined=news)
        self._joined = frozenset(joined)
        self.metrics.cut(time.perf_counter() - began)
        self._durable = archive

    @property
    def is_shared(self) -> bool:
        """Whether other agents see its files, and it theirs."""
        return self._reading is not None

    @property
    def rejects_not_kept(self) -> int:
        """Rejects beyond the quota of the reject file."""
        return 0 if self._rejects is None else self._rejects.not_kept

    @property
    def unshipped(self) -> int:
        """Closed rolls that are not in the archive yet."""
        return 0 if self._archive is None else self._archive.unshipped

    def ship(self) -> None:
        """Ship the closed rolls that the last cut covers; on any thread. Raises ``ArchiveError``."""
        if self._archive is not None:
            self._archive.ship(self._durable)

    # -- questions -------------------------------------------------------------------------------------------

    def _learn(self, lines: pa.StringArray) -> None:
        """Remember some lines of each chunk, the newest in place of the oldest."""
        if self._learning and len(lines):
            step = max(1, len(lines) // 20)
            self._samples.extend(lines[i].as_py() for i in range(0, len(lines), step))

    def describe(self) -> say.StreamSeen:
        """The columns seen so far."""
        samples = pa.array(list(self._samples), pa.string())
        schema = self.facts.format.schema(samples, self._engine.event_time)
        if self.facts.declared:
            schema = declare(schema, self.facts.declared)
        return say.StreamSeen(
            schema, self.facts.format.name, self.facts.timestamp, self.facts.archive_path, self.rows_read
        )

    def answer(self, request: say.Request) -> bytes:
        """Answer ``DescribeStream`` or ``RollArchive`` with ``StreamSeen``."""
        if isinstance(request, say.RollArchive) and self._archive is not None:
            self._archive.roll()
            self._cut(Outcome(), self.worker.cut())
            self.ship()
        return msgspec.msgpack.encode(self.describe())

    def peek(self, request: say.PeekStream, now_ms: int) -> bytes:
        """Answer with ``Peeked``; on a thread of its own, always the same."""
        peeked = self._peeks.look(request, self.facts.format, self._engine.event_time, now_ms)
        return msgspec.msgpack.encode(peeked)

    def close(self, *, cut: bool) -> None:
        """End of life; with ``cut`` everything read so far is written down first."""
        if cut:
            self._cut(Outcome(), self.worker.cut())
        self.ahead.close()
        self._peeks.close()
        self.worker.close()
        if self._archive is not None:
            self._archive.close()
        if self._rejects is not None:
            self._rejects.close()


def cpu_us() -> int:
    """CPU time of this thread, in µs."""
    return time.thread_time_ns() // 1_000


def _keep_heap() -> None:
    """Let the C library keep so much freed memory for the next chunk.

    It gives each larger array back to the system at once, and every page of the next one is a fault (a fifth
    of a chunk's time), until an array of that size has been freed once; none of its pages is touched.
    """
    np.empty(_HEAP_KEPT_BYTES, dtype=np.uint8)


def load_cut(store: Store, stream: str) -> StoredCut | None:
    """The last cut of a stream, if there is one."""
    data = store.load_cut(stream)
    if data is None:
        return None
    stored, joined = msgspec.msgpack.decode(data, type=StoredCut), store.joined(stream)
    cut = _with_tables(stored.worker, lambda table: replace(table, data=joined[table.digest]))
    return replace(stored, worker=cut)


def _without_tables(cut: StreamCut) -> tuple[dict[str, bytes], StreamCut]:
    """The contents of joined tables, by digest, and the cut without them: they would be most of it."""
    found: dict[str, bytes] = {}

    def take(table: Table) -> Table:
        found[table.digest] = table.data
        return replace(table, data=b"")

    return found, _with_tables(cut, take)


def _with_tables(cut: StreamCut, change: Callable[[Table], Table]) -> StreamCut:
    if not any(one.flow.fragment.tables for one in cut.flows):
        return cut
    flows = []
    for one in cut.flows:
        fragment = replace(one.flow.fragment, tables=tuple(change(t) for t in one.flow.fragment.tables))
        flows.append(replace(one, flow=replace(one.flow, fragment=fragment)))
    return replace(cut, flows=tuple(flows))


def snapshot_names(flow: str, names: Sequence[tuple[int, int, int]]) -> list[SnapshotName]:
    return [SnapshotName(flow, *name) for name in names]
