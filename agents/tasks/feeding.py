"""Feeds the stream tasks of an agent: inputs are read ahead of them, in order, as far as there is room.

A stream has a thread that looks at its files and one that is its stream task; chunks go from the one to the
other over the loop. Reading is held back while a stream task is behind, while the agent has taken, or holds,
more than it may (``agents.tasks.holding``), and while it leaves: files can wait. What nobody wants is not
read at all (``agents.tasks.resting``). Rolls are shipped, and archived lines are read again
(``agents.tasks.replaying``), beside everything else."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from agents.archive.partitions import HOUR_US, for_people
from agents.archive.shelf import Held
from agents.disk.store import StoreError
from agents.inputs.values import Chunk, Counters, Input, Position
from agents.logs import Logger
from agents.ports import Receiver, WhenDone
from agents.tasks.allowance import Bound
from agents.tasks.archive import ArchiveError
from agents.tasks.helping import Helping
from agents.tasks.holding import ROLLS_WAITING_MAX, Holding
from agents.tasks.housekeeping import EVERY_S as HOUSE_EVERY_S
from agents.tasks.housekeeping import Housekeeping
from agents.tasks.replaying import Replaying
from agents.tasks.resting import Resting
from agents.tasks.running import Running
from agents.tasks.streamtask import LEARNED, StreamTask
from elf.errors import ElfError
from elf.job import effects as do
from elf.job import events as was
from elf.job.commands import (
    Command,
    DropStragglers,
    Finish,
    Idle,
    Install,
    Outcome,
    SealOpen,
    SetOffloaded,
    SetWeights,
    TakeMapped,
    TapsKept,
    Uninstall,
    Waited,
)
from elf.job.messages.inquiries import LookAt, SampleRows, TraceRows
from elf.planning.latency import POLL_GROWS, POLL_MAX_S, POLL_S
from elf.planning.lent import AGENT
from elf.wire.clients import ArchiveStats

CHUNKS_AHEAD: Final = 4
"""Chunks of one stream that may wait for its stream task: reading is held back beyond that."""
CHUNK_BYTES_MIN: Final = 1 << 20
CHUNK_BYTES_MAX: Final = 8 << 20
"""A read asks for the least when the last one came back with little, and for twice as much each time that
there was more: small chunks when idle, large ones under backlog, which cost a tenth less a row."""
GATHER_S: Final = 0.2
"""Lines gather for so long, and are fed together: each time costs a millisecond or more, however few they
are. Where some pane ends sooner they are looked for then, so that no window waits for it."""
LAST_S: Final = 0.03
"""Where windows are promised soon, lines have gathered for so long at most when their pane ends."""
IDLE_EVERY_MS: Final = 250
UNREAD_EVERY_MS: Final = 1_000
"""The same of a stream that no flow reads, and between two looks at what the loop has to do for an input."""
SAID_EVERY_MS: Final = 1_000
"""A stream task that has nothing new to say says so this often."""
SHIP_RETRY_S: Final = 1.0
GAPS_KEPT: Final = 100
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
LEARNED_AT_ONCE: Final = 200
"""Lines of a file that are remembered when its last ones alone are read."""
LAG_MS: Final = 50
"""A stream that is behind by less is not behind."""
STOPPED_MS: Final = 2_000
"""Between two looks: the process was stopped."""
LAG_TOLD_EVERY_MS: Final = 1_000
ARCHIVE_TOLD_EVERY_MS: Final = 60_000
"""An archive that goes on taking nothing is said so often."""


@dataclass
class _Stream:
    task: StreamTask
    input: Input
    thread: ThreadPoolExecutor
    reader: ThreadPoolExecutor
    slots: asyncio.Semaphore
    resting: Resting
    closing: threading.Event = field(default_factory=threading.Event)
    read_bytes: int = 0
    pause_s: float = 0.0
    """Until the next look at its files; 0: at once, since the last one found something."""
    due_pause_s: float = 0.0
    """The last one between two looks for what is due."""
    poll_s: float = POLL_S
    """The first one."""
    shipping: bool = False
    archive_problem: str = ""
    archive_told_ms: int = 0
    beyond_told: bool = False
    told: dict[str, str] = field(default_factory=dict)
    at_end_ms: int = 0
    """When all was read that its files had; 0: never yet."""
    lag_ms: int | None = None
    """The least by which its stream task was behind its files since that was told."""
    lag_told_ms: int = 0
    """When that was; 0: it was never behind."""
    turning: bool = False
    """Flows have a turn soon."""
    idle_ms: int = 0
    """When the stream task was last told that nothing new was read, or had something new."""
    said_ms: int = 0
    said: object = None
    """What it said then, and when that was told."""


class Feeding:
    """``tell``: what is told of stream tasks; ``running``: runs other agents' work again. ``reading`` may be
    cleared to hold back all inputs. ``allowances``: by the settings that they are of."""

    def __init__(
        self,
        streams: Sequence[tuple[StreamTask, Input]],
        log: Logger,
        *,
        now_ms: Callable[[], int],
        leaving: Callable[[], bool],
        when_done: WhenDone,
        tell: Callable[
            [was.Worked | was.Consulted | was.Ran | was.Helped | was.HeldBack | was.Lagging], None
        ],
        memory_max_bytes: int | None,
        allowances: Mapping[str, Bound] = {},
        running: Running,
        helping: Helping,
        receivers: Mapping[str, Receiver],
        housekeeping: Housekeeping | None = None,
    ) -> None:
        self.reading = asyncio.Event()
        self.reading.set()
        self._streams = {task.facts.stream: _stream(task, source) for task, source in streams}
        for stream in self._streams.values():
            stream.task.when_turn = partial(self._turn_soon, stream)
        self._log = log
        self._now_ms = now_ms
        self._leaving = leaving
        self._when_done = when_done
        self._tell = tell
        self._holding = Holding(
            log,
            now_ms=now_ms,
            tell=tell,
            waited=lambda name: self._perform(name, Waited(str(AGENT), now_ms())),
            memory_max_bytes=memory_max_bytes,
            allowances=allowances,
        )
        self._running, self._helping = running, helping
        self._housekeeping = housekeeping
        self._receivers = dict(receivers)
        """What writes to the inputs of streams, until all is read that they have received."""
        self._receiving: dict[str, asyncio.Task[Any] | None] = {}
        self._sealing: dict[str, SealOpen] = {}
        """What is to be performed when all is read that was received."""
        self._shipper = ThreadPoolExecutor(1, thread_name_prefix="ship")
        self._archived = ThreadPoolExecutor(1, thread_name_prefix="past")
        """Reads what was archived."""
        self._replaying = {name: self._replay(stream) for name, stream in self._streams.items()}
        self._sampler = ThreadPoolExecutor(1, thread_name_prefix="sample")
        self.gaps: deque[dict[str, object]] = deque(maxlen=GAPS_KEPT)
        """The last gaps that were found, for people."""

    def _replay(self, stream: _Stream) -> Replaying:
        """What gives its flows their past."""
        return Replaying(
            stream.task,
            stream.thread,
            self._archived,
            self._log,
            now_ms=self._now_ms,
            leaving=self._leaving,
            when_done=self._when_done,
            worked=lambda command, outcome: self._worked(stream, command, outcome),
        )

    def tasks(self) -> tuple[StreamTask, ...]:
        return tuple(stream.task for stream in self._streams.values())

    def counters(self) -> list[Counters]:
        """Of all inputs."""
        return [stream.input.counters for stream in self._streams.values()]

    def backlogs(self) -> dict[str, int]:
        """Bytes of each stream that wait in its files, or for its stream task."""
        return {
            name: stream.input.unread + stream.read_bytes - stream.task.counts.bytes_read
            for name, stream in self._streams.items()
        }

    def readers(self) -> list[Coroutine[Any, Any, None]]:
        """What reads the inputs and writes to them, until it is cancelled or they end."""
        receiving = [self._receive(name, one) for name, one in self._receivers.items()]
        kept = [] if self._housekeeping is None else [self._keep_house(self._housekeeping)]
        reading = [self._read(stream) for stream in self._streams.values()]
        past = [one.run(self.reading) for one in self._replaying.values()]
        return [*kept, *receiving, *reading, *past]

    async def close(self, clean: bool) -> None:
        """After the tasks. ``clean``: the stream tasks write a last checkpoint."""
        self._sampler.shutdown(wait=True)
        self._archived.shutdown(wait=True, cancel_futures=True)
        for stream in self._streams.values():
            stream.closing.set()
            stream.reader.shutdown(wait=True)
            if clean and self._leaving():  # nobody comes back for what lies in the open roll
                with contextlib.suppress(ElfError):
                    await asyncio.wrap_future(stream.thread.submit(stream.task.roll_archive))
            with contextlib.suppress(ElfError):
                await asyncio.wrap_future(stream.thread.submit(stream.task.close, checkpoint=clean))
            stream.thread.shutdown(wait=True)
            stream.input.close()
        self._shipper.shutdown(wait=True)

    def perform(self, name: str, command: Command) -> None:
        """On the stream task of a stream, after what it was given before."""
        behind = self._streams[name].task.is_behind
        if isinstance(command, SealOpen) and (name in self._receivers or behind):
            self._sealing[name] = command
            return
        self._streams[name].resting.command(command, partial(self._perform, name, command), self._now_ms())

    def pace(self, effect: do.Paced) -> None:
        """How soon what ends a pane is to be seen."""
        self._streams[effect.stream].poll_s = effect.poll_ms / 1000

    def _perform(self, name: str, command: Command) -> None:
        stream = self._streams[name]
        if isinstance(command, Uninstall):
            self._replaying[name].forget(command.uid)
        if isinstance(command, Install) and command.flow.fragment.since_us is not None:
            self._replaying[name].begin(command)
            return
        if isinstance(command, TapsKept):
            kept = stream.thread.submit(self._kept, stream, command, self._now_ms())
            self._unless_quiet(stream, kept, type(command).__name__)
            return
        future = stream.thread.submit(stream.task.perform, command, self._now_ms())
        if isinstance(command, SetOffloaded | TakeMapped):
            self._replaying[name].look()
        if isinstance(command, DropStragglers):
            self._when_done(future, lambda outcome: self._leapt(name, command, outcome))
        if isinstance(command, SetWeights):
            for uid, weight, whose in command.weights:
                if weight > 1:
                    text = "rows are left out over a budget, others stand for them"
                    self._log.info(text, stream=name, flow=uid, budget=whose, one_in=weight)
        if isinstance(command, Install):
            self._when_done(future, lambda _: self._log.debug("a flow is computed", flow=command.flow.uid))
        self._when_done(future, lambda outcome: self._worked(stream, type(command).__name__, outcome))

    def _leapt(self, name: str, command: DropStragglers, outcome: Outcome) -> None:
        """Rows were lost by what their job says: that is told where they were read."""
        if rows := outcome.counts.get("leapt", 0):
            text = "windows came without rows of this agent, which are left out for good (STRAGGLERS LEAP)"
            self._log.warning(text, stream=name, flow=command.uid, rows=rows)

    def _worked(self, stream: _Stream, command: str, outcome: Outcome) -> None:
        name = stream.task.facts.stream
        for gap, missed in outcome.gaps:
            shown = gap.shown() | {"from": _moment(gap.from_us), "to": _moment(gap.to_us)}
            self._log.warning("a gap: lines of a log are gone unread", stream=name, why=missed.why, **shown)
            self.gaps.append({"stream": name, **shown, "why": missed.why})
        if outcome.counts.get("beyond") and not stream.beyond_told:
            stream.beyond_told = True
            facts, path = stream.task.facts, next(iter(stream.task.counts.beyond))
            text = f"lines have more fields than format {facts.format.name}: extra_1 … have the others"
            self._log.warning(text, stream=facts.stream, path=path)
        for uid, why in outcome.failed:
            self._log.warning("a flow, or a job in Python, has failed here", stream=name, uid=uid, reason=why)
        if stream.task.unshipped and not stream.shipping:
            stream.shipping = True
            self._when_done(self._shipper.submit(self._ship, stream), lambda _: None)
        self._tell(was.Worked(name, command, outcome))

    def _ship(self, stream: _Stream) -> None:
        """Rolls to the archive, beside everything else; what cannot be shipped now is tried again later, and
        said when it begins, each minute, and when it is over."""
        name, waiting = stream.task.facts.stream, stream.task.unshipped
        try:
            stream.task.ship()
            if stream.archive_problem:
                self._log.info("the archive takes what has waited", stream=name, rolls=waiting)
            stream.archive_problem = ""
        except ArchiveError as error:
            stream.task.metrics.archive_failed(name)
            now_ms = self._now_ms()
            if not stream.archive_problem or now_ms - stream.archive_told_ms >= ARCHIVE_TOLD_EVERY_MS:
                stream.archive_told_ms = now_ms
                text = "the archive takes no more: rolls wait in the data folder, and reading with them when "
                text += f"there are {ROLLS_WAITING_MAX}; make room at archive.path, or make it reachable"
                self._log.warning(text, stream=name, rolls=waiting, reason=str(error))
            stream.archive_problem = str(error)
            time.sleep(SHIP_RETRY_S)
        finally:
            stream.shipping = False

    async def _keep_house(self, housekeeping: Housekeeping) -> None:
        """Of the archive, on the thread that ships."""
        while True:
            await asyncio.sleep(HOUSE_EVERY_S)
            await asyncio.get_running_loop().run_in_executor(self._shipper, housekeeping.run, self._log)

    def archive_warnings(self) -> list[str]:
        """What is wrong with the archive beside that it takes no rolls."""
        found = [] if self._housekeeping is None else self._housekeeping.warnings()
        for name, stream in sorted(self._streams.items()):
            found += [
                f"stream {name}: rows of flow {uid[:8]} are mapped here and not by their helper: {why}"
                for uid, why in sorted(stream.task.unhelped.items())
            ]
        return found

    def archives(self) -> list[ArchiveStats]:
        """What the archive has of each stream, and what waits for it."""
        known = {} if self._housekeeping is None else self._housekeeping.held()
        found = []
        for name, stream in sorted(self._streams.items()):
            if path := stream.task.facts.archive_path:
                held = known.get(name, Held())
                found.append(
                    ArchiveStats(
                        stream=name,
                        path=for_people(path),
                        files=held.files,
                        rows=held.rows,
                        bytes=held.bytes,
                        from_us=None if held.from_hour is None else held.from_hour * HOUR_US,
                        gone_rows=held.gone_rows,
                        gone_to_us=None if held.gone_hour is None else (held.gone_hour + 1) * HOUR_US,
                        waiting=stream.task.unshipped,
                        problem=stream.archive_problem,
                        hold=held.hold,
                    )
                )
        return found

    def archive_problems(self) -> dict[str, tuple[int, str]]:
        """Of each stream: the rolls that wait for the archive, and why it takes none (empty: it does)."""
        return {
            name: (stream.task.unshipped, stream.archive_problem) for name, stream in self._streams.items()
        }

    def consult(self, effect: do.Consult) -> None:
        """Ask a stream task what is asked of its stream; who looks at rows asks beside it, and holds up
        nothing."""
        stream = self._streams[effect.stream]
        stream.resting.question(effect.request, partial(self._consult, stream, effect), self._now_ms())

    def _consult(self, stream: _Stream, effect: do.Consult) -> None:
        if isinstance(effect.request, SampleRows | LookAt | TraceRows):
            sampled = self._sampler.submit(self._row_sample, stream.task, effect.request)
            self._when_done(sampled, self._tell)
            return

        def ask() -> was.Consulted:
            try:
                return was.Consulted(effect.request, "", stream.task.answer(effect.request))
            except StoreError:
                raise
            except ElfError as error:
                return was.Consulted(effect.request, str(error), b"")

        self._when_done(stream.thread.submit(ask), self._tell)

    def _row_sample(self, task: StreamTask, request: SampleRows | LookAt | TraceRows) -> was.Consulted:
        """What goes wrong here is the matter of who looks, and of nobody else."""
        try:
            return was.Consulted(request, "", task.row_sample(request, self._now_ms()))
        except Exception as error:
            return was.Consulted(request, str(error), b"")

    def help(self, effect: do.Help) -> None:
        """Rows of another agent, beside our own."""
        self._when_done(self._helping.submit(effect), self._tell)

    def run(self, effect: do.Run) -> None:
        """Another agent's work, beside the stream tasks."""
        self._when_done(self._running.submit(effect), self._tell)

    async def _read(self, stream: _Stream) -> None:
        """Feed the stream task, at most ``CHUNKS_AHEAD`` chunks ahead of it."""
        loop = asyncio.get_running_loop()
        asked = CHUNK_BYTES_MIN
        while True:
            if self._leaving() and await self._is_drained(stream):
                return
            await self.reading.wait()
            if stream.resting.asleep or await self._may_rest(stream):
                await self._rest(stream)
                continue
            await stream.slots.acquire()
            chunk = await loop.run_in_executor(stream.reader, self._poll, stream, asked)
            if not stream.input.unread:
                stream.at_end_ms = self._now_ms()
            if chunk is not None:
                full = 2 * (chunk.end - chunk.start) >= asked
                more = full and not self._holding.allows  # they are held between chunks
                asked = min(2 * asked, CHUNK_BYTES_MAX) if more else CHUNK_BYTES_MIN
                fed = self._feed(stream, chunk)
                await self._holding.room(stream.task, stream.at_end_ms)
                await self._holding.within(stream.task, stream.at_end_ms, fed, stream.reader)
                continue
            stream.slots.release()
            if stream.read_bytes == stream.task.counts.bytes_read:
                self._lags(stream, 0, self._now_ms())
            self._tell_problems(stream)
            if stream.input.exhausted:
                self.perform(stream.task.facts.stream, Finish())
                return

    def _feed(self, stream: _Stream, chunk: Chunk, learned: int = LEARNED) -> Future[Outcome]:
        """Give the stream task a chunk; a slot is taken for it."""
        stream.read_bytes += chunk.end - chunk.start
        # What an Idle does can wait until what the chunk has caused is over.
        stream.idle_ms = self._now_ms()
        task, source = stream.task, stream.input
        self._log.debug("lines read", stream=task.facts.stream, lines=len(chunk.lines))
        ahead = task.ahead.parse(chunk, task.worker.wanted)
        place, missed, new_sources = source.positions(), source.gaps(), source.has_new_sources
        is_live = bool(stream.at_end_ms)

        def feeds() -> Outcome:
            given = (chunk, place, self._now_ms(), ahead, missed)
            return task.feed(*given, new_sources=new_sources, learned=learned, is_live=is_live)

        future = stream.thread.submit(feeds)
        at_end_ms = stream.at_end_ms
        self._when_done(future, lambda outcome: self._fed(stream, outcome, at_end_ms))
        self._holding.read(chunk.end - chunk.start)
        return future

    async def _may_rest(self, stream: _Stream) -> bool:
        """Whether nobody wants what the stream has."""
        resting, task = stream.resting, stream.task
        if not resting.able or self._replaying[task.facts.stream].begins or task.worker.flows():
            return False
        if resting.asked_lately(self._now_ms()):
            return False
        given = resting.given
        unread = await asyncio.wrap_future(stream.thread.submit(lambda: not task.worker.reads))
        return unread and given == resting.given

    async def _rest(self, stream: _Stream) -> None:
        """Let go of the files until somebody wants the stream. It is awake when all is read that it begins
        with: what has waited comes after that."""
        loop, resting = asyncio.get_running_loop(), stream.resting
        resting.begin()
        stream.at_end_ms = 0
        positions = await loop.run_in_executor(stream.reader, self._let_go, stream)
        idle = Idle(self._now_ms(), stream.input.finished())
        await asyncio.wrap_future(stream.thread.submit(stream.task.rest, idle, positions))
        await resting.over()
        new_sources = not self._leaving()
        while new_sources:
            await stream.slots.acquire()
            read = partial(stream.input.read, CHUNK_BYTES_MIN, self._now_ms())
            chunk = await loop.run_in_executor(stream.reader, read)
            if chunk is None:
                stream.slots.release()
                break
            new_sources = stream.input.has_new_sources
            await asyncio.wrap_future(self._feed(stream, chunk, LEARNED_AT_ONCE))
        if passed_us := stream.input.passed_us:
            await asyncio.wrap_future(stream.thread.submit(stream.task.worker.passed_over, passed_us))
        self._tell_problems(stream)
        resting.end()

    def _let_go(self, stream: _Stream) -> tuple[Position, ...]:
        stream.input.rest()
        return stream.input.positions()

    async def _receive(self, name: str, receiver: Receiver) -> None:
        self._receiving[name] = asyncio.current_task()
        await receiver.serve()

    async def _is_drained(self, stream: _Stream) -> bool:
        """Whether an agent that leaves has read what it has to. Files stay where they are. What was sent to
        it is nowhere else: nothing more is received, and all of it is read before the stream is sealed."""
        name = stream.task.facts.stream
        if (receiving := self._receiving.pop(name, None)) is not None:
            receiving.cancel()
            await asyncio.gather(receiving, return_exceptions=True)
        if (name in self._receivers and stream.input.unread) or stream.task.is_behind:
            return False
        if self._receivers.pop(name, None) is not None:
            self._idle(stream)
        if (command := self._sealing.pop(name, None)) is not None:
            self._perform(name, command)
        return True

    def _idle(self, stream: _Stream) -> None:
        """Nothing new was read. Whoever calls it is the only one at the input."""
        stream.idle_ms = now_ms = self._now_ms()
        idle = Idle(now_ms, stream.input.finished(), stream.input.gaps())
        future = stream.thread.submit(self._idled, stream, idle, stream.input.positions())
        self._unless_quiet(stream, future, "Idle")

    def _unless_quiet(self, stream: _Stream, future: Future[Outcome | None], what: str) -> None:
        """Have it told what comes of a command, unless that is None: the loop need not be woken."""

        def told(done: Future[Outcome | None]) -> None:
            if done.cancelled():
                return
            if done.exception() is not None or done.result() is not None:
                self._when_done(done, lambda outcome: self._worked(stream, what, outcome or Outcome()))

        future.add_done_callback(told)

    def _turn_soon(self, stream: _Stream) -> None:
        """On the thread of the stream task: flows have a turn, after the commands that have come by now."""
        if not stream.turning:
            stream.turning = True
            with contextlib.suppress(RuntimeError):  # the thread is to end: what waits is in the checkpoint
                self._unless_quiet(stream, stream.thread.submit(self._turned, stream), "Turn")

    def _turned(self, stream: _Stream) -> Outcome | None:
        """None: nothing came of it."""
        stream.turning = False
        outcome = stream.task.turn(self._now_ms())
        return None if outcome.is_quiet and not stream.task.unshipped else outcome

    def _kept(self, stream: _Stream, command: TapsKept, now_ms: int) -> Outcome | None:
        """On the thread of the stream task. None: nothing came of it."""
        outcome = stream.task.perform(command, now_ms)
        return None if outcome.is_quiet else outcome

    def _idled(self, stream: _Stream, idle: Idle, positions: tuple[Position, ...]) -> Outcome | None:
        """On the thread of the stream task. None: nothing came of it, and the loop need not be woken."""
        outcome = stream.task.idle(idle, positions)
        said = (outcome.progress, outcome.work)
        same = said == stream.said and idle.now_ms - stream.said_ms < SAID_EVERY_MS
        if same and outcome.is_quiet and not stream.task.unshipped:
            return None
        stream.said, stream.said_ms = said, idle.now_ms
        return outcome

    def _poll(self, stream: _Stream, asked: int) -> Chunk | None:
        """On the reader's thread: look at the files until they have grown, or there is something for the
        loop to do. It is not woken for every look, nor for each ``Idle``: that would cost several times what
        these do."""
        looked_ms = self._now_ms()
        until_ms = looked_ms + UNREAD_EVERY_MS
        while not stream.closing.wait(stream.pause_s):
            now_ms = self._now_ms()
            if now_ms - looked_ms >= STOPPED_MS:  # what was written meanwhile is late in any case
                stream.at_end_ms = 0
            looked_ms = now_ms
            chunk = stream.input.read(asked, now_ms)
            if chunk is not None:
                stream.pause_s = stream.due_pause_s = 0.0
                return chunk
            stream.pause_s = _pause_s(stream, now_ms)
            if stream.input.exhausted:
                break
            if now_ms - stream.idle_ms >= _idle_every_ms(stream):
                self._idle(stream)
            if now_ms >= until_ms or self._leaving() or not self.reading.is_set():
                break
        return None

    def _fed(self, stream: _Stream, outcome: Outcome, at_end_ms: int) -> None:
        """A chunk is taken. ``at_end_ms``: when all there was had been read last, by this chunk or before."""
        stream.slots.release()
        now_ms = self._now_ms()
        self._lags(stream, now_ms - at_end_ms if at_end_ms else 0, now_ms)
        self._worked(stream, "Feed", outcome)

    def _lags(self, stream: _Stream, lag_ms: int, now_ms: int) -> None:
        """Who weighs what flows of a stream take is told each second how far behind it is, once it was. That
        is the least of a second: a chunk that ends panes takes long, and those behind it wait for it, also
        where there is time enough for all."""
        if not stream.lag_told_ms and lag_ms < LAG_MS:
            return
        lag_ms = lag_ms if stream.lag_ms is None else min(lag_ms, stream.lag_ms)
        stream.lag_ms = lag_ms
        if now_ms - stream.lag_told_ms >= LAG_TOLD_EVERY_MS:
            stream.lag_ms, stream.lag_told_ms = None, now_ms
            task = stream.task
            lag_ms = lag_ms if lag_ms >= LAG_MS else 0
            self._tell(was.Lagging(task.facts.stream, lag_ms, task.busy_us // 1000, task.cpu_us // 1000))

    def _tell_problems(self, stream: _Stream) -> None:
        """Name files that cannot be read, once each."""
        for path, why in stream.input.counters.problems.items():
            if stream.told.get(path) != why:
                stream.told[path] = why
                name = stream.task.facts.stream
                self._log.warning("a file cannot be read", stream=name, path=path, reason=why)


def _moment(us: int) -> str:
    """An event time, for people."""
    try:
        return (_EPOCH + timedelta(microseconds=us)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:
        return f"{us} µs"


def _pause_s(stream: _Stream, now_ms: int) -> float:
    """Until the next look at files that have nothing new. Event time goes as the clock does, or is behind it:
    where it is behind, the next line is always due."""
    left_s = stream.task.due_us / 1e6 - now_ms / 1e3
    if left_s > 0:
        stream.due_pause_s = 0.0
        if stream.poll_s < POLL_S and left_s > LAST_S:
            left_s -= LAST_S
        return min(left_s, GATHER_S)
    stream.due_pause_s = min(max(POLL_GROWS * stream.due_pause_s, stream.poll_s), POLL_MAX_S)
    return stream.due_pause_s


def _idle_every_ms(stream: _Stream) -> int:
    return IDLE_EVERY_MS if stream.task.worker.flows() else UNREAD_EVERY_MS


def _stream(task: StreamTask, source: Input) -> _Stream:
    name = task.facts.stream
    task.when_kept = source.kept
    able = source.rests and not task.facts.archive_path
    return _Stream(
        task,
        source,
        ThreadPoolExecutor(1, thread_name_prefix=f"task-{name}"),
        ThreadPoolExecutor(1, thread_name_prefix=f"read-{name}"),
        asyncio.Semaphore(CHUNKS_AHEAD),
        Resting(able=able, asleep=able and not task.worker.reads),
    )
