"""The state of one node in one group, shared by election, following and leading; and the steps that change
it."""

from __future__ import annotations

from enum import Enum

from overlay.errors import OverlayBug
from overlay.ids import closeness, node_id, to_int
from overlay.raft.context import Context
from overlay.raft.effects import Committed, CompactWanted, Following, Reconfigured
from overlay.raft.hard import Hard
from overlay.raft.links import Links, Tie
from overlay.raft.log import Log
from overlay.raft.messages import Header
from overlay.raft.values import Member, Membership


class Role(Enum):
    """What a member does."""

    FOLLOWER = "obeys a leader, or waits for one"
    ASKING = "asks whether it would be elected (pre-vote)"
    CANDIDATE = "stands for a term"
    LEADER = "leads"


class LocalMember:
    """Hard state, and the soft state that starts anew at a restart."""

    def __init__(self, context: Context, links: Links, hard: Hard) -> None:
        self.context = context
        self.links = links
        self.hard = hard
        self.key = hard.group
        self.role = Role.FOLLOWER
        self.leader: Member | None = None
        self.commit = hard.log.base.index
        self.released = False
        """Our slot is no longer in any committed membership."""
        self.attempts = 0
        self.introduced: dict[int, str] = {}
        """Members that our log does not have, by slot, as one that it has told last."""
        self._shown: tuple[int, str] | None = None

    # -- questions -------------------------------------------------------------------------------------------

    @property
    def log(self) -> Log:
        return self.hard.log

    @property
    def term(self) -> int:
        return self.hard.term

    @property
    def membership(self) -> Membership:
        """The membership in force: the latest in the log."""
        return self.hard.log.membership

    @property
    def committed(self) -> Membership:
        """The latest committed one."""
        return self.hard.log.membership_at(self.commit)

    @property
    def voter(self) -> bool:
        return self.membership.votes(self.hard.slot)

    @property
    def alone(self) -> bool:
        """Whether no other node has a vote."""
        return self.voter and len(self.membership.voters) == 1

    def others(self) -> tuple[Member, ...]:
        """All members but us."""
        return tuple(member for member in self.membership.members if member.slot != self.hard.slot)

    def hears(self, slot: int, address: str) -> bool:
        """Whether that is where a member with this slot is: as our log says, or a member of ours, for who
        came after the end of our log. A slot that was only invited knows nobody, and hears everybody."""
        if not self.log.base.index:
            return True
        member = self.membership.in_slot(slot) or self.committed.in_slot(slot)
        return address == (self.introduced.get(slot) if member is None else member.address)

    def knows(self, address: str) -> bool:
        """Whether a member is there, likewise."""
        members = (one.at(address) for one in (self.membership, self.committed))
        return any(member is not None for member in members) or address in self.introduced.values()

    def header(self, to: int) -> Header:
        """The header of a part for the member in slot ``to``."""
        return Header(self.key, self.hard.birth, to, self.hard.slot, self.hard.term)

    def led(self) -> bool:
        """Whether a leader was heard lately (perhaps ourselves)."""
        if self.role is Role.LEADER:
            return True
        return self.leader is not None and self.links.alive(self.leader.address)

    def leader_address(self) -> str:
        """Where the leader is, "" while none is known."""
        if self.role is Role.LEADER:
            return self.context.me.address
        return self.leader.address if self.leader else ""

    # -- steps -----------------------------------------------------------------------------------------------

    def obey(self, term: int, leader: Member | None) -> None:
        """Follow ``leader``, or none yet, in a term that is not below ours."""
        if term > self.hard.term:
            self.hard.promise(term, 0)
        elif self.role is Role.LEADER and leader is not None:
            raise OverlayBug(f"{leader} leads in term {term}, and so do we")
        self.role, self.leader = Role.FOLLOWER, leader
        if leader is not None:
            self.attempts = 0
            self.context.timers.cancel(("elect", self.key))
        elif ("elect", self.key) not in self.context.timers:
            self.wait()
        self.tie()
        self.show()

    def wait(self, extra_ms: int = 0) -> None:
        """Stand in our slot, if no node leads till then: the closest to the key first, later ones if it
        fails."""
        if not self.voter:
            self.context.timers.cancel(("elect", self.key))
            return
        key = to_int(self.key)
        mine = closeness(key, node_id(self.context.me.address))
        rank = sum(closeness(key, node_id(voter.address)) < mine for voter in self.membership.voters)
        width = self.context.config.slot_ms * (1 + min(self.attempts, 4) / 2)
        self.context.after(("elect", self.key), extra_ms + round((rank + self.context.luck()) * width))

    def tie(self) -> None:
        """Tell the links which peers we need."""
        if self.role is Role.LEADER:
            tie = Tie(self.term, frozenset(member.address for member in self.others()), "")
        elif self.leader is not None:
            tie = Tie(self.term, frozenset(), self.leader.address)
        else:
            tie = Tie()
        self.links.tie(self.key, tie)

    def show(self) -> None:
        """Tell the caller which leader we follow, if that is new."""
        now = (self.term, self.leader_address())
        if self.role is not Role.LEADER and now != self._shown:
            self.context.emit(Following(self.key, *now))
        self._shown = now

    def advance(self, index: int) -> None:
        """All up to ``index`` is committed."""
        for at in range(self.commit + 1, index + 1):
            entry = self.log.entry(at)
            self.commit = at
            self.context.emit(Committed(self.key, entry))
            if entry.membership:
                was = self.log.membership_at(at - 1).in_slot(self.hard.slot)
                self.context.emit(Reconfigured(self.key, entry.membership[0]))
                self.released = was is not None and entry.membership[0].in_slot(self.hard.slot) is None
            if (at - self.log.base.index) % self.context.config.compact_entries == 0:
                self.context.emit(CompactWanted(self.key, at))
