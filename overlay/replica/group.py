"""One member of one group: composes election, following and leading, and knows how to come and go."""

from __future__ import annotations

from collections.abc import Iterable

from overlay.errors import OverlayBug
from overlay.ids import Peer
from overlay.replica.desk import Desk
from overlay.replica.effects import Elected, Installed, Reason, Retired
from overlay.replica.election import Election
from overlay.replica.following import Following
from overlay.replica.hard import Hard
from overlay.replica.leading import Leadership, Origin
from overlay.replica.links import Links, Tie
from overlay.replica.messages import (
    AppendReply,
    AppendRequest,
    Ask,
    Enter,
    Exit,
    PieceReply,
    SnapshotPiece,
    Told,
    Urge,
    VoteReply,
    VoteRequest,
)
from overlay.replica.place import Place, Role
from overlay.replica.values import NOTHING, Member, Membership, Snapshot, Standing, draw

Headed = VoteRequest | VoteReply | AppendRequest | AppendReply | SnapshotPiece | PieceReply | Urge
_TIMERS = ("elect", "push", "invite", "ask")


class Group:
    """The node's seat in a group. After every call the caller calls ``settle``."""

    def __init__(self, desk: Desk, links: Links, hard: Hard) -> None:
        self.place = Place(desk, links, hard)
        self.leadership: Leadership | None = None
        self.ended = False
        self.leaving = False
        self._election = Election(self.place)
        self._following = Following(self.place)
        self._doors: tuple[str, ...] = ()
        self._hint = ""
        self._hint_term = 0
        self._asked = ""

    # -- beginnings ------------------------------------------------------------------------------------------

    @classmethod
    def found(cls, desk: Desk, links: Links, key: bytes, state: bytes) -> Group:
        """CREATE: a group of ourselves alone. Its founding is the snapshot of index 1 and term 1."""
        birth, seat = draw(desk.rng), draw(desk.rng)
        alone = Membership(1, (Member(desk.me.address, seat),), ())
        hard = Hard.seated(desk, key, birth, seat, Snapshot(1, 1, alone, state))
        group = cls(desk, links, hard)
        group.start()
        return group

    @classmethod
    def seat(cls, desk: Desk, links: Links, key: bytes, birth: int) -> Group:
        """A seat in a group that exists elsewhere: it knows nothing yet."""
        return cls(desk, links, Hard.seated(desk, key, birth, draw(desk.rng), NOTHING))

    def start(self) -> None:
        """Begin, or begin again with what the disk holds. Unless we are alone, somebody may lead already."""
        place = self.place
        if place.log.base.index:
            place.desk.emit(Installed(place.key, place.log.base.index, place.log.base.state))
        place.wait(2 * place.desk.config.beat_ms)
        if not place.voter:
            self.ask()
        elif place.membership.quorum == 1:
            self.elect_due()

    def enter(self, doors: Iterable[str], hint: str = "", term: int = 0) -> None:
        """Ask to be taken in, until the log says that we are. ``hint`` leads in ``term``, we hear."""
        self._doors = tuple(doors)
        if hint:
            self._hint, self._hint_term = hint, term
        self.ask()

    # -- questions -------------------------------------------------------------------------------------------

    @property
    def target(self) -> str:
        """The address of the leader as far as known, "" if not."""
        return self.place.leader_address() or self._hint

    @property
    def target_term(self) -> int:
        """The term in which that one leads."""
        return self.place.term if self.place.leader_address() else self._hint_term

    @property
    def member(self) -> bool:
        """Whether our log says that we belong to the group."""
        return self.place.membership.seated(self.place.hard.seat) is not None

    def standing(self) -> Standing:
        place = self.place
        return Standing(
            place.hard.birth,
            place.committed.epoch,
            place.term,
            place.commit,
            place.leader_address(),
            place.role is Role.LEADER,
            place.committed,
            frozenset() if self.leadership is None else self.leadership.going(),
        )

    def told(self) -> Told:
        """The same as a message."""
        place, committed = self.place, self.place.committed
        return Told(
            sender=place.desk.me,
            group=place.key,
            birth=place.hard.birth,
            epoch=committed.epoch,
            term=place.term,
            committed=place.commit,
            leader=self.target,
            members=committed.members,
        )

    # -- what comes in ---------------------------------------------------------------------------------------

    def receive(self, address: str, part: Headed) -> None:
        """A part for our seat."""
        place = self.place
        match part:
            case VoteRequest():
                seat = part.header.from_seat
                if place.leader is not None and place.leader.seat == seat:
                    self.leader_lost()
                if place.commit and not (place.committed.seated(seat) or place.membership.seated(seat)):
                    place.desk.send(address, self.told())
                self._election.request(address, part)
            case VoteReply():
                if self._election.reply(part):
                    self._lead()
            case AppendRequest():
                self._following.append(address, part)
            case SnapshotPiece():
                self._following.piece(address, part)
            case Urge():
                leader = Member(address, part.header.from_seat)
                urged = part.header.term == place.term and place.leader == leader
                if urged and self._election.stand(pre=False, urged=True):
                    self._lead()
            case AppendReply() | PieceReply():
                self._replied(part)

    def _replied(self, part: AppendReply | PieceReply) -> None:
        if part.header.term > self.place.term:
            self.place.obey(part.header.term, None)
        elif self.leadership is not None and self.place.role is Role.LEADER:
            if isinstance(part, AppendReply):
                self.leadership.reply(part)
            else:
                self.leadership.piece_reply(part)

    def hear(self, told: Told) -> None:
        """What another node says of the group. Only what is committed can tell us that we are out: a seat
        that is gone from it stays gone."""
        place, seat = self.place, self.place.hard.seat
        leader = place.leader
        mine = told.birth == place.hard.birth
        if leader is not None and leader.address == told.sender.address:
            gone = told.leader != leader.address and told.term >= place.term
            if gone or told.birth == 0:
                self.leader_lost()
        if not mine:
            return
        since = place.log.seated_since(seat)
        if 0 < since <= told.epoch and all(member.seat != seat for member in told.members):
            place.released = True
            return
        self._hint = told.leader if told.leader != place.desk.me.address else ""
        self._hint_term = told.term
        if ("ask", place.key) in place.desk.agenda and self._hint not in ("", self._asked):
            self._ask_at(self._hint)

    def enter_request(self, message: Enter) -> None:
        """A node with a seat wants in."""
        if self.leadership is None:
            self.place.desk.send(message.sender.address, self.told())
        else:
            self.leadership.enter(Member(message.sender.address, message.seat))

    def exit_request(self, message: Exit) -> None:
        """A member wants to go."""
        out = self.place.committed.seated(message.seat) is None
        if self.leadership is None or out:
            self.place.desk.send(message.sender.address, self.told())
        else:
            self.leadership.leave(message.seat, self.place.desk.config.replace_ms)

    # -- deadlines and neighbours ----------------------------------------------------------------------------

    def elect_due(self) -> None:
        """Nobody leads: ask whether we would be elected."""
        if self.place.role is not Role.LEADER and self._election.stand(pre=True):
            self._lead()

    def leader_lost(self) -> None:
        """The leader's node is silent, has restarted, or says that it leads no more."""
        if self.place.role is Role.FOLLOWER and self.place.leader is not None:
            self.place.obey(self.place.term, None)
            if not self.place.voter:
                self.ask()

    def check_support(self) -> None:
        """A leader that hears no majority leads nobody."""
        if self.leadership is not None and not self.leadership.supported():
            self.place.obey(self.place.term, None)

    def leave(self) -> None:
        """Go: hand over if we lead, and ask for release until we are out. Who was never let in just goes."""
        if self.leaving and self.leadership is not None:
            return  # it tries again by itself
        self.leaving = True
        if self.place.log.base.index:
            self.ask()
        else:
            self.place.released = True

    def ask(self) -> None:
        """Ask to be taken in, or let go, if that is what we want; again in ``ask_ms``."""
        place = self.place
        if not self.leaving and self.member and (place.voter or place.leader is not None):
            return
        place.desk.after(("ask", place.key), place.desk.config.ask_ms)
        if self.leadership is not None:
            if self.leaving:
                self.leadership.transfer("")
            return
        self._asked = self.target
        if self._asked:
            self._ask_at(self._asked)
        for address in dict.fromkeys((*self._doors, *(member.address for member in place.others()))):
            if address not in (self._asked, place.desk.me.address):
                self._ask_at(address)

    def _ask_at(self, address: str) -> None:
        place = self.place
        me, key, birth, seat = place.desk.me, place.key, place.hard.birth, place.hard.seat
        self._asked = address
        if self.leaving:
            place.desk.send(address, Exit(me, key, birth, seat))
        elif place.log.base.index:  # we were let in, and perhaps out again: a seat enters once
            place.desk.send(address, Ask(me, key))
        else:
            place.desk.send(address, Enter(me, key, birth, seat))

    # -- steps -----------------------------------------------------------------------------------------------

    def compact(self, index: int, state: bytes) -> None:
        """The caller's state at ``index`` stands for all records up to it."""
        place = self.place
        if not place.log.base.index < index <= place.commit:
            return
        term = place.log.term_at(index)
        if term is None:
            raise OverlayBug(f"no term at {index}, which is committed and not compacted")
        place.hard.snap(Snapshot(index, term, place.log.membership_at(index), state))

    def forwarded(self, peer: Peer, token: int, payload: bytes, term: int) -> Reason | None:
        """Append a record for another node, as the leader of that term; the reason if not.

        If the term is over, or began before our own restart, an earlier copy of the message may have been
        taken: then the refusal is unsure.
        """
        place = self.place
        if term < place.term:
            return "unsure"
        if self.leadership is not None and term == place.term:
            return self.leadership.propose(Origin(peer, token), payload, term)
        return "unsure" if term == place.term and place.hard.vote == place.hard.seat else "not leader"

    def settle(self) -> None:
        """What one event leads to: a deposed leader refuses what waits; who is out forgets."""
        place = self.place
        if self.leadership is not None and (place.role is not Role.LEADER or place.released):
            leadership, self.leadership = self.leadership, None
            leadership.end()
        if place.released and not self.ended:
            self.ended = True
            place.role, place.leader = Role.FOLLOWER, None
            for timer in _TIMERS:
                place.desk.agenda.cancel((timer, place.key))
            place.links.tie(place.key, Tie())
            place.hard.forget()
            place.desk.emit(Retired(place.key))

    def check(self) -> None:
        """Raise OverlayBug if an invariant is broken."""
        place = self.place
        if not place.log.base.index <= place.commit <= place.log.last_index:
            raise OverlayBug(f"commit {place.commit} outside the log")
        if (place.role is Role.LEADER) is not (self.leadership is not None):
            raise OverlayBug("the role and the leadership differ")
        if place.role in (Role.LEADER, Role.CANDIDATE) and place.hard.vote != place.hard.seat:
            raise OverlayBug(f"{place.role.name} in a term in which it voted for another")
        if place.log.last_term > place.term:
            raise OverlayBug("the log has a record of a higher term than ours")
        waits = ("elect", place.key) in place.desk.agenda
        if place.voter and place.role is not Role.LEADER and place.leader is None and not waits:
            raise OverlayBug("a voter without a leader waits for nothing")

    def _lead(self) -> None:
        place = self.place
        place.role, place.leader, place.attempts = Role.LEADER, None, 0
        place.desk.agenda.cancel(("elect", place.key))
        place.show()
        place.desk.emit(Elected(place.key, place.term))
        self.leadership = Leadership(place)
        if self.leaving:  # not at once: who handed over to us may want to go, too, and says so first
            place.desk.after(("ask", place.key), place.desk.config.ask_ms)
