"""A fleet of real nodes on virtual time: a lossy network, and crashes after which only the stores remain.

The whole protocol is real (nodes, overlay, workers, stores, merges, commits); lines are ``"<ts µs>,<key>"``
and are mapped by a few lines of Python instead of DuckDB.
"""

from __future__ import annotations

import hashlib
import heapq
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from agents.codec import Message, decode, encode, pack
from agents.loop import arrived
from agents.node.beginning import Detect
from elf.batch import decode as table_of
from elf.job import events as was
from elf.job.catalog.compaction import tombstone
from elf.job.catalog.log import CatalogLog
from elf.job.group.master import Master
from elf.job.group.records import group_key
from elf.job.messages.groups import CreateJob, DropJob
from elf.job.messages.log import LogEntry
from elf.job.messages.rollup import Slice
from elf.job.rollup.decide import RootSettings
from elf.job.spec import JobSpec, app_id, range_topic, topics_of
from elf.job.worker.stream import WorkerSettings
from elf.ql.plan import Plan
from elf.windows import Sliding
from elf.wire.clients import WindowResult
from lab.chaos.agent import SimAgent
from lab.chaos.archives import Archives
from lab.chaos.books import us_of
from lab.chaos.engine import GONE, spec_of
from lab.chaos.ledger import Ledger
from lab.chaos.outside import Outside
from lab.chaos.task import Log, SimTask
from overlay.config import OverlayConfig
from overlay.ids import closeness, node_id, to_int
from overlay.regions import region_of

BEGIN_MS = 1_000_000
"""When time begins."""
CLOCKS_MS = 60_000
"""No clock is so slow, and no row so old, that it has a time more than this before the beginning."""
READER_LOSS = 0.5
"""Share of the windows that get lost on their way to the reader, while messages do."""
SPARED_OF = 3
"""With so many members a group can lose one for good."""
GROUP_MEMBERS = 5
"""Members of a job group, at most."""
LISTED = 2
"""Contacts in a configuration."""
NAMES_MAX = 20_000
"""How many names are tried until one is in the wanted place: with 8 agents one in 64 is."""


@dataclass
class Network:
    """What is wrong with the network beside ``World.loss`` and ``doubles``. Addresses that are not in
    ``sides`` are on side 0; only addresses on one side hear each other. ``mute``: what they send gets lost,
    what is sent to them does not. ``slow``: the share of messages that take up to two seconds, and so are
    overtaken by others; None: as large as the loss. ``border_ms``: how much longer messages take between
    agents of different regions."""

    sides: dict[str, int] = field(default_factory=dict)
    mute: set[str] = field(default_factory=set)
    slow: float | None = None
    border_ms: int = 0

    def parted(self, origin: str, to: str) -> bool:
        return origin in self.mute or self.sides.get(origin, 0) != self.sides.get(to, 0)


@dataclass
class Armed:
    """An agent dies after so many points of its work, and comes back after a while. ``power``: it also loses
    everything that its disk was not yet asked to sync."""

    points: int
    down_ms: int
    power: bool = False


