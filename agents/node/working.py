"""The worker side of a node: what the agent does for flows, as a member of their trees.

    (the log) ──▶ Install ──▶ stream task ──▶ sealed ──▶ sender ──▶ parent, in the end the root
                                └────▶ begun ──▶ gathered on the way up ──▶ the job group

The catalog log says which flows there are, and where their job groups are. A job group that moves takes the
root of its flows along; all others hang below the new one. Beside that the agent keeps copies of its
snapshots at neighbours and theirs here, what clocks show, and broadcasts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agents.node.beginning import Context, NodeSettings, Restored
from agents.node.catalog import Catalog, Step
from agents.node.replicas import Replicas
from elf.job.commands import Install, SetOffloaded, TakeMapped, Uninstall
from elf.job.effects import Disbelieved, Forget, Help, Paced, Run, Send, Skewed, Work
from elf.job.events import Combined, Fetched, Helped, Ran, Worked
from elf.job.group.router import Router
from elf.job.links import Links
from elf.job.messages.groups import FunctionFailed
from elf.job.messages.helping import HelperMessage, MapRows, RowsMapped, RowsNotMapped
from elf.job.messages.rollup import (
    Began,
    Begun,
    Broadcast,
    Committed,
    FlowBegun,
    LeaveOut,
    Progress,
    Reexecute,
    ReplicaMessage,
    Resend,
    RunSlice,
    Slice,
    Verdict,
)
from elf.job.probes import Probe, Probed, ProbeLink, Probes
from elf.job.replicas import ReplicaEffect, ReplicaEvent
from elf.job.rollup.broadcasts import Broadcasts
from elf.job.rollup.clocks import Clocks
from elf.job.rollup.combiner import Beginning
from elf.job.rollup.decisions import ranges_of
from elf.job.rollup.mirrors import is_copy
from elf.job.rollup.sender import Sender
from elf.job.rollup.slices import piece_of
from elf.job.spec import END_OF_TIME, Flow
from elf.job.units import hold_us, unit_of
from elf.job.work import LinkWork
from elf.planning.latency import POLL_S
from overlay.regions import Way

DEFAULT_LATENESS_US = 2_000_000
"""Of a flow that leaves it to its streams, for warnings about clocks."""

POLL_MS = round(1000 * POLL_S)

WorkStep = Step | ReplicaEffect

ToWorker = (
    Slice
    | Progress
    | Begun
    | Committed
    | ReplicaMessage
    | Reexecute
    | Broadcast
    | LeaveOut
    | Resend
    | Verdict
    | ProbeLink
    | Probe
    | Probed
    | HelperMessage
)
DoneWork = Worked | Combined | Fetched | Ran | Helped | ReplicaEvent


class Working:
    """Of one agent. What is for roots that are here goes to the ``router``."""

    def __init__(
        self, context: Context, catalog: Catalog, router: Router, settings: NodeSettings, restored: Restored
    ) -> None:
        me, self._overlay = context.me, context.overlay
        self._me = me
        self._log = context.log
        self._streams = context.streams
        self._catalog = catalog
        self._membership = catalog.membership
        self._router = router
        self._roots = router.roots
        self.links = Links(self._overlay.regions.across)
        self.probes = Probes(self._overlay.regions.across)
        self.sender = Sender(
            self._overlay.parent,
            self._overlay.children,
            self._membership.number,
            incarnation=me.incarnation,
            beat_ms=settings.beat_ms,
            groups_at_once=settings.root.groups_at_once,
            offer_ms=settings.offer_ms,
            retained_bytes_max=settings.retained_bytes_max,
            eager=settings.eager,
            combine_ms=settings.combine_ms,
            depth_of=lambda topic: len(self._overlay.path(topic)),
            ranges_of=lambda flow: ranges_of(self._log, flow),
            crosses=self._overlay.regions.crosses,
            crossed=self.links.sent,
            unit_of=lambda flow: unit_of(self._log, flow.uid),
            hold_us=lambda flow: hold_us(self._log, flow, settings.border_us),
        )
        self._beginning = Beginning(self._log.flow, self._overlay.parent)
        self.replicas = Replicas(context, self.sender, self._roots, settings, restored)
        self.broadcasts = Broadcasts(self._log)
        self.clocks = Clocks(me.address)
        self._installed = {uid: stream for stream, uid in sorted(restored.installed)}
        """What its stream tasks compute: the flows' streams."""
        self._running: dict[str, Flow] = {}
        """The flows in whose trees it is."""
        self._hosted: dict[str, bytes] = {}
        """The flows of whose trees it is the root, and their topics."""
        self._on_ring = False
        self._polls: dict[str, int] = {}
        """How far apart looks at streams are, where some job wants that."""
        self._helped: dict[str, tuple[str, ...]] = {}
        """By stream, the flows whose rows helpers map, as stream tasks were told (missing: they were not)."""
        self._leaves = False
        self._unfit: dict[str, str] = {}
        """Flows whose functions have failed here, and why."""
        self.unknown_flow = 0

    @property
    def installed(self) -> Mapping[str, str]:
        """The streams of the flows that stream tasks here compute."""
        return self._installed

    def start(self, restored: Restored, now_ms: int) -> list[WorkStep]:
        """Go on with the flows of an earlier life."""
        for flow in self._ours():
            # before anything else: the stream tasks go on at once, and what they seal must find its line
            retained = {(a, b, part): size for uid, a, b, part, size in restored.retained if uid == flow.uid}
            suspended, sealed = flow.uid in restored.suspended, restored.sealed.get(flow.uid, END_OF_TIME)
            self.sender.add(flow, retained, suspended=suspended, sealed=sealed)
        return [*self.end(now_ms), *self._sweep(restored), *self.sender.restored()]

    def _sweep(self, restored: Restored) -> list[WorkStep]:
        """Forget what a crash left of flows that had ended, and of copies. A flow that our log has not come
        to may be of a job group in whose group we are already."""
        gone = [uid for uid in restored.flows if self._log.has_ended(uid) or is_copy(uid)]
        return [Forget(uid, whole_flow=True) for uid in gone]

    # -- what has been done ----------------------------------------------------------------------------------

    def handle(self, event: DoneWork, now_ms: int) -> Sequence[WorkStep]:
        """Something that this side wanted has been done."""
        match event:
            case Worked():
                return self._worked(event, now_ms)
            case Combined():
                return self.sender.combined(event, now_ms)
            case Fetched():
                return self.sender.fetched(event.flow, event.snapshots)
            case Helped():
                return [Send(event.to, event.answer)]
            case Ran():
                refused = [Disbelieved("Reexecute", event.to, event.refused)] if event.refused else []
                return [Send(event.to, event.answer), *refused]
            case _:
                return self.replicas.performed(event)

    def _worked(self, event: Worked, now_ms: int) -> list[WorkStep]:
        found: list[WorkStep] = []
        mapped_ms = now_ms - event.outcome.sealing_us // 1_000
        for sealed in event.outcome.sealed:
            if self._log.has_ended(sealed.flow):  # it was sealed while we heard so, and written after that
                found.append(Forget(sealed.flow, whole_flow=True))
                continue
            self.sender.mapped(sealed, mapped_ms, event.outcome.late_us // 1_000)
            found.extend(self.sender.sealed(sealed, now_ms))
        number = self._membership.number(event.stream)
        found.extend(self.replicas.sealed(event.outcome.sealed, number, now_ms))
        for early in event.outcome.early:
            found.extend(self.sender.early(early))
        found.extend(self.sender.where(event.outcome.where))
        for wanted in event.outcome.wanted:
            if helper := self.helper_of(wanted.flow):
                word = MapRows(agent_id=self._me.agent_id, stream=event.stream, wanted=wanted)
                found.append(Send(helper, word))
        self.sender.counted(event.outcome.forgotten)
        self.sender.worked(event.outcome.work)
        for uid, text in event.outcome.failed:
            self._unfit.setdefault(uid, text)
            found.extend(self._tell_failure(uid))
        told = event.outcome.progress
        if event.command == "Install":  # who fails the first time does not answer for the flow
            told = tuple(one for one in told if one.flow not in self._unfit)
        news = self.sender.progress(told)
        if news and number is not None:
            ours = ((one.flow, Began(number, one.live_from, one.sealed)) for one in news)
            begun = Begun(flows=tuple(FlowBegun(flow, (began,)) for flow, began in ours))
            found.extend(self._begun(begun, now_ms))
        if event.command == "Finish":
            found.extend(self.sender.beat(now_ms))
        return found

    def _tell_failure(self, uid: str) -> list[WorkStep]:
        """A user's function has failed here: the masters of its jobs decide what becomes of it."""
        word = FunctionFailed(flow=uid, agent=self._me.name, text=self._unfit[uid])
        return [Send(to, word) for to in sorted({spec.leader for spec in self._log.readers(uid)})]

    # -- messages --------------------------------------------------------------------------------------------

    def arrived(self, sender: str, message: ToWorker, now_ms: int) -> Sequence[WorkStep]:
        """Somebody in a tree of ours, or a neighbour, says something. What makes us forget snapshots, or
        compute otherwise, is believed from a flow's root alone: down its tree, or from where the log says it
        is. Where our log is behind, a root asks again and we offer again."""
        match message:
            case Committed() | Broadcast() | LeaveOut() if sender:
                return []
            case Verdict() | Resend() | Reexecute() if not self._is_root(sender, message.flow):
                return []
            case Slice():
                return self._slice(sender, message, now_ms)
            case Progress():
                return [*self._clock(sender, message, now_ms), *self._router.arrived(sender, message, now_ms)]
            case Begun():
                return self._begun(message, now_ms)
            case Committed():
                return [*self.sender.committed(message, now_ms), *self.replicas.holding.committed(message)]
            case Reexecute():
                flow = self._log.flow(message.flow)
                return [Run(flow, message, sender)] if flow is not None else []
            case Broadcast():
                return self.broadcasts.heard(message, self._running, now_ms)
            case LeaveOut():
                return self.sender.leave_out(message) if message.flow in self._running else []
            case Resend():
                return self.sender.send_again(message)
            case Verdict():
                return self.sender.verdict(message, now_ms)
            case MapRows():
                return self._help(sender, message)
            case RowsMapped() | RowsNotMapped():
                stream = self._installed.get(message.flow)
                believed = stream is not None and sender == self.helper_of(message.flow)
                return [Work(stream, TakeMapped(message))] if stream is not None and believed else []
            case ProbeLink():
                return self.probes.asked(message.to, now_ms)
            case Probe():
                return self.probes.heard(sender, message)
            case Probed():
                return self.probes.answered(sender, message, now_ms)
            case _:
                return self.replicas.arrived(sender, message, now_ms)

    def _help(self, sender: str, message: MapRows) -> list[WorkStep]:
        """Another agent wants rows mapped: we do that if the log names us, and it is its own archive."""
        flow = self._log.flow(message.wanted.flow)
        if flow is None or flow.fragment.stream != message.stream:
            return []
        member = self._log.member_of(message.stream, message.agent_id)
        jobs = [spec.uid for spec in self._log.readers(flow.uid)]
        ours = self._log.offloads.common(jobs, message.agent_id) == self._me.address
        if member is None or member.address != sender or not ours:
            return []
        return [Help(flow, message, sender)]

    def helper_of(self, uid: str) -> str:
        """Where our rows of a flow are mapped; empty: here."""
        jobs = [spec.uid for spec in self._log.readers(uid)]
        helper = self._log.offloads.common(jobs, self._me.agent_id)
        return "" if helper == self._me.address or self._leaves else helper

    def rows_back(self) -> list[Work]:
        """We leave: what helpers have not read yet we read ourselves."""
        self._leaves = True
        return self._offloaded()

    def _offloaded(self) -> list[Work]:
        """What the log says of who maps our rows. It follows from the log, so stream tasks are told anew
        after a restart; but for those of an agent of which that was never said."""
        if not self._log.offloads.names(self._me.agent_id):
            return []
        flows: dict[str, tuple[str, ...]] = dict.fromkeys(self._streams, ())
        for uid in sorted(self._running):
            stream = self._running[uid].fragment.stream
            if stream in flows and self.helper_of(uid):
                flows[stream] = (*flows[stream], uid)
        changed = [stream for stream, uids in flows.items() if self._helped.get(stream) != uids]
        self._helped = flows
        return [Work(stream, SetOffloaded(flows[stream])) for stream in changed]

    def _is_root(self, sender: str, uid: str) -> bool:
        """As far as our log has come."""
        flow = self._log.flow(uid)
        return flow is not None and flow.leader == sender

    def _slice(self, sender: str, message: Slice, now_ms: int) -> list[WorkStep]:
        self.links.arrived(sender, len(message.counters) + len(message.payload), now_ms)
        if self._roots.get(message.flow) is not None:
            return list(self._roots.take(sender, message, now_ms))
        flow = self._log.flow(message.flow)
        alone = bool(message.parts) or isinstance(message, RunSlice)
        if flow is None or flow.leader == self._me.address or alone:
            # its root is here no more, or not yet; late rows go up no tree: they are offered to the new root;
            # nor what was run again, which was asked for by that root
            self.unknown_flow += 1
            return []
        return list(self.sender.carry(sender, flow, piece_of(message), now_ms))

    def _begun(self, message: Begun, now_ms: int) -> list[WorkStep]:
        """Of flows whose job group is here, or of such that we are on the way to."""
        here: list[FlowBegun] = []
        for begun in message.flows:
            flow = self._log.flow(begun.flow)
            if flow is not None and flow.leader == self._me.address:
                here.append(begun)
            else:
                self._beginning.add(begun, now_ms)
        return list(self._router.arrived("", Begun(flows=tuple(here)), now_ms)) if here else []

    def _clock(self, sender: str, message: Progress, now_ms: int) -> list[WorkStep]:
        """A member says what its clock shows."""
        self.clocks.hear(sender, message.now_ms, now_ms, self._overlay.rtt_ms(sender))
        flows = (self._log.flow(one.flow) for one in message.flows)
        lates = [flow.fragment.lateness_us for flow in flows if flow is not None]
        limit_ms = min((late for late in lates if late is not None), default=DEFAULT_LATENESS_US) // 1000
        skew = self.clocks.beyond(sender, limit_ms, now_ms)
        return [] if skew is None else [Skewed(sender, skew, limit_ms)]

    # -- the trees in which it is ----------------------------------------------------------------------------

    @property
    def flows(self) -> int:
        """How many flows this agent computes."""
        return len(self._running)

    def _ours(self) -> list[Flow]:
        """The flows over streams of which we are a member, and of which we may have rows."""
        named = [(flow, flow.fragment.stream) for flow in self._log.flows()]
        number = self._membership.number
        ours = (flow for flow, stream in named if stream in self._streams and number(stream) is not None)
        return [flow for flow in ours if self._asks_us(flow)]

    def _asks_us(self, flow: Flow) -> bool:
        """False where a flow is about agents with other labels."""
        member = self._log.member_of(flow.fragment.stream, self._me.agent_id)
        return member is None or self._log.may_have(flow.fragment, member)

    def on_ring(self, now_ms: int) -> list[WorkStep]:
        """The ring has us, newly or again."""
        self._on_ring = True
        self._hosted.clear()
        self.members_changed()
        return self.begin(now_ms)

    def members_changed(self) -> None:
        """The log says of more or other agents where they stand: trees go by regions."""
        self._overlay.know_places(self._log.places())
        self.routes_changed()

    def routes_changed(self) -> None:
        """The log says how flows go over borders (protocol 4.12)."""
        ways = self._log.routings.ways().items()
        flows = ((self._log.flow(uid), way) for uid, way in ways)
        self._overlay.know_ways(
            {flow.topic: Way(target, dict(vias)) for flow, (target, vias) in flows if flow is not None}
        )

    def links_told(self, now_ms: int) -> tuple[LinkWork, ...]:
        """What is known here of the links to other regions."""
        trips = self._overlay.regions.trips(self._overlay.rtt_ms)
        return self.links.told(now_ms, trips, self.probes.rates(now_ms))

    def begin(self, now_ms: int) -> list[WorkStep]:
        """Be the root of flows that are ours to commit, and run those over streams of ours."""
        found: list[WorkStep] = []
        for uid, topic in self._roots.topics().items():
            if self._on_ring and uid not in self._hosted:
                self._hosted[uid] = topic
                found.extend(self._overlay.host(topic, now_ms))
                root = self._roots.get(uid)
                found.extend(self._catalog.take_part(root.flow.fragment.stream, now_ms) if root else ())
        for flow in self._ours():
            if flow.uid not in self._running:
                self._running[flow.uid] = flow
                self._installed[flow.uid] = flow.fragment.stream
                self.sender.add(flow)
                found.append(Work(flow.fragment.stream, Install(flow)))
                found.extend(self._overlay.subscribe(flow.topic, now_ms, host=flow.leader))
        return [*found, *self._paced(), *self._offloaded()]

    def _paced(self) -> list[WorkStep]:
        """What the promises of jobs want of our streams: of those that read one, the tightest. It follows
        from the log, so it is so after a restart too, and ends with the job."""
        polls: dict[str, int] = {}
        for spec in self._log.jobs():
            if (chosen := spec.definition.chosen) is not None:
                polls |= {one: min(polls.get(one, POLL_MS), chosen.poll_ms) for one in spec.plan.streams}
        changed = [
            stream
            for stream in self._streams
            if polls.get(stream, POLL_MS) != self._polls.get(stream, POLL_MS)
        ]
        self._polls = polls
        return [Paced(stream, polls.get(stream, POLL_MS)) for stream in changed]

    def end(self, now_ms: int) -> list[WorkStep]:
        """Stop what the log says has ended: as a worker, as an inner node, as the root. After a restart the
        log may say so before we are in the flow's tree."""
        found: list[WorkStep] = []
        for flow in self.sender.flows():
            if self._log.flow(flow.uid) is None:
                found.extend(self.sender.remove(flow.uid))
        flows = {uid: self._log.flow(uid) for uid in self._installed}
        for uid in [uid for uid, flow in flows.items() if flow is None or not self._asks_us(flow)]:
            found.append(Work(self._installed.pop(uid), Uninstall(uid)))
            if uid in self._running:
                found.extend(self._overlay.unsubscribe(self._running.pop(uid).topic, now_ms))
        for uid in [uid for uid in self._hosted if self._log.flow(uid) is None]:
            found.extend(self._overlay.unhost(self._hosted.pop(uid), now_ms))
        return found

    def home_moved(self, job: str, now_ms: int) -> list[WorkStep]:
        """A job group is elsewhere now: send there what its flows have, hang below it in their trees."""
        self.replicas.holding.hurry()
        found: list[WorkStep] = []
        for flow in [flow for flow in self._log.flows() if self._log.job_groups.of(flow.uid) == job]:
            self.sender.new_leader(flow)
            if flow.uid in self._running:
                self._running[flow.uid] = flow
            if self._roots.get(flow.uid) is not None:
                continue
            if flow.uid in self._hosted:
                found.extend(self._overlay.unhost(self._hosted.pop(flow.uid), now_ms, flow.leader))
            found.extend(self._overlay.rehost(flow.topic, flow.leader, now_ms))
        return found

    def planted(self, topic: bytes, now_ms: int) -> list[WorkStep]:
        """We are in a tree in another way, or newly: see that it knows its job group, which may have
        moved."""
        found: list[WorkStep] = [*self.sender.reshaped(topic, now_ms)]
        job_groups = [flow.leader for flow in self._log.flows() if flow.topic == topic]
        return [*found, *(self._overlay.rehost(topic, job_groups[0], now_ms) if job_groups else ())]

    def missed(self, topic: bytes, now_ms: int) -> Sequence[WorkStep]:
        """Multicasts of a tree can't be had."""
        return self.sender.unheard(topic, now_ms)

    # -- time ------------------------------------------------------------------------------------------------

    def deadline(self) -> int | None:
        waits = (self.sender.deadline(), self._beginning.deadline(), self.replicas.deadline())
        return min((at for at in waits if at is not None), default=None)

    def tick(self, now_ms: int) -> list[WorkStep]:
        parts = (self.sender, self._beginning, self.replicas)
        return [step for part in parts for step in part.tick(now_ms)]

    def look(self) -> list[WorkStep]:
        """Say again what nobody may have heard."""
        self._unfit = {uid: text for uid, text in self._unfit.items() if self._log.flow(uid) is not None}
        return [step for uid in self._unfit for step in self._tell_failure(uid)]
