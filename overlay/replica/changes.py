"""Which membership comes next: the leader's policy, one member at a time (Raft thesis, section 4).

The order matters: who was started at another address with its disk is there from now on (with its seat, so
who decides does not change), unless somebody at the old one lives, whose disk it would be a copy of;
who has lost its disk leaves first, then who wants to go; a learner that has caught up gets its vote; then the
group shrinks to its size; then new ones enter as learners. A change waits until the one before is committed,
and until the leader has committed a record of its own term.

Who wants to go waits a while for one in its place, where the group could spare fewer without it: of three
that let one go the other two need each other from when one of them has that in its log, committed or not.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from overlay.ids import closeness, node_id, to_int
from overlay.replica.place import Place
from overlay.replica.values import Member, Membership


class _Going(NamedTuple):
    """A seat that shall be released, when others have answered a round above ``after``; ``until``: when it
    waits for nobody in its place any more."""

    after: int
    until: int


class Changes:
    """What a leader has heard that calls for another membership. Lost with the leadership; asked for
    again."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._lost: set[int] = set()
        self._leaving: dict[int, _Going] = {}
        self._coming: dict[str, Member] = {}
        self._moved: dict[int, str] = {}
        self.invited: dict[str, int] = {}
        """Addresses that shall join, and until when they are asked."""

    def lost(self, seat: int) -> None:
        """The seat's disk is gone; the node may come again as somebody new."""
        member = self._place.membership.seated(seat)
        if member is not None:
            self._lost.add(seat)
            self.invite(member.address)

    def leave(self, seat: int, after: int, patience_ms: int = 0) -> None:
        """The seat shall be released, once the others have answered a round above ``after``: who has just
        died is silent for no longer than who has nothing to say. ``patience_ms``: how long it waits for one
        in its place."""
        until = self._place.desk.now + patience_ms
        before = self._leaving.get(seat, _Going(after, until))
        self._leaving[seat] = _Going(before.after, min(before.until, until))

    def move(self, member: Member) -> None:
        """A seat is at that address, whatever the membership has."""
        self._moved[member.seat] = member.address

    @property
    def after(self) -> int:
        """Members shall answer a round above this one."""
        return max((going.after for going in self._leaving.values()), default=-1)

    def going(self) -> frozenset[str]:
        """Addresses of members whose seats shall be released."""
        members = self._place.membership.members
        return frozenset(member.address for member in members if member.seat in self._leaving)

    def invite(self, address: str) -> None:
        """The address shall join."""
        self.invited[address] = self._place.desk.now + self._place.desk.config.learner_ms

    def enter(self, member: Member) -> None:
        """A node with a durable seat wants in, or is elsewhere now; another seat at its address is lost."""
        before = self._place.membership.at(member.address)
        if before == member:
            return
        if before is not None:
            self._lost.add(before.seat)
        if self._place.membership.seated(member.seat) is not None:
            self.move(member)
            return
        if len(self._coming) < self._place.desk.config.size:
            self._coming[member.address] = member

    def to_invite(self) -> Collection[str]:
        """Addresses to be asked now."""
        now, membership = self._place.desk.now, self._place.membership
        for address, until in list(self.invited.items()):
            member = membership.at(address)
            if now >= until or (member is not None and member.seat not in self._lost):
                del self.invited[address]
        return tuple(address for address in self.invited if address not in self._coming)

    def next(
        self,
        caught_up: Callable[[Member], bool],
        stale: Callable[[Member], bool],
        answered: Callable[[Member, int], bool],
    ) -> Membership | None:
        """The next membership, if it should be another. ``stale``: a learner not heard for long;
        ``answered``: who has answered a round above that one, in this term."""
        membership, size = self._place.membership, self._place.desk.config.size
        seats = {member.seat for member in membership.members}
        self._moved = {seat: address for seat, address in self._moved.items() if seat in seats}
        for member in membership.members:
            address = self._moved.pop(member.seat, member.address)  # who is there says so again
            if membership.at(address) is None and not self._place.links.alive(member.address):
                return membership.moved(member, address)
        self._lost &= seats
        self._leaving = {seat: going for seat, going in self._leaving.items() if seat in seats}
        for going in (dict.fromkeys(self._lost, _Going(0, 0)), self._leaving):
            for member in membership.members:
                if member.seat in going and member.seat != self._place.hard.seat:
                    smaller, (after, until) = membership.without(member), going[member.seat]
                    waits = smaller.spare < membership.spare and self._place.desk.now < until
                    if not waits and self._works(smaller, answered, after):
                        return smaller
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
        """Whether a majority of it lives, so that nobody is let go on whom the group depends. Who has not
        answered yet only counts as alive because nobody had listened to it before this term."""
        alive = self._place.links.alive
        others = [voter for voter in membership.voters if voter.seat != self._place.hard.seat]
        sound = [v for v in others if alive(v.address) and v.seat not in self._lost and answered(v, after)]
        return len(membership.voters) - len(others) + len(sound) >= membership.quorum

    def _admission(self, membership: Membership, size: int) -> Membership | None:
        while self._coming and len(membership.learners) < size:
            address = next(iter(self._coming))
            member = self._coming.pop(address)
            if membership.at(address) is None:
                return membership.with_learner(member)
        return None

    def _surplus(self) -> Member:
        """The voter that can be spared: a silent one, else the farthest from the key; never ourselves."""
        key, alive = to_int(self._place.key), self._place.links.alive
        others = [voter for voter in self._place.membership.voters if voter.seat != self._place.hard.seat]
        return max(
            others, key=lambda voter: (not alive(voter.address), closeness(key, node_id(voter.address)))
        )
