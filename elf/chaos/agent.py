"""One agent of a simulated fleet: a real node over a real store, whose driver is virtual time."""

from __future__ import annotations

import random
import uuid
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import overlay as ring
from agents.committing import panecommits, windowcommits
from agents.committing.early import early_windows
from agents.committing.kept import Version, Versions
from agents.disk import copystore, homestore
from agents.disk.restore import stored_flows, stored_jobs
from agents.disk.store import StoreError
from agents.node.beginning import (
    FOUNDED_FACT,
    HOUSED_FACT,
    PEERS_FACT,
    NodeSettings,
    Restored,
    from_lines,
    overlay_config,
    replica_config,
)
from agents.node.groups import Persisted
from agents.node.node import Node, NodeEffect, NodeEvent
from elf.chaos.disk import SimStore
from elf.chaos.engine import STREAM, PyFinisher, py_final, py_reduce, py_types
from elf.chaos.filelane import FileLane
from elf.chaos.files import FileLog
from elf.chaos.lane import Log, SimLane
from elf.chaos.programs import InlineJobs
from elf.job import effects as do
from elf.job import events as was
from elf.job import messages as say
from elf.job.commands import Suspend
from elf.job.copies import CopyEffect
from elf.job.home import port as home
from elf.job.log.membership import CLUSTER_FACT, FOUNDER_FACT, Identity, StreamSince, read_cluster
from elf.job.log.streamlog import decode_entry, encode_entry
from elf.job.ports import FinisherPort
from elf.job.program.port import ProgramEffect, ProgramEvent
from elf.job.rollup.uplink import SNAPSHOT_OVERHEAD
from elf.job.snapshots import SnapshotName
from elf.job.worker.stream import StreamWorker
from elf.ql.plan import Plan
from overlay import replica

if TYPE_CHECKING:
    from elf.chaos.world import World

SUPERVISOR_MS: Final = 1_000
"""After so long an agent that stopped is started again."""
HomeWork = home.Apply | home.InstallHome | home.SummariseHome | home.LoadHome | home.ForgetHome
HOME_EFFECTS: Final = (home.Apply, home.InstallHome, home.SummariseHome, home.LoadHome, home.ForgetHome)

HELD_MAX = 200
"""So much that comes to a stopped process is kept for it."""
COPY_AFTER_MS = 1_000
"""Sooner than agents do, so that a storm has copies."""


