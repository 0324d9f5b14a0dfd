"""A node: overlay, Raft groups, catalog log, worker side, job groups and clients, composed into one pure
state machine.

``handle(event, now_ms) -> list[Effect]``; ``deadline()`` says when it wants a ``tick``. The driver
(``agents.loop``) performs the effects. What a node sends to itself it handles at once, so that a fleet of one
is no special case. It must never read a clock, open anything, or block.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import overlay as ring
from agents.answering import audited
from agents.answering.asks import ToAddress, ToKey, Until
from agents.answering.clients import Clients
from agents.answering.fleet import Fleet
from agents.answering.keys import KeyRequests, NodeKeys
from agents.answering.statements import Statements
from agents.codec import pack, unpack
from agents.node.balancing import Loads, OwnLoad
from agents.node.beginning import Context, NodeSettings, Restored
from agents.node.catalog import Catalog
from agents.node.deciding import Deciding
from agents.node.groups import GroupDesk, Machines, Persisted
from agents.node.hosting import Hosting
from agents.node.leaving import Leaving
from agents.node.lending import Lending
from agents.node.requests import Requests
from agents.node.staffing import Staffing
from agents.node.witness import Waits, Witness
from agents.node.working import DoneWork, ToWorker, Working, WorkStep
from elf.errors import PeerError
from elf.job.catalog.log import CatalogLog
from elf.job.catalog.membership import Identity, Membership, StreamSince
from elf.job.catalog.voters import ReplicatedLog
from elf.job.effects import (
    Disbelieved,
    Effect,
    Faulted,
    Known,
    LookUp,
    Multicast,
    Namesake,
    SaveMaster,
    Send,
    Skipped,
    Stop,
)
from elf.job.events import (
    Arrived,
    Consulted,
    Event,
    FunctionsTried,
    HeldBack,
    Lagging,
    MadeReady,
    Offloaded,
    RingKept,
    Worked,
)
from elf.job.group.commits import Commits, Wanted
from elf.job.group.groups import JobGroups
from elf.job.group.port import (
    Applied,
    Commit,
    Draft,
    Drafted,
    FoundJobGroup,
    JobGroupEffect,
    JobGroupEvent,
    JobGroupLoaded,
    Summarised,
)
from elf.job.group.router import Done, Router, ToFlow
from elf.job.messages.groups import GetReady, JobFailed, Ready, ReconfigureJob
from elf.job.messages.log import (
    Follow,
    Hello,
    JobAdded,
    JobDropped,
    JobGroupAssigned,
    JobGroupMoved,
    LogEntry,
    LogTail,
    MemberJoined,
    MemberLeft,
    PauseDecided,
    ProgramAdded,
    Proposal,
    Refused,
    RosterChanged,
    RouteDecided,
    SignedTail,
    Spread,
    TreesDecided,
    Welcome,
)
from elf.job.messages.rollup import Broadcast, Committed, LeaveOut
from elf.job.program.messages import MESSAGES as PROGRAM_MESSAGES
from elf.job.program.messages import ProgramTrouble, Routed, Told
from elf.job.program.outgoing import ToApp
from elf.job.program.port import ProgramEffect, ProgramEvent
from elf.job.program.programs import Programs
from elf.job.replicas import ReplicaEffect, ReplicaEvent
from elf.job.tables import BEHIND, ReadShard, ReadTable
from elf.planning.overload import Lag
from elf.security.principals import Principal
from elf.wire.base import Answer, Message, Request
from elf.wire.clients import Call, Cancel, Execute, Failed, KeepAlive, WindowResult
from overlay import raft

LOOK_MS = 1_000
"""Between two looks at what nothing waits for."""
_ROUTED: Final = (Request, Spread, Routed, ProgramTrouble)
"""What may come by way of others, since it says by itself what it wants and where an answer goes."""
_MULTICAST: Final = (LogTail, SignedTail, Committed, LeaveOut, Broadcast, Told)
"""What comes down trees."""
NodeEffect = Effect | JobGroupEffect | ReplicaEffect | ring.Send | raft.Send | raft.Persist | ProgramEffect
"""What the driver performs."""

NodeEvent = Event | JobGroupEvent | ReplicaEvent | ring.Received | raft.Received | Persisted | ProgramEvent

Step = WorkStep | Commit | FoundJobGroup | ToAddress | ToKey | Until | ToApp | ProgramEffect
"""What the parts of a node want; ``settle`` does what is for the node itself."""


class Node:
    """See the module's docstring."""

    def __init__(
        self,
        me: Identity,
        streams: Sequence[StreamSince],
        overlay: ring.Overlay,
        groups: raft.Groups,
        settings: NodeSettings,
        restored: Restored,
        *,
        new_cluster_uid: str,
        keys: NodeKeys | None = None,
        process_us: Callable[[], int] | None = None,
    ) -> None:
        """``process_us``: the CPU time of the whole process so far, where that is known."""
        self.me = me
        self.overlay = overlay
        trust, signed = (None, ()) if keys is None else (keys.trust, keys.known)
        self.log = log = CatalogLog(restored.log, trust)
        names = frozenset(stream.name for stream in streams)
        context = Context(me, names, log, overlay)
        # the catalog log
        self.membership = Membership(
            me, streams, log, cluster=restored.cluster, follow_ms=settings.follow_ms, signed=signed
        )
        kept = ReplicatedLog(me.address, me.incarnation, trust)
        machines = Machines(kept)
        desk = GroupDesk(groups, machines.of)
        staffing = Staffing(
            me.address, overlay, desk, grace_ms=settings.root.grace_ms, enrolled=log.is_enrolled
        )
        self.catalog = Catalog(
            context,
            self.membership,
            kept,
            desk,
            staffing,
            voters_max=settings.voters_max,
            new_cluster_uid=new_cluster_uid,
            signed=signed,
            sign=None if keys is None else keys.sign,
        )
        # job groups: the jobs of which this agent is the master, and the roots of flows
        self.job_groups = JobGroups(me.address, log, settings.root, me.name, desk.voters, restored.rings)
        self.router = Router(log, self.job_groups)
        self.programs = Programs(me, names, log, overlay, restored.programs)
        self.hosting = Hosting(
            self.job_groups,
            log,
            desk,
            staffing,
            machines.job_groups,
            settings.group_members,
            restored.bootstrapped,
            self.programs,
            lambda: self.membership.voter,
        )
        self._commits = Commits(log, self.job_groups, self.router, self.hosting.holds)
        # the worker
        self._working = Working(context, self.catalog, self.router, settings, restored)
        self.sender = self._working.sender
        self.lending = Lending(context, self.sender, settings.budgets, restored.up_today)
        self.replicas = self._working.replicas
        self.broadcasts = self._working.broadcasts
        self.clocks = self._working.clocks
        self.links = self._working.links
        self.probes = self._working.probes
        shards = self.job_groups.shards
        self._leaving = Leaving(context, desk, staffing, self.catalog, self.hosting, self._working, shards)
        # whoever asks
        self.loads = Loads(log)
        self.deciding = Deciding(log, self.loads, settings.pace)
        self.requests = Requests(
            context,
            self.catalog,
            self.job_groups,
            self.router,
            self._working,
            self._leaving,
            self.hosting,
            self.loads.said,
            self.lending,
        )
        self.fleet = Fleet(me, log, overlay, self.membership, is_open=settings.open)
        self.clients = Clients(
            me.address,
            Statements(
                me,
                log,
                self.fleet,
                self.job_groups,
                self.replicas.status,
                KeyRequests(log, self.membership, keys),
                self.hosting.holds,
                settings.quotas,
                self.lending.keeper,
                settings.links,
                settings.border_us,
                settings.routes,
            ),
        )
        self.witness = Witness(log, self.membership)
        self._load = OwnLoad()
        self._process_us = process_us
        self._restored = restored
        self._ring_ready = False
        self._look_ms = 0
        self._renew_ms = settings.renew_ms
        self._waits_ms: int | None = None
        """When the parts beside the overlay want a tick; None: some of them may want another one by now.
        What only reads, or goes out, changes nothing about that."""
        self.multicasts_missed = 0

    # -- beginning and end -----------------------------------------------------------------------------------

    def start(self, contacts: Sequence[str], now_ms: int) -> list[NodeEffect]:
        """Join the ring through ``contacts``; with none, found the ring, and the catalog log if this agent
        never belonged to a cluster.
        """
        self.witness.start(tuple(contacts))
        found: list[Step] = [Known(signed) for signed in (self.log.roster.signed if self.log.roster else ())]
        found.extend(self._working.start(self._restored, now_ms))
        found.extend(self.catalog.start(contacts, now_ms))
        for job in self._restored.jobs:
            self.job_groups.known(job.spec)
            if not job.spec.replicated:
                found.extend(self.job_groups.restore((job,), self._restored.flows, now_ms))
        found.extend(self.hosting.found_ranges(self.me.agent_id))
        return self.settle([*found, *self.overlay.start(contacts, now_ms)], now_ms)

    @property
    def flows(self) -> int:
        """How many flows this agent computes, for any number of jobs."""
        return self._working.flows

    @property
    def unknown_flow(self) -> int:
        """Slices that came for flows that are not here."""
        return self._working.unknown_flow

    @property
    def ready(self) -> bool:
        """True when the ring has us and the catalog log names us in all our streams."""
        return self.waits() is None

    def waits(self) -> Waits | None:
        """What it waits for until it is ready; None: it is."""
        return self.witness.waits(self._ring_ready)

    @property
    def leaving(self) -> bool:
        return self._leaving.under_way

    def leave(self, now_ms: int) -> list[NodeEffect]:
        """Seal everything, hand it over, and go."""
        self._waits_ms = None
        return self.settle(self._leaving.begin(), now_ms)

    # -- events ----------------------------------------------------------------------------------------------

    def handle(self, event: NodeEvent, now_ms: int) -> list[NodeEffect]:
        if not isinstance(event, ring.Received | Consulted | Arrived):
            self._waits_ms = None
        return self.settle(self._handle(event, now_ms), now_ms)

    def _handle(self, event: NodeEvent, now_ms: int) -> list[Step]:
        match event:
            case ring.Received():
                said = event.message
                return self._guarded(
                    said, said.sender.address, lambda: list(self.overlay.handle(event, now_ms))
                )
            case raft.Received():
                return list(self.catalog.received(event.message, now_ms))
            case Persisted():
                return list(self.catalog.persisted(now_ms))
            case JobGroupLoaded():
                found = [*self.hosting.heard(event, now_ms), *self.router.hear_again(now_ms)]
                return [*found, *self._working.begin(now_ms)]
            case Summarised():
                return list(self.hosting.heard(event, now_ms))
            case Drafted():
                return list(self._commits.drafted(event, now_ms))
            case Applied(commit=Commit(done=SaveMaster() as saved), why=""):
                return [*self.programs.committed(saved, now_ms)]
            case Applied():
                return list(self._commits.applied(event, now_ms))
            case Arrived():
                return self._arrived(event.sender, event.message, now_ms, event.who)
            case MadeReady():
                return list(self.hosting.made_ready(event))
            case _ if isinstance(event, DoneWork):
                return self._worked(event, now_ms)
            case FunctionsTried():
                return [*self.router.handle(event, now_ms), *self.requests.remind(now_ms)]
            case _ if isinstance(event, Done):
                return list(self.router.handle(event, now_ms))
            case HeldBack():
                self.lending.keeper.waited(event.lag_ms, now_ms)
                return []
            case Lagging():
                self.lending.lags[event.stream] = Lag(event.lag_ms, event.busy_ms, event.cpu_ms, now_ms)
                return []
            case RingKept():
                return list(self.job_groups.shards.replica_kept(event, now_ms))
            case Offloaded():
                return list(self.clients.offloaded(event, now_ms))
            case Consulted(request=ReadShard() as asked) if not self.job_groups.swaps.given(
                asked, event.body
            ):
                return [Send(asked.origin, Answer(id=asked.id, error=BEHIND))]
            case Consulted():
                answer = Answer(id=event.request.id, error=event.error, body=event.body)
                return [Send(event.request.origin, answer)]
            case _:
                return list(self.programs.said(event, now_ms))

    def _worked(self, event: DoneWork, now_ms: int) -> list[Step]:
        """Something that the worker wanted has been done."""
        found: list[Step] = [*self._working.handle(event, now_ms)]
        if isinstance(event, Worked):
            if event.command == "SealOpen":
                self._leaving.sealed(event.stream, event.outcome.until_us)
            found.extend(self.programs.tapped(event.stream, event.outcome.tapped, now_ms))
        return found

    def deadline(self, now_ms: int) -> int:
        """When ``tick`` is wanted next. Most messages are the ring's, and change nothing for the others."""
        if self._waits_ms is None:
            self._waits_ms = self._deadline(now_ms)
        at_ms = self.overlay.deadline()
        return self._waits_ms if at_ms is None else min(at_ms, self._waits_ms)

    def _deadline(self, now_ms: int) -> int:
        waits = [
            self.catalog.deadline(),
            self.hosting.deadline(),
            self._working.deadline(),
            self.clients.deadline(),
            self.programs.deadline(),
        ]
        if self._ring_ready:  # before, a tick does nothing about these
            waits.append(self.router.deadline(now_ms))
        return min((at for at in waits if at is not None), default=now_ms + 1_000)

    def tick(self, now_ms: int) -> list[NodeEffect]:
        self._waits_ms = None
        found: list[Step] = list(self.overlay.handle(ring.Tick(), now_ms))
        found.extend(self.catalog.tick(now_ms))
        found.extend(self.hosting.tick(now_ms))
        if self._ring_ready:
            found.extend(self.router.tick(now_ms, self.membership.voters))
        found.extend(self._working.tick(now_ms))
        found.extend(self.clients.tick(now_ms))
        found.extend(self.programs.tick(now_ms, self.membership.voter))
        found.extend(self._leaving.tick(now_ms))
        if now_ms >= self._look_ms:
            self._look_ms = now_ms + LOOK_MS
            self.witness.look(self.ready)
            found.extend(self._balance(now_ms))
            if self._ring_ready and (spec := self.job_groups.to_learn(now_ms)) is not None:
                found.extend(self.clients.learn(spec, now_ms))
            if self._ring_ready and (spec := self.job_groups.to_renew(now_ms, self._renew_ms)) is not None:
                found.extend(self.clients.renew(spec, now_ms))
            self.clients.statements.creators.look(lambda: self.sender.spent() | self.programs.spent(), now_ms)
            found.extend(self.lending.look(self._working.installed, self.programs.spent(), now_ms))
            found.extend(self.lending.remember(now_ms))
            found.extend(self.witness.remember(self.catalog.neighbours(), now_ms))
            found.extend(self._working.look())
        return self.settle(found, now_ms)

    def _balance(self, now_ms: int) -> list[Step]:
        """Measure what this agent does; as the leader of the log's voters, decide what changes."""
        if self._load.due(now_ms):
            rest = sum(self.sender.spent().values()) + sum(self.programs.spent().values())
            groups = self.job_groups
            self._load.look(
                groups.spent(),
                rest,
                now_ms,
                groups.spent_on_windows(),
                groups.scaling(),
                groups.promised(),
                None if self._process_us is None else self._process_us(),
            )
            self.membership.load = self._load.said
        if not self.catalog.leads:
            return []
        self.loads.heard(self.me.address, self._load.said, now_ms)
        decided = self.deciding.decide(now_ms)
        found = [step for one in decided for step in self.catalog.serve(self.me.address, one, now_ms)]
        return [*found, *self.clients.plan_routes(now_ms)]

    # -- what comes back to ourselves, and what the overlay tells --------------------------------------------

    def settle(self, effects: Sequence[Step], now_ms: int) -> list[NodeEffect]:
        """Handle what is for this node itself, in order, until only what the driver must do is left."""
        found: list[NodeEffect] = []
        todo: deque[Step] = deque(effects)
        while True:
            if not todo:
                todo.extend(self._more(now_ms))
                if not todo:
                    return found
                self._waits_ms = None
            effect = todo.popleft()
            if isinstance(effect, Send) and effect.to == self.me.address:
                todo.extend(self._arrived(self.me.address, effect.message, now_ms))
                continue
            if isinstance(effect, ring.Send | Send | LookUp):
                found.append(effect)
                continue
            self._waits_ms = None
            match effect:
                case Multicast() if not self.overlay.is_root(effect.topic):
                    pass  # not on the ring (again) yet: followers ask, workers offer, so the word gets round
                case Multicast():
                    todo.extend(self.overlay.multicast(effect.topic, pack(effect.message), now_ms))
                case _ if isinstance(effect, ring.Effect):
                    todo.extend(self._ring(effect, now_ms))
                case Until():
                    todo.extend(self.catalog.ask(now_ms))
                case ToAddress():
                    todo.append(Send(effect.to, effect.request))
                case ToKey():
                    todo.extend(self.overlay.route(effect.key, pack(effect.request), now_ms))
                case ToApp():
                    todo.extend(self.overlay.route(effect.app, pack(effect.message), now_ms))
                case _ if isinstance(effect, Wanted) and (wanted := self._commits.wanted(effect)) is not None:
                    todo.extend(step for one in wanted for step in self._commit(one, now_ms))
                case Commit() | FoundJobGroup():
                    todo.extend(self._commit(effect, now_ms))
                case _:
                    found.append(effect)

    def _more(self, now_ms: int) -> list[Step]:
        """What groups and the catalog log have said meanwhile."""
        while True:
            found: list[Step] = [*self.catalog.follow(), *self.hosting.follow(now_ms)]
            if found or not (new := self.membership.take_fresh()):
                return found
            self._waits_ms = None
            if found := self._follow(new, now_ms):
                return found

    def _commit(self, step: Draft | Commit | FoundJobGroup, now_ms: int) -> Sequence[Step]:
        match step:
            case Commit():
                return self.hosting.commit(step, now_ms)
            case FoundJobGroup():
                return self.hosting.found(step, now_ms)
            case _:
                return [step]

    def _ring(self, told: ring.Effect, now_ms: int) -> Sequence[Step]:
        """The overlay tells something."""
        match told:
            case ring.Ready():
                return self._on_ring(now_ms)
            case ring.JoinFailed():
                return self._not_joined(told, now_ms)
            case ring.Delivered():
                return self._carried(told.payload, told.origin, _ROUTED, now_ms)
            case ring.Multicasted():
                return self._carried(told.payload, "", _MULTICAST, now_ms)
            case ring.Missed():
                return self._missed(told, now_ms)
            case ring.PeerDown(peer=peer):
                self.replicas.peer_down(peer.address)
                gone = [*self.catalog.peer_down(peer.address, now_ms), *self.sender.peer_down(peer.address)]
                return [*gone, *self.router.peer_down(peer.address, now_ms), *self.witness.peer(told)]
            case ring.PeerUp(peer=peer):
                self.router.peer_up(peer.address)
                self.catalog.peer_up(now_ms)
                self.hosting.peer_up(now_ms)
                return self.witness.peer(told)
            case ring.TreeChanged():
                return [
                    *self._working.planted(told.topic, now_ms),
                    *self.programs.planted(told.topic, now_ms),
                ]
            case _:  # nothing of ours is anycast
                return []

    def _missed(self, missed: ring.Missed, now_ms: int) -> Sequence[Step]:
        """Multicasts that can't be had: what the log and roots say can be asked for, broadcasts can't."""
        count = missed.last - missed.first + 1
        self.multicasts_missed += count
        asked = self.catalog.missed(missed.topic, now_ms)
        if asked is not None:
            return asked
        return [
            *self._working.missed(missed.topic, now_ms),
            *self.programs.missed(missed.topic, count, now_ms),
        ]

    def _carried(
        self, payload: bytes, origin: str, kinds: tuple[type[Message], ...], now_ms: int
    ) -> list[Step]:
        """What others have brought here. Whom it is said to be of is nobody's proof, so it is only what may
        be of anybody (protocol 12.8): no wish for another version of a job (protocol 7.17)."""
        try:
            message = unpack(payload)
        except PeerError:
            return []
        if not isinstance(message, kinds) or isinstance(message, ReconfigureJob):
            return [Disbelieved(type(message).__name__, origin, "it must come from who says it")]
        return self._arrived(origin, message, now_ms)

    def _not_joined(self, failed: ring.JoinFailed, now_ms: int) -> Sequence[Step]:
        """Nobody answers. A stranger gives up; a voter, after a failure of everybody, begins the ring again,
        and so does the only one, if it is elsewhere now; the others go on trying until somebody is back.
        """
        if self.membership.cluster is None:
            tried = ", ".join(failed.contacts)
            asked = "is an agent with the same cluster.name running there?"
            return [Stop(f"cannot join the cluster through {tried}: {failed.reason}; {asked}", 1)]
        alone = self.me.address in self.membership.voters or self.catalog.alone
        return self.overlay.start([] if alone else failed.contacts, now_ms)

    def _on_ring(self, now_ms: int) -> list[Step]:
        self._ring_ready = True
        found: list[Step] = [*self._working.on_ring(now_ms)]
        found.extend(self.programs.began(now_ms))
        return [*found, *self.catalog.on_ring(now_ms)]

    # -- the catalog log grew --------------------------------------------------------------------------------

    def _follow(self, new: Sequence[LogEntry], now_ms: int) -> list[Step]:
        found: list[Step] = []
        for entry in new:
            if why := self.log.skipped.get(entry.seq):
                what = f"an entry of the catalog log ({type(entry).__name__})"
                found.append(Skipped(what, f"entry {entry.seq}: {why}"))
                continue
            found.extend([*self.witness.logged(entry), *audited.entry(entry, self.log)])
            match entry:
                case MemberJoined() | MemberLeft():
                    self.router.roster_changed(entry.stream)
                    if isinstance(entry, MemberJoined) and entry.agent_id == self.me.agent_id:
                        others = self.log.namesakes(entry.stream, self.me.agent_id)
                        found.extend(Namesake(entry.stream, m.agent_id, m.address) for m in others)
                case JobGroupMoved():
                    found.extend(self._working.home_moved(entry.uid, now_ms))
                    found.extend(self.clients.moved(entry.uid, now_ms))
                    found.extend(self.programs.moved(entry.uid, now_ms))
                case JobGroupAssigned():
                    self.hosting.assigned(entry, now_ms)
                case TreesDecided() if self.hosting.is_to_change(entry, now_ms):
                    found.extend(self.clients.scale(entry, now_ms))
                case PauseDecided() if self.hosting.is_to_change(entry, now_ms):
                    found.extend(self.job_groups.work_out(entry, now_ms))
                case JobAdded():
                    self.job_groups.placed(entry.spec)
                case JobDropped():
                    found.extend(self.job_groups.dropped(entry.uid))
                    found.extend(self.clients.job_ended(entry.uid))
                    self.broadcasts.forget(entry.uid)
                    found.extend([*self.programs.end(entry.uid, now_ms), *self.programs.logged(entry.uid)])
                case ProgramAdded():
                    found.extend(self.programs.begin(entry.spec, now_ms))
                    found.extend(self.programs.logged(entry.spec.uid))
                case RosterChanged():
                    found.append(Known(entry.signed))
        if any(isinstance(entry, MemberJoined | MemberLeft) for entry in new):
            self._working.members_changed()
            self.job_groups.shards.follow()
        if any(isinstance(entry, RouteDecided) for entry in new):
            self._working.routes_changed()
        if any(not isinstance(entry, MemberLeft) for entry in new):
            found.extend(self.hosting.found_ranges(self.me.agent_id))
            found.extend(self.hosting.log_grew())
            found.extend(self.router.log_changed(now_ms))
            found.extend(self._working.begin(now_ms))
            found.extend(self._working.end(now_ms))
        self.witness.look(self.ready)
        found.extend(self.clients.log_grew(now_ms))
        return [*found, *self.catalog.spread(new, now_ms)]

    # -- messages --------------------------------------------------------------------------------------------

    def _guarded(self, message: object, sender: str, handle: Callable[[], list[Step]]) -> list[Step]:
        """The last guard around one message of whoever (protocol 12.3). Decoders let nothing through that
        has no meaning; where one has a meaning that nobody thought of, the message alone is dropped, and is
        named and counted (``Faulted``).

        What it may have changed before it failed is in memory alone, and half of what it wanted is done by
        nobody: its effects are dropped with it. That is as if the rest of it had been lost on the way, which
        every part bears: what is durable is written by effects, each before anything that rests on it, and
        all that is said is said again. Where parts no longer fit together, ``check`` raises, and the agent
        stops as it does for any bug: its next life begins from what is on the disk."""
        try:
            return handle()
        except Exception as error:
            self.check()
            return [Faulted(error, type(message).__name__, sender)]

    def _arrived(self, sender: str, message: object, now_ms: int, who: Principal | None = None) -> list[Step]:
        if not isinstance(message, ReadTable):
            self._waits_ms = None
        return self._guarded(message, sender, lambda: self._taken(sender, message, now_ms, who))

    def _taken(self, sender: str, message: object, now_ms: int, who: Principal | None) -> list[Step]:
        match message:
            case _ if isinstance(message, ToWorker):
                return list(self._working.arrived(sender, message, now_ms))
            case _ if isinstance(message, ToFlow):
                return list(self.router.arrived(sender, message, now_ms))
            case Follow() if self.catalog.keeps:
                self.loads.heard(sender, message.load, now_ms)
                return list(self.catalog.hear(sender, message, now_ms))
            case Hello() | Welcome() | Follow() | LogTail() | SignedTail() | Refused():
                return list(self.catalog.hear(sender, message, now_ms))
            case _ if isinstance(message, Proposal):
                return list(self.catalog.serve(sender, message, now_ms))
            case Spread():
                return list(self.catalog.spread_here(message, now_ms))
            case _ if isinstance(message, PROGRAM_MESSAGES):
                return list(self.programs.arrived(sender, message, now_ms, self.membership.voter))
            case Request():
                return list(self.requests.answer(message, now_ms))
            case GetReady():
                return list(self.hosting.get_ready(sender, message))
            case Ready():
                self.hosting.is_ready(sender, message, now_ms)
                return []
            case Answer() if self.programs.awaits(message.id):
                return list(self.programs.answered(message))
            case Answer() if self.job_groups.shards.awaits(message.id):
                return list(self.job_groups.shards.answered(message, now_ms))
            case Answer() if self.job_groups.swaps.awaits(message.id):
                return list(self.job_groups.swaps.answered(message))
            case Answer():
                return list(self.clients.answered(message, now_ms))
            case WindowResult():
                return list(self.clients.published(message, now_ms))
            case JobFailed():
                return list(self.clients.job_failed(message))
            case Call() if message.verb == "leave":
                if why := self.clients.statements.refused_call(message, now_ms, who):
                    return [Send(sender, Failed(request=message.request, text=why))]
                forced = message.argument == "force"
                leaving = self._leaving.asked(sender, message.request, now_ms, force=forced)
                return [*audited.request(sender, message, None), *leaving]
            case Execute() | Call() | KeepAlive() | Cancel():
                return list(self.clients.heard(sender, message, now_ms, who))
            case _:
                return []

    def check(self) -> None:
        """Raise when an invariant of this node is broken."""
        self.overlay.check()
        self.catalog.check()
        self.job_groups.check()
