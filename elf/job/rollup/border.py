"""What a region's head holds at its border: the panes of one flow, until a unit of them is whole
(``elf.job.units``).

What comes here has been merged by the head's combiner, pane by pane. A unit in which all panes have the same
members leaves as one piece. One that is not so when it has waited for what was to come (its last pane is here
for ``wait_ms``, or its first for as long as the unit takes and ``wait_ms``) leaves as it is, pane by pane.
Nothing here is the only copy of anything: members keep their snapshots until they are committed (protocol
4.6), so a head that dies loses bytes and time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from elf.job.contributions import Piece, Pieces, Pile

HELD_BYTES_MAX: Final = 16 << 20
"""What all flows of an agent have here together, at most; what has no room goes on by itself."""


@dataclass
class _Held:
    """When something of a unit came first, and when its last pane did (None: it has not)."""

    first_ms: int
    last_ms: int | None = None


class Border:
    """See the module's docstring. ``panes``: how many make a unit; 1: nothing is held."""

    def __init__(self) -> None:
        self.panes = 1
        self.bytes = 0
        """Of all that is held."""
        self._pile = Pile()
        self._units: dict[int, _Held] = {}

    def __bool__(self) -> bool:
        return bool(self._units)

    def takes(self, piece: Piece) -> bool:
        """Whether a piece may become part of a unit. One of many panes (of a long silence, or of the time
        before a flow) goes on by itself."""
        plain = piece.unit == 1 and not piece.excerpt and not piece.offsets
        return plain and piece.end - piece.start <= self.panes > 1

    def add(self, piece: Piece, now_ms: int) -> None:
        for start in range(piece.start // self.panes * self.panes, piece.end, self.panes):
            held = self._units.setdefault(start, _Held(now_ms))
            if piece.end >= start + self.panes and held.last_ms is None:
                held.last_ms = now_ms
        self._pile.add(piece)
        self._weigh()

    def deadline(self, pane_ms: int, wait_ms: int) -> int | None:
        """When a unit leaves although it is not whole."""
        return min((self._due_ms(held, pane_ms, wait_ms) for held in self._units.values()), default=None)

    def ready(self, pane_ms: int, wait_ms: int, now_ms: int) -> list[tuple[Pieces, int]]:
        """Take what leaves now: pieces to be merged, and how many panes are to be one."""
        found: list[tuple[Pieces, int]] = []
        for start, held in sorted(self._units.items()):
            end = start + self.panes
            spans = self._pile.spans(start, end)
            if len(spans) == 1 and spans[0][2]:
                pieces = tuple(one for together in self._pile.take(start, end) for one in together)
                found.append((pieces, self.panes))
                del self._units[start]
            elif now_ms >= self._due_ms(held, pane_ms, wait_ms):
                found += [(together, 1) for together in self._pile.take(start, end)]
                del self._units[start]
        if found:
            self._weigh()
        return found

    def change(self, panes: int) -> list[tuple[Pieces, int]]:
        """Hold units of so many panes from now on: what is here of others leaves as it is."""
        if panes == self.panes:
            return []
        starts, before = sorted(self._units), self.panes
        self.panes, self._units = panes, {}
        found = [(together, 1) for at in starts for together in self._pile.take(at, at + before)]
        self._weigh()
        return found

    def _weigh(self) -> None:
        self.bytes = sum(one.bytes for one in self._pile)

    def _due_ms(self, held: _Held, pane_ms: int, wait_ms: int) -> int:
        due_ms = held.first_ms + self.panes * pane_ms + wait_ms
        return due_ms if held.last_ms is None else min(due_ms, held.last_ms + wait_ms)
