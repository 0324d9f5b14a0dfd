"""What the root of a flow holds: pieces that are in no commit yet, and what it no longer takes.

*Covered* is what is committed, what is being committed (proposed), and what is held (protocol 4.3). A piece
is taken where it covers something new and refused where it overlaps. A committed pane can be revised by
members that are not in it: their pieces wait apart (``late``), and so do parts of late rows
(``elf.job.parts``).

A snapshot that turned out not to be a table of the flow when it was opened (``agents.committing.opening``) is
*refused* from then on (protocol 4.7). Its owner is known if the piece has one member: then the piece is the
snapshot itself, which would come again from its store, from a neighbour's, and to the next root. The member
is neither awaited nor asked in those panes; the pane is committed without it, and names it as missing. The
member is told nothing ("wait"): it keeps and offers the snapshot until the panes are settled, like any other
that came too late; another root may be able to open it. A merged piece is dropped alone, and its members are
asked for their snapshots.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

from elf.errors import ElfBug
from elf.fields import replace
from elf.job.contributions import PartName, Piece, Pieces, Pile, numbers
from elf.job.effects import CommitPanes
from elf.job.openparts import in_part, is_open
from elf.job.parts import HeldParts
from elf.job.rollup.panes import Panes, Segment
from elf.job.snapshots import Span
from elf.job.spec import START_OF_TIME
from elf.job.stragglers import outside

WHOLES_MAX: Final = 64
"""Ranges committed together that are remembered: what is late for older ones comes pane by pane."""


class Covered:
    """What is covered of a flow at its root (see the module's docstring). ``panes``: what is committed."""

    def __init__(self, panes: Panes) -> None:
        self._panes = panes
        self._held = Pile()
        self._late = Pile()
        self._parts = HeldParts()
        self._proposed: list[CommitPanes] = []
        self._unit = 1
        self._wholes: deque[Span] = deque(maxlen=WHOLES_MAX)
        """Panes that this root has committed together, since there were units in them."""
        self._rest: list[Piece] = []
        """What such a commit cannot have, until it is proposed: then it may revise it."""
        self.in_flight = False
        """The first proposed commit is being made."""
        self.refused = Refused()

    # -- what comes ------------------------------------------------------------------------------------------

    def add(self, piece: Piece) -> None:
        """Hold what a piece covers that is not covered; a unit as a whole, or not at all."""
        if piece.start >= piece.end or not piece.members:
            return
        if piece.unit > 1:
            self._add_unit(piece)
            return
        for usable in self.refused.rest(piece):
            head = self.committed_to()
            if usable.end > head:
                self._held.add(usable.clip(head, usable.end))
            for start, end in self._revisable() if usable.start < head else ():
                self._add_late(usable.clip(start, end))

    def _revisable(self) -> list[Span]:
        """Panes that are committed, or are being committed for the first time."""
        first = [(work.start, work.end) for work in self._proposed if work.revision == 0]
        return [*((segment.start, segment.end) for segment in self._panes.history), *first]

    def _add_late(self, piece: Piece) -> None:
        """Hold, of such panes, what is neither in them nor proposed."""
        if piece.start >= piece.end:
            return
        committed = self._panes.history.within(piece.start, piece.end)
        taken = [(one.start, one.end) for one in committed if (one.members | one.in_part) & piece.members]
        taken += [(w.start, w.end) for w in self._proposed if (w.added | in_part(w.new)) & piece.members]
        free = [(piece.start, piece.end)]
        for start, end in taken:
            free = [rest for span in free for rest in outside(span, start, end)]
        for span in free:
            self._late.add(piece.clip(*span))

    def allow(self, unit: int) -> None:
        """Readers let so many panes be one from now on; what is held and is no such unit is refused."""
        if unit != self._unit:
            self._unit = unit
            for pile in (self._held, self._late):
                pile.drop(one for one in pile.units() if not self._is_allowed(one))

    def _is_allowed(self, piece: Piece) -> bool:
        return self._unit > 1 and self._unit % piece.unit == 0

    def _add_unit(self, piece: Piece) -> None:
        """Hold a unit if nothing of it is covered, and it can come into one commit; else it is refused as a
        whole, and its members are asked for their snapshots (protocol 4.11)."""
        if not self._is_allowed(piece) or self.refused.touches(piece) or self._held.overlaps(piece):
            return
        if piece.start >= self.committed_to():
            self._held.add(piece)
        elif self._revises(piece):
            self._late.add(piece)

    def _revises(self, piece: Piece) -> bool:
        """Whether a unit may be a revision: its panes were, or are being, committed together."""
        coming = [work for work in self._proposed if work.overlaps(piece.start, piece.end)]
        if any((work.added | in_part(work.new)) & piece.members for work in coming):
            return False
        first = [work for work in coming if not work.revision]
        if first:
            return first[0].whole and first[0].start <= piece.start and piece.end <= first[0].end
        there = self._panes.history.within(piece.start, piece.end)
        whole = any(start <= piece.start and piece.end <= end for start, end in self._wholes)
        one = there[0] if whole and len(there) == 1 else None
        return one is not None and not (one.members | one.in_part) & piece.members

    def kept_whole(self, work: CommitPanes) -> None:
        """Panes with units are committed."""
        if work.whole and not work.revision:
            self._wholes.append((work.start, work.end))

    def add_part(self, name: PartName, piece: Piece) -> None:
        """Add a part of one pane, which is not covered."""
        self._parts.add(name, piece)

    # -- what is covered -------------------------------------------------------------------------------------

    def committed_to(self) -> int:
        """Panes below this one are committed, or are being committed."""
        if self._panes.first_pane is None:
            return START_OF_TIME
        ends = [work.end for work in self._proposed if work.revision == 0]
        return max([self._panes.durable_to(), self._panes.first_pane, *ends])

    def has(self, member: int, start: int, end: int) -> bool:
        """Whether any of these panes of a member is proposed or held."""
        coming = any(work.added >> member & 1 and work.overlaps(start, end) for work in self._proposed)
        return coming or self.has_in_hand(member, start, end)

    def has_in_hand(self, member: int, start: int, end: int) -> bool:
        """Whether any of them is held; a proposed commit may yet be given up."""
        spans = self._held.spans(start, end) + self._late.spans(start, end)
        return any(members >> member & 1 for _, _, members in spans)

    def has_part(self, name: PartName, pane: int) -> bool:
        """Whether a part of late rows is proposed or held."""
        coming = any(name in work.new and work.start == pane for work in self._proposed)
        return coming or self._parts.has(pane, name)

    def spans(self, start: int, end: int) -> list[tuple[int, int, int]]:
        """``[start, end)``, not committed yet, split into (start, end, members held) at every change."""
        return self._held.spans(start, end)

    def held_to(self, least: int) -> int:
        """The end of the last pane of which something is held or refused; ``least`` at least."""
        return max([least, *(piece.end for piece in self._held), *self.refused.edges()])

    def holds(self) -> bool:
        """Whether something is held of panes that are not committed."""
        return bool(self._held)

    # -- what goes into commits ------------------------------------------------------------------------------

    def take(self, start: int, end: int) -> list[Pieces]:
        """What is held of panes that are to be committed."""
        return self._held.take(start, end)

    def refuse_units(self, start: int, end: int) -> None:
        """Refuse the units that are held of panes which are to be committed one by one after all."""
        self._held.drop([one for one in self._held.units() if start <= one.start < end])

    def blocks(self, start: int) -> list[Span]:
        """From this pane on, the ranges that are to be committed together since there are units in them."""
        found: list[Span] = []
        for one in self._held.units():
            if found and one.start < found[-1][1]:
                found[-1] = (found[-1][0], max(found[-1][1], one.end))
            elif one.start >= start:
                found.append((one.start, one.end))
        return found

    def take_block(self, start: int, end: int) -> tuple[Pieces, int]:
        """What is held of such a range, and the members of whom all of it is. What is there of others waits
        for the commit, to revise it."""
        pieces, members, rest = self._held.take_whole(start, end)
        self._rest += rest
        return pieces, members

    def take_late_units(self) -> Iterator[tuple[Segment, Piece]]:
        """Units that have come for panes that were committed together: one for each segment. Where these were
        revised one by one meanwhile the unit is refused."""
        taken: list[Segment] = []
        for unit in self._late.units():
            there = self._panes.history.within(unit.start, unit.end)
            fits = len(there) == 1 and there[0].start <= unit.start and unit.end <= there[0].end
            if not fits or there[0] not in taken:
                self._late.drop([unit])
            if fits and there[0] not in taken:
                taken.append(there[0])
                yield there[0], unit

    def take_late(self) -> Iterator[tuple[Segment, Pieces]]:
        """What has come for committed panes of members that are not in them."""
        for segment in list(self._panes.history) if self._late else ():
            yield from ((segment, pieces) for pieces in self._late.take(segment.start, segment.end))

    def take_parts(self) -> Iterator[tuple[Segment, int, dict[PartName, Piece]]]:
        """Parts for committed panes; open ones of members that are in them are dropped."""
        for pane, pieces in self._parts.take(self.committed_to()):
            for segment in self._panes.history.within(pane, pane + 1):
                there = {
                    (member, part): piece
                    for (member, part), piece in pieces.items()
                    if not (is_open(part) and segment.members >> member & 1)
                }
                if there:
                    yield segment, pane, there

    def open_to(self) -> int:
        """After the last pane of which open parts are held."""
        return max((pane + 1 for pane, name in self._parts if is_open(name[1])), default=START_OF_TIME)

    def proposes(self) -> bool:
        """Whether any proposed commit is not durable yet."""
        return bool(self._proposed)

    def propose(self, works: Iterable[CommitPanes]) -> None:
        """Propose commits, to be made one after the other."""
        self._proposed += works
        rest, self._rest = self._rest, []
        for piece in rest:
            self.add(piece)

    def launch(self, *, plain: bool) -> list[CommitPanes]:
        """The first proposed commit, if there is one; it is in flight from now on."""
        if self._proposed and plain:
            self._proposed[0] = replace(self._proposed[0], plain=True)
        self.in_flight = bool(self._proposed)
        return self._proposed[:1]

    def land(self, work: CommitPanes) -> None:
        """The commit that was in flight is over."""
        if not self.in_flight or self._proposed.pop(0) != work:
            raise ElfBug("a commit that is not the one in flight")
        self.in_flight = False

    def withdraw(self, work: CommitPanes) -> list[CommitPanes]:
        """The commit in flight cannot be made so: all proposals are withdrawn, and returned."""
        self.land(work)
        proposed, self._proposed = [work, *self._proposed], []
        self._place_late()
        return proposed

    def give_up(self, work: CommitPanes) -> None:
        """The commit in flight can never be made."""
        self.land(work)
        self._place_late()

    def _place_late(self) -> None:
        """Panes were proposed and are not committed: what waited to revise them belongs to them again."""
        late, self._late = self._late, Pile()
        for piece in late:
            self.add(piece)

    def check(self) -> None:
        """Raise ``ElfBug`` when something is covered twice."""
        self._held.check()
        self._late.check()
        for segment in self._panes.history:
            for piece in self._late:
                twice = piece.members & segment.members
                if twice and piece.start < segment.end and segment.start < piece.end:
                    raise ElfBug(f"held again: members {numbers(twice)} at {piece.start}")


class Refused:
    """Panes of members in which nothing more of them is taken, and parts of late rows by pane. ``told``: for
    each member, how many pieces were unusable, and why the last one was."""

    def __init__(self) -> None:
        self._spans: dict[int, list[Span]] = {}
        self._parts: set[tuple[int, PartName]] = set()
        self.told: dict[int, tuple[int, str]] = {}

    def tell(self, members: int, why: str) -> None:
        for number in numbers(members):
            self.told[number] = self.told.get(number, (0, ""))[0] + 1, why

    def add(self, piece: Piece) -> None:
        """Add a piece that cannot be used; nothing is refused if it is of several members."""
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
        """The piece without what is refused."""
        if not self._spans or piece.members.bit_count() != 1:
            return [piece]
        found = [(piece.start, piece.end)]
        for start, end in self._spans.get(numbers(piece.members)[0], ()):
            found = [one for span in found for one in outside(span, start, end)]
        return [piece.clip(*span) for span in found]

    def at(self, pane: int) -> int:
        """The members that are refused in this pane, as a contribution set."""
        found = 0
        for number, spans in self._spans.items():
            if any(start <= pane < end for start, end in spans):
                found |= 1 << number
        return found

    def overlaps(self, member: int, start: int, end: int) -> bool:
        """Whether something of a snapshot is refused."""
        return any(a < end and start < b for a, b in self._spans.get(member, ()))

    def touches(self, piece: Piece) -> bool:
        """Whether some member of it is refused in some pane of it."""
        there = (number for number in self._spans if piece.members >> number & 1)
        return any(self.overlaps(number, piece.start, piece.end) for number in there)

    def edges(self) -> Iterator[int]:
        """The panes at which the set of refused members changes."""
        return (edge for spans in self._spans.values() for span in spans for edge in span)

    def forget(self, below: int) -> None:
        """Panes below this one will not be asked about any more."""
        kept = {n: [span for span in spans if span[1] > below] for n, spans in self._spans.items()}
        self._spans = {number: spans for number, spans in kept.items() if spans}
        self._parts = {(pane, name) for pane, name in self._parts if pane >= below}
