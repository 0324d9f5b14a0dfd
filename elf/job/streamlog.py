"""The stream log: members, flows and jobs of every stream, as numbered entries that every agent follows.

Its *founder* appends; everybody else holds a prefix of it. It says who is **expected** (without it "12 of 12
agents" may mean 12 of 15), which flows to compute, which jobs read them and where a job's home is. Member
numbers are given once and never used again; rosters are in event time: a member is expected in a pane when
``since <= start of the pane < until`` (PROTOCOL 1, 2).

The order of entries decides who shares a flow: a job is *attached* to the flows that its entry names, from
its entry on to its tombstone. The founder puts a running flow in the place of an equal one that a new job
proposes, and ends a flow that no job is attached to; nothing is attached after the end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import msgspec

from elf.errors import ElfBug, UserError
from elf.job.messages import (
    FlowEnded,
    JobAdded,
    JobDropped,
    JoinStream,
    LogEntry,
    MemberJoined,
    MemberLeft,
    ProgramAdded,
)
from elf.job.program import ProgramSpec
from elf.job.spec import Flow, JobSpec
from elf.ql.plan import Fragment

FOREVER_US = 1 << 62


@dataclass(frozen=True)
class Member:
    """A member of a stream, as the log last said."""

    number: int
    agent_id: str
    name: str
    incarnation: int
    address: str
    since_us: int
    until_us: int = FOREVER_US


class StreamLog:
    """A prefix of the log and what follows from it."""

    def __init__(self, entries: Iterable[LogEntry] = ()) -> None:
        self._entries: list[LogEntry] = []
        self._members: dict[str, dict[int, Member]] = {}
        self._jobs: dict[str, JobSpec] = {}
        self._programs: dict[str, ProgramSpec] = {}
        self._dropped: set[str] = set()
        self._flows: dict[str, Flow] = {}
        self._by_fragment: dict[Fragment, str] = {}
        self._attached: dict[str, dict[str, None]] = {}
        self._ended: set[str] = set()
        for entry in entries:
            self._apply(entry)

    @property
    def last(self) -> int:
        """Number of the last entry; 0 when there is none."""
        return len(self._entries)

    def after(self, seq: int, limit: int = 500) -> tuple[LogEntry, ...]:
        return tuple(self._entries[seq : seq + limit])

    def extend(self, after: int, entries: Iterable[LogEntry]) -> tuple[LogEntry, ...]:
        """Take what is new of a tail that begins after ``after``; a gap takes nothing. The new entries are
        returned.
        """
        if after > self.last:
            return ()
        new = tuple(entry for entry in entries if entry.seq > self.last)
        for entry in new:
            self._apply(entry)
        return new

    def _apply(self, entry: LogEntry) -> None:
        if entry.seq != self.last + 1:
            raise ElfBug(f"stream log: entry {entry.seq} after {self.last}")
        self._entries.append(entry)
        match entry:
            case MemberJoined():
                known = self._members.setdefault(entry.stream, {}).get(entry.number)
                since = entry.since_us if known is None or known.until_us != FOREVER_US else known.since_us
                self._members[entry.stream][entry.number] = Member(
                    entry.number, entry.agent_id, entry.name, entry.incarnation, entry.address, since
                )
            case MemberLeft():
                member = self._members[entry.stream][entry.number]
                self._members[entry.stream][entry.number] = replace(member, until_us=entry.until_us)
            case JobAdded():
                self._jobs[entry.spec.uid] = entry.spec
                self._attach(entry.spec)
            case ProgramAdded():
                self._programs[entry.spec.uid] = entry.spec
            case JobDropped():
                self._detach(entry)
            case FlowEnded():
                self._forget_flow(entry.uid)

    def _attach(self, spec: JobSpec) -> None:
        for flow in spec.flows:
            if flow.uid not in self._ended:
                self._flows.setdefault(flow.uid, flow)
                self._by_fragment.setdefault(flow.fragment, flow.uid)
                self._attached.setdefault(flow.uid, {})[spec.uid] = None

    def _detach(self, entry: JobDropped) -> None:
        self._dropped.add(entry.uid)
        spec = self._jobs.get(entry.uid)
        for flow in spec.flows if spec else ():
            readers = self._attached.get(flow.uid)
            if readers is not None:
                readers.pop(entry.uid, None)
                if not readers and not entry.lingers:
                    self._forget_flow(flow.uid)

    def _forget_flow(self, uid: str) -> None:
        self._ended.add(uid)
        self._attached.pop(uid, None)
        flow = self._flows.pop(uid, None)
        if flow is not None and self._by_fragment.get(flow.fragment) == uid:
            del self._by_fragment[flow.fragment]

    # -- what the founder appends ----------------------------------------------------------------------------

    def join(self, wish: JoinStream) -> tuple[LogEntry, ...]:
        """The entry for an agent that joins a stream; none when it stands there already.

        Raises ``UserError`` for an incarnation that is not above the known one (a copied data folder).
        """
        known = self.member_of(wish.stream, wish.agent_id)
        if known is not None and known.incarnation == wish.incarnation and known.address == wish.address:
            if known.until_us == FOREVER_US:
                return ()
        elif known is not None and wish.incarnation <= known.incarnation:
            raise UserError(
                f"agent {wish.agent_id} is known as {known.name} at {known.address}, start number "
                f"{known.incarnation}; {wish.address} says {wish.incarnation}: is its data folder a copy? "
                "Remove that folder to start as a new agent"
            )
        number = known.number if known is not None else len(self._members.get(wish.stream, {}))
        return self._append(
            MemberJoined(
                seq=self.last + 1,
                stream=wish.stream,
                number=number,
                agent_id=wish.agent_id,
                name=wish.name,
                incarnation=wish.incarnation,
                address=wish.address,
                since_us=wish.since_us,
            )
        )

    def leave(self, stream: str, agent_id: str, until_us: int) -> tuple[LogEntry, ...]:
        known = self.member_of(stream, agent_id)
        if known is None or known.until_us <= until_us:
            return ()
        return self._append(
            MemberLeft(seq=self.last + 1, stream=stream, number=known.number, until_us=until_us)
        )

    def add_job(self, spec: JobSpec) -> tuple[LogEntry, ...]:
        """The entry of a job, which reads running flows where they are equal to those that it proposes."""
        if spec.uid in self._jobs or spec.uid in self._dropped:
            return ()
        flows = tuple(self._flows.get(self._by_fragment.get(f.fragment, ""), f) for f in spec.flows)
        return self._append(JobAdded(seq=self.last + 1, spec=replace(spec, flows=flows)))

    def add_program(self, spec: ProgramSpec) -> tuple[LogEntry, ...]:
        if spec.uid in self._programs or spec.uid in self._jobs or spec.uid in self._dropped:
            return ()
        return self._append(ProgramAdded(seq=self.last + 1, spec=spec))

    def drop_job(self, uid: str) -> tuple[LogEntry, ...]:
        """A tombstone, also of a job whose entry has not come yet: then it never does."""
        if uid in self._dropped:
            return ()
        return self._append(JobDropped(seq=self.last + 1, uid=uid, lingers=True))

    def end_flow(self, uid: str) -> tuple[LogEntry, ...]:
        """End a flow that no job is attached to."""
        if uid not in self._flows or self._attached[uid]:
            return ()
        return self._append(FlowEnded(seq=self.last + 1, uid=uid))

    def _append(self, entry: LogEntry) -> tuple[LogEntry, ...]:
        self._apply(entry)
        return (entry,)

    # -- what everybody asks ---------------------------------------------------------------------------------

    def streams(self) -> tuple[str, ...]:
        return tuple(sorted(self._members))

    def members(self, stream: str) -> tuple[Member, ...]:
        return tuple(self._members.get(stream, {}).values())

    def member_of(self, stream: str, agent_id: str) -> Member | None:
        return next((m for m in self.members(stream) if m.agent_id == agent_id), None)

    def jobs(self) -> tuple[JobSpec, ...]:
        """Jobs that are not dropped."""
        return tuple(spec for uid, spec in self._jobs.items() if uid not in self._dropped)

    def job(self, uid: str) -> JobSpec | None:
        return None if uid in self._dropped else self._jobs.get(uid)

    def is_dropped(self, uid: str) -> bool:
        return uid in self._dropped

    def flows(self) -> tuple[Flow, ...]:
        """Flows that have not ended."""
        return tuple(self._flows.values())

    def flow(self, uid: str) -> Flow | None:
        return self._flows.get(uid)

    def readers(self, uid: str) -> tuple[JobSpec, ...]:
        """The jobs that are attached to a flow."""
        return tuple(self._jobs[job] for job in self._attached.get(uid, ()))

    def idle_flows(self) -> tuple[str, ...]:
        """Flows that no job is attached to."""
        return tuple(uid for uid, jobs in self._attached.items() if not jobs)

    def find_job(self, name: str, creator: str) -> JobSpec | None:
        """The job of that name: the creator's own, else the only one of that name."""
        named = [spec for spec in self.jobs() if spec.name == name]
        own = [spec for spec in named if spec.creator == creator]
        if own:
            return own[-1]
        return named[0] if len(named) == 1 else None

    def programs(self) -> tuple[ProgramSpec, ...]:
        """Jobs in Python that are not dropped."""
        return tuple(spec for uid, spec in self._programs.items() if uid not in self._dropped)

    def program(self, uid: str) -> ProgramSpec | None:
        return None if uid in self._dropped else self._programs.get(uid)

    def find_program(self, name: str, creator: str) -> ProgramSpec | None:
        """The job in Python of that name: the creator's own, else the only one of that name."""
        named = [spec for spec in self.programs() if spec.name == name]
        own = [spec for spec in named if spec.creator == creator]
        if own:
            return own[-1]
        return named[0] if len(named) == 1 else None

    def generation(self, name: str, creator: str) -> int:
        """The generation that a new job of this name gets: one above every one that ever was."""
        ever: list[JobSpec | ProgramSpec] = [*self._jobs.values(), *self._programs.values()]
        return 1 + max((s.generation for s in ever if (s.name, s.creator) == (name, creator)), default=0)


def encode_entry(entry: LogEntry) -> bytes:
    return msgspec.msgpack.encode(entry)


def decode_entry(data: bytes) -> LogEntry:
    entry: LogEntry = msgspec.msgpack.decode(data, type=LogEntry)
    return entry
