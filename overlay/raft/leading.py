"""Leading: what a node knows only as long as it leads one group (Raft sections 5.3, 5.4.2, 6.4 of the
thesis)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from overlay.ids import Peer
from overlay.raft.changes import Changes
from overlay.raft.effects import Accepted, Leading, Readable, Reason, Rejected
from overlay.raft.local import LocalMember
from overlay.raft.messages import (
    AppendReply,
    AppendRequest,
    Forwarded,
    InstallSnapshot,
    InstallSnapshotReply,
    Invite,
    TimeoutNow,
)
from overlay.raft.values import Entry, Member, Membership

DOUBLINGS: Final = 2
"""How often the wait for an answer is doubled, at most."""


@dataclass
class Progress:
    """One other member. ``next``: the index to be sent next; ``match``: up to there it has our log, durably.

    ``acked``: the highest round answered, in this term. ``commit``: what it knows to be committed. ``told``:
    the last append went up to there; ``repeats``: how often an append was repeated since its last answer.
    """

    member: Member
    next: int
    heard: int
    match: int = 0
    waiting: bool = False
    sent: int = 0
    round: int = 0
    acked: int = 0
    commit: int = 0
    offset: int = 0
    piece_of: int = 0
    told: int = 0
    repeats: int = 0

    def patience(self, push_ms: int) -> int:
        """How long to wait for an answer: longer each time, so that an overloaded member does not get more to
        do."""
        return push_ms << min(self.repeats, DOUBLINGS)


@dataclass(frozen=True)
class Origin:
    """Who waits for a record: a token of our own caller (``peer`` is None), or of another node's."""

    peer: Peer | None
    token: int


@dataclass(frozen=True)
class Read:
    """A question for what is committed: answered when a majority has answered a round above ``after``."""

    token: int
    index: int
    after: int


