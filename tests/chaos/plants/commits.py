"""Planted bugs of section 5 of the protocol: committing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agents.node.groups import GroupDesk
from agents.node.hosting import Hosting
from elf.fields import replace
from elf.job.effects import SaveCosts
from elf.job.group.commits import Commits, Step, Wanted
from elf.job.group.groups import JobGroups
from overlay.raft.election import Election
from overlay.raft.leading import Leadership, Progress
from overlay.raft.messages import TimeoutNow, VoteRequest
from overlay.raft.values import Member as Voter


def commits_before_a_majority(patch: pytest.MonkeyPatch) -> None:
    """protocol 5.1: a leader takes for committed what it has itself."""

    def own(leadership: Leadership, value: Callable[[Progress], int], own: int) -> int:
        return own

    patch.setattr(Leadership, "_majority", own)


def lets_two_lead(patch: pytest.MonkeyPatch) -> None:
    """protocol 5.13: whoever has handed a job's group over goes on as if it led it, and so does who has got
    it."""
    propose = GroupDesk.propose
    patch.setattr(Hosting, "_deposed", lambda hosting, key, led, now_ms: [])
    patch.setattr(
        GroupDesk, "propose", lambda desk, key, record, now_ms, term=0: propose(desk, key, record, now_ms)
    )


def skips_the_last_round(patch: pytest.MonkeyPatch) -> None:
    """protocol 5.13: an agent is to lead before it has all that the group has, and is elected."""
    request = Election.request

    def hand_over(leadership: Leadership) -> None:
        moving, local = leadership._moving, leadership._local
        if moving is not None:
            local.context.send(moving[0].address, TimeoutNow(local.context.me, local.header(moving[0].slot)))

    def trust(election: Election, address: str, part: VoteRequest) -> None:
        told = replace(part, last_term=1 << 40) if part.told_to_stand else part
        request(election, address, told)

    patch.setattr(Leadership, "_timeout_now", hand_over)
    patch.setattr(Election, "request", trust)


def holds_for_ever(patch: pytest.MonkeyPatch) -> None:
    """protocol 5.13: a leader that gives up to hand its group over refuses records none the less."""
    due = Leadership.due

    def patient(leadership: Leadership) -> None:
        moving = leadership._moving
        due(leadership)
        if moving is not None and leadership._moving is None:
            leadership._moving = Voter("", 0), 1 << 60

    patch.setattr(Leadership, "due", patient)


def obeys_late_decisions(patch: pytest.MonkeyPatch) -> None:
    """protocol 5.14: a decision that comes late moves a job from where it has gone meanwhile."""
    patch.setattr("elf.job.catalog.admission._is_to_go", lambda log, said: True)
    patch.setattr(JobGroups, "leads_at", lambda groups, address, uid: groups.term(uid) is not None)


def obeys_late_decisions_on_trees(patch: pytest.MonkeyPatch) -> None:
    """protocol 5.15: a decision that comes late gives a job trees that its owner does not want any more."""
    patch.setattr("elf.job.catalog.admission._is_to_scale", lambda log, said: True)


def learns_for_itself(patch: pytest.MonkeyPatch) -> None:
    """protocol 5.16: what a job costs is known to its leader alone."""
    wanted = Commits.wanted

    def told(commits: Commits, effect: Wanted) -> list[Step] | None:
        if isinstance(effect, SaveCosts):
            commits._router.costs_kept(effect)
            return []
        return wanted(commits, effect)

    patch.setattr(Commits, "wanted", told)


def obeys_late_decisions_on_looks(patch: pytest.MonkeyPatch) -> None:
    """protocol 5.17: a decision that comes late sets looks anew that were set otherwise meanwhile."""
    patch.setattr("elf.job.catalog.admission._is_to_pause", lambda log, said: True)
