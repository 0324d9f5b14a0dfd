"""The process of one agent: the loop of its node (``agents.loop``) over asyncio, threads, sockets and files.

The asyncio loop stays free: it only moves messages between the transport and the node. Reading files,
mapping, sealing, cuts, merges, commits and final fragments run on threads, and so do the writes of replica
groups; they come back to the node as events, in the order in which each stream task did them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from agents.arrivals import Arrivals, plan_all
from agents.audit import Audit
from agents.committing.making import Making, Sandboxed
from agents.disk.room import is_refusal
from agents.disk.store import Store
from agents.doors import Doors
from agents.inputs.values import Input
from agents.logs import Seldom, get_logger
from agents.loop import Loop, arrived
from agents.metrics import Loss, Metrics
from agents.node.node import Node, NodeEvent
from agents.outputs.delivering import Deliveries
from agents.ports import Ports, Receiver
from agents.readiness import Probe, Readiness
from agents.realtime import LoopClock, Threads, TransportLinks
from agents.reports import LogReports, stats_of
from agents.tasks.allowance import Bound
from agents.tasks.feeding import Feeding
from agents.tasks.helping import Helping
from agents.tasks.housekeeping import Housekeeping
from agents.tasks.running import Running
from agents.tasks.streams import FunctionsAt
from agents.tasks.streamtask import StreamTask
from agents.traces.spans import Tracing, lateness_of
from elf import __version__
from elf.errors import ElfError
from elf.functions.hosts import Hosts, Settings
from elf.functions.sandbox import Sandboxes
from elf.job import effects as do
from elf.job.output import OutputSpec
from elf.job.program.port import ProgramEvent
from elf.security.certificates import Signed
from elf.security.principals import Principal
from elf.transport.base import Received, Transport
from elf.wire.base import Message
from elf.wire.clients import Failed, Stats
from elf.wire.frames import FrameRefused, OtherCluster

if TYPE_CHECKING:  # as in agents.outputs.delivering
    from prometheus_client.core import Metric

    from agents.traces.sending import Sender

MESSAGE_BYTES_MAX: Final = 64 << 20
LET_GO_MS: Final = 30_000
"""Between two looks at connections of outputs that are another agent's by now."""
REFUSED_SECS: Final = 60.0
"""Between two lines of the log about messages of a key that are refused for the same reason."""


def _now_us() -> int:
    return time.time_ns() // 1_000


@dataclass(frozen=True)
class End:
    """Why a driver stopped, and the exit status that goes with it. ``again``: the disk took no more; it can
    go on from there when there is room."""

    text: str
    status: int
    again: bool = False


