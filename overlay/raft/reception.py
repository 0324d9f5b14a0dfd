"""The entrance to all groups of a node: brings every message and deadline to its group, and answers for
groups that are not here. Holds none of their logic."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final, assert_never, cast

from overlay.errors import OverlayBug
from overlay.ids import Peer
from overlay.raft.context import Context, Timer
from overlay.raft.effects import Accepted, Reason, Rejected
from overlay.raft.forms import well_formed
from overlay.raft.group import Group, Headed
from overlay.raft.hard import Hard
from overlay.raft.links import Links, Sighting
from overlay.raft.messages import (
    AppendReplies,
    AppendReply,
    AppendRequest,
    AppendRequests,
    Ask,
    Beat,
    Enter,
    Exit,
    Followed,
    Follows,
    Forward,
    Forwarded,
    InstallSnapshot,
    InstallSnapshotReply,
    Invite,
    Message,
    TimeoutNow,
    Told,
    UnknownMember,
    UnknownMembers,
    VoteReplies,
    VoteRequest,
    VoteRequests,
)
from overlay.raft.values import Stored

_EVENTS_KEPT: Final = 32
_TERMS_AHEAD_MAX: Final = 1 << 24
_SIGNS: Final = Beat | Follows | AppendRequests | AppendReplies | InstallSnapshot | InstallSnapshotReply
"""What leaders and followers say: signs of life."""
_REASONS: Final[dict[str, Reason]] = {
    "not leader": "not leader",
    "stale term": "stale term",
    "busy": "busy",
    "moving": "moving",
    "unsure": "unsure",
}


class Reception:
    """The groups of a node by key, and what is under way for them."""

    def __init__(self, context: Context, stored: Mapping[bytes, Stored]) -> None:
        self._context = context
        self.links = Links(context)
        self.groups = {
            key: Group(context, self.links, Hard(context, key, held)) for key, held in sorted(stored.items())
        }
        self.dropped = 0
        self.leaving = False
        self._doors: dict[bytes, tuple[str, ...]] = {}
        self._forwards: dict[int, tuple[bytes, str]] = {}
        """The group, and the leader that was asked."""
        self._taken: dict[tuple[Peer, int], None] = {}
        self._events: deque[tuple[int, str, str]] = deque(maxlen=_EVENTS_KEPT)

    # -- what the caller wants -------------------------------------------------------------------------------

    def add(self, group: Group) -> Group:
        """A new slot."""
        key = group.local.key
        self.groups[key] = group
        self._doors.pop(key, None)
        self._context.timers.cancel(("door", key))
        return group

    def seek(self, key: bytes, contacts: tuple[str, ...]) -> None:
        """Ask these for a group that we are to join."""
        self._doors[key] = contacts
        self._door_due(key)

    def forward(self, group: Group, token: int, payload: bytes, term: int) -> None:
        """Send a record to the leader."""
        target, key = group.target, group.local.key
        if not target or target == self._context.me.address:
            self.reject(key, token, "not leader", "")
        elif term not in (0, group.target_term):
            self.reject(key, token, "stale term", target)
        elif len(self._forwards) >= self._context.config.forwards_max:
            self.reject(key, token, "busy", target)
        else:
            self._forwards[token] = key, target
            self._context.after(("forward", str(token)), self._context.config.forward_ms)
            self._context.send(target, Forward(self._context.me, key, token, group.target_term, payload))

    def reject(self, key: bytes, token: int, reason: Reason, leader: str) -> None:
        """Tell the caller that the record is refused."""
        self._context.emit(Rejected(key, token, reason, leader))

    def settle(self, group: Group) -> None:
        """After every call of a group."""
        group.settle()
        if group.ended:
            self.groups.pop(group.local.key, None)

    def check(self) -> None:
        """Raise OverlayBug, with the last events, if an invariant is broken."""
        for key, group in self.groups.items():
            try:
                group.check()
            except OverlayBug as bug:
                events = list(self._events)
                raise OverlayBug(
                    f"{self._context.me}, group {key.hex()}: {bug}; last events: {events}"
                ) from bug

    # -- the parts: receiving --------------------------------------------------------------------------------

    def receive(self, message: Message) -> None:
        """A message has come."""
        sender = message.sender
        self._events.append((self._context.now, type(message).__name__, sender.address))
        if not well_formed(message) or self._too_large(message):
            self.dropped += 1
            return
        if sender.address == self._context.me.address:
            return
        sighting = self.links.hear(sender, beat=isinstance(message, _SIGNS))
        if sighting is Sighting.STALE:
            return
        if sighting is Sighting.RESTARTED:
            for key in self.links.followed(sender.address):
                self.groups[key].leader_lost()
        if sighting in (Sighting.RESTARTED, Sighting.RETURNED):
            self._resume(sender.address)
        self._dispatch(message, sender.address)

    def _too_large(self, message: Message) -> bool:
        """Whether it would make us keep more than our limit."""
        config = self._context.config
        match message:
            case InstallSnapshot():
                return message.size > config.state_bytes_max
            case Forward():
                return not 0 < len(message.payload) <= config.record_bytes_max
            case _:
                return False

    def _dispatch(self, message: Message, address: str) -> None:
        match message:
            case Beat():
                if not self.links.agrees(message):
                    self._context.send(address, self._follows(address))
            case Follows():
                self._misled(message)
            case VoteRequests() | VoteReplies() | AppendRequests() | AppendReplies():
                for part in cast(Sequence[Headed], message.parts):
                    self._headed(address, part)
            case InstallSnapshot() | InstallSnapshotReply() | TimeoutNow():
                self._headed(address, message)
            case UnknownMembers():
                for unknown_member in message.parts:
                    self._unknown_member(address, unknown_member)
            case Ask():
                self._context.send(address, self._told(message.group))
            case Told():
                self._hear_told(message)
            case Invite():
                self._invited(message)
            case Enter() | Exit():
                self._knock(message)
            case Forward():
                self._forward_request(message)
            case Forwarded():
                self._forwarded(message)
            case _:
                assert_never(message)

    def _headed(self, address: str, part: Headed) -> None:
        """A part for a voter slot: ours, or one that is not here (any more)."""
        header = part.header
        group = self.groups.get(header.group)
        if group is None or group.local.hard.slot != header.to_slot or group.local.hard.birth != header.birth:
            if isinstance(part, VoteRequest | AppendRequest | InstallSnapshot | TimeoutNow):
                self._context.part(address, UnknownMember(header.group, header.birth, header.to_slot))
            return
        if not group.local.hears(header.from_slot, address):
            self.dropped += 1
            group.strange(address, part)
            return
        if _leaps(part, group.local.term) or _is_beyond(part, group):
            self.dropped += 1
            return
        try:
            group.receive(address, part)
        finally:
            self.settle(group)  # where it raised, too: what it has obeyed by then holds

    def _unknown_member(self, address: str, part: UnknownMember) -> None:
        group = self.groups.get(part.group)
        if group is None or group.leadership is None or group.local.hard.birth != part.birth:
            return
        member = group.local.membership.in_slot(part.slot)
        if member is not None and member.address == address:
            group.leadership.lost(part.slot)
            self.settle(group)

    def _follows(self, address: str) -> Follows:
        groups = (self.groups[key].local for key in self.links.followed(address))
        return Follows(
            self._context.me, tuple(Followed(local.key, local.hard.birth, local.term) for local in groups)
        )

    def _misled(self, message: Follows) -> None:
        """The sender follows us in other groups than we think: in some that another node leads by now, or
        that it has left."""
        address = message.sender.address
        right: set[bytes] = set()
        for item in message.groups:
            group = self.groups.get(item.group)
            local = group.local if group is not None and group.leadership is not None else None
            led = local is not None and (local.hard.birth, local.term) == (item.birth, item.term)
            if local is not None and led and local.membership.at(address) is not None:
                right.add(item.group)
            else:
                self._context.send(address, self._told(item.group))
        for key in self.links.led(address):
            group = self.groups[key]
            if key not in right and group.leadership is not None:
                group.leadership.returned(address)

    def _told(self, key: bytes) -> Told:
        group = self.groups.get(key)
        if group is None or group.local.commit == 0:
            return Told(self._context.me, key, 0, 0, 0, 0, "", ())
        return group.told()

    def _hear_told(self, told: Told) -> None:
        group = self.groups.get(told.group)
        if group is not None:
            group.hear(told)
            self.settle(group)
        elif told.group in self._doors and told.birth:
            contacts = self._doors[told.group]
            group = self.add(Group.slot(self._context, self.links, told.group, told.birth))
            members = (member.address for member in told.members)
            group.enter((*contacts, *members), told.leader, told.term)

    def _invited(self, message: Invite) -> None:
        group = self.groups.get(message.group)
        if self.leaving:
            return
        if group is None:
            group = self.add(Group.slot(self._context, self.links, message.group, message.birth))
        local = group.local
        if local.hard.birth != message.birth:
            self._context.send(message.sender.address, self._told(message.group))
        elif not group.member:
            group.enter((message.sender.address,))

    def _knock(self, message: Enter | Exit) -> None:
        group = self.groups.get(message.group)
        if group is None or group.local.hard.birth != message.birth:
            self._context.send(message.sender.address, self._told(message.group))
            return
        member = group.local.membership.in_slot(message.slot)
        if member is not None and member.address != message.sender.address:
            self.dropped += 1
            return
        if isinstance(message, Enter):
            group.enter_request(message)
        else:
            group.exit_request(message)
        self.settle(group)

    def _forward_request(self, message: Forward) -> None:
        name = (message.sender, message.token)
        if name in self._taken:
            return  # a doubled message is one record, and has one answer
        self._taken[name] = None
        if len(self._taken) > self._context.config.forwards_max:
            del self._taken[next(iter(self._taken))]
        group = self.groups.get(message.group)
        reason: Reason | None = "unsure"
        if group is not None:
            reason = group.forwarded(message.sender, message.token, message.payload, message.term)
            self.settle(group)
        if reason is not None:
            answer = Forwarded(self._context.me, message.group, message.token, reason, 0, 0)
            self._context.send(message.sender.address, answer)

    def _forwarded(self, message: Forwarded) -> None:
        if self._forwards.get(message.token) != (message.group, message.sender.address):
            return
        del self._forwards[message.token]
        self._context.timers.cancel(("forward", str(message.token)))
        if not message.reason:
            self._context.emit(Accepted(message.group, message.token, message.index, message.term))
            return
        group = self.groups.get(message.group)
        reason = _REASONS.get(message.reason, "unsure")
        self.reject(message.group, message.token, reason, group.target if group else "")

    # -- the parts: time -------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Run what is due."""
        now, timers = self._context.now, self._context.timers
        first = timers.next()
        if first is not None and now - first > self._context.config.beat_ms:
            self.links.slept()
        while (due := timers.pop_due(now)) is not None:
            self._events.append((now, "due", due[0][0]))
            self._run(due[0])

    def _run(self, timer: Timer) -> None:
        kind, of = timer
        if isinstance(of, str):
            self._run_shared(kind, of)
            return
        if kind == "door":
            self._door_due(of)
            return
        group = self.groups[of]
        match kind:
            case "elect":
                group.elect_due()
            case "ask":
                group.ask()
            case "push" if group.leadership is not None:
                group.leadership.due()
            case "invite" if group.leadership is not None:
                group.leadership.invite_due()
            case _:
                raise OverlayBug(f"nobody set the deadline {kind}")
        self.settle(group)

    def _run_shared(self, kind: str, of: str) -> None:
        match kind:
            case "beat":
                self.links.beat()
            case "link":
                if self.links.due(of):
                    self.silent(of)
            case "forward":
                key, _ = self._forwards.pop(int(of))
                self.reject(key, int(of), "unsure", "")
            case _:
                raise OverlayBug(f"nobody set the deadline {kind}")

    def silent(self, address: str) -> None:
        """A peer is silent: groups that it led hold elections, groups that we lead count their majority."""
        for key in self.links.followed(address):
            self.groups[key].leader_lost()
        for key in self.links.led(address):
            self.groups[key].check_support()
            self.settle(self.groups[key])

    def _resume(self, address: str) -> None:
        for key in self.links.led(address):
            leadership = self.groups[key].leadership
            if leadership is not None:
                leadership.returned(address)

    def _door_due(self, key: bytes) -> None:
        """Ask around for a group that we are to join."""
        if key in self._doors:
            for address in self._doors[key]:
                self._context.send(address, Ask(self._context.me, key))
            self._context.after(("door", key), self._context.config.ask_ms)


def _leaps(part: Headed, term: int) -> bool:
    """Whether it names a term so far ahead of ours that no group has come there by elections: obeyed, a few
    such words would use up all terms that there are."""
    ballot = part.ballot if isinstance(part, VoteRequest) else 0
    return max(part.header.term, ballot) - term > _TERMS_AHEAD_MAX


def _is_beyond(part: Headed, group: Group) -> bool:
    """Whether a follower says to its leader that it has more than the leader, from whom it has all."""
    beyond = isinstance(part, AppendReply) and part.matched and part.match > group.local.log.last_index
    return beyond and group.leadership is not None and part.header.term == group.local.term