class SimAgent:
    """One agent: what survives a crash (``store``, ``log``), and what does not (everything else)."""

    copy_after_ms = COPY_AFTER_MS
    tick_ms_min = 5
    """Between two ticks of the node, at least."""
    types = staticmethod(py_types)
    """How columns are to be that come of others."""

    def __init__(self, world: World, index: int) -> None:
        self.world = world
        self.index = index
        self.address = f"10.0.0.{index}:7100"
        self.store = self.new_store()
        self.agent_id = str(uuid.UUID(int=world.rng.getrandbits(128), version=4))
        self.store.put("agent_id", self.agent_id.encode())
        if world.ledger is not None:
            world.ledger.agent(self.agent_id, index)
        self.logs: dict[str, Log] = defaultdict(Log)
        self.streams: tuple[str, ...] = (STREAM,)
        self.lanes: dict[str, SimLane] = {}
        self.up = False
        self.life = 0
        self.ended = ""
        self.results: list[say.WindowResult] = []
        self.notices: list[tuple[str, str]] = []
        self.skewed: list[tuple[str, int]] = []
        self.unusable: list[do.Unusable] = []
        self.clock_ms = 0
        """How far its clock is ahead."""
        self.slow_ms = 0
        """What it does, and says, takes up to so much longer."""
        self.stuck = False
        """Its lanes do nothing."""
        self.slow_disk_ms = 0
        """A write takes up to so much longer."""
        self.stopped = False
        """Its process gets no time (SIGSTOP)."""
        self.stops = 0
        self._held: list[Callable[[], None]] = []
        """What it does when it goes on."""
        self.versions = Versions(self.finisher)

    def new_store(self) -> SimStore:
        return SimStore(self.world.ledger, self.index)

    @property
    def log(self) -> Log:
        return self.logs[STREAM]

    @property
    def worker(self) -> StreamWorker:
        return self.lanes[STREAM].worker

    @property
    def now_ms(self) -> int:
        """What its clock shows."""
        return self.world.now + self.clock_ms

    # -- life ------------------------------------------------------------------------------------------------

    @property
    def belongs(self) -> bool:
        """Whether it has been in the cluster, or founds it: then it may begin the ring without anybody."""
        known = self.store.get(CLUSTER_FACT) or self.store.get(FOUNDER_FACT)
        return self.life > 0 and (self.index == 0 or known is not None)

    def start(self, contacts: Sequence[str]) -> None:
        world = self.world
        self.up, self.life = True, self.life + 1
        self.disk_ms = world.now
        self._tick_ms: int | None = None
        self.versions.close()
        self.jobs = InlineJobs(self.from_program)
        incarnation = self.store.begin_incarnation(world.now // 1_000)
        me = Identity(self.agent_id, f"a{self.index}", incarnation, self.address)
        peer = ring.Peer(self.address, incarnation)
        ring_config = ring.OverlayConfig(refresh_at_once=world.root_settings.homes_at_once)
        rng = random.Random(world.rng.random())
        self.checked = 0
        self.lanes = {stream: self._lane(stream) for stream in self.streams}
        streams = [StreamSince(stream, -(1 << 62)) for stream in self.streams]
        node_settings = NodeSettings(
            root=world.root_settings,
            retained_bytes_max=world.retained_bytes_max,
            home_members=world.home_members,
            copy_after_ms=self.copy_after_ms,
        )
        restored = self._restored()
        self.node = Node(
            me,
            streams,
            ring.Overlay(peer, overlay_config(restored, me, ring_config), rng),
            replica.Groups(peer, replica_config(), rng, restored.groups),
            node_settings,
            restored,
            new_cluster_uid=f"of {self.agent_id}",
        )
        known = (self.store.get(PEERS_FACT) or b"").decode().split()
        known += restored.cluster.keepers.addresses if restored.cluster else ()
        self.perform(self.node.start([*contacts, *known], self.now_ms))
        for lane in self.lanes.values():
            world.after(world.rng.randrange(1, 100), self, lane.read)

    def _lane(self, stream: str) -> SimLane:
        return (FileLane if isinstance(self.logs[stream], FileLog) else self.world.lane)(self, stream)

    def _restored(self) -> Restored:
        told, told_before = self.store.get(CLUSTER_FACT), self.store.get(FOUNDER_FACT)
        cluster = read_cluster(told, told_before)
        founder = cluster.keepers.leader if cluster is not None and not told else None
        entries = tuple(decode_entry(entry) for _, entry in self.store.load_log())
        jobs = stored_jobs(self.store)
        cuts = {stream: lane.cut for stream, lane in self.lanes.items() if lane.cut is not None}
        installed = frozenset((stream, f.flow.uid) for stream, cut in cuts.items() for f in cut.flows)
        retained = tuple(
            (s.flow, s.start, s.end, s.part, len(s.tally) + len(s.payload) + SNAPSHOT_OVERHEAD)
            for _, flow in sorted(installed)
            for s in self.store.snapshots(flow)
        )
        suspended = frozenset(f.flow.uid for cut in cuts.values() for f in cut.flows if f.suspended)
        panes = stored_flows(self.store, jobs)
        groups = self.store.load_groups()
        housed = self.store.get(HOUSED_FACT) is not None
        return Restored(
            cluster,
            founder,
            entries,
            groups,
            jobs,
            panes,
            installed,
            retained,
            suspended,
            copystore.held(self.store),
            housed,
            from_lines(self.store.get(FOUNDED_FACT)),
        )

    def groups(self) -> tuple[bytes, ...]:
        """The replica groups in which it has a seat."""
        return self.node.keeping.desk.groups.held()

    def crash(self) -> None:
        self.up = self.stopped = False
        self._held.clear()
        self.life += 1
        for lane in self.lanes.values():
            lane.close()

    def stop(self) -> None:
        """As by SIGSTOP: nothing happens until ``go_on``, and then at once all that was due."""
        self.stopped = self.up
        self.stops += self.up

    def go_on(self) -> None:
        self.stopped = False
        held, self._held = self._held, []
        life = self.life
        for action in held:
            if self.life == life:
                self.guard(action)

    @property
    def overrun(self) -> bool:
        """Whether it is stopped, and those who send to it have no more room for what it does not take."""
        return self.stopped and len(self._held) >= HELD_MAX

    @property
    def well(self) -> bool:
        """Whether nothing keeps it from reading its files, and from writing down what it has read."""
        ails = self.stopped or self.stuck or self.slow_ms or self.slow_disk_ms
        return self.up and not ails and self.node.ready and not self.node.leaving

    def guard(self, action: Callable[[], None]) -> None:
        """Something that the agent does, or that comes to it; when its store refuses, it stops and is started
        again later."""
        if self.stopped:
            self._held.append(action)
            return
        try:
            action()
        except StoreError:
            self.crash()
            world = self.world
            world.at(world.now + SUPERVISOR_MS, partial(world.restart, self))

    def held(self, flow: str) -> int:
        """Bytes of the snapshots that it retains of a flow, as quotas count them."""
        rows = self.store.snapshots(flow)
        return sum(len(row.tally) + len(row.payload) + SNAPSHOT_OVERHEAD for row in rows)

    # -- effects ---------------------------------------------------------------------------------------------

    def handle(self, event: NodeEvent) -> None:
        self.perform(self.node.handle(event, self.now_ms))

    def perform(self, effects: Sequence[NodeEffect]) -> None:
        world = self.world
        for effect in effects:
            world.point(self)
            if not self.up:
                return
            match effect:
                case do.Send() | ring.Send() | replica.Send():
                    world.send(self, effect.to, effect.message)
                case do.Work():
                    if world.ledger is not None and isinstance(effect.command, Suspend):
                        uid, most = effect.command.uid, world.retained_bytes_max
                        world.ledger.suspends(self.index, uid, self.held(uid), most)
                    self.lanes[effect.stream].give(effect.command)
                case do.SaveLog():
                    self.store.append_log([(e.seq, encode_entry(e)) for e in effect.entries])
                case do.SaveJob():
                    record = homestore.job_record(effect)
                    self.store.save_job(effect.spec.uid, record, effect.state)
                    self.versions.saved(effect)
                case _ if isinstance(effect, HOME_EFFECTS):
                    if isinstance(effect, home.ForgetHome):
                        self.versions.forget(effect.uid)
                    self._in_order(partial(self._housed, effect))
                case _ if isinstance(effect, copystore.COPY_EFFECTS):
                    self._in_order(partial(self._copy, effect))
                case do.SaveFact():
                    self.store.put(effect.key, effect.value)
                case do.SaveFlow():
                    self.store.save_flow(effect.flow, effect.first_pane)
                case do.PrunePanes():
                    self.store.prune_panes(effect.flow, effect.below)
                case do.PruneWindows():
                    self.store.prune_windows(effect.job, effect.below_us)
                case do.Forget():
                    self._forget(effect)
                case do.Unusable():
                    self.unusable.append(effect)
                case do.Namesake() | do.Seen():
                    pass
                case do.Skewed():
                    self.skewed.append((effect.address, effect.skew_ms))
                case do.Noticed():
                    self.notices.append((effect.job, effect.text))
                case do.Stop():
                    self.crash()
                    if effect.status and world.supervised:
                        world.at(world.now + SUPERVISOR_MS, partial(world.restart, self))
                    else:
                        self.ended = effect.text
                    return
                case _ if isinstance(effect, ProgramEffect):
                    self.jobs.perform(effect)
                case _:
                    self._long(effect)
        world.check_log(self)
        if world.checks():
            self.node.check()
        self._plan_tick()

    def _long(self, effect: NodeEffect) -> None:
        """What takes a while, and comes back as an event."""
        work: Callable[[], None]
        match effect:
            case do.Combine():
                work = partial(self._answer, partial(panecommits.combine, effect, self.types))
            case do.CommitPanes():
                work = partial(self._answer, partial(self._panes, effect))
            case do.CommitWindows():
                work = partial(self._durable, partial(self._windows, effect, self._maker(effect)))
            case do.MakeEarly():
                work = partial(self._answer, partial(self._early, effect))
            case do.TryFunctions():
                work = partial(self._answer, partial(was.FunctionsTried, effect.request, ""))
            case home.Draft(work=do.CommitPanes() as panes):
                work = partial(self._answer, partial(self._draft_panes, effect, panes))
            case home.Draft(work=do.CommitWindows() as windows):
                work = partial(self._answer, partial(self._draft, windows, self._maker(windows)))
            case replica.Persist():
                work = partial(self._persist, effect)
            case do.Fetch():
                work = partial(self._answer, partial(self._fetch, effect))
            case do.StorePanes():
                work = partial(self._durable, partial(panecommits.store_panes, effect, self.store))
            case do.ReadCommits():
                work = partial(self._answer, partial(panecommits.read_commits, effect, self.store))
            case do.ReadWindows():
                work = partial(
                    self._answer, partial(windowcommits.windows_again, effect, self.store, self.address)
                )
            case _:
                raise TypeError(repr(effect))
        self.world.later(self, work)

    def from_program(self, event: ProgramEvent) -> None:
        """A job in Python has done something."""
        self.world.after(1, self, partial(self.handle, event))

    def finisher(self, plan: Plan) -> FinisherPort:
        """Of a version's windows, or of those that equal ones have in common."""
        return PyFinisher(plan)

    def _answer(self, make: Callable[[], NodeEvent]) -> None:
        self.handle(make())

    def _durable(self, make: Callable[[], NodeEvent]) -> None:
        """Work that leaves something in the store; the agent may die before it says so."""
        event = make()
        self.world.crash_point(self)
        if self.up:
            self.after_disk(partial(self.handle, event))

    def after_disk(self, action: Callable[[], None]) -> None:
        """At once, or when a slow disk is ready."""
        if self.slow_disk_ms:
            self.world.after(self.world.lag(self.slow_disk_ms), self, action)
        else:
            action()

    def _persist(self, effect: replica.Persist) -> None:
        self.world.crash_point(self)
        if self.up:
            self.store.persist(effect.writes)
        self.world.crash_point(self)
        if self.up:
            self.after_disk(partial(self.handle, Persisted()))

    def _in_order(self, action: Callable[[], None]) -> None:
        """What the disk's thread does, one after the other."""
        world = self.world
        self.disk_ms = max(self.disk_ms, world.now) + world.rng.randrange(1, 5) + world.lag(self.slow_disk_ms)
        world.after(self.disk_ms - world.now, self, action)

    def _housed(self, effect: HomeWork) -> None:
        event = homestore.perform(self.store, effect)
        self.world.crash_point(self)
        if self.up and event is not None:
            self.handle(event)

    def _copy(self, effect: CopyEffect) -> None:
        event = copystore.perform(self.store, effect)
        self.world.crash_point(self)
        if self.up and event is not None:
            self.handle(event)

    def _draft_panes(self, effect: home.Draft, work: do.CommitPanes) -> home.Drafted:
        reduce = py_reduce(work.flow.fragment)
        return panecommits.draft_panes(effect, work, self.store, reduce, self.types)

    def _draft(self, work: do.CommitWindows, version: Version) -> home.Drafted:
        final = py_final(work.spec.plan)
        with version.alone() as (finisher, kept):
            return windowcommits.draft_windows(work, self.store, finisher, self.address, kept, final)

    def _panes(self, effect: do.CommitPanes) -> was.PanesCommitted:
        reduce = py_reduce(effect.flow.fragment)
        return panecommits.commit_panes(effect, self.store, reduce, self.types)

    def _windows(self, effect: do.CommitWindows, version: Version) -> was.WindowsCommitted:
        with version.alone() as (finisher, kept):
            return windowcommits.commit_windows(effect, self.store, finisher, self.address, kept)

    def _maker(self, effect: do.CommitWindows) -> Version:
        if self.world.ledger is not None:
            self.world.ledger.means(effect)
        return self.versions.maker(effect)

    def _early(self, effect: do.MakeEarly) -> NodeEvent:
        plan = effect.committed.spec.plan
        finisher = self.finisher(plan)
        try:
            return early_windows(effect, self.store, finisher, self.address, py_final(plan), self.types)
        finally:
            finisher.close()

    def _fetch(self, effect: do.Fetch) -> was.Fetched:
        rows = self.store.overlapping(effect.flow.uid, effect.start, effect.end)
        return was.Fetched(effect.flow, tuple(row for row in rows if row.part == effect.part))

    def _forget(self, effect: do.Forget) -> None:
        if effect.whole_flow:
            self.store.delete_flow(effect.flow)
        else:
            self.store.delete_snapshots([SnapshotName(effect.flow, *name) for name in effect.names])

    def _plan_tick(self) -> None:
        """When the node wants it, as of now: what it has just heard may want it sooner."""
        at_ms = self.world.now + max(self.tick_ms_min, self.node.deadline(self.now_ms) - self.now_ms)
        if self._tick_ms is None or at_ms < self._tick_ms:
            self._tick_ms = at_ms
            self.world.after(at_ms - self.world.now, self, partial(self._tick, at_ms))

    def _tick(self, at_ms: int) -> None:
        if at_ms == self._tick_ms:  # else one that is due sooner was planned meanwhile
            self._tick_ms = None
            self.perform(self.node.tick(self.now_ms))
