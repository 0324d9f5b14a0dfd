"""A node: overlay, replica groups, stream log, worker side, homes and clients, composed into one pure state
machine.

``handle(event, now_ms) -> list[Effect]``; ``deadline()`` says when it wants a ``tick``. The driver (or a
simulator) performs the effects. What a node sends to itself it handles at once, so that a fleet of one is no
special case. It must never read a clock, open anything, or block.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import overlay as ring
from agents.answering.asks import ToAddress, ToKey, Until
from agents.answering.clients import Clients
from agents.answering.fleet import Fleet
from agents.answering.statements import Statements
from agents.codec import pack, unpack
from agents.node import keeping
from agents.node.beginning import PEERS_FACT, NodeSettings, Restored, as_lines
from agents.node.copies import Copies
from agents.node.groups import Persisted
from agents.node.housing import Housing
from agents.node.keeping import Keeping
from agents.node.leaving import Leaving
from agents.node.requests import Requests
from agents.node.trees import Trees
from agents.node.witness import Waits, Witness
from elf.errors import PeerError
from elf.job import messages as say
from elf.job.copies import CopyEffect, CopyEvent
from elf.job.effects import Effect, Forget, Multicast, Namesake, Run, SaveFact, Send, Skewed, Stop
from elf.job.events import (
    Arrived,
    Combined,
    Consulted,
    Event,
    Fetched,
    FunctionsTried,
    Ran,
    Worked,
)
from elf.job.home.commits import Commits, Wanted
from elf.job.home.homes import Homes
from elf.job.home.port import (
    Applied,
    Commit,
    Draft,
    Drafted,
    FoundHome,
    HomeEffect,
    HomeEvent,
    HomeLoaded,
    Summarised,
)
from elf.job.home.router import Done, Router, ToFlow
from elf.job.log.membership import Identity, StreamSince
from elf.job.log.streamlog import StreamLog
from elf.job.program.messages import MESSAGES as PROGRAM_MESSAGES
from elf.job.program.port import ProgramEffect, ProgramEvent
from elf.job.program.programs import Programs, ToApp
from elf.job.rollup.beginning import Beginning
from elf.job.rollup.clocks import Clocks
from elf.job.rollup.mirrors import is_copy
from elf.job.rollup.notices import Notices
from elf.job.rollup.uplink import Uplink, piece_of
from overlay import replica

DEFAULT_LATENESS_US = 2_000_000
"""Of a flow that leaves it to its streams, for warnings about clocks."""

LOOK_MS = 1_000
"""Between two looks at what nothing waits for."""
REMEMBER_MS = 5_000
"""Between two times that the peers to be remembered are written down."""

NodeEffect = Effect | HomeEffect | CopyEffect | ring.Send | replica.Send | replica.Persist | ProgramEffect
"""What the driver performs."""

NodeEvent = Event | HomeEvent | CopyEvent | ring.Received | replica.Received | Persisted | ProgramEvent

Step = keeping.Step | CopyEffect | Commit | FoundHome | ToAddress | ToKey | Until | ToApp | ProgramEffect
"""What the parts of a node want; ``_settle`` does what is for the node itself."""


class Node:
    """See the module's docstring."""

    def __init__(
        self,
        me: Identity,
        streams: Sequence[StreamSince],
        overlay: ring.Overlay,
        groups: replica.Groups,
        settings: NodeSettings,
        restored: Restored,
        *,
        new_cluster_uid: str,
    ) -> None:
        self.me = me
        self.overlay = overlay
        self.log = StreamLog(restored.log)
        self.keeping = Keeping(
            me,
            streams,
            overlay,
            groups,
            log=self.log,
            cluster=restored.cluster,
            founder=restored.founder,
            new_cluster_uid=new_cluster_uid,
            follow_ms=settings.follow_ms,
            grace_ms=settings.root.grace_ms,
            keepers_max=settings.keepers_max,
        )
        self.membership = self.keeping.membership
        self.uplink = Uplink(
            overlay.parent,
            overlay.children,
            self.membership.number,
            incarnation=me.incarnation,
            beat_ms=settings.beat_ms,
            homes_at_once=settings.root.homes_at_once,
            offer_ms=settings.offer_ms,
            retained_bytes_max=settings.retained_bytes_max,
        )
        self.beginning = Beginning(self.log.flow, overlay.parent)
        self.homes = Homes(me.address, self.log, settings.root, me.name, self.keeping.desk.voters)
        self.router = Router(self.log, self.homes)
        self.housing = Housing(
            self.homes,
            self.log,
            self.keeping.desk,
            self.keeping.staffing,
            self.keeping.machines.homes,
            settings.home_members,
            restored.founded,
        )
        self._commits = Commits(self.log, self.homes, self.router, self.housing.holds)
        names = [stream.name for stream in streams]
        installed = restored.installed
        self.trees = Trees(names, self.log, overlay, self.keeping, self.uplink, self.homes.roots, installed)
        self.copies = Copies(me.address, self.log, overlay, self.uplink, self.homes.roots, settings, restored)
        self.witness = Witness(self.log, self.membership)
        self._leaving = Leaving(me, names, overlay, self.keeping, self.housing, self.uplink, self.copies)
        self.notices = Notices(self.log)
        self.clocks = Clocks(me.address)
        self.requests = Requests(
            me,
            names,
            self.log,
            overlay,
            self.keeping,
            self.uplink,
            self.homes,
            self.router,
            self.notices,
            self.clocks,
            self._leaving,
        )
        self.fleet = Fleet(me, self.log, overlay, self.membership)
        statements = Statements(me, self.log, self.fleet, self.homes, self.copies.status)
        self.clients = Clients(me.address, statements)
        self._streams = frozenset(names)
        self.programs = Programs(me.address, me.name, self._streams, self.log, overlay)
        self._restored = restored
        self._ring_ready = False
        self._saved_peers: frozenset[str] = frozenset()
        self._look_ms = 0
        self._remember_ms = 0
        self._unfit: dict[str, str] = {}
        self.unknown_flow = 0
        self.multicasts_missed = 0

    # -- beginning and end -----------------------------------------------------------------------------------

    def start(self, contacts: Sequence[str], now_ms: int) -> list[NodeEffect]:
        """Join the ring through ``contacts``; with none, found the ring, and the stream log if this agent
        never belonged to a cluster.
        """
        kept = self._restored.retained
        self.witness.start(tuple(contacts))
        for flow in self.trees.ours():
            # before anything else: the lanes go on at once, and what they seal must find its line
            retained = {(a, b, part): size for uid, a, b, part, size in kept if uid == flow.uid}
            self.uplink.add(flow, retained, suspended=flow.uid in self._restored.suspended)
        found: list[Step] = [*self.trees.end(now_ms), *self._sweep(), *self.uplink.restored()]
        found.extend(self.keeping.start(contacts, now_ms))
        for job in self._restored.jobs:
            self.homes.known(job.spec)
            if not job.spec.replicated:
                found.extend(self.homes.restore((job,), self._restored.flows, now_ms))
        found.extend(self.housing.found_ranges(self.me.agent_id))
        if not self._restored.housed:
            ours = [job.spec for job in self._restored.jobs if job.spec.home == self.me.address]
            found.extend(self.housing.adopt(ours))
        return self._settle([*found, *self.overlay.start(contacts, now_ms)], now_ms)

    def _sweep(self) -> list[Step]:
        """Forget what a crash left of flows that had ended, and of copies. A flow that our log has not come
        to may be of a home in whose group we are already."""
        gone = [uid for uid in self._restored.flows if self.log.has_ended(uid) or is_copy(uid)]
        return [Forget(uid, whole_flow=True) for uid in gone]

    @property
    def flows(self) -> int:
        """How many flows this agent computes, for any number of jobs."""
        return len(self.trees.running)

    @property
    def ready(self) -> bool:
        """True when the ring has us and the stream log names us in all our streams."""
        return self.waits() is None

    def waits(self) -> Waits | None:
        """What it waits for until it is ready; None: it is."""
        return self.witness.waits(self._ring_ready)

    @property
    def leaving(self) -> bool:
        return self._leaving.under_way

    def leave(self, now_ms: int) -> list[NodeEffect]:
        """Seal everything, hand it over, and go."""
        return self._settle(self._leaving.begin(), now_ms)

    # -- events ----------------------------------------------------------------------------------------------

    def handle(self, event: NodeEvent, now_ms: int) -> list[NodeEffect]:
        return self._settle(self._handle(event, now_ms), now_ms)

    def _handle(self, event: NodeEvent, now_ms: int) -> list[Step]:
        match event:
            case ring.Received():
                return list(self.overlay.handle(event, now_ms))
            case replica.Received():
                return list(self.keeping.received(event.message, now_ms))
            case Persisted():
                return list(self.keeping.persisted(now_ms))
            case HomeLoaded():
                found = [*self.housing.heard(event, now_ms), *self.router.hear_again(now_ms)]
                return [*found, *self.trees.begin(now_ms)]
            case Summarised():
                return list(self.housing.heard(event, now_ms))
            case Drafted():
                return list(self._commits.drafted(event, now_ms))
            case Applied():
                return list(self._commits.applied(event, now_ms))
            case _ if isinstance(event, CopyEvent):
                return list(self.copies.performed(event))
            case Arrived():
                return self._arrived(event.sender, event.message, now_ms)
            case Worked():
                return self._worked(event, now_ms)
            case Combined():
                return list(self.uplink.combined(event))
            case FunctionsTried():
                return [*self.router.handle(event, now_ms), *self.requests.remind(now_ms)]
            case _ if isinstance(event, Done):
                return list(self.router.handle(event, now_ms))
            case Fetched():
                return list(self.uplink.fetched(event.flow, event.pieces, event.part))
            case Ran():
                return [Send(event.to, event.answer)]
            case Consulted():
                answer = say.Answer(id=event.request.id, error=event.error, body=event.body)
                return [Send(event.request.origin, answer)]
            case _:
                return list(self.programs.said(event, now_ms))

    def _worked(self, event: Worked, now_ms: int) -> list[Step]:
        found: list[Step] = []
        for sealed in event.outcome.sealed:
            found.extend(self.uplink.sealed(sealed, now_ms))
            self.copies.copying.sealed(sealed.flow, now_ms)
        for early in event.outcome.early:
            found.extend(self.uplink.early(early))
        found.extend(self.uplink.where(event.outcome.where))
        self.uplink.counted(event.outcome.forgotten)
        if event.command == "SealOpen":
            self._leaving.sealed(event.stream, event.outcome.until_us)
        self.uplink.worked(event.outcome.work)
        for uid, text in event.outcome.failed:
            self._unfit.setdefault(uid, text)
            found.extend(self._tell_failure(uid))
        told = event.outcome.progress
        if event.command == "Install":  # who fails the first time does not answer for the flow
            told = tuple(one for one in told if one.flow not in self._unfit)
        news, number = self.uplink.progress(told), self.membership.number(event.stream)
        if news and number is not None:
            ours = ((one.flow, say.Began(number, one.live_from, one.sealed)) for one in news)
            begun = say.Begun(flows=tuple(say.FlowBegun(flow, (began,)) for flow, began in ours))
            found.extend(self._begun(begun, now_ms))
        if event.command == "Finish":
            found.extend(self.uplink.beat(now_ms))
        found.extend(self.programs.tapped(event.outcome.tapped, now_ms))
        return found

    def _tell_failure(self, uid: str) -> list[Step]:
        """A user's function has failed here: the masters of its jobs decide what becomes of it."""
        word = say.FunctionFailed(flow=uid, agent=self.me.name, text=self._unfit[uid])
        return [Send(to, word) for to in sorted({spec.home for spec in self.log.readers(uid)})]

    def deadline(self, now_ms: int) -> int:
        """When ``tick`` is wanted next."""
        waits = [
            self.overlay.deadline(),
            self.keeping.deadline(),
            self.housing.deadline(),
            self.uplink.deadline(),
            self.beginning.deadline(),
            self.copies.deadline(),
            self.clients.deadline(),
            self.programs.deadline(),
        ]
        if self._ring_ready:  # before, a tick does nothing about these
            waits.append(self.router.deadline(now_ms))
        return min((at for at in waits if at is not None), default=now_ms + 1_000)

    def tick(self, now_ms: int) -> list[NodeEffect]:
        load = len(self.homes.jobs()) + len(self.homes.roots.topics())
        self.overlay.set_load(min(load, ring.LOAD_MAX))
        found: list[Step] = list(self.overlay.handle(ring.Tick(), now_ms))
        found.extend(self.keeping.tick(now_ms))
        found.extend(self.housing.tick(now_ms))
        if self._ring_ready:
            found.extend(self.router.tick(now_ms, self.membership.keepers))
        found.extend(self.uplink.tick(now_ms))
        found.extend(self.beginning.tick(now_ms))
        found.extend(self.copies.tick(now_ms))
        found.extend(self.clients.tick(now_ms))
        found.extend(self.programs.tick(now_ms, self.membership.keeper))
        found.extend(self._leaving.tick(now_ms))
        if now_ms >= self._look_ms:
            self._look_ms = now_ms + LOOK_MS
            self.witness.look(self.ready)
            found.extend(self._remember_peers(now_ms))
            self._unfit = {uid: text for uid, text in self._unfit.items() if self.log.flow(uid) is not None}
            for uid in self._unfit:
                found.extend(self._tell_failure(uid))
        return self._settle(found, now_ms)

    def _remember_peers(self, now_ms: int) -> list[Step]:
        if now_ms < self._remember_ms:
            return []
        peers = frozenset(self.keeping.neighbours())
        if not peers or peers == self._saved_peers:
            return []
        self._saved_peers = peers
        self._remember_ms = now_ms + REMEMBER_MS
        return [SaveFact(PEERS_FACT, as_lines(peers))]

    # -- what comes back to ourselves, and what the overlay tells --------------------------------------------

    def _settle(self, effects: Sequence[Step], now_ms: int) -> list[NodeEffect]:
        """Handle what is for this node itself, in order, until only what the driver must do is left."""
        found: list[NodeEffect] = []
        todo: deque[Step] = deque(effects)
        while True:
            if not todo:
                todo.extend([*self.keeping.follow(), *self.housing.follow(now_ms)])
            if not todo and self.membership.fresh:
                todo.extend(self._follow(now_ms))
                continue
            if not todo:
                break
            effect = todo.popleft()
            match effect:
                case Send() if effect.to == self.me.address:
                    todo.extend(self._arrived(self.me.address, effect.message, now_ms))
                case Multicast() if not self.overlay.is_root(effect.topic):
                    pass  # not on the ring (again) yet: followers ask, workers offer, so the word gets round
                case Multicast():
                    todo.extend(self.overlay.multicast(effect.topic, pack(effect.message), now_ms))
                case ring.Ready():
                    todo.extend(self._on_ring(now_ms))
                case ring.JoinFailed():
                    todo.extend(self._not_joined(effect, now_ms))
                case ring.Delivered():
                    todo.extend(self._routed(effect.payload, effect.origin, now_ms))
                case ring.Multicasted():
                    todo.extend(self._routed(effect.payload, "", now_ms))
                case ring.Missed():
                    todo.extend(self._missed(effect, now_ms))
                case ring.PeerDown():
                    todo.extend(self.keeping.peer_down(effect.peer.address, now_ms))
                    todo.extend(self.homes.roots.peer_down(effect.peer.address, now_ms))
                    self.copies.peer_down(effect.peer.address)
                    todo.extend(self.witness.peer(effect))
                case ring.TreeChanged():
                    todo.extend(self.trees.planted(effect.topic, now_ms))
                case ring.PeerUp():
                    self.homes.roots.peer_up(effect.peer.address)
                    self.keeping.staffing.peer_up(now_ms)
                    self.housing.peer_up(now_ms)
                    todo.extend(self.witness.peer(effect))
                case ring.Anycasted() | ring.AnycastFailed():  # nothing of ours is sent so
                    pass
                case Until():
                    todo.extend(self.keeping.ask(now_ms))
                case ToAddress() | ToKey():
                    todo.extend(self._ask(effect, now_ms))
                case ToApp():
                    todo.extend(self.overlay.route(effect.app, pack(effect.message), now_ms))
                case _ if isinstance(effect, Wanted) and (wanted := self._commits.wanted(effect)) is not None:
                    todo.extend(step for one in wanted for step in self._commit(one, now_ms))
                case Commit() | FoundHome():
                    todo.extend(self._commit(effect, now_ms))
                case _:
                    found.append(effect)
        return found

    def _commit(self, step: Draft | Commit | FoundHome, now_ms: int) -> Sequence[Step]:
        match step:
            case Commit():
                return self.housing.commit(step, now_ms)
            case FoundHome():
                return self.housing.found(step, now_ms)
            case _:
                return [step]

    def _missed(self, missed: ring.Missed, now_ms: int) -> Sequence[Step]:
        """Multicasts that can't be had: what the log and roots say can be asked for, notices can't."""
        count = missed.last - missed.first + 1
        self.multicasts_missed += count
        asked = self.keeping.missed(missed.topic, now_ms)
        if asked is not None:
            return asked
        return [
            *self.uplink.unheard(missed.topic, now_ms),
            *self.programs.missed(missed.topic, count, now_ms),
        ]

    def _ask(self, ask: ToAddress | ToKey, now_ms: int) -> Sequence[Step]:
        if isinstance(ask, ToAddress):
            return [Send(ask.to, ask.request)]
        return self.overlay.route(ask.key, pack(ask.request), now_ms)

    def _routed(self, payload: bytes, origin: str, now_ms: int) -> list[Step]:
        try:
            message = unpack(payload)
        except PeerError:
            return []
        return self._arrived(origin, message, now_ms)

    def _not_joined(self, failed: ring.JoinFailed, now_ms: int) -> Sequence[Step]:
        """Nobody answers. A stranger gives up; a keeper, after a failure of everybody, begins the ring again,
        and so does the only one, if it is elsewhere now; the others go on trying until somebody is back.
        """
        if self.membership.cluster is None:
            tried = ", ".join(failed.contacts)
            asked = "is an agent with the same cluster.name running there?"
            return [Stop(f"cannot join the cluster through {tried}: {failed.reason}; {asked}", 1)]
        alone = self.me.address in self.membership.keepers or self.keeping.alone
        return self.overlay.start([] if alone else failed.contacts, now_ms)

    def _on_ring(self, now_ms: int) -> list[Step]:
        self._ring_ready = True
        found: list[Step] = [*self.trees.on_ring(now_ms)]
        for program in self.log.programs():
            found.extend(self.programs.begin(program, now_ms))
        return [*found, *self.keeping.on_ring(now_ms)]

    # -- the stream log grew ---------------------------------------------------------------------------------

    def _follow(self, now_ms: int) -> list[Step]:
        new, self.membership.fresh = self.membership.fresh, []
        found: list[Step] = []
        for entry in new:
            found.extend(self.witness.logged(entry))
            match entry:
                case say.MemberJoined() | say.MemberLeft():
                    self.homes.reading.roster_changed(entry.stream)
                    if isinstance(entry, say.MemberJoined) and entry.agent_id == self.me.agent_id:
                        others = self.log.namesakes(entry.stream, self.me.agent_id)
                        found.extend(Namesake(entry.stream, m.agent_id, m.address) for m in others)
                case say.HomeMoved():
                    found.extend(self.trees.moved(entry.uid, now_ms))
                    self.copies.holding.hurry()
                    found.extend(self.clients.moved(entry.uid, now_ms))
                case say.JobAdded():
                    self.homes.placed(entry.spec)
                case say.JobDropped():
                    found.extend(self.homes.dropped(entry.uid))
                    found.extend(self.clients.job_ended(entry.uid))
                    self.notices.forget(entry.uid)
                    found.extend([*self.programs.end(entry.uid, now_ms), *self.programs.logged(entry.uid)])
                case say.ProgramAdded():
                    found.extend(self.programs.begin(entry.spec, now_ms))
                    found.extend(self.programs.logged(entry.spec.uid))
        if any(not isinstance(entry, say.MemberLeft) for entry in new):
            found.extend(self.housing.found_ranges(self.me.agent_id))
            found.extend(self.housing.log_grew())
            found.extend(self.router.log_changed(now_ms))
            found.extend(self.trees.begin(now_ms))
            found.extend(self.trees.end(now_ms))
        self.witness.look(self.ready)
        found.extend(self.clients.log_grew(now_ms))
        return [*found, *self.keeping.spread(new, now_ms)]

    # -- messages --------------------------------------------------------------------------------------------

    def _arrived(self, sender: str, message: object, now_ms: int) -> list[Step]:
        match message:
            case say.Slice():
                return self._slice(sender, message, now_ms)
            case say.Progress():
                return [*self._clock(sender, message, now_ms), *self.router.arrived(sender, message, now_ms)]
            case say.Begun():
                return self._begun(message, now_ms)
            case say.Committed():
                return [*self.uplink.committed(message), *self.copies.holding.committed(message)]
            case _ if isinstance(message, say.COPY_MESSAGES):
                return list(self.copies.arrived(sender, message, now_ms))
            case say.RunAgain():
                flow = self.log.flow(message.flow)
                return [Run(flow, message, sender)] if flow is not None else []
            case say.Notice():
                return list(self.notices.heard(message, self.trees.running, now_ms))
            case say.LeaveOut():
                return list(self.uplink.leave_out(message))
            case say.SendAgain():
                return list(self.uplink.send_again(message))
            case say.Verdict():
                return list(self.uplink.verdict(message, now_ms))
            case say.Hello() | say.Welcome() | say.Follow() | say.LogTail() | say.Refused():
                return list(self.keeping.hear(sender, message, now_ms))
            case _ if isinstance(message, say.Wish):
                return list(self.keeping.serve(sender, message, now_ms))
            case say.Spread():
                return list(self.keeping.spread_here(message, now_ms))
            case _ if isinstance(message, PROGRAM_MESSAGES):
                return list(self.programs.arrived(sender, message, now_ms, self.membership.keeper))
            case _ if isinstance(message, ToFlow):
                return list(self.router.arrived(sender, message, now_ms))
            case say.Request():
                return list(self.requests.answer(message, now_ms))
            case say.Answer() if self.programs.awaits(message.id):
                return list(self.programs.answered(message))
            case say.Answer():
                return list(self.clients.answered(message, now_ms))
            case say.WindowResult():
                return list(self.clients.published(message, now_ms))
            case say.JobFailed():
                return list(self.clients.job_failed(message))
            case say.Call() if message.verb == "leave":
                forced = message.argument == "force"
                return list(self._leaving.asked(sender, message.request, now_ms, force=forced))
            case say.Execute() | say.Call() | say.KeepAlive() | say.Cancel():
                return list(self.clients.heard(sender, message, now_ms))
            case _:
                return []

    def _begun(self, message: say.Begun, now_ms: int) -> list[Step]:
        """Of flows whose home is here, or of such that we are on the way to."""
        here: list[say.FlowBegun] = []
        for begun in message.flows:
            flow = self.log.flow(begun.flow)
            if flow is not None and flow.home == self.me.address:
                here.append(begun)
            else:
                self.beginning.add(begun, now_ms)
        return list(self.router.arrived("", say.Begun(flows=tuple(here)), now_ms)) if here else []

    def _clock(self, sender: str, message: say.Progress, now_ms: int) -> list[Step]:
        """A member says what its clock shows."""
        self.clocks.hear(sender, message.now_ms, now_ms, self.overlay.rtt_ms(sender))
        flows = (self.log.flow(one.flow) for one in message.flows)
        lates = [flow.fragment.lateness_us for flow in flows if flow is not None]
        limit_ms = min((late for late in lates if late is not None), default=DEFAULT_LATENESS_US) // 1000
        skew = self.clocks.beyond(sender, limit_ms, now_ms)
        return [] if skew is None else [Skewed(sender, skew, limit_ms)]

    def _slice(self, sender: str, message: say.Slice, now_ms: int) -> list[Step]:
        if self.homes.roots.get(message.flow) is not None:
            return list(self.homes.roots.take(sender, message, now_ms))
        flow = self.log.flow(message.flow)
        alone = bool(message.parts) or isinstance(message, say.RunSlice)
        if flow is None or flow.home == self.me.address or alone:
            # its root is here no more, or not yet; late rows go up no tree: they are offered to the new root;
            # nor what was run again, which was asked for by that root
            self.unknown_flow += 1
            return []
        return list(self.uplink.carry(sender, flow, piece_of(message), now_ms))

    def check(self) -> None:
        """Raise when an invariant of this node is broken."""
        self.overlay.check()
        self.keeping.desk.groups.check()
        self.homes.check()
