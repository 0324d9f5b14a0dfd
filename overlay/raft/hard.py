"""The hard state of one group: term, vote and log. Every change is given to the disk at once, and the context
puts writes before messages: so nothing is answered before it is durable."""

from __future__ import annotations

from collections.abc import Sequence

from overlay.errors import OverlayBug
from overlay.raft.context import Context
from overlay.raft.effects import Forgotten, Promised, Recorded, SlotTaken, Snapped
from overlay.raft.log import Log
from overlay.raft.values import Entry, Snapshot, Stored


class Hard:
    """Raft's persistent state. Terms only grow; a vote is given once a term."""

    def __init__(self, context: Context, group: bytes, stored: Stored) -> None:
        self._context = context
        self.group = group
        self.birth = stored.birth
        self.slot = stored.slot
        self.term = stored.term
        self.vote = stored.vote
        self.log = Log(stored.snapshot, stored.entries)

    @classmethod
    def in_slot(cls, context: Context, group: bytes, birth: int, slot: int, snapshot: Snapshot) -> Hard:
        """Begin: a new slot at this node."""
        context.write(SlotTaken(group, birth, slot, snapshot))
        return cls(context, group, Stored(birth, slot, snapshot.term, 0, snapshot, ()))

    def promise(self, term: int, vote: int) -> None:
        """Enter a term, or give the vote of this one."""
        if term < self.term or (term == self.term and self.vote not in (0, vote)):
            raise OverlayBug(f"promised {self.vote} in term {self.term}, and now {vote} in term {term}")
        self.term, self.vote = term, vote
        self._context.write(Promised(self.group, term, vote))

    def record(self, entries: Sequence[Entry]) -> None:
        """Put entries into the log, from the first one's index on."""
        self.log.put(entries)
        self._context.write(Recorded(self.group, tuple(entries)))

    def snap(self, snapshot: Snapshot) -> None:
        """A snapshot of our own, or the leader's."""
        self.log.snap(snapshot)
        self._context.write(Snapped(self.group, snapshot))

    def forget(self) -> None:
        """The slot is given up."""
        self._context.write(Forgotten(self.group))
