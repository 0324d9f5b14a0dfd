"""Snapshots and pieces as they travel: as slices."""

from __future__ import annotations

from collections.abc import Iterable

from elf.job.contributions import Piece, from_bytes, to_bytes
from elf.job.messages.rollup import Excerpt, RunSlice, Slice, UnitSlice
from elf.job.snapshots import Sealed
from elf.job.spec import Flow


def slice_of(flow: Flow, piece: Piece) -> Slice:
    """A piece as it goes to the parent."""
    if piece.unit > 1:
        return UnitSlice(
            flow=flow.uid,
            start=piece.start,
            end=piece.end,
            members=to_bytes(piece.members),
            counters=piece.counters,
            payload=piece.payload,
            unit=piece.unit,
        )
    kind = Excerpt if piece.excerpt else Slice
    return kind(
        flow=flow.uid,
        start=piece.start,
        end=piece.end,
        members=to_bytes(piece.members),
        counters=piece.counters,
        payload=piece.payload,
    )


def reissued(flow: Flow, number: int, snapshots: Iterable[Sealed]) -> list[Slice]:
    """Snapshots of a member as its store has them (or a holder's), as they go straight to the root."""
    return [
        Slice(
            flow=flow.uid,
            start=one.start,
            end=one.end,
            members=b"" if one.part else to_bytes(1 << number),
            parts=((number, one.part),) if one.part else (),
            direct=True,
            counters=one.counters,
            payload=one.payload,
        )
        for one in snapshots
    ]


def piece_of(message: Slice) -> Piece:
    """A slice as its receiver takes it."""
    return Piece(
        message.start,
        message.end,
        from_bytes(message.members),
        message.counters,
        message.payload,
        excerpt=isinstance(message, Excerpt),
        offsets=message.offsets if isinstance(message, RunSlice) else 0,
        unit=message.unit if isinstance(message, UnitSlice) else 1,
    )
