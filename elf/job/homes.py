"""The jobs that this node is the home of: master of the job, publisher of its windows.

A home makes a job's record durable before it tells anybody, and asks the stream log's keepers for the entry
until it sees it. It proposes a flow of its own for each fragment, with the root here; the entry says which
flows the job reads indeed (equal ones that run already are shared, wherever their roots are). Their panes are
those of the roots here (``roots``) or copies (``mirrors``). Each window is committed, then published, once a
revision. *Unknown is never new*: ``create`` is called only for a job that the log does not know.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import cast

import msgspec

from elf.errors import UserError
from elf.job.early import EarlyResults
from elf.job.effects import CommitWindows, Effect, PruneWindows, ReadWindows, SaveJob, Send
from elf.job.events import EarlyMade, Failure, PanesCommitted, PanesStored, WindowsCommitted, WindowsRead
from elf.job.flowroots import FlowRoots, StoredPanes, event_time
from elf.job.history import Segment
from elf.job.master import JobState, Master
from elf.job.messages import (
    Answer,
    CreateJob,
    DropJob,
    DropJobEntry,
    EarlyState,
    FlowHead,
    FunctionFailed,
    Inspect,
    JobFacts,
    JobFailed,
    MoveHome,
    Progress,
    SteerJob,
    SubscribeJob,
    WindowResult,
)
from elf.job.mirrors import Mirrors, Need
from elf.job.panes import PRUNE_MS, Panes
from elf.job.placing import Here, Place, Placing
from elf.job.root import RootSettings
from elf.job.spec import (
    END_OF_TIME,
    START_OF_TIME,
    Flow,
    JobSpec,
    VersionRecord,
    app_id,
)
from elf.job.steering import Steering, proposed
from elf.job.streamlog import StreamLog
from elf.job.tops import cut_of, widest
from elf.job.versions import Version
from elf.job.work import JobWork
from elf.ql.plan import Top

LEASE_MS = 10_000
"""A subscriber that does not renew for so long is forgotten."""
ROOT_SILENT_MS = 6_000
"""Whoever creates a job that shares a flow is told after so long that the root does not answer."""
ORPHAN_MS = 30_000
"""A one-shot SELECT's job that nobody reads for so long is dropped."""
WINDOWS_KEPT = 20_000
"""The last windows of a job that its home keeps."""


@dataclass
class _Home:
    """A job here. ``durable``: its record is; before that nobody hears of it."""

    master: Master
    durable: bool = True
    again: bool = False
    """Windows are to be made once more."""
    unsaved: SaveJob | None = None
    """The last word on its versions, while its group has not committed that: nobody hears of it either."""
    answers: list[tuple[SteerJob, str]] = field(default_factory=list)
    """How changes have ended, for those who asked for them."""
    subscribers: dict[str, int] = field(default_factory=dict)
    creator: CreateJob | None = None
    asker: SteerJob | None = None
    """Whoever waits for the end of a PREPARE."""
    created_ms: int = 0
    read_ms: int = 0
    published_us: int = START_OF_TIME
    failure: str = ""
    commits: int = 0
    rows: int = 0
    final_us: int = 0
    pruned_ms: int = 0
    early: EarlyResults = field(default_factory=EarlyResults)


@dataclass(frozen=True)
class StoredJob:
    """A job's record from the store, and by version the end of what was assembled of it."""

    spec: JobSpec
    state: str
    versions: tuple[VersionRecord, ...]
    assembled: Mapping[int, int] = field(default_factory=dict)