class Leadership:
    """From an election to the step down. ``local`` performs commits; this decides when."""

    def __init__(self, local: LocalMember) -> None:
        self._local = local
        self._term = local.term
        self._round = 0
        self._changes = Changes(local)
        self._progress: dict[int, Progress] = {}
        self._pending: dict[int, Origin] = {}
        self._reads: list[Read] = []
        self._moving: tuple[Member, int] | None = None
        self._ready = False
        self._take_slot()
        self._append(b"", ())

    # -- what the caller wants -------------------------------------------------------------------------------

    def propose(self, origin: Origin, payload: bytes, term: int) -> Reason | None:
        """Append a record; the reason if not."""
        if term not in (0, self._term):
            return "stale term"
        if self._moving is not None:
            return "moving"
        if self._local.log.last_index - self._local.commit >= self._local.context.config.uncommitted_max:
            return "busy"
        self._pending[self._local.log.last_index + 1] = origin
        self._append(payload, ())
        return None

    def read(self, token: int) -> Reason | None:
        """Answer with what is committed now, once it is sure that we still lead."""
        if not self._ready:
            return "busy"
        self._reads.append(Read(token, self._local.commit, self._round))
        self._answer_reads()
        self._push_all()
        return None

    def transfer(self, address: str) -> bool:
        """Hand over to the voter at that address, or without one to the best of those that do not want to go
        themselves; False if there is none."""
        voters = [p for p in self._progress.values() if self._local.membership.votes(p.member.slot)]
        fit = [p for p in voters if self._local.links.alive(p.member.address)]
        going = self.going()
        fit = [p for p in fit if p.member.address == address or not (address or p.member.address in going)]
        if not fit or self._moving is not None:
            return bool(fit)
        best = max(fit, key=lambda progress: progress.match)
        self._moving = (best.member, self._local.context.now + self._local.context.config.transfer_ms)
        self._arm()
        self._timeout_now()
        return True

    def invite(self, address: str) -> None:
        """Ask an address to join."""
        self._changes.invite(address)
        self.settle()

    def enter(self, member: Member) -> None:
        """A node with a voter slot wants in."""
        self._changes.enter(member)
        self.settle()

    def leave(self, slot: int, patience_ms: int | None = None) -> None:
        """Release a voter slot, whose node asks for it and waits so long for a replacement, or does not ask
        (None)."""
        self._changes.leave(slot, self._round, patience_ms)
        self.settle()
        self._push_all()

    def move(self) -> None:
        """We are at our address, whatever the membership has."""
        self._changes.move(Member(self._local.context.me.address, self._local.hard.slot))
        self.settle()

    def going(self) -> frozenset[str]:
        """Addresses of members that asked to be released."""
        return self._changes.going()

    def lost(self, slot: int) -> None:
        """The node at that slot's address does not know the slot."""
        self._changes.lost(slot)
        self.settle()

    # -- what comes in ---------------------------------------------------------------------------------------

    def reply(self, part: AppendReply) -> None:
        """A member's answer to records or to a whole snapshot."""
        progress = self._answered(part)
        if progress is None:
            return
        if part.matched:
            progress.match = max(progress.match, part.match)
            progress.commit = max(progress.commit, part.commit)
            progress.next = max(progress.next if progress.waiting else 0, progress.match + 1)
            if progress.match >= progress.told:  # also if the append was repeated since: that was too soon
                progress.waiting = False
            self._commit()
        elif part.round == progress.round:
            progress.next = max(progress.match + 1, min(progress.next - 1, part.match + 1))
        self._answer_reads()
        self._push(progress)
        self._timeout_now()
        self.settle()

    def install_snapshot_reply(self, part: InstallSnapshotReply) -> None:
        """A member wants the next piece."""
        progress = self._answered(part)
        if progress is None:
            return
        if part.round == progress.round and part.index == progress.piece_of:
            progress.offset = part.offset
        self._answer_reads()
        self._push(progress)

    def returned(self, address: str) -> None:
        """The peer is heard again, or has been restarted, or misses us: begin anew."""
        for progress in self._progress.values():
            if progress.member.address == address:
                progress.waiting, progress.repeats = False, 0
                progress.next = min(progress.next, self._local.log.last_index + 1)
                self._push(progress, force=True)

    def due(self) -> None:
        """Repeat what was not answered, tell what is committed, invite."""
        context = self._local.context
        if self._moving is not None and context.now >= self._moving[1]:
            self._moving = None
        for progress in self._progress.values():
            if progress.waiting and context.now - progress.sent >= progress.patience(context.config.push_ms):
                progress.waiting, progress.repeats = False, progress.repeats + 1
                self._push(progress, force=True)
            else:
                self._push(progress, force=progress.commit < self._local.commit)
        self._timeout_now()
        self.settle()
        if self._unrest():
            self._arm()

    def supported(self) -> bool:
        """Whether a majority of the voters was heard lately."""
        local = self._local
        heard = sum(
            v.slot == local.hard.slot or local.links.alive(v.address) for v in local.membership.voters
        )
        return heard >= local.membership.quorum

    def end(self) -> None:
        """We no longer lead: what is not committed may or may not be committed later."""
        self._local.context.timers.cancel(("push", self._local.key))
        self._local.context.timers.cancel(("invite", self._local.key))
        for index, origin in self._pending.items():
            self._refuse(origin, index, "unsure")
        for read in self._reads:
            self._refuse(Origin(None, read.token), 0, "not leader")

    def settle(self) -> None:
        """Make the next change of membership, if there is one and it may be made; send invitations."""
        local, context = self._local, self._local.context
        if self._ready and self._moving is None and local.log.membership_index <= local.commit:
            membership = self._changes.next(self._caught_up, self._stale, self._has_answered)
            if membership is not None:
                self._append(b"", (membership,))
        if self._changes.invited and ("invite", local.key) not in context.timers:
            self.invite_due()

    def invite_due(self) -> None:
        """Ask those that are to join, and again later."""
        local = self._local
        addresses = self._changes.to_invite()
        for address in addresses:
            local.context.send(address, Invite(local.context.me, local.key, local.hard.birth))
        if self._changes.invited:
            local.context.after(("invite", local.key), local.context.config.ask_ms)

    # -- the parts: records ----------------------------------------------------------------------------------

    def _append(self, payload: bytes, membership: tuple[Membership, ...]) -> None:
        local = self._local
        local.hard.record((Entry(local.log.last_index + 1, self._term, payload, membership),))
        if membership:
            self._take_slot()
        self._commit()
        self._push_all()

    def _take_slot(self) -> None:
        """Members have changed: each needs one ``Progress``."""
        local = self._local
        local.tie()
        fresh, known = local.log.last_index + 1, self._progress
        self._progress = {
            member.slot: known[member.slot]
            if member.slot in known and known[member.slot].member == member
            else Progress(member, fresh, local.context.now)
            for member in local.others()
        }

    def _has_answered(self, member: Member, after: int) -> bool:
        progress = self._progress.get(member.slot)
        return progress is not None and progress.acked > after

    def _commit(self) -> None:
        """Only a record of our own term is committed by counting; it commits all before it (5.4.2)."""
        local = self._local
        index = self._majority(lambda progress: progress.match, local.log.last_index)
        if index <= local.commit or local.log.term_at(index) != self._term:
            return
        before = local.commit
        local.advance(index)
        if not self._ready:
            self._ready = True
            local.context.emit(Leading(local.key, self._term))
        for at in range(before + 1, index + 1):
            origin = self._pending.pop(at, None)
            if origin is not None:
                self._settle_one(origin, at)
        if local.released:
            return
        self._arm()
        self.settle()

    def _majority(self, value: Callable[[Progress], int], own: int) -> int:
        """The highest value that a majority of the voters has reached; ours is ``own``."""
        local = self._local
        values = [
            own if voter.slot == local.hard.slot else value(self._progress[voter.slot])
            for voter in local.membership.voters
        ]
        return sorted(values, reverse=True)[local.membership.quorum - 1]

    def _settle_one(self, origin: Origin, index: int) -> None:
        local = self._local
        if origin.peer is not None:
            answer = Forwarded(local.context.me, local.key, origin.token, "", index, self._term)
            local.context.send(origin.peer.address, answer)
        else:
            local.context.emit(Accepted(local.key, origin.token, index, self._term))

    def _refuse(self, origin: Origin, index: int, reason: Reason) -> None:
        local = self._local
        if origin.peer is not None:
            answer = Forwarded(local.context.me, local.key, origin.token, reason, index, self._term)
            local.context.send(origin.peer.address, answer)
        else:
            local.context.emit(Rejected(local.key, origin.token, reason, local.leader_address()))

    def _answer_reads(self) -> None:
        acked = self._majority(lambda progress: progress.acked, self._round + 1)
        while self._reads and self._reads[0].after < acked:
            read = self._reads.pop(0)
            self._local.context.emit(Readable(self._local.key, read.token, read.index))

    def _answered(self, part: AppendReply | InstallSnapshotReply) -> Progress | None:
        """The progress of the member that answered; None if it is no member, or spoke to an earlier
        leader."""
        progress = self._progress.get(part.header.from_slot)
        if progress is None or part.header.term != self._term:
            return None
        progress.heard = self._local.context.now
        progress.acked = max(progress.acked, part.round)
        progress.repeats = 0
        if part.round == progress.round:
            progress.waiting = False
        return progress

    # -- the parts: sending ----------------------------------------------------------------------------------

    def _push_all(self) -> None:
        for progress in self._progress.values():
            self._push(progress)

    def _wants(self, progress: Progress) -> bool:
        """Whether there is something that must not wait."""
        read = bool(self._reads) and progress.acked <= self._reads[-1].after
        news = progress.next <= self._local.log.last_index or progress.acked <= self._changes.after
        return news or progress.acked == 0 or read

    def _push(self, progress: Progress, force: bool = False) -> None:
        local = self._local
        address = progress.member.address
        if progress.waiting or not (force or self._wants(progress)) or not local.links.alive(address):
            return
        self._round += 1
        progress.round, progress.waiting, progress.sent = self._round, True, local.context.now
        prev_term = local.log.term_at(progress.next - 1)
        if prev_term is None:
            progress.told = local.log.last_index
            self._send_snapshot_chunk(progress)
        else:
            config = local.context.config
            entries = local.log.batch(progress.next, config.batch_entries, config.batch_bytes)
            header = local.header(progress.member.slot)
            progress.told = progress.next - 1 + len(entries)
            part = AppendRequest(header, self._round, progress.next - 1, prev_term, local.commit, entries)
            local.context.part(address, part)
        self._arm()

    def _send_snapshot_chunk(self, progress: Progress) -> None:
        local, base = self._local, self._local.log.base
        if progress.piece_of != base.index:
            progress.piece_of, progress.offset = base.index, 0
        piece = InstallSnapshot(
            sender=local.context.me,
            header=local.header(progress.member.slot),
            round=self._round,
            index=base.index,
            index_term=base.term,
            membership=base.membership,
            size=len(base.state),
            offset=progress.offset,
            data=base.state[progress.offset : progress.offset + local.context.config.piece_bytes],
        )
        local.context.send(progress.member.address, piece)

    def _arm(self) -> None:
        if ("push", self._local.key) not in self._local.context.timers:
            self._local.context.after(("push", self._local.key), self._local.context.config.push_ms)

    def _unrest(self) -> bool:
        """Whether anything is left to be done for a live member."""
        alive, commit = self._local.links.alive, self._local.commit
        return self._moving is not None or any(
            alive(p.member.address) and (p.waiting or p.commit < commit) for p in self._progress.values()
        )

    def _timeout_now(self) -> None:
        """Let the chosen member stand as soon as it has all records."""
        if self._moving is None:
            return
        member = self._moving[0]
        progress = self._progress.get(member.slot)
        if progress is not None and progress.match == self._local.log.last_index:
            self._local.context.send(
                member.address, TimeoutNow(self._local.context.me, self._local.header(member.slot))
            )

    def _caught_up(self, member: Member) -> bool:
        return self._progress[member.slot].match >= self._local.commit

    def _stale(self, member: Member) -> bool:
        quiet = self._local.context.now - self._progress[member.slot].heard
        return quiet >= self._local.context.config.learner_ms
