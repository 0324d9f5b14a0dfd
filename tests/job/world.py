"""A fleet of real nodes on virtual time: a lossy network, crashes that keep only what the store has, an
oracle.

Everything of the protocol is real (nodes, overlay, workers, stores, merges, commits); lines are ``"<ts
µs>,<key>"`` and are mapped by a few lines of Python instead of DuckDB.
"""

from __future__ import annotations

import heapq
import random
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

import numpy as np

import overlay as ring
from agents import commits, drafts, homestore
from agents.beginning import HOUSED_FACT, PEERS_FACT, REPLICA, NodeSettings, Restored, overlay_config
from agents.codec import decode, encode, pack
from agents.early import early_windows
from agents.groups import Persisted
from agents.node import Node
from agents.restore import stored_flows, stored_jobs
from agents.store import SnapshotName, Store
from elf.batch import decode as table_of
from elf.job import effects as do
from elf.job import events as was
from elf.job import homeport as home
from elf.job import messages as say
from elf.job.contributions import Piece
from elf.job.master import Master
from elf.job.membership import CLUSTER_FACT, FOUNDER_FACT, Identity, StreamSince, read_cluster
from elf.job.programport import ProgramEffect
from elf.job.root import RootSettings
from elf.job.spec import END_OF_TIME, START_OF_TIME, JobSpec, app_id
from elf.job.streamlog import decode_entry, encode_entry
from elf.job.uplink import SNAPSHOT_OVERHEAD
from elf.job.worker import StreamWorker, WorkerSettings
from elf.ql.plan import Plan
from elf.windows import Sliding
from overlay import replica
from tests.job.inline import InlineJobs
from tests.job.pyengine import STREAM, PyFinisher
from tests.job.simlane import Log, SimLane

HOME_MEMBERS = 5
"""Of a home's group, at most."""


