"""The worker of one stream on one agent: from chunks of lines to sealed panes, and the checkpoint that makes
them durable.

A ``StreamWorker`` belongs to the *stream task* of its stream, which gives it one ``Command`` at a time and
does what the ``Outcome`` says: append to the archive, write the checkpoint, then tell the node. Everything
that must agree after a crash (source offsets, trees, sealed panes, watermarks, snapshots) is decided here,
between two commands.

Rules:

- each flow has applied its own offset of each source, and skips what it has (protocol 3.2);
- ``live_from`` of a new flow is the first pane after everything read before, all of which is parsed by then
  (protocol 3.6);
- nothing about a sealed pane leaves the agent before the checkpoint that holds it is durable: an outcome with
  sealed panes, or parts of open ones, always carries a checkpoint (protocol 3.3);
- rows beyond the future bound are counted and move no watermark (protocol 3.4);
- flows that promise different things take turns at mapping their rows (protocol 3.12).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from elf import windows
from elf.fields import replace
from elf.job.checkpoint import FlowCheckpoint, StreamCheckpoint
from elf.job.commands import (
    Answered,
    Command,
    DropStragglers,
    Feed,
    Finish,
    GoOver,
    Idle,
    Install,
    Outcome,
    Replay,
    Resume,
    SealOpen,
    SetBounds,
    SetMemory,
    SetOffloaded,
    SetTaps,
    SetThreshold,
    SetWeights,
    Suspend,
    TakeCheckpoint,
    TakeMapped,
    TapsKept,
    Turn,
    Uninstall,
    Waited,
)
from elf.job.gaps import Gap, Missed
from elf.job.past import Past
from elf.job.ports import (
    ChunkLike,
    Engine,
    ExtractedLike,
    ExtractorPort,
    Int64s,
    MapFailed,
    MapperPort,
    Spill,
    Wanted,
)
from elf.job.program.spec import Tapped
from elf.job.reexecution import Where, can_run
from elf.job.snapshots import Early, Sealed
from elf.job.spec import END_OF_TIME, START_OF_TIME, Flow
from elf.job.work import Clock, no_clock
from elf.job.worker.assigning import View, past_view
from elf.job.worker.fitting import with_origins
from elf.job.worker.flowstate import FlowState
from elf.job.worker.sources import LONG_AGO, Source, Sources
from elf.job.worker.taps import Ends, Taps
from elf.job.worker.times import times_of
from elf.job.worker.turns import TurnTaking
from elf.ql.plan import Fragment

__all__ = ["LONG_AGO", "StreamWorker", "WorkerSettings"]


class WorkerSettings(msgspec.Struct, frozen=True):
    """``finite``: nothing is sealed before ``Finish``. ``idle_ms``: a source silent for that long does not
    hold the watermark. ``future_us``: rows further ahead of the clock are set aside (None: no bound).
    ``lateness_us``: the stream's own, for flows that name none (None: nothing is late). ``since_us``: earlier
    rows are outside the roster. ``checkpoint_ms``: the longest time between two checkpoints. ``agent``: a
    prefix for the names of its sources, where those alone are not unique."""

    finite: bool = False
    idle_ms: int = 10_000
    future_us: int | None = 60_000_000
    lateness_us: int | None = 2_000_000
    since_us: int = LONG_AGO
    checkpoint_ms: int = 5_000
    agent: str = ""
    name: str = ""
    """The agent's name, for people."""
    labels: tuple[tuple[str, str], ...] = ()
    """Those of the agent."""
    shared: str = ""
    """How the files are to be read, if others see them too and may run our work again
    (``elf.job.reexecution``)."""
    traces: bool = False
    """Lines are archived: it is written down which of them each pane has counted
    (``elf.job.provenance``)."""
    copies_ms: int | None = None
    """How often what has come to open panes is copied (``elf.job.openparts``); None: never."""


WEIGHED_EVERY_MS: Final = 1_000
"""How often it is written down what flows hold in memory."""


