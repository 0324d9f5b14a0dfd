"""What the catalog log says of tables with a ring: who the replicas are, and which table of two is read while
the key changes (``elf.job.ring``)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from elf.job.messages.log import RingSwapped
from elf.job.output import OutputSpec
from elf.job.ring import PARTS, replicas

Replicas = tuple[str, ...]


@dataclass
class _Ring:
    """Of one table. ``ever``: of each part all the replicas that it has had, the last ones first.
    ``founders``: those that it has had ever since its entry. ``swapped``: the number in that entry (protocol
    7.21); None while the table whose place it takes is read: ``old``."""

    spec: OutputSpec
    ever: list[Replicas]
    founders: list[set[str]]
    old: _Ring | None = None
    swapped: int | None = None
    before: int = 0
    """The same number of the table whose place it takes, which may still be behind it."""


class Rings:
    """Of all tables that are not dropped."""

    def __init__(self) -> None:
        self._now: tuple[Replicas, ...] = ((),) * PARTS
        self._rings: dict[str, _Ring] = {}

    def __bool__(self) -> bool:
        """Whether there are any: else nothing has to be known of members."""
        return bool(self._rings)

    def have(self, members: Iterable[str]) -> None:
        """The fleet has these members from here on."""
        there = set(members)
        self._now = tuple(replicas(there, place) for place in range(PARTS))
        for ring in self._rings.values():
            ring.ever = [_first(*both) for both in zip(self._now, ring.ever, strict=True)]
            for one in (ring, ring.old):
                for place, founders in enumerate([] if one is None else one.founders):
                    founders.intersection_update(self._now[place])

    def add(self, spec: OutputSpec) -> None:
        """A table; the one whose place it takes has not been dropped yet."""
        old = self._rings.get(spec.option("of"))
        ever = list(self._now) if old is None else list(old.ever)
        swapped, before = None if spec.option("of") else 0, (old.swapped or 0) if old is not None else 0
        founders = [set() if spec.option("of") else set(part) for part in self._now]
        self._rings[spec.uid] = _Ring(spec, ever, founders, old, swapped, before)

    def swap(self, entry: RingSwapped) -> None:
        if self.is_changing(entry.uid):
            self._rings[entry.uid].swapped, self._rings[entry.uid].old = entry.number, None

    def drop(self, uid: str) -> None:
        self._rings.pop(uid, None)

    def tables(self) -> tuple[OutputSpec, ...]:
        return tuple(ring.spec for ring in self._rings.values())

    def has(self, uid: str) -> bool:
        """Whether a table has a ring, or had one."""
        return any(uid in (one.spec.uid, one.spec.option("of")) for one in self._rings.values())

    def replicas(self, place: int) -> Replicas:
        """Who has a part of a table, in their order."""
        return self._now[place]

    def ever(self, uid: str, place: int) -> Replicas:
        """The same, and then all who have had it since the table was made: rows may be there."""
        ring = next(
            (one for one in self._rings.values() if uid in (one.spec.uid, one.spec.option("of"))), None
        )
        return self._now[place] if ring is None else ring.ever[place]

    def founds(self, uid: str, place: int, address: str) -> bool:
        """Whether a replica begins with the first result of a table: the others get the rows of one that
        has. One that hears of the table together with the next one may be the only one that does."""
        rings = [*self._rings.values(), *(one.old for one in self._rings.values() if one.old is not None)]
        return any(one.spec.uid == uid and address in one.founders[place] for one in rings)

    def is_changing(self, uid: str) -> bool:
        """Whether a table is not read yet, but the one whose place it takes."""
        ring = self._rings.get(uid)
        return ring is not None and ring.swapped is None

    def complete_at(self, uid: str) -> int:
        """The number from which on a table has all that was told of the one whose place it has taken."""
        for ring in self._rings.values():
            if uid == ring.spec.uid:
                return ring.swapped or 0
            if uid == ring.spec.option("of"):
                return ring.before
        return 0


def _first(now: Replicas, before: Replicas) -> Replicas:
    return (*now, *(one for one in before if one not in now))
