"""One run of a schedule: the fleet begins in peace, the storm, peace again, and the oracle's verdict."""

from __future__ import annotations

import tempfile
import traceback
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from agents.tasks.checkpoints import load_checkpoint
from elf.fields import replace
from elf.job import events as was
from elf.job.messages.groups import SubscribeJob
from elf.job.rollup.decide import RootSettings
from elf.job.worker.stream import WorkerSettings
from elf.wire.clients import WindowResult
from elf.wire.heard import Heard
from lab.chaos import programs
from lab.chaos.archives import Archives
from lab.chaos.books import BROKEN, Finding, WindowsName, name_of_result
from lab.chaos.engine import BUYS, STREAM
from lab.chaos.fates import COMFORT_MS
from lab.chaos.faults import Faults
from lab.chaos.files import FileLog
from lab.chaos.jobs import LATENESS_US, READERS
from lab.chaos.judge import Judge
from lab.chaos.ledger import Ledger
from lab.chaos.people import People
from lab.chaos.schedule import Schedule
from lab.chaos.tables import PAUSE_MS, TableReaders
from lab.chaos.world import World

CHECK_EVERY = 20
"""Steps of agents between two checks of a node's own invariants."""
QUIET_MS = 120_000
"""All must be well again at most so long after the storm: a job that waits ``WAIT_US`` for a dead agent in
each pane of its past, and may retain one pane, takes most of it."""
LOOK_MS = 2_000
LATE_BY = {"clock", "leave", "heir"}
"""What makes rows come too late, however they are read: clocks go back, and an agent that leaves seals
early."""
COPIES_MS = 400
"""Between two copies of open panes, where copies are eager."""
MEMORY = Path("/dev/shm")


@dataclass(frozen=True)
class Verdict:
    """The result of a run. ``windows``, ``records``: committed, and written to the logs; ``rotations``,
    ``stops``: of files, and of processes; ``gaps``: named by agents in what they read of files;
    ``postponed``: flows with rows that waited for their turn when a checkpoint was written."""

    seed: int
    windows: int
    records: int
    findings: tuple[Finding, ...]
    fingerprint: str
    virtual_ms: int
    rotations: int = 0
    stops: int = 0
    gaps: int = 0
    postponed: int = 0

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
        self._people = People(world, schedule)
        self._faults = Faults(world, self.ledger, schedule, self._people)
        self._heard: dict[str, Heard] = defaultdict(lambda: Heard(0))
        self._told: set[WindowsName] = set()
        self._readers = TableReaders(world, self.ledger, schedule.seed)
        self._until = 0

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
            self._faults.storm(self._until)
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
            len({key for key in ledger.windows.committed if key[1] < key[2]}),
            records,
            tuple(ledger.findings),
            world.fingerprint(),
            world.now,
            sum(log.rotations for log in self._logs()),
            sum(agent.stops for agent in world.agents),
            sum(len(log.fates.gaps) for log in self._logs()),
            ledger.postponed,
        )

    # -- its parts -------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        world, schedule = self.world, self.schedule
        first = world.agents[: schedule.nodes - schedule.joiners]
        world.start_all(first)
        self._until = world.now + schedule.storm_ms + 5_000 + (COMFORT_MS if schedule.files else 0)
        if "first" in schedule.jobs:
            self._people.fashion()
        if schedule.program:
            uid = programs.submit(world, first[0], schedule.trees)
            world.run_until(lambda: all(programs.is_begun(agent, uid) for agent in first))
        for agent in first:
            world.write(agent, self._until, rate_ms=schedule.rate_ms)
        for number in sorted(range(schedule.begun), key=lambda n: schedule.jobs[n] in READERS):
            if schedule.jobs[number] in READERS:
                self._people.found(0)
            self._people.submit(number, number % len(first))
        for number in range(schedule.begun):
            self._people.found(number)
        tasks = [(a, stream) for a in first for stream in a.streams if isinstance(a.logs[stream], FileLog)]
        world.run_until(lambda: all(load_checkpoint(agent.store, stream) for agent, stream in tasks))
        self._subscribe()
        if any(fault.kind in ("table", "ring") for fault in schedule.faults):
            self._read_tables()
        if any(fault.kind == "hold" for fault in schedule.faults):
            self.ledger.rekeyings.look(world)
            for agent in world.agents:
                agent.store.tables.round_rows = 1

    def _calm(self) -> None:
        """All faults of the fleet end; agents that are down are started."""
        world = self.world
        world.calm()
        world.outside.is_down = False
        for agent in world.agents[: self.schedule.nodes - self.schedule.joiners]:
            world.restart(agent)
        world.run(max(0, self._until - world.now) + 2_000)

    # -- readers ---------------------------------------------------------------------------------------------

    def _read_tables(self) -> None:
        """Somebody reads all tables, again and again."""
        self._readers.ask()
        self.world.at(self.world.now + PAUSE_MS, self._read_tables)

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
