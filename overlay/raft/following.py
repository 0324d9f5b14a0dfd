"""Following: take the leader's records and snapshots (Raft sections 5.3 and 7)."""

from __future__ import annotations

from overlay.errors import OverlayBug
from overlay.raft.effects import Installed
from overlay.raft.local import LocalMember
from overlay.raft.messages import AppendReply, AppendRequest, Header, InstallSnapshot, InstallSnapshotReply
from overlay.raft.values import Member, Snapshot


class Following:
    """One member as a follower in one group."""

    def __init__(self, local: LocalMember) -> None:
        self._local = local
        self._arriving: tuple[int, int] = (0, 0)
        self._pieces = bytearray()

    def append(self, address: str, part: AppendRequest) -> None:
        """Records, or news of what is committed."""
        local, log = self._local, self._local.log
        if not self._obeyed(address, part.header):
            self._answer(address, part, part.round, matched=False, match=0)
            return
        prev_index, prev_term, entries = part.prev_index, part.prev_term, part.entries
        if prev_index < log.base.index:  # what our snapshot covers is committed, and so the same
            entries = entries[log.base.index - prev_index :]
            prev_index = min(log.base.index, part.prev_index + len(part.entries))
            prev_term = log.base.term
            if prev_index < log.base.index:
                self._answer(address, part, part.round, matched=True, match=prev_index)
                return
        ours = log.term_at(prev_index)
        if ours != prev_term:
            hint = log.last_index if ours is None else log.below(prev_index)
            self._answer(address, part, part.round, matched=False, match=max(hint, local.commit))
            return
        match = prev_index + len(entries)
        new = next((at for at, e in enumerate(entries) if log.term_at(e.index) != e.term), None)
        if new is not None:
            if entries[new].index <= local.commit:
                raise OverlayBug(f"{address} replaces the committed entry {entries[new].index}")
            local.hard.record(entries[new:])
        local.advance(max(local.commit, min(part.commit, match)))
        self._answer(address, part, part.round, matched=True, match=match)

    def piece(self, address: str, part: InstallSnapshot) -> None:
        """A part of the leader's snapshot; the last one installs it."""
        local = self._local
        if not self._obeyed(address, part.header):
            self._answer(address, part, part.round, matched=False, match=0)
            return
        if part.index <= local.commit:
            self._answer(address, part, part.round, matched=True, match=part.index)
            return
        if self._arriving != (part.index, part.size):
            self._arriving, self._pieces = (part.index, part.size), bytearray()
        if part.offset == len(self._pieces):
            self._pieces += part.data
        if len(self._pieces) < part.size:
            header = local.header(part.header.from_slot)
            reply = InstallSnapshotReply(local.context.me, header, part.round, part.index, len(self._pieces))
            local.context.send(address, reply)
            return
        state = bytes(self._pieces)
        self._arriving, self._pieces = (0, 0), bytearray()
        local.hard.snap(Snapshot(part.index, part.index_term, part.membership, state))
        local.commit = part.index
        local.context.emit(Installed(local.key, part.index, state))
        self._answer(address, part, part.round, matched=True, match=part.index)

    def _obeyed(self, address: str, header: Header) -> bool:
        """Whether the sender leads; if so we follow it."""
        local = self._local
        if header.term < local.term:
            return False
        leader = Member(address, header.from_slot)
        if header.term > local.term or local.leader != leader:
            local.obey(header.term, leader)
        return True

    def _answer(
        self, address: str, part: AppendRequest | InstallSnapshot, number: int, *, matched: bool, match: int
    ) -> None:
        local = self._local
        header = local.header(part.header.from_slot)
        local.context.part(address, AppendReply(header, number, matched, match, local.commit))
