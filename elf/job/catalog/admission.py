"""What a proposal becomes in the catalog log: the entry that its voters append for it.

This is a function of the log and the proposal alone, so every voter gets the same result. A proposal may come
late, twice, or before what it is about: it is compared with what stands in the log, and the second time it
becomes nothing. So does one that makes no sense: without flows, or whose generation is so far above all known
ones that no job of that name could follow it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from msgspec import structs

from elf.errors import UserError
from elf.fields import MEMBERS_MAX, replace
from elf.job.catalog.log import CatalogLog
from elf.job.catalog.readers import not_taken
from elf.job.catalog.routings import is_news, misled
from elf.job.catalog.wishes import refused_drop, refused_offload, refused_pause
from elf.job.messages.log import (
    AddAggregate,
    AddJob,
    AddOutput,
    AddProgram,
    AddVersion,
    AggregateAdded,
    AssignJobGroup,
    ChangeRoster,
    DecidePause,
    DecideRoute,
    DecideTrees,
    DropJobEntry,
    EndFlow,
    EndVersion,
    FlowEnded,
    JobAdded,
    JobDropped,
    JobGroupAssigned,
    JobGroupMoved,
    JoinStream,
    LeaveStream,
    LogEntry,
    MemberJoined,
    MemberLeft,
    MoveJobGroup,
    OffloadRows,
    OutputAdded,
    PauseDecided,
    PauseRekeying,
    ProgramAdded,
    Proposal,
    RekeyingPaused,
    RingSwapped,
    RosterChanged,
    RouteDecided,
    RowsOffloaded,
    SwapRing,
    TreesDecided,
    VersionAdded,
    VersionEnded,
)
from elf.job.output import OUTPUTS_MAX
from elf.job.own import AGGREGATES_MAX
from elf.job.program.spec import ProgramSpec
from elf.job.spec import Flow, JobSpec, group_uid, job_of, misnamed
from elf.job.tables import TABLES_MAX, is_table
from elf.security.authored import SUBMIT
from overlay.ids import closeness, node_id, to_int

E = TypeVar("E")
GENERATIONS_AHEAD = 1 << 20
"""How many jobs of a name may be under way to the log at once."""


def grow(log: CatalogLog, proposal: Proposal) -> tuple[LogEntry, ...]:
    """Append what a proposal becomes, if anything: an entry, and, for a job that replaces another, the end of
    that job before it. Raises ``UserError``, as ``entry_for``."""
    log.forget()
    found: list[LogEntry] = []
    entry = entry_for(log, proposal)
    if isinstance(entry, JobAdded) and _replaces(log, entry.spec):
        found.append(JobDropped(seq=entry.seq, uid=entry.spec.replaces))
        log.append(found[0])
        entry = entry_for(log, proposal)
    if entry is not None:
        log.append(entry)
        found.append(entry)
    return tuple(found)


def _replaces(log: CatalogLog, spec: JobSpec) -> bool:
    """Whether a new job takes the place of another one: of its name, and of the same person."""
    known = log.job(spec.replaces)
    return known is not None and (known.name, known.creator) == (spec.name, spec.creator)


def entry_for(log: CatalogLog, proposal: Proposal) -> LogEntry | None:
    """The entry that a proposal becomes; None if what it asks for stands in the log already. Raises
    ``UserError`` for a copied data folder."""
    seq = log.last + 1
    match proposal:
        case JoinStream():
            return _join(log, seq, proposal)
        case LeaveStream():
            member = log.member_of(proposal.stream, proposal.agent_id)
            if member is None or member.until_us <= proposal.until_us:
                return None
            return MemberLeft(
                seq=seq, stream=proposal.stream, number=member.number, until_us=proposal.until_us
            )
        case AddJob():
            uid = proposal.spec.uid
            if log.ever(uid) is not None or log.is_dropped(uid) or log.refused(proposal.spec):
                return None
            if _leaps(log, uid) or _makes_no_sense(log, proposal.spec):
                return None
            if not_taken(log, proposal.spec):
                return JobDropped(seq=seq, uid=uid)
            return JobAdded(seq=seq, spec=_placed(log, proposal.spec, proposal.spec.leader))
        case AddVersion():
            return _version(log, seq, proposal.spec)
        case EndVersion():
            # also for a version whose entry has not come yet: then it never does
            stands = log.is_over(proposal.uid, proposal.version) or log.ever(proposal.uid) is None
            return None if stands else VersionEnded(seq=seq, uid=proposal.uid, version=proposal.version)
        case AddProgram():
            uid = proposal.spec.uid
            known = log.has_program(uid) or log.ever(uid) is not None or _leaps(log, uid)
            spec = _rooted(log, proposal.spec)
            refused = known or log.authors.refused_program(spec) or log.misplaced(spec)
            return None if refused else ProgramAdded(seq=seq, spec=spec)
        case AddOutput(spec=output):
            hopeless = log.has_output(output.uid) or _leaps(log, output.uid) or log.job(output.job) is None
            there = [one for one in log.outputs(output.job) if one.uid != output.option("of")]
            hopeless |= bool(output.option("of")) and log.output(output.option("of")) is None
            if hopeless or len(there) >= OUTPUTS_MAX or log.refused_output(output):
                return None
            if is_table(output) and sum(map(is_table, there)) >= TABLES_MAX:
                return None
            named = [s for s in log.outputs() if (s.name, s.creator) == (output.name, output.creator)]
            same = any(s.uid != output.option("of") for s in named)
            return None if same else OutputAdded(seq=seq, spec=output)
        case PauseRekeying():
            table, author = log.output(proposal.uid), proposal.author
            changes = table is not None and is_table(table) and bool(table.option("of"))
            stands = log.is_rekeying_paused(proposal.uid) == proposal.paused
            if not changes or stands or refused_pause(log, proposal):
                return None
            nonces = () if author is None else (author.authored.nonce,)
            return RekeyingPaused(seq=seq, uid=proposal.uid, paused=proposal.paused, nonces=nonces)
        case OffloadRows(uid=uid, agent_id=agent_id, helper=helper, at_ms=at_ms, author=author):
            if not log.offloads.is_news(proposal) or refused_offload(log, proposal):
                return None
            nonces = () if author is None else (author.authored.nonce,)
            return RowsOffloaded(
                seq=seq, uid=uid, agent_id=agent_id, helper=helper, at_ms=at_ms, nonces=nonces
            )
        case SwapRing():
            table = log.output(proposal.uid)
            if table is None or not log.rings.is_changing(table.uid) or log.is_rekeying_paused(table.uid):
                return None
            late = log.leader(table.job) != proposal.leader  # whoever leads now may have given more
            return None if late else RingSwapped(seq=seq, uid=table.uid, number=proposal.number)
        case AddAggregate(spec=own):
            known = log.has_aggregate(own.uid) or _leaps(log, own.uid) or not own.text
            others = [one for one in log.aggregates() if one.creator == own.creator and one.app != own.app]
            if known or len(others) >= AGGREGATES_MAX or own.unusable or log.authors.refused_aggregate(own):
                return None
            return AggregateAdded(seq=seq, spec=own)
        case DropJobEntry():
            # also for a job whose entry has not come yet: then it never does
            dropped = log.is_dropped(proposal.uid) or _leaps(log, proposal.uid)
            if dropped or refused_drop(log, proposal):
                return None
            author = proposal.author
            alone = author is not None and not author.text.startswith(SUBMIT)
            nonces = (author.authored.nonce,) if author is not None and alone else ()
            return JobDropped(seq=seq, uid=proposal.uid, nonces=nonces)
        case MoveJobGroup():
            job = job_of(proposal.uid)
            known = log.ever(job) is not None or log.program(job) is not None
            newer = proposal.term > log.job_groups.term(proposal.uid)
            if not (known and newer) or log.leader(proposal.uid) in (None, proposal.leader):
                return None
            return JobGroupMoved(seq=seq, uid=proposal.uid, leader=proposal.leader, term=proposal.term)
        case AssignJobGroup():  # a decision that comes late is none
            return _entry(JobGroupAssigned, seq, proposal) if _is_to_go(log, proposal) else None
        case DecideTrees():
            return _entry(TreesDecided, seq, proposal) if _is_to_scale(log, proposal) else None
        case DecideRoute():
            return _entry(RouteDecided, seq, proposal) if _is_to_be_routed(log, proposal) else None
        case DecidePause():
            return _entry(PauseDecided, seq, proposal) if _is_to_pause(log, proposal) else None
        case EndFlow():
            ends = log.flow(proposal.uid) is not None and not log.readers(proposal.uid)
            return FlowEnded(seq=seq, uid=proposal.uid) if ends else None
        case ChangeRoster(signed=signed):
            roster = log.roster
            if roster is None or roster.has(signed) or roster.refusal(signed):
                return None
            return RosterChanged(seq=seq, signed=signed)


def _entry(kind: Callable[..., E], seq: int, said: Proposal) -> E:
    """The entry that says just what a proposal does."""
    return kind(seq=seq, **structs.asdict(said))


def _is_overtaken(log: CatalogLog, said: AssignJobGroup | DecideTrees | DecidePause) -> bool:
    """Whether something newer was decided of a job or job group."""
    last = log.assignments.last(said.uid)
    return last is not None and last.at_ms >= said.at_ms


def _is_to_go(log: CatalogLog, said: AssignJobGroup) -> bool:
    """Whether a job group is still where the decision found it."""
    there = log.leader(said.uid) == said.origin != said.target
    return there and not _is_overtaken(log, said)


def _is_to_scale(log: CatalogLog, said: DecideTrees) -> bool:
    """Whether a job still has the trees that the decision found, and may have the others."""
    spec = log.job(said.uid)
    if spec is None or spec.scale is None or not spec.plan.trees == said.before != said.trees:
        return False
    return spec.scale[0] <= said.trees <= spec.scale[1] and not _is_overtaken(log, said)


def _is_to_be_routed(log: CatalogLog, said: DecideRoute) -> bool:
    """Whether a flow is still there, and can go so, and does not yet."""
    if log.flow(said.uid) is None or misled(said.target, said.vias):
        return False
    return is_news(log.routings.last(said.uid), said)


def _is_to_pause(log: CatalogLog, said: DecidePause) -> bool:
    """Whether a job still looks as far apart as the decision found."""
    spec = log.job(said.uid)
    chosen = None if spec is None else spec.definition.chosen
    stands = chosen is not None and chosen.poll_ms == said.before_ms != said.pause_ms
    return stands and not _is_overtaken(log, said)


def is_behind(log: CatalogLog, proposal: Proposal) -> bool:
    """Whether a proposal is about a job that this log has not come to. The proposer knows more entries then,
    and an ``entry_for`` of None does not say that what it asks for stands in the log."""
    match proposal:
        case AddVersion():
            uid = proposal.spec.uid
        case EndVersion() | MoveJobGroup() | AssignJobGroup() | DecideTrees() | DecidePause() | OffloadRows():
            uid = job_of(proposal.uid)
        case _:
            return False
    return log.ever(uid) is None and not log.has_program(uid) and not log.is_dropped(uid)


def _makes_no_sense(log: CatalogLog, spec: JobSpec) -> bool:
    """Whether flows cannot be, or have names that neither their contents nor the log know."""
    return bool(log.contradicts(spec)) or any(map(log.lacks, misnamed(spec)))


def _leaps(log: CatalogLog, uid: str) -> bool:
    """Whether the generation in a uid is out of reach."""
    app, _, generation = job_of(uid).partition(".")
    return generation.isdecimal() and int(generation) > log.highest(app) + GENERATIONS_AHEAD


def _version(log: CatalogLog, seq: int, spec: JobSpec) -> LogEntry | None:
    uid, version, newest = spec.uid, spec.version, log.ever(spec.uid)
    known = log.version(uid, version) is not None or log.is_over(uid, version)
    if known or newest is None or _makes_no_sense(log, spec) or log.refused(spec):
        return None
    if not_taken(log, spec):
        return VersionEnded(seq=seq, uid=uid, version=version)
    return VersionAdded(seq=seq, spec=replace(_placed(log, spec, newest.leader), master=newest.master))


def _placed(log: CatalogLog, spec: JobSpec, leader: str) -> JobSpec:
    """The proposal, with running flows in place of those that equal them. New flows are at the job's
    ``leader``, which may have moved while the proposal was under way. Those of a key range are where the
    range has its job group, or where one was proposed if an agent is there."""

    def placed(flow: Flow) -> Flow:
        known = log.flow(flow.uid) or log.equal(flow.fragment)
        if known is not None:
            return known
        near = flow.leader if flow.fragment.range[0] and log.there(flow.leader) else leader
        return replace(flow, leader=log.leader(group_uid(spec.uid, flow.fragment.range[0])) or near)

    return spec.with_flows(map(placed, spec.flows))


def _rooted(log: CatalogLog, spec: ProgramSpec) -> ProgramSpec:
    """The proposal, with the trees of which nobody is at the root where the agent is that is nearest to their
    keys."""
    there = {at: node_id(at) for at in sorted(log.addresses())}
    asked = (*spec.roots, *[""] * len(spec.trees))[: len(spec.trees) - 1]

    def root(at: str, key: int) -> str:
        return at if at in there or not there else min(there, key=lambda one: closeness(key, there[one]))

    roots = tuple(root(at, to_int(topic)) for at, topic in zip(asked, spec.topics[1:], strict=True))
    return spec if spec.roots == roots else replace(spec, roots=roots)


def _join(log: CatalogLog, seq: int, proposal: JoinStream) -> MemberJoined | None:
    """Each start of an agent joins once: an agent that has left comes back in a later start, and a proposal
    that arrives late or twice lets nobody in again. An incarnation that is not above the known one is a
    copied folder. With keys, an agent stays who it is while the key of that name has not been revoked."""
    known = log.member_of(proposal.stream, proposal.agent_id)
    if known is not None and (known.incarnation, known.address) == (proposal.incarnation, proposal.address):
        return None
    if known is not None and proposal.incarnation <= known.incarnation:
        raise UserError(
            f"agent {proposal.agent_id} is known as {known.name} at {known.address}, start number "
            f"{known.incarnation}; {proposal.address} says {proposal.incarnation}: is its data folder a copy?"
            " Remove that folder to start as a new agent"
        )
    if known is not None and known.name != proposal.name and _has_key(log, known.name):
        raise UserError(
            f"agent {proposal.agent_id} is {known.name}, whose key holds, and not {proposal.name} "
            f"(elf keys revoke {known.name}, if it has that name now)"
        )
    if known is None and len(log.members(proposal.stream)) >= MEMBERS_MAX:
        raise UserError(f"stream {proposal.stream} has had {MEMBERS_MAX} agents, and can have no more")
    return MemberJoined(
        seq=seq,
        stream=proposal.stream,
        number=known.number if known is not None else len(log.members(proposal.stream)),
        agent_id=proposal.agent_id,
        name=proposal.name,
        incarnation=proposal.incarnation,
        address=proposal.address,
        since_us=proposal.since_us,
        labels=proposal.labels,
        place=proposal.place,
        lends=proposal.lends,
    )


def _has_key(log: CatalogLog, name: str) -> bool:
    return log.roster is not None and log.roster.named("agent", name) is not None
