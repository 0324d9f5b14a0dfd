"""A holder's side of snapshot replicas (``elf.job.rollup.replication`` has the whole). It keeps snapshots of
others on disk until they are answered, and acts as proxy for an agent that is gone or (a mirror) behind.

Open parts come each second from each of several owners (``elf.job.openparts``): they are gathered for a
while, and written in one transaction. Owners wait for longer than that before they take us for silent.

Replicas are ordered by when they came. Beyond ``bytes_max`` the oldest are given up and counted
(``dropped``). A snapshot of many panes may be answered in some of them: it stays until all are answered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from elf.job.catalog.log import CatalogLog
from elf.job.contributions import from_bytes
from elf.job.effects import Send
from elf.job.messages.rollup import (
    Committed,
    DropReplicas,
    KeepReplicas,
    OfferReplicas,
    ReplicasKept,
    ReplicaVerdict,
)
from elf.job.openparts import is_open
from elf.job.replicas import (
    ForgetReplicas,
    HeldRead,
    ReadReplicas,
    Replica,
    ReplicaName,
    ReplicasRead,
    ReplicasStored,
    StoreReplicas,
)
from elf.job.rollup.decide import RootSettings
from elf.job.rollup.decisions import follows
from elf.job.rollup.sender import OFFERED_MAX
from elf.job.rollup.slices import reissued
from elf.job.snapshots import Span
from elf.job.spec import Flow
from elf.job.stragglers import outside

OFFER_MS: Final = 2_000
"""Between two offers of a replica whose owner is dead."""
STALE_MS: Final = 30_000
"""The same while its owner lives. The owner itself says when a replica is answered, but that message may be
lost."""

GATHER_MS: Final = 2_000
GATHER_BYTES_MAX: Final = 1 << 20
"""For so long, and up to so many bytes, open parts are gathered before they are written."""

LOOK_MS: Final = 250
"""Between two looks at replicas of flows that are mirrored, while there are any."""
OFFERS_A_LIMIT: Final = 4
"""How often replicas of such a flow are offered in a straggler limit, though their owner may live. The first
offer is after a part of the limit, so that there are none in quiet times. Offers are repeated, as the root
takes what it wants when half of the limit is up, and remembers no offers."""

Step = Send | StoreReplicas | ForgetReplicas | ReadReplicas


@dataclass
class _Held:
    """``spans``: panes without an answer. ``told_ms``: when it came, or was last offered."""

    size: int
    spans: list[Span]
    told_ms: int
    durable: bool = False


class Holding:
    """The replicas that one agent holds. ``alive``: what the overlay says of an address; ``settings``: those
    of the roots, which tell how long panes wait; ``restored``: replicas of an earlier life, the oldest first,
    with sizes."""

    def __init__(
        self,
        log: CatalogLog,
        alive: Callable[[str], bool],
        *,
        bytes_max: int,
        settings: RootSettings,
        restored: Mapping[ReplicaName, int] | None = None,
    ) -> None:
        self._log = log
        self._alive = alive
        self._bytes_max = bytes_max
        self._settings = settings
        self._held: dict[ReplicaName, _Held] = {}
        self._of: dict[str, set[ReplicaName]] = {}
        self._next_ms = self._look_ms = 0
        self._gathered: dict[ReplicaName, tuple[str, Replica]] = {}
        """Open parts that are not written yet, with who has sent them."""
        self._write_ms = 0
        """When they are to be."""
        self.bytes = 0
        self.dropped = 0
        """Replicas that were given up for newer ones since the start."""
        self.damaged = 0
        """Replicas that were found damaged on our disk."""
        self.closed = False
        """No more replicas are taken: this agent leaves."""
        for name, size in (restored or {}).items():
            self._add(name, size, 0)
            self._held[name].durable = True

    def __len__(self) -> int:
        return len(self._held)

    def _add(self, name: ReplicaName, size: int, now_ms: int) -> None:
        self._held[name] = _Held(size, [(name.start, name.end)], now_ms)
        self._of.setdefault(name.flow, set()).add(name)
        self.bytes += size

    def _forget(self, names: Iterable[ReplicaName]) -> list[Step]:
        gone = []
        for name in names:
            held = self._held.pop(name, None)
            if held is not None:
                gone.append(name)
                self.bytes -= held.size
                self._gathered.pop(name, None)
                self._of[name.flow].discard(name)
                if not self._of[name.flow]:
                    del self._of[name.flow]
        return [ForgetReplicas(tuple(gone))] if gone else []

    # -- what the owner says ---------------------------------------------------------------------------------

    def keep(self, sender: str, message: KeepReplicas, now_ms: int) -> list[Step]:
        known, refused = [], []
        self._write_ms = self._write_ms if self._gathered else now_ms + GATHER_MS
        urgent = False
        for replica in message.replicas:
            name = replica.name
            if self.closed:
                refused.append(name)  # ours goes too: it is to be where we are not
            elif name in self._held:
                known += [name] if self._held[name].durable else []
            elif replica.size > self._bytes_max or self._log.has_ended(name.flow) or not _makes_sense(name):
                refused.append(name)
            else:
                self._gathered[name] = sender, replica
                urgent |= not is_open(name.part)
                self._add(name, replica.size, now_ms)
        found: list[Step] = []
        if known or refused:
            found.append(Send(sender, ReplicasKept(names=tuple(known), refused=tuple(refused))))
        full = sum(replica.size for _, replica in self._gathered.values()) > GATHER_BYTES_MAX
        return [*found, *(self._write() if urgent or full else ()), *self._shrink()]

    def _write(self) -> list[Step]:
        """What is gathered goes to the disk."""
        gathered, self._gathered = tuple(self._gathered.values()), {}
        return [StoreReplicas(gathered)] if gathered else []

    def _shrink(self) -> list[Step]:
        """Give up the oldest until the others fit."""
        surplus, names = self.bytes - self._bytes_max, []
        for name, held in self._held.items():
            if surplus <= 0:
                break
            names.append(name)
            surplus -= held.size
        self.dropped += len(names)
        return self._forget(names)

    def stored(self, event: ReplicasStored) -> list[Step]:
        """Replicas are durable; those that were forgotten meanwhile will be deleted."""
        told: dict[str, list[ReplicaName]] = {}
        for owner, name in event.names:
            told.setdefault(owner, []).append(name)
        if event.refused:
            no = [Send(owner, ReplicasKept(names=(), refused=tuple(names))) for owner, names in told.items()]
            return [*no, *self._forget([name for _, name in event.names])]
        found: list[Step] = []
        for owner, names in told.items():
            there = tuple(name for name in names if name in self._held)
            for name in there:
                self._held[name].durable = True
            found.append(Send(owner, ReplicasKept(names=there)))
        return found

    def drop(self, message: DropReplicas) -> list[Step]:
        return self._forget(message.names)

    # -- what the root says ----------------------------------------------------------------------------------

    def committed(self, word: Committed) -> list[Step]:
        flow = self._log.flow(word.flow)
        members, parts = from_bytes(word.members), set(word.parts)
        leap = flow is not None and flow.fragment.leap and not follows(flow.fragment)
        done = []
        for name in sorted(self._of.get(word.flow, ())):
            if name.part:
                included = name.start == word.start and (name.member, name.part) in parts
                included |= is_open(name.part) and bool(members >> name.member & 1)
            else:
                included = leap or bool(members >> name.member & 1)
            if included and self._answered(name, word.start, word.end):
                done.append(name)
        return self._forget(done)

    def _answered(self, name: ReplicaName, start: int, end: int) -> bool:
        """Panes ``[start, end)`` of a replica are answered; return whether all of them are."""
        held = self._held[name]
        held.spans = [rest for span in held.spans for rest in outside(span, start, end)]
        return not held.spans

    def verdict(self, word: ReplicaVerdict) -> list[Step]:
        if word.verdict == "send":
            flow = self._log.flow(word.flow)
            read = ReadReplicas(flow, word.member, word.start, word.end, word.part) if flow else None
            return [*self._write(), read] if read else []
        if word.verdict == "wait":
            return []
        names = [
            name for name in sorted(self._of.get(word.flow, ())) if name[1::3] == (word.member, word.part)
        ]
        return self._forget([name for name in names if self._answered(name, word.start, word.end)])

    def read(self, event: ReplicasRead) -> list[Step]:
        """Read, as the proxy, the member's own snapshots, in its name."""
        self.damaged += len(event.damaged)
        flow = self._log.flow(event.flow.uid) or event.flow
        sent = [Send(flow.leader, one) for one in reissued(flow, event.member, event.snapshots)]
        return [*sent, *self._forget(event.damaged)]

    def read_held(self, event: HeldRead) -> list[Step]:
        """Read replicas for other holders."""
        self.damaged += len(event.damaged)
        return self._forget(event.damaged)

    # -- as what is to be copied on (``replication.Owed``) ---------------------------------------------------

    def owed_since(self, before_ms: int) -> list[tuple[ReplicaName, int]]:
        """All replicas: an owner that seems to live, and would replace this holder, may just have died."""
        return [(name, held.size) for name, held in self._held.items()]

    def owing(self) -> bool:
        return bool(self._held)

    def is_copied_at_once(self, uid: str) -> bool:
        return False

    def leader_of(self, uid: str) -> str:
        flow = self._log.flow(uid)
        return flow.leader if flow is not None else ""

    # -- time ------------------------------------------------------------------------------------------------

    def hurry(self) -> None:
        """An agent has died, or a job group has moved: make the offers that are due at once."""
        self._next_ms = 0

    def deadline(self) -> int | None:
        if not self._held:
            return None
        next_ms = min(self._next_ms, self._write_ms) if self._gathered else self._next_ms
        return min(next_ms, self._look_ms) if self._mirrored() else next_ms

    def tick(self, now_ms: int) -> list[Step]:
        found = self._write() if self.closed or now_ms >= self._write_ms else []
        found += self._mirror(now_ms)
        if not self._held or now_ms < self._next_ms:
            return found
        self._next_ms = now_ms + OFFER_MS
        for uid in list(self._of):
            if self._log.has_ended(uid):
                found.extend(self._forget(sorted(self._of[uid])))
            else:
                found.extend(self._offers(uid, now_ms))
        return found

    def _offers(self, uid: str, now_ms: int) -> list[Step]:
        """Offers to the root of a flow: replicas of dead owners, and those of which nothing was heard for
        long."""
        flow = self._log.flow(uid)
        if flow is None:
            return []
        gone = {m: self._gone(flow.fragment.stream, m) for m in {name.member for name in self._of[uid]}}
        wanted = (
            name
            for name in self._of[uid]
            if gone[name.member] or now_ms - self._held[name].told_ms >= STALE_MS
        )
        return self._offer(flow, wanted, now_ms)

    def _mirrored(self) -> list[Flow]:
        """The mirrored flows of which replicas are here."""
        flows = (self._log.flow(uid) for uid in self._of)
        return [flow for flow in flows if flow is not None and flow.fragment.mirror]

    def _mirror(self, now_ms: int) -> list[Step]:
        """Offers to their roots: replicas that have waited for a part of the straggler limit."""
        found: list[Step] = []
        for flow in self._mirrored() if now_ms >= self._look_ms else ():
            self._look_ms = now_ms + LOOK_MS
            before_ms = now_ms - self._settings.limit_ms(flow.fragment) // OFFERS_A_LIMIT
            wanted = (name for name in self._of[flow.uid] if self._held[name].told_ms <= before_ms)
            found.extend(self._offer(flow, wanted, now_ms))
        return found

    def _offer(self, flow: Flow, wanted: Iterable[ReplicaName], now_ms: int) -> list[Step]:
        offered: dict[int, list[ReplicaName]] = {}
        for name in sorted(wanted):
            offered.setdefault(name.member, []).append(name)
        found: list[Step] = []
        for member, names in offered.items():
            for name in names[:OFFERED_MAX]:
                self._held[name].told_ms = now_ms
            panes = self._panes(names[:OFFERED_MAX])
            found.append(Send(flow.leader, OfferReplicas(flow=flow.uid, member=member, names=panes)))
        return found

    def _panes(self, names: Sequence[ReplicaName]) -> tuple[tuple[int, int, int], ...]:
        """The unanswered panes of these replicas, with the part."""
        return tuple((*span, name.part) for name in names for span in self._held[name].spans)

    def _gone(self, stream: str, number: int) -> bool:
        """Whether a member is dead, as far as we know; so is one whose address another has now."""
        member = next((m for m in self._log.members(stream) if m.number == number), None)
        if member is None:
            return False  # not in our catalog log yet
        return not self._alive(member.address) or any(
            m.address == member.address and m.number > number for m in self._log.members(stream)
        )


def _makes_sense(name: ReplicaName) -> bool:
    return name.start < name.end and name.member >= 0 and (not name.part or name.end == name.start + 1)
