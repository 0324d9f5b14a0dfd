"""Owner, holder and root about snapshot replicas (``elf.job.rollup.replication``)."""

from __future__ import annotations

from elf.job.replicas import Replica, ReplicaName
from elf.wire.base import Message


class KeepReplicas(Message, frozen=True, kw_only=True):
    """Owner to holder: keep these until they are answered."""

    replicas: tuple[Replica, ...]


class ReplicasKept(Message, frozen=True, kw_only=True):
    """Holder to owner: these are durable here; the ``refused`` ones will never be."""

    names: tuple[ReplicaName, ...]
    refused: tuple[ReplicaName, ...] = ()


class DropReplicas(Message, frozen=True, kw_only=True):
    """Owner to holder: these are answered."""

    names: tuple[ReplicaName, ...]


class OfferReplicas(Message, frozen=True, kw_only=True):
    """Holder to root, about snapshots (first pane, end, part) of a member: what is to become of them?"""

    flow: str
    member: int
    names: tuple[tuple[int, int, int], ...]


class ReplicaVerdict(Message, frozen=True, kw_only=True):
    """The root's answer, as a ``Verdict`` on a member's own: ``included``, ``final`` and ``leapt`` mean
    forget it. ``send``: the owner is gone, and you are its proxy."""

    flow: str
    member: int
    start: int
    end: int
    verdict: str
    part: int = 0


REPLICA_MESSAGES = (KeepReplicas, ReplicasKept, DropReplicas, OfferReplicas, ReplicaVerdict)
ReplicaMessage = KeepReplicas | ReplicasKept | DropReplicas | OfferReplicas | ReplicaVerdict
