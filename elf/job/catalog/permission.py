"""What a voter of the catalog log does not take of an agent, in a fleet with keys: each agent speaks for
itself and for the jobs that it leads. What ends a job, or another member, a person has signed who may
(protocol 12.10).

That whoever asks is at its address the voter's doors have seen (``agents.doors``). The voter looks at its
clock, so this is no function of the log: what it has let through all voters take, or refuse, alike
(``elf.job.catalog.admission``).
"""

from __future__ import annotations

from elf.job.catalog.log import CatalogLog
from elf.job.catalog.wishes import refused_drop, refused_offload, refused_pause
from elf.job.messages.log import (
    AddAggregate,
    AddOutput,
    AssignJobGroup,
    DecidePause,
    DecideRoute,
    DecideTrees,
    DropJobEntry,
    EndFlow,
    EndVersion,
    LeaveStream,
    OffloadRows,
    PauseRekeying,
    Proposal,
    SwapRing,
)
from elf.job.spec import job_of
from elf.security.authored import Authorship, stale


def forbidden(log: CatalogLog, asker: str, voter: str, proposal: Proposal, now_ms: int) -> str:
    """Why the ``voter`` does not take it of who is at the address ``asker``; empty: it does."""
    if log.roster is None:
        return ""
    match proposal:
        case LeaveStream():
            member = log.member_of(proposal.stream, proposal.agent_id)
            if member is None or member.address == asker:
                return ""
            return _not_taken_off(log, proposal.author, (member.name, member.address), now_ms)
        case AddOutput() | AddAggregate():
            author = proposal.spec.author
            return "" if author is None else stale(author.authored, now_ms / 1_000)
        case DropJobEntry():
            if log.is_dropped(proposal.uid):
                return ""
            author = proposal.author
            return refused_drop(log, proposal) or (
                "" if author is None else stale(author.authored, now_ms / 1_000)
            )
        case PauseRekeying(author=said):
            stands = log.is_rekeying_paused(proposal.uid) == proposal.paused
            if stands or log.output(proposal.uid) is None:
                return ""  # as said before, or too late
            return refused_pause(log, proposal) or (
                "" if said is None else stale(said.authored, now_ms / 1_000)
            )
        case OffloadRows(author=said):
            if not log.offloads.is_news(proposal) or log.job(proposal.uid) is None:
                return ""  # as said before, or too late
            return refused_offload(log, proposal) or (
                "" if said is None else stale(said.authored, now_ms / 1_000)
            )
        case EndVersion():
            leader = log.leader(job_of(proposal.uid))
            return "" if leader in (None, asker) else f"the job is led at {leader}"
        case SwapRing(leader=leader):
            return "" if leader == asker else "the master of its job says so, and nobody else"
        case EndFlow() | AssignJobGroup() | DecideTrees() | DecideRoute() | DecidePause():
            return "" if asker == voter else "the leader of the voters says so, and nobody else"
        case _:
            return ""


def _not_taken_off(log: CatalogLog, author: Authorship | None, named: tuple[str, str], now_ms: int) -> str:
    """Whether an admin has signed that a member, by its name or address, is gone."""
    if author is None:
        return "nobody has signed it"
    if author.text not in [f"take off {one}" for one in named]:
        return "another call was signed"
    return log.authors.refused_by_admin(author) or stale(author.authored, now_ms / 1_000)
