"""One run of a schedule: the fleet begins in peace, the storm, peace again, and the oracle's verdict."""

from __future__ import annotations

import random
import tempfile
import traceback
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from agents.disk import replicastore
from agents.tasks.checkpoints import load_checkpoint
from elf.fields import replace
from elf.job import events as was
from elf.job.alerts import follow_on
from elf.job.commands import SetWeights, Waited
from elf.job.messages.groups import DropJob, HandOverJob, ReconfigureJob, SubscribeJob
from elf.job.messages.log import AddOutput, DropJobEntry
from elf.job.output import TABLE, OutputSpec
from elf.job.rollup.decide import RootSettings
from elf.job.spec import JobSpec, is_range
from elf.job.tables import is_table
from elf.job.worker.stream import WorkerSettings
from elf.ql.alert import Alert
from elf.ql.plan import Plan
from elf.ql.promises import Promise
from elf.wire.base import Request
from elf.wire.clients import Call, Execute, WindowResult
from elf.wire.heard import Heard
from lab.chaos import programs
from lab.chaos.agent import SimAgent
from lab.chaos.archives import Archives
from lab.chaos.engine import BUYS, GONE, STREAM, defined, owning, plan, staged, united
from lab.chaos.fates import COMFORT_MS
from lab.chaos.files import FileLog
from lab.chaos.jobs import (
    LATENESS_US,
    READERS,
    UNITS,
    WAIT_US,
    behind,
    mirrored,
    query_of,
    revising,
    since,
    tardy,
)
from lab.chaos.judge import Judge
from lab.chaos.ledger import BROKEN, Finding, Ledger, WindowsName, name_of_result
from lab.chaos.outside import TARGET
from lab.chaos.overload import overload, relieve
from lab.chaos.placing import decide, route, scaled
from lab.chaos.reference import BANG, BOOM, DROPPING, SEVERAL, reducing
from lab.chaos.schedule import Fault, Schedule
from lab.chaos.tables import PAUSE_MS, TableReaders
from lab.chaos.world import Armed, World

CHECK_EVERY = 20
"""Steps of agents between two checks of a node's own invariants."""
QUIET_MS = 120_000
"""All must be well again at most so long after the storm: a job that waits ``WAIT_US`` for a dead agent in
each pane of its past, and may retain one pane, takes most of it."""
LOOK_MS = 2_000
PROMISE = Promise(500_000, 99.0, best_effort=True)
LATE_BY = {"clock", "leave", "heir"}
"""What makes rows come too late, however they are read: clocks go back, and an agent that leaves seals
early."""
COPIES_MS = 400
"""Between two copies of open panes, where copies are eager."""
MEMORY = Path("/dev/shm")
PEOPLE = "client:people"
ON_THE_WAY_MS = (2, 10, 50, 300, 1_000)
"""Since a job was asked to move."""
ASK_RETRY_MS = 1_500
"""A reduce function that a job has not got is requested again after so long."""


@dataclass(frozen=True)
class Verdict:
    """The result of a run. ``windows``, ``records``: committed, and written to the logs; ``rotations``,
    ``stops``: of files, and of processes; ``gaps``: named by agents in what they read of files."""

    seed: int
    windows: int
    records: int
    findings: tuple[Finding, ...]
    fingerprint: str
    virtual_ms: int
    rotations: int = 0
    stops: int = 0
    gaps: int = 0

    def count(self, kind: str) -> int:
        return sum(found.kind == kind for found in self.findings)


def play(schedule: Schedule) -> Verdict:
    """Run a schedule. The same schedule has the same verdict and fingerprint, in every process."""
    return Story(schedule).play()


