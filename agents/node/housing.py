"""Replicated homes of one agent (``elf.job.home.records``): the groups of jobs of which it is a member, and
those that it leads, between ``Homes`` and the group desk.

    elected ─▶ load what is applied ─▶ take up ─▶ a commit: draft ─▶ propose ─▶ (majority) ─▶ apply ─▶ told
                                          └─▶ deposed: released, all that is under way is nothing

``Homes`` and its roots and masters do not know that they are replicated: what they want committed comes
through here (``perform``), and they hear of it when it is committed and applied. A leader that is deposed
loses them; they begin anew, from the store, where the next leader is, as after a restart. Each proposal
carries the term in which its root or master began. ``Homes`` tells the stream log where the home is.

The home of a key range after a job's first (``TREES m``) is founded by the agent that the log names for it,
once in that agent's life (``FOUNDED_FACT``): a group of that key may be elsewhere by then. Its leader takes
it up when the log says that it has begun; all members end it when the log says that another agent is to found
one (``elf.job.log.founding``).

A home is over when the log has the job's tombstone and the end of its flows: each member forgets it then.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from agents.node.beginning import FOUNDED_FACT, HOUSED_FACT, as_lines
from agents.node.groups import GroupDesk, GroupStep
from agents.node.staffing import QUICK_MS, STAFF_MS, Staffing
from elf.job.commits import PaneCommit
from elf.job.effects import (
    CommitPanes,
    CommitWindows,
    Effect,
    PrunePanes,
    PruneWindows,
    SaveFact,
    SaveFlow,
    SaveJob,
)
from elf.job.events import Failure, PanesCommitted, WindowsCommitted
from elf.job.home import records as record
from elf.job.home.homes import Homes
from elf.job.home.port import (
    Applied,
    Apply,
    Draft,
    Drafted,
    ForgetHome,
    HomeEffect,
    HomeEvent,
    HomeLoaded,
    InstallHome,
    LoadHome,
    Summarised,
    SummariseHome,
)
from elf.job.home.records import home_key
from elf.job.home.subscribers import numbered
from elf.job.log.keepers import LOG_GROUP
from elf.job.log.streamlog import StreamLog
from elf.job.spec import END_OF_TIME, JobSpec, is_range, job_of
from overlay import replica

AGAIN_MS: Final = 200
STRAY_MS: Final = 60_000
"""A seat that has heard nothing of its group for so long is given up."""

Step = GroupStep | Effect | HomeEffect


@dataclass
class _Wanted:
    """A record under way, and what is to be told when it is applied. ``begun``: a flow."""

    record: bytes
    drafted: Drafted | None = None
    saved: SaveJob | None = None
    begun: str = ""


@dataclass
class _Led:
    """A home that we lead. ``drafts``: works that are being done; ``tokens``: records that the group has not
    answered; ``waiting``: those that are not applied; ``again``: those that it could not take just then.
    """

    term: int
    drafts: list[CommitPanes | CommitWindows] = field(default_factory=list)
    tokens: dict[int, _Wanted] = field(default_factory=dict)
    waiting: dict[bytes, _Wanted] = field(default_factory=dict)
    again: list[_Wanted] = field(default_factory=list)
    ended: set[str] = field(default_factory=set)
    """Flows of versions that are over."""
    begun: bool = True
    """False: of a key range that the log has not as begun."""


class HomeMachine:
    """One group: all of its meaning is in the store; here is only which job it is of."""

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.uid = self.founder = ""
        self.flows: tuple[str, ...] = ()
        self.whole: dict[bytes, bytes] = {}
        """Records that were too large to be told, by what was told in their place."""

    def install(self, state: bytes) -> list[Step]:
        if not state:
            return []
        known = record.state_of(state)
        self.uid, self.founder = known.uid, known.founder
        self._know(*known.founded)
        return [InstallHome(self.key, state)]

    def _know(self, *flows: str) -> None:
        self.flows = tuple(dict.fromkeys((*self.flows, *flows)))

    def apply(self, data: bytes) -> list[Step]:
        fact = record.record_of(data)
        if isinstance(fact, record.JobKept):
            self._know(*fact.founded)
        elif isinstance(fact, record.FlowKept):
            self._know(fact.flow)
        return [Apply(self.key, self.whole.pop(data, data))]

    def state(self, index: int) -> list[Step]:
        return [SummariseHome(self.key, index, self.uid, self.flows, self.founder)]


class Housing:
    """See the module's docstring. ``machines``: of all groups but the stream log's; the desk makes them.
    ``most``: members of a home; ``founded``: homes of key ranges that this agent has founded."""

    def __init__(
        self,
        homes: Homes,
        log: StreamLog,
        desk: GroupDesk,
        staffing: Staffing,
        machines: dict[bytes, HomeMachine],
        most: int,
        founded: Iterable[str],
    ) -> None:
        self._most = most
        self._founded = set(founded)
        self._founding: set[str] = set()
        self._homes = homes
        self._log = log
        self._desk = desk
        self._staffing = staffing
        self._machines = machines
        self._led: dict[bytes, _Led] = {}
        self._strays: dict[bytes, int] = {}
        self._adopting: set[bytes] = set()
        self._unbegun: set[bytes] = set()
        """Groups of key ranges that we lead and that the log has not as begun."""
        self._next_ms = 0
        self._again_ms: int | None = None

    # -- what homes want -------------------------------------------------------------------------------------

    def holds(self, flow: str) -> bool:
        """Whether we are a member of the home of a flow."""
        return self._desk.groups.holds(self._key_of(flow))

    def _key_of(self, flow: str) -> bytes:
        return home_key(self._log.homes.group(self._log.homes.of(flow) or ""))

    def perform(self, effect: object, now_ms: int) -> Sequence[Step] | None:
        """Do for a replicated home what it wants; None: it is for the driver."""
        match effect:
            case SaveJob() if effect.spec.replicated:
                return self._save_job(effect, now_ms)
            case SaveFlow() if self._log.is_replicated(effect.flow):
                fact = record.FlowKept(effect.flow, effect.first_pane)
                return self._propose(self._key_of(effect.flow), fact, now_ms, begun=effect.flow)
            case CommitPanes() if self._log.is_replicated(effect.flow.uid):
                seq = self._homes.roots.next_seq(effect.flow.uid)
                return self._draft(self._key_of(effect.flow.uid), Draft(effect, seq))
            case CommitWindows() if effect.spec.replicated:
                return self._draft(home_key(effect.spec.uid), Draft(effect))
            case PrunePanes() if self.holds(effect.flow):
                key, below = self._key_of(effect.flow), effect.below
                return (
                    []
                    if below is None
                    else self._propose(key, record.PanesDropped(effect.flow, below), now_ms)
                )
            case PruneWindows() if home_key(effect.job) in self._led:
                dropped = record.WindowsDropped(effect.job, effect.below_us)
                return self._propose(home_key(effect.job), dropped, now_ms)
        return None

    def _draft(self, key: bytes, draft: Draft) -> Sequence[Step]:
        led = self._led.get(key)
        if led is None:
            return []
        led.drafts.append(draft.work)
        return [draft]

    def _save_job(self, effect: SaveJob, now_ms: int) -> Sequence[Step]:
        fact = record.JobKept(effect.spec, effect.state, effect.first_pane, effect.versions)
        key = home_key(fact.spec.uid)
        if not self._desk.groups.holds(key) and self._homes.founding(fact.spec.uid):
            return self._desk.create(key, record.encode(record.HomeState(fact)), now_ms)
        led = self._led.get(key)
        return [] if led is None else self._want(key, led, _Wanted(record.encode(fact), saved=effect), now_ms)

    def _propose(
        self, key: bytes, fact: record.HomeRecord, now_ms: int, *, begun: str = ""
    ) -> Sequence[Step]:
        led = self._led.get(key)
        wanted = _Wanted(record.encode(fact), begun=begun)
        return [] if led is None else self._want(key, led, wanted, now_ms)

    def _want(self, key: bytes, led: _Led, wanted: _Wanted, now_ms: int) -> Sequence[Step]:
        told = wanted.record
        if len(told) > record.RECORD_BYTES_MAX:
            fact = record.record_of(told)
            if isinstance(fact, PaneCommit):
                told = record.encode(fact.bare)
                self._machines[key].whole[told] = wanted.record
            elif wanted.drafted is not None and isinstance(wanted.drafted.work, CommitWindows):
                spec = wanted.drafted.work.spec
                text = f"job {spec.name}: windows of {len(told)} bytes are too large to be committed"
                return self._homes.failed(Failure(spec.uid, text, spec.version))
        if led.again:  # in the order in which they were wanted: later ones may rest on earlier ones
            led.again.append(wanted)
            return []
        token, found = self._desk.propose(key, told, now_ms, led.term)
        led.tokens[token] = led.waiting[wanted.record] = wanted
        return found

    # -- what groups say -------------------------------------------------------------------------------------

    def follow(self, now_ms: int) -> list[Step]:
        """What the groups' word leads to: homes are taken up and released, records are told again."""
        found: list[Step] = []
        for key in sorted(self._desk.changed - {LOG_GROUP}):
            self._desk.changed.discard(key)
            held, led = self._desk.groups.holds(key), self._led.get(key)
            term = self._desk.leading.get(key) if held else None  # that word may come later
            if led is not None and led.term != term:
                del self._led[key]
                self._unbegun.discard(key)
                uid = self._machines[key].uid
                self._homes.wait_no_more(uid)
                found.extend(self._homes.release(uid, now_ms) if led.begun else ())
            if term is not None and key not in self._led:
                found.extend(self._elected(key, term, now_ms))
            if not held:
                found.extend(self._retired(key))
        answers, self._desk.answers = self._desk.answers, []
        for answer in answers:
            led = self._led.get(answer.group)
            wanted = led.tokens.pop(answer.token, None) if led is not None else None
            if led is not None and wanted is not None and isinstance(answer, replica.Rejected):
                led.again.append(wanted)
                self._again_ms = self._again_ms or now_ms + AGAIN_MS
        return found

    def _retired(self, key: bytes) -> Sequence[Step]:
        """We are no member any more, or the home is over."""
        machine = self._machines.pop(key, None)
        if machine is None or not machine.uid:
            return []
        if any(other.uid == machine.uid for other in self._machines.values()):
            return []  # another founder's, which has begun: what is in the store is of that one
        self._homes.misfounded.discard(machine.uid)
        return [ForgetHome(machine.uid, machine.flows)]

    def _elected(self, key: bytes, term: int, now_ms: int) -> Sequence[Step]:
        self._led[key] = _Led(term)
        self._next_ms = 0
        machine = self._machines[key]
        if self._homes.founding(machine.uid):
            self._homes.founded(machine.uid, term)
            return []
        found: list[Step] = []
        if key in self._adopting:
            self._adopting.discard(key)
            found += [] if self._adopting else [SaveFact(HOUSED_FACT, b"1")]
        if is_range(machine.uid) and machine.uid not in self._founded:
            found += self._range_founded(machine.uid)
        if is_range(machine.uid):
            self._led[key].begun = False
            self._unbegun.add(key)
            return [*found, *self.log_grew()]
        return [*found, self._load(key, term)]

    def _load(self, key: bytes, term: int) -> LoadHome:
        machine = self._machines[key]
        named = (flow.uid for spec in self._log.versions(machine.uid) for flow in spec.flows)
        return LoadHome(key, term, machine.uid, tuple(dict.fromkeys((*machine.flows, *named))))

    def log_grew(self) -> list[Step]:
        """Take up the homes of key ranges that we lead as the log has them begun; wish for that otherwise."""
        found: list[Step] = []
        for key in sorted(self._unbegun):
            machine = self._machines[key]
            begun = self._log.homes.has_begun(machine.uid, machine.founder)
            if begun is None:
                self._homes.wait_for(machine.uid, machine.founder)
                continue
            self._unbegun.discard(key)
            self._homes.wait_no_more(machine.uid)
            if begun:
                self._led[key].begun = True
                found.append(self._load(key, self._led[key].term))
            else:
                self._next_ms = 0
        return found

    def found_ranges(self, agent_id: str) -> list[Step]:
        """Found the homes of key ranges that the log wants this agent to found, with what is there: before
        they were replicated their roots were alone."""
        named = [(uid, home_key(self._log.homes.group(uid))) for uid in self._log.to_found(agent_id)]
        new = [
            (uid, key)
            for uid, key in named
            if uid not in self._founded | self._founding and not self._desk.groups.holds(key)
        ]
        self._founding.update(uid for uid, _ in new)
        return [SummariseHome(key, 0, uid, self._log.homes.flows(uid), agent_id) for uid, key in new]

    def _range_founded(self, uid: str) -> list[Step]:
        """Its group is there."""
        self._founding.discard(uid)
        self._founded = {known for known in self._founded if self._log.home(known) is not None} | {uid}
        return [SaveFact(FOUNDED_FACT, as_lines(self._founded))]

    def adopt(self, specs: Iterable[JobSpec]) -> list[Step]:
        """Jobs of a data folder of before homes were replicated: found their groups with what is there. That
        is done once; otherwise who was put out of a group would found another."""
        missing = [(s, home_key(s.uid)) for s in specs if s.replicated]
        missing = [(spec, key) for spec, key in missing if not self._desk.groups.holds(key)]
        self._adopting = {key for _, key in missing}
        found: list[Step] = [
            SummariseHome(key, 0, spec.uid, record.founded_flows(spec)) for spec, key in missing
        ]
        return found or [SaveFact(HOUSED_FACT, b"1")]

    # -- what has been done ----------------------------------------------------------------------------------

    def heard(self, event: HomeEvent, now_ms: int) -> Sequence[Step]:
        led = self._led.get(event.group) if not isinstance(event, Drafted) else None
        match event:
            case Drafted():
                return self._drafted(event, now_ms)
            case Applied():
                wanted = led.waiting.pop(event.record, None) if led is not None else None
                return self._told(wanted, event.seq, now_ms) if wanted is not None else []
            case Summarised() if event.index:
                return self._desk.compact(event.group, event.index, event.state, now_ms)
            case Summarised():
                held = self._desk.groups.holds(event.group)
                return [] if held else self._desk.create(event.group, event.state, now_ms)
            case HomeLoaded():
                if led is None or led.term != event.term:
                    return []
                uid = self._machines[event.group].uid
                if is_range(uid):
                    return self._homes.take_up_range(uid, event.flows, event.term, now_ms)
                if event.job is None:
                    return []
                return self._homes.take_up(event.job, event.flows, event.term, now_ms)

    def _drafted(self, event: Drafted, now_ms: int) -> Sequence[Step]:
        work = event.work
        spec = work.spec if isinstance(work, CommitWindows) else None
        key = home_key(spec.uid) if spec is not None else self._key_of(work.flow.uid)  # type: ignore[union-attr]
        led = self._led.get(key)
        if led is None or not any(work is known for known in led.drafts):
            return []  # of a term that is over
        led.drafts = [known for known in led.drafts if known is not work]
        if not event.record:
            return self._done(event.done, 0, now_ms)
        return self._want(key, led, _Wanted(event.record, event), now_ms)

    def _told(self, wanted: _Wanted, seq: int, now_ms: int) -> Sequence[Step]:
        """A record is committed, and applied here."""
        if wanted.saved is not None:
            return self._homes.saved(wanted.saved, now_ms)
        if wanted.begun:
            return self._homes.begun(wanted.begun, now_ms)
        return [] if wanted.drafted is None else self._done(wanted.drafted.done, seq, now_ms)

    def _done(
        self, done: PanesCommitted | WindowsCommitted | Failure, seq: int, now_ms: int
    ) -> Sequence[Step]:
        """A commit is made, with this number (0: it had one), or cannot be."""
        match done:
            case PanesCommitted():
                return self._homes.reading.panes_committed(replace(done, seq=seq), now_ms)
            case WindowsCommitted(gone=True):
                return self._homes.panes_gone(done.done)
            case WindowsCommitted():
                result = done.result and numbered(done.result, seq)
                return self._homes.windows_committed(replace(done, result=result), now_ms)
            case Failure():
                return self._homes.failed(done)

    def kept(self, key: bytes) -> str:
        """What a group of ours keeps, for people; empty: nothing any more, or nothing yet."""
        machine = self._machines.get(key)
        uid = machine.uid if machine is not None else ""
        spec = self._log.ever(job_of(uid)) if uid else None
        return "" if spec is None or self._is_over(uid, machine) else f"job {spec.name}"

    def home_of(self, key: bytes) -> str:
        """Where the home of a group of ours is, as the log has it; empty: nowhere."""
        machine = self._machines.get(key)
        return (machine is not None and self._log.home(machine.uid)) or ""

    def _is_over(self, uid: str, machine: HomeMachine | None) -> bool:
        """Whether the log says that a home is over, or that another agent has founded it."""
        if self._log.is_dropped(job_of(uid)) and self._log.home(uid) is None:
            return True
        return (
            is_range(uid) and machine is not None and self._log.homes.has_begun(uid, machine.founder) is False
        )

    # -- time ------------------------------------------------------------------------------------------------

    def deadline(self) -> int | None:
        held = self._desk.groups.seats > self._desk.groups.holds(LOG_GROUP)
        waits = [self._again_ms, self._next_ms if held else None]
        return min((at for at in waits if at is not None), default=None)

    def tick(self, now_ms: int) -> list[Step]:
        found: list[Step] = []
        if self._again_ms is not None and now_ms >= self._again_ms:
            self._again_ms = None
            for key, led in list(self._led.items()):
                again, led.again = led.again, []
                for wanted in again:
                    found.extend(self._want(key, led, wanted, now_ms))
        if now_ms >= self._next_ms:
            held = [key for key in self._desk.groups.held() if key != LOG_GROUP]
            for key in held:
                if self._staffing.due(key) <= now_ms:
                    found.extend(self._look(key, now_ms))
            due = (at for key in held if (at := self._staffing.due(key)) > now_ms)
            # many groups come to be looked at together, not each at a moment of its own
            self._next_ms = max(now_ms + QUICK_MS, min((now_ms + STAFF_MS, *due)))
        return found

    def peer_up(self, now_ms: int) -> None:
        """An agent has come that may be wanted in our groups."""
        self._next_ms = min(self._next_ms, now_ms + QUICK_MS)

    def keepers(self, uid: str) -> tuple[str, ...]:
        """The members of a job's home that we lead, by address; none if it is not replicated."""
        standing = self._desk.groups.standing(home_key(uid))
        return tuple(voter.address for voter in standing.membership.voters) if standing is not None else ()

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
        if uid in self._homes.misfounded:
            return self._desk.end(key, now_ms) if key in self._led else []
        return [*self._end_flows(key, uid, now_ms), *self._staffing.look(key, self._most, now_ms)]

    def _end_flows(self, key: bytes, uid: str, now_ms: int) -> list[Step]:
        """A flow that no version of any job reads any more has ended before its home: forget its panes."""
        found: list[Step] = []
        led = self._led.get(key)
        for flow in self._machines[key].flows if led is not None else ():
            if led is not None and self._log.has_ended(flow) and flow not in led.ended:
                led.ended.add(flow)
                found += self._propose(key, record.PanesDropped(flow, END_OF_TIME), now_ms)
        return found
