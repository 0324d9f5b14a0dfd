"""A fleet of real nodes on virtual time: a lossy network, crashes that keep only what the store has, an
oracle.

Everything of the protocol is real (nodes, overlay, workers, stores, merges, commits); lines are ``"<ts
µs>,<key>"`` and are mapped by a few lines of Python instead of DuckDB.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
import pyarrow as pa

import overlay as ring
from agents import commits
from agents.codec import decode, encode
from agents.node import FOUNDER_FACT, PEERS_FACT, Node, NodeSettings, Restored, overlay_config
from agents.store import SnapshotName, SnapshotRow, Store
from elf.aggregates import State
from elf.batch import decode as table_of
from elf.job import effects as do
from elf.job import events as was
from elf.job import messages as say
from elf.job.commands import Command, Feed, Idle
from elf.job.contributions import Piece
from elf.job.cut import StreamCut
from elf.job.homes import StoredJob
from elf.job.membership import Identity, StreamSince
from elf.job.ports import Wanted
from elf.job.root import RootSettings
from elf.job.spec import END_OF_TIME, START_OF_TIME, JobSpec, app_id
from elf.job.streamlog import decode_entry, encode_entry
from elf.job.uplink import SNAPSHOT_OVERHEAD
from elf.job.worker import StreamWorker, WorkerSettings
from elf.ql.plan import Fragment, Plan, Window
from elf.schema import Column

STREAM = "clicks"
SECOND = 1_000_000


@dataclass(frozen=True)
class Extracted:
    table: pa.Table
    accepted: np.ndarray
    rejected: np.ndarray
    uncast: int = 0
    wanted: np.ndarray | None = None


class PyExtractor:
    def extract(self, lines: pa.StringArray) -> Extracted:
        rows = [line.split(",") for line in lines.to_pylist()]
        table = pa.table(
            {"_ts": pa.array([int(r[0]) for r in rows], pa.int64()), "key": [r[1] for r in rows]}
        )
        return Extracted(table, np.arange(len(rows)), np.empty(0, np.int64))

    def close(self) -> None: ...


class PyMapper:
    def run(self, rows: pa.Table) -> pa.Table:
        counted = Counter(zip(rows["_pane"].to_pylist(), rows["key"].to_pylist(), strict=True))
        panes, keys = [p for p, _ in counted], [k for _, k in counted]
        return pa.table(
            {
                "_pane": pa.array(panes, pa.int64()),
                "k0": pa.array(keys, pa.string()),
                "s0": list(counted.values()),
            }
        )

    def close(self) -> None: ...


class PyEngine:
    def extractor(self, wanted: Wanted) -> PyExtractor:
        return PyExtractor()

    def mapper(self, fragment: Fragment) -> PyMapper:
        return PyMapper()


class PyFinisher:
    def run(self, groups: pa.Table) -> pa.Table:
        return groups.sort_by([("window_start", "ascending"), ("k0", "ascending")])

    def close(self) -> None: ...


@dataclass(frozen=True)
class Source:
    id: str


@dataclass(frozen=True, eq=False)
class Chunk:
    source: Source
    start: int
    end: int
    lines: pa.StringArray
    offsets: np.ndarray
    rejects: tuple[object, ...] = ()


def plan(size_s: int = 2, slide_s: int | None = None, lateness_us: int | None = 500_000) -> Plan:
    slide_s = slide_s or size_s
    pane = int(np.gcd(size_s, slide_s)) * SECOND
    fragment = Fragment(
        STREAM,
        (Column("key", "text"),),
        "count by key",
        ("k0",),
        (State("s0", "sum", True),),
        pane,
        lateness_us,
    )
    return Plan("SELECT …", fragment, Window(size_s * SECOND, slide_s * SECOND), "", ("key", "count"), "")


@dataclass
class Log:
    """A growing log: (event time, key) a row; the position of a row is its index."""

    rows: list[tuple[int, str]] = field(default_factory=list)


class SimAgent:
    """One agent: what survives a crash (``store``, ``log``), and what does not (everything else)."""

    def __init__(self, world: World, index: int) -> None:
        self.world = world
        self.index = index
        self.address = f"10.0.0.{index}:7100"
        self.store = Store(":memory:")
        self.agent_id = self.store.agent_id()
        self.log = Log()
        self.up = False
        self.life = 0
        self.has_stream = True
        self.ended = ""
        self.results: list[say.WindowResult] = []

    # -- life ------------------------------------------------------------------------------------------------

    def start(self, contacts: Sequence[str]) -> None:
        world = self.world
        self.up, self.life = True, self.life + 1
        self.kept: dict[str, commits.Kept] = {}
        incarnation = self.store.begin_incarnation()
        me = Identity(self.agent_id, f"a{self.index}", incarnation, self.address)
        peer = ring.Peer(self.address, incarnation)
        rng = random.Random(world.rng.random())
        settings = WorkerSettings(idle_ms=1_500, future_us=None, lateness_us=500_000, cut_ms=1_300)
        stored = self.store.load_cut(STREAM)
        cut = msgspec.msgpack.decode(stored, type=StreamCut) if stored else None
        self.worker = StreamWorker(STREAM, settings, PyEngine(), cut)
        applied = [dict(f.applied).get("log", 0) for f in cut.flows] if cut else []
        ends = [s.end for s in cut.sources] if cut else []
        self.position = min(applied or ends or [0])
        self.lane: list[Command] = []
        self.lane_busy = False
        streams = [StreamSince(STREAM, -(1 << 62))] if self.has_stream else []
        node_settings = NodeSettings(root=world.root_settings, retained_bytes_max=world.retained_bytes_max)
        restored = self._restored(cut)
        self.node = Node(
            me,
            streams,
            ring.Overlay(peer, overlay_config(restored, me), rng),
            node_settings,
            restored,
            new_cluster_uid="sim",
        )
        known = (self.store.get(PEERS_FACT) or b"").decode().split()
        self.perform(self.node.start([*contacts, *known], world.now))
        world.after(world.rng.randrange(1, 100), self, self._read)
        self._plan_tick()

    def _restored(self, cut: StreamCut | None) -> Restored:
        founder, uid = None, ""
        fact = self.store.get(FOUNDER_FACT)
        if fact:
            founder, uid = fact.decode().split("\n")
        entries = tuple(decode_entry(entry) for _, entry in self.store.load_log())
        jobs = []
        for row in self.store.load_jobs():
            spec, first = msgspec.msgpack.decode(row.record, type=tuple[JobSpec, int | None])
            segments = tuple(
                (c.start, c.end, c.revision, c.members) for c in self.store.committed(spec.flows[0].uid)
            )
            windows = self.store.windows(spec.uid, -(1 << 62), 1 << 62)
            jobs.append(
                StoredJob(spec, row.state, first, segments, max((w.last_end for w in windows), default=None))
            )
        flows = [f.flow.uid for f in cut.flows] if cut else []
        retained = tuple(
            (s.flow, s.start, s.end, len(s.tally) + len(s.payload) + SNAPSHOT_OVERHEAD)
            for flow in flows
            for s in self.store.snapshots(flow)
        )
        suspended = frozenset(f.flow.uid for f in cut.flows if f.suspended) if cut else frozenset()
        return Restored(founder, uid, entries, tuple(jobs), retained, suspended)

    def crash(self) -> None:
        self.up = False
        self.life += 1

    # -- effects ---------------------------------------------------------------------------------------------

    def handle(self, event: object) -> None:
        self.perform(self.node.handle(event, self.world.now))  # type: ignore[arg-type]

    def perform(self, effects: Sequence[object]) -> None:
        world = self.world
        for effect in effects:
            match effect:
                case do.Send() | ring.Send():
                    world.send(self, effect.to, effect.message)
                case do.Work():
                    self._lane(effect.command)
                case do.Combine():
                    world.later(self, lambda e=effect: self.handle(commits.combine(e)))
                case do.CommitPanes():
                    world.later(self, lambda e=effect: self.handle(commits.commit_panes(e, self.store)))
                case do.CommitWindows():
                    world.later(self, lambda e=effect: self._windows(e))
                case do.SaveLog():
                    self.store.append_log([(e.seq, encode_entry(e)) for e in effect.entries])
                case do.SaveJob():
                    record = msgspec.msgpack.encode((effect.spec, effect.first_pane))
                    self.store.save_job(effect.spec.uid, record, effect.state)
                case do.SaveFact():
                    self.store.put(effect.key, effect.value)
                case do.Fetch():
                    world.later(self, lambda e=effect: self._fetch(e))
                case do.Prune():
                    self.store.prune_panes(effect.flow, effect.below)
                    self.store.prune_windows(effect.job, effect.windows_us)
                case do.Forget():
                    self._forget(effect)
                case do.ReadWindows():
                    rows = self.store.windows(effect.spec.uid, effect.after_us or 0, 1 << 62)
                    found = tuple(commits.window_result(effect.spec.name, row, self.address) for row in rows)
                    world.later(self, lambda e=effect, f=found: self.handle(was.WindowsRead(e.request, f)))
                case do.Stop():
                    self.ended = effect.text
                    self.crash()
                    return
                case _:
                    raise TypeError(repr(effect))
        if world.checking:
            self.node.check()

    def _windows(self, effect: do.CommitWindows) -> None:
        kept = self.kept.setdefault(effect.spec.uid, commits.Kept())
        done = commits.commit_windows(effect, self.store, PyFinisher(), self.address, kept)
        self.world.crash_point(self)
        if self.up:
            self.handle(done)

    def _fetch(self, effect: do.Fetch) -> None:
        rows = self.store.overlapping(effect.flow.uid, effect.start, effect.end)
        self.handle(
            was.Fetched(effect.flow, tuple(Piece(r.start, r.end, 0, r.tally, r.payload) for r in rows))
        )

    def _forget(self, effect: do.Forget) -> None:
        if effect.whole_flow:
            self.store.delete_flow(effect.flow)
        else:
            self.store.delete_snapshots(
                effect.flow, [SnapshotName(effect.flow, a, b) for a, b in effect.names]
            )

    # -- the lane --------------------------------------------------------------------------------------------

    def _lane(self, command: Command) -> None:
        self.lane.append(command)
        if not self.lane_busy:
            self.lane_busy = True
            self.world.later(self, self._work)

    def _work(self) -> None:
        command = self.lane.pop(0)
        outcome = self.worker.handle(command)
        self.world.crash_point(self)
        if not self.up:
            return
        if outcome.cut is not None:
            rows = [SnapshotRow(s.flow, s.start, s.end, 0, s.tally, s.payload) for s in outcome.sealed]
            self.store.save_cut(STREAM, msgspec.msgpack.encode(outcome.cut), rows)
        self.world.crash_point(self)
        if not self.up:
            return
        self.handle(was.Worked(STREAM, type(command).__name__, outcome))
        self.lane_busy = bool(self.lane)
        if self.lane:
            self.world.later(self, self._work)

    def _read(self) -> None:
        rows = self.log.rows[self.position : self.position + 50]
        if len(self.lane) > 3 or self.node.leaving or not self.has_stream:
            pass
        elif rows:
            start, self.position = self.position, self.position + len(rows)
            lines = pa.array([f"{ts},{key}" for ts, key in rows], pa.string())
            offsets = np.arange(start, self.position, dtype=np.int64)
            self._lane(Feed(Chunk(Source("log"), start, self.position, lines, offsets), self.world.now))
        elif not self.lane:
            self._lane(Idle(self.world.now))
        self.world.after(100, self, self._read)

    def _plan_tick(self) -> None:
        at = max(self.world.now + 5, self.node.deadline(self.world.now))
        self.world.after(at - self.world.now, self, self._tick)

    def _tick(self) -> None:
        self.perform(self.node.tick(self.world.now))
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
        self.crash_share = 0.0
        self.root_settings = RootSettings()
        self.retained_bytes_max = 256 << 20
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._n = 0
        self.agents = [SimAgent(self, i) for i in range(agents)]
        self.by_address = {agent.address: agent for agent in self.agents}
        self.client_inbox: list[object] = []
        self.isolated: set[str] = set()
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
        else:
            agent.handle(ring.Received(decoded.message))  # type: ignore[arg-type]

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
        members = sum(a.has_stream for a in self.agents)
        self.run_until(lambda: all(len(a.node.log.members(STREAM)) == members for a in self.agents))

    def create(self, through: int, query: Plan, name: str = "job") -> JobSpec:
        """Submit a planned job as an agent's statement would, and wait for it to be active."""
        spec = JobSpec(name, "me", 0, query, ())
        agent = self.agents[through]
        request = say.CreateJob(id=999_999, origin=agent.address, spec=spec, replace=False)
        from agents.codec import pack

        agent.perform(
            agent.node._settle(
                agent.node.overlay.route(app_id(name, "me"), pack(request), self.now), self.now
            )
        )
        self.run_until(
            lambda: any(m.state == "active" for a in self.agents if a.up for m in a.node.homes.jobs())
        )
        return next(m.spec for a in self.agents if a.up for m in a.node.homes.jobs())

    def home(self, spec: JobSpec) -> SimAgent:
        return self.by_address[spec.flows[0].home]

    def write(self, agent: SimAgent, until_ms: int, rate_ms: int = 200) -> None:
        """Rows at random moments, with a little disorder below the lateness."""

        def one() -> None:
            if agent.ended:
                return
            disorder = self.rng.randrange(0, 300)
            agent.log.rows.append(((self.now - disorder) * 1000, self.rng.choice("abcdef")))
            if self.now < until_ms:
                self.at(self.now + 1 + int(self.rng.expovariate(1 / rate_ms)), one)

        self.at(self.now + self.rng.randrange(0, rate_ms), one)

    def committed(self, spec: JobSpec) -> dict[int, tuple[int, dict[str, int], dict[str, object]]]:
        """Window start (µs) → (revision, counts by key, status) of its highest committed revision."""
        found: dict[int, tuple[int, dict[str, int], dict[str, object]]] = {}
        for row in self.home(spec).store.windows(spec.uid, -(1 << 62), 1 << 62):
            rows = table_of(row.rows).to_pylist()
            for status in table_of(row.status).to_pylist():
                start = (
                    int(status["window_start"].timestamp() * 1e6) if False else _us(status["window_start"])
                )
                counts = {r["k0"]: r["s0"] for r in rows if _us(r["window_start"]) == start}
                if start not in found or found[start][0] <= status["revision"]:
                    found[start] = (status["revision"], counts, status)
        return found

    def truth(self, spec: JobSpec, start: int, missing: Sequence[str] = ()) -> dict[str, int]:
        """A count over the logs of all agents that are not named as missing."""
        window = spec.plan.window
        assert window is not None
        logs = [a.log for a in self.agents if f"a{a.index}" not in missing]
        return dict(
            Counter(key for log in logs for ts, key in log.rows if start <= ts < start + window.size_us)
        )

    def answers_for(self, agent: SimAgent, spec: JobSpec, start: int) -> bool:
        """Whether an agent had the flow in time for the window that starts there."""
        live_from = next(s.live_from for s in agent.worker._flows.values() if s.flow.uid == spec.flows[0].uid)
        return live_from * spec.plan.fragment.pane_us <= start


def _us(moment: object) -> int:
    return int(np.datetime64(moment, "us").astype(np.int64))  # type: ignore[call-overload]


EVERYTHING = (START_OF_TIME, END_OF_TIME)
