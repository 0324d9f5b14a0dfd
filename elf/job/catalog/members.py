"""Who is in which stream, as the catalog log has it: what it says of members, and what is asked of that.

A member's number is given once and never used again (protocol 1.5). It is *there* from when it joins until it
has left for good.
"""

from __future__ import annotations

import msgspec

from elf.fields import Labels, replace
from elf.job.messages.log import MemberJoined, MemberLeft
from elf.job.places import SETS_KEPT
from overlay.regions import region_of

FOREVER_US = 1 << 62


class Member(msgspec.Struct, frozen=True):
    """A member of a stream, as the log last said."""

    number: int
    agent_id: str
    name: str
    incarnation: int
    address: str
    since_us: int
    until_us: int = FOREVER_US
    labels: tuple[Labels, ...] | None = None
    """All that it has said of itself; None: it says nothing (``elf.job.places``)."""
    place: str = ""
    """Where it stands, as it last said, if its trees go by regions (``overlay.regions``)."""
    lends: bool = True
    """Whether it may have copies of tables with a ring, as it last said."""


class Members:
    """Those of all streams."""

    def __init__(self) -> None:
        self._members: dict[str, dict[int, Member]] = {}
        self._numbers: dict[tuple[str, str], int] = {}
        self._regions: set[str] = set()

    def _join(self, entry: MemberJoined) -> None:
        known = self._members.setdefault(entry.stream, {}).get(entry.number)
        since = entry.since_us if known is None or known.until_us != FOREVER_US else known.since_us
        self._members[entry.stream][entry.number] = Member(
            entry.number,
            entry.agent_id,
            entry.name,
            entry.incarnation,
            entry.address,
            since,
            labels=_labels(entry, known),
            place=entry.place,
            lends=entry.lends,
        )
        self._regions |= {region_of(entry.place)} - {""}
        self._numbers[entry.stream, entry.agent_id] = entry.number

    def _leave(self, entry: MemberLeft) -> None:
        member = self._members[entry.stream][entry.number]
        self._members[entry.stream][entry.number] = replace(member, until_us=entry.until_us)

    def streams(self) -> tuple[str, ...]:
        return tuple(sorted(self._members))

    def members(self, stream: str) -> tuple[Member, ...]:
        return tuple(self._members.get(stream, {}).values())

    def member_of(self, stream: str, agent_id: str) -> Member | None:
        number = self._numbers.get((stream, agent_id))
        return None if number is None else self._members[stream][number]

    def there(self, address: str) -> list[Member]:
        """The agent at an address that has not left."""
        known = (m for of in self._members.values() for m in of.values() if m.address == address)
        return [member for member in known if member.until_us == FOREVER_US]

    def has_left(self, address: str) -> bool:
        """Whether an agent was there and has left for good: its streams do not expect it any more."""
        known = [m for of in self._members.values() for m in of.values() if m.address == address]
        return bool(known) and all(member.until_us != FOREVER_US for member in known)

    def _agents_at(self, address: str) -> list[str]:
        return [member.agent_id for member in self.there(address)]

    def agent_at(self, address: str) -> str:
        """The id of the agent that was started last at an address; empty: none was. An agent whose lost data
        folder is restored comes after the one that was started in its place."""
        there = self.there(address)
        return max(there, key=lambda m: (m.incarnation, m.number)).agent_id if there else ""

    def namesakes(self, stream: str, agent_id: str) -> tuple[Member, ...]:
        """Members that a stream expects under the name of another one: two data folders on one machine both
        count."""
        me = self.member_of(stream, agent_id)
        if me is None or me.until_us != FOREVER_US:
            return ()
        others = (m for m in self.members(stream) if m.name == me.name and m.agent_id != agent_id)
        return tuple(member for member in others if member.until_us == FOREVER_US)

    def has_member(self, stream: str, number: int) -> bool:
        """Whether a stream has, or had, a member of that number."""
        return number in self._members.get(stream, {})

    def is_member(self, agent_id: str) -> bool:
        """Whether an agent is a member of any stream, and has not left."""
        return any(member.until_us == FOREVER_US for member in self._of(agent_id))

    def addresses(self) -> set[str]:
        """The addresses of the members of all streams that have not left."""
        known = (member for of in self._members.values() for member in of.values())
        return {member.address for member in known if member.until_us == FOREVER_US}

    def lenders(self) -> set[str]:
        """Those of them that lend; all, if none does: rows have to be somewhere."""
        known = (member for of in self._members.values() for member in of.values())
        none = {one.address for one in known if one.until_us == FOREVER_US and not one.lends}
        return (self.addresses() - none) or self.addresses()

    def places(self) -> dict[str, str]:
        """Where the members of all streams that have not left stand, by address, if they say it."""
        known = (member for of in self._members.values() for member in of.values())
        return {one.address: one.place for one in known if one.until_us == FOREVER_US and one.place}

    @property
    def spans_regions(self) -> bool:
        """Whether members of more than one region have ever been there. Once it is so, it stays so."""
        return len(self._regions) > 1

    def is_at(self, name: str, address: str) -> bool:
        """Whether an agent that has not left is at an address and has this name, or the address for one."""
        return any(name in (member.name, member.address) for member in self.there(address))

    def name_of(self, agent_id: str) -> str:
        """What people call an agent; empty: the log does not know it."""
        return next((member.name for member in self._of(agent_id)), "")

    def _of(self, agent_id: str) -> list[Member]:
        known = (member for of in self._members.values() for member in of.values())
        return [member for member in known if member.agent_id == agent_id]


def _labels(entry: MemberJoined, known: Member | None) -> tuple[Labels, ...] | None:
    """All that a member has said, with what it says now. One set beyond ``SETS_KEPT`` says that it has had
    too many."""
    if entry.labels is None:
        return None
    before = (known.labels if known is not None else None) or ()
    return tuple(dict.fromkeys((*before, entry.labels)))[: SETS_KEPT + 1]
