"""Planted bugs: each of the classic ways to get a replicated log wrong, to see whether the judge sees it; and
trees that do not go by regions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from overlay.raft.context import Context
from overlay.raft.effects import Effect, Persist, Promised
from overlay.raft.election import Election
from overlay.raft.group import Group, Headed
from overlay.raft.hard import Hard
from overlay.raft.leading import Leadership
from overlay.raft.local import Role
from overlay.raft.log import Log
from overlay.raft.messages import VoteRequest
from overlay.raft.reception import Reception
from overlay.raft.values import NOTHING, Membership
from overlay.regions import Regions
from overlay.treelinks import TreeLinks

Plant = Callable[[pytest.MonkeyPatch], None]


def votes_twice(patch: pytest.MonkeyPatch) -> None:
    """protocol 5.2: a voter forgets whom it voted for in this term."""

    def promise(hard: Hard, term: int, vote: int) -> None:
        hard.term, hard.vote = term, vote
        hard._context.write(Promised(hard.group, term, vote))

    request = Election.request

    def forgetful(election: Election, address: str, part: VoteRequest) -> None:
        local = election._local
        if not part.pre and local.role is Role.FOLLOWER and part.ballot == local.term:
            election._local.hard.vote = 0
        request(election, address, part)

    patch.setattr(Hard, "promise", promise)
    patch.setattr(Election, "request", forgetful)


def answers_before_it_persists(patch: pytest.MonkeyPatch) -> None:
    """protocol 5.2: messages leave before the disk has what they say."""
    take = Context.take

    def hasty(context: Context) -> list[Effect]:
        return sorted(take(context), key=lambda effect: isinstance(effect, Persist))

    patch.setattr(Context, "take", hasty)


def commits_an_old_term_by_counting(patch: pytest.MonkeyPatch) -> None:
    """protocol 5.1: what a majority has of an earlier term is taken for committed (Figure 8 of the paper)."""
    commit, term_at = Leadership._commit, Log.term_at

    def counting(leadership: Leadership) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(
                Log, "term_at", lambda log, index: leadership._term if term_at(log, index) else None
            )
            commit(leadership)

    patch.setattr(Leadership, "_commit", counting)


def votes_without_memory(patch: pytest.MonkeyPatch) -> None:
    """protocol 5.3: a node whose disk was lost takes the slot that it is addressed by."""
    headed = Reception._headed

    def amnesiac(reception: Reception, address: str, part: Headed) -> None:
        header = part.header
        if header.group not in reception.groups:
            hard = Hard.in_slot(reception._context, header.group, header.birth, header.to_slot, NOTHING)
            reception.groups[header.group] = Group(reception._context, reception.links, hard)
        headed(reception, address, part)

    patch.setattr(Reception, "_headed", amnesiac)


def decides_with_too_few(patch: pytest.MonkeyPatch) -> None:
    """protocol 5.1: half of the voters are taken for a majority."""
    patch.setattr(Membership, "quorum", property(lambda self: max(1, len(self.voters) // 2)))


def asks_the_host_from_anywhere(patch: pytest.MonkeyPatch) -> None:
    """protocol 4.10: each node of a region takes itself for the head."""
    above = Regions.above

    def alone(regions: Regions, topic: bytes, host: str, avoid: Callable[[int], bool]) -> str | None:
        return host if above(regions, topic, host, avoid) is not None else None

    patch.setattr(Regions, "above", alone)


def climbs_past_the_way(patch: pytest.MonkeyPatch) -> None:
    """protocol 4.12: a head that is sent up leaves the region over which its way goes."""
    patch.setattr(TreeLinks, "may_climb", lambda links, tree: len(tree.path) > 1)


IN_HISTORIES: list[tuple[Plant, int]] = [
    (votes_twice, 9),
    (votes_without_memory, 56),
    (decides_with_too_few, 0),
]
"""Those that random histories find soon, and a seed to begin with, since it did; the others need the right
moment, and have a script each."""
