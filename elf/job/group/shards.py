"""The shards of tables that are in the job groups here (``elf.job.tables``): each is told what it lacks.

    (the log has the table) ─▶ SaveTable ─▶ ReadShard, to the job's master ─▶ SaveShard ─▶ ReadShard …
                                              └─ nothing new: after a pause ─┘
    (it takes the place of another) ─▶ SaveTable ─▶ CopyShard, to a shard of that one ─▶ a part of its rows
        ─▶ ReadShard ─▶ SaveShard, until it has the results that the part has ─▶ SaveShard ─▶ CopyShard …
    (the log says that this is paused) ─▶ ReadShard ─▶ SaveShard …, and no CopyShard
    (the log has dropped it, and whoever takes its place has all rows) ─▶ SaveTable, over

Only the leader of a group asks, of one shard one thing at a time. What it has asked for and proposed may come
twice, or too late: a record says behind what it comes, and a shard that is elsewhere skips it (protocol 7.15,
7.16).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from elf.fields import replace
from elf.job.catalog.log import CatalogLog
from elf.job.effects import Effect, SaveShard, SaveTable, Send
from elf.job.events import RingKept
from elf.job.output import OutputSpec
from elf.job.ring import PARTS, is_ring, ring_uid
from elf.job.spec import job_of
from elf.job.tables import (
    ROUND_PAUSE_MS,
    CopyShard,
    Cursor,
    ReadShard,
    ReadTable,
    ShardPart,
    ShardRound,
    ShardRows,
    ShardWindows,
    StoredTable,
    TableKept,
    begun,
    cursor,
    cursor_after,
    first_of,
    has_all,
    heir_of,
    is_shard,
    is_table,
    shard_place,
    shard_uid,
    shards_of,
    table_of,
)
from elf.wire.base import Answer

PAUSE_MS: Final = 500
"""After an answer without results, or none."""
ASKED_MS: Final = 5_000
"""What has not come by then is asked for, or proposed, again."""
IDS: Final = 1 << 41
"""The first question; those of clients, and of jobs in Python, have lower numbers."""
ASKED_AT: Final = 1 << 10
"""Numbers of questions for each millisecond: an agent that starts again begins behind those of its life
before, whose answers may still come."""
_Question = ReadShard | CopyShard | ReadTable


@dataclass
class _Shard:
    """The shard ``place`` of the table ``of``, in a group. ``kept``: None until the group has it; ``number``:
    of the last result that it has; ``due_ms``: when it is to be seen to next."""

    group: str
    of: str
    place: int
    kept: TableKept | None = None
    number: int = 0
    due_ms: int = 0
    whole: bool = True
    """Whether it has all rows of the table whose place its own takes."""
    at: Cursor = (0, b"")
    part: ShardPart | None = None
    """Those, until it has the results that they have."""
    left: int = 0
    """The first shard that may lack rows, of the table that takes the place of its own."""
    others: tuple[str, ...] = ()
    """Of a replica that is none any more, those that are: ``left`` counts them."""
    looked_ms: int = 0
    tries: int = 0
    """How often somebody had no rows for it, of those who may have them."""

    @property
    def is_empty(self) -> bool:
        """Whether it has no rows yet of those that it takes."""
        return self.kept is None or self.at == first_of(self.kept)

    @property
    def uid(self) -> str:
        return shard_uid(self.of, self.place)


class Shards:
    """Those in the groups that the agent at ``address`` leads."""

    def __init__(self, address: str, log: CatalogLog, rings: Iterable[StoredTable] = ()) -> None:
        """``rings``: what there is here of tables with a ring."""
        self._address = address
        self._log = log
        self._led: dict[str, dict[str, _Shard]] = {}
        """By group, and by uid."""
        self._asked: dict[int, tuple[_Shard, _Question]] = {}
        self._ids = IDS
        replicas = list(rings)
        for group in sorted({one.kept.job for one in replicas}):
            self.take_up(group, [one for one in replicas if one.kept.job == group])

    # -- which there are -------------------------------------------------------------------------------------

    def take_up(self, group: str, stored: Iterable[StoredTable]) -> None:
        """We lead a group, which has these tables."""
        self._led[group] = {}
        for one in stored:
            uid = one.kept.table
            if is_shard(uid):
                at = cursor(one.kept, one.behind)
                self._led[group][uid] = _Shard(
                    group, table_of(uid), shard_place(uid), one.kept, one.number, whole=one.whole, at=at
                )
        self.follow()

    def release(self, group: str) -> None:
        """We lead it no more."""
        self._led.pop(group, None)
        self._asked = {id_: asked for id_, asked in self._asked.items() if asked[0].group != group}

    def follow(self) -> None:
        """The log may have other tables."""
        for spec in self._log.rings.tables():
            self._led.setdefault(ring_uid(spec.job), {})
        for group, shards in self._led.items():
            for one in self._wanted(group):
                shards.setdefault(one.uid, one)

    def _wanted(self, group: str) -> Iterator[_Shard]:
        if is_ring(group):
            yield from self._replicas(group)
            return
        for spec in filter(is_table, self._log.outputs(job_of(group))):
            for place, home in enumerate(self._log.homes(spec.uid)):
                if home == group:
                    yield _Shard(group, spec.uid, place)

    def _replicas(self, group: str) -> Iterator[_Shard]:
        """Those of tables with a ring that are to be here."""
        rings = self._log.rings
        for spec in rings.tables():
            tables = [spec.uid, *([spec.option("of")] if rings.is_changing(spec.uid) else [])]
            for place in range(PARTS) if spec.job == job_of(group) else ():
                if self._address in rings.replicas(place):
                    yield from (_Shard(group, table, place) for table in tables)

    def _all(self) -> list[_Shard]:
        return [one for shards in self._led.values() for one in shards.values()]

    def _heir(self, one: _Shard) -> OutputSpec | None:
        """The table that takes the place of a shard's, which the log has dropped."""
        count = 0 if one.kept is None else one.kept.shards
        there = (spec for spec in self._log.outputs(job_of(one.group)) if shards_of(spec) == count)
        return heir_of(one.of, there)

    def to_hand_on(self) -> int:
        """Of tables with a ring, the parts that are here with all rows, which those do not all have yet that
        are to have them in place of this agent."""
        rings = self._log.rings
        return sum(
            is_ring(one.group) and one.whole and one.kept is not None
            for one in self._all()
            if self._address not in rings.replicas(one.place)
        )

    # -- what they lack --------------------------------------------------------------------------------------

    def deadline(self) -> int | None:
        return min((one.due_ms for one in self._all()), default=None)

    def advance(self, now_ms: int) -> list[Effect]:
        """What is due."""
        self._ids = max(self._ids, IDS + ASKED_AT * now_ms)
        return [
            effect for one in self._all() if one.due_ms <= now_ms for effect in self._advance(one, now_ms)
        ]

    def _advance(self, one: _Shard, now_ms: int) -> Iterator[Effect]:
        one.due_ms = now_ms + ASKED_MS
        if is_ring(one.group):
            yield from self._advance_replica(one, now_ms)
            return
        over = self._log.is_dropped(one.of)
        heir = self._heir(one) if over else None
        if one.kept is None:
            spec = self._log.output(one.of)
            kept = None if spec is None or over else self._begun(one, spec)
            if kept is not None:
                yield SaveTable(kept)
            elif spec is None or over:
                self._led[one.group].pop(one.uid, None)
        elif over and (heir is None or one.left >= one.kept.shards):
            yield SaveTable(replace(one.kept, over=True))
        elif heir is not None and now_ms >= one.looked_ms:
            one.looked_ms = now_ms + PAUSE_MS
            yield from self._ask(one, self._look(one, heir))
        elif not one.whole and one.part is None and self._log.is_rekeying_paused(one.of):
            if one.is_empty:
                one.due_ms = now_ms + PAUSE_MS
            else:
                yield from self._ask(one, self._question(one, one.kept))  # results go on
        elif not one.whole and one.part is None:
            homes = self._log.homes(one.of) or (self._log.homes(heir.uid) if heir is not None else ())
            if homes:
                yield from self._ask(one, self._copy(one, one.kept, homes[one.at[0]]))
            else:
                one.due_ms = now_ms + PAUSE_MS  # the log has not come to it yet
        elif one.part is not None and (one.is_empty or one.number >= one.part.number):
            yield from self._joined(one, now_ms)
        else:
            yield from self._ask(one, self._question(one, one.kept))

    # -- those that have no group ----------------------------------------------------------------------------

    def _advance_replica(self, one: _Shard, now_ms: int) -> Iterator[Effect]:
        """What is due of a replica of a table with a ring: it asks for itself, whoever leads."""
        spec, there = self._with_ring(one.of), self._log.rings.replicas(one.place)
        if one.others != there:
            one.others, one.left = there, 0
        if one.kept is None:
            kept = None if spec is None else self._begun_replica(one, spec)
            if kept is not None:
                yield SaveTable(kept)
            elif spec is None:
                self._led[one.group].pop(one.uid, None)
        elif self._is_over(one, one.kept, spec):
            yield SaveTable(replace(one.kept, over=True))
        elif self._address not in there and now_ms >= one.looked_ms:
            one.looked_ms = now_ms + PAUSE_MS
            yield from self._ask_for(one, there[one.left], self._is_whole(one, one.kept))
        elif one.whole or (one.part is not None and not one.is_empty and one.number < one.part.number):
            yield from self._ask(one, self._question(one, one.kept))
        elif one.part is not None:
            yield from self._joined(one, now_ms)
        elif self._log.is_rekeying_paused(one.of):
            one.due_ms = now_ms + PAUSE_MS
            if not one.is_empty:
                yield from self._ask(one, self._question(one, one.kept))
        else:
            yield from self._ask_for(one, self._source(one, one.kept), self._copy(one, one.kept, one.group))

    def _with_ring(self, uid: str) -> OutputSpec | None:
        """The table of that uid, or the one that is taking its place."""
        rings = self._log.rings
        for spec in rings.tables():
            if spec.uid == uid or (rings.is_changing(spec.uid) and spec.option("of") == uid):
                return spec
        return None

    def _is_over(self, one: _Shard, kept: TableKept, spec: OutputSpec | None) -> bool:
        """Whether a replica ends: with its table, or as others have its rows; or has to begin anew, as the
        table is gone from which its rows came."""
        if spec is None:
            return self._log.is_dropped(one.of)
        if self._address not in one.others:
            return one.left >= len(one.others)
        return not one.whole and kept.of not in ("", one.of) and not self._log.rings.is_changing(one.of)

    def _begun_replica(self, one: _Shard, spec: OutputSpec) -> TableKept | None:
        job, rings = self._log.job(spec.job), self._log.rings
        kept = None if job is None else begun(spec, job.plan)
        if not isinstance(kept, TableKept):
            return None
        if one.of != spec.uid:
            kept = replace(kept, key=kept.was)
        if rings.founds(one.of, one.place, self._address):
            kept = replace(kept, of="", was=())
        elif one.of != spec.uid or not rings.is_changing(spec.uid):
            kept = replace(kept, of=one.of, was=kept.key)
        return replace(kept, job=one.group, table=one.uid)

    def _source(self, one: _Shard, kept: TableKept) -> str:
        """Whom a replica asks for rows: of a part of another table the replica of its own number, and then
        the next ones; of its own part the others, and those who had it before."""
        place, me = one.at[0], self._address
        there = self._log.rings.ever(one.of, place)
        own = self._log.rings.replicas(one.place)
        first = own.index(me) if me in own and kept.of != one.of else 0
        others = [at for at in there if kept.of != one.of or at != me] or [me]
        return others[(first + one.tries) % len(others)]

    def _is_whole(self, one: _Shard, kept: TableKept) -> ReadTable:
        return ReadTable(id=0, origin="", uid=one.group, table=kept.table, rows=False)

    def _begun(self, one: _Shard, spec: OutputSpec) -> TableKept | None:
        job = self._log.job(spec.job)
        found = None if job is None else begun(spec, job.plan)
        return replace(found, job=one.group, table=one.uid) if isinstance(found, TableKept) else None

    def _ask(self, one: _Shard, request: _Question) -> Iterator[Effect]:
        """Ask the leader of the group that the question is for."""
        leader = self._log.leader(request.uid)
        if leader is not None:
            yield from self._ask_for(one, leader, request)

    def _ask_for(self, one: _Shard, to: str, request: _Question) -> Iterator[Effect]:
        self._asked = {id_: asked for id_, asked in self._asked.items() if asked[0] is not one}
        if to:
            one.tries += isinstance(request, CopyShard)  # whoever has nothing is asked once
            self._ids += 1
            request = replace(request, id=self._ids, origin=self._address)
            self._asked[self._ids] = one, request
            yield Send(to, request)

    def _question(self, one: _Shard, kept: TableKept) -> ReadShard:
        upto = 0 if one.part is None else one.part.number
        return ReadShard(
            id=0,
            origin="",
            uid=job_of(one.group),
            table=one.of,
            key=kept.key,
            shards=kept.shards,
            place=one.place,
            after=one.number,
            upto=upto,
        )

    def _copy(self, one: _Shard, kept: TableKept, home: str) -> CopyShard:
        place, after = one.at
        return CopyShard(
            id=0,
            origin="",
            uid=home,
            table=shard_uid(kept.of, place),
            key=kept.key,
            place=one.place,
            after=after,
            least=one.number,
        )

    def _look(self, one: _Shard, heir: OutputSpec) -> ReadTable:
        home = self._log.homes(heir.uid)[one.left]
        return ReadTable(id=0, origin="", uid=home, table=shard_uid(heir.uid, one.left), rows=False)

    # -- what has come ---------------------------------------------------------------------------------------

    def awaits(self, id_: int) -> bool:
        """Whether that answer is for a shard here."""
        return id_ in self._asked

    def answered(self, answer: Answer, now_ms: int) -> list[Effect]:
        """What a shard lacks. Raises ``MsgspecError``, as what another agent sends may."""
        one, asked = self._asked.pop(answer.id)
        one.due_ms = now_ms + PAUSE_MS
        if isinstance(asked, ReadTable):
            one.left += not answer.error
            one.due_ms = now_ms
        elif isinstance(asked, CopyShard) and not answer.error:
            if one.kept is not None and _wants(asked) == (shard_uid(one.kept.of, one.at[0]), one.at[1]):
                one.part = msgspec.msgpack.decode(answer.body, type=ShardPart)
                one.tries -= 1  # the same again
                return self._joined(one, now_ms)
        elif isinstance(asked, ReadShard) and not answer.error:
            said = msgspec.msgpack.decode(answer.body, type=ShardWindows)
            if said.upto > one.number == asked.after:
                one.due_ms = now_ms + ASKED_MS
                rows = ShardRows(one.group, one.uid, one.number, said.upto, said.windows, said.lost)
                return [SaveShard(rows)]
        return []

    def _joined(self, one: _Shard, now_ms: int) -> list[Effect]:
        """A part may be joined, if the shard has the results that it has."""
        part = one.part
        if part is None:
            return []
        if not one.is_empty and one.number != part.number:
            one.part = part if one.number < part.number else None
            one.due_ms = now_ms
            return []
        one.due_ms = now_ms + ASKED_MS
        return [SaveShard(ShardRound(one.group, one.uid, one.at[0], one.at[1], part))]

    def saved(self, done: SaveShard, now_ms: int) -> list[Effect]:
        """It is committed."""
        rows = done.rows
        one = self._led.get(rows.job, {}).get(rows.table)
        if one is None or one.kept is None:
            return []
        if isinstance(rows, ShardRows):
            if one.number == rows.after:
                one.number, one.due_ms = rows.upto, now_ms
                return self._joined(one, now_ms)
        elif one.at == (rows.place, rows.after) and (one.is_empty or one.number == rows.part.number):
            one.number, one.part, one.due_ms = rows.part.number, None, now_ms + ROUND_PAUSE_MS
            one.at = cursor_after(rows)
            one.whole = has_all(one.kept, one.at)
        return []

    def kept(self, done: SaveTable, now_ms: int) -> None:
        """That a shard begins, or is over, is committed."""
        shards = self._led.get(done.kept.job, {})
        one = shards.get(done.kept.table)
        if one is None:
            return
        if done.kept.over:
            del shards[one.uid]
        else:
            one.kept, one.due_ms = done.kept, now_ms
            one.whole, one.at = not done.kept.of, first_of(done.kept)

    def replica_kept(self, done: RingKept, now_ms: int) -> list[Effect]:
        """The same of a replica of a table with a ring, or that it has more. What is stored counts: one that
        was there already stays as it was."""
        found, stored = list[Effect](), done.stored
        if isinstance(done.done, SaveShard):
            found = self.saved(done.done, now_ms)
        else:
            self.kept(done.done, now_ms)
            self.follow()
        one = None if stored is None else self._led.get(stored.kept.job, {}).get(stored.kept.table)
        if one is not None and stored is not None:
            one.kept, one.number, one.whole = stored.kept, stored.number, stored.whole
            one.at = cursor(stored.kept, stored.behind)
        return found


def _wants(asked: CopyShard) -> tuple[str, bytes]:
    """The shard from which rows are asked for, and the group behind which they are."""
    return asked.table, asked.after
