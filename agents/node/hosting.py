"""The groups of job groups of one agent (``elf.job.group.records``): those of which it is a member, and those
that it leads, between ``JobGroups`` and the group desk.

    bootstrapped ─▶ elected ─┬─▶ load what is applied ─▶ take up ─▶ commit, commit, … ─▶ deposed: released
                        └─▶ (of a key range) wait until the log has it as begun ─▶ load …
    its job is over ─▶ ended ─▶ forgotten

A leader that is deposed loses its job groups; they begin anew, from the store, where the next leader is, as
after a restart. All that is under way is nothing then. ``JobGroups`` tells the catalog log where the job
group is. What is committed, and who is told, is decided elsewhere (``elf.job.group.commits``): it comes here
once, as a record.

The job group of a key range after a job's first (``TREES m``) is bootstrapped by the agent that the log names
for it, once in that agent's life (``BOOTSTRAPPED_FACT``): a group of that key may be elsewhere by then. Its
leader takes it up when the log says that it has begun; all members end it when the log says that another
agent is to found one (``elf.job.catalog.bootstrap``).

A job group is over when the log has the job's tombstone and the end of its flows: each member forgets it
then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from agents.node.beginning import BOOTSTRAPPED_FACT, as_lines
from agents.node.groups import NOTHING, GroupDesk, GroupStep, JobGroupMachine
from agents.node.heirs import REST_MS, Heirs
from agents.node.staffing import QUICK_MS, STAFF_MS, Staffing
from elf.job.catalog.assignments import DECIDED_MS
from elf.job.catalog.log import CatalogLog
from elf.job.catalog.voters import LOG_GROUP
from elf.job.effects import Effect, MakeReady, SaveFact, Send
from elf.job.events import MadeReady
from elf.job.group import records as record
from elf.job.group.groups import JobGroups
from elf.job.group.port import (
    Commit,
    ForgetJobGroup,
    FoundJobGroup,
    JobGroupEffect,
    JobGroupLoaded,
    LoadJobGroup,
    Summarised,
    SummariseJobGroup,
)
from elf.job.group.records import group_key
from elf.job.messages.groups import GetReady, HandOverJob, Ready
from elf.job.messages.log import JobGroupAssigned, PauseDecided, TreesDecided
from elf.job.program import outgoing
from elf.job.program.programs import Programs
from elf.job.program.spec import ProgramSpec
from elf.job.spec import END_OF_TIME, is_range, job_of
from elf.wire.base import Answer

RETRY_MS: Final = 200
STRAY_MS: Final = 60_000
"""A voter slot that has heard nothing of its group for so long is given up."""

Step = GroupStep | Effect | JobGroupEffect | outgoing.Step


@dataclass
class _Led:
    """A job group that we lead. ``again``: commits that its group could not take just then."""

    term: int
    again: list[Commit] = field(default_factory=list)
    ended: set[str] = field(default_factory=set)
    """Flows of versions that are over."""
    begun: bool = True
    """False: of a key range that the log has not as begun."""


class Hosting:
    """See the module's docstring. ``machines``: of all groups but the catalog log's; the desk makes them.
    ``most``: members of a job group; ``bootstrapped``: job groups of key ranges that this agent has
    bootstrapped."""

    def __init__(
        self,
        job_groups: JobGroups,
        log: CatalogLog,
        desk: GroupDesk,
        staffing: Staffing,
        machines: dict[bytes, JobGroupMachine],
        most: int,
        bootstrapped: Iterable[str],
        programs: Programs,
        voter: Callable[[], str | None],
    ) -> None:
        """``programs``: whose masters are here if we lead their groups; ``voter``: one of the catalog log."""
        self._most = most
        self._programs = programs
        self._voter = voter
        self._bootstrapped = set(bootstrapped)
        self._bootstrap: set[str] = set()
        self._job_groups = job_groups
        self._log = log
        self._desk = desk
        self._staffing = staffing
        self._machines = machines
        self._led: dict[bytes, _Led] = {}
        self._heirs = Heirs(job_groups)
        self._waits = False
        """A group is to be handed over, and what it is handed to is not ready."""
        self._readying: set[str] = set()
        """Jobs whose last windows are being made once more."""
        self._warm: set[str] = set()
        """Jobs whose last windows were, since we are to lead them."""
        self._strays: dict[bytes, int] = {}
        self._unbegun: set[bytes] = set()
        """Groups of key ranges that we lead and that the log has not as begun."""
        self._next_ms = 0
        self._retry_ms: int | None = None

    # -- what job groups want --------------------------------------------------------------------------------

    def holds(self, uid: str) -> bool:
        """Whether we are a member of a job group."""
        return self._desk.holds(self._key(uid))

    def _key(self, uid: str) -> bytes:
        return group_key(self._log.job_groups.group(uid))

    def hand_over(self, request: HandOverJob, now_ms: int) -> list[Effect]:
        """A job's group is to be led by another agent."""
        if refused := self._job_groups.refused_move(request, now_ms):
            return [*refused]
        self._staffing.hand_to(self._key(request.uid), request.address, now_ms)
        self._next_ms = now_ms
        return [Send(request.origin, Answer(id=request.id))]

    def assigned(self, entry: JobGroupAssigned, now_ms: int) -> None:
        """The catalog log wants a job group elsewhere. Its leader alone sees to it, at once or not at all
        (protocol 5.14)."""
        fresh = abs(now_ms - entry.at_ms) <= DECIDED_MS
        if fresh and self._job_groups.leads_at(entry.origin, entry.uid):
            self._staffing.hand_to(self._key(entry.uid), entry.target, now_ms)
            self._next_ms = now_ms

    def get_ready(self, sender: str, asked: GetReady) -> list[Effect]:
        """We are to lead a job's group next, as its leader says."""
        spec, uid = self._log.job(asked.uid), asked.uid
        if spec is None or self._log.leader(uid) != sender or uid in self._readying or not self.holds(uid):
            return []
        self._readying.add(uid)
        return [MakeReady(sender, spec)]

    def made_ready(self, event: MadeReady) -> list[Effect]:
        """The last windows of the job are made once more, for its leader, or for ourselves."""
        if not event.asker:
            return []
        self._readying.discard(event.uid)
        self._warm.add(event.uid)
        return [Send(event.asker, Ready(uid=event.uid, made_us=event.made_us))]

    def is_ready(self, sender: str, said: Ready, now_ms: int) -> None:
        """A member has made the last windows that it knows."""
        if self._heirs.heard(sender, said):
            self._next_ms = now_ms

    def is_to_change(self, entry: TreesDecided | PauseDecided, now_ms: int) -> bool:
        """Whether it is ours to give a job another version, as the catalog log wants it: as above."""
        fresh = abs(now_ms - entry.at_ms) <= DECIDED_MS
        return fresh and self._job_groups.leads_at(self._log.leader(entry.uid) or "", entry.uid)

    def found(self, leader: FoundJobGroup, now_ms: int) -> Sequence[Step]:
        """A new job has its job group here."""
        key = group_key(leader.uid)
        return [] if self._desk.holds(key) else self._desk.create(key, leader.state, now_ms)

    def commit(self, commit: Commit, now_ms: int) -> Sequence[Step]:
        """Have the group of a job group that we lead commit a record: what it stands for is applied then."""
        key = self._key(commit.uid)
        led = self._led.get(key)
        return [] if led is None or led.term != commit.term else self._propose(key, led, commit, now_ms)

    def _propose(self, key: bytes, led: _Led, commit: Commit, now_ms: int) -> Sequence[Step]:
        self._machines[key].wants(commit)
        if led.again:  # in the order in which they were wanted: later ones may rest on earlier ones
            led.again.append(commit)
            return []
        return self._desk.propose(key, commit.record, now_ms, commit.term)

    # -- what groups say -------------------------------------------------------------------------------------

    def follow(self, now_ms: int) -> list[Step]:
        """What the groups' word leads to: job groups are taken up and released, records are told again."""
        outputs = self._desk.take_outputs(log=False)
        if outputs is NOTHING:
            return []
        found: list[Step] = []
        for key in outputs.changed:
            held, led = self._desk.holds(key), self._led.get(key)
            term = self._desk.leading.get(key) if held else None  # that word may come later
            if led is not None and led.term != term:
                found.extend(self._deposed(key, led, now_ms))
            if term is not None and key not in self._led:
                found.extend(self._elected(key, term, now_ms))
            if not held:
                found.extend(self._retired(key))
        for key, told in outputs.rejected:
            led, machine = self._led.get(key), self._machines.get(key)
            commit = machine.commits.get(told) if machine is not None else None
            if led is not None and commit is not None:
                led.again.append(commit)
                self._retry_ms = self._retry_ms or now_ms + RETRY_MS
        return found

    def _deposed(self, key: bytes, led: _Led, now_ms: int) -> Sequence[Step]:
        del self._led[key]
        self._unbegun.discard(key)
        machine = self._machines[key]
        self._heirs.forget(machine.uid)
        machine.wants_no_more()
        self._job_groups.wait_no_more(machine.uid)
        left = self._programs.release(machine.uid, now_ms)
        self._job_groups.programs.discard(machine.uid)
        if machine.is_program or not led.begun:
            return left
        return [*left, *self._job_groups.release(machine.uid, now_ms)]

    def _retired(self, key: bytes) -> Sequence[Step]:
        """We are no member any more, or the job group is over."""
        machine = self._machines.pop(key, None)
        if machine is None or not machine.uid:
            return []
        if any(other.uid == machine.uid for other in self._machines.values()):
            return []  # another founder's, which has begun: what is in the store is of that one
        self._job_groups.retired(machine.uid)
        self._warm.discard(machine.uid)
        return [ForgetJobGroup(machine.uid, machine.flows)]

    def _elected(self, key: bytes, term: int, now_ms: int) -> Sequence[Step]:
        self._led[key] = _Led(term)
        self._next_ms = 0
        machine = self._machines[key]
        if self._job_groups.bootstrap(machine.uid):
            self._job_groups.bootstrapped(machine.uid, term)
            return []
        found: list[Step] = []
        if is_range(machine.uid) and machine.uid not in self._bootstrapped:
            found += self._range_bootstrapped(machine.uid)
        if is_range(machine.uid):
            self._led[key].begun = False
            self._unbegun.add(key)
            return [*found, *self.log_grew()]
        return [*found, self._load(key, term)]

    def _load(self, key: bytes, term: int) -> LoadJobGroup:
        machine = self._machines[key]
        named = (flow.uid for spec in self._log.versions(machine.uid) for flow in spec.flows)
        return LoadJobGroup(key, term, machine.uid, tuple(dict.fromkeys((*machine.flows, *named))))

    def log_grew(self) -> list[Step]:
        """Take up the job groups of key ranges that we lead as the log has them begun; propose that
        otherwise."""
        found: list[Step] = []
        for key in sorted(self._unbegun):
            machine = self._machines[key]
            begun = self._log.job_groups.has_begun(machine.uid, machine.founder)
            if begun is None:
                self._job_groups.wait_for(machine.uid, machine.founder)
                continue
            self._unbegun.discard(key)
            self._job_groups.wait_no_more(machine.uid)
            if begun:
                self._led[key].begun = True
                found.append(self._load(key, self._led[key].term))
            else:
                self._next_ms = 0
        return found

    def found_ranges(self, agent_id: str) -> list[Step]:
        """Found the job groups of key ranges that the log wants this agent to found."""
        named = [
            (uid, group_key(self._log.job_groups.group(uid))) for uid in self._log.to_bootstrap(agent_id)
        ]
        new = [
            (uid, key)
            for uid, key in named
            if uid not in self._bootstrapped | self._bootstrap and not self._desk.holds(key)
        ]
        self._bootstrap.update(uid for uid, _ in new)
        return [SummariseJobGroup(key, 0, uid, self._log.job_groups.flows(uid), agent_id) for uid, key in new]

    def _range_bootstrapped(self, uid: str) -> list[Step]:
        """Its group is there."""
        self._bootstrap.discard(uid)
        self._bootstrapped = {
            known for known in self._bootstrapped if self._log.leader(known) is not None
        } | {uid}
        return [SaveFact(BOOTSTRAPPED_FACT, as_lines(self._bootstrapped))]

    def _take_up(self, spec: ProgramSpec, uid: str, event: JobGroupLoaded, now_ms: int) -> Sequence[Step]:
        """We lead a job group of a job in Python."""
        if uid == spec.uid and len(spec.trees) > 1:
            self._job_groups.programs.add(uid)
        kept = event.master
        last = (0, b"") if kept is None else (kept.number, kept.checkpoint)
        return self._programs.take_up(spec, uid, event.term, last, now_ms, self._voter())

    # -- what has been done ----------------------------------------------------------------------------------

    def heard(self, event: Summarised | JobGroupLoaded, now_ms: int) -> Sequence[Step]:
        match event:
            case Summarised() if event.index:
                return self._desk.compact(event.group, event.index, event.state, now_ms)
            case Summarised():
                held = self._desk.holds(event.group)
                return [] if held else self._desk.create(event.group, event.state, now_ms)
            case JobGroupLoaded():
                led = self._led.get(event.group)
                if led is None or led.term != event.term:
                    return []
                uid = self._machines[event.group].uid
                program = self._log.program(job_of(uid)) if is_range(uid) else None
                program = event.master.spec if program is None and event.master is not None else program
                if program is not None:
                    return self._take_up(program, uid, event, now_ms)
                if is_range(uid):
                    return self._job_groups.take_up_range(uid, event.flows, event.tables, event.term, now_ms)
                if event.job is None or not event.job.versions:
                    return []
                left = [MakeReady("", event.job.spec)] if uid in self._warm else []
                self._warm.discard(uid)
                return [*left, *self._job_groups.take_up(event.job, event.flows, event.term, now_ms)]

    def kept(self, key: bytes) -> str:
        """What a group of ours keeps, for people; empty: nothing any more, or nothing yet."""
        machine = self._machines.get(key)
        uid = machine.uid if machine is not None else ""
        spec = self._log.ever(job_of(uid)) or self._log.program(job_of(uid)) if uid else None
        return "" if spec is None or self._is_over(uid, machine) else f"job {spec.name}"

    def leader_of(self, key: bytes) -> str:
        """Where the job group of a group of ours is, as the log has it; empty: nowhere."""
        machine = self._machines.get(key)
        return (machine is not None and self._log.leader(machine.uid)) or ""

    def _is_over(self, uid: str, machine: JobGroupMachine | None) -> bool:
        """Whether the log says that a job group is over, or that another agent has bootstrapped it."""
        if self._log.is_dropped(job_of(uid)) and self._log.leader(uid) is None:
            return True
        return (
            is_range(uid)
            and machine is not None
            and self._log.job_groups.has_begun(uid, machine.founder) is False
        )

    # -- time ------------------------------------------------------------------------------------------------

    def deadline(self) -> int | None:
        held = self._desk.groups.slots > self._desk.holds(LOG_GROUP)
        waits = [self._retry_ms, self._next_ms if held else None]
        return min((at for at in waits if at is not None), default=None)

    def tick(self, now_ms: int) -> list[Step]:
        found: list[Step] = []
        if self._retry_ms is not None and now_ms >= self._retry_ms:
            self._retry_ms = None
            for key, led in self._led.items():
                again, led.again = led.again, []
                for commit in again:
                    found.extend(self._desk.propose(key, commit.record, now_ms, commit.term))
        if now_ms >= self._next_ms:
            self._waits = False
            held = [key for key in self._desk.held() if key != LOG_GROUP]
            for key in held:
                if self._staffing.due(key) <= now_ms:
                    found.extend(self._look(key, now_ms))
            due = (at for key in held if (at := self._staffing.due(key)) > now_ms)
            # many groups come to be looked at together, not each at a moment of its own
            self._next_ms = max(now_ms + QUICK_MS, min((now_ms + STAFF_MS, *due)))
            self._next_ms = now_ms + REST_MS if self._waits else self._next_ms
            found.extend(self._heirs.take())
        return found

    def peer_up(self, now_ms: int) -> None:
        """An agent has come that may be wanted in our groups."""
        self._next_ms = min(self._next_ms, now_ms + QUICK_MS)

    def _look(self, key: bytes, now_ms: int) -> Sequence[Step]:
        """End a group that is over; else see to who is in it."""
        machine = self._machines.get(key)
        uid = machine.uid if machine is not None else ""
        if not uid:
            since = self._strays.setdefault(key, now_ms)
            return self._desk.end(key, now_ms) if now_ms - since >= STRAY_MS else []
        self._strays.pop(key, None)
        if self._is_over(uid, machine):
            return self._desk.end(key, now_ms)
        if self._job_groups.is_misfounded(uid) or self._programs.masters.is_misfounded(uid):
            return self._desk.end(key, now_ms) if key in self._led else []
        spared = self._log.assignments.left_behind(uid)
        ready = partial(self._ready, uid, now_ms)
        return [
            *self._end_flows(key, uid, now_ms),
            *self._staffing.look(key, self._most, now_ms, spared, ready),
        ]

    def _ready(self, uid: str, now_ms: int, heir: str) -> bool:
        """Whether a member may lead a group of ours."""
        may = self._heirs.ready(uid, heir, now_ms)
        self._waits |= not may
        return may

    def _end_flows(self, key: bytes, uid: str, now_ms: int) -> list[Step]:
        """A flow that no version of any job reads any more has ended before its job group: forget its
        panes."""
        found: list[Step] = []
        led = self._led.get(key)
        for flow in self._machines[key].flows if led is not None else ():
            if led is not None and self._log.has_ended(flow) and flow not in led.ended:
                led.ended.add(flow)
                fact = record.PanesDropped(flow, END_OF_TIME)
                found += self._propose(key, led, Commit(uid, led.term, record.encode(fact)), now_ms)
        return found
