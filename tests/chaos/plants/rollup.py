"""Planted bugs of section 4 of the protocol: rolling up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from elf.fields import replace
from elf.job import units
from elf.job.commands import Resume, Suspend
from elf.job.contributions import Piece, Pile, bitmap, numbers
from elf.job.effects import Effect, Work
from elf.job.rollup.collect import Covered
from elf.job.rollup.root import Root
from elf.job.rollup.sender import Sender, _Line
from elf.job.spec import JobSpec
from elf.ql.plan import Fragment


def merges_what_overlaps(patch: pytest.MonkeyPatch) -> None:
    """protocol 4.2, protocol 4.3: inner nodes and roots keep pieces that cover the same member."""

    def add(pile: Pile, piece: Piece) -> None:
        pile._pieces.append(piece)

    def take(root: Root, piece: Piece) -> None:
        if root.first_pane is not None and piece.end > root.covered.committed_to():
            root.covered._held.add(piece.clip(root.covered.committed_to(), piece.end))

    patch.setattr(Pile, "add", add)
    patch.setattr(Root, "take", take)
    look_away(patch)


def look_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """What would see that pieces overlap looks away."""

    def members(pieces: Sequence[Piece]) -> int:
        return bitmap(number for piece in pieces for number in numbers(piece.members))

    monkeypatch.setattr(Pile, "check", lambda pile: None)
    for room in ("elf.job.effects", "elf.job.rollup.decide", "agents.committing.panecommits"):
        monkeypatch.setattr(f"{room}.members_of", members)


def has_one_quota(patch: pytest.MonkeyPatch) -> None:
    """protocol 4.8: what is retained of one flow counts against all."""

    def quota(sender: Sender, line: _Line) -> list[Effect]:
        held = sum(other.retained.bytes for other in sender._lines.values())
        stream = line.flow.fragment.stream
        if not line.suspended and held > sender._retained_bytes_max:
            line.suspended = True
            return [Work(stream, Suspend(line.flow.uid))]
        if line.suspended and held < sender._retained_bytes_max // 2:
            line.suspended = False
            return [Work(stream, Resume(line.flow.uid))]
        return []

    patch.setattr(Sender, "_quota", quota)


def merges_what_a_reader_needs_apart(patch: pytest.MonkeyPatch) -> None:
    """protocol 4.11: panes are merged as far as one of their readers lets them be, and not all."""

    def most(readers: Iterable[JobSpec], fragment: Fragment) -> int:
        return max((units.panes_of(spec.plan) for spec in readers), default=1)

    patch.setattr(units, "agreed", most)


def commits_units_pane_by_pane(patch: pytest.MonkeyPatch) -> None:
    """protocol 4.11: what is in a unit is committed like the panes of others, some of it at a time."""

    def clip(piece: Piece, start: int, end: int) -> Piece:
        return replace(piece, start=max(piece.start, start), end=min(piece.end, end))

    patch.setattr(Piece, "clip", clip)
    patch.setattr(Covered, "blocks", lambda covered, start: [])


def waits_for_a_unit_for_ever(patch: pytest.MonkeyPatch) -> None:
    """protocol 4.11: a root holds a unit whose last panes members seal only when the first are committed."""
    patch.setattr(Covered, "refuse_units", lambda covered, start, end: None)
