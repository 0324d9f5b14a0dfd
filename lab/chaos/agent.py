"""One agent of a simulated fleet: a real node over a real store, whose ports are of virtual time
(``lab.chaos.ports``)."""

from __future__ import annotations

import random
import uuid
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

import overlay as ring
from agents.codec import Message
from agents.committing.making import Functions
from agents.disk.programstore import checkpoints
from agents.disk.store import StoreError
from agents.loop import Loop
from agents.node.beginning import NodeSettings, Restored, overlay_config, raft_config
from agents.node.node import Node, NodeEffect, NodeEvent
from agents.ports import Ports, Told
from agents.restore import contacts as known_contacts
from agents.restore import restore
from agents.tasks.past import Archived
from agents.traces.spans import Tracing, lateness_of
from elf.errors import ElfBug
from elf.fields import Labels
from elf.job import effects as do
from elf.job import events as was
from elf.job.catalog.membership import CLUSTER_FACT, Identity, StreamSince
from elf.job.group import port as groups
from elf.job.openparts import is_open
from elf.job.program.port import ProgramEvent
from elf.job.rollup.sender import SNAPSHOT_OVERHEAD
from elf.job.worker.stream import StreamWorker
from elf.security.certificates import Signed
from elf.wire.clients import Stats, WindowResult
from lab.chaos.disk import SimStore
from lab.chaos.engine import STREAM, with_trees
from lab.chaos.files import FileLog
from lab.chaos.filetask import FileTask
from lab.chaos.joining import renewed
from lab.chaos.outside import TARGET
from lab.chaos.past import SLICE_ROWS, PastArchive
from lab.chaos.ports import PyFunctions, SimClock, SimMaking, SimTasks, SimWork
from lab.chaos.programs import InlineJobs
from lab.chaos.task import Log, SimArchive, SimTask
from overlay import raft

if TYPE_CHECKING:
    from lab.chaos.world import World

SUPERVISOR_MS: Final = 1_000
"""An agent that stopped is started again after so long."""
HELD_MAX = 200
"""How many messages and events are kept for a stopped process."""
COPY_AFTER_MS = 1_000
"""Sooner than agents do by default, so that a storm has replicas."""
RENEW_MS = 1_500
"""Between two looks at the tables that a job joins; likewise."""