class Story:
    """See the module's docstring."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.ledger = Ledger()
        world = self.world = World(schedule.seed, schedule.nodes, ledger=self.ledger)
        world.check_every = CHECK_EVERY
        world.group_members = schedule.group_members
        world.root_settings = RootSettings(groups_at_once=schedule.at_once)
        world.worker_settings = WorkerSettings(
            idle_ms=1_500, lateness_us=500_000, checkpoint_ms=1_300, traces=True
        )
        if schedule.eager:
            world.worker_settings = replace(
                world.worker_settings, copies_ms=COPIES_MS, checkpoint_ms=COPIES_MS
            )
        world.disorder_ms = schedule.disorder_ms
        world.retained_bytes_max = schedule.quota
        world.supervised = True
        world.listed = schedule.listed
        for agent in world.agents:
            letters = schedule.streams[agent.index] if schedule.streams else "c"
            agent.streams = tuple(name for name in (STREAM, BUYS) if name[0] in letters)
            agent.place = f"region{schedule.regions[agent.index]}" if schedule.regions else ""
        self._folder = self._files() if schedule.files else None
        if schedule.pasts and not schedule.files:
            world.archives = Archives(world, schedule.seed)
        self._people = random.Random(schedule.seed)
        alike = f"alike {schedule.seed}"
        self._alike = {number: random.Random(alike) for number in schedule.together}
        """Who asks for jobs that are drawn apart: all of them for the same, one after the other."""
        self._names: dict[int, str] = {}
        self._specs: dict[int, JobSpec] = {}
        self._heard: dict[str, Heard] = defaultdict(lambda: Heard(0))
        self._told: set[WindowsName] = set()
        self._readers = TableReaders(world, self.ledger, schedule.seed)
        self._storm_ms = self._until = 0

    def _files(self) -> tempfile.TemporaryDirectory[str]:
        """Streams in files, and settings for them: those of agents by default or shorter, but never such that
        what an agent finds a second later comes too late."""
        world, schedule = self.world, self.schedule
        world.worker_settings = WorkerSettings(
            idle_ms=4_000,
            lateness_us=LATENESS_US,
            checkpoint_ms=world.worker_settings.checkpoint_ms,
            traces=True,
            copies_ms=world.worker_settings.copies_ms,
        )
        world.disorder_ms = 300
        world.has_files = True
        folder = tempfile.TemporaryDirectory(prefix="elf-chaos-", dir=MEMORY if MEMORY.is_dir() else None)
        for agent, styles in zip(world.agents, schedule.files, strict=True):
            for stream in agent.streams if styles else ():
                place = Path(folder.name) / f"a{agent.index}" / stream
                agent.logs[stream] = FileLog(agent, place, styles, f"{schedule.seed} {agent.index} {stream}")
        return folder

    def _logs(self) -> list[FileLog]:
        return [log for a in self.world.agents for log in a.logs.values() if isinstance(log, FileLog)]

    def play(self) -> Verdict:
        """Raises what the store of a simulated agent never should, and nothing else."""
        try:
            return self._play()
        finally:
            for agent in self.world.agents if self._folder is not None else ():
                for task in agent.tasks.values():
                    task.close()
            for log in self._logs():
                log.close()
            if self._folder is not None:
                self._folder.cleanup()
            if self.world.archives is not None:
                self.world.archives.close()

    def _play(self) -> Verdict:
        world, schedule, ledger = self.world, self.schedule, self.ledger
        try:
            self._begin()
            self._storm()
            self._calm()
            kinds = {fault.kind for fault in schedule.faults}
            in_time = bool(schedule.files) and not kinds & LATE_BY
            in_time |= bool(schedule.pasts) and kinds <= {"create"}
            judge = Judge(world, ledger, self._until, self._told, self._readers, in_time=in_time)
            end = world.now + QUIET_MS
            while (open_ := judge.open()) and world.now < end and not ledger.findings:
                world.run(LOOK_MS)
            ledger.findings += open_
            if not ledger.findings:
                judge.close()
        except Exception as broken:
            where = traceback.extract_tb(broken.__traceback__)[-1]
            ledger.found(BROKEN, f"{type(broken).__name__} in {where.name}, line {where.lineno}: {broken}")
        records = sum(len(log.rows) for agent in world.agents for log in agent.logs.values())
        return Verdict(
            schedule.seed,
            len({key for key in ledger.windows if key[1] < key[2]}),
            records,
            tuple(ledger.findings),
            world.fingerprint(),
            world.now,
            sum(log.rotations for log in self._logs()),
            sum(agent.stops for agent in world.agents),
            sum(len(log.fates.gaps) for log in self._logs()),
        )

    # -- its parts -------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        world, schedule = self.world, self.schedule
        first = world.agents[: schedule.nodes - schedule.joiners]
        world.start_all(first)
        self._until = world.now + schedule.storm_ms + 5_000 + (COMFORT_MS if schedule.files else 0)
        if "first" in schedule.jobs:
            self.fashion()
        if schedule.program:
            uid = programs.submit(world, first[0], schedule.trees)
            world.run_until(lambda: all(programs.is_begun(agent, uid) for agent in first))
        for agent in first:
            world.write(agent, self._until, rate_ms=schedule.rate_ms)
        for number in sorted(range(schedule.begun), key=lambda n: schedule.jobs[n] in READERS):
            if schedule.jobs[number] in READERS:
                self._specs[0] = world.active(self._name(0))
            self._submit(number, number % len(first))
        for number in range(schedule.begun):
            self._specs[number] = world.active(self._name(number))
        tasks = [(a, stream) for a in first for stream in a.streams if isinstance(a.logs[stream], FileLog)]
        world.run_until(lambda: all(load_checkpoint(agent.store, stream) for agent, stream in tasks))
        self._storm_ms = world.now
        self._subscribe()
        if any(fault.kind == "table" for fault in schedule.faults):
            self._read_tables()

    def fashion(self) -> None:
        """Keys as people choose them: some often, and soon others."""
        letters = self._people.sample("abcdef", 6)
        self.world.keys = "".join(key * often for key, often in zip(letters, (8, 4, 2, 1, 1, 1), strict=True))
        self.world.at(self.world.now + self._people.randrange(2_000, 12_000), self.fashion)

    def _submit(self, number: int, through: int) -> None:
        query, name = self._query(number), self._name(number)
        self.world.submit(through, query, name, PEOPLE, self.world.range_roots(name, query))

    def _name(self, number: int) -> str:
        """The name of a job; for one that is to be where others are, both keys are those of their agent."""
        if number not in self._names:
            others = filter(None, map(self._spec, self.schedule.together))
            leader = next(map(self.world.leader, others), None) if number in self.schedule.together else None
            name = f"job{number}"
            self._names[number] = name if leader is None else self.world.name_at(name, leader)
        return self._names[number]

    def _spec(self, number: int) -> JobSpec | None:
        """The spec in the longest log, or as it was before the storm."""
        known, name = self.world.longest(), self._names.get(number)
        specs = known.jobs() if known is not None else ()
        return next((spec for spec in specs if spec.name == name), self._specs.get(number))

    def _query(self, number: int) -> Plan:
        kind = self.schedule.jobs[number]
        reads = (self._specs[0].uid,) if kind in READERS else ()
        query = replace(query_of(kind), reads=reads)
        query = owning(query) if number in self.schedule.owned else query
        query = mirrored(query) if number in self.schedule.mirrored else query
        query = self._promising(number, query)
        back_ms = dict(self.schedule.pasts).get(number)
        if back_ms is not None:
            query = since(query, 1_000 * (self.world.now - back_ms))
        return self._suited(query)

    def _suited(self, query: Plan) -> Plan:
        """The query with a lateness that suits its rows: rows of files come later."""
        return tardy(query) if self.schedule.files else query

    def _promising(self, number: int, query: Plan) -> Plan:
        """The query with what the job promises."""
        query = replace(query, gives_way=number in self.schedule.research)
        return replace(query, promise=PROMISE) if number in self.schedule.promised else query

    def _storm(self) -> None:
        world = self.world
        for fault in self.schedule.faults:
            world.at(self._storm_ms + fault.at_ms, lambda f=fault: self._befall(f))  # type: ignore[misc]
        world.run(self.schedule.storm_ms)

    def _calm(self) -> None:
        """All faults of the fleet end; agents that are down are started."""
        world = self.world
        world.calm()
        world.outside.is_down = False
        for agent in world.agents[: self.schedule.nodes - self.schedule.joiners]:
            world.restart(agent)
        world.run(max(0, self._until - world.now) + 2_000)

    def _befall(self, fault: Fault) -> None:
        world, agents = self.world, [self.world.agents[index] for index in fault.who]
        if self._storm_ms + self.schedule.storm_ms <= world.now:
            return
        over: Callable[[], None] = _nothing
        match fault.kind:
            case "crash" | "clock":
                self._kill(agents[0], fault.for_ms)
                agents[0].clock_ms = fault.amount if fault.kind == "clock" else agents[0].clock_ms
            case "point" | "power":
                world.arm(agents[0], Armed(fault.amount, fault.for_ms, power=fault.kind == "power"))
            case "gone":
                world.unheard.add(agents[0].address)
                over = partial(self._goes, agents[0])
            case "heir":
                self._heir()
            case "way up":
                world.unheard.add(agents[0].address)
                over = partial(world.unheard.discard, agents[0].address)
            case "leader":
                self._kill(world.leader(self._specs[fault.amount]), fault.for_ms)
            case "cut off":
                world.network.sides = {world.leader(self._specs[fault.amount]).address: 1}
                over = world.network.sides.clear
            case "blackout":
                for agent in world.agents:
                    self._kill(agent, fault.for_ms + world.rng.randrange(1_000))
            case "loss":
                world.loss, over = fault.amount / 100, lambda: setattr(world, "loss", 0.0)
            case "deaths":
                world.crash_share, over = fault.amount / 1000, lambda: setattr(world, "crash_share", 0.0)
            case "doubles":
                world.doubles, over = fault.amount / 100, lambda: setattr(world, "doubles", 0.0)
            case "overtaking":
                world.network.slow = fault.amount / 100
                over = lambda: setattr(world.network, "slow", None)  # noqa: E731
            case "partition":
                world.network.sides = {agent.address: 1 for agent in agents}
                over = world.network.sides.clear
            case "border":
                here = f"region{fault.amount}"
                world.network.sides = {a.address: 1 for a in world.agents if a.place == here}
                over = world.network.sides.clear
            case "slow border":
                world.network.border_ms = fault.amount
                over = lambda: setattr(world.network, "border_ms", 0)  # noqa: E731
            case "head":
                for agent in world.heads(f"region{fault.amount}"):
                    self._kill(agent, fault.for_ms)
            case "unheard":
                world.network.mute.add(world.leader(self._specs[fault.amount]).address)
                over = world.network.mute.clear
            case "mute":
                world.network.mute |= {agent.address for agent in agents}
                over = world.network.mute.clear
            case "slow":
                agents[0].slow_ms, over = fault.amount, lambda: setattr(agents[0], "slow_ms", 0)
            case "stuck":
                agents[0].stuck, over = True, lambda: setattr(agents[0], "stuck", False)
            case "slow disk":
                agents[0].slow_disk_ms = fault.amount
                over = lambda: setattr(agents[0], "slow_disk_ms", 0)  # noqa: E731
            case "full disk":
                agents[0].store.fill(True)
                over = lambda: agents[0].store.fill(False)  # noqa: E731
            case "stop":
                agents[0].stop()
                over = agents[0].go_on
            case "rotate" | "remove":
                for log in agents[0].logs.values():
                    if isinstance(log, FileLog):
                        site = log.sites[fault.amount]
                        site.rotate() if fault.kind == "rotate" else site.remove()
            case "join":
                world.restart(agents[0])
                world.write(agents[0], self._until, rate_ms=self.schedule.rate_ms)
            case "output":
                self._output(agents[0], fault)
            case "table":
                self._table(agents[0], fault)
            case "rekey":
                self._rekey(agents[0])
            case "untable":
                self._drop_tables(agents[0])
            case "budget":
                for task in agents[0].tasks.values() if agents[0].up else ():
                    one = (fault.amount, "the agent's cpu")
                    task.give(SetWeights(tuple((uid, *one) for uid in task.worker.flows())))
            case "overload":
                overload(agents[0], fault.amount)
                over = partial(relieve, agents[0])
            case "waited":
                for task in agents[0].tasks.values() if agents[0].up else ():
                    task.give(Waited("the agent's cpu", agents[0].now_ms))
            case "outside":
                world.outside.is_down, over = True, lambda: setattr(world.outside, "is_down", False)
            case "boom" | "bang":
                key = BOOM if fault.kind == "boom" else BANG
                for agent in agents:
                    agent.log.add(agent.now_ms * 1000, key)
            case "leave":
                if agents[0].up and not world.only_with(agents[0]):
                    agents[0].guard(lambda: agents[0].perform(agents[0].node.leave(agents[0].now_ms)))
            case "retention" if world.archives is not None:
                world.archives.retain(agents[0], fault.amount)
            case "upkeep" if world.archives is not None:
                world.archives.upkeep(agents[0])
            case "recluster" if world.archives is not None:
                world.archives.sort(STREAM, fault.amount)
            case "upkeep" | "recluster":
                pass  # nothing of files is archived here
            case "master":
                if masters := programs.masters(world):
                    self._goes(masters[fault.amount % len(masters)])
            case "process":
                if agents[0].up:
                    agents[0].guard(agents[0].jobs.end_processes)
            case "retention":
                for log in agents[0].logs.values():
                    log.lose(len(log.rows) * fault.amount // 100)
            case "reduce":
                self._ask(fault)
                spec = self._spec(fault.amount)
                if spec is None or spec.plan.fragment.reduce is None:
                    world.at(world.now + ASK_RETRY_MS, lambda: self._befall(fault))
            case _:
                self._ask(fault)
        if fault.for_ms:
            world.at(world.now + fault.for_ms, over)

    def _kill(self, agent: SimAgent, down_ms: int) -> None:
        if agent.up:
            agent.crash()
            self.world.at(self.world.now + down_ms, lambda: self.world.restart(agent))

    def _goes(self, agent: SimAgent) -> None:
        """An agent goes for good, with its disk. Where the fleet cannot do without it, it comes back after
        all."""
        world, ledger = self.world, self.ledger
        world.unheard.discard(agent.address)
        in_time = world.now < self._storm_ms + self.schedule.storm_ms
        if not (in_time and agent.up and world.spares(agent)):
            self._kill(agent, 300)
            return
        agent.crash()
        agent.ended = GONE
        ledger.goes(agent.index, {one.index for one in world.agents if not one.ended})

    def _heir(self) -> None:
        """All holders of replicas of the agent that is gone for good are asked to leave; those that are
        needed stay."""
        gone = {name for names in self.ledger.gone.values() for name in names}
        for agent in self.world.agents:
            holds = agent.up and gone & replicastore.held(agent.store).keys()
            if holds and not self.world.only_with(agent):
                leave = Call(request=1, verb="leave")
                agent.guard(lambda a=agent, m=leave: a.handle(was.Arrived(PEOPLE, m)))  # type: ignore[misc]

    # -- people ----------------------------------------------------------------------------------------------

    def _ask(self, fault: Fault) -> None:
        """A person's request. It may be refused, or get lost: then it is not repeated."""
        world, number = self.world, fault.amount
        if fault.kind == "create":
            if world.agents[fault.who[0]].up:
                self._submit(number, fault.who[0])
            return
        spec = self._specs.get(number) or self._spec(number)
        if spec is None or not world.leader(spec).up:
            return
        leader, people = world.leader(spec), self._alike.get(number, self._people)
        request: Request
        if fault.kind == "drop":
            request = DropJob(id=1, origin=PEOPLE, uid=spec.uid)
        elif fault.kind == "decide":
            decide(world, self._newest(spec), fault, self._apart(fault))
            return
        elif fault.kind == "route":
            route(world, self._newest(spec), self._apart(fault))
            return
        elif fault.kind == "scale":
            known = scaled(world, self._newest(spec), self._apart(fault), PEOPLE)
            if known is None:
                return
            request = known
        elif fault.kind in ("move", "heir dies"):
            to = world.agents[fault.who[0]]
            if fault.kind == "heir dies" and to is not leader:
                world.at(
                    world.now + self._apart(fault).choice(ON_THE_WAY_MS), lambda: self._kill(to, fault.for_ms)
                )
            request = HandOverJob(id=1, origin=PEOPLE, uid=spec.uid, agent=f"a{to.index}", address=to.address)
        elif fault.kind == "reduce":
            request = self._reduce(number, spec)
        else:
            where, least = people.choice(["", "abc", "bd"]), people.choice([0, 0, 2])
            size, slide = people.choice([(2, 2), (4, 2), (6, 2), (3, 1)])
            final = DROPPING if people.random() < 0.2 else None
            query = replace(plan(size, slide, where=where, least=least), final=final)
            if self.schedule.jobs[number] in UNITS:  # most of them over the same panes
                query = people.choice([united(4, 4), united(6, 6), united(2, 2), plan(3, 1), query])
            if size == slide and people.random() < 0.3:
                query = staged(query, 4, 2)
            anew = defined(self._suited(self._promising(number, query)))
            request = ReconfigureJob(
                id=1,
                origin=PEOPLE,
                uid=spec.uid,
                verb=fault.kind,  # type: ignore[arg-type]
                definition=anew if fault.kind == "alter" else None,
                version=1,
                immediately=people.random() < 0.3,
                note=f"{fault.kind} …",
            )
        leader.guard(lambda: leader.handle(was.Arrived(PEOPLE, request)))

    def _newest(self, spec: JobSpec) -> JobSpec:
        """A job as the catalog log has it by now."""
        log = self.world.longest()
        return (log and log.job(spec.uid)) or spec

    def _apart(self, fault: Fault) -> random.Random:
        """What is drawn for one request, whatever else befalls the fleet."""
        return random.Random(f"{fault.kind} {self.schedule.seed} {fault.at_ms}")

    def _output(self, agent: SimAgent, fault: Fault) -> None:
        """CREATE OUTPUT, of what is kept and of all that comes; and an alert over the same windows."""
        spec, name = self._spec(fault.amount), f"out{fault.at_ms}"
        if spec is None or not agent.up:
            return
        sql = f"CREATE OUTPUT {name} FROM JOB {spec.name} TO '{TARGET}/{name}' FROM BEGINNING"
        asked = Execute(request=1, sql=sql, creator=spec.creator)
        agent.guard(lambda: agent.handle(was.Arrived(PEOPLE, asked)))
        if follow_on(spec.plan):
            agent.guard(lambda: self._alert(agent, spec, fault.at_ms))

    def _table(self, agent: SimAgent, fault: Fault) -> None:
        """What CREATE TABLE proposes, for whatever query the job has."""
        spec, name = self._spec(fault.amount), f"table{fault.at_ms}"
        if spec is None or not agent.up:
            return
        retain = (("retain", "6000000"),) if fault.at_ms % 3 == 0 else ()
        ranges = spec.plan.fragments[0].range[1]
        shards = (("shards", str(ranges)),) if ranges > 1 and fault.at_ms % 2 == 0 else ()
        made = OutputSpec(name, spec.creator, 1, spec.uid, f"{TABLE}:", (("key", "k0"), *retain, *shards))
        log = agent.node.log
        agent.node.membership.propose(AddOutput(spec=made), lambda: log.has_output(made.uid))

    def _rekey(self, agent: SimAgent) -> None:
        """What ALTER TABLE proposes. (The other key is the same one: all else is as if it were not.)"""
        log = agent.node.log
        for one in filter(is_table, log.outputs() if agent.up else ()):
            options = dict(one.options) | {"of": one.uid}
            if homes := log.homes(one.uid):
                apart = "".join("01"[is_range(home)] for home in homes)
                options |= {"was": one.option("key"), "homes": apart}
            new = replace(
                one,
                generation=1 + log.highest(one.app.hex()),
                options=tuple(sorted(options.items())),
            )
            agent.node.membership.propose(AddOutput(spec=new), partial(log.has_output, new.uid))

    def _drop_tables(self, agent: SimAgent) -> None:
        log = agent.node.log
        for one in filter(is_table, log.outputs() if agent.up else ()):
            done = partial(log.is_dropped, one.uid)
            agent.node.membership.propose(DropJobEntry(uid=one.uid), done)

    def _read_tables(self) -> None:
        """Somebody reads all tables, again and again."""
        self._readers.ask()
        self.world.at(self.world.now + PAUSE_MS, self._read_tables)

    def _alert(self, agent: SimAgent, spec: JobSpec, number: int) -> None:
        """What CREATE ALERT proposes. (Its condition cannot be checked against a job without a text.)"""
        rng = random.Random(f"alert {self.schedule.seed} {number}")
        by = rng.choice([(), ("k0",)])
        alert = Alert(
            f"s0 >= {rng.choice([1, 2, 4])}", rng.choice([1, 1, 2, 3]), rng.choice([1.0, 1.0, 0.7]), by
        )
        target = f"{TARGET}/alert{number}"
        made = OutputSpec(f"alert{number}", spec.creator, 1, spec.uid, target, (), True, None, alert)
        log = agent.node.log
        agent.node.membership.propose(AddOutput(spec=made), lambda: log.has_output(made.uid))

    def _reduce(self, number: int, spec: JobSpec) -> ReconfigureJob:
        """ALTER JOB … SET FUNCTION reduce, with another query beside it."""
        rng = random.Random(f"reduce {self.schedule.seed}")  # the same whoever asks, and however often
        size, slide = rng.choice([(2, 2), (4, 2), (3, 1)])
        query = plan(size, slide, where=rng.choice(["", "", "abc"]))
        query = reducing(query, rng.choice([*SEVERAL.values()]))
        match rng.choice(["plain", "trees", "late", "late", "wait", "leap"]):
            case "trees":  # without a policy beside it, as the planner has it
                query = replace(query, trees=3)
            case "late":
                query = revising(query)
            case "wait":
                query = behind(query, wait_us=WAIT_US)
            case "leap":
                query = behind(query, leap=True)
        fragment, mirrors = query.fragment, number in self.schedule.mirrored
        if mirrors and not fragment.leap and fragment.wait_us is None:
            query = mirrored(query)
        query = self._suited(query)
        return ReconfigureJob(
            id=1,
            origin=PEOPLE,
            uid=spec.uid,
            verb="alter",
            definition=defined(query),
            version=1,
            roots=self.world.range_roots(spec.name, query),
            note="reduce …",
        )

    def _subscribe(self) -> None:
        """A reader of all windows of all jobs: each second it renews its lease and asks for what it lacks."""
        world = self.world
        for message in world.client_inbox:
            self._readers.heard(message)
            if isinstance(message, WindowResult) and not message.early:
                self._heard[message.job].take(message.number, message.before)
                self._told.add(name_of_result(message))
        world.client_inbox.clear()
        known = world.longest()
        for spec in known.jobs() if known is not None else ():
            leader = world.leader(spec)
            if leader.up:
                after = self._heard[spec.uid].upto
                lease = SubscribeJob(id=0, origin=f"client:{spec.name}", uid=spec.uid, after=after)
                leader.guard(lambda h=leader, m=lease: h.handle(was.Arrived(m.origin, m)))  # type: ignore[misc]
        world.at(world.now + 1_000, self._subscribe)


def _nothing() -> None:
    """It ends by itself."""
