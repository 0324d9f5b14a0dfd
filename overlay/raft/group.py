"""One member of one group: composes election, following and leading, and handles entering and leaving."""

from __future__ import annotations

from collections.abc import Iterable

from overlay.errors import OverlayBug
from overlay.ids import Peer
from overlay.raft.context import Context
from overlay.raft.effects import Elected, Installed, Reason, Retired
from overlay.raft.election import Election
from overlay.raft.following import Following
from overlay.raft.hard import Hard
from overlay.raft.leading import Leadership, Origin
from overlay.raft.links import Links, Tie
from overlay.raft.local import LocalMember, Role
from overlay.raft.messages import (
    AppendReply,
    AppendRequest,
    Ask,
    Enter,
    Exit,
    InstallSnapshot,
    InstallSnapshotReply,
    TimeoutNow,
    Told,
    VoteReply,
    VoteRequest,
)
from overlay.raft.values import NOTHING, Member, Membership, Snapshot, Standing, draw

Headed = (
    VoteRequest
    | VoteReply
    | AppendRequest
    | AppendReply
    | InstallSnapshot
    | InstallSnapshotReply
    | TimeoutNow
)
_TIMERS = ("elect", "push", "invite", "ask")


class Group:
    """The node's slot in a group. After every call the caller calls ``settle``."""

    def __init__(self, context: Context, links: Links, hard: Hard) -> None:
        self.local = LocalMember(context, links, hard)
        self.leadership: Leadership | None = None
        self.ended = False
        self.leaving = False
        self._election = Election(self.local)
        self._following = Following(self.local)
        self._doors: tuple[str, ...] = ()
        self._hint = ""
        self._hint_term = 0
        self._asked = ""
        self._strange_until = 0

    # -- beginnings ------------------------------------------------------------------------------------------

    @classmethod
    def found(cls, context: Context, links: Links, key: bytes, state: bytes) -> Group:
        """CREATE: a group of ourselves alone. Its bootstrap is the snapshot of index 1 and term 1."""
        birth, slot = draw(context.rng), draw(context.rng)
        alone = Membership(1, (Member(context.me.address, slot),), ())
        hard = Hard.in_slot(context, key, birth, slot, Snapshot(1, 1, alone, state))
        group = cls(context, links, hard)
        group.start()
        return group

    @classmethod
    def slot(cls, context: Context, links: Links, key: bytes, birth: int) -> Group:
        """A voter slot in a group that exists elsewhere: it knows nothing yet."""
        return cls(context, links, Hard.in_slot(context, key, birth, draw(context.rng), NOTHING))

    def start(self) -> None:
        """Begin, or continue with what the disk holds. Unless we are alone, another node may lead already."""
        local = self.local
        if local.log.base.index:
            local.context.emit(Installed(local.key, local.log.base.index, local.log.base.state))
        local.wait(2 * local.context.config.beat_ms)
        if not local.voter:
            self.ask()
        elif local.membership.quorum == 1:
            self.elect_due()

    def enter(self, doors: Iterable[str], hint: str = "", term: int = 0) -> None:
        """Ask to enter, until the log has us. ``hint`` is said to lead in ``term``."""
        self._doors = tuple(doors)
        if hint:
            self._hint, self._hint_term = hint, term
        self.ask()

    # -- questions -------------------------------------------------------------------------------------------

    @property
    def target(self) -> str:
        """The address of the leader as far as known, "" if not."""
        return self.local.leader_address() or self._hint

    @property
    def target_term(self) -> int:
        """The term in which that node leads."""
        return self.local.term if self.local.leader_address() else self._hint_term

    @property
    def member(self) -> bool:
        """Whether our log says that we belong to the group."""
        return self.local.membership.in_slot(self.local.hard.slot) is not None

    def standing(self) -> Standing:
        local = self.local
        return Standing(
            local.hard.birth,
            local.committed.epoch,
            local.term,
            local.commit,
            local.leader_address(),
            local.role is Role.LEADER,
            local.committed,
            frozenset() if self.leadership is None else self.leadership.going(),
        )

    def told(self) -> Told:
        """The same as a message."""
        local, committed = self.local, self.local.committed
        return Told(
            sender=local.context.me,
            group=local.key,
            birth=local.hard.birth,
            epoch=committed.epoch,
            term=local.term,
            committed=local.commit,
            leader=self.target,
            members=committed.members,
        )

    # -- what comes in ---------------------------------------------------------------------------------------

    def receive(self, address: str, part: Headed) -> None:
        """A part for our slot."""
        local = self.local
        match part:
            case VoteRequest():
                slot = part.header.from_slot
                if local.leader is not None and local.leader.slot == slot:
                    self.leader_lost()
                if local.commit and not (local.committed.in_slot(slot) or local.membership.in_slot(slot)):
                    local.context.send(address, self.told())
                self._election.request(address, part)
            case VoteReply():
                if self._election.reply(part):
                    self._lead()
            case AppendRequest():
                self._meet(address, part)
                self._following.append(address, part)
            case InstallSnapshot():
                self._meet(address, part)
                self._following.piece(address, part)
            case TimeoutNow():
                leader = Member(address, part.header.from_slot)
                told_to_stand = part.header.term == local.term and local.leader == leader
                if told_to_stand and self._election.stand(pre=False, told_to_stand=True):
                    self._lead()
            case AppendReply() | InstallSnapshotReply():
                self._replied(part)

    def _meet(self, address: str, part: AppendRequest | InstallSnapshot) -> None:
        """A slot that was only invited takes whoever leads for the leader, and asks it who else there is: the
        beginning of the log may name none that is still there."""
        local, slot = self.local, part.header.from_slot
        if not local.log.base.index and local.introduced.get(slot) != address:
            local.introduced = {slot: address}
            local.context.send(address, Ask(local.context.me, local.key))

    def strange(self, address: str, part: Headed) -> None:
        """Somebody speaks for a slot that we do not know there. One that was removed hears so. One that has
        come after the end of our log is vouched for by members that we know; a liar by nobody."""
        local = self.local
        member = local.membership.in_slot(part.header.from_slot)
        if member is not None or not isinstance(part, VoteRequest | AppendRequest | InstallSnapshot):
            return
        if isinstance(part, VoteRequest) and local.commit:
            local.context.send(address, self.told())
        if local.context.now >= self._strange_until:
            self._strange_until = local.context.now + local.context.config.ask_ms
            known = (*self._doors, *(other.address for other in local.others()), *local.introduced.values())
            for other in dict.fromkeys(known):
                local.context.send(other, Ask(local.context.me, local.key))

    def _replied(self, part: AppendReply | InstallSnapshotReply) -> None:
        if part.header.term > self.local.term:
            self.local.obey(part.header.term, None)
        elif self.leadership is not None and self.local.role is Role.LEADER:
            if isinstance(part, AppendReply):
                self.leadership.reply(part)
            else:
                self.leadership.install_snapshot_reply(part)

    def hear(self, told: Told) -> None:
        """What another node says of the group. Only a committed membership can tell us that we are out: a
        voter slot that is gone from it stays gone. That is believed of the members that we know."""
        local = self.local
        leader = local.leader
        mine = told.birth == local.hard.birth
        if leader is not None and leader.address == told.sender.address:
            gone = told.leader != leader.address and told.term >= local.term
            if gone or told.birth == 0:
                self.leader_lost()
        if not mine:
            return
        known = local.knows(told.sender.address) or (not self.member and told.sender.address in self._doors)
        if self._is_out(told):
            local.released = local.released or known
            return
        if known:
            local.introduced = {member.slot: member.address for member in told.members}
        self._hint = told.leader if told.leader != local.context.me.address else ""
        self._hint_term = told.term
        if ("ask", local.key) in local.context.timers and self._hint not in ("", self._asked):
            self._ask_at(self._hint)

    def _is_out(self, told: Told) -> bool:
        """Whether it tells that our slot is gone. We know ourselves what was committed up to a membership
        that has us, and a leader what was in its term and before (invariant 3)."""
        local, slot = self.local, self.local.hard.slot
        if not 0 < local.log.in_slot_since(slot) <= told.epoch:
            return False
        if local.committed.in_slot(slot) is not None and told.epoch <= local.committed.epoch:
            return False
        if self.leadership is not None and told.term <= local.term:
            return False
        return all(member.slot != slot for member in told.members)

    def enter_request(self, message: Enter) -> None:
        """A node with a voter slot wants in."""
        if self.leadership is None:
            self.local.context.send(message.sender.address, self.told())
        else:
            self.leadership.enter(Member(message.sender.address, message.slot))

    def exit_request(self, message: Exit) -> None:
        """A member wants to go."""
        out = self.local.committed.in_slot(message.slot) is None
        if self.leadership is None or out:
            self.local.context.send(message.sender.address, self.told())
        else:
            self.leadership.leave(message.slot, self.local.context.config.replace_ms)

    # -- deadlines and neighbours ----------------------------------------------------------------------------

    def elect_due(self) -> None:
        """Nobody leads: ask whether we would be elected."""
        if self.local.role is not Role.LEADER and self._election.stand(pre=True):
            self._lead()

    def leader_lost(self) -> None:
        """The leader's node is silent, has restarted, or says that it no longer leads."""
        if self.local.role is Role.FOLLOWER and self.local.leader is not None:
            self.local.obey(self.local.term, None)
            if not self.local.voter:
                self.ask()

    def check_support(self) -> None:
        """A leader that hears no majority leads nobody."""
        if self.leadership is not None and not self.leadership.supported():
            self.local.obey(self.local.term, None)

    def leave(self) -> None:
        """Leave: hand over if we lead, and ask for release until we are out. A node that was never let in
        just leaves."""
        if self.leaving and self.leadership is not None:
            return  # it tries again by itself
        self.leaving = True
        if self.local.log.base.index:
            self.ask()
        else:
            self.local.released = True

    def ask(self) -> None:
        """Ask to enter or to be released, if that is what we want; again in ``ask_ms``."""
        local = self.local
        if not self.leaving and self.member and (local.voter or local.leader is not None):
            return
        local.context.after(("ask", local.key), local.context.config.ask_ms)
        if self.leadership is not None:
            if self.leaving:
                self.leadership.transfer("")
            return
        self._asked = self.target
        if self._asked:
            self._ask_at(self._asked)
        for address in dict.fromkeys((*self._doors, *(member.address for member in local.others()))):
            if address not in (self._asked, local.context.me.address):
                self._ask_at(address)

    def _ask_at(self, address: str) -> None:
        local = self.local
        me, key, birth, slot = local.context.me, local.key, local.hard.birth, local.hard.slot
        self._asked = address
        if self.leaving:
            local.context.send(address, Exit(me, key, birth, slot))
        elif local.log.base.index:  # we were let in, and perhaps out again: a voter slot enters once
            local.context.send(address, Ask(me, key))
        else:
            local.context.send(address, Enter(me, key, birth, slot))

    # -- steps -----------------------------------------------------------------------------------------------

    def compact(self, index: int, state: bytes) -> None:
        """The caller's state at ``index`` stands for all records up to it."""
        local = self.local
        if not local.log.base.index < index <= local.commit:
            return
        term = local.log.term_at(index)
        if term is None:
            raise OverlayBug(f"no term at {index}, which is committed and not compacted")
        local.hard.snap(Snapshot(index, term, local.log.membership_at(index), state))

    def forwarded(self, peer: Peer, token: int, payload: bytes, term: int) -> Reason | None:
        """Append a record for another node, as the leader of that term; the reason if not.

        If the term is over, or began before our own restart, an earlier copy of the message may have been
        taken: then the refusal is unsure.
        """
        local = self.local
        if term < local.term:
            return "unsure"
        if self.leadership is not None and term == local.term:
            return self.leadership.propose(Origin(peer, token), payload, term)
        return "unsure" if term == local.term and local.hard.vote == local.hard.slot else "not leader"

    def settle(self) -> None:
        """What one event leads to: a deposed leader refuses what waits; a removed member forgets the
        group."""
        local = self.local
        if self.leadership is not None and (local.role is not Role.LEADER or local.released):
            leadership, self.leadership = self.leadership, None
            leadership.end()
        if local.released and not self.ended:
            self.ended = True
            local.role, local.leader = Role.FOLLOWER, None
            for timer in _TIMERS:
                local.context.timers.cancel((timer, local.key))
            local.links.tie(local.key, Tie())
            local.hard.forget()
            local.context.emit(Retired(local.key))

    def check(self) -> None:
        """Raise OverlayBug if an invariant is broken."""
        local = self.local
        if not local.log.base.index <= local.commit <= local.log.last_index:
            raise OverlayBug(f"commit {local.commit} outside the log")
        if (local.role is Role.LEADER) is not (self.leadership is not None):
            raise OverlayBug("the role and the leadership differ")
        if local.role in (Role.LEADER, Role.CANDIDATE) and local.hard.vote != local.hard.slot:
            raise OverlayBug(f"{local.role.name} in a term in which it voted for another")
        if local.log.last_term > local.term:
            raise OverlayBug("the log has a record of a higher term than ours")
        waits = ("elect", local.key) in local.context.timers
        if local.voter and local.role is not Role.LEADER and local.leader is None and not waits:
            raise OverlayBug("a voter without a leader waits for nothing")

    def _lead(self) -> None:
        local = self.local
        local.role, local.leader, local.attempts = Role.LEADER, None, 0
        local.context.timers.cancel(("elect", local.key))
        local.show()
        local.context.emit(Elected(local.key, local.term))
        self.leadership = Leadership(local)
        if self.leaving:  # not at once: the former leader may want to go, too, and says so first
            local.context.after(("ask", local.key), local.context.config.ask_ms)
