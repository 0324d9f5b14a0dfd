"""What a driver's store must do with writes: the meaning of each, over a dict. The simulator's disk."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from overlay.raft.effects import Forgotten, Promised, Recorded, SlotTaken, Snapped, Write
from overlay.raft.log import Log
from overlay.raft.values import Stored


class Disk:
    """Hard state by group. A write for a group that has none is ignored, except for the one that begins
    it."""

    def __init__(self) -> None:
        self.groups: dict[bytes, Stored] = {}

    def apply(self, write: Write) -> None:
        """Make one write."""
        if isinstance(write, SlotTaken):
            snapshot = write.snapshot
            self.groups[write.group] = Stored(write.birth, write.slot, snapshot.term, 0, snapshot, ())
            return
        held = self.groups.get(write.group)
        if held is None:
            return
        match write:
            case Promised():
                self.groups[write.group] = replace(held, term=write.term, vote=write.vote)
            case Recorded():
                kept = write.entries[0].index - held.snapshot.index - 1
                self.groups[write.group] = replace(held, entries=held.entries[:kept] + write.entries)
            case Snapped():
                log = Log(held.snapshot, held.entries)
                log.snap(write.snapshot)
                self.groups[write.group] = replace(held, snapshot=write.snapshot, entries=tuple(log.entries))
            case Forgotten():
                del self.groups[write.group]


def torn(write: Write) -> Iterator[Write]:
    """What a crash may leave of one write, smallest pieces in order: a store may keep any first part of them.

    Only entries come apart; the other writes are made whole or not at all.
    """
    if isinstance(write, Recorded):
        for count in range(1, len(write.entries) + 1):
            yield Recorded(write.group, write.entries[count - 1 : count])
    else:
        yield write
