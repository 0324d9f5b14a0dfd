"""Snapshot replicas at neighbours: what an agent had sealed survives it, when it is gone for good with its
disk (paper, 3.4: replicas in the leaf set). This module is the owner's side and what all sides share;
``holding`` is the holder's, ``proxies`` the root's.

What becomes of one snapshot (flow, first pane, end, part, member number):

    sealed, its checkpoint durable ── answered within ``after_ms`` ─────────────────▶ never copied
      └─ still owed ─▶ due ── KeepReplicas ─▶ ``replicas`` neighbours: durable there ── ReplicasKept ─▶ copied
                        ▲                     │ silent, dead, refused: the next neighbour          │
                        └─────────────────────┘             answered: DropReplicas to its holders ◀──┘

    at a holder  kept ── Committed with its member · ReplicaVerdict: included, final, leapt
                  │      · DropReplicas · end of the flow · quota (the oldest, counted) ──▶ forgotten
                  └─ owner dead, says the overlay here (or nothing heard of it for long): OfferReplicas ▶ root
    at the root  answers as a member's own offer, but "send" only for an owner that is dead or silent to it
                 too, and for each snapshot to one holder at a time: that is the owner's *proxy*
    the proxy    sends the snapshot straight to the root, in the owner's name and number

Holders are live neighbours on the ring: those in other racks first, then the nearest, and the flow's job
group last, since a replica is wanted when the job group fails.

Why this is right, whatever is said twice, late, or never:

- **A replica is the snapshot** (protocol 9.1). It is read from the store, so it leaves the agent after the
  checkpoint that names it is durable, and its contents never change. It is the same piece whoever sends it,
  and the root takes each (member, pane) once (``contributions``). So an owner that was not dead or comes
  back, two proxies, or a replica beside the piece that came up the tree cannot count twice.
- **Only the root decides** what becomes of a snapshot, for replicas as for the snapshot itself. Under
  ``STRAGGLERS LEAP`` a commit without it is final, and the owner counts what was dropped, not the holder.
- **Nobody waits for a replica.** Panes wait as they would without; a replica that comes in time is in the
  pane, a later one makes a revision. Replication is bounded in bytes under way (``UNDERWAY_BYTES``) and at
  the holder; what is not copied (``wanting``) is counted, and shed nowhere.

Where commits take less than ``after_ms`` there are no replicas at all. Until then a snapshot is on its
owner's disk and on its way up, in the memory of inner nodes or of the root: it is lost only if two agents die
for good at once, or one does while the way up is broken. An agent that is gone for good also loses its open
panes, all rows of the last pane and lateness; to copy sooner would save little.

Under ``STRAGGLERS MIRROR`` the same happens sooner, and also for an owner that lives and is behind: its way
up is slow or broken, or it has stopped. A snapshot is due when it is sealed. Holders offer it when it has
waited for a quarter of the straggler limit, and again after each further quarter, whether the owner lives or
not. The root says "send" also for a pane that has waited for half of the limit, of a member that is not in
it. So nobody needs to know who has replicas: an owner that has stopped cannot name them, and a tree with
broken inner nodes cannot be asked. The price is each snapshot twice more on the wire and on disks and, while
a pane waits, up to eight small offers for each member to its root. What comes after the commit makes a
revision, as under REVISE; with ``replicas`` 0 everything does. (``elf.job.rollup.mirrors`` is something else:
copies of whole flows, for masters elsewhere.)

**A holder that leaves** (``elf leave``) treats its replicas as an owner its own snapshots: it asks neighbours
to keep them until each is durable at one of them, or answered. A neighbour that has one already says so,
unless it leaves too. The holder takes no more replicas of others from then on. What no neighbour takes within
a while is lost with it, and it says how many those are. Owners that live replace the holder too, but one that
has died within the last seconds seems to live.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from elf.job.effects import Send
from elf.job.messages.rollup import DropReplicas, KeepReplicas, ReplicasKept
from elf.job.openparts import is_open
from elf.job.replicas import HeldRead, ReadHeld, ReadSnapshots, Replica, ReplicaName, SnapshotsRead

LOOK_MS: Final = 500
"""The pause between two looks at what is due: snapshots that come within it share messages."""
CALM_MS: Final = 2_000
"""The same where all that is owed is copied at once (``protocol.copies: eager``), and nothing is lacking."""
UNDERWAY_BYTES: Final = 8 << 20
"""The bytes of unanswered replicas over all holders; a larger snapshot goes alone."""
TOGETHER_BYTES: Final = 1 << 20
TOGETHER_MAX: Final = 500
"""Replicas in one message, and bytes unless one replica is larger."""
ANSWER_MS: Final = 5_000
SILENT_MS: Final = 30_000
"""A neighbour that did not answer in time is not asked for this long."""

Step = Send | ReadSnapshots | ReadHeld


@dataclass
class _Spread:
    """Where a snapshot is: ``asked`` are addresses → when."""

    size: int
    asked: dict[str, int] = field(default_factory=dict)
    kept: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)


class Owed(Protocol):
    """What is to be copied: an agent's own snapshots (``Sender``), or those that it holds of others."""

    def owed_since(self, before_ms: int) -> Iterable[tuple[ReplicaName, int]]:
        """What has waited since then or longer for its answer, with sizes in bytes."""

    def owing(self) -> bool:
        """Whether any snapshot has no answer yet."""

    def is_copied_at_once(self, uid: str) -> bool:
        """Whether the snapshots of a flow are copied at once."""

    def leader_of(self, uid: str) -> str:
        """Where the root of a flow is."""


