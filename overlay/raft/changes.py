"""Which membership comes next: the leader's policy, one member at a time (Raft thesis, section 4).

The order matters. A member that was started at another address with its disk is there from now on (with its
slot, so the voters do not change), unless a node at the old address lives, whose disk it would be a copy of.
A member that has lost its disk leaves first, then one that wants to go; a learner that has caught up gets its
vote; then the group shrinks to its size; then new ones enter as learners. A change waits until the one before
is committed, and until the leader has committed a record of its own term.

A member that wants to go waits a while for a replacement, where the group could spare fewer without it. If
one of three leaves, the other two need each other as soon as one of them has that in its log, committed or
not. Where it cannot go since the group would depend on a silent member, it waits for that one longer; then
that one is released first. A member that goes does so in the end, and three of which one is dead and one gone
decide nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import NamedTuple

from overlay.ids import closeness, node_id, to_int
from overlay.raft.local import LocalMember
from overlay.raft.values import Member, Membership


class _Going(NamedTuple):
    """A voter slot to be released when others have answered a round above ``after``; ``until``: when it stops
    waiting for a replacement; ``final``: when it stops waiting for a silent member without which it cannot
    go."""

    after: int
    until: int
    final: float = math.inf


class Changes:
    """What a leader has heard that calls for another membership. It is lost with the leadership, and
    requested again."""

    def __init__(self, local: LocalMember) -> None:
        self._local = local
        self._lost: set[int] = set()
        self._leaving: dict[int, _Going] = {}
        self._coming: dict[str, Member] = {}
        self._moved: dict[int, str] = {}
        self.invited: dict[str, int] = {}
        """Addresses that are to join, and until when they are asked."""

    def lost(self, slot: int) -> None:
        """The slot's disk is gone; the node may come again under a new slot."""
        member = self._local.membership.in_slot(slot)
        if member is not None:
            self._lost.add(slot)
            self.invite(member.address)

    def leave(self, slot: int, after: int, patience_ms: int | None = None) -> None:
        """Release the slot once the others have answered a round above ``after``: a member that has just died
        is silent for no longer than one that has nothing to say. ``patience_ms``: how long a member that asks
        for it waits for a replacement; None: it has not asked."""
        now, config = self._local.context.now, self._local.context.config
        until, final = now + (patience_ms or 0), math.inf if patience_ms is None else now + config.release_ms
        before = self._leaving.get(slot, _Going(after, until))
        self._leaving[slot] = _Going(before.after, min(before.until, until), min(before.final, final))

    def move(self, member: Member) -> None:
        """A voter slot is at that address, whatever the membership has."""
        self._moved[member.slot] = member.address

    @property
    def after(self) -> int:
        """Members are to answer a round above this one."""
        return max((going.after for going in self._leaving.values()), default=-1)

    def going(self) -> frozenset[str]:
        """Addresses of members whose slots are to be released."""
        members = self._local.membership.members
        return frozenset(member.address for member in members if member.slot in self._leaving)

    def invite(self, address: str) -> None:
        """Invite the address to join."""
        self.invited[address] = self._local.context.now + self._local.context.config.learner_ms

    def enter(self, member: Member) -> None:
        """A node with a durable slot wants in, or has moved; another slot at its address is lost."""
        before = self._local.membership.at(member.address)
        if before == member:
            return
        if before is not None:
            self._lost.add(before.slot)
        if self._local.membership.in_slot(member.slot) is not None:
            self.move(member)
            return
        if len(self._coming) < self._local.context.config.size:
            self._coming[member.address] = member

    def to_invite(self) -> Collection[str]:
        """Addresses to be asked now."""
        now, membership = self._local.context.now, self._local.membership
        for address, until in list(self.invited.items()):
            member = membership.at(address)
            if now >= until or (member is not None and member.slot not in self._lost):
                del self.invited[address]
        return tuple(address for address in self.invited if address not in self._coming)

    def next(
        self,
        caught_up: Callable[[Member], bool],
        stale: Callable[[Member], bool],
        answered: Callable[[Member, int], bool],
    ) -> Membership | None:
        """The next membership, if it should change. ``stale``: a learner not heard for long; ``answered``:
        which members have answered a round above that one, in this term."""
        membership, size = self._local.membership, self._local.context.config.size
        slots = {member.slot for member in membership.members}
        self._moved = {slot: address for slot, address in self._moved.items() if slot in slots}
        for member in membership.members:
            address = self._moved.pop(member.slot, member.address)  # the node there says so again
            if membership.at(address) is None and not self._local.links.alive(member.address):
                return membership.moved(member, address)
        self._lost &= slots
        self._leaving = {slot: going for slot, going in self._leaving.items() if slot in slots}
        for going in (dict.fromkeys(self._lost, _Going(0, 0)), self._leaving):
            for member in membership.members:
                if member.slot in going and member.slot != self._local.hard.slot:
                    smaller, (after, until, final) = membership.without(member), going[member.slot]
                    waits = smaller.spare < membership.spare and self._local.context.now < until
                    if not waits and self._works(smaller, answered, after):
                        return smaller
                    late = self._local.context.now >= final
                    if late and (fewer := self._without_dead(answered, after)) is not None:
                        return fewer
        for learner in membership.learners:
            if stale(learner):
                return membership.without(learner)
            if len(membership.voters) <= size and caught_up(learner):
                return membership.promoted(learner)
        if len(membership.voters) > size and self._works(
            smaller := membership.without(self._surplus()), answered
        ):
            return smaller
        return self._admission(membership, size)

    def _works(self, membership: Membership, answered: Callable[[Member, int], bool], after: int = 0) -> bool:
        """Whether a majority of it lives, so that no member is released that the group depends on. A member
        that has not answered yet only counts as alive because no leader listened to it before this term."""
        alive = self._local.links.alive
        others = [voter for voter in membership.voters if voter.slot != self._local.hard.slot]
        sound = [v for v in others if alive(v.address) and v.slot not in self._lost and answered(v, after)]
        return len(membership.voters) - len(others) + len(sound) >= membership.quorum

    def _without_dead(self, answered: Callable[[Member, int], bool], after: int) -> Membership | None:
        """Without one that is silent, if that leaves a majority that lives."""
        membership, alive = self._local.membership, self._local.links.alive
        dead = (v for v in membership.voters if v.slot != self._local.hard.slot and not alive(v.address))
        fewer = (membership.without(voter) for voter in dead)
        return next((smaller for smaller in fewer if self._works(smaller, answered, after)), None)

    def _admission(self, membership: Membership, size: int) -> Membership | None:
        while self._coming and len(membership.learners) < size:
            address = next(iter(self._coming))
            member = self._coming.pop(address)
            if membership.at(address) is None:
                return membership.with_learner(member)
        return None

    def _surplus(self) -> Member:
        """The voter that can be spared: a silent one, else the farthest from the key; never ourselves."""
        key, alive = to_int(self._local.key), self._local.links.alive
        others = [voter for voter in self._local.membership.voters if voter.slot != self._local.hard.slot]
        return max(
            others, key=lambda voter: (not alive(voter.address), closeness(key, node_id(voter.address)))
        )