class SimAgent:
    """One agent: what survives a crash (``store``, ``log``), and what does not (everything else)."""

    def __init__(self, world: World, index: int) -> None:
        self.world = world
        self.index = index
        self.address = f"10.0.0.{index}:7100"
        self.store = Store(":memory:")
        self.agent_id = str(uuid.UUID(int=world.rng.getrandbits(128), version=4))
        self.store.put("agent_id", self.agent_id.encode())
        self.logs: dict[str, Log] = defaultdict(Log)
        self.streams: tuple[str, ...] = (STREAM,)
        self.lanes: dict[str, SimLane] = {}
        self.up = False
        self.life = 0
        self.ended = ""
        self.results: list[say.WindowResult] = []
        self.notices: list[tuple[str, str]] = []
        self.skewed: list[tuple[str, int]] = []
        self.clock_ms = 0
        """How far its clock is ahead."""

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

    def start(self, contacts: Sequence[str]) -> None:
        world = self.world
        self.up, self.life = True, self.life + 1
        self.disk_ms = world.now
        self.kept: dict[tuple[str, int], commits.Kept] = {}
        self.jobs = InlineJobs(lambda event: world.after(1, self, lambda: self.handle(event)))
        incarnation = self.store.begin_incarnation(world.now // 1_000)
        me = Identity(self.agent_id, f"a{self.index}", incarnation, self.address)
        peer = ring.Peer(self.address, incarnation)
        rng = random.Random(world.rng.random())
        self.checked = 0
        self.lanes = {stream: world.lane(self, stream) for stream in self.streams}
        streams = [StreamSince(stream, -(1 << 62)) for stream in self.streams]
        node_settings = NodeSettings(
            root=world.root_settings,
            retained_bytes_max=world.retained_bytes_max,
            home_members=world.home_members,
        )
        restored = self._restored()
        self.node = Node(
            me,
            streams,
            ring.Overlay(peer, overlay_config(restored, me), rng),
            replica.Groups(peer, REPLICA, rng, restored.groups),
            node_settings,
            restored,
            new_cluster_uid=f"of {self.agent_id}",
        )
        known = (self.store.get(PEERS_FACT) or b"").decode().split()
        known += restored.cluster.keepers.addresses if restored.cluster else ()
        self.perform(self.node.start([*contacts, *known], self.now_ms))
        for lane in self.lanes.values():
            world.after(world.rng.randrange(1, 100), self, lane.read)
        self._plan_tick()

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
            cluster, founder, entries, groups, jobs, panes, installed, retained, suspended, housed
        )

    def crash(self) -> None:
        self.up = False
        self.life += 1

    # -- effects ---------------------------------------------------------------------------------------------

    def handle(self, event: object) -> None:
        self.perform(self.node.handle(event, self.now_ms))  # type: ignore[arg-type]

    def perform(self, effects: Sequence[object]) -> None:
        world = self.world
        for effect in effects:
            match effect:
                case do.Send() | ring.Send() | replica.Send():
                    world.send(self, effect.to, effect.message)
                case do.Work():
                    self.lanes[effect.stream].give(effect.command)
                case do.Combine():
                    world.later(self, lambda e=effect: self.handle(commits.combine(e)))
                case do.CommitPanes():
                    world.later(self, lambda e=effect: self.handle(commits.commit_panes(e, self.store)))
                case do.CommitWindows():
                    world.later(self, lambda e=effect: self._windows(e))
                case do.MakeEarly():
                    world.later(self, lambda e=effect: self._early(e))
                case do.SaveLog():
                    self.store.append_log([(e.seq, encode_entry(e)) for e in effect.entries])
                case do.SaveJob():
                    record = homestore.job_record(effect)
                    self.store.save_job(effect.spec.uid, record, effect.state)
                case home.Draft():
                    world.later(self, lambda e=effect: self._draft(e))
                case _ if isinstance(effect, home.HomeEffect):
                    self._in_order(lambda e=effect: self._housed(e))
                case replica.Persist():
                    world.later(self, lambda e=effect: self._persist(e))
                case do.SaveFact():
                    self.store.put(effect.key, effect.value)
                case do.Fetch():
                    world.later(self, lambda e=effect: self._fetch(e))
                case do.StorePanes():
                    world.later(self, lambda e=effect: self._store_panes(e))
                case do.ReadCommits():
                    world.later(self, lambda e=effect: self.handle(commits.read_commits(e, self.store)))
                case do.SaveFlow():
                    self.store.save_flow(effect.flow, effect.first_pane)
                case do.PrunePanes():
                    self.store.prune_panes(effect.flow, effect.below)
                case do.PruneWindows():
                    self.store.prune_windows(effect.job, effect.below_us)
                case do.Forget():
                    self._forget(effect)
                case do.ReadWindows():
                    rows = self.store.windows(effect.spec.uid, effect.after_us or 0, 1 << 62)
                    found = tuple(commits.window_result(effect.spec.name, row, self.address) for row in rows)
                    world.later(self, lambda e=effect, f=found: self.handle(was.WindowsRead(e.request, f)))
                case do.Skewed():
                    self.skewed.append((effect.address, effect.skew_ms))
                case do.Noticed():
                    self.notices.append((effect.job, effect.text))
                case do.Stop():
                    self.ended = effect.text
                    self.crash()
                    return
                case _ if isinstance(effect, ProgramEffect):
                    self.jobs.perform(effect)
                case _:
                    raise TypeError(repr(effect))
        world.check_log(self)
        if world.checking:
            self.node.check()

    def _persist(self, effect: replica.Persist) -> None:
        self.world.crash_point(self)
        if self.up:
            self.store.persist(effect.writes)
        self.world.crash_point(self)
        if self.up:
            self.handle(Persisted())

    def _in_order(self, action: Callable[[], None]) -> None:
        """What the disk's thread does, one after the other."""
        world = self.world
        self.disk_ms = max(self.disk_ms, world.now) + world.rng.randrange(1, 5)
        world.after(self.disk_ms - world.now, self, action)

    def _housed(self, effect: home.HomeEffect) -> None:
        event = homestore.perform(self.store, effect)  # type: ignore[arg-type]
        self.world.crash_point(self)
        if self.up and event is not None:
            self.handle(event)

    def _draft(self, effect: home.Draft) -> None:
        work, finisher, kept = effect.work, None, None
        if isinstance(work, do.CommitWindows):
            finisher = PyFinisher(work.spec.plan.final_sql)
            kept = self.kept.setdefault((work.spec.uid, work.spec.version), commits.Kept())
        self.handle(drafts.draft(effect, self.store, finisher, self.address, kept))

    def _windows(self, effect: do.CommitWindows) -> None:
        finisher = PyFinisher(effect.spec.plan.final_sql)
        kept = self.kept.setdefault((effect.spec.uid, effect.spec.version), commits.Kept())
        done = commits.commit_windows(effect, self.store, finisher, self.address, kept)
        self.world.crash_point(self)
        if self.up:
            self.handle(done)

    def _early(self, effect: do.MakeEarly) -> None:
        finisher = PyFinisher(effect.committed.spec.plan.final_sql)
        self.handle(early_windows(effect, self.store, finisher, self.address))

    def _store_panes(self, effect: do.StorePanes) -> None:
        done = commits.store_panes(effect, self.store)
        self.world.crash_point(self)
        if self.up:
            self.handle(done)

    def _fetch(self, effect: do.Fetch) -> None:
        rows = self.store.overlapping(effect.flow.uid, effect.start, effect.end)
        pieces = (Piece(r.start, r.end, 0, r.tally, r.payload) for r in rows if r.part == effect.part)
        self.handle(was.Fetched(effect.flow, tuple(pieces), effect.part))

    def _forget(self, effect: do.Forget) -> None:
        if effect.whole_flow:
            self.store.delete_flow(effect.flow)
        else:
            self.store.delete_snapshots([SnapshotName(effect.flow, *name) for name in effect.names])

    def _plan_tick(self) -> None:
        wait = self.node.deadline(self.now_ms) - self.now_ms
        self.world.after(max(5, wait), self, self._tick)

    def _tick(self) -> None:
        self.perform(self.node.tick(self.now_ms))
        if self.up:
            self._plan_tick()


