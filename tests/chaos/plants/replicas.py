"""Planted bugs of section 9 of the protocol: snapshot replicas and speculative re-execution."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from elf.fields import replace
from elf.job.contributions import Piece, numbers
from elf.job.effects import Send
from elf.job.messages.rollup import OfferReplicas, Slice
from elf.job.openparts import is_open
from elf.job.rollup.panes import Segment
from elf.job.rollup.proxies import Proxies
from elf.job.rollup.retained import Retained
from elf.job.rollup.root import Root
from elf.job.rollup.slices import reissued
from elf.job.snapshots import Sealed
from elf.job.spec import END_OF_TIME, Flow
from tests.chaos.plants.rollup import look_away


def reissues_as_its_own(patch: pytest.MonkeyPatch) -> None:
    """protocol 9.1: a proxy sends what it has under another number than the owner's."""

    def other(flow: Flow, number: int, snapshots: Iterable[Sealed]) -> list[Slice]:
        return reissued(flow, number + 1 if number % 2 == 0 else number - 1, snapshots)

    patch.setattr("elf.job.rollup.holding.reissued", other)


def forgets_replicas_early(patch: pytest.MonkeyPatch) -> None:
    """protocol 9.2: a holder takes each commit for one with all members in it."""
    patch.setattr("elf.job.rollup.holding.from_bytes", lambda members: -1)


def appoints_no_proxy(patch: pytest.MonkeyPatch) -> None:
    """protocol 9.3: nobody sends what a dead agent had sealed."""
    patch.setattr(Proxies, "_appoint", lambda proxies, snapshot, holder, now_ms: False)


def holds_a_mirrors_piece_beside(patch: pytest.MonkeyPatch) -> None:
    """protocol 9.4: what a neighbour sends for an agent is kept, whether the agent's own is there or not."""

    def take(proxies: Proxies, root: Root, sender: str, piece: Piece, now_ms: int) -> None:
        others = [n for n in numbers(piece.members) if (m := root.member(n)) and m.address != sender]
        if others and root.first_pane is not None and piece.end > root.covered.committed_to():
            root.covered._held._pieces.append(piece.clip(root.covered.committed_to(), piece.end))

    patch.setattr(Proxies, "take", take)
    look_away(patch)


def takes_main_snapshots_beside_parts(patch: pytest.MonkeyPatch) -> None:
    """protocol 9.7: a root does not look at open parts when the main snapshot comes."""
    patch.setattr(Segment, "in_part", property(lambda segment: 0))
    patch.setattr("elf.job.rollup.collect.in_part", lambda parts: 0)


def forgets_parts_of_what_is_covered(patch: pytest.MonkeyPatch) -> None:
    """protocol 9.7: who hears that its main snapshot is covered takes it for included."""
    patch.setattr(Retained, "covered", lambda retained, start, end: retained.answered(start, end, 0))


def begins_without_open_parts(patch: pytest.MonkeyPatch) -> None:
    """protocol 9.9: a start takes the tree of a checkpoint for all that it has."""
    patch.setattr("lab.chaos.task.with_parts", lambda checkpoint, store: checkpoint)


def forgets_parts_of_open_panes(patch: pytest.MonkeyPatch) -> None:
    """protocol 9.9: an open part that is in a commit goes at once, though its pane is still open."""
    begin = Retained.__init__

    def all_are_sealed(retained: Retained) -> None:
        begin(retained)
        retained.sealed_to(END_OF_TIME)

    patch.setattr(Retained, "__init__", all_are_sealed)


def offers_no_open_parts(patch: pytest.MonkeyPatch) -> None:
    """protocol 9.8: nobody sends what a dead agent had of open panes."""
    offered = Proxies.offered

    def without(proxies: Proxies, root: Root, holder: str, offer: OfferReplicas, now_ms: int) -> list[Send]:
        names = tuple(name for name in offer.names if not is_open(name[2]))
        return offered(proxies, root, holder, replace(offer, names=names), now_ms)

    patch.setattr(Proxies, "offered", without)