class Replication:
    """The replicas of one agent's snapshots, ``replicas`` of each. ``neighbours``: live others, best first;
    ``reads``: the effect that reads them from disk; ``own``: the snapshots are the agent's own, so it tells
    holders when to drop them."""

    def __init__(
        self,
        owed: Owed,
        neighbours: Callable[[], Sequence[str]],
        *,
        replicas: int,
        after_ms: int,
        reads: type[ReadSnapshots] | type[ReadHeld] = ReadSnapshots,
        own: bool = True,
        eager: bool = False,
    ) -> None:
        """``eager``: all that is owed comes to ``at_once``."""
        self._reads = reads
        self._own = own
        self._eager = eager
        self._owed = owed
        self._neighbours = neighbours
        self.replicas = replicas
        self._after_ms = after_ms
        self._due: dict[ReplicaName, _Spread] = {}
        self._silent: dict[str, int] = {}
        self._near: Sequence[str] = ()
        """The neighbours, as of the last look; empty: they are to be looked for."""
        self._next_ms = 0
        self.sent_bytes = 0
        """Of the replicas that were sent, since the start."""

    @property
    def wanting(self) -> int:
        """Snapshots that are due and on too few neighbours; of open parts, some of which are always under
        way, those that are not on their way to enough."""
        return sum(
            len(spread.kept) + len(spread.asked) * is_open(name.part) < self.replicas
            for name, spread in self._due.items()
        )

    @property
    def copied(self) -> int:
        """Snapshots that are on enough neighbours, and not answered yet."""
        return len(self._due) - self.wanting

    def lacking(self, names: Iterable[ReplicaName]) -> int:
        """How many of these are on no neighbour, as far as we know."""
        return sum(not (name in self._due and self._due[name].kept) for name in names)

    def deadline(self) -> int | None:
        return self._next_ms if self.replicas and (self._due or self._owed.owing()) else None

    def tick(self, now_ms: int) -> list[Step]:
        if not self.replicas or now_ms < self._next_ms:
            return []
        self._near = ()
        owed = dict(self._owed.owed_since(now_ms - self._after_ms))
        done = [name for name in self._due if name not in owed]
        found: list[Step] = list(self._drop(done))
        for name, size in owed.items():
            self._due.setdefault(name, _Spread(size))
        found += [self._reads(names, to) for names, to in self._spread(self._due, now_ms)] if owed else []
        calm = self._eager and not any(self._lacks(spread) for spread in self._due.values())
        self._next_ms = now_ms + (CALM_MS if calm else LOOK_MS)
        return found

    def at_once(self, replicas: Sequence[Replica], now_ms: int) -> list[Step]:
        """Snapshots of flows that are copied at once are durable now: neighbours get them, without another
        look at the disk."""
        there = {replica.name: replica for replica in replicas}
        if not self.replicas or not there:
            return []
        due = {name: self._due.setdefault(name, _Spread(replica.size)) for name, replica in there.items()}
        found: list[Step] = []
        for names, to in self._spread(due, now_ms):
            found += self.read(SnapshotsRead(to, tuple(there[name] for name in names)))
        if not self._eager or any(self._lacks(spread) for spread in due.values()):
            self._next_ms = min(self._next_ms, now_ms + LOOK_MS)
        return found

    def _lacks(self, spread: _Spread) -> bool:
        """Whether it is neither on enough neighbours nor on its way to them."""
        return len(spread.kept) + len(spread.asked) < self.replicas

    def _drop(self, names: Sequence[ReplicaName]) -> list[Send]:
        """These snapshots are answered: tell all that may have them."""
        told: dict[str, list[ReplicaName]] = {}
        for name in names:
            spread = self._due.pop(name)
            for address in sorted(spread.kept | spread.asked.keys()):
                told.setdefault(address, []).append(name)
        return [Send(to, DropReplicas(names=tuple(gone))) for to, gone in told.items() if self._own]

    def _spread(
        self, due: Mapping[ReplicaName, _Spread], now_ms: int
    ) -> list[tuple[tuple[ReplicaName, ...], tuple[str, ...]]]:
        """Of these, what neighbours are to keep as it is on too few of them, within the bounds; with whom."""
        self._give_up(now_ms)
        self._near = self._near or self._neighbours()
        live = [address for address in self._near if self._silent.get(address, 0) <= now_ms]
        underway = sum(spread.size * len(spread.asked) for spread in self._due.values())
        groups: dict[tuple[str, ...], list[ReplicaName]] = {}
        for name, spread in due.items():
            missing = self.replicas - len(spread.kept) - len(spread.asked)
            tried = spread.kept | spread.asked.keys() | spread.refused
            order = sorted(live, key=self._owed.leader_of(name.flow).__eq__)
            to = tuple([address for address in order if address not in tried][: max(0, missing)])
            cost = spread.size * len(to)
            if not to or (underway and underway + cost > UNDERWAY_BYTES):
                continue
            underway += cost
            spread.asked.update(dict.fromkeys(to, now_ms))
            groups.setdefault(to, []).append(name)
        return [(names, to) for to, all_ in groups.items() for names in self._together(all_)]

    def _give_up(self, now_ms: int) -> None:
        """A neighbour that has not answered in time is left alone for a while."""
        for spread in self._due.values():
            for address in [a for a, at_ms in spread.asked.items() if now_ms - at_ms >= ANSWER_MS]:
                del spread.asked[address]
                self._silent[address] = now_ms + SILENT_MS
        self._silent = {a: until_ms for a, until_ms in self._silent.items() if until_ms > now_ms}

    def _together(self, names: Sequence[ReplicaName]) -> list[tuple[ReplicaName, ...]]:
        found: list[list[ReplicaName]] = []
        room = 0
        for name in names:
            size = self._due[name].size
            if not found or room < size or len(found[-1]) >= TOGETHER_MAX:
                found.append([])
                room = TOGETHER_BYTES
            found[-1].append(name)
            room -= size
        return [tuple(one) for one in found]

    # -- what is heard ---------------------------------------------------------------------------------------

    def read(self, event: SnapshotsRead | HeldRead) -> list[Step]:
        """Read from the store, to send to the neighbours; what was answered meanwhile is not sent."""
        replicas = tuple(replica for replica in event.replicas if replica.name in self._due)
        message = KeepReplicas(replicas=replicas)
        self.sent_bytes += len(event.to) * sum(replica.size for replica in replicas)
        return [Send(to, message) for to in event.to] if replicas else []

    def kept(self, sender: str, message: ReplicasKept) -> None:
        self._silent.pop(sender, None)
        for names, refused in ((message.names, False), (message.refused, True)):
            for name in names:
                spread = self._due.get(name)
                if spread is not None:
                    spread.asked.pop(sender, None)
                    (spread.refused if refused else spread.kept).add(sender)
        if message.refused:
            self._next_ms = 0

    def peer_down(self, address: str) -> None:
        """A holder is down, and what it had may be gone: other neighbours are asked."""
        self._silent.pop(address, None)
        self._near, self._next_ms = (), 0
        for spread in self._due.values():
            spread.asked.pop(address, None)
            spread.kept.discard(address)
            spread.refused.discard(address)
