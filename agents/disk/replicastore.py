"""Replicas of other agents' snapshots in an agent's store: effects of ``elf.job.replicas`` performed, one
after the other in their order.

A disk that has no room for replicas refuses them, and that is all: they are others' second best. A replica
whose checksum is wrong is never used; it is deleted, and whoever offers it has one less.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from typing import Final

from agents.disk.room import is_refusal
from agents.disk.store import ReplicaRow, Store, StoreError
from elf.job.replicas import (
    ForgetReplicas,
    HeldRead,
    ReadHeld,
    ReadReplicas,
    ReadSnapshots,
    Replica,
    ReplicaEffect,
    ReplicaEvent,
    ReplicaName,
    ReplicasRead,
    ReplicasStored,
    SnapshotsRead,
    StoreReplicas,
)
from elf.job.snapshots import Sealed, SnapshotName

REPLICA_EFFECTS: Final = (ReadSnapshots, StoreReplicas, ForgetReplicas, ReadHeld, ReadReplicas)


def perform(store: Store, effect: ReplicaEffect) -> ReplicaEvent | None:
    """Do it; what comes back as an event."""
    match effect:
        case ReadSnapshots():
            return SnapshotsRead(effect.to, tuple(_snapshots(store, effect.names)))
        case StoreReplicas():
            return _keep(store, effect)
        case ForgetReplicas():
            with store.unsynced():
                store.forget_replicas(effect.names)
            return None
        case ReadHeld():
            return _read_held(store, effect)
        case ReadReplicas():
            return _read(store, effect)


def held(store: Store) -> Mapping[ReplicaName, int]:
    """The replicas of an earlier life, the oldest first, and their sizes in bytes."""
    return {ReplicaName(*name): Replica(ReplicaName(*name)).size + size for name, size in store.replicas()}


def _snapshots(store: Store, names: Iterable[ReplicaName]) -> Iterable[Replica]:
    """Those of our own that are still there."""
    named = {SnapshotName(name.flow, *name[2:]): name for name in names}
    for row in store.named_snapshots(tuple(named)):
        yield Replica(named[row.name], row.counters, row.payload)


def _keep(store: Store, effect: StoreReplicas) -> ReplicasStored:
    names = tuple((owner, replica.name) for owner, replica in effect.replicas)
    rows = [
        ReplicaRow(*c.name, c.counters, c.payload, _checksum(c.counters, c.payload))
        for _, c in effect.replicas
    ]
    try:
        store.keep_replicas(rows)
    except StoreError as error:
        if not is_refusal(error):
            raise
        return ReplicasStored(names, refused=True)
    return ReplicasStored(names)


def _read_held(store: Store, effect: ReadHeld) -> HeldRead:
    found = (store.replicas_of(n.flow, n.member, n.start, n.end, n.part) for n in effect.names)
    rows = {ReplicaName(*row[:5]): row for some in found for row in some}
    named = [(name, rows[name]) for name in effect.names if name in rows]
    good = tuple(Replica(name, row.counters, row.payload) for name, row in named if _is_whole(row))
    return HeldRead(effect.to, good, tuple(name for name, row in named if not _is_whole(row)))


def _read(store: Store, effect: ReadReplicas) -> ReplicasRead:
    rows = store.replicas_of(effect.flow.uid, effect.member, effect.start, effect.end, effect.part)
    bad = [row for row in rows if not _is_whole(row)]
    good = (row for row in rows if row not in bad)
    snapshots = tuple(Sealed(r.flow, r.start, r.end, r.counters, r.payload, r.part) for r in good)
    damaged = tuple(ReplicaName(*row[:5]) for row in bad)
    return ReplicasRead(effect.flow, effect.member, snapshots, damaged)


def _is_whole(row: ReplicaRow) -> bool:
    return row.checksum == _checksum(row.counters, row.payload)


def _checksum(counters: bytes, payload: bytes) -> int:
    return zlib.crc32(payload, zlib.crc32(counters))
