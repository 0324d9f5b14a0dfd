"""The jobs that this node is the home of: master of the job, publisher of its windows.

A home makes a job's record durable before it tells anybody, and asks the stream log's keepers for the entry
until it sees it. It proposes a flow of its own for each fragment, with the root here; the entry says which
flows the job reads indeed (equal ones that run already are shared, wherever their roots are; ``reading``).
Each window is committed, then published, once a revision. *Unknown is never new*: ``create`` is called only
for a job that the log does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import msgspec

from elf.errors import UserError
from elf.job.effects import CommitWindows, Effect, ReadWindows, SaveFlow, SaveJob, Send
from elf.job.events import (
    EarlyMade,
    Failure,
    FunctionsTried,
    WindowsCommitted,
    WindowsRead,
)
from elf.job.home.ahead import Ahead
from elf.job.home.dropping import Dropping
from elf.job.home.founders import Founders
from elf.job.home.home import Home
from elf.job.home.master import JobState, Master
from elf.job.home.placing import Here, Place, Placing
from elf.job.home.reading import Reading
from elf.job.home.steering import Steering, proposed
from elf.job.log.readers import is_read, not_led, not_taken
from elf.job.log.streamlog import StreamLog
from elf.job.messages import (
    Answer,
    Begun,
    CreateJob,
    DropJob,
    EarlyState,
    FlowHead,
    FunctionFailed,
    Inspect,
    MoveHome,
    Progress,
    ReadPanes,
    SteerJob,
    SubscribeJob,
    Wish,
)
from elf.job.rollup.decide import RootSettings
from elf.job.rollup.flowroots import StoredPanes
from elf.job.spec import (
    JobSpec,
    VersionRecord,
    app_id,
)
from elf.job.work import JobWork

ASKING_MS = 250
"""Between two words to keepers of the log, one after the other, while it does not say what it must: one may
be dead, or a keeper no more, and nobody has noticed."""


LOOK_MS = 1_000
"""Between two looks at all homes: whoever has nothing under way costs nothing in between."""


@dataclass(frozen=True)
class StoredJob:
    """A job's record from the store, by version the end of what was assembled of it, and the number of its
    last windows."""

    spec: JobSpec
    state: str
    versions: tuple[VersionRecord, ...]
    assembled: Mapping[int, int] = field(default_factory=dict)
    published: int = 0


class Homes:
    """See the module's docstring. ``name``: what people call this agent; ``keepers``: the agents that keep a
    job, by its uid."""

    def __init__(
        self,
        address: str,
        log: StreamLog,
        settings: RootSettings,
        name: str = "",
        keepers: Callable[[str], tuple[str, ...]] = lambda uid: (),
    ) -> None:
        self._address = address
        self._log = log
        self._keepers = keepers
        self._homes: dict[str, Home] = {}
        self._led: dict[str, int] = {}
        self.reading = Reading(address, log, settings, self._homes, self._led, name or address)
        self.roots = self.reading.roots
        self.mirrors = self.reading.mirrors
        self._ahead = Ahead(self.reading.is_coming, self._is_rising)
        self._dropping = Dropping(log)
        self._founders = Founders(address, log, settings.grace_ms, keepers)
        self._next_ms = self._all_ms = 0
        self._stirred: set[str] = set()
        """Homes, by uid, of which the log may have something to say; all are looked at every ``LOOK_MS``."""
        self._early: set[str] = set()
        """Homes that were told of open panes."""
        self._again: set[str] = set()
        """Homes whose windows are to be made once more: their panes are to be had elsewhere now."""
        self._reminded = 0
        self._placing = Placing()
        self._steering = Steering(address, log)
        self._generations: dict[tuple[str, str], int] = {}
        self.misfounded: set[str] = set()
        """Jobs that were founded here, while the log has them from another founder: their groups are to
        end."""

    def restore(
        self, jobs: tuple[StoredJob, ...], flows: Mapping[str, StoredPanes], now_ms: int
    ) -> list[Effect]:
        """Go on with jobs and flows of an earlier life, or of another leader."""
        for job in jobs:
            self.known(job.spec)
            if job.state == "dropped":
                if not self._log.is_dropped(job.spec.uid):
                    self._dropping.add(job.spec.uid)
                continue
            state, assembled = cast(JobState, job.state), job.assembled
            master = Master(job.versions, state=state, assembled=assembled, now_ms=now_ms)
            self._homes[job.spec.uid] = Home(self._address, master, now_ms, published=job.published)
        found = self._give_way()
        found += [*self.roots.follow(now_ms, flows), *self.reading.attach(now_ms)]
        for job in jobs:
            home = self._homes.get(job.spec.uid)
            found.extend(home.master.recover() if home is not None else ())
        return found

    # -- replicated homes ------------------------------------------------------------------------------------

    def known(self, spec: JobSpec) -> None:
        """A job of that generation has been."""
        named = _named(spec)
        self._generations[named] = max(self._generations.get(named, 0), spec.generation)

    def has(self, uid: str) -> bool:
        """Whether a job's home is here, and at work."""
        return uid in self._homes

    def _is_rising(self, uid: str) -> bool:
        """Whether the log has a job's home here, and it is not up."""
        return uid not in self._homes and self._log.home(uid) == self._address

    def founding(self, uid: str) -> bool:
        """Whether a job is being created here, and its group is not there yet."""
        return uid in self._homes and not self._homes[uid].durable

    def founded(self, uid: str, term: int) -> None:
        """The group of a new job is there, and we lead it."""
        self._led[uid] = term
        self._homes[uid].durable = True
        self._stir(uid, 0)

    def take_up(
        self, job: StoredJob, flows: Mapping[str, StoredPanes], term: int, now_ms: int
    ) -> list[Effect]:
        """We lead a home in this term: go on with all that is committed of it."""
        self._led[job.spec.uid] = term
        self._stir(job.spec.uid, 0)
        return [*self.restore((job,), flows, now_ms), *self._hear_again(now_ms)]

    def take_up_range(
        self, uid: str, flows: Mapping[str, StoredPanes], term: int, now_ms: int
    ) -> list[Effect]:
        """We lead the home of a key range in this term: be the root of its flows."""
        self._led[uid] = term
        self._stir(uid, 0)
        found = [*self.roots.follow(now_ms, flows), *self.reading.attach(now_ms)]
        return [*found, *self._hear_again(now_ms)]

    def wait_for(self, uid: str, founder: str) -> None:
        """We lead the group of a key range, which this agent has founded: the log is to say so."""
        self._founders.wait_for(uid, founder)
        self._next_ms = 0

    def wait_no_more(self, uid: str) -> None:
        """The log has decided whether that group has begun, or we lead it no more."""
        self._founders.wait_no_more(uid)

    def release(self, uid: str, now_ms: int) -> list[Effect]:
        """We lead a home no more: whatever of it is not committed is for another to do."""
        self._led.pop(uid, None)
        left = self._homes.pop(uid, None)
        found = left.changes.moved(left.master.spec.name) if left is not None else []
        self._dropping.release(uid)
        self.reading.release(set(self._log.homes.flows(uid)))
        return [*found, *self.reading.attach(now_ms)]

    # -- life of a job ---------------------------------------------------------------------------------------

    def where(self, request: CreateJob, now_ms: int) -> Place:
        """Where a job that the log does not know is to have its home."""
        asked = request.spec
        for home in self._homes.values():
            if _named(home.master.spec) == _named(asked):
                return Here(app_id(asked.name, asked.creator))
        return self._placing.where(request, len(self._homes), now_ms)

    def placed(self, spec: JobSpec) -> None:
        """The log has a new job, wherever its home is: whoever asks for that name again means another one."""
        self._placing.placed(spec.name, spec.creator)

    def create(
        self, request: CreateJob, key: bytes, now_ms: int, replaces: str = ""
    ) -> tuple[JobSpec | None, list[Effect]]:
        """Found a job here, which is the place of ``key``; (the job, effects), or (None, the refusal). The
        job that it ``replaces`` goes on until the log has this one."""
        asked = request.spec
        for uid, home in self._homes.items():
            if _named(home.master.spec) == _named(asked) and uid != replaces:
                first = home.changes.creator
                if first is not None and (first.id, first.origin) == (request.id, request.origin):
                    return None, []
                return None, [refusal(request)]
        named = _named(asked)
        generation = 1 + max(self._generations.get(named, 0), self._log.generation(*named) - 1)
        spec = replace(asked, generation=generation, master=self._address, replaces=replaces)
        spec = replace(spec, flows=proposed(spec, key, self._address))
        self.known(spec)
        record = VersionRecord(spec, note="CREATE")
        durable = not spec.replicated
        home = Home(self._address, Master([record]), now_ms, durable=durable, creator=request)
        self._homes[spec.uid] = home
        self._stir(spec.uid, now_ms)
        return spec, [SaveJob(spec, "preparing", None, (record,))]

    def log_changed(self, now_ms: int) -> list[Effect]:
        """The stream log says more about jobs and flows."""
        found = [*self._give_way(), *self.roots.follow(now_ms), *self.reading.attach(now_ms)]
        for home in self._changing():
            found.extend(home.refused(self._log))
            found.extend(self._advance(home, now_ms))
        return [*found, *self._hear_again(now_ms)]

    def _changing(self) -> list[Home]:
        """Homes of jobs that begin, or are being changed."""
        return [home for home in self._homes.values() if home.master.is_changing]

    def _stir(self, uid: str, at_ms: int) -> None:
        """Look at a home soon: the log may have to say more of it."""
        self._stirred.add(uid)
        self._next_ms = min(self._next_ms, at_ms)

    def _hear_again(self, now_ms: int) -> list[Effect]:
        """Words about flows and homes that have come."""
        found: list[Effect] = []
        for sender, word in self._ahead.take():
            match word:
                case Progress() | Begun():
                    found.extend(self.heard(word, now_ms))
                case ReadPanes():
                    found.extend(self.asked(sender, word, now_ms))
                case FunctionFailed():
                    found.extend(self.function_failed(word, now_ms))
                case SubscribeJob():
                    found.extend(self.subscribed(word, now_ms))
        return found

    def _give_way(self) -> list[Effect]:
        """A job that was created at two nodes at once (on both sides of a partition, say, or by a message
        that went both ways) is the one that the log has. The other has not begun, and never does.
        """
        found: list[Effect] = []
        for home in [home for home in self._homes.values() if home.master.state == "preparing"]:
            uid = home.master.spec.uid
            founder = self._log.founded_at(uid)
            if founder and home.founder not in ("", founder):
                del self._homes[uid]
                self._led.pop(uid, None)
                self.misfounded.add(uid)
                found.extend(home.changes.not_created(already(home.master.spec.name)))
        return found

    def drop(self, uid: str) -> list[Effect]:
        home = self._homes.pop(uid, None)
        if home is None:
            return []
        self._dropping.add(uid)
        self._next_ms = 0
        return home.master.drop()

    def asked_to_drop(self, request: DropJob) -> list[Effect]:
        if request.uid not in self._homes and request.uid not in self._dropping:
            return [self._absent(request)]
        if self._log.is_dropped(request.uid):
            return [Send(request.origin, Answer(id=request.id))]
        home, readers = self._homes.get(request.uid), self._log.read_by(request.uid)
        if home is not None and readers:
            return [
                Send(request.origin, Answer(id=request.id, error=is_read(home.master.spec.name, readers)))
            ]
        self._dropping.asked(request)
        return self.drop(request.uid)

    def dropped(self, uid: str) -> list[Effect]:
        """The stream log has a job's tombstone."""
        home = self._homes.get(uid)
        found: list[Effect] = []
        if home is not None:
            spec = home.master.spec
            why = not_taken(self._log, spec) or f"job {spec.name} has been dropped meanwhile"
            found = home.changes.not_created(why)
        return [*found, *self.drop(uid), *self._dropping.dropped(uid)]

    def steer(self, request: SteerJob, now_ms: int) -> list[Effect]:
        """Change a job, as a statement says. Functions for panes and windows are tried first; what needs a
        PREPARE is answered when that has ended.
        """
        home = self._homes.get(request.uid)
        try:
            tried = None if home is None else self._steering.to_try(home.master, request)
        except UserError as refused:
            return [Send(request.origin, Answer(id=request.id, error=str(refused)))]
        return self._steer(request, now_ms) if tried is None else [tried]

    def functions_tried(self, event: FunctionsTried, now_ms: int) -> list[Effect]:
        """The functions that a change brings work, or one does not."""
        if not event.error:
            return self._steer(event.request, now_ms)
        error = f"nothing is changed: {event.error}"
        return [Send(event.request.origin, Answer(id=event.request.id, error=error))]

    def _steer(self, request: SteerJob, now_ms: int) -> list[Effect]:
        home = self._homes.get(request.uid)
        if home is None:
            return [self._absent(request)]
        self._stir(request.uid, now_ms)
        try:
            return home.steer(self._steering, request, now_ms)
        except UserError as refused:
            return [Send(request.origin, Answer(id=request.id, error=str(refused)))]

    def saved(self, job: SaveJob, now_ms: int) -> list[Effect]:
        """The group of a job has committed its record."""
        home = self._homes.get(job.spec.uid)
        if home is None or not home.changes.saved(job):
            return []
        self._stir(job.spec.uid, now_ms)
        return home.answers()

    def function_failed(self, word: FunctionFailed, now_ms: int) -> list[Effect]:
        """A user's function has failed at a member."""
        self._ahead.keep_failure(word)
        found: list[Effect] = []
        for home in self.reading.readers(word.flow):
            found.extend(home.function_failed(self._steering, word, now_ms))
            self._stir(home.master.spec.uid, now_ms)
        return found

    # -- what roots and members say --------------------------------------------------------------------------

    def heard(self, word: Progress | Begun, now_ms: int) -> list[Effect]:
        """How far members are with flows."""
        if isinstance(word, Begun):
            self._ahead.keep_begun(word)
            found = self.roots.begun(word, now_ms)
        else:
            self._ahead.keep_progress(word)
            found = self.roots.heard(word, now_ms)
        first = [effect.flow for effect in found if isinstance(effect, SaveFlow)]
        begun = [uid for uid in first if not self._log.is_replicated(uid)]  # others have when that is kept
        return [*found, *(effect for uid in begun for effect in self._begun(uid, now_ms))]

    def asked(self, sender: str, message: ReadPanes, now_ms: int) -> list[Effect]:
        """A node whose jobs read flows says what it wants of them."""
        self._ahead.keep_wishes(sender, message)
        return self.roots.asked(sender, message, now_ms)

    def head(self, message: FlowHead, now_ms: int) -> list[Effect]:
        """A root elsewhere says where its flow is."""
        return self._begun(message.flow, now_ms) if self.mirrors.head(message) else []

    def begun(self, uid: str, now_ms: int) -> list[Effect]:
        """The first pane of a flow of ours is stored."""
        return [*self.roots.kept(uid, now_ms), *self._begun(uid, now_ms)]

    def _begun(self, uid: str, now_ms: int) -> list[Effect]:
        """A flow may have begun."""
        readers = self.reading.readers(uid)
        waiting = [home for home in readers if home.master.state in ("preparing", "altering", "resuming")]
        return [effect for home in waiting for effect in self._advance(home, now_ms)]

    def _advance(self, home: Home, now_ms: int) -> list[Effect]:
        found = home.advance(now_ms)
        if found:
            self._stir(home.master.spec.uid, now_ms)
        return found

    def windows_committed(self, event: WindowsCommitted, now_ms: int) -> list[Effect]:
        home = self._homes.get(event.done.spec.uid)
        if home is None:
            return []
        found = [*home.windows_committed(event), *self._advance(home, now_ms)]
        if event.failure:
            found.extend(home.final_failed(self._steering, event, now_ms))
            self._stir(event.done.spec.uid, now_ms)
        if event.result is not None:
            found.extend(home.subscribers.publish(event.result))
        return found

    def panes_gone(self, work: CommitWindows) -> list[Effect]:
        home = self._homes.get(work.spec.uid)
        if home is not None:
            home.master.panes_gone(work)
            self._again.add(work.spec.uid)
        return []

    def early(self, state: EarlyState, now_ms: int) -> list[Effect]:
        """A member's open panes: for the masters here, and by us as the root for those elsewhere."""
        found = self.roots.early(state)
        for home in self.reading.readers(state.flow):
            self._early.add(home.master.spec.uid)
            home.subscribers.take_early(state)
            found.extend(home.subscribers.make_early(now_ms))
        return found

    def early_made(self, event: EarlyMade, now_ms: int) -> list[Effect]:
        home = self._homes.get(event.uid)
        return home.subscribers.early_made(event, now_ms) if home is not None else []

    def failed(self, event: Failure) -> list[Effect]:
        """A window of a job cannot be finished."""
        home = self._homes.get(event.uid)
        return home.failed(event) if home is not None else []

    # -- readers ---------------------------------------------------------------------------------------------

    def subscribed(self, request: SubscribeJob, now_ms: int) -> list[Effect]:
        home = self._homes.get(request.uid)
        if home is not None:
            return home.subscribers.add(request, now_ms)
        self._ahead.keep_reader(request)
        return [self._absent(request)]

    def inspected(self, request: Inspect) -> list[Effect]:
        home = self._homes.get(request.uid)
        if home is None:
            return [self._absent(request)]
        return [ReadWindows(home.master.spec, request, count=request.windows)]

    def windows_read(self, event: WindowsRead) -> list[Effect]:
        request = event.request
        if isinstance(request, Inspect):
            home = self._homes.get(request.uid)
            if home is None:
                return [self._absent(request)]
            facts = msgspec.structs.replace(home.facts(event.results), keepers=self._keepers(request.uid))
            body = msgspec.msgpack.encode(facts)
            return [Send(request.origin, Answer(id=request.id, body=body))]
        found: list[Effect] = []
        for result in event.results:
            home = self._homes.get(result.job)
            found.append(Send(request.origin, home.subscribers.marked(result) if home else result))
        return found

    # -- time ------------------------------------------------------------------------------------------------

    def deadline(self, now_ms: int) -> int | None:
        waits = [*self.reading.deadlines(now_ms)]
        waits += [home.subscribers.early_due_ms() for home in self._told_early()]
        busy = self._homes or self._dropping or self._led or self._founders
        waits += [self._next_ms] if busy else []
        return min((at for at in waits if at is not None), default=None)

    def _moved(self, uid: str) -> list[MoveHome]:
        """If a home is here that the stream log has elsewhere."""
        term = self._led.get(uid)
        if term is None or self._log.home(uid) in (None, self._address):
            return []
        return [MoveHome(uid=uid, home=self._address, term=term)]

    def tick(self, now_ms: int, keepers: Sequence[str]) -> list[Effect]:
        """``keepers``: of the stream log, by address."""
        found: list[Effect] = []
        if now_ms >= self._next_ms:
            everything = now_ms >= self._all_ms
            if everything:
                self._all_ms = now_ms + LOOK_MS
                self._stirred = {*self._homes, *self._led}
            found.extend(self._remind(keepers))
            self._next_ms = min(self._all_ms, now_ms + (ASKING_MS if self._stirred or found else LOOK_MS))
            if everything:
                found.extend(self._look(now_ms))
        found.extend(self.reading.tick(now_ms))
        for home in self._changing():
            found.extend(self._advance(home, now_ms))
        again, self._again = self._again, set()
        for uid in sorted(again & self._homes.keys()):
            found.extend(self._homes[uid].master.assemble())
        for home in self._told_early():
            found.extend(home.subscribers.make_early(now_ms))
        return found

    def _told_early(self) -> list[Home]:
        self._early = {uid for uid in self._early if uid in self._homes}
        return [self._homes[uid] for uid in sorted(self._early)]

    def _look(self, now_ms: int) -> list[Effect]:
        """At all homes, whatever becomes of time alone."""
        found = self._expire(now_ms)
        self._founders.look(self._led, self._heard_of, now_ms)
        for home in list(self._homes.values()):
            found.extend(home.tell_of_silence(self._founders.why(home.master.spec, now_ms), now_ms))
            found.extend(self._advance(home, now_ms))
            found.extend(home.prune(now_ms))
        return found

    def _heard_of(self) -> set[str]:
        """The homes whose roots have said to jobs here with which pane they begin."""
        read = [panes for home in self._homes.values() for panes in home.master.flows]
        return {self._log.homes.of(panes.flow.uid) or "" for panes in read if panes.first_pane is not None}

    def _remind(self, keepers: Sequence[str]) -> list[Effect]:
        """What the stream log must say of homes that are stirred and does not say yet, to one keeper after
        the other: who led the log may have died with the home that has moved. Those of which it says all are
        stirred no more."""
        if not keepers:
            return []
        self._reminded += 1
        keeper = keepers[self._reminded % len(keepers)]
        found: list[Wish] = []
        for uid in sorted(self._stirred):
            home = self._homes.get(uid)
            master = home.master if home is not None and home.durable and home.changes.durable else None
            wishes = [*(master.wishes(self._log) if master is not None else ()), *self._moved(uid)]
            if not wishes and (home is None or master is not None):
                self._stirred.discard(uid)
            found.extend(wishes)
        found += [*self._founders.wishes(), *self._dropping.wishes()]
        return [Send(keeper, wish) for wish in found]

    def _expire(self, now_ms: int) -> list[Effect]:
        found: list[Effect] = []
        for uid, home in list(self._homes.items()):
            home.subscribers.expire(now_ms)
            if home.subscribers.orphaned(now_ms):
                found.extend(self.drop(uid))
        return found

    def _absent(self, request: DropJob | SteerJob | SubscribeJob | Inspect) -> Effect:
        """The answer to who takes us for the home of a job."""
        error = not_led(self._log, job=request.uid)
        return Send(request.origin, Answer(id=request.id, error=error))

    # -- what it shows ---------------------------------------------------------------------------------------

    def work(self, uids: Iterable[str]) -> tuple[JobWork, ...]:
        """The work of the masters of these jobs, of those that are here."""
        return tuple(self._homes[uid].work() for uid in dict.fromkeys(uids) if uid in self._homes)

    def jobs(self) -> tuple[Master, ...]:
        return tuple(home.master for home in self._homes.values())

    def read(self) -> tuple[Master, ...]:
        """The masters of the jobs that somebody subscribes to."""
        return tuple(home.master for home in self._homes.values() if home.subscribers)

    def check(self) -> None:
        self.reading.check()


def refusal(request: CreateJob) -> Effect:
    """The answer to whoever creates a job that exists."""
    return Send(request.origin, Answer(id=request.id, error=already(request.spec.name)))


def already(name: str) -> str:
    """What is said to whoever creates a job that exists."""
    return f"job {name} exists already; DROP JOB {name} first, or choose another name"


def _named(spec: JobSpec) -> tuple[str, str]:
    return spec.name, spec.creator
