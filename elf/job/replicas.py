"""Snapshot replicas as values: their names, and the requests to the disk about them (the protocol:
``elf.job.rollup.replication``).

The effects of this module are performed in order, one after the other, concurrently with everything else;
they come back as its events.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from elf.fields import FlowUid, Number, Pane, Serial
from elf.job.snapshots import Sealed
from elf.job.spec import Flow


class ReplicaName(NamedTuple):
    """The name of one snapshot in the fleet: panes ``[start, end)`` of a flow, by a member of its stream, and
    the part."""

    flow: FlowUid
    member: Number
    start: Pane
    end: Pane
    part: Serial = 0


class Replica(msgspec.Struct, frozen=True, array_like=True):
    """A snapshot as its owner has sealed it: encoded tables."""

    name: ReplicaName
    counters: bytes = b""
    payload: bytes = b""

    @property
    def size(self) -> int:
        """Bytes, as quotas count them."""
        return len(self.counters) + len(self.payload) + REPLICA_OVERHEAD


REPLICA_OVERHEAD: Final = 256
"""Bytes that a replica takes besides its contents."""


class ReadSnapshots(msgspec.Struct, frozen=True):
    """Read snapshots that this agent retains, for the holders at ``to``; comes back as ``SnapshotsRead``."""

    names: tuple[ReplicaName, ...]
    to: tuple[str, ...]


class StoreReplicas(msgspec.Struct, frozen=True):
    """Keep replicas of other agents' snapshots, by the address that they came from; comes back as
    ``ReplicasStored``."""

    replicas: tuple[tuple[str, Replica], ...]


class ForgetReplicas(msgspec.Struct, frozen=True):
    """Delete replicas. It need not be durable: a replica that reappears is offered once more."""

    names: tuple[ReplicaName, ...]


class ReadHeld(msgspec.Struct, frozen=True):
    """Read replicas that this agent holds, for other holders at ``to``; comes back as ``HeldRead``."""

    names: tuple[ReplicaName, ...]
    to: tuple[str, ...]


class ReadReplicas(msgspec.Struct, frozen=True):
    """Read the replicas of a member that have panes in ``[start, end)``, of this part; ``ReplicasRead``."""

    flow: Flow
    member: int
    start: int
    end: int
    part: int = 0


class SnapshotsRead(msgspec.Struct, frozen=True):
    """Those of the named snapshots that were there."""

    to: tuple[str, ...]
    replicas: tuple[Replica, ...]


class ReplicasStored(msgspec.Struct, frozen=True):
    """The replicas are durable, by the address that they came from; or the disk has ``refused`` them."""

    names: tuple[tuple[str, ReplicaName], ...]
    refused: bool = False


class ReplicasRead(msgspec.Struct, frozen=True):
    """``damaged``: those whose checksum is wrong; they are deleted."""

    flow: Flow
    member: int
    snapshots: tuple[Sealed, ...]
    damaged: tuple[ReplicaName, ...] = ()


class HeldRead(msgspec.Struct, frozen=True):
    """Those of the named replicas that were there; ``damaged`` as in ``ReplicasRead``."""

    to: tuple[str, ...]
    replicas: tuple[Replica, ...]
    damaged: tuple[ReplicaName, ...] = ()


ReplicaEffect = ReadSnapshots | StoreReplicas | ForgetReplicas | ReadHeld | ReadReplicas
ReplicaEvent = SnapshotsRead | ReplicasStored | HeldRead | ReplicasRead
