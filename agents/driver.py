"""The driver: the only one that performs what a node wants done. One asyncio loop, a lane thread a stream, a
small pool.

The loop stays free: it only moves messages between the transport and the node. Reading files, mapping,
sealing, cuts, merges, commits and final fragments run on threads and come back to the node as events, in the
order in which each lane did them. So do the writes of replica groups: what rests on them waits in the node,
not in the loop (``agents.groups``). Small durable words (the log, a job's record) are written before the
messages that stand after them are sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

import psutil
import structlog

import overlay as ring
from agents import codec, commits, drafts, homestore
from agents.archive import ArchiveError
from agents.early import early_windows
from agents.functions.hosts import Hosts, Settings
from agents.functions.sandbox import Sandboxes
from agents.groups import Persisted
from agents.inputs import Chunk, Input
from agents.lane import Lane, snapshot_names
from agents.metrics import Loss, Metrics
from agents.node import Node, NodeEffect, NodeEvent
from agents.store import SnapshotName, Store
from agents.transport import Closed, Transport
from elf.errors import ElfError, PeerError
from elf.job import effects as do
from elf.job import events as was
from elf.job import homeport as home
from elf.job.commands import Command, Finish, Idle, Install, Outcome
from elf.job.contributions import Piece
from elf.job.messages import Message
from elf.job.programport import ProgramEffect, ProgramEvent
from elf.job.streamlog import encode_entry
from overlay import replica

if TYPE_CHECKING:  # DuckDB, as in agents.streams
    from agents.engine import Finisher

T = TypeVar("T")

MESSAGE_BYTES_MAX: Final = 64 << 20
CHUNKS_AHEAD: Final = 4
"""Chunks of one stream that may wait for its lane: reading is held back beyond that."""
CHUNK_BYTES_MIN: Final = 1 << 20
CHUNK_BYTES_MAX: Final = 8 << 20
"""A read asks for the least when the last one came back with little, and for twice as much each time that
there was more: small chunks when idle, large ones under backlog, which cost a tenth less a row."""
POLL_S: Final = 0.05
POLL_MAX_S: Final = 0.2
"""Between two looks at files that do not grow: a twentieth longer each time, up to that (so each look after
one that found something is at once)."""
VERSIONS_MADE: Final = 2
"""Of a job: an old version makes its last windows while the new one makes its first."""
IDLE_EVERY_MS: Final = 250
QUIET_MS: Final = 100
"""From a chunk to the first ``Idle``: what that does can wait until what the chunk has caused is over."""
TICK_MS_MIN: Final = 1
"""Between two ticks of the node, at least."""
ROOM_POLL_S: Final = 0.2
ROLLS_WAITING_MAX: Final = 32
"""Rolls that may wait for an archive that cannot be reached before reading is held back: about 2 GiB of a
stream's lines (``archive.roll_bytes`` each), which the log files hold as well."""
SHIP_AGAIN_S: Final = 1.0
FORGET_S: Final = 1.0


@dataclass
class _Stream:
    lane: Lane
    input: Input
    thread: ThreadPoolExecutor
    reader: ThreadPoolExecutor
    slots: asyncio.Semaphore
    closing: threading.Event = field(default_factory=threading.Event)
    pause_s: float = 0.0
    shipping: bool = False
    told: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class End:
    """Why a driver stopped, and the exit status that goes with it."""

    text: str
    status: int


