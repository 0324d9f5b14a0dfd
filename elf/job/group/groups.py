"""The job groups that are here: of which jobs and key ranges this agent leads the group, from when until
when.

    where, create ─▶ bootstrapped ─┐
    (the store) ─▶ restore ────────┼─▶ here ─▶ drop, release
    (elected) ─▶ take_up ──────────┘

A job group makes a job's record durable before it tells anybody. Then it asks the voters of the catalog log
for the entry until it sees it (``elf.job.group.proposals``). It proposes a flow of its own for each fragment,
with the root here. The entry says which flows the job actually reads: equal ones that run already are shared,
wherever their roots are (``elf.job.group.reading``). An unknown id is looked up, never created: ``create`` is
called only for a job that the log does not know. ``elf.job.group.router`` handles messages for a job group
that is here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, cast

from elf.fields import replace
from elf.job.catalog.log import CatalogLog
from elf.job.catalog.readers import is_read, not_led, not_taken
from elf.job.catalog.wishes import Wishes
from elf.job.effects import Disbelieved, Effect, SaveJob, Send
from elf.job.group.group import JobGroup
from elf.job.group.master import JobState, Master
from elf.job.group.outputs import Outputs
from elf.job.group.placing import Here, Place, Placing
from elf.job.group.port import StoredJob
from elf.job.group.proposals import Proposals
from elf.job.group.reading import Reading
from elf.job.group.reconfiguration import proposed
from elf.job.group.records import group_key
from elf.job.group.shards import Shards
from elf.job.group.swaps import Swaps
from elf.job.messages.groups import (
    CreateJob,
    DropJob,
    FillHistory,
    HandOverJob,
    Inspect,
    ReadPast,
    ReconfigureJob,
    SubscribeJob,
)
from elf.job.messages.inquiries import NotifyJob
from elf.job.messages.log import PauseDecided
from elf.job.rollup.decide import RootSettings
from elf.job.rollup.flowroots import StoredPanes
from elf.job.spec import JobSpec, VersionRecord, app_id, job_of
from elf.job.tables import CopyShard, ReadShard, ReadTable, StoredTable
from elf.job.work import JobWork
from elf.wire.base import Answer

COMMIT_US: Final = 2_000
"""What a commit of panes, or of windows, takes its agent beside what is measured of it: messages, the group's
log, readers. Eight jobs with windows of a second, all led by one of five simulated agents, made that agent
busy for 4.1 ms a window more than was measured (and measured 3.9)."""
LOOK_MS: Final = 1_000
"""The pause between two looks at all job groups: a group with nothing under way costs nothing in between."""


def nobody(group: bytes) -> tuple[str, ...]:
    """The voters of a group where there are none."""
    return ()


class JobGroups:
    """The job groups at ``address``. ``name``: what people call this agent; ``voters``: those of a job group,
    by the key of its Raft group."""

    def __init__(
        self,
        address: str,
        log: CatalogLog,
        settings: RootSettings,
        name: str = "",
        voters: Callable[[bytes], tuple[str, ...]] = nobody,
        rings: Iterable[StoredTable] = (),
    ) -> None:
        self._address = address
        self._log = log
        self._voters = voters
        self._job_groups: dict[str, JobGroup] = {}
        self._led: dict[str, int] = {}
        self.programs: set[str] = set()
        """Jobs in Python whose job groups we lead: their masters are not here (``elf.job.program.masters``),
        but who founds the groups of their further trees is."""
        self.reading = Reading(address, log, settings, self._job_groups, self._led, name or address)
        self.roots = self.reading.roots
        self.mirrors = self.reading.mirrors
        self._proposals = Proposals(address, log, self._job_groups, self._led, settings.grace_ms, self.voters)
        self.wishes = Wishes(log)
        self.shards = Shards(address, log, rings)
        self.swaps = Swaps(address, log, self._last_result)
        self._look_ms = 0
        self._again: set[str] = set()
        """Job groups whose windows are to be made once more: their panes now come from elsewhere."""
        self._placing = Placing()
        self._generations: dict[tuple[str, str], int] = {}
        self._misfounded: set[str] = set()
        self._outputs: set[str] = set()
        """Jobs here that have outputs, or had."""

    # -- what is here ----------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[JobGroup]:
        return iter(self._job_groups.values())

    def get(self, uid: str) -> JobGroup | None:
        """The job group of a job, if it is here and at work."""
        return self._job_groups.get(uid)

    def has(self, uid: str) -> bool:
        """Whether a job group is here and at work."""
        return uid in self._job_groups

    def is_coming(self, flow: str) -> bool:
        """Whether a flow may have its root here soon."""
        return self.reading.is_coming(flow)

    def is_rising(self, uid: str) -> bool:
        """Whether the log has a job group here that is not up yet."""
        return uid not in self._job_groups and self._log.leader(uid) == self._address

    def spent(self) -> dict[str, int]:
        """CPU time of the groups that we lead so far, in µs: of windows, and of panes at their roots, with
        what goes with each commit of them."""
        found = {}
        for uid in self._led:
            group = self._job_groups.get(uid)
            counts = [self.roots.counts(flow) or {} for flow in self._log.job_groups.flows(uid)]
            us = 0 if group is None else group.final_us + COMMIT_US * group.commits
            found[uid] = us + sum(
                one.get("commit_us", 0) + COMMIT_US * one.get("commits", 0) for one in counts
            )
        return found

    def spent_on_windows(self) -> dict[str, int]:
        """The part of it that is for windows beside panes."""
        return {group.master.spec.uid: group.final_us + COMMIT_US * group.commits for group in self}

    def promised(self) -> dict[str, tuple[int, bool]]:
        """What the windows of jobs here have come to that promise when they come: as ``JobGroup.reached``."""
        told = {uid: group.reached() for uid, group in self._job_groups.items() if uid in self._led}
        return {uid: one for uid, one in told.items() if one is not None}

    def work_out(self, entry: PauseDecided, now_ms: int) -> list[Effect]:
        """The catalog log wants other settings of a job that is led here."""
        group = self._job_groups.get(entry.uid)
        return [] if group is None else [*group.work_out(entry, now_ms), *self.advance(group, now_ms)]

    def scaling(self) -> set[str]:
        """The groups that we lead of jobs that scale by themselves."""
        specs = {uid: self._log.job(job_of(uid)) for uid in self._led}
        return {uid for uid, spec in specs.items() if spec is not None and spec.scale is not None}

    def term(self, uid: str) -> int | None:
        """The term in which we lead a job group; None: we do not lead it."""
        return self._led.get(uid)

    def leads_at(self, address: str, uid: str) -> bool:
        """Whether we are at this address and lead a group, and the log says so too."""
        return uid in self._led and address == self._address == self._log.leader(uid)

    def is_at_rest(self, uid: str) -> bool:
        """Whether nothing of a group that we lead is half made: no pane of which something is here, and no
        window."""
        group, flows = self._job_groups.get(uid), self._log.job_groups.flows(uid)
        roots = [root for flow in flows if (root := self.roots.get(flow)) is not None]
        if any(root.covered.in_flight or root.covered.holds() for root in roots):
            return False
        return group is None or not any(version.owes() for version in group.master.versions)

    def voters(self, uid: str) -> tuple[str, ...]:
        """The members of a job group to which we belong, by address; none if it is not replicated."""
        return self._voters(group_key(uid))

    def jobs(self) -> tuple[Master, ...]:
        return tuple(group.master for group in self)

    def read(self) -> tuple[Master, ...]:
        """The masters of the jobs that have subscribers."""
        return tuple(group.master for group in self if group.subscribers)

    def work(self, uids: Iterable[str], *, costs: bool = False) -> tuple[JobWork, ...]:
        """The work of the masters of those of these jobs that are here; ``costs``: and what they have learned
        of them."""
        here = [self._job_groups[uid] for uid in dict.fromkeys(uids) if uid in self._job_groups]
        return tuple(replace(one.work(), costs=one.costs if costs else None) for one in here)

    def to_learn(self, now_ms: int) -> JobSpec | None:
        """A job of which it is time to learn what it costs; one at a time."""
        return next((one.master.spec for one in self if one.is_to_learn(now_ms)), None)

    def to_renew(self, now_ms: int, every_ms: int) -> JobSpec | None:
        """A job of which it is time to see whether tables that it joins have other rows; one at a time. One
        that others read stays as it is."""
        due = (one.master.spec.uid for one in self if one.is_to_renew(now_ms, every_ms))
        specs = (self._log.job(uid) for uid in due if not self._log.read_by(uid))
        return next((spec for spec in specs if spec is not None), None)

    def check(self) -> None:
        self.reading.check()

    def _last_result(self, uid: str) -> int | None:
        """The number of a job's last result, if its master is here."""
        group = self._job_groups.get(uid)
        return group.subscribers.published if group is not None and uid in self._led else None

    # -- how they come ---------------------------------------------------------------------------------------

    def where(self, request: CreateJob, now_ms: int) -> Place:
        """Where a job that the log does not know is to have its job group."""
        asked = request.spec
        for group in self:
            if _named(group.master.spec) == _named(asked):
                return Here(app_id(asked.name, asked.creator))
        return self._placing.where(request, len(self._job_groups), now_ms)

    def placed(self, spec: JobSpec) -> None:
        """The log has a new job, wherever its job group is: the next request for that name means another
        job."""
        self._placing.placed(spec.name, spec.creator)

    def known(self, spec: JobSpec) -> None:
        """A job of that generation has existed."""
        named = _named(spec)
        self._generations[named] = max(self._generations.get(named, 0), spec.generation)

    def create(
        self, request: CreateJob, key: bytes, now_ms: int, replaces: str = ""
    ) -> tuple[JobSpec | None, list[Effect]]:
        """Create a job here, the place of ``key``; returns (the job, effects), or (None, the refusal). The
        job that it ``replaces`` goes on until the log has the new one."""
        asked = request.spec
        for uid, group in self._job_groups.items():
            if _named(group.master.spec) == _named(asked) and uid != replaces:
                first = group.reconfiguration.creator
                if first is not None and (first.id, first.origin) == (request.id, request.origin):
                    return None, []
                return None, [refusal(request)]
        named = _named(asked)
        generation = 1 + max(self._generations.get(named, 0), self._log.generation(*named) - 1)
        spec = replace(asked, generation=generation, master=self._address, replaces=replaces)
        spec = spec.with_flows(proposed(spec, key, self._address))
        self.known(spec)
        record = VersionRecord(spec, note="CREATE")
        durable = not spec.replicated
        group = JobGroup(self._address, self._log, Master([record]), now_ms, durable=durable, creator=request)
        self._job_groups[spec.uid] = group
        self.stir(spec.uid, now_ms)
        return spec, [SaveJob(spec, "preparing", None, (record,))]

    def bootstrap(self, uid: str) -> bool:
        """Whether a job is being created here, and its group is not there yet."""
        return uid in self._job_groups and not self._job_groups[uid].durable

    def bootstrapped(self, uid: str, term: int) -> None:
        """The group of a new job is there, and we lead it."""
        self._led[uid] = term
        self.shards.take_up(uid, ())
        self._job_groups[uid].durable = True
        self.stir(uid, 0)

    def restore(
        self, jobs: tuple[StoredJob, ...], flows: Mapping[str, StoredPanes], now_ms: int
    ) -> list[Effect]:
        """Continue jobs and flows of an earlier life, or of another leader."""
        for job in jobs:
            self.known(job.spec)
            if job.state == "dropped":
                if not self._log.is_dropped(job.spec.uid):
                    self._proposals.dropping.add(job.spec)
                continue
            state, assembled = cast(JobState, job.state), job.assembled
            master = Master(job.versions, state=state, assembled=assembled, now_ms=now_ms)
            self._job_groups[job.spec.uid] = JobGroup(
                self._address,
                self._log,
                master,
                now_ms,
                published=job.published,
                outputs=job.outputs,
                tables=job.tables,
                costs=job.costs,
            )
            self._outputs.add(job.spec.uid)  # the log may have dropped what its group has
        found = [*self._give_way(), *self._deliver(now_ms)]
        return [*found, *self.roots.follow(now_ms, flows), *self.reading.attach(now_ms)]

    def take_up(
        self, job: StoredJob, flows: Mapping[str, StoredPanes], term: int, now_ms: int
    ) -> list[Effect]:
        """We lead a job group in this term: continue with all that it has committed."""
        self._led[job.spec.uid] = term
        self.shards.take_up(job.spec.uid, job.tables)
        self.stir(job.spec.uid, 0)
        return self.restore((job,), flows, now_ms)

    def take_up_range(
        self,
        uid: str,
        flows: Mapping[str, StoredPanes],
        tables: Iterable[StoredTable],
        term: int,
        now_ms: int,
    ) -> list[Effect]:
        """We lead the job group of a key range in this term: be the root of its flows, and see to its shards
        of ``tables``."""
        self._led[uid] = term
        self.shards.take_up(uid, tables)
        self.stir(uid, 0)
        return [*self.roots.follow(now_ms, flows), *self.reading.attach(now_ms)]

    def wait_for(self, uid: str, founder: str) -> None:
        """We lead the group of a key range that this agent has bootstrapped: the log is to say so."""
        self._proposals.founders.wait_for(uid, founder)
        self._proposals.hurry()

    def wait_no_more(self, uid: str) -> None:
        """The log has decided whether that group has begun, or we no longer lead it."""
        self._proposals.founders.wait_no_more(uid)

    # -- how they go -----------------------------------------------------------------------------------------

    def release(self, uid: str, now_ms: int) -> list[Effect]:
        """We no longer lead a job group: another agent does what is not committed."""
        self._led.pop(uid, None)
        self.shards.release(uid)
        left = self._job_groups.pop(uid, None)
        found = left.reconfiguration.moved() if left is not None else []
        self._proposals.dropping.release(uid)
        self.reading.release(set(self._log.job_groups.flows(uid)))
        return [*found, *self.reading.attach(now_ms)]

    def asked_to_drop(self, request: DropJob, now_ms: int) -> list[Effect]:
        if request.uid not in self._job_groups and request.uid not in self._proposals.dropping:
            return [absent(self._log, request)]
        if self._log.is_dropped(request.uid):
            return [Send(request.origin, Answer(id=request.id))]
        group, readers = self._job_groups.get(request.uid), self._log.read_by(request.uid)
        if group is not None and readers:
            return [
                Send(request.origin, Answer(id=request.id, error=is_read(group.master.spec.name, readers)))
            ]
        if group is not None and (why := self.wishes.refused(request, group.master.spec, now_ms)):
            return disbelieved(request, group.master.spec, why)
        self._proposals.dropping.asked(request)
        if group is None or request.author is None or self._log.trust is None:
            return self.drop(request.uid)
        self._proposals.dropping.add(group.master.spec, request.author)
        self._proposals.hurry()
        return []

    def refused_move(self, request: HandOverJob, now_ms: int) -> list[Effect]:
        """The answer where a job's group is not handed on; empty: it may be."""
        group = self._job_groups.get(request.uid)
        if group is None:
            return [absent(self._log, request)]
        if why := self.wishes.refused(request, group.master.spec, now_ms):
            return disbelieved(request, group.master.spec, why)
        if not self._log.is_at(request.agent, request.address):
            error = f"no agent {request.agent} is expected at {request.address}"
            return [Send(request.origin, Answer(id=request.id, error=error))]
        return []

    def drop(self, uid: str) -> list[Effect]:
        group = self._job_groups.pop(uid, None)
        if group is None:
            return []
        self._proposals.dropping.add(group.master.spec)
        self._proposals.hurry()
        return group.master.drop()

    def dropped(self, uid: str) -> list[Effect]:
        """The catalog log has a job's tombstone."""
        group = self._job_groups.get(uid)
        found: list[Effect] = []
        if group is not None:
            spec = group.master.spec
            why = not_taken(self._log, spec) or f"job {spec.name} has been dropped meanwhile"
            found = group.reconfiguration.not_created(why)
        return [*found, *self.drop(uid), *self._proposals.dropping.dropped(uid)]

    def _give_way(self) -> list[Effect]:
        """When a job was created at two nodes at once (on both sides of a partition, say, or by a message
        that went both ways), the one in the log wins. The other has not begun, and never does."""
        found: list[Effect] = []
        for group in [group for group in self if group.master.state == "preparing"]:
            uid = group.master.spec.uid
            founder = self._log.bootstrapped_at(uid)
            if founder and group.founder not in ("", founder):
                del self._job_groups[uid]
                self._led.pop(uid, None)
                self._misfounded.add(uid)
                found.extend(group.reconfiguration.not_created(already(group.master.spec.name)))
        return found

    def is_misfounded(self, uid: str) -> bool:
        """Whether a job was bootstrapped here, while the log has it from another founder: its group must
        end."""
        return uid in self._misfounded

    def retired(self, uid: str) -> None:
        """We are no longer in a job group's Raft group."""
        self._misfounded.discard(uid)

    # -- time, and what the catalog log says -----------------------------------------------------------------

    def log_changed(self, now_ms: int) -> list[Effect]:
        """The catalog log says more about jobs and flows."""
        found = [*self._give_way(), *self.roots.follow(now_ms), *self.reading.attach(now_ms)]
        found.extend(self._deliver(now_ms))
        self.shards.follow()
        self.swaps.follow()
        for group in self._changing():
            found.extend(group.refused())
            found.extend(self.advance(group, now_ms))
        return found

    def _deliver(self, now_ms: int) -> list[Effect]:
        """Follow what the log says of outputs."""
        self._outputs = {
            uid for uid in (*self._outputs, *self._log.with_outputs()) if uid in self._job_groups
        }
        found = [effect for one in self._delivering() for effect in one.follow(self._log, now_ms)]
        self._outputs = {uid for uid in self._outputs if self._job_groups[uid].outputs}
        return found

    def _delivering(self) -> list[Outputs]:
        """Those of jobs that have some."""
        if not self._outputs:
            return []
        here = (self._job_groups.get(uid) for uid in sorted(self._outputs))
        return [group.outputs for group in here if group is not None]

    def _changing(self) -> list[JobGroup]:
        """Job groups of jobs that begin, or are being changed."""
        return [group for group in self if group.master.is_changing]

    def advance(self, group: JobGroup, now_ms: int) -> list[Effect]:
        """The next effects of a master."""
        found = group.advance(now_ms)
        if found:
            self.stir(group.master.spec.uid, now_ms)
        return found

    def stir(self, uid: str, at_ms: int) -> None:
        """Look at a job group soon: the log may lack something of it."""
        self._proposals.stir(uid, at_ms)

    def make_again(self, uid: str) -> None:
        """The panes of windows that were to be made now come from elsewhere."""
        self._again.add(uid)

    def deadline(self, now_ms: int) -> int | None:
        waits = [
            self.shards.deadline(),
            self.swaps.deadline(),
            *self.reading.deadlines(now_ms),
            *(one.deadline(now_ms) for one in self._delivering()),
        ]
        looks = self._proposals or self.programs
        waits += [self._look_ms, self._proposals.deadline()] if looks else []
        return min((at for at in waits if at is not None), default=None)

    def tick(self, now_ms: int, voters: Sequence[str]) -> list[Effect]:
        """``voters``: of the catalog log, by address."""
        found: list[Effect] = []
        everything, due_ms = now_ms >= self._look_ms, self._proposals.deadline()
        if everything:
            self._look_ms = now_ms + LOOK_MS
            self._proposals.stir_all()
        if everything or (due_ms is not None and now_ms >= due_ms):
            found.extend(self._proposals.say(voters, now_ms))
        if everything:
            found.extend(self._look(now_ms))
        found.extend(self.reading.tick(now_ms))
        for outputs in self._delivering():
            found.extend(outputs.advance(now_ms))
        found.extend(self.shards.advance(now_ms))
        found.extend(self.swaps.advance(voters, now_ms))
        for group in self._changing():
            found.extend(self.advance(group, now_ms))
        again, self._again = self._again, set()
        for uid in sorted(again & self._job_groups.keys()):
            found.extend(self._job_groups[uid].master.assemble())
        return found

    def _look(self, now_ms: int) -> list[Effect]:
        """Look at all job groups, for what depends on time alone."""
        found = [*self._expire(now_ms), *self._proposals.dropping.expire(now_ms)]
        self._proposals.founders.look({*self._led, *self.programs}, now_ms)
        for group in list(self):
            found.extend(
                group.tell_of_silence(self._proposals.founders.why(group.master.spec, now_ms), now_ms)
            )
            found.extend(group.reconfiguration.tell_of_units(now_ms))
            found.extend(self.advance(group, now_ms))
            found.extend(group.prune(now_ms))
        return found

    def _expire(self, now_ms: int) -> list[Effect]:
        found: list[Effect] = []
        for uid, group in list(self._job_groups.items()):
            group.subscribers.expire(now_ms)
            if group.subscribers.orphaned(now_ms):
                found.extend(self.drop(uid))
        return found


def absent(
    log: CatalogLog,
    request: DropJob
    | ReconfigureJob
    | HandOverJob
    | SubscribeJob
    | Inspect
    | ReadPast
    | ReadTable
    | ReadShard
    | CopyShard
    | FillHistory,
) -> Effect:
    """The answer to one who takes us for the job group of a job."""
    return Send(request.origin, Answer(id=request.id, error=not_led(log, job=job_of(request.uid))))


def disbelieved(
    request: DropJob | ReconfigureJob | HandOverJob | NotifyJob | FillHistory, spec: JobSpec, why: str
) -> list[Effect]:
    """What becomes of a change that nobody who may has signed."""
    answer = Answer(id=request.id, error=f"job {spec.name}: refused: {why}")
    return [Disbelieved(type(request).__name__, request.origin, why), Send(request.origin, answer)]


def refusal(request: CreateJob) -> Effect:
    """The answer to the creator of a job that exists."""
    return Send(request.origin, Answer(id=request.id, error=already(request.spec.name)))


def already(name: str) -> str:
    """The refusal to create a job that exists."""
    return f"job {name} exists already; DROP JOB {name} first, or choose another name"


def _named(spec: JobSpec) -> tuple[str, str]:
    return spec.name, spec.creator