class World:
    """Virtual time for a fleet. ``loss`` and ``doubles`` are shares of messages; ``now`` is in ms and is also
    event time.
    """

    def __init__(
        self, seed: int, agents: int, *, loss: float = 0.0, doubles: float = 0.0, checking: bool = True
    ) -> None:
        self.rng = random.Random(seed)
        self.now = 1_000_000
        self.loss = loss
        self.doubles = doubles
        self.checking = checking
        self.keys = "abcdef"
        self.crash_share = 0.0
        self.root_settings = RootSettings()
        self.home_members = HOME_MEMBERS
        self.retained_bytes_max = 256 << 20
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._n = 0
        self.worker_settings = WorkerSettings(
            idle_ms=1_500, future_us=None, lateness_us=500_000, cut_ms=1_300
        )
        self.lane: type[SimLane] = SimLane
        self.agents = [SimAgent(self, i) for i in range(agents)]
        self.by_address = {agent.address: agent for agent in self.agents}
        self.client_inbox: list[object] = []
        self.isolated: set[str] = set()
        self.entries: list[say.LogEntry] = []
        """The longest log that any agent ever had."""
        self.unheard: set[str] = set()
        """Agents whose snapshots get lost on the way, though all else of them arrives."""

    def at(self, when: int, action: Callable[[], None]) -> None:
        self._n += 1
        heapq.heappush(self._heap, (when, self._n, action))

    def after(self, delay: int, agent: SimAgent, action: Callable[[], None]) -> None:
        life = agent.life

        def guarded() -> None:
            if agent.up and agent.life == life:
                action()

        self.at(self.now + delay, guarded)

    def later(self, agent: SimAgent, action: Callable[[], None]) -> None:
        """Long work: comes back after a while, unless the agent dies before."""
        self.after(self.rng.randrange(1, 60), agent, action)

    def crash_point(self, agent: SimAgent) -> None:
        if self.crash_share and self.rng.random() < self.crash_share:
            agent.crash()
            self.at(self.now + self.rng.choice([300, 1_500, 6_000, 9_000]), lambda: self.restart(agent))

    def restart(self, agent: SimAgent) -> None:
        if not agent.up:
            agent.start([a.address for a in self.agents if a.up][:2])

    def send(self, agent: SimAgent, to: str, message: object) -> None:
        frames = encode(message, cluster="sim", sender=agent.address)
        if to.startswith("client"):
            self.client_inbox.append(decode(frames, cluster="sim", max_bytes=1 << 30).message)
            return
        if self.rng.random() < self.loss or {agent.address, to} & self.isolated:
            return
        if isinstance(message, say.Slice) and agent.address in self.unheard:
            return
        for _ in range(2 if self.rng.random() < self.doubles else 1):
            slow = self.rng.random() < self.loss
            delay = self.rng.randrange(100, 2_000) if slow else self.rng.randrange(1, 20)
            self.at(self.now + delay, lambda: self._arrive(to, frames))

    def _arrive(self, to: str, frames: list[bytes]) -> None:
        agent = self.by_address.get(to)
        if agent is None or not agent.up:
            return
        decoded = decode(frames, cluster="sim", max_bytes=1 << 30)
        if isinstance(decoded.message, say.Message):
            agent.handle(was.Arrived(decoded.sender, decoded.message))
        elif isinstance(decoded.message, replica.Message):
            agent.handle(replica.Received(decoded.message))
        else:
            agent.handle(ring.Received(decoded.message))  # type: ignore[arg-type]

    def check_log(self, agent: SimAgent) -> None:
        """All logs are prefixes of one another at every moment: a new entry is the one that others have."""
        log = agent.node.log
        for seq in range(agent.checked, log.last):
            (entry,) = log.after(seq, 1)
            if seq == len(self.entries):
                self.entries.append(entry)
            assert self.entries[seq] == entry, (agent.address, seq)
        agent.checked = log.last

    def run(self, ms: int) -> None:
        end = self.now + ms
        while self._heap and self._heap[0][0] <= end:
            self.now, _, action = heapq.heappop(self._heap)
            action()
        self.now = end

    def run_until(self, condition: Callable[[], bool], limit_ms: int = 60_000) -> None:
        end = self.now + limit_ms
        while not condition():
            if self.now >= end:
                raise AssertionError("it did not come to that in time")
            self.run(50)

    # -- what tests do with it -------------------------------------------------------------------------------

    def start_all(self) -> None:
        self.agents[0].start([])
        for agent in self.agents[1:]:
            agent.start([self.agents[0].address])
        self.run_until(lambda: all(a.node.ready for a in self.agents))
        members = Counter(stream for a in self.agents for stream in a.streams)
        self.run_until(
            lambda: all(len(a.node.log.members(s)) == n for a in self.agents for s, n in members.items())
        )

    def create(self, through: int, query: Plan, name: str = "job", roots: tuple[str, ...] = ()) -> JobSpec:
        """Submit a planned job, and wait for it to be active."""
        self.submit(through, query, name, roots=roots)
        return self.active(name)

    def submit(
        self, through: int, query: Plan, name: str, client: str = "", roots: tuple[str, ...] = ()
    ) -> None:
        """Submit a planned job as an agent's statement would; ``client`` gets the answer."""
        spec = JobSpec(name, "me", 0, query, (), roots=roots)
        agent = self.agents[through]
        request = say.CreateJob(id=999_999, origin=client or agent.address, spec=spec, replace=False)
        routed = agent.node.overlay.route(app_id(name, "me"), pack(request), self.now)
        agent.perform(agent.node._settle(routed, self.now))

    def active(self, name: str) -> JobSpec:
        self.run_until(lambda: self._master(name) is not None)
        master = self._master(name)
        assert master is not None
        return master.spec

    def _master(self, name: str) -> Master | None:
        masters = (m for a in self.agents if a.up for m in a.node.homes.jobs())
        return next((m for m in masters if m.spec.name == name and m.state == "active"), None)

    def drop(self, spec: JobSpec) -> None:
        """Drop a job as an agent's statement would."""
        home = self.home(spec)
        home.handle(was.Arrived(home.address, say.DropJob(id=1, origin=home.address, uid=spec.uid)))

    def home(self, spec: JobSpec) -> SimAgent:
        """Where a job's home is, as the longest log of those that run says."""
        logs = [agent.node.log for agent in self.agents if agent.up]
        known = max(logs, key=lambda log: log.last).ever(spec.uid) if logs else None
        return self.by_address[(known or spec).home]

    def write(self, agent: SimAgent, until_ms: int, rate_ms: int = 200) -> None:
        """Rows at random moments in all its streams, with a little disorder below the lateness."""
        for stream in agent.streams:
            self._write(agent, agent.logs[stream], until_ms, rate_ms)

    def _write(self, agent: SimAgent, log: Log, until_ms: int, rate_ms: int) -> None:
        def one() -> None:
            if agent.ended:
                return
            disorder = self.rng.randrange(0, 300)
            log.rows.append(((self.now - disorder) * 1000, self.rng.choice(self.keys)))
            if self.now < until_ms:
                self.at(self.now + 1 + int(self.rng.expovariate(1 / rate_ms)), one)

        self.at(self.now + self.rng.randrange(0, rate_ms), one)

    def committed(self, spec: JobSpec) -> dict[int, tuple[int, dict[str, int], dict[str, object]]]:
        """Window start (µs) → (revision, counts by key, status) of its highest committed revision."""
        found: dict[int, tuple[int, dict[str, int], dict[str, object]]] = {}
        for row in self.home(spec).store.windows(spec.uid, -(1 << 62), 1 << 62):
            rows = table_of(row.rows).to_pylist()
            for status in table_of(row.status).to_pylist():
                start = _us(status["window_start"])
                counts = {r["k0"]: r["s0"] for r in rows if _us(r["window_start"]) == start}
                if start not in found or found[start][0] <= status["revision"]:
                    found[start] = (status["revision"], counts, status)
        return found

    def truth(self, spec: JobSpec, start: int, missing: Sequence[str] = ()) -> dict[str, int]:
        """A count over the logs of all agents that are not named as missing."""
        (window,) = spec.plan.windows
        assert isinstance(window, Sliding)
        agents = [a for a in self.agents if f"a{a.index}" not in missing]
        logs = [a.logs[stream] for a in agents for stream in spec.plan.streams if stream in a.streams]
        counts = Counter(key for log in logs for ts, key in log.rows if start <= ts < start + window.size_us)
        return {key: n for key, n in counts.items() if n >= int(spec.plan.final_sql or 0)}

    def answers_for(self, agent: SimAgent, spec: JobSpec, start: int) -> bool:
        """Whether an agent had the job's flows in time for the window that starts there."""
        uids = {flow.uid for flow in spec.flows}
        states = [s for lane in agent.lanes.values() for s in lane.worker._flows.values()]
        pane_us = spec.plan.fragment.pane_us
        return all(s.live_from * pane_us <= start for s in states if s.flow.uid in uids)


def _us(moment: object) -> int:
    return int(np.datetime64(moment, "us").astype(np.int64))  # type: ignore[call-overload]


EVERYTHING = (START_OF_TIME, END_OF_TIME)
