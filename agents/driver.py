"""The driver: the only one that performs what a node wants done. One asyncio loop, a lane thread a stream, a
small pool.

The loop stays free: it only moves messages between the transport and the node. Reading files, mapping,
sealing, cuts, merges, commits and final fragments run on threads and come back to the node as events, in the
order in which each lane did them. So do the writes of replica groups: what rests on them waits in the node,
not in the loop (``agents.node.groups``). Small durable words (the log, a job's record) are written before the
messages that stand after them are sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec
import structlog

import overlay as ring
from agents import codec
from agents.committing import panecommits, windowcommits
from agents.committing.making import Making
from agents.disk import copystore, homestore
from agents.disk.room import is_refusal
from agents.disk.store import Store
from agents.inputs import Input
from agents.lanes.feeding import Feeding
from agents.lanes.lane import Lane, snapshot_names
from agents.lanes.running import Running
from agents.lanes.streams import FunctionsAt
from agents.metrics import Loss, Metrics
from agents.node.groups import Persisted
from agents.node.node import Node, NodeEffect, NodeEvent
from agents.readiness import Probe, Readiness
from agents.vitals import vitals_of
from elf.errors import ElfError, PeerError
from elf.functions.hosts import Hosts, Settings
from elf.functions.sandbox import Sandboxes
from elf.job import effects as do
from elf.job import events as was
from elf.job.home import port as home
from elf.job.log.streamlog import encode_entry
from elf.job.messages import Message
from elf.job.program.port import ProgramEffect, ProgramEvent
from elf.job.snapshots import SnapshotName
from elf.transport import Closed, Transport
from elf.wire.frames import OtherCluster
from overlay import replica

T = TypeVar("T")

MESSAGE_BYTES_MAX: Final = 64 << 20
TICK_MS_MIN: Final = 1
"""Between two ticks of the node, at least."""
FORGET_S: Final = 1.0
AGAIN_MS: Final = 60_000
"""Between two lines of the log about what an agent sends for a flow."""


@dataclass(frozen=True)
class End:
    """Why a driver stopped, and the exit status that goes with it. ``again``: the disk took no more; it can
    go on from there when there is room."""

    text: str
    status: int
    again: bool = False


class Driver:
    """Runs one node over one transport. ``reading`` may be cleared by the caller to hold back all inputs, and
    ``making`` to hold back all windows."""

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
        finals: FunctionsAt | None = None,
        message_bytes_max: int = MESSAGE_BYTES_MAX,
        run_bytes_max: int = 64 << 20,
        probe: Probe | None = None,
    ) -> None:
        self.node = node
        self.store = store
        self.transport = transport
        self.metrics = metrics or Metrics()
        self.metrics.watch(transport.counters)
        self._cluster = cluster
        self._message_bytes_max = message_bytes_max
        self._log = structlog.get_logger().bind(agent=node.me.name, address=node.me.address)
        self.readiness = Readiness(node, cluster, self._log, transport.send, probe)
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="commit")
        self._making = Making(node.me, store, self._pool, self.metrics, finals)
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="groups")
        self._copies = ThreadPoolExecutor(1, thread_name_prefix="copies")
        self._running = Running([lane.facts.stream for lane, _ in streams if lane.is_shared], run_bytes_max)
        self._feeding = Feeding(
            streams,
            self._log,
            now_ms=self.now_ms,
            leaving=lambda: node.leaving,
            when_done=self._when_done,
            tell=self._event,
            memory_max_bytes=memory_max_bytes,
        )
        self.reading = self._feeding.reading
        self.making = self._making.wanted
        self.lanes = self._feeding.lanes
        self._tasks: list[asyncio.Task[None]] = []
        self._end: asyncio.Future[End] | None = None
        self._loop = asyncio.get_running_loop()
        self._clock = time.time() - time.monotonic()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._looking = False
        self._was_ready = False
        self._clients: dict[str, asyncio.Queue[Message]] = {}
        self._forgotten: list[SnapshotName] = []
        self._tell_again: dict[tuple[str, int], int] = {}
        self._hosts = Hosts(
            self._program_event, lambda spec, line: self._log.info(line, job=spec.name), functions, sandboxes
        )

    def now_ms(self) -> int:
        """Wall clock that never steps back, in milliseconds."""
        return int((self._clock + time.monotonic()) * 1000)

    # -- life ------------------------------------------------------------------------------------------------

    async def run(self, contacts: Sequence[str]) -> End:
        """Run until the node stops or ``stop`` is called."""
        self._end = self._loop.create_future()
        self._log.info("agent starts", agent_id=self.node.me.agent_id, incarnation=self.node.me.incarnation)
        self._perform(self.node.start(contacts, self.now_ms()))
        jobs = [self._receive(), self.readiness.watch(), *self._feeding.tasks()]
        self._tasks = [self._loop.create_task(job) for job in jobs]
        for task in self._tasks:
            task.add_done_callback(self._task_done)
        try:
            return await self._end
        finally:
            await self._close()

    def stop(self, text: str, status: int = 0, *, again: bool = False) -> None:
        if self._end is not None and not self._end.done():
            self._end.set_result(End(text, status, again))

    def _task_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._broken(error)

    def _broken(self, error: BaseException) -> None:
        """Something failed that must not: stop, so that the next start goes on from the last cut."""
        if isinstance(error, ElfError):
            self._log.error("agent stops", reason=str(error))
        else:
            self._log.error("agent stops", reason=repr(error), exc_info=error)
        self.stop(str(error) or repr(error), 1, again=is_refusal(error))

    async def _close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._feeding.close(clean=self._end is not None and self._end.result().status == 0)
        await asyncio.to_thread(self._making.stop)
        await asyncio.to_thread(self._hosts.close)
        self._pool.shutdown(wait=True)
        self._disk.shutdown(wait=True)
        self._copies.shutdown(wait=True)
        self._running.close()
        self._making.versions.close()
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
                decoded = codec.decode(frames, cluster=self._cluster, max_bytes=self._message_bytes_max)
            except PeerError as refused:
                self.metrics.refused(getattr(refused, "reason", "malformed"))
                if isinstance(refused, OtherCluster):
                    self.readiness.stranger(refused, origin)
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
        """A node that has failed in the middle of something is in no known state: it stops."""
        try:
            self._perform(self.node.handle(event, self.now_ms()))
        except Exception as error:
            self._broken(error)

    def _events(self, events: Sequence[NodeEvent]) -> None:
        for event in events:
            if self._end is not None and not self._end.done():
                self._event(event)

    def _perform(self, effects: Sequence[NodeEffect]) -> None:
        same, frames = None, []  # a multicast goes to many children: encoded once
        for effect in homestore.in_runs(effects):
            match effect:
                case do.Send() if effect.to in self._clients:
                    self._clients[effect.to].put_nowait(effect.message)
                case do.Send() | ring.Send() | replica.Send():
                    if effect.message is not same:
                        same, me = effect.message, self.node.me.address
                        frames = codec.encode(same, cluster=self._cluster, sender=me)
                    self.transport.send(effect.to, frames)
                case do.Work():
                    self._feeding.perform(effect.stream, effect.command)
                case do.Consult():
                    self._feeding.consult(effect)
                case do.SaveLog():
                    self.store.append_log([(entry.seq, encode_entry(entry)) for entry in effect.entries])
                case do.SaveJob():
                    self.store.save_job(effect.spec.uid, homestore.job_record(effect), effect.state)
                    self._making.versions.saved(effect)
                case do.SaveFlow():
                    self.store.save_flow(effect.flow, effect.first_pane)
                case do.PrunePanes(below=None):
                    self.store.prune_panes(effect.flow, None)
                case do.SaveFact():
                    self.store.put(effect.key, effect.value)
                case do.Examine():
                    self._loop.call_soon(self._examine, effect)
                case do.Noticed():
                    self.metrics.noticed()
                    self._log.info("a notice", job=effect.job, text=effect.text, sent_ms=effect.sent_ms)
                case do.Namesake():
                    self._log.warning(
                        "another member has this agent's name: if it is this agent with another data folder, "
                        "never start that folder again, and take it off: elf leave --dead NAME; lines that "
                        "both have read count twice",
                        name=self.node.me.name,
                        stream=effect.stream,
                        other_id=effect.agent_id,
                        other_address=effect.address,
                    )
                case do.Seen():
                    about = {"stream": effect.stream} if effect.stream else {}
                    self._log.info(
                        f"an agent {effect.what}", member=effect.name, member_address=effect.address, **about
                    )
                case do.Skewed():
                    self._log.warning(
                        "an agent's clock is off by more than LATENESS: its rows or others' are late; "
                        "set that clock right (NTP)",
                        clock_of=effect.address,
                        skew_ms=effect.skew_ms,
                        lateness_ms=effect.limit_ms,
                    )
                case do.Unusable():
                    self._unusable(effect)
                case do.Faulted():
                    self._log.error("a request has failed", reason=repr(effect.error), exc_info=effect.error)
                case do.Stop():
                    found = "; ".join(self.readiness.found())
                    self.stop(f"{effect.text} Found: {found}" if found else effect.text, effect.status)
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

    def _unusable(self, effect: do.Unusable) -> None:
        """One line a minute for each agent and flow: they come with every pane."""
        now = self.now_ms()
        for member in self.node.log.members(effect.flow.fragment.stream):
            key = (effect.flow.uid, member.number)
            if not effect.members >> member.number & 1 or now < self._tell_again.get(key, 0):
                continue
            later = {one: at for one, at in self._tell_again.items() if at > now}
            self._tell_again = later | {key: now + AGAIN_MS}
            self._log.warning(
                "what has come of an agent cannot be opened: it is left out, and missing in these panes",
                sent_by=member.name,
                flow=effect.flow.uid,
                panes=[effect.start, effect.end],
                reason=effect.why,
            )

    def _examine(self, effect: do.Examine) -> None:
        if self._end is not None and not self._end.done():
            vitals = vitals_of(self.node, self.metrics, self._feeding.backlogs(), self.now_ms())
            self._event(was.Consulted(effect.request, "", msgspec.msgpack.encode(vitals)))

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

    def archive_problems(self) -> dict[str, tuple[int, str]]:
        """See ``Feeding.archive_problems``."""
        return self._feeding.archive_problems()

    def gaps(self) -> list[dict[str, object]]:
        """See ``Feeding.gaps``."""
        return list(self._feeding.gaps)

    def losses(self) -> dict[Loss, int]:
        """What was lost since the start, by kind: nothing is lost unseen."""
        inputs = self._feeding.counters()
        return {
            "input_bytes": sum(counted.lost_bytes for counted in inputs),
            "files_truncated": sum(counted.truncated for counted in inputs),
            "files_vanished": sum(counted.vanished for counted in inputs),
            "reads_failed": sum(counted.failed for counted in inputs),
            "rejects_not_kept": sum(lane.rejects_not_kept for lane in self.lanes()),
            "snapshots_left_out": self.node.uplink.left_out,
            "pieces_unusable": self.node.uplink.unusable + self.node.homes.roots.unusable,
            "copies_dropped": self.node.copies.holding.dropped,
            "copies_damaged": self.node.copies.holding.damaged,
            "slices_of_unknown_flows": self.node.unknown_flow,
            "multicasts_missed": self.node.multicasts_missed,
            "job_calls": self.node.programs.counts["calls_dropped"],
            "job_messages": self.node.programs.counts["messages_dropped"],
        }

    # -- the pool --------------------------------------------------------------------------------------------

    def _long(self, effect: object) -> None:
        match effect:
            case do.Combine():
                self._when_done(self._making.combine(effect), self._event)
            case do.CommitPanes():
                self.metrics.panes_committed()
                self._when_done(self._making.commit_panes(effect), self._event)
            case do.CommitWindows():
                self._when_done(self._making.commit(effect), self._event)
            case do.MakeEarly():
                self._when_done(self._making.early(effect), self._event)
            case do.TryFunctions():
                self._when_done(self._making.try_functions(effect), self._event)
            case do.Run():
                self._when_done(self._running.submit(effect), self._event)
            case do.Fetch():
                self._when_done(self._pool.submit(self._fetch, effect), self._event)
            case do.ReadWindows():
                me = self.node.me.address
                again = self._pool.submit(windowcommits.windows_again, effect, self.store, me)
                self._when_done(again, self._event)
            case do.StorePanes():
                self._when_done(self._pool.submit(panecommits.store_panes, effect, self.store), self._event)
            case do.ReadCommits():
                self._when_done(self._pool.submit(panecommits.read_commits, effect, self.store), self._event)
            case do.PrunePanes():
                pruned = self._pool.submit(self.store.prune_panes, effect.flow, effect.below)
                self._when_done(pruned, lambda _: None)
            case do.PruneWindows():
                pruned = self._pool.submit(self.store.prune_windows, effect.job, effect.below_us)
                self._when_done(pruned, lambda _: None)
            case home.Draft(work=do.CommitWindows() as work):
                self._when_done(self._making.draft(work), self._event)
            case home.Draft(work=do.CommitPanes() as panes):
                self.metrics.panes_committed()
                self._when_done(self._making.draft_panes(effect, panes), self._event)
            case home.ForgetHome():
                self._making.versions.forget(effect.uid)
                forgotten = self._disk.submit(homestore.perform, self.store, effect)
                self._when_done(forgotten, lambda _: None)
            case homestore.ApplyRun():
                applied = self._disk.submit(homestore.apply_run, self.store, effect)
                self._when_done(applied, self._events)
            case home.InstallHome() | home.SummariseHome() | home.LoadHome():
                done = self._disk.submit(homestore.perform, self.store, effect)
                self._when_done(done, lambda event: self._event(event) if event is not None else None)
            case _ if isinstance(effect, copystore.COPY_EFFECTS):
                copied = self._copies.submit(copystore.perform, self.store, effect)
                self._when_done(copied, lambda event: self._event(event) if event is not None else None)
            case replica.Persist():
                written = self._disk.submit(self.store.persist, effect.writes)
                self._when_done(written, lambda _: self._event(Persisted()))
            case do.Forget(whole_flow=True):
                self._when_done(self._pool.submit(self.store.delete_flow, effect.flow), lambda _: None)
            case do.Forget():
                self._forget(snapshot_names(effect.flow, effect.names))
            case _:
                raise TypeError(f"no such effect: {effect!r}")

    def _fetch(self, effect: do.Fetch) -> was.Fetched:
        rows = self.store.overlapping(effect.flow.uid, effect.start, effect.end)
        return was.Fetched(effect.flow, tuple(row for row in rows if row.part == effect.part))

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
            try:
                then(done.result())
            except Exception as error:
                self._broken(error)

        def callback(done: Future[T]) -> None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(on_loop, done)

        future.add_done_callback(callback)
