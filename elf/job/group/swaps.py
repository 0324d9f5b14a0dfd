"""The commit of a change of key, for tables with a ring, at the master of their job (protocol 7.21).

    (a table takes the place of another one) ─▶ ReadTable, to each replica ─▶ … until all have all rows
        ─▶ results are held ─▶ SwapRing, to a voter, again and again ─▶ (the log has it) results go on

Results are held from the table alone, and for as long as the log takes: who reads is answered by the old
table until the entry comes, and by the new one from there on. The new one lacks nothing when it has all
results up to the number in the entry, which no replica of the old one is beyond, then or ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from elf.job.catalog.log import CatalogLog
from elf.job.effects import Effect, Send
from elf.job.messages.log import SwapRing
from elf.job.output import OutputSpec
from elf.job.ring import PARTS, majority, ring_uid
from elf.job.tables import ReadShard, ReadTable, shard_uid
from elf.wire.base import Answer

LOOK_MS: Final = 500
HELD_MS: Final = 100
"""The same while results are held."""
GRACE_MS: Final = 10_000
"""So long a change waits for replicas that do not answer, where a majority of each part has all rows."""
IDS: Final = 1 << 52
"""The first question: those of shards have lower numbers (``elf.job.group.shards``)."""
ASKED_AT: Final = 1 << 10


class _Upto(msgspec.Struct, array_like=True):
    """The beginning of ``ShardWindows``."""

    upto: int


@dataclass
class _Swap:
    """``whole``: the replicas, by part and address, that have all rows; ``since_ms``: when a majority of each
    part had them; ``held_ms``: since when results are held."""

    whole: set[tuple[int, str]] = field(default_factory=set)
    due_ms: int = 0
    since_ms: int | None = None
    held_ms: int | None = None


class Swaps:
    """Those under way. ``last``: the number of the last result of a job whose master is here."""

    def __init__(self, address: str, log: CatalogLog, last: Callable[[str], int | None]) -> None:
        self._address = address
        self._log = log
        self._last = last
        self._swaps: dict[str, _Swap] = {}
        self._asked: dict[int, tuple[str, int, str]] = {}
        self._given: dict[str, int] = {}
        """By job, the number of the last result that a replica was given."""
        self._ids = IDS

    def follow(self) -> None:
        """The log, or who leads, may have changed."""
        wanted = {spec.uid for spec in self._wanted()}
        self._swaps = {uid: self._swaps.get(uid) or _Swap() for uid in sorted(wanted)}
        self._asked = {id_: one for id_, one in self._asked.items() if one[0] in wanted}

    def _wanted(self) -> Iterator[OutputSpec]:
        rings = self._log.rings
        for spec in rings.tables():
            changing = rings.is_changing(spec.uid) and not self._log.is_rekeying_paused(spec.uid)
            if changing and self._last(spec.job) is not None:
                yield spec

    def holds(self, table: str) -> bool:
        """Whether no results are given to a table: one of two is to be read, or the other one is by now."""
        for spec in self._log.rings.tables():
            if table == spec.option("of") and not self._log.rings.is_changing(spec.uid):
                return True
            if table in (spec.uid, spec.option("of")) and spec.uid in self._swaps:
                return self._swaps[spec.uid].held_ms is not None
        return False

    def given(self, asked: ReadShard, body: bytes) -> bool:
        """Results for a replica have been read: whether it gets them. The store may be ahead of what the
        master knows of them."""
        if not self._log.rings.has(asked.table):
            return True
        if self.holds(asked.table):
            return False
        if body:
            upto = msgspec.msgpack.decode(body, type=_Upto).upto
            self._given[asked.uid] = max(upto, self._given.get(asked.uid, 0))
        return True

    def _number(self, spec: OutputSpec) -> int | None:
        """That of the last result that any replica may have."""
        last = self._last(spec.job)
        return None if last is None else max(last, self._given.get(spec.job, 0))

    def deadline(self) -> int | None:
        return min((one.due_ms for one in self._swaps.values()), default=None)

    def advance(self, voters: Sequence[str], now_ms: int) -> list[Effect]:
        """What is due."""
        if self._log.rings.tables() or self._swaps:
            self.follow()
        self._ids = max(self._ids, IDS + ASKED_AT * now_ms)
        due = [(uid, one) for uid, one in self._swaps.items() if one.due_ms <= now_ms]
        return [effect for uid, one in due for effect in self._advance(uid, one, voters, now_ms)]

    def _advance(self, uid: str, one: _Swap, voters: Sequence[str], now_ms: int) -> Iterator[Effect]:
        spec = self._log.output(uid)
        last = None if spec is None else self._number(spec)
        one.due_ms = now_ms + LOOK_MS
        if spec is None or last is None:
            return
        if one.held_ms is None:
            if self._is_ready(one, now_ms):
                one.held_ms = now_ms
                one.due_ms = now_ms + HELD_MS
            else:
                yield from self._look(spec, one)
            return
        one.due_ms = now_ms + HELD_MS
        if voters:
            at = (now_ms - one.held_ms) // HELD_MS
            yield Send(voters[at % len(voters)], SwapRing(uid=uid, number=last, leader=self._address))

    def _is_ready(self, one: _Swap, now_ms: int) -> bool:
        rings = self._log.rings
        parts = [rings.replicas(place) for place in range(PARTS)]
        have = [sum((place, at) in one.whole for at in part) for place, part in enumerate(parts)]
        enough = all(count >= majority(len(part)) for count, part in zip(have, parts, strict=True))
        one.since_ms = (now_ms if one.since_ms is None else one.since_ms) if enough else None
        whole = have == [len(part) for part in parts]
        return one.since_ms is not None and (whole or now_ms >= one.since_ms + GRACE_MS)

    def _look(self, spec: OutputSpec, one: _Swap) -> Iterator[Effect]:
        """Ask those that have not had all."""
        self._asked = {id_: asked for id_, asked in self._asked.items() if asked[0] != spec.uid}
        for place in range(PARTS):
            for at in self._log.rings.replicas(place):
                if (place, at) not in one.whole:
                    self._ids += 1
                    self._asked[self._ids] = spec.uid, place, at
                    table, group = shard_uid(spec.uid, place), ring_uid(spec.job)
                    asked = ReadTable(id=self._ids, origin=self._address, uid=group, table=table, rows=False)
                    yield Send(at, asked)

    def awaits(self, id_: int) -> bool:
        """Whether that answer is for a change here."""
        return id_ in self._asked

    def answered(self, answer: Answer) -> list[Effect]:
        """A replica has all rows, or has not."""
        uid, place, at = self._asked.pop(answer.id)
        if not answer.error and uid in self._swaps:
            self._swaps[uid].whole.add((place, at))
        return []
