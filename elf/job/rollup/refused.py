"""What the root of a flow takes no more: snapshots that turned out to be no tables of the flow when they
were opened (``agents.committing.opening``).

Whose they are is known where one piece is one member's: then it is the snapshot itself, which would come
again from its store, from a neighbour's, and to the next root. It is refused, its member is not waited for
in those panes and not asked; the pane is committed without it, and so names it as missing. The member is told
nothing ("wait"): it keeps the snapshot, and offers it, until the panes are settled, as any other that came
too late; another root may be able to open it. A merged piece is dropped alone, as its members are asked for
what they have.
"""

from __future__ import annotations

from collections.abc import Iterator

from elf.job.contributions import PartName, Piece, numbers
from elf.job.snapshots import Span
from elf.job.stragglers import outside


class Refused:
    """Panes of members, in which nothing more of them is taken, and parts of late rows by pane. ``told``: of
    each member, how many pieces were unusable, and why the last one was."""

    def __init__(self) -> None:
        self._spans: dict[int, list[Span]] = {}
        self._parts: set[tuple[int, PartName]] = set()
        self.told: dict[int, tuple[int, str]] = {}

    def tell(self, members: int, why: str) -> None:
        for number in numbers(members):
            self.told[number] = self.told.get(number, (0, ""))[0] + 1, why

    def add(self, piece: Piece) -> None:
        """A piece that cannot be used; of several members, nothing is refused."""
        if piece.members.bit_count() != 1:
            return
        spans = self._spans.setdefault(numbers(piece.members)[0], [])
        rest = [one for span in spans for one in outside(span, piece.start, piece.end)]
        touching = [one for one in rest if one[1] == piece.start or one[0] == piece.end]
        start = min([piece.start, *(one[0] for one in touching)])
        end = max([piece.end, *(one[1] for one in touching)])
        spans[:] = [*(one for one in rest if one not in touching), (start, end)]

    def add_part(self, name: PartName, pane: int) -> None:
        self._parts.add((pane, name))

    def has_part(self, name: PartName, pane: int) -> bool:
        return (pane, name) in self._parts

    def rest(self, piece: Piece) -> list[Piece]:
        """What may be taken of a piece."""
        if not self._spans or piece.members.bit_count() != 1:
            return [piece]
        found = [(piece.start, piece.end)]
        for start, end in self._spans.get(numbers(piece.members)[0], ()):
            found = [one for span in found for one in outside(span, start, end)]
        return [piece.clip(*span) for span in found]

    def at(self, pane: int) -> int:
        """Members of whom nothing is taken there, as a contribution set."""
        found = 0
        for number, spans in self._spans.items():
            if any(start <= pane < end for start, end in spans):
                found |= 1 << number
        return found

    def overlaps(self, member: int, start: int, end: int) -> bool:
        """Whether something of a snapshot is refused."""
        return any(a < end and start < b for a, b in self._spans.get(member, ()))

    def edges(self) -> Iterator[int]:
        """Where it changes who is refused."""
        return (edge for spans in self._spans.values() for span in spans for edge in span)

    def forget(self, below: int) -> None:
        """Panes below this one are not asked about any more."""
        kept = {n: [span for span in spans if span[1] > below] for n, spans in self._spans.items()}
        self._spans = {number: spans for number, spans in kept.items() if spans}
        self._parts = {(pane, name) for pane, name in self._parts if pane >= below}
