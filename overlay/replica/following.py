"""Following: take the leader's records and snapshots (Raft sections 5.3 and 7)."""

from __future__ import annotations

from overlay.errors import OverlayBug
from overlay.replica.effects import Installed
from overlay.replica.messages import AppendReply, AppendRequest, Header, PieceReply, SnapshotPiece
from overlay.replica.place import Place
from overlay.replica.values import Member, Snapshot


class Following:
    """One member's obedience in one group."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._arriving: tuple[int, int] = (0, 0)
        self._pieces = bytearray()

    def append(self, address: str, part: AppendRequest) -> None:
        """Records, or word of what is committed."""
        place, log = self._place, self._place.log
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
            self._answer(address, part, part.round, matched=False, match=max(hint, place.commit))
            return
        match = prev_index + len(entries)
        new = next((at for at, e in enumerate(entries) if log.term_at(e.index) != e.term), None)
        if new is not None:
            if entries[new].index <= place.commit:
                raise OverlayBug(f"{address} replaces the committed entry {entries[new].index}")
            place.hard.record(entries[new:])
        place.advance(max(place.commit, min(part.commit, match)))
        self._answer(address, part, part.round, matched=True, match=match)

    def piece(self, address: str, part: SnapshotPiece) -> None:
        """A part of the leader's snapshot; the last one makes it ours."""
        place = self._place
        if not self._obeyed(address, part.header):
            self._answer(address, part, part.round, matched=False, match=0)
            return
        if part.index <= place.commit:
            self._answer(address, part, part.round, matched=True, match=part.index)
            return
        if self._arriving != (part.index, part.size):
            self._arriving, self._pieces = (part.index, part.size), bytearray()
        if part.offset == len(self._pieces):
            self._pieces += part.data
        if len(self._pieces) < part.size:
            header = place.header(part.header.from_seat)
            reply = PieceReply(place.desk.me, header, part.round, part.index, len(self._pieces))
            place.desk.send(address, reply)
            return
        state = bytes(self._pieces)
        self._arriving, self._pieces = (0, 0), bytearray()
        place.hard.snap(Snapshot(part.index, part.index_term, part.membership, state))
        place.commit = part.index
        place.desk.emit(Installed(place.key, part.index, state))
        self._answer(address, part, part.round, matched=True, match=part.index)

    def _obeyed(self, address: str, header: Header) -> bool:
        """Whether the sender leads; if so we follow it."""
        place = self._place
        if header.term < place.term:
            return False
        leader = Member(address, header.from_seat)
        if header.term > place.term or place.leader != leader:
            place.obey(header.term, leader)
        return True

    def _answer(
        self, address: str, part: AppendRequest | SnapshotPiece, number: int, *, matched: bool, match: int
    ) -> None:
        place = self._place
        header = place.header(part.header.from_seat)
        place.desk.part(address, AppendReply(header, number, matched, match, place.commit))
