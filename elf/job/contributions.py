"""Which members a partial aggregate covers, and how partial aggregates of one flow lie over its panes.

A *contribution set* is an integer used as a bitmap over member numbers (part 0 of their snapshots). A
``Piece`` is a partial aggregate: panes ``[start, end)``, the members that it covers, and the encoded tables,
which nobody opens here. ``Pile`` keeps pieces of one flow, and has the one rule of rolling up: **pieces that
cover the same member in the same pane are never both kept** (protocol 4.2). Only overlap refuses a piece.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

import msgspec

from elf.errors import ElfBug
from elf.fields import replace

PartName = tuple[int, int]
"""(Member number, part) of a later delta of one pane (``elf.job.parts``)."""


def bitmap(members: Iterable[int]) -> int:
    """The contribution set of these member numbers."""
    found = 0
    for number in members:
        found |= 1 << number
    return found


def numbers(members: int) -> list[int]:
    """The member numbers of a contribution set, ascending: in as many steps as it has bytes."""
    found = []
    for place, byte in enumerate(to_bytes(members)):
        while byte:
            low = byte & -byte
            found.append(8 * place + low.bit_length() - 1)
            byte ^= low
    return found


def to_bytes(members: int) -> bytes:
    """Little-endian bitmap, without trailing zero bytes."""
    return members.to_bytes((members.bit_length() + 7) // 8, "little")


def from_bytes(data: bytes) -> int:
    return int.from_bytes(data, "little")


class Piece(msgspec.Struct, frozen=True):
    """A partial aggregate. ``counters`` and ``payload`` may hold more panes than ``[start, end)``: the range
    decides. ``excerpt``: groups may be left out (``elf.job.thresholds``). ``offsets``: it is another agent's
    run of its member's work, from the source offsets with that number (``elf.job.reexecution``); 0: it is the
    member's own. ``unit``: so many panes are one in it, and its rows stand in the first (``elf.job.units``);
    such a piece is of one unit, and is never cut."""

    start: int
    end: int
    members: int
    counters: bytes = b""
    payload: bytes = b""
    excerpt: bool = False
    offsets: int = 0
    unit: int = 1

    @property
    def bytes(self) -> int:
        return len(self.counters) + len(self.payload)

    def clip(self, start: int, end: int) -> Piece:
        if start <= self.start and self.end <= end:
            return self
        if self.unit > 1:
            raise ElfBug(f"a unit would be cut: {self.start}..{self.end} at {start}..{end}")
        return replace(self, start=max(self.start, start), end=min(self.end, end))


UnusablePieces = tuple[tuple[Piece, str], ...]
"""Pieces that are not tables of their flow, each with the reason (``agents.committing.opening``)."""


Pieces = tuple[Piece, ...]
"""Disjoint pieces of the same panes, ready to be merged into one."""


def members_of(pieces: Iterable[Piece]) -> int:
    """The contribution set of disjoint pieces of the same panes. Raises ``ElfBug`` if they overlap."""
    members = 0
    for piece in pieces:
        if members & piece.members:
            raise ElfBug("pieces that overlap would be merged")
        members |= piece.members
    return members


class Pile:
    """Disjoint pieces of one flow, waiting to be merged."""

    def __init__(self) -> None:
        self._pieces: list[Piece] = []

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def __iter__(self) -> Iterator[Piece]:
        return iter(self._pieces)

    def add(self, piece: Piece) -> None:
        """Keep the piece where it overlaps nothing; a unit as a whole, or not at all."""
        if piece.unit > 1:
            if not self.overlaps(piece):
                self._pieces.append(piece)
            return
        free = [(piece.start, piece.end)]
        for kept in self._pieces:
            if kept.members & piece.members:
                free = [rest for span in free for rest in _without(span, (kept.start, kept.end))]
        self._pieces.extend(piece.clip(start, end) for start, end in free)

    def overlaps(self, piece: Piece) -> bool:
        """Whether some member of it is here in some pane of it."""
        return any(
            kept.members & piece.members and kept.start < piece.end and piece.start < kept.end
            for kept in self._pieces
        )

    def units(self) -> list[Piece]:
        """The units, by their first panes."""
        return sorted((one for one in self._pieces if one.unit > 1), key=lambda one: one.start)

    def drop(self, pieces: Iterable[Piece]) -> None:
        """Keep these no longer."""
        gone = list(pieces)
        self._pieces = [one for one in self._pieces if one not in gone]

    def take_whole(self, start: int, end: int) -> tuple[Pieces, int, Pieces]:
        """Remove all of ``[start, end)``, at whose bounds no unit is cut, and return the pieces of members
        that are in all of these panes, these members, and the other pieces."""
        inside = self._cut_out(start, end)
        fit, before = [one for one in inside if not one.offsets], -1
        while len(fit) != before:
            before, whole = len(fit), Pile()
            whole._pieces = fit
            members = -1
            for _, _, there in whole.spans(start, end):
                members &= there
            fit = [one for one in fit if not one.members & ~members]
        return tuple(fit), members if fit else 0, tuple(one for one in inside if one not in fit)

    def spans(self, start: int, end: int) -> list[tuple[int, int, int]]:
        """``[start, end)`` split into (start, end, members covered) at every change; gaps have members 0."""
        turns = {
            start: 0,
            end: 0,
        }  # members whose contribution begins or ends there: only one piece a member and pane
        for piece in self._pieces:
            if piece.start < end and start < piece.end:
                for edge in (max(start, piece.start), min(end, piece.end)):
                    turns[edge] = turns.get(edge, 0) ^ piece.members
        spans: list[tuple[int, int, int]] = []
        members = 0
        for left, right in pairwise(sorted(turns)):
            members ^= turns[left]
            if spans and spans[-1][2] == members:
                spans[-1] = (spans[-1][0], right, members)
            else:
                spans.append((left, right, members))
        return spans

    def take(self, start: int, end: int) -> list[Pieces]:
        """Remove all of ``[start, end)`` and return it, in pane order: each item is merged together."""
        inside = self._cut_out(start, end)
        edges = sorted({edge for p in inside for edge in (p.start, p.end)})
        found: list[tuple[int, int, Pieces]] = []
        for left, right in pairwise(edges):
            here = tuple(p for p in inside if p.start <= left and right <= p.end)
            if here and found and found[-1][1:] == (left, here):
                found[-1] = (found[-1][0], right, here)
            elif here:
                found.append((left, right, here))
        return [tuple(p.clip(left, right) for p in here) for left, right, here in found]

    def _cut_out(self, start: int, end: int) -> list[Piece]:
        """Remove all of ``[start, end)``."""
        inside = [p.clip(start, end) for p in self._pieces if p.start < end and start < p.end]
        if inside:
            spans = [(p, span) for p in self._pieces for span in _without((p.start, p.end), (start, end))]
            self._pieces = [piece.clip(*span) for piece, span in spans]
        return inside

    def check(self) -> None:
        """Raise ``ElfBug`` when two pieces overlap."""
        for i, left in enumerate(self._pieces):
            if left.start >= left.end:
                raise ElfBug(f"an empty piece: {left.start}..{left.end}")
            for right in self._pieces[i + 1 :]:
                if left.members & right.members and left.start < right.end and right.start < left.end:
                    raise ElfBug(
                        f"pieces overlap in panes {left.start}..{left.end} and {right.start}..{right.end}"
                    )


def _without(span: tuple[int, int], hole: tuple[int, int]) -> list[tuple[int, int]]:
    left = (span[0], min(span[1], hole[0]))
    right = (max(span[0], hole[1]), span[1])
    return [part for part in (left, right) if part[0] < part[1]]
