"""What a wish comes to in the stream log: the entry that its keepers append for it.

It is a function of the log and the wish alone: every keeper comes to the same. A wish may come late, twice,
or before what it is about: it is compared with what stands there, and comes to nothing the second time.
"""

from __future__ import annotations

from dataclasses import replace

from elf.errors import UserError
from elf.job.log.readers import not_taken
from elf.job.log.streamlog import StreamLog
from elf.job.messages.entries import (
    FlowEnded,
    HomeMoved,
    JobAdded,
    JobDropped,
    LogEntry,
    MemberJoined,
    MemberLeft,
    ProgramAdded,
    VersionAdded,
    VersionEnded,
)
from elf.job.messages.wishes import (
    AddJob,
    AddProgram,
    AddVersion,
    DropJobEntry,
    EndFlow,
    EndVersion,
    JoinStream,
    LeaveStream,
    MoveHome,
    Wish,
)
from elf.job.spec import Flow, JobSpec, home_uid, job_of


def grow(log: StreamLog, wish: Wish) -> tuple[LogEntry, ...]:
    """Append what a wish comes to, if it comes to anything: an entry, or, of a job that replaces another, the
    end of that before it. Raises ``UserError``, as ``entry_for``."""
    log.forget()
    found: list[LogEntry] = []
    entry = entry_for(log, wish)
    if isinstance(entry, JobAdded) and log.job(entry.spec.replaces) is not None:
        found.append(JobDropped(seq=entry.seq, uid=entry.spec.replaces))
        log.append(found[0])
        entry = entry_for(log, wish)
    if entry is not None:
        log.append(entry)
        found.append(entry)
    return tuple(found)


def entry_for(log: StreamLog, wish: Wish) -> LogEntry | None:
    """The entry that a wish comes to; None when what it wants stands there already. Raises ``UserError`` for
    a copied data folder."""
    seq = log.last + 1
    match wish:
        case JoinStream():
            return _join(log, seq, wish)
        case LeaveStream():
            member = log.member_of(wish.stream, wish.agent_id)
            if member is None or member.until_us <= wish.until_us:
                return None
            return MemberLeft(seq=seq, stream=wish.stream, number=member.number, until_us=wish.until_us)
        case AddJob():
            uid = wish.spec.uid
            if log.ever(uid) is not None or log.is_dropped(uid):
                return None
            if not_taken(log, wish.spec):
                return JobDropped(seq=seq, uid=uid)
            return JobAdded(seq=seq, spec=_placed(log, wish.spec, wish.spec.home))
        case AddVersion():
            return _version(log, seq, wish.spec)
        case EndVersion():
            # also of a version whose entry has not come yet: then it never does
            stands = log.is_over(wish.uid, wish.version) or log.ever(wish.uid) is None
            return None if stands else VersionEnded(seq=seq, uid=wish.uid, version=wish.version)
        case AddProgram():
            known = log.has_program(wish.spec.uid) or log.ever(wish.spec.uid) is not None
            return None if known else ProgramAdded(seq=seq, spec=wish.spec)
        case DropJobEntry():
            # also of a job whose entry has not come yet: then it never does
            dropped = log.is_dropped(wish.uid)
            return None if dropped else JobDropped(seq=seq, uid=wish.uid)
        case MoveHome():
            known = log.ever(job_of(wish.uid)) is not None and wish.term > log.homes.term(wish.uid)
            if not known or log.home(wish.uid) in (None, wish.home):
                return None
            return HomeMoved(seq=seq, uid=wish.uid, home=wish.home, term=wish.term)
        case EndFlow():
            ends = log.flow(wish.uid) is not None and not log.readers(wish.uid)
            return FlowEnded(seq=seq, uid=wish.uid) if ends else None


def is_behind(log: StreamLog, wish: Wish) -> bool:
    """Whether a wish is about a job that this log has not come to: who wishes knows more entries, and an
    ``entry_for`` of None does not say that what it wants stands there."""
    match wish:
        case AddVersion():
            uid = wish.spec.uid
        case EndVersion() | MoveHome():
            uid = job_of(wish.uid)
        case _:
            return False
    return log.ever(uid) is None and not log.is_dropped(uid)


def _version(log: StreamLog, seq: int, spec: JobSpec) -> LogEntry | None:
    uid, version, newest = spec.uid, spec.version, log.ever(spec.uid)
    known = log.version(uid, version) is not None or log.is_over(uid, version)
    if known or newest is None:
        return None
    if not_taken(log, spec):
        return VersionEnded(seq=seq, uid=uid, version=version)
    return VersionAdded(seq=seq, spec=replace(_placed(log, spec, newest.home), master=newest.master))


def _placed(log: StreamLog, spec: JobSpec, home: str) -> JobSpec:
    """With running flows in the place of those that are equal to them. New ones are at the job's ``home``,
    which may have moved while the wish was under way; those of a key range where that has its home, or where
    one was proposed if an agent is there.
    """

    def placed(flow: Flow) -> Flow:
        known = log.flow(flow.uid) or log.equal(flow.fragment)
        if known is not None:
            return known
        near = flow.home if flow.fragment.range[0] and log.there(flow.home) else home
        return replace(flow, home=log.home(home_uid(spec.uid, flow.fragment.range[0])) or near)

    return replace(spec, flows=tuple(map(placed, spec.flows)))


def _join(log: StreamLog, seq: int, wish: JoinStream) -> MemberJoined | None:
    """A start of an agent joins once: who has left comes back in a later one, and a wish that arrives late or
    twice lets nobody in again. An incarnation that is not above the known one is a copied folder.
    """
    known = log.member_of(wish.stream, wish.agent_id)
    if known is not None and (known.incarnation, known.address) == (wish.incarnation, wish.address):
        return None
    if known is not None and wish.incarnation <= known.incarnation:
        raise UserError(
            f"agent {wish.agent_id} is known as {known.name} at {known.address}, start number "
            f"{known.incarnation}; {wish.address} says {wish.incarnation}: is its data folder a copy? "
            "Remove that folder to start as a new agent"
        )
    return MemberJoined(
        seq=seq,
        stream=wish.stream,
        number=known.number if known is not None else len(log.members(wish.stream)),
        agent_id=wish.agent_id,
        name=wish.name,
        incarnation=wish.incarnation,
        address=wish.address,
        since_us=wish.since_us,
    )
