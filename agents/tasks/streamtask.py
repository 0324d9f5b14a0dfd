"""The stream task of a stream: one thread that owns the stream's worker, and writes its cuts.

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
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from agents.archive.partitions import without_keys
from agents.archive.shelf import Shelf
from agents.disk.store import Store
from agents.formats import Format
from agents.inputs.values import Chunk, Position
from agents.lookups import LOOKUPS
from agents.metrics import Metrics
from agents.tasks.archived import Archived
from agents.tasks.checkpoints import Checkpoints, StoredCheckpoint
from agents.tasks.offloading import Offloading, positions_needed
from agents.tasks.past import Pasts, Roll, Slice
from agents.tasks.rowsamples import RowSamples
from agents.tasks.running import found_at
from agents.tasks.samples import spread
from agents.tasks.sinks import Sinks
from agents.tasks.streams import Ahead, Parsed, StreamEngine
from agents.tasks.tracing import Masks, Tracing
from elf.batch import encode
from elf.errors import UserError
from elf.fields import replace
from elf.functions.cpu import cpu_us
from elf.job.checkpoint import StreamCheckpoint
from elf.job.commands import (
    Answered,
    Command,
    DropStragglers,
    Feed,
    GoOver,
    Idle,
    Install,
    Outcome,
    SetOffloaded,
    TakeMapped,
    Turn,
)
from elf.job.gaps import Missed
from elf.job.messages.inquiries import (
    LookAt,
    RollArchive,
    SampledRows,
    SampleRows,
    StreamSeen,
    TraceRows,
)
from elf.job.ports import Spill
from elf.job.reexecution import Reading
from elf.job.work import Clock
from elf.job.worker.stream import StreamWorker, WorkerSettings
from elf.job.worker.taps import Ends
from elf.ql.graphs import ABLE
from elf.schema import ColumnType, Schema, declare
from elf.wire.base import Request

SAMPLE_LINES: Final = 1_000
"""Lines that are remembered to infer the columns of a stream from."""

LEARNED: Final = 20
"""So many of them are of one chunk; more where a chunk is all that is read of a file."""

PAST_BYTES_AHEAD: Final = 32 << 20
"""What a flow that reads its past may retain: it is ahead of its commits, and waits for them."""
FoundPast = tuple[Install, tuple[Roll, ...]]
_HEAP_KEPT_BYTES: Final = 8 << 20
_NOTHING: Final = np.empty(0, np.int64)
_LEFT_OUT: Final = ("late", "future", "unrostered", "shed", "leapt")
"""Counts of an outcome that are rows in no result, by reason."""


@dataclass(frozen=True)
class TaskStatus:
    """What a stream task knows about its stream without reading it."""

    stream: str
    format: Format
    timestamp: str | None
    archive_path: str
    """Empty: lines are not archived."""
    declared: Mapping[str, ColumnType] = field(default_factory=dict)


class LaneCounts:
    """What a stream task has read since it began, and what of it is in no result; the agent's metrics are
    told."""

    def __init__(self, facts: TaskStatus, metrics: Metrics) -> None:
        self._facts = facts
        self._metrics = metrics
        self.rows_read = 0
        self.bytes_read = 0
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
        self._told = False
        """The metrics have all of these: from then on they hear of what is not zero."""

    def read(self, chunk: Chunk) -> None:
        """A chunk, before it is mapped."""
        self.rows_read += len(chunk.lines) + len(chunk.rejects)
        self.bytes_read += chunk.end - chunk.start

    def mapped(self, chunk: Chunk, outcome: Outcome, seconds: float) -> None:
        """The same, after it."""
        stream, metrics, counts = self._facts.stream, self._metrics, outcome.counts
        metrics.mapped(stream, seconds)
        metrics.rows(stream, outcome.rows, chunk.end - chunk.start)
        for reject in chunk.rejects:
            metrics.rejected(stream, reject.reason)
        refused = outcome.rejected if outcome.rejected is not None else _NOTHING
        if len(refused):
            metrics.rejected(stream, "format", len(refused))
        self.uncast += counts.get("uncast", 0)
        if beyond := counts.get("beyond", 0):
            self.beyond[chunk.source.path] += beyond
            metrics.beyond(stream, beyond)
        self.late += counts.get("late", 0)
        if count := counts.get("rejected", 0):
            self.rejected[chunk.source.path] += count
            if not self.why_not and len(refused):
                self.why_not = self._facts.format.why_not(chunk.lines[int(refused[0])].as_py())

    def performed(self, outcome: Outcome) -> None:
        """Any command."""
        stream, metrics, counts = self._facts.stream, self._metrics, outcome.counts
        if counts:
            for reason in _LEFT_OUT:
                if (rows := counts.get(reason, 0)) or not self._told:
                    metrics.left_out(stream, reason, rows)
            for count, tell in (("uncast", metrics.uncast), ("answered", metrics.answered)):
                if (values := counts.get(count, 0)) or not self._told:
                    tell(stream, values)
            self._told = True
        if sampled := counts.get("sampled", 0):
            metrics.sampled(stream, sampled)
        for gap, _ in outcome.gaps:
            metrics.gap(stream, max(gap.bytes, 0))


class StreamTask:
    """See the module's docstring. Everything here is called on the stream task's own thread, but for ``ship``
    and ``row_sample``. ``reading``: how others read its files, where they share them; ``shared``: the
    files of others that it reads. ``archived``: what it has archived, and how that is masked. ``given``: what
    jobs in Python durably have of its stream."""

    def __init__(
        self,
        facts: TaskStatus,
        settings: WorkerSettings,
        store: Store,
        *,
        engine: StreamEngine | None = None,
        sinks: Sinks | None = None,
        samples: Sequence[str] = (),
        metrics: Metrics | None = None,
        spill: Spill | None = None,
        cores: int | None = None,
        reading: Reading | None = None,
        shared: Sequence[str] = (),
        archived: Archived | None = None,
        masks: Masks = Masks(),  # noqa: B008 (it is a value)
        past_share: float = 1.0,
        given: Mapping[str, Ends] = {},
        clock_us: Clock = lambda: time.perf_counter_ns() // 1_000,
    ) -> None:
        _keep_heap()
        self.facts = facts
        self._labels = tuple(name for name, _ in settings.labels)
        self.metrics = metrics or Metrics()
        self.counts = LaneCounts(facts, self.metrics)
        self._reading = reading
        self.shared = tuple(shared)
        self._checkpoints = Checkpoints(store, facts.stream)
        stored = self._checkpoints.last()
        self.positions: tuple[Position, ...] = stored.positions if stored else ()
        """Of the input, after what was read; at first, where the last checkpoint stands."""
        self._engine = engine or StreamEngine(facts.format, facts.timestamp)
        self._engine.resume(stored.event_time if stored else None)
        self._engine.look_at(pa.array(list(samples), pa.string()))
        self.worker = StreamWorker(
            facts.stream,
            settings,
            self._engine,
            stored.worker if stored else None,
            spill,
            cpu_us,
            given,
            clock_us,
        )
        self.ahead = Ahead(facts.stream, self._engine, cores)
        self._sinks = sinks or Sinks()
        self._sinks.restore(stored.archive if stored else 0, stored.rejects if stored else 0)
        self._store = store
        own = self._sinks.archived()
        self.past_share = past_share
        """Of a core: what reading the past of flows may take."""
        self._pasts = Pasts(self.worker, own)
        self._archived = own
        self._offloading = Offloading(
            self.worker, own, self._pasts, event_time=lambda: self._engine.event_time
        )
        self._sinks.spare(None if stored is None else positions_needed(stored.worker))
        self._settings = settings
        self._samples: deque[tuple[str, str]] = deque(maxlen=SAMPLE_LINES)
        """Some of the last lines, each with its log."""
        self._samples.extend((line, "") for line in spread(samples, SAMPLE_LINES))
        self._learning = not samples
        self.due_us = self.worker.due_us()
        """See ``StreamWorker.due_us``, after the last command; on any thread."""
        self._row_samples = RowSamples(facts.stream, settings)
        self._tracing = None if archived is None else Tracing(archived, store, settings, masks)
        self.busy_us = self.cpu_us = self._waited_us = 0
        """How long it was at work, and how long of that it had a core, or waited for something else, a disk
        or a parser (in the last command: so long); from any thread."""
        self.when_kept: Callable[[tuple[Position, ...]], None] = lambda positions: None
        """Is told the positions of each checkpoint, when it is durable."""
        self.when_turn: Callable[[], None] = lambda: None
        """Is told after a command that some flow has something to map in its turn."""

    def feed(
        self,
        chunk: Chunk,
        positions: tuple[Position, ...],
        now_ms: int,
        ahead: Future[Parsed] | None = None,
        missed: tuple[Missed, ...] = (),
        *,
        new_sources: bool = False,
        learned: int = LEARNED,
        is_live: bool = True,
    ) -> Outcome:
        """A chunk that was read, on which work begins now; ``positions`` are those of the input after it,
        ``missed`` what it could not read before it. ``ahead``: it is being parsed by ``self.ahead``, and is
        waited for. ``new_sources``, ``is_live``: see ``Feed``; ``learned``: so many of its lines are
        remembered."""
        begun = time.perf_counter()
        self.positions = positions
        self._learn(chunk, learned)
        self.counts.read(chunk)
        asked = time.perf_counter()
        parsed = None if ahead is None else ahead.result()
        began = time.perf_counter()
        if ahead is not None:
            now_ms += int(1e3 * (began - begun))
        feed = Feed(chunk, now_ms, parsed, missed, new_sources, is_live)
        outcome = self.perform(feed, now_ms, chunk, begun=begun, waited_s=began - asked)
        self.counts.mapped(chunk, outcome, time.perf_counter() - began)
        self._row_samples.see(chunk.lines, chunk.source.log, now_ms)
        return outcome

    def idle(self, idle: Idle, positions: tuple[Position, ...]) -> Outcome:
        """Nothing new was read; ``positions`` as for ``feed``."""
        self.positions = positions
        return self.perform(idle, idle.now_ms)

    def turn(self, now_ms: int) -> Outcome:
        """Flows map some of what they have postponed."""
        return self.perform(Turn(now_ms), now_ms)

    def rest(self, idle: Idle, positions: tuple[Position, ...]) -> None:
        """Nobody wants what is read: its places are let go of, durably."""
        had, self.positions = self.positions, positions
        outcome = self.perform(idle, idle.now_ms)
        if had and outcome.checkpoint is None:
            self._cut(outcome, self.worker.checkpoint())

    def perform(
        self,
        command: Command,
        now_ms: int,
        chunk: Chunk | None = None,
        *,
        begun: float | None = None,
        waited_s: float = 0.0,
    ) -> Outcome:
        """Perform a command, durably. ``begun``: when work on it began, if not now; for so long it has
        ``waited`` by then."""
        begun = time.perf_counter() if begun is None else begun
        cpu_begun, self._waited_us = cpu_us(), int(1e6 * waited_s)
        try:
            outcome = self._performed(command, now_ms, chunk, begun)
        finally:
            self.busy_us += int((time.perf_counter() - begun) * 1e6)
            self.cpu_us += cpu_us() - cpu_begun + self._waited_us
        if self.worker.has_turn(now_ms):
            self.when_turn()
        return outcome

    def _performed(self, command: Command, now_ms: int, chunk: Chunk | None, begun: float) -> Outcome:
        if isinstance(command, Install) and command.flow.fragment.has_code:
            command = replace(command, samples=tuple(line for line, _ in self._samples))
        elif isinstance(command, DropStragglers | Answered):
            command = self._checkpoints.counted(command)
        elif isinstance(command, SetOffloaded):
            self._offloading.set(command.flows)
        elif isinstance(command, GoOver):
            command = replace(command, position=self._archived.close_roll())
        elif isinstance(command, TakeMapped):
            command = self._offloading.take(command.answer, now_ms) or command
        outcome, handled = self.worker.handle(command), time.perf_counter()
        self.due_us = self.worker.due_us()
        self.counts.performed(outcome)
        if chunk is not None:
            self._sinks.take(chunk, outcome, self.facts.format)
        if self._sinks.due(now_ms):
            self._sinks.roll()
            self._offloading.mark(now_ms)
            self._cut(outcome, outcome.checkpoint or self.worker.checkpoint())
        elif outcome.checkpoint is not None:
            self._cut(outcome, outcome.checkpoint)
        if outcome.sealed:
            now = time.perf_counter()
            sealing_us = outcome.sealing_us + int((now - handled) * 1e6)
            outcome = replace(outcome, took_us=int((now - begun) * 1e6), sealing_us=sealing_us)
        if outcome.where and self._reading is not None:
            reading = replace(self._reading, event_time=self._engine.event_time)
            return replace(outcome, where=found_at(outcome.where, self.positions, reading))
        return outcome

    # -- the past of flows (``agents.tasks.past``) -----------------------------------------------------------

    def begin_past(self, install: Install) -> Callable[[], FoundPast] | None:
        """The work, on another thread, that finds out where in the archive a flow begins, for
        ``install_found``; None: it begins now."""
        return self._pasts.begin(install)

    def install_found(self, found: FoundPast, now_ms: int) -> Outcome:
        """Install a flow that begins there."""
        return self.perform(self._pasts.installing(found), now_ms)

    def ask_past(self) -> Callable[[], Slice] | None:
        """The work, on another thread, that reads the next slice of some flow's past, for ``take_past``;
        None: there is none, or it waits for commits."""
        return self._pasts.ask(lambda uid: self._store.retained_bytes(uid) > PAST_BYTES_AHEAD)

    def take_past(self, found: Slice, now_ms: int) -> Outcome:
        """Give a slice to its flow. Raises ``ArchiveError``, when the last of it could not be read: it is to
        be asked for again."""
        replay = self._pasts.take(found, now_ms)
        return Outcome() if replay is None else self.perform(replay, now_ms)

    def offload(self, now_ms: int) -> list[tuple[str, Outcome]]:
        """What becomes of flows whose rows helpers map: outcomes, with the names of their commands."""
        commands, wanted = self._offloading.turn(
            now_ms, lambda uid: self._store.retained_bytes(uid) > PAST_BYTES_AHEAD
        )
        found = [(type(one).__name__, self.perform(one, now_ms)) for one in commands]
        return [*found, ("Offload", Outcome(wanted=wanted))] if wanted else found

    @property
    def is_behind(self) -> bool:
        """Whether what was archived is still to be read for flows that had gone over to a helper; on any
        thread."""
        return self._offloading.is_behind

    @property
    def unhelped(self) -> dict[str, str]:
        """Why helpers do not map rows of flows, for people; on any thread."""
        return dict(self._offloading.failed)

    def past_failed(self) -> None:
        """What was asked for could not be read."""
        self._pasts.again()

    @property
    def reads_past(self) -> bool:
        """Whether flows here read the archive, when it was last asked for a slice."""
        return self._pasts.reads

    def _cut(self, outcome: Outcome, checkpoint: StreamCheckpoint) -> None:
        began, cpu_began = time.perf_counter(), cpu_us()
        archive, rejects = self._sinks.sync()
        stored = StoredCheckpoint(checkpoint, self.positions, archive, rejects, self._engine.event_time)
        self._checkpoints.save(stored, outcome)
        self._sinks.spare(positions_needed(checkpoint))
        self.when_kept(stored.positions)
        took_s = time.perf_counter() - began
        self._waited_us += max(0, int(took_s * 1e6) - (cpu_us() - cpu_began))
        self.metrics.checkpoint(took_s)
        self._sinks.covered(archive)

    @property
    def rejects_not_kept(self) -> int:
        """Rejects beyond the quota of the reject file."""
        return self._sinks.rejects_not_kept

    @property
    def unshipped(self) -> int:
        """Closed rolls that are not in the archive yet."""
        return self._sinks.unshipped

    @property
    def shelf(self) -> Shelf | None:
        """Where its archive ships to; None: it has none."""
        return self._sinks.shelf

    def ship(self) -> None:
        """Ship the closed rolls that the last checkpoint covers; on any thread. Raises ``ArchiveError``."""
        self._sinks.ship()

    # -- questions -------------------------------------------------------------------------------------------

    def _learn(self, chunk: Chunk, learned: int) -> None:
        """Remember some lines of each chunk, the newest in place of the oldest."""
        lines = chunk.lines
        if self._learning and len(lines):
            step = max(1, len(lines) // learned)
            self._samples.extend((lines[i].as_py(), chunk.source.log) for i in range(0, len(lines), step))

    def describe(self) -> StreamSeen:
        """The columns seen so far."""
        samples = pa.array([line for line, _ in self._samples], pa.string())
        schema = self.facts.format.schema(samples, self._engine.event_time)
        if self.facts.declared:
            schema = declare(schema, self.facts.declared)
        schema = replace(schema, labels=self._labels)
        return StreamSeen(
            schema,
            self.facts.format.name,
            self.facts.timestamp,
            without_keys(self.facts.archive_path),
            self.counts.rows_read,
            (*LOOKUPS.able(), *([ABLE] if find_spec("scipy") is not None else [])),
            self.worker.own_lateness_us,
        )

    def answer(self, request: Request) -> bytes:
        """Answer ``DescribeStream`` or ``RollArchive`` with ``StreamSeen``."""
        if isinstance(request, RollArchive):
            self.roll_archive()
        return msgspec.msgpack.encode(self.describe())

    def roll_archive(self) -> None:
        """Everything that was read goes to the archive."""
        if self._sinks.archives:
            self._sinks.roll()
            self._cut(Outcome(), self.worker.checkpoint())
            self.ship()

    def row_sample(self, request: SampleRows | LookAt | TraceRows, now_ms: int) -> bytes:
        """Answer with ``SampledRows``, or ``TracedRows``; on a thread of its own, always the same. Raises
        ``UserError``."""
        if isinstance(request, TraceRows):
            if self._tracing is None:
                raise UserError("its archive is off")
            return msgspec.msgpack.encode(self._tracing.trace(request, self._engine.event_time))
        if isinstance(request, LookAt):
            return msgspec.msgpack.encode(self._look(request))
        sampled = self._row_samples.look(request, self.facts.format, self._engine.event_time, now_ms)
        return msgspec.msgpack.encode(sampled)

    def _look(self, request: LookAt) -> SampledRows:
        """The last of the lines that are kept."""
        from agents.tasks.looking import Looking  # DuckDB, as in agents.tasks.streams
        from elf.ql.looks import is_look, look_of
        from elf.ql.statements import parse_query

        query = parse_query(request.query)
        if query is None or not is_look(query):
            raise UserError("one SELECT without groups is wanted")
        kept = list(self._samples)
        look = look_of(query, Schema(request.columns, labels=self._labels))
        looking = Looking(look, self.facts.format, self._engine.event_time, self._settings)
        try:
            lines, logs = (pa.array([one[place] for one in kept], pa.string()) for place in (0, 1))
            rows = looking.rows(lines, logs)
        finally:
            looking.close()
        rows = shown = rows.slice(max(0, rows.num_rows - look.rows))
        while shown.num_rows and shown.nbytes > request.bytes_max:
            shown = shown.slice((shown.num_rows + 1) // 2)
        payload = encode(shown.combine_chunks()) if shown.num_rows else b""
        return SampledRows(payload, rows.num_rows - shown.num_rows, len(kept))

    def close(self, *, checkpoint: bool) -> None:
        """End of life; with ``checkpoint`` everything read so far is written down first."""
        if checkpoint:
            self._cut(Outcome(), self.worker.checkpoint())
        self.ahead.close()
        self._row_samples.close()
        self.worker.close()
        self._sinks.close()


def _keep_heap() -> None:
    """Let the C library keep so much freed memory for the next chunk.

    It gives each larger array back to the system at once, and every page of the next one is a fault (a fifth
    of a chunk's time), until an array of that size has been freed once; none of its pages is touched.
    """
    np.empty(_HEAP_KEPT_BYTES, dtype=np.uint8)