class SimAgent:
    """One agent: what survives a crash (``store``, ``log``), and what does not (everything else)."""

    labels: Labels | None = None
    """What it says of itself."""
    place = ""
    """Where it stands, as region/rack."""
    by_regions = True
    lends = True
    """Whether trees go by that."""
    copy_after_ms = COPY_AFTER_MS
    past_rows = SLICE_ROWS
    """Archived rows that it reads at a time."""
    renew_ms = RENEW_MS
    tick_ms_min = 5
    forget_ms = 0
    toys = True
    """Its queries have plans, and no texts (``lab.chaos.engine``)."""
    process_us: Callable[[], int] | None = None
    """CPU time is none of a history's: equal seeds are equal."""
    clock_type: type[SimClock] = SimClock
    work_type: type[SimWork] = SimWork
    functions: Functions = PyFunctions()
    jobs_type: type[InlineJobs] = InlineJobs
    tasks_type: type[SimTasks] = SimTasks

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
        self.archives: dict[str, SimArchive] = defaultdict(SimArchive)
        self.tapped: dict[str, dict[str, int]] = defaultdict(dict)
        """From which row of a stream on jobs in Python are given rows, by uid."""
        self.streams: tuple[str, ...] = (STREAM,)
        self.tasks: dict[str, SimTask] = {}
        self.up = False
        self.life = 0
        self.ended = ""
        self.results: list[WindowResult] = []
        self.paced: dict[str, int] = {}
        """How far apart looks at its streams are asked to be; logs here are told of, not looked at."""
        self.broadcasts: list[tuple[str, str]] = []
        self.skewed: list[tuple[str, int]] = []
        self.unusable: list[do.Unusable] = []
        self.clock_ms = 0
        """How far its clock is ahead."""
        self.slow_ms = 0
        """Its work and messages are delayed by up to this."""
        self.stuck = False
        """Its stream tasks do nothing."""
        self.busy_ms = 0
        """What each piece of work of its stream tasks takes of their time; it is made up."""
        self._spent_us = 0
        self.slow_disk_ms = 0
        """A write is delayed by up to this."""
        self.blind = False
        """It cannot read archives of others."""
        self.stopped = False
        """Its process gets no time (SIGSTOP)."""
        self.stops = 0
        self._held: list[Callable[[], None]] = []
        """What it does when it goes on."""
        self.making: SimMaking | None = None

    def new_store(self) -> SimStore:
        return SimStore(self.world.ledger, self.index)

    @property
    def log(self) -> Log:
        return self.logs[STREAM]

    @property
    def worker(self) -> StreamWorker:
        return self.tasks[STREAM].worker

    @property
    def now_ms(self) -> int:
        """What its clock shows."""
        return self.world.now + self.clock_ms

    def spent_us(self) -> int:
        """The time that its stream tasks have taken, as they ask for it before and after a piece of work."""
        self._spent_us += 1000 * self.busy_ms
        return self._spent_us

    def archive_for_others(self, stream: str) -> Archived:
        """What it has shipped, which it need not be up for."""
        archives = self.world.archives
        if archives is None:
            return PastArchive(self.logs[stream], lambda: len(self.logs[stream].rows))
        return archives.shipped_of(self, stream)

    # -- life ------------------------------------------------------------------------------------------------

    @property
    def belongs(self) -> bool:
        """Whether it has been in the cluster, or bootstraps it: then it may begin the ring alone."""
        return self.life > 0 and (self.index == 0 or self.store.get(CLUSTER_FACT) is not None)

    def start(self, contacts: Sequence[str]) -> None:
        world = self.world
        self.up, self.life = True, self.life + 1
        if self.making is not None:
            self.making.versions.close()
        self.clock, self.work = self.clock_type(self), self.work_type(self)
        self.jobs = self.jobs_type(self.from_program, self.beside)
        incarnation = self.store.begin_incarnation(world.now // 1_000)
        me = Identity(
            self.agent_id,
            f"a{self.index}",
            incarnation,
            self.address,
            self.labels,
            self.place * self.by_regions,
            self.lends,
        )
        rng = random.Random(world.rng.random())
        self.checked = 0
        self.tasks = {stream: self._task(stream) for stream in self.streams}
        workers = {stream: task.worker for stream, task in self.tasks.items()}
        restored = restore(self.store, workers, checkpoints(self.store))
        self.node = self._node(me, rng, restored)
        self.making = SimMaking(me, self.store, self.functions, self, lambda: 1_000 * self.now_ms)
        ports = Ports(
            self.clock,
            self.work,
            self,
            self.tasks_type(self),
            self.jobs,
            world.outside.deliveries(me.address),
            process=self,
            reports=self,
            seen=Tracing(
                me.name, self.node.log.flow, partial(lateness_of, workers), lambda: 1_000 * self.now_ms
            ),
        )
        self.loop = Loop(
            self.node,
            self.store,
            self.making,
            ports,
            tick_ms_min=self.tick_ms_min,
            forget_ms=self.forget_ms,
            records_max=1,
        )
        self.loop.start([*contacts, *known_contacts(self.store, restored)])
        for task in self.tasks.values():
            world.after(world.rng.randrange(1, 100), self, task.read)

    def _node(self, me: Identity, rng: random.Random, restored: Restored) -> Node:
        world, peer = self.world, ring.Peer(me.address, me.incarnation)
        config = replace(world.ring, refresh_at_once=world.root_settings.groups_at_once)
        node = Node(
            me,
            [StreamSince(stream, -(1 << 62)) for stream in self.streams],
            ring.Overlay(peer, overlay_config(restored, me, config, world.detect), rng, self.place),
            raft.Groups(peer, raft_config(world.detect), rng, restored.groups),
            NodeSettings(
                root=world.root_settings,
                retained_bytes_max=world.retained_bytes_max,
                group_members=world.group_members,
                copy_after_ms=self.copy_after_ms,
                eager=world.worker_settings.copies_ms is not None,
                border_us=world.border_us,
                renew_ms=self.renew_ms,
            ),
            restored,
            new_cluster_uid=f"of {self.agent_id}",
            process_us=self.process_us,
        )
        if self.toys:
            node.clients.statements.scaling.with_trees = with_trees
            node.clients.statements.joining.renewing = renewed
        return node

    def is_head(self) -> bool:
        """Whether its parent in the tree of some flow is of another region."""
        overlay = self.node.overlay
        parents = (overlay.parent(flow.topic) for flow in self.node.log.flows())
        return any(parent is not None and overlay.regions.crosses(parent) for parent in parents)

    def _task(self, stream: str) -> SimTask:
        return (FileTask if isinstance(self.logs[stream], FileLog) else self.world.task)(self, stream)

    def groups(self) -> tuple[bytes, ...]:
        """The Raft groups in which it has a voter slot."""
        return self.node.catalog.desk.groups.held()

    def crash(self) -> None:
        self.up = self.stopped = False
        self._held.clear()
        self.life += 1
        for task in self.tasks.values():
            task.close()

    def stop(self) -> None:
        """As by SIGSTOP: nothing happens until ``go_on``, and then all that was due happens at once."""
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
        """Whether it is stopped, and there is no more room for what others send to it."""
        return self.stopped and len(self._held) >= HELD_MAX

    @property
    def well(self) -> bool:
        """Whether nothing keeps it from reading its files, and from writing a checkpoint of what it has
        read."""
        ails = self.stopped or self.stuck or self.slow_ms or self.slow_disk_ms
        return self.up and not ails and self.node.ready and not self.node.leaving

    def guard(self, action: Callable[[], None]) -> None:
        """An action of the agent, or an event for it; when its store refuses, it stops and is started again
        later."""
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
        rows = [row for row in self.store.snapshots(flow) if not is_open(row.part)]
        return sum(len(row.counters) + len(row.payload) + SNAPSHOT_OVERHEAD for row in rows)

    # -- the loop of its node --------------------------------------------------------------------------------

    def handle(self, event: NodeEvent) -> None:
        self.loop.handle(event)

    def perform(self, effects: Sequence[NodeEffect]) -> None:
        self.loop.perform(effects)

    def send(self, to: str, message: Message) -> None:
        self.world.send(self, to, message)

    def known(self, signed: Signed) -> None:
        """Simulated agents admit everybody."""

    def beside(self, call: Callable[[], None]) -> None:
        """A job in Python is called, in its own process."""
        call()

    def from_program(self, event: ProgramEvent) -> None:
        """A job in Python has done something."""
        self.world.after(1, self, partial(self.handle, event))

    # -- its process, as the loop sees it --------------------------------------------------------------------

    def goes_on(self, effect: object) -> bool:
        """Whether the agent still runs; it may die before any effect."""
        if self.up:
            self.world.point(self)
        works = (effect.work, *effect.windows) if isinstance(effect, groups.Draft) else (effect,)
        for work in works:
            if self.up and self.world.ledger is not None and isinstance(work, do.CommitWindows):
                self.world.ledger.windows.means(work)
        return self.up

    def settled(self) -> None:
        if self.up:
            self.world.check_log(self)
            if self.world.checks():
                self.node.check()

    def end(self, effect: do.Stop) -> None:
        self.crash()
        if effect.status and self.world.supervised:
            self.world.at(self.world.now + SUPERVISOR_MS, partial(self.world.restart, self))
        else:
            self.ended = effect.text

    def stats(self) -> Stats:
        """What a node is asked for before a job in Python begins; a simulated one measures nothing."""
        node = self.node
        state = "live" if node.membership.joined() else "joining"
        jobs, flows = len(node.log.jobs()), len(node.log.flows())
        outputs = (TARGET,)
        return Stats(
            node.me.incarnation, 1_000 * self.world.now, state, (), jobs, flows, 0, 0, 0, 0, outputs=outputs
        )

    # -- what people would hear ------------------------------------------------------------------------------

    def told(self, effect: Told) -> None:
        match effect:
            case do.Unusable():
                self.unusable.append(effect)
            case do.Skewed():
                self.skewed.append((effect.address, effect.skew_ms))
            case do.Noticed():
                self.broadcasts.append((effect.job, effect.text))
            case do.Faulted():
                said = effect.about or "a request"
                raise ElfBug(f"{said} has failed: {effect.error!r}") from effect.error
            case do.Skipped():
                raise ElfBug(f"{effect.what} is skipped: {effect.why}")

    def panes_committed(self) -> None: ...
    def windows_committed(self) -> None: ...
    def delivered(self, event: was.Delivered) -> None: ...
    def function_failed(self, kind: str, reason: str, job: str = "") -> None: ...

    def not_made(
        self, job: str, error: Exception, *, early: bool = False, within: tuple[int, int] | None = None
    ) -> None:
        raise error