class World:
    """Virtual time for a fleet. ``loss`` and ``doubles`` are shares of messages; ``now`` is in ms and is also
    event time."""

    agent_type: type[SimAgent] = SimAgent

    def __init__(
        self,
        seed: int,
        agents: int,
        *,
        loss: float = 0.0,
        doubles: float = 0.0,
        checking: bool = True,
        ledger: Ledger | None = None,
    ) -> None:
        self.rng = random.Random(seed)
        self.ledger = ledger
        if ledger is not None:
            ledger.first_us = (BEGIN_MS - CLOCKS_MS) * 1_000
        self.now = BEGIN_MS
        self.disorder_ms = 300
        self.delay_ms = (1, 20)
        """A message takes at least the first, and less than the second, unless it is slow."""
        self.work_ms = (1, 60)
        """The same for long work."""
        self.supervised = False
        """Whether an agent that stops with an error is started again."""
        self.listed = False
        """Whether an agent that has belonged to the cluster is started with the same contacts each time."""
        self.network = Network()
        self.crossed = 0
        """Bytes of slices that were sent to agents of other regions."""
        self.armed: dict[int, Armed] = {}
        """By agent: where it dies next."""
        self.check_every = 1 if checking else 0
        self._steps = 0
        self._said = hashlib.blake2b(digest_size=8)
        self.has_files = False
        """Whether agents read files: then messages name inodes and a temporary folder, which differ in every
        run."""
        self.loss = loss
        self.doubles = doubles
        self.keys: Sequence[str] = "abcdef"
        self.border_us: int | None = None
        """How long heads hold panes (``cluster.border_secs``)."""
        self.crash_share = 0.0
        self.root_settings = RootSettings()
        self.ring = OverlayConfig()
        self.detect: Detect = "default"
        self.group_members = GROUP_MEMBERS
        self.retained_bytes_max = 256 << 20
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._n = 0
        self.worker_settings = WorkerSettings(
            idle_ms=1_500, future_us=None, lateness_us=500_000, checkpoint_ms=1_300, traces=True
        )
        self.task: type[SimTask] = SimTask
        self.outside = Outside()
        self.archives: Archives | None = None
        """In real files; None: each agent has its own, in memory."""
        self.agents = [self.agent_type(self, i) for i in range(agents)]
        self.by_address = {agent.address: agent for agent in self.agents}
        self.client_inbox: list[object] = []
        self.isolated: set[str] = set()
        self.entries: list[LogEntry] = []
        """The longest log that any agent ever had."""
        self.unheard: set[str] = set()
        """Agents whose snapshots get lost on the way, while all their other messages arrive."""

    def fingerprint(self) -> str:
        """A hash of every message that was sent so far: when, by whom, to whom, and all its bytes, or its
        type where agents read files."""
        return self._said.hexdigest()

    def at(self, when: float, action: Callable[[], None]) -> None:
        self._n += 1
        heapq.heappush(self._heap, (when, self._n, action))

    def after(self, delay: float, agent: SimAgent, action: Callable[[], None]) -> None:
        life = agent.life

        def guarded() -> None:
            if agent.up and agent.life == life:
                agent.guard(action)

        self.at(self.now + delay, guarded)

    def later(self, agent: SimAgent, action: Callable[[], None]) -> None:
        """Long work: comes back after a while, unless the agent dies before."""
        self.after(self.rng.randrange(*self.work_ms) + self.lag(agent.slow_ms), agent, action)

    def lag(self, most_ms: int) -> int:
        """The delay of something slow: a random time."""
        return self.rng.randrange(most_ms) if most_ms else 0

    def checks(self) -> bool:
        """Whether to check a node's invariants now: always, never, or now and then."""
        self._steps += 1
        return self.check_every > 0 and self._steps % self.check_every == 0

    def arm(self, agent: SimAgent, armed: Armed) -> None:
        """Arrange that an agent dies."""
        self.armed[agent.index] = armed
        agent.store.remember = armed.power

    def point(self, agent: SimAgent) -> None:
        """Between two steps of an agent: it may die here, if that was arranged."""
        armed = self.armed.get(agent.index)
        if armed is not None:
            armed.points -= 1
            if armed.points <= 0:
                del self.armed[agent.index]
                agent.crash()
                if armed.power:
                    agent.store.cut_power()
                self.at(self.now + armed.down_ms, lambda: self.restart(agent))

    def crash_point(self, agent: SimAgent) -> None:
        """Before or after something durable: the agent may die here, by chance too."""
        self.point(agent)
        if agent.up and self.crash_share and self.rng.random() < self.crash_share:
            agent.crash()
            self.at(self.now + self.rng.choice([300, 1_500, 6_000, 9_000]), lambda: self.restart(agent))

    def kill(self, agent: SimAgent, down_ms: int) -> None:
        if agent.up:
            agent.crash()
            self.at(self.now + down_ms, lambda: self.restart(agent))

    def restart(self, agent: SimAgent) -> None:
        """Start it again. On a full disk it stops at once, and is started again, as a supervisor would."""
        if not agent.up and not agent.ended:
            contacts = [a.address for a in self.agents if a.up][:2]
            if self.listed and agent.belongs:
                contacts = [a.address for a in self.agents if a is not agent][:LISTED]
            if not agent.belongs and not contacts:  # with no contacts it would found a cluster
                contacts = [a.address for a in self.agents if a is not agent and not a.ended][:2]
            agent.guard(lambda: agent.start(contacts))

    def spares(self, agent: SimAgent) -> bool:
        """Whether the fleet can do without an agent for good: each group that it is in, including job groups
        that it leads, has three members, as far as any agent knows, and others have its streams."""
        up = [one for one in self.agents if one.up]
        log = max((one.node.log for one in up), key=lambda log: log.last)
        job_groups = {spec.uid for spec in log.jobs()} | {
            log.job_groups.of(flow.uid) or "" for flow in log.flows()
        }
        keys = [group_key(uid) for uid in job_groups if log.leader(uid) == agent.address]
        standings = [(key, one.node.catalog.desk.groups.standing(key)) for one in up for key in one.groups()]
        sizes = [
            len(known.membership.voters)
            for key, known in standings
            if known is not None
            and (key in agent.groups() or agent.address in {m.address for m in known.membership.members})
        ]
        gone = any(one.ended == GONE for one in self.agents)
        bootstrap = any(key not in agent.groups() for key in keys)
        free = agent.node.ready and not (gone or bootstrap or self.only_with(agent))
        return free and all(size >= SPARED_OF for size in sizes)

    def heads(self, region: str) -> list[SimAgent]:
        """The agents of a region that hang below another one in some tree."""
        there = (agent for agent in self.agents if agent.up and region_of(agent.place) == region)
        return [agent for agent in there if agent.is_head()]

    def only_with(self, agent: SimAgent) -> set[str]:
        """Streams that no other agent has: without it they stop, and so do the jobs over them."""
        others = [one for one in self.agents if one.life and not one.ended and one is not agent]
        return {*agent.streams} - {stream for one in others for stream in one.streams}

    def send(self, agent: SimAgent, to: str, message: Message) -> None:
        frames = encode(message, cluster="sim", sender=agent.address)
        what = type(message).__name__.encode() if self.has_files else b"".join(frames)
        self._said.update(f"{self.now} {agent.address} {to} ".encode() + what)
        if to.startswith("client"):
            said = decode(frames, cluster="sim", max_bytes=1 << 30).message
            if self.ledger is not None and isinstance(said, WindowResult):
                self.ledger.windows.publish(said)
                if self.loss and self.rng.random() < READER_LOSS:
                    return
            self.client_inbox.append(said)
            return
        if isinstance(message, Slice) and self._apart(agent, to):
            self.crossed += sum(map(len, frames))
        if self.rng.random() < self.loss or {agent.address, to} & self.isolated:
            return
        if isinstance(message, Slice) and agent.address in self.unheard:
            return
        if self.network.parted(agent.address, to):
            return
        slow_share = self.loss if self.network.slow is None else self.network.slow
        for _ in range(2 if self.rng.random() < self.doubles else 1):
            slow = self.rng.random() < slow_share
            delay = self.rng.randrange(100, 2_000) if slow else self.rng.randrange(*self.delay_ms)
            delay += self.network.border_ms * self._apart(agent, to) + self.lag(agent.slow_ms)
            self.at(self.now + delay, partial(self._arrive, to, frames))

    def _apart(self, agent: SimAgent, to: str) -> bool:
        """Whether a border lies between two agents."""
        there = self.by_address.get(to)
        return there is not None and region_of(there.place) != region_of(agent.place)

    def _arrive(self, to: str, frames: list[bytes]) -> None:
        agent = self.by_address.get(to)
        if agent is None or not agent.up or agent.overrun:
            return
        decoded = decode(frames, cluster="sim", max_bytes=1 << 30)
        event = arrived(decoded.sender, decoded.message)
        agent.guard(lambda: agent.handle(event))

    def check_log(self, agent: SimAgent) -> None:
        """All logs are prefixes of one another at every moment: a new entry equals that of the others, or is
        the tombstone that they have of it by now, or they have its tombstone."""
        log = agent.node.log
        for seq in range(agent.checked, log.last):
            (entry,) = log.after(seq, 1)
            if seq == len(self.entries):
                self.entries.append(entry)
                if self.ledger is not None:
                    self.ledger.heard(entry)
            known = self.entries[seq]
            forgotten = tombstone(known) == tombstone(entry) and tombstone(entry) in (known, entry)
            assert known == entry or forgotten, (agent.address, seq)
        agent.checked = log.last

    def run(self, ms: int) -> None:
        end = self.now + ms
        while self._heap and self._heap[0][0] <= end:
            when, _, action = heapq.heappop(self._heap)
            self.now = int(when)
            if self.ledger is not None:
                self.ledger.now_ms = self.now
            action()
        self.now = end

    def run_until(self, condition: Callable[[], bool], limit_ms: int = 60_000) -> None:
        end = self.now + limit_ms
        while not condition():
            if self.now >= end:
                raise AssertionError("it did not come to that in time")
            self.run(50)

    # -- what tests do with it -------------------------------------------------------------------------------

    def start_all(self, agents: Sequence[SimAgent] = ()) -> None:
        """These, or all; the first bootstraps the cluster."""
        agents = agents or self.agents
        agents[0].start([])
        for agent in agents[1:]:
            agent.start([agents[0].address])
        self.run_until(lambda: all(a.node.ready for a in agents))
        members = Counter(stream for a in agents for stream in a.streams)
        self.run_until(
            lambda: all(len(a.node.log.members(s)) == n for a in agents for s, n in members.items())
        )

    def calm(self) -> None:
        """End all faults of network, disks and machines."""
        self.loss = self.doubles = self.crash_share = 0.0
        self.network = Network()
        self.unheard.clear()
        self.armed.clear()
        for agent in self.agents:
            agent.slow_ms = agent.slow_disk_ms = agent.busy_ms = 0
            agent.stuck = False
            agent.go_on()
            agent.store.fill(False)

    def create(self, through: int, query: Plan, name: str = "job", roots: tuple[str, ...] = ()) -> JobSpec:
        """Submit a planned job, and wait for it to be active."""
        self.submit(through, query, name, roots=roots)
        return self.active(name)

    def submit(
        self, through: int, query: Plan, name: str, client: str = "", roots: tuple[str, ...] = ()
    ) -> None:
        """Submit a planned job as an agent's statement would; ``client`` gets the answer."""
        spec = spec_of(name, "me", 0, query, roots=roots)
        agent = self.agents[through]
        request = CreateJob(id=999_999, origin=client or agent.address, spec=spec, replace=False)
        routed = agent.node.overlay.route(app_id(name, "me"), pack(request), self.now)
        agent.perform(agent.node.settle(routed, self.now))

    def range_roots(self, name: str, query: Plan) -> tuple[str, ...]:
        """Where the job groups of a job's key ranges after the first are to be: the nodes nearest to them."""
        return self.nearest(range_topic(name, "me", place) for place in range(1, query.trees))

    def nearest(self, keys: Iterable[bytes]) -> tuple[str, ...]:
        """The addresses of the agents that are nearest to these keys."""
        up = {node_id(agent.address): agent.address for agent in self.agents if agent.up}
        return tuple(up[min(up, key=partial(closeness, to_int(key)))] for key in keys)

    def active(self, name: str) -> JobSpec:
        self.run_until(lambda: self._master(name) is not None)
        master = self._master(name)
        assert master is not None
        return master.spec

    def _master(self, name: str) -> Master | None:
        masters = (m for a in self.agents if a.up for m in a.node.job_groups.jobs())
        return next((m for m in masters if m.spec.name == name and m.state == "active"), None)

    def drop(self, spec: JobSpec) -> None:
        """Drop a job as an agent's statement would."""
        leader = self.leader(spec)
        leader.handle(was.Arrived(leader.address, DropJob(id=1, origin=leader.address, uid=spec.uid)))

    def name_at(self, name: str, leader: SimAgent) -> str:
        """A name with this beginning, both of whose keys are nearest to an agent
        (``elf.job.group.placing``)."""
        nodes = {node_id(agent.address): agent for agent in self.agents if agent.up or agent is leader}

        def there(key: bytes) -> bool:
            return nodes[min(nodes, key=partial(closeness, to_int(key)))] is leader

        names = (f"{name}-{n}" for n in range(NAMES_MAX))
        return next((one for one in names if all(map(there, topics_of(one, "me")))), name)

    def longest(self) -> CatalogLog | None:
        """The longest log of the running agents."""
        logs = (agent.node.log for agent in self.agents if agent.up)
        return max(logs, key=lambda log: log.last, default=None)

    def leader(self, spec: JobSpec) -> SimAgent:
        """Where a job group is, as the longest log says."""
        log = self.longest()
        known = log.ever(spec.uid) if log is not None else None
        return self.by_address[(known or spec).leader]

    def write(self, agent: SimAgent, until_ms: int, rate_ms: int = 200) -> None:
        """Rows at random moments in all its streams, with a little disorder below the lateness."""
        for stream in agent.streams:
            self._write(agent, agent.logs[stream], until_ms, rate_ms)

    def _write(self, agent: SimAgent, log: Log, until_ms: int, rate_ms: int) -> None:
        def one() -> None:
            if agent.ended:
                return
            disorder = self.rng.randrange(0, self.disorder_ms)
            log.add((agent.now_ms - disorder) * 1000, self.rng.choice(self.keys))
            if self.now < until_ms:
                self.at(self.now + 1 + int(self.rng.expovariate(1 / rate_ms)), one)

        self.at(self.now + self.rng.randrange(0, rate_ms), one)

    def committed(self, spec: JobSpec) -> dict[int, tuple[int, dict[str, int], dict[str, Any]]]:
        """Window start (µs) → (revision, counts by key, status) of its highest committed revision."""
        found: dict[int, tuple[int, dict[str, int], dict[str, Any]]] = {}
        for row in self.leader(spec).store.windows(spec.uid, -(1 << 62), 1 << 62):
            rows = table_of(row.rows).to_pylist()
            for status in table_of(row.status).to_pylist():
                start = us_of(status["window_start"])
                counts = {r["k0"]: r["s0"] for r in rows if us_of(r["window_start"]) == start}
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
        states = [s for task in agent.tasks.values() for s in task.worker.states().values()]
        pane_us = spec.plan.fragment.pane_us
        return all(s.live_from * pane_us <= start for s in states if s.flow.uid in uids)
