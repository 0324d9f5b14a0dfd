"""The replicas of one agent: of its own snapshots at neighbours, and of others' here (the protocol:
``elf.job.rollup.replication``)."""

from __future__ import annotations

from collections.abc import Sequence

from agents.node.beginning import Context, NodeSettings, Restored
from elf.job import replicas as disk
from elf.job.catalog.voters import apart
from elf.job.effects import Effect
from elf.job.messages.rollup import (
    DropReplicas,
    KeepReplicas,
    OfferReplicas,
    ReplicaMessage,
    ReplicasKept,
    ReplicaVerdict,
)
from elf.job.replicas import ReplicaEffect, ReplicaName
from elf.job.rollup.flowroots import FlowRoots
from elf.job.rollup.holding import Holding
from elf.job.rollup.replication import Replication
from elf.job.rollup.sender import Sender
from elf.job.snapshots import Sealed
from overlay.ids import closeness, node_id

Step = Effect | ReplicaEffect


class Replicas:
    """Of an agent: as an owner (``replication``), as a holder (``holding``), as one that leaves
    (``handing``)."""

    def __init__(
        self,
        context: Context,
        sender: Sender,
        roots: FlowRoots,
        settings: NodeSettings,
        restored: Restored,
    ) -> None:
        self._address = context.me.address
        self._overlay = context.overlay
        self._sender = sender
        self._roots = roots
        self.replication = Replication(
            sender,
            self._neighbours,
            replicas=settings.replicas,
            after_ms=settings.copy_after_ms,
            eager=settings.eager,
        )
        self.holding = Holding(
            context.log,
            self._alive,
            bytes_max=settings.copies_bytes_max,
            settings=settings.root,
            restored=restored.replicas,
        )
        self.handing = Replication(
            self.holding,
            self._neighbours,
            replicas=max(1, settings.replicas),
            after_ms=0,
            reads=disk.ReadHeld,
            own=False,
        )

    def hand_on(self) -> None:
        """From now on take no replicas, and give what is here to neighbours, until ``to_hand_on`` is 0."""
        self.holding.closed = True

    def to_hand_on(self) -> int:
        """Replicas that nobody else has, as far as we know, or will have while we are here."""
        known = {name for name, _ in self.holding.owed_since(0)}
        return self.handing.lacking(known)

    def _neighbours(self) -> Sequence[str]:
        """Live others of the leaf set: from other racks first, then the nearest on the ring."""
        mine = node_id(self._address)
        near = [peer.address for peer in self._overlay.leaf_set()]
        near.sort(key=lambda address: closeness(mine, node_id(address)))
        return apart([self._address], near, self._overlay.place_of, len(near))

    def _alive(self, address: str) -> bool:
        return address == self._address or any(peer.address == address for peer in self._overlay.peers())

    # -- what happens ----------------------------------------------------------------------------------------

    def arrived(self, sender: str, message: ReplicaMessage, now_ms: int) -> Sequence[Step]:
        match message:
            case KeepReplicas():
                return self.holding.keep(sender, message, now_ms)
            case ReplicasKept():
                self.replication.kept(sender, message)
                self.handing.kept(sender, message)
                return []
            case DropReplicas():
                return self.holding.drop(message)
            case OfferReplicas():
                return self._roots.copies_offered(sender, message, now_ms)
            case ReplicaVerdict():
                return self.holding.verdict(message)

    def performed(self, event: disk.ReplicaEvent) -> Sequence[Step]:
        """Something was read or written."""
        match event:
            case disk.SnapshotsRead():
                return self.replication.read(event)
            case disk.HeldRead():
                return [*self.handing.read(event), *self.holding.read_held(event)]
            case disk.ReplicasStored():
                return self.holding.stored(event)
            case disk.ReplicasRead():
                return self.holding.read(event)

    def peer_down(self, address: str) -> None:
        self.replication.peer_down(address)
        self.handing.peer_down(address)
        self.holding.hurry()

    def deadline(self) -> int | None:
        if not self._overlay.ready:
            return None
        handing = self.handing.deadline() if self.holding.closed else None
        waits = (self.replication.deadline(), self.holding.deadline(), handing)
        return min((at for at in waits if at is not None), default=None)

    def tick(self, now_ms: int) -> list[Step]:
        if not self._overlay.ready:
            return []
        held = self.holding.tick(now_ms)  # what it writes is read for others after that
        handed = self.handing.tick(now_ms) if self.holding.closed else []
        return [*self.replication.tick(now_ms), *held, *handed]

    def sealed(self, snapshots: Sequence[Sealed], number: int | None, now_ms: int) -> Sequence[Step]:
        """Our own snapshots are durable; ``number``: ours as a member of their stream."""
        if number is None or not self._overlay.ready:
            return []
        now = [one for one in snapshots if self._sender.is_copied_at_once(one.flow)]
        names = (ReplicaName(one.flow, number, one.start, one.end, one.part) for one in now)
        return self.replication.at_once(
            [disk.Replica(name, one.counters, one.payload) for name, one in zip(names, now, strict=True)],
            now_ms,
        )

    def status(self) -> dict[str, object]:
        """For people."""
        holding, replication = self.holding, self.replication
        return {
            "held": len(holding),
            "bytes": holding.bytes,
            "dropped": holding.dropped,
            "damaged": holding.damaged,
            "of_ours": replication.copied,
            "wanting": replication.wanting,
            "wanted": self.replication.replicas,
            "mirrored": self._roots.mirrored,
        }
