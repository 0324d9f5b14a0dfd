"""Copies of other agents' snapshots in an agent's store: effects of ``elf.job.copies`` performed, one after
the other in their order.

A disk that has no room for copies refuses them, and that is all: they are others' second best. A copy whose
checksum is wrong is never used; it is deleted, and whoever offers it has one less.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from typing import Final

from agents.disk.room import is_refusal
from agents.disk.store import CopyRow, Store, StoreError
from elf.job.copies import (
    CopiesRead,
    CopiesStored,
    Copy,
    CopyEffect,
    CopyEvent,
    CopyName,
    ForgetCopies,
    HeldRead,
    ReadCopies,
    ReadHeld,
    ReadSnapshots,
    SnapshotsRead,
    StoreCopies,
)
from elf.job.snapshots import Sealed, SnapshotName

COPY_EFFECTS: Final = (ReadSnapshots, StoreCopies, ForgetCopies, ReadHeld, ReadCopies)


def perform(store: Store, effect: CopyEffect) -> CopyEvent | None:
    """Do it; what comes back as an event."""
    match effect:
        case ReadSnapshots():
            return SnapshotsRead(effect.to, tuple(_snapshots(store, effect.names)))
        case StoreCopies():
            return _keep(store, effect)
        case ForgetCopies():
            with store.unsynced():
                store.forget_copies(effect.names)
            return None
        case ReadHeld():
            return _read_held(store, effect)
        case ReadCopies():
            return _read(store, effect)


def held(store: Store) -> Mapping[CopyName, int]:
    """The copies of an earlier life, the oldest first, and their sizes in bytes."""
    return {CopyName(*name): Copy(CopyName(*name)).size + size for name, size in store.copies()}


def _snapshots(store: Store, names: Iterable[CopyName]) -> Iterable[Copy]:
    """Those of our own that are still there."""
    named = {SnapshotName(name.flow, *name[2:]): name for name in names}
    for row in store.named_snapshots(tuple(named)):
        yield Copy(named[row.name], row.counters, row.payload)


def _keep(store: Store, effect: StoreCopies) -> CopiesStored:
    names = tuple(copy.name for copy in effect.copies)
    rows = [CopyRow(*c.name, c.counters, c.payload, _checksum(c.counters, c.payload)) for c in effect.copies]
    try:
        store.keep_copies(rows)
    except StoreError as error:
        if not is_refusal(error):
            raise
        return CopiesStored(effect.owner, (), refused=names)
    return CopiesStored(effect.owner, names)


def _read_held(store: Store, effect: ReadHeld) -> HeldRead:
    found = (store.copies_of(n.flow, n.member, n.start, n.end, n.part) for n in effect.names)
    rows = {CopyName(*row[:5]): row for some in found for row in some}
    named = [(name, rows[name]) for name in effect.names if name in rows]
    good = tuple(Copy(name, row.counters, row.payload) for name, row in named if _is_whole(row))
    return HeldRead(effect.to, good, tuple(name for name, row in named if not _is_whole(row)))


def _read(store: Store, effect: ReadCopies) -> CopiesRead:
    rows = store.copies_of(effect.flow.uid, effect.member, effect.start, effect.end, effect.part)
    bad = [row for row in rows if not _is_whole(row)]
    good = (row for row in rows if row not in bad)
    snapshots = tuple(Sealed(r.flow, r.start, r.end, r.counters, r.payload, r.part) for r in good)
    damaged = tuple(CopyName(*row[:5]) for row in bad)
    return CopiesRead(effect.flow, effect.member, snapshots, damaged)


def _is_whole(row: CopyRow) -> bool:
    return row.checksum == _checksum(row.counters, row.payload)


def _checksum(counters: bytes, payload: bytes) -> int:
    return zlib.crc32(payload, zlib.crc32(counters))
