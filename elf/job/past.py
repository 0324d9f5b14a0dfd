"""``SINCE``: a flow that begins in the past, and reads there what its agents have archived (protocol 13.2).

Each archived record of a stream on one agent has a *position*. A flow with SINCE takes no live lines at
first: it reads archived records instead, in rounds, while the stream's live lines go on to the archive.

    round     everything that was read by now is in closed rolls, below ``until``; the roll's records are read
              in order, a slice at a time, through the same extraction, panes and map as live lines
    next      what came to the archive meanwhile is the next round, which is shorter
    caught up between two chunks nothing is archived that the flow has not read: this position is X. From here
              on it takes live lines, from where each source stands.

So a record below X comes from the archive, once, and a line from X on is read live, once: both go into the
same open panes, and a pane is sealed once. All of ``Past`` is in the checkpoint with the flow's trees, so a
crash goes on from one point (protocol 3.1).

A pane is sealed when no unread record of the round can be in it (``floor``), and only if live flows had
sealed it when the round began (``ceiling``). So a row that came in time for live flows is in time here, and
rows that came late for them are mostly in their windows.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import pyarrow as pa

from elf.fields import Count, Pane
from elf.job.ports import Int64s

END_OF_TIME = 1 << 62
"""As in ``elf.job.spec``."""


class Past(msgspec.Struct, frozen=True):
    """How far a flow has read what was archived. ``position``: the records below it are read, and no other;
    ``until``: where its round ends; ``ceiling``: panes from here on were not sealed when the round began;
    ``floor``: records of the round that are not read are of this pane or later ones; ``gone``: how many
    wanted rows retention had deleted when it began."""

    position: Count
    until: Count
    ceiling: Pane
    floor: Pane
    gone: Count = 0

    @property
    def sealable(self) -> int:
        """Panes below this one lack nothing of what is archived."""
        return min(self.ceiling, self.floor)


def sealed_below(first_us: int | None, pane_us: int) -> int:
    """``Past.floor``, where the earliest unread record has that event time (None: there is none)."""
    return END_OF_TIME if first_us is None else first_us // pane_us


@dataclass(frozen=True, eq=False)
class Records:
    """Archived records of one source (its id), when its log had one name. ``offsets``: where their lines
    began, in bytes; they ascend, and are behind those of the source that were given before."""

    source: str
    log: str
    lines: pa.StringArray
    offsets: Int64s
