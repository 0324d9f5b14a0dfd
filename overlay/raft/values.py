"""The values of a group: members, memberships, records, snapshots; plain values that travel and are
stored."""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from overlay.effects import Rng
from overlay.fields import Number, Several, Text, Value


def draw(rng: Rng) -> int:
    """A unique random number of 62 bits: for slots and births. Never 0."""
    return 1 + (rng.randrange(1 << 31) << 31 | rng.randrange(1 << 31))


class Member(Value, frozen=True):
    """A node in a group. ``slot`` was drawn by the node itself when it first made hard state for this group,
    and is stored with that state. A node that has lost its disk draws another, so it is never taken for its
    former self."""

    address: Text
    slot: Number


class Membership(Value, frozen=True):
    """The members of a group. ``epoch`` counts the changes; learners get records and have no vote."""

    epoch: Number
    voters: Several[Member]
    learners: Several[Member]

    @property
    def quorum(self) -> int:
        """The number of voters that decide."""
        return len(self.voters) // 2 + 1

    @property
    def spare(self) -> int:
        """How many voters may die while the others still decide."""
        return len(self.voters) - self.quorum

    @property
    def members(self) -> tuple[Member, ...]:
        return self.voters + self.learners

    def in_slot(self, slot: int) -> Member | None:
        """The member with that slot."""
        return next((member for member in self.members if member.slot == slot), None)

    def at(self, address: str) -> Member | None:
        """The member at that address."""
        return next((member for member in self.members if member.address == address), None)

    def votes(self, slot: int) -> bool:
        """Whether that slot has a vote."""
        return any(member.slot == slot for member in self.voters)

    def with_learner(self, member: Member) -> Membership:
        return replace(self, epoch=self.epoch + 1, learners=(*self.learners, member))

    def promoted(self, member: Member) -> Membership:
        """The same with a learner as voter."""
        rest = tuple(other for other in self.learners if other != member)
        return Membership(self.epoch + 1, (*self.voters, member), rest)

    def moved(self, member: Member, address: str) -> Membership:
        """The same with a member at another address; the voters stay the same."""
        there = replace(member, address=address)
        voters = tuple(there if other == member else other for other in self.voters)
        learners = tuple(there if other == member else other for other in self.learners)
        return Membership(self.epoch + 1, voters, learners)

    def without(self, member: Member) -> Membership:
        return Membership(
            self.epoch + 1,
            tuple(other for other in self.voters if other != member),
            tuple(other for other in self.learners if other != member),
        )


NOBODY: Final = Membership(0, (), ())
"""What a node knows of a group that it has only been invited to."""


class Entry(Value, frozen=True):
    """One record of a log: the caller's ``payload``, or one new membership, or neither (the blank with which
    a term begins)."""

    index: Number
    term: Number
    payload: bytes
    membership: Several[Membership]


class Snapshot(Struct, frozen=True):
    """What the records up to ``index`` have led to: the membership, and the caller's state. The records may
    be removed.

    The bootstrap is the snapshot of index 1 and term 1; one of index 0 is no knowledge at all.
    """

    index: int
    term: int
    membership: Membership
    state: bytes


NOTHING: Final = Snapshot(0, 0, NOBODY, b"")


class Stored(Struct, frozen=True):
    """The hard state of one group on one disk. ``vote`` is the slot voted for in ``term``, 0 for none; the
    entries follow the snapshot without a gap."""

    birth: int
    slot: int
    term: int
    vote: int
    snapshot: Snapshot
    entries: tuple[Entry, ...]


class Standing(Struct, frozen=True):
    """What this node knows of a group (protocol 5.4): its epoch, the term, committed up to; and its leader,
    as far as known ("" if not). ``going``: addresses of members that want to go, known to the leader."""

    birth: int
    epoch: int
    term: int
    committed: int
    leader: str
    leads: bool
    membership: Membership
    going: frozenset[str] = frozenset()