class Driver:
    """Runs one node over one transport. ``reading`` may be cleared by the caller to hold back all inputs."""

    def __init__(
        self,
        node: Node,
        transport: Transport,
        store: Store,
        streams: Sequence[tuple[Lane, Input]],
        *,
        cluster: str,
        metrics: Metrics | None = None,
        memory_max_bytes: int | None = None,
        functions: Settings | None = None,
        sandboxes: Sandboxes | None = None,
    ) -> None:
        self.node = node
        self.store = store
        self.transport = transport
        self.metrics = metrics or Metrics()
        self.metrics.watch(transport.counters)
        self.reading = asyncio.Event()
        self.reading.set()
        self._cluster = cluster
        self._log = structlog.get_logger().bind(agent=node.me.name, address=node.me.address)
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="commit")
        self._shipper = ThreadPoolExecutor(1, thread_name_prefix="ship")
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="groups")
        self._finishers: dict[tuple[str, int], Finisher] = {}
        self._kept: dict[tuple[str, int], commits.Kept] = {}
        self._making: dict[tuple[str, int], threading.Lock] = {}
        self._streams = {lane.facts.stream: _stream(lane, source) for lane, source in streams}
        self._tasks: list[asyncio.Task[None]] = []
        self._end: asyncio.Future[End] | None = None
        self._loop = asyncio.get_running_loop()
        self._clock = time.time() - time.monotonic()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._looking = False
        self._was_ready = False
        self._clients: dict[str, asyncio.Queue[Message]] = {}
        self._memory_max_bytes = memory_max_bytes
        self._forgotten: list[SnapshotName] = []
        self._unweighed = 0
        self._hosts = Hosts(
            self._program_event, lambda spec, line: self._log.info(line, job=spec.name), functions, sandboxes
        )
        self._process = psutil.Process()

    def now_ms(self) -> int:
        """Wall clock that never steps back, in milliseconds."""
        return int((self._clock + time.monotonic()) * 1000)

    # -- life ------------------------------------------------------------------------------------------------

    async def run(self, contacts: Sequence[str]) -> End:
        """Run until the node stops or ``stop`` is called."""
        self._end = self._loop.create_future()
        self._log.info("agent starts", agent_id=self.node.me.agent_id, incarnation=self.node.me.incarnation)
        self._perform(self.node.start(contacts, self.now_ms()))
        jobs = [self._receive(), *(self._read(stream) for stream in self._streams.values())]
        self._tasks = [self._loop.create_task(job) for job in jobs]
        for task in self._tasks:
            task.add_done_callback(self._task_done)
        try:
            return await self._end
        finally:
            await self._close()

    def stop(self, text: str, status: int = 0) -> None:
        if self._end is not None and not self._end.done():
            self._end.set_result(End(text, status))

    def _task_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._broken(error)

    def _broken(self, error: BaseException) -> None:
        """Something failed that must not: stop, so that the next start goes on from the last cut."""
        if isinstance(error, ElfError):
            self._log.error("agent stops", reason=str(error))
        else:
            self._log.error("agent stops", reason=repr(error), exc_info=error)
        self.stop(str(error) or repr(error), 1)

    async def _close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for stream in self._streams.values():
            stream.closing.set()
            stream.reader.shutdown(wait=True)
            clean = self._end is not None and self._end.result().status == 0
            with contextlib.suppress(ElfError):
                await asyncio.wrap_future(stream.thread.submit(stream.lane.close, cut=clean))
            stream.thread.shutdown(wait=True)
            stream.input.close()
        await asyncio.to_thread(self._hosts.close)
        self._pool.shutdown(wait=True)
        self._shipper.shutdown(wait=True)
        self._disk.shutdown(wait=True)
        for finisher in self._finishers.values():
            finisher.close()
        await self.transport.close()
        self.store.close()
        self._log.info("agent stopped")

    # -- the loop --------------------------------------------------------------------------------------------

    async def _receive(self) -> None:
        while True:
            try:
                origin, frames = await self.transport.receive()
            except Closed:
                return
            try:
                decoded = codec.decode(frames, cluster=self._cluster, max_bytes=MESSAGE_BYTES_MAX)
            except PeerError as refused:
                self.metrics.refused(getattr(refused, "reason", "malformed"))
                continue
            if isinstance(decoded.message, Message):
                listens = ":" in decoded.sender and not decoded.sender.startswith("client:")
                self._event(was.Arrived(decoded.sender if listens else origin, decoded.message))
            elif isinstance(decoded.message, replica.Message):
                self._event(replica.Received(decoded.message))
            else:
                self._event(ring.Received(decoded.message))

    def _look(self) -> None:
        """See that the node gets a tick when it wants one; asked once for all events of a turn of the loop.

        A timer is never put off: some deadlines are so long after now, whenever now is.
        """
        self._looking = False
        if self._end is None or self._end.done():
            return
        now = self.now_ms()
        at = self.node.deadline(now)
        if self._timer is None or at < self._timer_ms:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_ms = at
            self._timer = self._loop.call_later(max(at - now, TICK_MS_MIN) / 1000, self._tick)

    def _tick(self) -> None:
        self._timer = None
        try:
            self._perform(self.node.tick(self.now_ms()))
        except Exception as error:
            self._broken(error)

    def _event(self, event: NodeEvent) -> None:
        self._perform(self.node.handle(event, self.now_ms()))

    def _perform(self, effects: Sequence[NodeEffect]) -> None:
        same, frames = None, []  # a multicast goes to many children: encoded once
        for effect in effects:
            match effect:
                case do.Send() if effect.to in self._clients:
                    self._clients[effect.to].put_nowait(effect.message)
                case do.Send() | ring.Send() | replica.Send():
                    if effect.message is not same:
                        same, me = effect.message, self.node.me.address
                        frames = codec.encode(same, cluster=self._cluster, sender=me)
                    self.transport.send(effect.to, frames)
                case do.Work():
                    self._work(effect.stream, effect.command)
                case do.Consult():
                    self._consult(effect)
                case do.SaveLog():
                    self.store.append_log([(entry.seq, encode_entry(entry)) for entry in effect.entries])
                case do.SaveJob():
                    self.store.save_job(effect.spec.uid, homestore.job_record(effect), effect.state)
                    self._let_go(effect)
                case do.SaveFlow():
                    self.store.save_flow(effect.flow, effect.first_pane)
                case do.PrunePanes(below=None):
                    self.store.prune_panes(effect.flow, None)
                case do.SaveFact():
                    self.store.put(effect.key, effect.value)
                case do.Noticed():
                    self.metrics.noticed()
                    self._log.info("a notice", job=effect.job, text=effect.text, sent_ms=effect.sent_ms)
                case do.Skewed():
                    self._log.warning(
                        "an agent's clock is off by more than LATENESS: its rows or others' are late; "
                        "set that clock right (NTP)",
                        clock_of=effect.address,
                        skew_ms=effect.skew_ms,
                        lateness_ms=effect.limit_ms,
                    )
                case do.Stop():
                    self.stop(effect.text, effect.status)
                case _ if isinstance(effect, ProgramEffect):
                    self._hosts.perform(effect)
                case _:
                    self._long(effect)
        if not self._looking:
            self._looking = True
            self._loop.call_soon(self._look)
        if not self._was_ready and self.node.ready:
            self._was_ready = True
            self._log.info("agent is ready", peers=len(self.node.overlay.peers()))

    def _let_go(self, job: do.SaveJob) -> None:
        """What was kept in memory of versions that make no window any more."""
        live = {v.spec.version for v in job.versions if v.state == "committed" and job.state != "dropped"}
        for uid, version in [key for key in list(self._kept) if key[0] == job.spec.uid]:
            if version not in live:
                self._kept.pop((uid, version), None)

    def _program_event(self, event: ProgramEvent) -> None:
        """From the thread of a job in Python, in its order."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._on_program, event)

    def _on_program(self, event: ProgramEvent) -> None:
        if self._end is not None and not self._end.done():
            self._event(event)

    # -- clients inside the process -----

    def open_client(self, address: str) -> asyncio.Queue[Message]:
        """A client without a socket (the HTTP server's): what the node sends to it comes out here."""
        self._clients[address] = asyncio.Queue()
        return self._clients[address]

    def from_client(self, address: str, message: Message) -> None:
        self._event(was.Arrived(address, message))

    def close_client(self, address: str) -> None:
        self._clients.pop(address, None)

    def losses(self) -> dict[Loss, int]:
        """What was lost since the start, by kind: nothing is lost unseen."""
        inputs = [stream.input.counters for stream in self._streams.values()]
        return {
            "input_bytes": sum(counted.lost_bytes for counted in inputs),
            "files_truncated": sum(counted.truncated for counted in inputs),
            "files_vanished": sum(counted.vanished for counted in inputs),
            "reads_failed": sum(counted.failed for counted in inputs),
            "rejects_not_kept": sum(lane.rejects_not_kept for lane in self.lanes()),
            "snapshots_left_out": self.node.uplink.left_out,
            "slices_of_unknown_flows": self.node.unknown_flow,
            "multicasts_missed": self.node.multicasts_missed,
            "job_calls": self.node.programs.counts["calls_dropped"],
            "job_messages": self.node.programs.counts["messages_dropped"],
        }

    def _tell_problems(self, stream: _Stream) -> None:
        """Name files that cannot be read, once each."""
        for path, why in stream.input.counters.problems.items():
            if stream.told.get(path) != why:
                stream.told[path] = why
                name = stream.lane.facts.stream
                self._log.warning("a file cannot be read", stream=name, path=path, reason=why)

    def lanes(self) -> tuple[Lane, ...]:
        return tuple(stream.lane for stream in self._streams.values())

    # -- lanes -----------------------------------------------------------------------------------------------

    def _work(self, name: str, command: Command) -> None:
        stream = self._streams[name]
        future = stream.thread.submit(stream.lane.perform, command, self.now_ms())
        if isinstance(command, Install):
            self._when_done(future, lambda _: self._log.debug("a flow is computed", flow=command.flow.uid))
        self._when_done(future, lambda outcome: self._worked(stream, type(command).__name__, outcome))

    def _worked(self, stream: _Stream, command: str, outcome: Outcome) -> None:
        if stream.lane.unshipped and not stream.shipping:
            stream.shipping = True
            self._when_done(self._shipper.submit(self._ship, stream), lambda _: None)
        self._event(was.Worked(stream.lane.facts.stream, command, outcome))

    def _ship(self, stream: _Stream) -> None:
        """Rolls to the archive, beside everything else; what cannot be shipped now is tried again later."""
        try:
            stream.lane.ship()
        except ArchiveError as error:
            self._log.warning("the archive takes no more", stream=stream.lane.facts.stream, reason=str(error))
            time.sleep(SHIP_AGAIN_S)
        finally:
            stream.shipping = False

    def _consult(self, effect: do.Consult) -> None:
        stream = self._streams[effect.stream]

        def ask() -> was.Consulted:
            try:
                return was.Consulted(effect.request, "", stream.lane.answer(effect.request))
            except ElfError as error:
                return was.Consulted(effect.request, str(error), b"")

        self._when_done(stream.thread.submit(ask), self._event)

    async def _read(self, stream: _Stream) -> None:
        """Feed the lane, at most ``CHUNKS_AHEAD`` chunks ahead of it."""
        loop = asyncio.get_running_loop()
        idle_ms, asked = 0, CHUNK_BYTES_MIN
        while not self.node.leaving:
            await self.reading.wait()
            await stream.slots.acquire()
            chunk = await loop.run_in_executor(stream.reader, self._poll, stream, asked, idle_ms)
            if chunk is not None:
                full = 2 * (chunk.end - chunk.start) >= asked
                asked = min(2 * asked, CHUNK_BYTES_MAX) if full else CHUNK_BYTES_MIN
                idle_ms = self.now_ms() + QUIET_MS - IDLE_EVERY_MS
                lane = stream.lane
                self._log.debug("lines read", stream=lane.facts.stream, lines=len(chunk.lines))
                ahead = lane.ahead.parse(chunk, lane.worker.wanted)
                future = stream.thread.submit(
                    lane.feed, chunk, stream.input.positions(), self.now_ms(), ahead
                )
                self._when_done(future, lambda outcome: self._fed(stream, outcome))
                self._unweighed += chunk.end - chunk.start
                await self._room(stream.lane)
                continue
            stream.slots.release()
            self._tell_problems(stream)
            if stream.input.exhausted:
                self._work(stream.lane.facts.stream, Finish())
                return
            if self.now_ms() - idle_ms >= IDLE_EVERY_MS:
                idle_ms = self.now_ms()
                self._work(stream.lane.facts.stream, Idle(idle_ms, stream.input.finished()))

    def _poll(self, stream: _Stream, asked: int, idle_ms: int) -> Chunk | None:
        """On the reader's thread: look at the files until they have grown, or it is time for an ``Idle``. The
        loop is not woken for every look: that would cost several times what the look does."""
        while not stream.closing.wait(stream.pause_s):
            chunk = stream.input.read(asked, self.now_ms())
            if chunk is not None:
                stream.pause_s = 0.0
                return chunk
            stream.pause_s = min(max(1.05 * stream.pause_s, POLL_S), POLL_MAX_S)
            if stream.input.exhausted or self.now_ms() - idle_ms >= IDLE_EVERY_MS:
                break
        return None

    async def _room(self, lane: Lane) -> None:
        """Hold the inputs back while the process, or the archive's folder, holds more than it may: files can
        wait."""
        while lane.unshipped > ROLLS_WAITING_MAX or self._over_memory():
            await asyncio.sleep(ROOM_POLL_S)

    def _over_memory(self) -> bool:
        """Looked at once for so many bytes read: asking the system takes longer than a few lines do."""
        limit = self._memory_max_bytes
        if limit is None or self._unweighed < CHUNK_BYTES_MIN:
            return False
        over = self._process.memory_info().rss > limit
        self._unweighed = self._unweighed if over else 0
        return over

    def _fed(self, stream: _Stream, outcome: Outcome) -> None:
        stream.slots.release()
        self._worked(stream, "Feed", outcome)

    # -- the pool --------------------------------------------------------------------------------------------

    def _long(self, effect: object) -> None:
        match effect:
            case do.Combine():
                self._when_done(self._pool.submit(commits.combine, effect), self._event)
            case do.CommitPanes():
                self.metrics.panes_committed()
                self._when_done(self._pool.submit(commits.commit_panes, effect, self.store), self._event)
            case do.CommitWindows():
                self._when_done(self._pool.submit(self._commit_windows, effect), self._event)
            case do.MakeEarly():
                self._when_done(self._pool.submit(self._make_early, effect), self._event)
            case do.Fetch():
                self._when_done(self._pool.submit(self._fetch, effect), self._event)
            case do.ReadWindows():
                self._when_done(self._pool.submit(self._read_windows, effect), self._event)
            case do.StorePanes():
                self._when_done(self._pool.submit(commits.store_panes, effect, self.store), self._event)
            case do.ReadCommits():
                self._when_done(self._pool.submit(commits.read_commits, effect, self.store), self._event)
            case do.PrunePanes():
                pruned = self._pool.submit(self.store.prune_panes, effect.flow, effect.below)
                self._when_done(pruned, lambda _: None)
            case do.PruneWindows():
                pruned = self._pool.submit(self.store.prune_windows, effect.job, effect.below_us)
                self._when_done(pruned, lambda _: None)
            case home.Draft():
                self._when_done(self._pool.submit(self._draft, effect), self._event)
            case home.ForgetHome():
                for key in [key for key in list(self._kept) if key[0] == effect.uid]:
                    self._kept.pop(key, None)
                forgotten = self._disk.submit(homestore.perform, self.store, effect)
                self._when_done(forgotten, lambda _: None)
            case home.Apply() | home.InstallHome() | home.SummariseHome() | home.LoadHome():
                done = self._disk.submit(homestore.perform, self.store, effect)
                self._when_done(done, lambda event: self._event(event) if event is not None else None)
            case replica.Persist():
                written = self._disk.submit(self.store.persist, effect.writes)
                self._when_done(written, lambda _: self._event(Persisted()))
            case do.Forget(whole_flow=True):
                self._when_done(self._pool.submit(self.store.delete_flow, effect.flow), lambda _: None)
            case do.Forget():
                self._forget(snapshot_names(effect.flow, effect.names))
            case _:
                raise TypeError(f"no such effect: {effect!r}")

    def _commit_windows(self, effect: do.CommitWindows) -> was.WindowsCommitted | was.Failure:
        me = self.node.me.address
        try:
            with self._alone(effect):
                finisher, kept = self._finisher(effect)
                done = commits.commit_windows(effect, self.store, finisher, me, kept)
        except ElfError as error:
            return was.Failure(effect.spec.uid, self._not_finished(effect, error), effect.spec.version)
        self.metrics.windows_committed()
        return done

    def _draft(self, effect: home.Draft) -> home.Drafted:
        work, me = effect.work, self.node.me.address
        if isinstance(work, do.CommitPanes):
            self.metrics.panes_committed()
            return drafts.draft(effect, self.store, None, me, None)
        try:
            with self._alone(work):
                finisher, kept = self._finisher(work)
                done = drafts.draft(effect, self.store, finisher, me, kept)
        except ElfError as error:
            return home.Drafted(work, b"", error=self._not_finished(work, error))
        self.metrics.windows_committed()
        return done

    def _alone(self, effect: do.CommitWindows) -> threading.Lock:
        """What is kept of a version is one thread's at a time. Who leads a home anew may still be at work on
        windows that it began in the term before."""
        return self._making.setdefault((effect.spec.uid, effect.spec.version), threading.Lock())

    def _finisher(self, effect: do.CommitWindows) -> tuple[Finisher, commits.Kept]:
        from agents.engine import Finisher

        uid = effect.spec.uid
        version = effect.spec.version
        if (uid, version) not in self._finishers:
            self._finishers[uid, version] = Finisher(effect.spec.plan.final_sql)
        known = sorted(number for job, number in list(self._kept) if job == uid)
        for number in known[:-VERSIONS_MADE]:
            self._kept.pop((uid, number), None)
        return self._finishers[uid, version], self._kept.setdefault((uid, version), commits.Kept())

    def _not_finished(self, effect: do.CommitWindows, error: ElfError) -> str:
        self._log.error("a window cannot be finished", job=effect.spec.name, reason=str(error))
        return f"job {effect.spec.name}: a window cannot be finished: {error}"

    def _make_early(self, effect: do.MakeEarly) -> was.EarlyMade:
        from agents.engine import Finisher

        spec = effect.committed.spec
        try:
            finisher = Finisher(spec.plan.final_sql)
            try:
                return early_windows(effect, self.store, finisher, self.node.me.address)
            finally:
                finisher.close()
        except ElfError as error:  # the windows themselves will say so when they are complete
            self._log.warning("no early results", job=spec.name, reason=str(error))
            return was.EarlyMade(spec.uid, None)

    def _fetch(self, effect: do.Fetch) -> was.Fetched:
        rows = self.store.overlapping(effect.flow.uid, effect.start, effect.end)
        pieces = (Piece(r.start, r.end, 0, r.tally, r.payload) for r in rows if r.part == effect.part)
        return was.Fetched(effect.flow, tuple(pieces), effect.part)

    def _read_windows(self, effect: do.ReadWindows) -> was.WindowsRead:
        uid = effect.spec.uid
        if effect.after_us is None:
            rows = self.store.last_windows(uid, effect.count) if effect.count else []
        else:
            rows = self.store.windows(uid, effect.after_us, 1 << 62)
        name, me = effect.spec.name, self.node.me.address
        return was.WindowsRead(effect.request, tuple(commits.window_result(name, row, me) for row in rows))

    def _forget(self, names: Sequence[SnapshotName]) -> None:
        """Together with what else is forgotten in this second: each transaction is a sync of the disk, and
        what is there longer is at worst offered once more."""
        if not self._forgotten:
            self._loop.call_later(FORGET_S, self._forget_all)
        self._forgotten += names

    def _forget_all(self) -> None:
        if self._end is not None and not self._end.done():
            names, self._forgotten = self._forgotten, []
            self._when_done(self._pool.submit(self.store.delete_snapshots, names), lambda _: None)

    def _when_done(self, future: Future[T], then: Callable[[T], None]) -> None:
        loop = asyncio.get_running_loop()

        def on_loop(done: Future[T]) -> None:
            if self._end is None or self._end.done():
                return
            error = done.exception()
            if error is not None:
                self._broken(error)
            else:
                then(done.result())

        def callback(done: Future[T]) -> None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(on_loop, done)

        future.add_done_callback(callback)


def _stream(lane: Lane, source: Input) -> _Stream:
    name = lane.facts.stream
    return _Stream(
        lane,
        source,
        ThreadPoolExecutor(1, thread_name_prefix=f"lane-{name}"),
        ThreadPoolExecutor(1, thread_name_prefix=f"read-{name}"),
        asyncio.Semaphore(CHUNKS_AHEAD),
    )
