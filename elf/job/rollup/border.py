"""What a region's head holds at its border: the panes of one flow, until a unit of them is whole
(``elf.job.units``).

What comes here has been merged by the head's combiner, pane by pane; or it is a unit of the head of another
region, which sends over this one. A unit in which all panes have the same members leaves as one piece, when
the other heads have sent theirs. One that is not so when it has waited for what was to come (its last pane is
here for ``wait_ms``, or its first for as long as the unit takes and ``wait_ms``) leaves as it is, pane by
pane. Nothing here is the only copy of anything: members keep their snapshots until they are committed
(protocol 4.6), so a head that dies loses bytes and time.

How many panes are held changes from a pane on at which both what was held before and what is held from now on
begins (``_since``), so that no unit is given away for that. Where readers no longer allow what is held, all
of it leaves at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from elf.job.contributions import Piece, Pieces, Pile
from elf.job.spec import END_OF_TIME, START_OF_TIME

HELD_BYTES_MAX: Final = 16 << 20
"""What all flows of an agent have here together, at most; what has no room goes on by itself."""


@dataclass
class _Held:
    """A unit of so many ``panes``. When something of it came first, and when its last pane did (None: it has
    not)."""

    panes: int
    first_ms: int
    last_ms: int | None = None


class Border:
    """See the module's docstring. ``panes``: how many make a unit; 1: nothing is held."""

    def __init__(self) -> None:
        self.panes = 1
        self.bytes = 0
        """Of all that is held."""
        self._before = 1
        self._since = START_OF_TIME
        """Below this pane ``_before`` make a unit."""
        self._pile = Pile()
        self._units: dict[int, _Held] = {}

    def __bool__(self) -> bool:
        return bool(self._units)

    def takes(self, piece: Piece) -> bool:
        """Whether a piece may become part of a unit, or is one like ours. One of many panes (of a long
        silence, or of the time before a flow) goes on by itself."""
        panes = self._panes_at(piece.start)
        if piece.excerpt or piece.offsets or panes == 1:
            return False
        if piece.unit > 1:
            return piece.unit == panes and not self._pile.overlaps(piece)
        return piece.end - piece.start <= panes

    def add(self, piece: Piece, now_ms: int) -> None:
        for start, panes in self._spans(piece):
            held = self._units.setdefault(start, _Held(panes, now_ms))
            if piece.end >= start + panes and held.last_ms is None:
                held.last_ms = now_ms
        self._pile.add(piece)
        self._weigh()

    def deadline(self, pane_ms: int, wait_ms: int) -> int | None:
        """When a unit leaves although it is not whole."""
        return min((self._due_ms(held, pane_ms, wait_ms) for held in self._units.values()), default=None)

    def ready(
        self, pane_ms: int, wait_ms: int, now_ms: int, come: int = END_OF_TIME
    ) -> list[tuple[Pieces, int]]:
        """Take what leaves now: pieces to be merged, and how many panes are to be one. ``come``: up to which
        pane the heads that send over us have sent theirs."""
        found: list[tuple[Pieces, int]] = []
        for start, held in sorted(self._units.items()):
            end = start + held.panes
            due = now_ms >= self._due_ms(held, pane_ms, wait_ms)
            spans = self._pile.spans(start, end)
            if len(spans) == 1 and spans[0][2]:
                if due or come >= end:
                    pieces, _, _ = self._pile.take_whole(start, end)
                    found.append((pieces, held.panes))
                    del self._units[start]
            elif due:
                found += self._as_it_is(start, end)
                del self._units[start]
        if found:
            self._weigh()
        return found

    def change(self, panes: int, allowed: int) -> list[tuple[Pieces, int]]:
        """Hold units of so many panes from now on. ``allowed``: how many readers let be one. What is here of
        others they do not let be one leaves as it is."""
        if panes == self.panes and not any(allowed % held.panes for held in self._units.values()):
            return []
        turning = any(held.panes != self.panes for held in self._units.values())
        if allowed % self.panes or panes == 1 or turning:
            found = [
                one for at, held in sorted(self._units.items()) for one in self._as_it_is(at, at + held.panes)
            ]
            self._units, self._since = {}, START_OF_TIME
        else:
            found, both = [], math.lcm(panes, self.panes)
            end = max((start + held.panes for start, held in self._units.items()), default=START_OF_TIME)
            self._before, self._since = self.panes, -(-end // both) * both if self._units else START_OF_TIME
        self.panes = panes
        self._weigh()
        return found

    def _panes_at(self, pane: int) -> int:
        return self.panes if pane >= self._since else self._before

    def _spans(self, piece: Piece) -> Iterator[tuple[int, int]]:
        """The units that a piece has panes of: where they start, and how many panes each has."""
        panes = self._panes_at(piece.start)
        at = piece.start // panes * panes
        while at < piece.end:
            panes = self._panes_at(at)
            yield at, panes
            at += panes

    def _as_it_is(self, start: int, end: int) -> list[tuple[Pieces, int]]:
        """What is here of a unit: the units of others, and the rest pane by pane."""
        units = [one for one in self._pile.units() if start <= one.start < end]
        self._pile.drop(units)
        return [((one,), 1) for one in units] + [(pieces, 1) for pieces in self._pile.take(start, end)]

    def _weigh(self) -> None:
        self.bytes = sum(one.bytes for one in self._pile)

    def _due_ms(self, held: _Held, pane_ms: int, wait_ms: int) -> int:
        due_ms = held.first_ms + held.panes * pane_ms + wait_ms
        return due_ms if held.last_ms is None else min(due_ms, held.last_ms + wait_ms)