class StreamWorker:
    """See the module's docstring. ``checkpoint``: what the last incarnation wrote, if there was one."""

    def __init__(
        self,
        stream: str,
        settings: WorkerSettings,
        engine: Engine,
        checkpoint: StreamCheckpoint | None = None,
        spill: Spill | None = None,
        cpu_us: Clock = no_clock,
        given: Mapping[str, Ends] = {},
        clock_us: Clock = no_clock,
    ) -> None:
        """``given``: what jobs in Python durably have of this stream, by uid. ``clock_us``: by which turns of
        flows are measured."""
        self.stream = stream
        self._settings = settings
        self._engine = engine
        self._spill = spill
        self._cpu_us, self._clock_us = cpu_us, clock_us
        self._flows: dict[str, FlowState] = {}
        self.turns = TurnTaking(clock_us, self._flows, self.sealable)
        self._sources = Sources(settings.idle_ms)
        self.wanted = Wanted()
        self._taps = Taps(engine.mapper)
        self._extractor: ExtractorPort = engine.extractor(self.wanted)
        self._gone_until = self._sealing_us = LONG_AGO
        self._checkpointed_ms = self._copied_ms = self._weighed_ms = 0
        self._begun_us = 0
        self._sealing: tuple[int, int] | None = None
        """When work on this command began (µs of the clock), and when all was mapped that it seals (the same,
        and the agent's time)."""
        self._finished = False
        if checkpoint is not None:
            self._restore(checkpoint, given)

    def _restore(self, checkpoint: StreamCheckpoint, given: Mapping[str, Ends]) -> None:
        self._gone_until = checkpoint.gone_until
        self._sources.restore(checkpoint, numbered=checkpoint.shared == self._settings.shared)
        for flow in checkpoint.flows:
            self._add(flow)
        self._taps.restore(checkpoint.taps, given)
        self._renew_extractor()

    def _add(self, checkpoint: FlowCheckpoint) -> None:
        fragment = checkpoint.flow.fragment
        self._flows[checkpoint.flow.uid] = FlowState(
            checkpoint.flow,
            self._mapper(fragment),
            self.lateness_us(fragment),
            checkpoint,
            self._spill,
            self._cpu_us,
            self._settings.agent,
            name=self._settings.name,
            traces=self._settings.traces,
            copies=self._settings.copies_ms is not None,
            turns=self.turns.turns,
        )

    def _mapper(self, fragment: Fragment) -> MapperPort:
        """The mapper that all flows of a fragment share."""
        for state in self._flows.values():
            other = state.flow.fragment
            same = (fragment.map_sql, fragment.columns, fragment.function)
            if (other.map_sql, other.columns, other.function) == same:
                return state.mapper
        return self._engine.mapper(fragment)

    def _renew_extractor(self) -> None:
        """One extraction serves all flows."""
        flows = [state.flow.fragment for state in self._flows.values()]
        before, self.wanted = self.wanted, Wanted.of([*flows, *self._taps.fragments()])
        if before == self.wanted:
            return
        self._extractor.close()
        self._extractor = self._engine.extractor(self.wanted)

    def handle(self, command: Command) -> Outcome:
        """Perform one command."""
        self._begun_us, self._sealing = self._clock_us(), None
        outcome = self._handle(command)
        if not outcome.sealed or self._sealing is None:
            return outcome
        from_us, now_ms = self._sealing
        late_ms = max(self.turns.late_ms(one.flow, one.end, now_ms) for one in outcome.sealed)
        return replace(outcome, sealing_us=self._clock_us() - from_us, late_us=int(1_000 * late_ms))

    def _by_now(self, now_ms: int) -> int:
        """What time it is by now; ``now_ms``: when work on the command began."""
        return now_ms + (self._clock_us() - self._begun_us) // 1_000

    def _handle(self, command: Command) -> Outcome:
        match command:
            case Feed():
                self._sources.awake(command.now_ms)
                return self._feed(command)
            case Idle():
                self._sources.awake(command.now_ms)
                return self._idle(command)
            case Finish():
                self._finished = True
                self._close_counted()
                return self._outcome(self._seal_all(lambda _: END_OF_TIME), must_checkpoint=True)
            case SealOpen():
                return self._seal_open()
            case Install():
                return self._install(command)
            case Uninstall():
                return self._uninstall(command.uid)
            case Suspend():
                return self._suspend(command.uid)
            case Resume():
                return self._resume(command.uid)
            case DropStragglers():
                return self._drop(command)
            case Answered():
                return self._answered(command)
            case SetThreshold():
                if command.uid in self._flows:
                    self._flows[command.uid].threshold = command.threshold
                return self._outcome((), must_checkpoint=False)
            case SetWeights():
                for uid, weight, whose in command.weights:
                    if uid in self._flows:
                        self._flows[uid].weigh(weight, whose)
                return self._outcome((), must_checkpoint=False)
            case SetBounds():
                self.turns.agree(dict(command.flows))
                self.turns.turns.keep({state.mapper for state in self._flows.values()})
                return self._outcome((), must_checkpoint=False)
            case Turn():
                return self._turn(command)
            case SetMemory():
                for uid, bytes_max in command.flows:
                    if uid in self._flows:
                        self._flows[uid].bound(bytes_max)
                return self._outcome((), must_checkpoint=False)
            case Waited():
                for state in self._flows.values():
                    state.waited(command.whose, command.now_ms)
                return self._outcome((), must_checkpoint=False)
            case Replay():
                return self._replay(command)
            case GoOver():
                return self._go_over(command)
            case SetOffloaded() | TakeMapped():  # the stream task's own
                return self._outcome((), must_checkpoint=False)
            case TakeCheckpoint():
                return self._outcome((), must_checkpoint=True)
            case SetTaps():
                return self._set_taps(command)
            case TapsKept():
                self._taps.kept(command.uid, command.given)
                return self._outcome((), must_checkpoint=False)

    # -- reading ---------------------------------------------------------------------------------------------

    def _feed(self, feed: Feed) -> Outcome:
        chunk = feed.chunk
        source = self._sources.of(chunk.source.id, chunk.start)
        shared = self._is_shared()
        offsets = self._sources.before(source, chunk.start, feed.now_ms) if shared else None
        if feed.ahead is not None and feed.ahead[0] == self.wanted:
            extracted = feed.ahead[1]
        else:
            extracted = self._extractor.extract(chunk.lines)
        before = [self._sources.highest_before(one.source) for one in feed.missed]
        view = self._view(chunk, extracted, source, feed.now_ms)
        gaps = self._miss(feed.missed, before, feed.now_ms, _first_us(view))
        counts = {"rejected": view.rejected, "uncast": view.uncast, "beyond": extracted.beyond}
        for state in sorted(self._flows.values(), key=lambda state: bool(state.flow.fragment.late_of)):
            if state.past is not None:  # it finds them in the archive
                if state.is_over:
                    state.pass_over(view)
                continue
            read = self._flows.get(state.flow.fragment.late_of)
            late = None if read is None or read.past is not None else read.late_rows
            when = self.turns.when(state, feed.now_ms, is_live=feed.is_live)
            found = state.feed(chunk.source.id, chunk, view, late, when)
            if shared and can_run(state.flow.fragment):
                state.reexecution.saw(*state.last, offsets, source.number)
            for name, count in found.items():
                counts[name] = max(counts.get(name, 0), count)
        self._sources.heard(source, chunk.end, feed.now_ms)
        self.turns.is_idle = False
        self.turns.make_room()
        if not feed.new_sources and (left_out := self._hurry(feed.now_ms, feed.turns)):
            counts["sampled"] = counts.get("sampled", 0) + left_out
        sealed = () if feed.new_sources else self._seal_due(feed.now_ms)
        tapped = (*self._taps.again(), *self._taps.feed(view, chunk), *self._passed())
        failed, self._taps.failed = self._taps.failed, {}
        due = bool(failed) or feed.now_ms - self._checkpointed_ms >= self._settings.checkpoint_ms
        outcome = self._outcome(
            sealed,
            must_checkpoint=due,
            now_ms=feed.now_ms,
            accepted=extracted.accepted,
            ts=extracted.table["_ts"].combine_chunks(),
            rejected=extracted.rejected,
            rows=len(chunk.lines) + len(chunk.rejects),
            counts=counts,
            gaps=gaps,
            failed=failed,
        )
        early = self._early(feed.now_ms)
        return replace(outcome, tapped=tapped, early=early) if tapped or early else outcome

    def _miss(
        self, missed: Sequence[Missed], before: Sequence[int], now_ms: int, first_us: int | None = None
    ) -> tuple[tuple[Gap, Missed], ...]:
        """Bytes are gone: their event times, from the last row ``before`` them to the first one behind them
        (or now), and which panes lack them."""
        found = []
        for one, highest in zip(missed, before, strict=True):
            to_us = first_us if one.ended and first_us is not None else now_ms * 1000
            from_us = to_us if highest == LONG_AGO else min(highest, to_us)
            gap = Gap(from_us, to_us, self._settings.name, one.path, -1 if one.bytes is None else one.bytes)
            found.append((gap, one))
            self._gone_until = max(self._gone_until, gap.to_us)
            for state in self._flows.values():
                state.miss(gap)
        return tuple(found)

    def _is_shared(self) -> bool:
        runs = (can_run(state.flow.fragment) for state in self._flows.values())
        return bool(self._settings.shared) and any(runs)

    def _view(self, chunk: ChunkLike, extracted: ExtractedLike, source: Source, now_ms: int) -> View:
        future_us = self._settings.future_us
        until_us = None if future_us is None else now_ms * 1000 + future_us
        times = times_of(extracted.table["_ts"], self._settings.since_us, until_us)
        read = times.ts if times.earliest_us is not None else np.where(times.known, times.ts, LONG_AGO)
        before = windows.highest_before(read, source.highest)
        if len(read):
            source.highest = max(int(before[-1]), int(read[-1]))
        return View(
            rows=self._with_origins(extracted.table, chunk.source.log),
            wanted=extracted.wanted,
            ts=times.ts,
            timed=times.rostered,
            future=times.future,
            before=before,
            offsets=chunk.offsets[extracted.accepted],
            rejected=len(extracted.rejected) + len(chunk.rejects),
            uncast=extracted.uncast,
            unrostered=times.unrostered,
            earliest_us=times.earliest_us,
            source=chunk.source.id,
        )

    def _with_origins(self, rows: pa.Table, log: str) -> pa.Table:
        """The rows of a log, with those wanted columns that their lines do not have."""
        if not self.wanted.origins:
            return rows
        return with_origins(rows, self.wanted.origins, self._settings.name, log, self._settings.labels)

    def _idle(self, idle: Idle) -> Outcome:
        before = [self._sources.highest_before(one.source) for one in idle.missed]
        gaps = self._miss(idle.missed, before, idle.now_ms)
        if idle.gone:
            self._sources.forget(idle.gone)
            self._close_counted(idle.gone)
            self._taps.gone(idle.gone)
        self._extractor.prepare()
        for state in self._flows.values():
            state.digest_quietly()
        dirty = any(state.dirty for state in self._flows.values())
        due = bool(gaps) or (dirty and idle.now_ms - self._checkpointed_ms >= self._settings.checkpoint_ms)
        self.turns.is_idle = True
        sealed = self._seal_due(idle.now_ms)
        outcome = self._outcome(sealed, must_checkpoint=due, now_ms=idle.now_ms, gaps=gaps)
        early, tapped = self._early(idle.now_ms), (*self._taps.again(), *self._passed())
        return replace(outcome, early=early, tapped=tapped) if early or tapped else outcome

    def _passed(self) -> tuple[Tapped, ...]:
        """Where panes of event time end for jobs in Python, as flows were last sealed."""
        lateness_us = self._settings.lateness_us
        if self._sealing_us == LONG_AGO or lateness_us is None:
            return ()
        return self._taps.passed(self._sealing_us - lateness_us)

    def _early(self, now_ms: int) -> tuple[Early, ...]:
        if self._settings.finite:
            return ()
        found = (state.early(now_ms) for state in self._flows.values())
        return tuple(early for early in found if early is not None)

    def _close_counted(self, gone: tuple[str, ...] | None = None) -> None:
        """Windows of rows that will no longer be filled: of these sources, or of all."""
        for state in self._flows.values():
            state.close_counted(gone)

    # -- sealing ---------------------------------------------------------------------------------------------

    def _target(self, now_ms: int) -> Callable[[FlowState], int]:
        self._sealing_us = self.watermark_us(now_ms)
        return lambda state: self.sealable(state.flow)

    def sealable(self, flow: Flow) -> int:
        """Panes below this one were sealed, or might have been, of a live flow like this one, the last time
        that any was."""
        return self.sealable_at(flow, self._sealing_us)

    def sealable_at(self, flow: Flow, watermark_us: int) -> int:
        """The same, at that watermark."""
        pane_us, lateness_us = flow.fragment.pane_us, self.lateness_us(flow.fragment)
        if watermark_us == LONG_AGO or lateness_us is None or pane_us == 0:
            return START_OF_TIME
        return windows.sealable(watermark_us, lateness_us, pane_us)

    def due_us(self) -> int:
        """The event time of the first line that may end a pane of some flow (``END_OF_TIME``: none does).
        Lines before it may wait for each other."""
        return min((self._due_us(state) for state in self._flows.values()), default=END_OF_TIME)

    def _due_us(self, state: FlowState) -> int:
        pane_us, lateness_us = state.flow.fragment.pane_us, self.lateness_us(state.flow.fragment)
        if state.past is not None or state.suspended or lateness_us is None or not pane_us:
            return END_OF_TIME
        open_from = max(state.sealed, state.live_from)
        if len(state.postponed):
            open_from = max(open_from, self.sealable(state.flow))
        return (open_from + 1) * pane_us + lateness_us

    def _seal_open(self) -> Outcome:
        """Seal all flows to one moment, which is after all that any of them has: panes have many lengths, and
        each flow has to have answered for all that begin before it."""
        self._close_counted()
        ends = [
            s.sealed * s.flow.fragment.pane_us for s in self._flows.values() if abs(s.sealed) < END_OF_TIME
        ]
        until_us = max([self._sources.highest + 1, *ends])

        def target(state: FlowState) -> int:
            pane_us = state.flow.fragment.pane_us
            return -(-until_us // pane_us) if pane_us and until_us > LONG_AGO + 1 else START_OF_TIME

        return replace(self._outcome(self._seal_all(target), must_checkpoint=True), until_us=until_us)

    def watermark_us(self, now_ms: int) -> int:
        """The lowest event time that its sources still promise."""
        return LONG_AGO if self._settings.finite else self._sources.watermark_us(now_ms)

    def _seal_all(self, target: Callable[[FlowState], int], now_ms: int | None = None) -> tuple[Sealed, ...]:
        """Seal what can be sealed, and take the parts that are due; without a clock all parts."""
        flows = self._flows.values()
        sealed = [one for state in flows if (one := state.seal(target(state))) is not None]
        return (*sealed, *(part for state in flows for part in state.part(now_ms)))

    def _seal_due(self, now_ms: int) -> tuple[Sealed, ...]:
        """Seal what the watermark has passed, as far as rows wait for no turn."""
        self._sealing = self._clock_us(), self._by_now(now_ms)
        target = self._target(now_ms)
        if not len(self.turns.turns):
            return self._seal_all(target, now_ms)
        limit = self.turns.limit(self._sealing[1])
        return self._seal_all(lambda state: min(target(state), limit(state)), now_ms)

    def has_turn(self, now_ms: int) -> bool:
        """Whether some flow has something to map now that it has postponed."""
        return self.turns.has_turn(now_ms)

    def _hurry(self, now_ms: int, most: int) -> int:
        """Map at once what is to be sealed very soon, before other chunks; how many rows are left out."""
        if not len(self.turns.turns):
            return 0
        self._sealing_us = self.watermark_us(now_ms)
        return self.turns.turn(self._by_now(now_ms), most, if_near=True)

    def _turn(self, turn: Turn) -> Outcome:
        left_out = self.turns.turn(turn.now_ms, turn.most)
        sealed = self._seal_due(turn.now_ms)
        counts = {"sampled": left_out} if left_out else {}
        return self._outcome(sealed, must_checkpoint=False, now_ms=turn.now_ms, counts=counts)

    # -- flows -----------------------------------------------------------------------------------------------

    def _install(self, command: Install) -> Outcome:
        """Where a flow cannot be computed here, whatever its plan says, it alone fails: the masters of its
        jobs hear why, as of a user's function that fails."""
        flow = command.flow
        if flow.uid in self._flows:
            return self._outcome((), must_checkpoint=False)
        live_from, past = self._begins(command)
        applied = () if past is not None else tuple(sorted(self._sources.ends().items()))
        at = (flow, live_from, live_from, applied)
        begun = FlowCheckpoint(*at, tree=b"", counters=b"", past=past)
        try:
            self._add(begun)
            self._renew_extractor()
            self._flows[flow.uid].mapper.prepare()
        except Exception as error:
            return self._uninstall(flow.uid, f"it cannot be computed: {error}")
        if flow.fragment.has_code and command.samples:
            extracted = self._extractor.extract(pa.array(command.samples, pa.string()))
            rows = self._with_origins(extracted.table, "")
            self._flows[flow.uid].try_out(extracted, rows, command.samples)
        sealed = self._seal_all(lambda _: END_OF_TIME) if self._finished else ()
        return self._outcome(sealed, must_checkpoint=True)

    def _set_taps(self, command: SetTaps) -> Outcome:
        """As for a flow, what cannot be computed fails alone."""
        why, changed = "", False
        try:
            changed = self._taps.put(command.uid, command.taps, command.pane_us)
        except Exception as error:
            self._taps.put(command.uid, ())
            why = f"it cannot be computed: {error}"
        self._renew_extractor()
        return self._outcome((), must_checkpoint=changed, failed={command.uid: why})

    def _suspend(self, uid: str) -> Outcome:
        state = self._flows.get(uid)
        if state is not None:
            state.suspend()
        if state is not None and state.past is not None:
            state.catch_up(self._sources.ends())
        return self._outcome((), must_checkpoint=True)

    def _resume(self, uid: str) -> Outcome:
        if uid in self._flows:
            self._flows[uid].resume(self._next_pane(self._flows[uid].flow))
        return self._outcome((), must_checkpoint=True)

    def _drop(self, command: DropStragglers) -> Outcome:
        state = self._flows.get(command.uid)
        if state is None or (command.below <= state.sealed and not command.names):
            return self._outcome((), must_checkpoint=False)
        rows = state.leap(command.below, command.counted)
        forgotten = tuple((command.uid, name) for name, _ in command.names)
        outcome = self._outcome((), must_checkpoint=bool(forgotten), counts={"leapt": rows})
        return replace(outcome, forgotten=forgotten)

    def _answered(self, command: Answered) -> Outcome:
        state = self._flows.get(command.uid)
        if state is None:
            return self._outcome((), must_checkpoint=False)
        forgotten = tuple((command.uid, name) for name, _ in command.names)
        spans = [span for _, spans in command.names for span in spans]
        counts = state.answered(spans, command.counted, command.gaps)
        return replace(self._outcome((), must_checkpoint=True, counts=counts), forgotten=forgotten)

    def seal_below(self, uid: str, pane: int) -> Sealed | None:
        """Seal the panes of a flow below this one, whatever the watermark says; no checkpoint is made.
        Raises ``MapFailed``: the flow has not mapped all of its rows."""
        state = self._flows[uid]
        sealed = state.seal(pane)
        if state.failure:
            raise MapFailed(state.failure, 0, None)
        return sealed

    def highest_of(self, source: str) -> int:
        """The highest event time that a source has had (``LONG_AGO``: none)."""
        return self._sources.highest_of(source)

    def _begins(self, command: Install) -> tuple[int, Past | None]:
        """The first pane of a new flow, and where it begins in the archive. It answers for no pane of which
        lines are gone (protocol 11.6), or were read before the archive has them."""
        flow, past = command.flow, command.past
        live_from, since_us = self._next_pane(flow), flow.fragment.since_us
        if since_us is None:
            return live_from, None
        gone_us = LONG_AGO
        if self._gone_until != LONG_AGO:
            gone_us = self._gone_until + (self.lateness_us(flow.fragment) or 0) + 1
        covers_us = LONG_AGO if command.covers_us is None else command.covers_us
        known_us = max(since_us, covers_us, self._settings.since_us, gone_us)
        first = -(-known_us // flow.fragment.pane_us)
        if live_from == START_OF_TIME:  # nothing was ever read, so nothing is lacking
            return first, None
        if past is None or command.covers_us is None or live_from <= first:
            return live_from, None
        return first, past

    def _replay(self, command: Replay) -> Outcome:
        """A slice of what was archived. Nothing of it moves a watermark: it was read before."""
        state = self._flows.get(command.uid)
        if state is None or state.past is None:
            return self._outcome((), must_checkpoint=False)
        counts: dict[str, int] = {}
        if command.mapped is not None:
            counts = state.absorb(command.mapped)
        if command.holes:
            state.cut_traces()
        for records in command.records:
            extracted = self._extractor.extract(records.lines)
            rows = self._with_origins(extracted.table, records.log)
            view = past_view(records, extracted, rows, self._settings.since_us, command.until_us)
            for name, count in state.replay(view, records).items():
                counts[name] = counts.get(name, 0) + count
            if command.holes:  # they may lie behind the records too
                state.cut_traces()
        for from_us, to_us in command.holes:
            state.miss(Gap(from_us, to_us, self._settings.name, "archive", -1))
        state.past, state.dirty = command.past, True
        one = None
        if command.past is None:  # the next chunk, or the pause after it, seals
            state.catch_up(self._sources.ends())
        else:
            one = state.seal(END_OF_TIME)
        sealed = (*([one] if one is not None else []), *state.part(command.now_ms))
        due = command.now_ms - self._checkpointed_ms >= self._settings.checkpoint_ms
        must = due or command.past is None
        return self._outcome(sealed, must_checkpoint=must, now_ms=command.now_ms, counts=counts)

    def _go_over(self, command: GoOver) -> Outcome:
        for uid in command.flows:
            state = self._flows.get(uid)
            if state is not None and state.past is None and not state.suspended:
                state.go_over(command.position)
        return self._outcome((), must_checkpoint=False)

    @property
    def settings(self) -> WorkerSettings:
        return self._settings

    @property
    def sealing_us(self) -> int:
        """The watermark, the last time that any pane was sealed by it (``LONG_AGO``: never)."""
        return self._sealing_us

    def passed_over(self, until_us: int) -> None:
        """What was written until then is read by nobody. Where no source says how far event time is, new
        flows begin after that."""
        if not self._sources.tell:
            self._gone_until = max(self._gone_until, until_us)

    def _next_pane(self, flow: Flow) -> int:
        """The first pane after everything that was read, all of which is parsed, or known to be gone."""
        pane_us, lateness_us = flow.fragment.pane_us, self.lateness_us(flow.fragment) or 0
        gone_until = LONG_AGO if self._gone_until == LONG_AGO else self._gone_until + lateness_us
        known = max(self._sources.highest, gone_until)
        return START_OF_TIME if known == LONG_AGO or not pane_us else known // pane_us + 1

    @property
    def own_lateness_us(self) -> int | None:
        """The stream's, for flows that name none."""
        return self._settings.lateness_us

    def lateness_us(self, fragment: Fragment) -> int | None:
        """Its own, or else the stream's. From any thread."""
        return self._settings.lateness_us if fragment.lateness_us is None else fragment.lateness_us

    def _uninstall(self, uid: str, why: str = "") -> Outcome:
        """``why`` it has failed, if it has."""
        state = self._flows.pop(uid, None)
        if state is None:
            return self._outcome((), must_checkpoint=False, failed={uid: why})
        state.panes.empty()
        state.postponed.empty()
        if all(other.mapper is not state.mapper for other in self._flows.values()):
            state.mapper.close()
        self._renew_extractor()
        return self._outcome((), must_checkpoint=True, failed={uid: why})

    # -- the checkpoint --------------------------------------------------------------------------------------

    def _outcome(
        self,
        sealed: tuple[Sealed, ...],
        *,
        must_checkpoint: bool,
        now_ms: int | None = None,
        accepted: Int64s | None = None,
        ts: pa.Array | None = None,
        rejected: Int64s | None = None,
        rows: int = 0,
        counts: dict[str, int] | None = None,
        gaps: tuple[tuple[Gap, Missed], ...] = (),
        failed: Mapping[str, str] = {},
    ) -> Outcome:
        checkpoint, where = None, tuple[Where, ...]()
        if sealed or must_checkpoint:
            where = self._where(now_ms)
            sealed = (*sealed, *self._copied(now_ms))
            checkpoint = self.checkpoint()
            if now_ms is not None:
                self._checkpointed_ms = now_ms
        if now_ms is not None and now_ms - self._weighed_ms >= WEIGHED_EVERY_MS:
            self._weighed_ms = now_ms
            for state in self._flows.values():
                state.weigh_up()
        progress = tuple(state.progress() for state in self._flows.values())
        work = {uid: dict(state.work) for uid, state in self._flows.items()}
        failures = {**failed, **{uid: state.failure for uid, state in self._flows.items()}}
        for state in self._flows.values():
            state.failure = ""
        traced = tuple(one for state in self._flows.values() for one in state.take_traced())
        return Outcome(
            sealed,
            checkpoint,
            progress,
            accepted,
            ts,
            rejected,
            rows,
            counts or {},
            work=work,
            where=where,
            gaps=gaps,
            failed=tuple((uid, why) for uid, why in failures.items() if why),
            traced=traced,
        )

    def _copied(self, now_ms: int | None) -> Iterator[Sealed]:
        """What a checkpoint has of open panes as parts of their own."""
        every_ms = self._settings.copies_ms
        if now_ms is None or every_ms is None or now_ms - self._copied_ms < every_ms:
            now_ms = None
        else:
            self._copied_ms = now_ms
        for state in self._flows.values():
            yield from state.copied(now_ms)

    def _where(self, now_ms: int | None) -> tuple[Where, ...]:
        """From where others may run our flows again. It is computed before the checkpoint, which says who is
        asleep."""
        if now_ms is None or not self._is_shared():
            return ()
        offsets = self._sources.offsets(now_ms)
        states = self._flows.values()
        return tuple(s.where(offsets) for s in states if can_run(s.flow.fragment) and not s.suspended)

    def checkpoint(self) -> StreamCheckpoint:
        """Everything that this worker needs to continue after a crash."""
        sources, number = self._sources.image()
        flows = tuple(state.checkpoint() for state in self._flows.values())
        for state in self._flows.values():
            state.dirty = False
        return StreamCheckpoint(
            highest=self._sources.highest,
            sources=sources,
            flows=flows,
            number=number,
            shared=self._settings.shared,
            gone_until=self._gone_until,
            taps=self._taps.checkpoint(),
        )

    def flows(self) -> tuple[str, ...]:
        """The flows that it computes."""
        return tuple(self._flows)

    @property
    def reads(self) -> bool:
        """Whether any flow, or tap of a job in Python, wants lines."""
        return bool(self._flows) or bool(self._taps)

    def states(self) -> Mapping[str, FlowState]:
        """Its state of each of them."""
        return self._flows

    def suspended(self) -> tuple[str, ...]:
        """Those of them that are over their quota."""
        return tuple(uid for uid, state in self._flows.items() if state.suspended)

    def close(self) -> None:
        for mapper in {id(state.mapper): state.mapper for state in self._flows.values()}.values():
            mapper.close()
        self._taps.close()
        self._extractor.close()


def _first_us(view: View) -> int | None:
    """The event time of the first row that has one."""
    known = view.ts[view.timed]
    return int(known[0]) if len(known) else None