class Driver:
    """Runs one node over one transport. ``reading`` may be cleared by the caller to hold back all inputs, and
    ``making`` to hold back all windows. It closes the ``audit``."""

    def __init__(
        self,
        node: Node,
        transport: Transport,
        store: Store,
        streams: Sequence[tuple[StreamTask, Input]],
        *,
        cluster: str,
        metrics: Metrics | None = None,
        memory_max_bytes: int | None = None,
        allowances: Mapping[str, Bound] = {},
        functions: Settings | None = None,
        sandboxes: Sandboxes | None = None,
        finals: FunctionsAt | None = None,
        message_bytes_max: int = MESSAGE_BYTES_MAX,
        run_bytes_max: int = 64 << 20,
        probe: Probe | None = None,
        know: Callable[[Signed], object] = lambda signed: None,
        audit: Audit | None = None,
        outputs: Deliveries | None = None,
        receivers: Mapping[str, Receiver] = {},
        housekeeping: Housekeeping | None = None,
        helping: Helping | None = None,
        traces: Sender | None = None,
        traced_one_in: int = 1,
    ) -> None:
        """``know`` is told what the catalog log says was signed; ``receivers`` write to the inputs of
        streams; one pane in ``traced_one_in`` is told to ``traces``."""
        self.node = node
        self.store = store
        self.transport = transport
        self.metrics = metrics or Metrics()
        self.metrics.watch(transport.counters)
        self._doors = Doors(node.log, cluster, message_bytes_max)
        self._seldom = Seldom(REFUSED_SECS)
        self._runs_no_code = functions.never if functions is not None else ""
        self._log = get_logger().bind(agent=node.me.name, address=node.me.address)
        self.readiness = Readiness(node, cluster, self._log, transport.send, probe)
        self._end: asyncio.Future[End] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._was_ready = False
        self._clock = LoopClock(self._due)
        self._threads = Threads(self._clock.post)
        self._links = TransportLinks(transport, cluster, node.me.address, know)
        planned = partial(plan_all, cluster=cluster, bytes_max=message_bytes_max)
        self._arrivals = Arrivals(
            self._taken,
            self._refused,
            lambda frames: asyncio.wrap_future(self._threads.begin("plan", partial(planned, frames))),
        )
        self._beside: set[asyncio.Future[None]] = set()
        self._running = Running({task.facts.stream: task.shared for task, _ in streams}, run_bytes_max)
        self._helping = helping or Helping(None)
        self._feeding = Feeding(
            streams,
            self._log,
            now_ms=self._clock.now_ms,
            leaving=lambda: node.leaving,
            when_done=self._threads.when_done,
            tell=self._event,
            memory_max_bytes=memory_max_bytes,
            allowances=allowances,
            running=self._running,
            helping=self._helping,
            receivers=receivers,
            housekeeping=housekeeping,
        )
        self._hosts = Hosts(
            self._program_event, lambda spec, line: self._log.info(line, job=spec.name), functions, sandboxes
        )
        self.audit = audit
        reports = LogReports(node, self._log, self.metrics, self._clock.now_ms, audit)
        self._making = Making(node.me, store, Sandboxed(node.me.name, finals), reports, _now_us)
        self._outputs = Deliveries(node.me.address) if outputs is None else outputs
        ports = Ports(
            self._clock,
            self._threads,
            self._links,
            self._feeding,
            self._hosts,
            self._outputs,
            process=self,
            reports=reports,
            seen=Tracing(
                node.me.name,
                node.log.flow,
                partial(lateness_of, {task.facts.stream: task.worker for task, _ in streams}),
                _now_us,
                None if traces is None else traces.put,
                traced_one_in,
            ),
        )
        self._traces = traces
        self._loop = Loop(node, store, self._making, ports)
        self.now_ms = self._clock.now_ms
        self.reading = self._feeding.reading
        self.making = self._making.wanted
        self.tasks = self._feeding.tasks

    # -- life ------------------------------------------------------------------------------------------------

    async def run(self, contacts: Sequence[str]) -> End:
        """Run until the node stops or ``stop`` is called."""
        loop = asyncio.get_running_loop()
        self._end = loop.create_future()
        self._log.info("agent starts", agent_id=self.node.me.agent_id, incarnation=self.node.me.incarnation)
        if self.audit is not None:
            self.audit.record("agent starts", {"address": self.node.me.address, "version": __version__})
        self._loop.start(contacts)
        self._clock.after(LET_GO_MS, self._let_go)
        self.transport.hand_to(self._came)
        jobs = [self.readiness.watch(), *self._feeding.readers()]
        self._tasks = [loop.create_task(job) for job in jobs]
        for task in self._tasks:
            task.add_done_callback(self._task_done)
        try:
            return await self._end
        finally:
            await self._close()

    @property
    def _runs(self) -> bool:
        return self._end is not None and not self._end.done()

    def stop(self, text: str, status: int = 0, *, again: bool = False) -> None:
        if self._end is not None and not self._end.done():
            self._end.set_result(End(text, status, again))

    def _task_done(self, task: asyncio.Future[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._broken(error)

    def _broken(self, error: BaseException) -> None:
        """Something failed that must not: stop, so that the next start goes on from the last checkpoint."""
        if isinstance(error, ElfError):
            self._log.error("agent stops", reason=str(error))
        else:
            self._log.error("agent stops", reason=repr(error), exc_info=error)
        self.stop(str(error) or repr(error), 1, again=is_refusal(error))

    async def _close(self) -> None:
        self._clock.close()
        tasks = [*self._tasks, *self._beside]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._feeding.close(clean=self._end is not None and self._end.result().status == 0)
        self._making.stop()
        self._outputs.close()
        if self._traces is not None:
            await asyncio.to_thread(self._traces.close)
        await asyncio.to_thread(self._threads.end_outputs)
        await asyncio.to_thread(self._threads.end_functions)
        await asyncio.to_thread(self._hosts.close)
        self._threads.close()
        self._running.close()
        self._helping.close()
        self._making.versions.close()
        await self.transport.close()
        if self.audit is not None:
            self.audit.record("agent stops", {"reason": self._end.result().text if self._end else ""})
            await asyncio.to_thread(self.audit.close)
        self.store.close()
        self._log.info("agent stopped")

    # -- what happens ----------------------------------------------------------------------------------------

    def _came(self, messages: Sequence[Received]) -> None:
        if self._runs:
            self._guarded(partial(self._loop.turn, partial(self._take, messages)))

    def _take(self, messages: Sequence[Received]) -> None:
        for received in messages:
            if (later := self._arrivals.came(received)) is not None:
                self._beside.add(task := asyncio.ensure_future(later))
                task.add_done_callback(self._beside.discard)
                task.add_done_callback(self._task_done)

    def _taken(self, received: Received) -> None:
        origin, frames, who = received
        try:
            decoded = self._doors.opened(origin, frames, who, time.monotonic())
        except FrameRefused as refused:
            self._refused(received, refused)
            return
        if isinstance(decoded.message, Failed):
            self.readiness.heard(decoded.sender, decoded.message.text)
        self._event(arrived(decoded.sender, decoded.message, who))

    def _refused(self, received: Received, refused: FrameRefused) -> None:
        """A message that may not be, or is none: counted, and said now and then whose."""
        origin, _, who = received
        self.metrics.refused(refused.reason)
        if self.audit is not None:
            self.audit.refused(refused.reason, (who.name if who is not None else "") or origin)
        if isinstance(refused, OtherCluster):
            listens = who is None or who.kind in ("agent", "local")
            self.readiness.unknown_member(refused, origin, may_listen=listens)
            return
        if who is not None and self._seldom.now((refused.reason, who.name), time.monotonic()):
            self._log.warning("message refused", reason=str(refused), key_of=who.name, origin=origin)
        if refused.reason == "sender":
            self.readiness.tell(origin, str(refused))

    def _event(self, event: NodeEvent) -> None:
        self._guarded(partial(self._loop.turn, partial(self._loop.handle, event)))

    def _due(self, action: Callable[[], None]) -> None:
        if self._runs:
            self._guarded(partial(self._loop.turn, action))

    def _guarded(self, action: Callable[[], None]) -> None:
        """A node that has failed in the middle of something is in no known state: it stops."""
        try:
            action()
        except Exception as error:
            self._broken(error)

    def _program_event(self, event: ProgramEvent) -> None:
        """From the thread of a job in Python, in its order."""
        self._clock.post(partial(self._loop.handle, event))

    # -- the process, as the loop sees it --------------------------------------------------------------------

    def goes_on(self, effect: object) -> bool:
        """Also after a ``Stop``: what is said beside it is said."""
        return True

    def settled(self) -> None:
        self._links.settled()
        if not self._was_ready and self.node.ready:
            self._was_ready = True
            self._log.info("agent is ready", peers=len(self.node.overlay.peers()))

    def end(self, effect: do.Stop) -> None:
        found = "; ".join(self.readiness.found())
        self.stop(f"{effect.text} Found: {found}" if found else effect.text, effect.status)

    def stats(self) -> Stats:
        backlogs, now = self._feeding.backlogs(), self.now_ms()
        archives = self._feeding.archives()
        return stats_of(
            self.node, self.metrics, backlogs, now, self._runs_no_code, self._outputs.allow, archives
        )

    # -- clients inside the process --------------------------------------------------------------------------

    def open_client(self, address: str) -> asyncio.Queue[Message]:
        """What the node sends to this address comes out here."""
        return self._links.open_client(address)

    def from_client(self, address: str, message: Message, who: Principal | None = None) -> None:
        """``who``: see ``Clients.heard``."""
        self._event(arrived(address, message, who))

    def close_client(self, address: str) -> None:
        self._links.close_client(address)

    # -- for people ------------------------------------------------------------------------------------------

    def archive_problems(self) -> dict[str, tuple[int, str]]:
        """See ``Feeding.archive_problems``."""
        return self._feeding.archive_problems()

    def archive_warnings(self) -> list[str]:
        """See ``Feeding.archive_warnings``."""
        return self._feeding.archive_warnings()

    def gauges(self) -> list[Metric]:
        """What outputs to ``prometheus:`` show here: those of jobs whose master is here."""
        return self._outputs.gauges(self._delivers)

    def _delivers(self, output: OutputSpec) -> bool:
        """Whether there is such an output, and the master of its job is here."""
        return self.node.job_groups.has(output.job) and self.node.log.output(output.uid) == output

    def _let_go(self) -> None:
        self._outputs.let_go(self._delivers)
        self._clock.after(LET_GO_MS, self._let_go)

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
            "rejects_not_kept": sum(task.rejects_not_kept for task in self.tasks()),
            "snapshots_left_out": self.node.sender.left_out,
            "pieces_unusable": self.node.sender.unusable + self.node.job_groups.roots.unusable,
            "copies_dropped": self.node.replicas.holding.dropped,
            "copies_damaged": self.node.replicas.holding.damaged,
            "slices_of_unknown_flows": self.node.unknown_flow,
            "multicasts_missed": self.node.multicasts_missed,
            "job_calls": self.node.programs.counts["calls_dropped"],
            "job_messages": self.node.programs.counts["messages_dropped"],
            "audit_records": self.audit.lost if self.audit is not None else 0,
        }
