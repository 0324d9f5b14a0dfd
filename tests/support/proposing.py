"""Random wishes for catalog logs, and what may be asked of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from elf.errors import UserError
from elf.fields import replace
from elf.job.catalog.admission import grow, is_behind
from elf.job.catalog.bootstrap import Bootstrap
from elf.job.catalog.log import CatalogLog
from elf.job.group.reconfiguration import proposed
from elf.job.messages.log import (
    AddJob,
    AddProgram,
    AddVersion,
    AssignJobGroup,
    DecidePause,
    DropJobEntry,
    EndFlow,
    EndVersion,
    JoinStream,
    LeaveStream,
    LogEntry,
    MoveJobGroup,
    Proposal,
)
from elf.job.program.spec import ProgramSpec
from elf.job.spec import JobSpec, group_uid
from elf.wire.clients import ONE_SHOT_PREFIX
from lab.chaos.engine import plan, planned, spec_of

STREAMS = ("s", "t")
AGENTS = tuple(f"a{n}" for n in range(5))
NAMES = ("hits", "errors", f"{ONE_SHOT_PREFIX}1", f"{ONE_SHOT_PREFIX}2")


class Proposals:
    """One history, told to several logs at once; all must answer in the same way."""

    def __init__(self, seed: int, *logs: CatalogLog) -> None:
        self.rng = random.Random(seed)
        self.logs = list(logs)
        self.jobs: dict[str, JobSpec] = {}
        """Every one that was ever asked for, as its newest version."""
        self.programs: list[ProgramSpec] = []
        self.flows: dict[str, None] = {}
        self._lives: dict[str, int] = {}
        self._terms = 0
        for agent in AGENTS:
            self.grow(self._join(agent, "s"))

    @property
    def log(self) -> CatalogLog:
        return self.logs[0]

    def grow(self, proposal: Proposal | None) -> None:
        if proposal is None:
            return
        told = [_told(log, proposal) for log in self.logs]
        assert all(one == told[0] for one in told), proposal
        assert len({is_behind(log, proposal) for log in self.logs}) == 1, proposal

    def step(self) -> None:
        ways: list[tuple[int, Callable[[], Proposal | None]]] = [
            (1, self._joins),
            (1, self._leaves),
            (6, self._adds),
            (4, self._alters),
            (4, self._ends_version),
            (4, self._drops),
            (8, self._ends_flow),
            (4, self._moves),
            (2, self._assigns),
            (2, self._pauses),
            (1, self._programs),
            (1, self._bootstraps),
        ]
        (way,) = self.rng.choices([way for _, way in ways], [weight for weight, _ in ways])
        self.grow(way())

    def _join(self, agent: str, stream: str) -> JoinStream:
        life = self._lives[agent] = self._lives.get(agent, 0) + 1
        address = f"{agent}:{self.rng.randrange(2)}"
        return JoinStream(
            stream=stream, agent_id=agent, name=agent, incarnation=life, address=address, since_us=life
        )

    def _joins(self) -> Proposal:
        return self._join(self.rng.choice(AGENTS), self.rng.choice(STREAMS))

    def _leaves(self) -> Proposal:
        return LeaveStream(
            stream=self.rng.choice(STREAMS), agent_id=self.rng.choice(AGENTS), until_us=self.rng.randrange(99)
        )

    def _address(self) -> str:
        return f"{self.rng.choice(AGENTS)}:{self.rng.randrange(2)}"

    def _planned(self, spec: JobSpec) -> JobSpec:
        """With a random query, and flows of its own."""
        made = plan(self.rng.choice([1, 2, 4]), where=self.rng.choice(["", "x"]))
        if self.rng.random() < 0.2:
            made = plan(2, streams=STREAMS)
        if spec.replicated and self.rng.random() < 0.3:
            made = replace(made, trees=2)
        live = self.log.jobs()
        if live and self.rng.random() < 0.2:
            read = self.rng.choice(live)
            made = replace(made, reads=(read.uid,), read_as=(read.plan.identity,))
        spec = planned(spec, made, roots=(self._address(),) if made.trees > 1 else ())
        spec = spec.with_flows(proposed(spec, b"k" * 16, spec.leader))
        self.flows.update(dict.fromkeys(flow.uid for flow in spec.flows))
        self.jobs[spec.uid] = spec
        return spec

    def _adds(self) -> Proposal:
        name, creator = self.rng.choice(NAMES), self.rng.choice(["me", "you"])
        generation = self.log.generation(name, creator)
        if self.rng.random() < 0.1:
            generation = self.rng.randrange(1, generation + 1)
        spec = spec_of(name, creator, generation, plan(), (), master=self._address())
        known = self.log.find_job(name, creator)
        if known is not None and known.creator == creator and self.rng.random() < 0.5:
            spec = replace(spec, replaces=known.uid)
        return AddJob(spec=self._planned(spec))

    def _alters(self) -> Proposal | None:
        if not self.jobs:
            return None
        spec = self.rng.choice(list(self.jobs.values()))
        return AddVersion(spec=self._planned(replace(spec, version=spec.version + 1, replaces="")))

    def _ends_version(self) -> Proposal | None:
        if not self.jobs:
            return None
        spec = self.rng.choice(list(self.jobs.values()))
        return EndVersion(uid=spec.uid, version=self.rng.randrange(1, spec.version + 2))

    def _drops(self) -> Proposal | None:
        uids = [*self.jobs, *(spec.uid for spec in self.programs)]
        return DropJobEntry(uid=self.rng.choice(uids)) if uids else None

    def _ends_flow(self) -> Proposal | None:
        flows = self.log.idle_flows() or tuple(self.flows)
        return EndFlow(uid=self.rng.choice(flows)) if flows else None

    def _moves(self) -> Proposal | None:
        if not self.jobs:
            return None
        uid = group_uid(self.rng.choice(list(self.jobs)), self.rng.randrange(2))
        self._terms += 1
        return MoveJobGroup(uid=uid, leader=self._address(), term=self._terms)

    def _assigns(self) -> Proposal | None:
        if not self.jobs:
            return None
        uid = group_uid(self.rng.choice(list(self.jobs)), self.rng.randrange(2))
        origin = self.log.leader(uid) or self._address()
        self._terms += 1
        return AssignJobGroup(
            uid=uid, origin=origin, target=self._address(), at_ms=self._terms - self.rng.randrange(2), why="w"
        )

    def _pauses(self) -> Proposal | None:
        if not self.jobs:
            return None
        uid = self.rng.choice(list(self.jobs))
        self._terms += 1
        before, at_ms = self.rng.choice([10, 50]), self._terms - self.rng.randrange(2)
        return DecidePause(uid=uid, before_ms=before, pause_ms=20, reached_ms=9, at_ms=at_ms, why="w")

    def _programs(self) -> Proposal:
        creator = self.rng.choice(["me", "you"])
        spec = ProgramSpec("job", creator, self.log.generation("job", creator), "pass", "job.py")
        self.programs.append(spec)
        return AddProgram(spec=spec)

    def _bootstraps(self) -> Proposal | None:
        if not self.jobs:
            return None
        instead = self.rng.choice(["", *AGENTS])
        said = Bootstrap(
            group_uid(self.rng.choice(list(self.jobs)), 1), self.rng.choice(AGENTS[:-1]), instead
        )
        return DropJobEntry(uid=said.uid)

    def answers(self, log: CatalogLog) -> dict[str, object]:
        """All that may be asked, and means something."""
        return dict(self._answers(log))

    def _answers(self, log: CatalogLog) -> Iterator[tuple[str, object]]:
        yield "last", log.last
        yield "streams", log.streams()
        yield "members", [log.members(stream) for stream in STREAMS]
        yield "addresses", log.addresses()
        yield "jobs", log.jobs()
        yield "programs", log.programs()
        yield "flows", log.flows()
        yield "idle", log.idle_flows()
        yield "assigned", [(one, log.assignments.was_carried_out(one)) for one in log.assignments]
        yield "unbegun", log.unbegun()
        yield "to found", [log.to_bootstrap(agent) for agent in AGENTS]
        for uid, spec in self.jobs.items():
            numbers = range(1, spec.version + 2)
            yield f"dropped {uid}", log.is_dropped(uid)
            yield f"job {uid}", log.job(uid)
            yield f"versions of {uid}", [log.version(uid, n) for n in numbers]
            yield f"over of {uid}", [log.is_over(uid, n) for n in numbers]
            yield f"come to {uid}", [log.has_version(uid, n) for n in numbers]
            yield f"paused {uid}", log.is_paused(uid)
            yield (
                f"groups of {uid}",
                [(log.leader(leader), log.job_groups.flows(leader)) for leader in _job_groups(uid)],
            )
            yield f"who reads {uid}", log.read_by(uid)
            yield f"generation of {uid}", log.generation(spec.name, spec.creator)
            yield f"found {uid}", log.find_job(spec.name, spec.creator)
            if log.job(uid) is not None:
                yield f"all of {uid}", (log.ever(uid), log.versions(uid), log.bootstrapped_at(uid))
            if log.leader(uid) is not None:
                yield f"last of {uid}", [log.assignments.last(leader) for leader in _job_groups(uid)]
                yield (
                    f"founders of {uid}",
                    [
                        (log.job_groups.founders(leader), log.job_groups.group(leader))
                        for leader in _job_groups(uid)
                    ],
                )
        for uid in self.flows:
            yield f"flow {uid}", (log.flow(uid), log.lacks(uid), log.has_ended(uid), log.readers(uid))
            flow = log.flow(uid)
            if flow is not None:
                equal = log.equal(flow.fragment)
                yield f"founder of {uid}", (log.job_groups.of(uid), equal.uid if equal is not None else "")
        for program in self.programs:
            yield f"program {program.uid}", (log.program(program.uid), log.has_program(program.uid))
            yield f"like {program.uid}", log.find_program(program.name, program.creator)
            yield f"next of {program.uid}", log.generation(program.name, program.creator)


def _job_groups(uid: str) -> list[str]:
    return [group_uid(uid, place) for place in range(2)]


def _told(log: CatalogLog, proposal: Proposal) -> tuple[LogEntry, ...] | str:
    try:
        return grow(log, proposal)
    except UserError as refused:
        return str(refused)
