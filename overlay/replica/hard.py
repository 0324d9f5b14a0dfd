"""The hard state of one group: term, vote and log. Whatever changes it is handed to the disk in the same
breath, and the desk puts writes before messages: so nothing is answered before it is durable."""

from __future__ import annotations

from collections.abc import Sequence

from overlay.errors import OverlayBug
from overlay.replica.desk import Desk
from overlay.replica.effects import Forgotten, Promised, Recorded, Seated, Snapped
from overlay.replica.log import Log
from overlay.replica.values import Entry, Snapshot, Stored


class Hard:
    """Raft's persistent state. Terms only grow; a vote is given once a term."""

    def __init__(self, desk: Desk, group: bytes, stored: Stored) -> None:
        self._desk = desk
        self.group = group
        self.birth = stored.birth
        self.seat = stored.seat
        self.term = stored.term
        self.vote = stored.vote
        self.log = Log(stored.snapshot, stored.entries)

    @classmethod
    def seated(cls, desk: Desk, group: bytes, birth: int, seat: int, snapshot: Snapshot) -> Hard:
        """Begin: a new seat at this node."""
        desk.write(Seated(group, birth, seat, snapshot))
        return cls(desk, group, Stored(birth, seat, snapshot.term, 0, snapshot, ()))

    def promise(self, term: int, vote: int) -> None:
        """Enter a term, or give the vote of this one."""
        if term < self.term or (term == self.term and self.vote not in (0, vote)):
            raise OverlayBug(f"promised {self.vote} in term {self.term}, and now {vote} in term {term}")
        self.term, self.vote = term, vote
        self._desk.write(Promised(self.group, term, vote))

    def record(self, entries: Sequence[Entry]) -> None:
        """Put entries into the log, from the first one's index on."""
        self.log.put(entries)
        self._desk.write(Recorded(self.group, tuple(entries)))

    def snap(self, snapshot: Snapshot) -> None:
        """A snapshot of our own, or the leader's."""
        self.log.snap(snapshot)
        self._desk.write(Snapped(self.group, snapshot))

    def forget(self) -> None:
        """The seat is given up."""
        self._desk.write(Forgotten(self.group))