class Homes:
    """See the module's docstring."""

    def __init__(self, address: str, log: StreamLog, settings: RootSettings) -> None:
        self._address = address
        self._log = log
        self.roots = FlowRoots(address, log, settings, self._wanted_from, self._acts_for)
        self.mirrors = Mirrors(log, settings, self._wanted_from)
        self._homes: dict[str, _Home] = {}
        self._led: dict[str, int] = {}
        self._dropping: set[str] = set()
        self._drop_asked: dict[str, list[DropJob]] = {}
        self._next_ms = 0
        self._placing = Placing()
        self._steering = Steering(address, log)
        self.generations: dict[tuple[str, str], int] = {}

    def restore(
        self, jobs: tuple[StoredJob, ...], flows: Mapping[str, StoredPanes], now_ms: int
    ) -> list[Effect]:
        """Go on with jobs and flows of an earlier life, or of another leader."""
        for job in jobs:
            self._count(job.spec)
            if job.state == "dropped":
                if not self._log.is_dropped(job.spec.uid):
                    self._dropping.add(job.spec.uid)
                continue
            state, assembled = cast(JobState, job.state), job.assembled
            master = Master(job.versions, state=state, assembled=assembled, now_ms=now_ms)
            told = max(assembled.values(), default=START_OF_TIME)
            self._homes[job.spec.uid] = _Home(master, read_ms=now_ms, published_us=told)
        found = [*self.roots.follow(now_ms, flows), *self._attach(now_ms)]
        for job in jobs:
            home = self._homes.get(job.spec.uid)
            found.extend(home.master.recover() if home is not None else ())
        return found

    # -- replicated homes ------------------------------------------------------------------------------------

    def _acts_for(self, flow: Flow) -> bool:
        founder = self._log.founder(flow.uid) or ""
        spec = self._log.ever(founder)
        if spec is not None and spec.replicated:
            return founder in self._led
        return flow.home == self._address

    def known(self, spec: JobSpec) -> None:
        """A job of that generation has been."""
        self._count(spec)

    def has(self, uid: str) -> bool:
        """Whether a job's home is here, and at work."""
        return uid in self._homes

    def founding(self, uid: str) -> bool:
        """Whether a job is being created here, and its group is not there yet."""
        return uid in self._homes and not self._homes[uid].durable

    def founded(self, uid: str, term: int) -> None:
        """The group of a new job is there, and we lead it."""
        self._led[uid] = term
        self._homes[uid].durable = True
        self._next_ms = 0

    def take_up(
        self, job: StoredJob, flows: Mapping[str, StoredPanes], term: int, now_ms: int
    ) -> list[Effect]:
        """We lead a home in this term: go on with all that is committed of it."""
        self._led[job.spec.uid] = term
        self._next_ms = 0
        return self.restore((job,), flows, now_ms)

    def release(self, uid: str, now_ms: int) -> list[Effect]:
        """We lead a home no more: whatever of it is not committed is for another to do."""
        self._led.pop(uid, None)
        left = self._homes.pop(uid, None)
        found = self._unanswered(left) if left is not None else []
        self._dropping.discard(uid)
        gone = set(self._log.flows_of(uid))
        self.roots.release(gone)
        for home in self._homes.values():
            if any(
                panes.flow.uid in gone and self.mirrors.get(panes.flow.uid) is not panes
                for panes in home.master.flows
            ):
                home.master.detach()
        return [*found, *self._attach(now_ms)]

    def _unanswered(self, home: _Home) -> list[Effect]:
        """Who waits for a job or a change of it hears that another agent may go on with it, or not."""
        waiting = (*(request for request, _ in home.answers), home.asker, home.creator)
        name = home.master.spec.name
        error = f"the home of job {name} moved meanwhile; DESCRIBE {name} says what has become of that"
        return [Send(one.origin, Answer(id=one.id, error=error)) for one in waiting if one is not None]

    def _count(self, spec: JobSpec) -> None:
        named = (spec.name, spec.creator)
        self.generations[named] = max(self.generations.get(named, 0), spec.generation)

    # -- life of a job ---------------------------------------------------------------------------------------

    def where(self, request: CreateJob, now_ms: int) -> Place:
        """Where a job that the log does not know is to have its home."""
        asked = request.spec
        for home in self._homes.values():
            if _named(home.master.spec) == _named(asked):
                return Here(app_id(asked.name, asked.creator))
        return self._placing.where(request, len(self._homes), now_ms)

    def create(self, request: CreateJob, key: bytes, now_ms: int) -> tuple[JobSpec | None, list[Effect]]:
        """Found a job here, which is the place of ``key``; (the job, effects), or (None, the refusal)."""
        asked = request.spec
        for home in self._homes.values():
            if _named(home.master.spec) == _named(asked):
                first = home.creator
                if first is not None and (first.id, first.origin) == (request.id, request.origin):
                    return None, []
                return None, [refusal(request)]
        named = _named(asked)
        generation = 1 + max(self.generations.get(named, 0), self._log.generation(*named) - 1)
        spec = replace(asked, generation=generation, master=self._address)
        spec = replace(spec, flows=proposed(spec, key, self._address))
        self._count(spec)
        record = VersionRecord(spec, note="CREATE")
        home = _Home(Master([record]), not spec.replicated, creator=request)
        home.created_ms = home.read_ms = now_ms
        self._homes[spec.uid] = home
        self._next_ms = now_ms
        return spec, [SaveJob(spec, "preparing", None, (record,))]

    def log_changed(self, now_ms: int) -> list[Effect]:
        """The stream log says more about jobs and flows."""
        found = [*self.roots.follow(now_ms), *self._attach(now_ms)]
        for home in self._homes.values():
            found.extend(self._advance(home, now_ms))
        return found

    def _attach(self, now_ms: int) -> list[Effect]:
        """Give masters the panes of the flows that the log names for their jobs."""
        wanted: dict[str, int | None] = {}
        cuts: dict[str, list[Top | None]] = defaultdict(list)
        new: list[tuple[Master, Version, JobSpec]] = []
        needs: list[Need] = []
        for master in self.jobs():
            for version in master.live():
                spec = self._log.version(version.spec.uid, version.number)
                if spec is None:
                    continue
                self._placing.placed(spec.name, spec.creator)
                if not version.flows:
                    new.append((master, version, spec))
                for flow in spec.flows:
                    mirror = self.mirrors.get(flow.uid)
                    if self.roots.get(flow.uid) is not None and mirror not in version.flows:
                        continue
                    first = version.first_pane
                    cuts[flow.uid].append(cut_of(spec.plan))
                    firsts = (wanted.get(flow.uid), first)
                    wanted[flow.uid] = min((one for one in firsts if one is not None), default=None)
                    if first is not None and not version.flows:
                        needs.append((flow.uid, first, cut_of(spec.plan)))
        needed = {uid: widest(some) for uid, some in cuts.items()}
        found = self.mirrors.follow(wanted, now_ms, needed, needs)
        for master, version, spec in new:
            flows = [panes for flow in spec.flows if (panes := self._panes(flow.uid)) is not None]
            if len(flows) == len(spec.flows):
                master.attach(version, spec, flows)
        return found

    def _panes(self, uid: str) -> Panes | None:
        return self.roots.get(uid) or self.mirrors.get(uid)

    def _readers(self, uid: str) -> list[_Home]:
        """The jobs here that read a flow."""
        return [h for h in self._homes.values() if any(f.flow.uid == uid for f in h.master.flows)]

    def _wanted_from(self, uid: str, settled: int) -> int:
        """The first pane of a flow that a job here may want."""
        return min((h.master.wanted_from(uid, settled) for h in self._readers(uid)), default=settled)

    def roster_changed(self, stream: str) -> None:
        self.roots.roster_changed(stream)
        self.mirrors.roster_changed(stream)

    def drop(self, uid: str) -> list[Effect]:
        home = self._homes.pop(uid, None)
        if home is None:
            return []
        self._dropping.add(uid)
        self._next_ms = 0
        return home.master.drop()

    def asked_to_drop(self, request: DropJob) -> list[Effect]:
        if request.uid not in self._homes and request.uid not in self._dropping:
            return [Send(request.origin, Answer(id=request.id, error="no such job here any more"))]
        if self._log.is_dropped(request.uid):
            return [Send(request.origin, Answer(id=request.id))]
        self._drop_asked.setdefault(request.uid, []).append(request)
        return self.drop(request.uid)

    def dropped(self, uid: str) -> list[Effect]:
        """The stream log has a job's tombstone."""
        asked = self._drop_asked.pop(uid, [])
        return [*self.drop(uid), *(Send(one.origin, Answer(id=one.id)) for one in asked)]

    def steer(self, request: SteerJob, now_ms: int) -> list[Effect]:
        """Change a job, as a statement says. What needs a PREPARE is answered when that has ended."""
        home = self._homes.get(request.uid)
        if home is None:
            return [Send(request.origin, Answer(id=request.id, error="no such job here any more"))]
        self._next_ms = now_ms
        try:
            found = self._steering.steer(home.master, request, now_ms)
        except UserError as refused:
            return [Send(request.origin, Answer(id=request.id, error=str(refused)))]
        self._saving(home, found)
        if request.verb in ("pause", "empty"):
            home.answers.append((request, ""))
        else:
            home.asker = request
        return [*found, *self._answer(home)]

    def _saving(self, home: _Home, effects: list[Effect]) -> None:
        if home.master.spec.replicated:
            home.unsaved = next((e for e in reversed(effects) if isinstance(e, SaveJob)), home.unsaved)

    def saved(self, job: SaveJob, now_ms: int) -> list[Effect]:
        """The group of a job has committed its record."""
        home = self._homes.get(job.spec.uid)
        if home is None or home.unsaved != job:
            return []
        home.unsaved, self._next_ms = None, now_ms
        return self._answer(home)

    def function_failed(self, word: FunctionFailed, now_ms: int) -> list[Effect]:
        """A user's function has failed at a member."""
        found: list[Effect] = []
        for home in self._readers(word.flow):
            done = self._steering.failed(home.master, word, now_ms)
            self._saving(home, done)
            found.extend(done)
            self._next_ms = now_ms
            found.extend(self._answer(home))
        return found

    def _told(self, home: _Home, request: SteerJob | CreateJob, error: str = "") -> list[Effect]:
        body = b"" if error else msgspec.msgpack.encode(self._facts(home, ()))
        return [Send(request.origin, Answer(id=request.id, error=error, body=body))]

    def _answer(self, home: _Home) -> list[Effect]:
        """Tell who asked for a change how that has ended, when that is durable."""
        request, outcome = home.asker, home.master.outcome
        if request is not None and outcome is not None:
            home.asker = None
            home.answers.insert(0, (request, f"nothing is changed: {outcome}" if outcome else ""))
        if home.unsaved is not None:
            return []
        answers, home.answers = home.answers, []
        found = [effect for asked, error in answers for effect in self._told(home, asked, error)]
        if home.creator is not None and home.master.state != "preparing":
            found.extend(self._told(home, home.creator))
            home.creator = None
        return found

    # -- what roots and members say --------------------------------------------------------------------------

    def heard(self, progress: Progress, now_ms: int) -> list[Effect]:
        found = self.roots.heard(progress, now_ms)
        for report in progress.flows:
            found.extend(self._begun(report.flow, now_ms))
        return found

    def head(self, message: FlowHead, now_ms: int) -> list[Effect]:
        """A root elsewhere says where its flow is."""
        return self._begun(message.flow, now_ms) if self.mirrors.head(message) else []

    def _begun(self, uid: str, now_ms: int) -> list[Effect]:
        """A flow may have begun."""
        waiting = [h for h in self._readers(uid) if h.master.state in ("preparing", "altering", "resuming")]
        return [effect for home in waiting for effect in self._advance(home, now_ms)]

    def panes_committed(self, event: PanesCommitted, now_ms: int) -> list[Effect]:
        segment, found = self.roots.committed(event, now_ms)
        return [*self._changed(event.done.flow.uid, [segment] if segment else []), *found]

    def panes_stored(self, event: PanesStored, now_ms: int) -> list[Effect]:
        segments, found = self.mirrors.stored(event, now_ms)
        return [*self._changed(event.flow.uid, segments), *found]

    def _changed(self, uid: str, segments: list[Segment]) -> list[Effect]:
        """Panes of a flow are committed, or revised: windows may be complete."""
        readers = self._readers(uid) if segments else []
        return [
            e for home in readers for segment in segments for e in home.master.panes_committed(uid, segment)
        ]

    def _advance(self, home: _Home, now_ms: int) -> list[Effect]:
        found = home.master.advance(now_ms)
        if not found:
            return []
        self._next_ms = now_ms
        self._saving(home, found)
        if home.master.outcome == "" and not home.master.current.failed:
            home.failure = ""
        return [*found, *self._answer(home)]

    def _tell_of_silence(self, home: _Home, now_ms: int) -> list[Effect]:
        """The job stays, and begins when the root is back."""
        request, silent = home.creator, [f.flow for f in home.master.flows if f.first_pane is None]
        away = [flow.home for flow in silent if flow.home != self._address]
        if request is None or not away or now_ms - home.created_ms < ROOT_SILENT_MS:
            return []
        home.creator = None
        name = request.spec.name
        error = (
            f"job {name} is created, but the root of a running flow that it shares, {away[0]}, does not "
            f"answer: it begins when that agent is back (or DROP JOB {name})"
        )
        return [Send(request.origin, Answer(id=request.id, error=error))]

    def windows_committed(self, event: WindowsCommitted, now_ms: int) -> list[Effect]:
        home = self._homes.get(event.done.spec.uid)
        if home is None:
            return []
        home.commits, home.rows = home.commits + 1, home.rows + event.rows
        home.final_us += event.cpu_us
        found = [*home.master.windows_committed(event.done), *self._advance(home, now_ms)]
        if event.result is not None:
            home.published_us = max(home.published_us, event.done.last_us)
            found.extend(Send(to, self._published(event.result)) for to in home.subscribers)
        return found

    def panes_gone(self, work: CommitWindows) -> list[Effect]:
        """Windows could not be made, since their panes are to be had elsewhere now: with the next tick."""
        home = self._homes.get(work.spec.uid)
        if home is not None:
            home.master.panes_gone(work)
            home.again = True
        return []

    def _published(self, result: WindowResult) -> WindowResult:
        home = self._homes.get(result.job)
        changes = home is not None and home.master.spec.plan.fragment.changes_us is not None
        return msgspec.structs.replace(result, changes=True) if changes else result

    def early(self, state: EarlyState, now_ms: int) -> list[Effect]:
        """A member's open panes: for the masters here, and by us as the root for those elsewhere."""
        found = self.roots.early(state)
        for home in self._readers(state.flow):
            home.early.take(state)
            found.extend(self._make_early(home, now_ms))
        return found

    def _make_early(self, home: _Home, now_ms: int) -> list[Effect]:
        return list(home.early.make(home.master.current, now_ms)) if home.subscribers else []

    def early_made(self, event: EarlyMade, now_ms: int) -> list[Effect]:
        home = self._homes.get(event.uid)
        if home is None:
            return []
        home.early.made()
        result, done = event.result, home.master.assembled_us()
        found = self._make_early(home, now_ms)
        if result is None or (done is not None and done > result.first_us):  # some are committed meanwhile
            return found
        return [*(Send(to, self._published(result)) for to in home.subscribers), *found]

    def failed(self, event: Failure) -> list[Effect]:
        """A window of the job cannot be finished: its readers are told; the version stays as it is, for
        people to look at, until another takes its place.
        """
        home = self._homes.get(event.uid)
        if home is None:
            return []
        home.master.window_failed(event.version)
        home.failure = event.text
        return [Send(to, JobFailed(job=event.uid, text=event.text)) for to in home.subscribers]

    # -- readers ---------------------------------------------------------------------------------------------

    def subscribed(self, request: SubscribeJob, now_ms: int) -> list[Effect]:
        home = self._homes.get(request.uid)
        if home is None:
            return [Send(request.origin, Answer(id=request.id, error="no such job here any more"))]
        home.subscribers[request.origin] = now_ms + LEASE_MS
        home.read_ms = now_ms
        found: list[Effect] = [Send(request.origin, Answer(id=request.id))]
        if request.after_us is not None and request.after_us < home.published_us:
            found.append(ReadWindows(home.master.spec, request, after_us=request.after_us))
        return found

    def inspected(self, request: Inspect) -> list[Effect]:
        home = self._homes.get(request.uid)
        if home is None:
            return [Send(request.origin, Answer(id=request.id, error="no such job here any more"))]
        return [ReadWindows(home.master.spec, request, count=request.windows)]

    def windows_read(self, event: WindowsRead) -> list[Effect]:
        request = event.request
        if not isinstance(request, Inspect):
            return [Send(request.origin, self._published(result)) for result in event.results]
        home = self._homes.get(request.uid)
        if home is None:
            return [Send(request.origin, Answer(id=request.id, error="no such job here any more"))]
        body = msgspec.msgpack.encode(self._facts(home, event.results))
        return [Send(request.origin, Answer(id=request.id, body=body))]

    def _facts(self, home: _Home, results: tuple[WindowResult, ...]) -> JobFacts:
        master = home.master
        pane_us = master.spec.plan.fragment.pane_us
        return JobFacts(
            master.spec,
            master.state,
            self._address,
            event_time(master.first_pane, pane_us),
            event_time(master.committed_to(), pane_us),
            results,
            home.failure,
            tuple(version.record for version in master.versions),
        )

    # -- time ------------------------------------------------------------------------------------------------

    def deadline(self, now_ms: int) -> int | None:
        waits = [self.roots.deadline(now_ms), self.mirrors.deadline()]
        waits += [h.early.due_ms(h.master.current) for h in self._homes.values() if h.subscribers]
        waits += [self._next_ms] if self._homes or self._dropping or self._led else []
        return min((at for at in waits if at is not None), default=None)

    def _moved(self) -> list[MoveHome]:
        """Homes here that the stream log has elsewhere."""
        elsewhere = (
            (uid, term) for uid, term in self._led.items() if self._log.home(uid) not in (None, self._address)
        )
        return [MoveHome(uid=uid, home=self._address, term=term) for uid, term in elsewhere]

    def tick(self, now_ms: int, keeper: str | None) -> list[Effect]:
        found: list[Effect] = []
        if now_ms >= self._next_ms:
            self._next_ms = now_ms + 1_000
            found.extend(self._remind(keeper))
            found.extend(self._expire(now_ms))
            for home in self._homes.values():
                found.extend(self._tell_of_silence(home, now_ms))
        found.extend(self.roots.tick(now_ms))
        found.extend(self.mirrors.tick(now_ms))
        for home in list(self._homes.values()):
            found.extend(self._advance(home, now_ms))
            if home.again:
                home.again = False
                found.extend(home.master.assemble())
            found.extend(self._prune(home, now_ms))
            found.extend(self._make_early(home, now_ms))
        return found

    def _remind(self, keeper: str | None) -> list[Effect]:
        """What the stream log must say and does not say yet."""
        if keeper is None:
            return []
        self._dropping = {uid for uid in self._dropping if not self._log.is_dropped(uid)}
        durable = [home.master for home in self._homes.values() if home.durable and home.unsaved is None]
        wishes = [wish for master in durable for wish in master.wishes(self._log)]
        dropped = [DropJobEntry(uid=uid) for uid in sorted(self._dropping)]
        return [Send(keeper, wish) for wish in (*wishes, *self._moved(), *dropped)]

    def _prune(self, home: _Home, now_ms: int) -> list[Effect]:
        """Forget windows of long ago."""
        windows, assembled = home.master.spec.plan.windows, home.master.assembled_us()
        if now_ms - home.pruned_ms < PRUNE_MS or not windows or assembled is None:
            return []
        home.pruned_ms = now_ms
        if not START_OF_TIME < assembled < END_OF_TIME:
            return []
        kept_us = WINDOWS_KEPT * min(kind.step_us for kind in windows)
        return [PruneWindows(home.master.spec.uid, assembled - kept_us)]

    def _expire(self, now_ms: int) -> list[Effect]:
        found: list[Effect] = []
        for uid, home in list(self._homes.items()):
            home.subscribers = {to: until for to, until in home.subscribers.items() if until > now_ms}
            one_shot = not home.master.spec.replicated
            if one_shot and not home.subscribers and now_ms - home.read_ms > ORPHAN_MS:
                found.extend(self.drop(uid))
        return found

    # -- what it shows ---------------------------------------------------------------------------------------

    def work(self, uids: Iterable[str]) -> tuple[JobWork, ...]:
        """The work of the masters of these jobs, of those that are here."""
        homes = {uid: self._homes[uid] for uid in uids if uid in self._homes}
        return tuple(JobWork(uid, home.commits, home.rows, home.final_us) for uid, home in homes.items())

    def jobs(self) -> tuple[Master, ...]:
        return tuple(home.master for home in self._homes.values())

    def read(self) -> tuple[Master, ...]:
        """The masters of the jobs that somebody subscribes to."""
        return tuple(home.master for home in self._homes.values() if home.subscribers)

    def check(self) -> None:
        self.roots.check()
        self.mirrors.check()


def refusal(request: CreateJob) -> Effect:
    """The answer to whoever creates a job that exists."""
    name = request.spec.name
    error = f"job {name} exists already; DROP JOB {name} first, or choose another name"
    return Send(request.origin, Answer(id=request.id, error=error))


def _named(spec: JobSpec) -> tuple[str, str]:
    return spec.name, spec.creator
