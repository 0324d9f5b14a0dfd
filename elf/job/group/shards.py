"""The shards of tables that are in the job groups here (``elf.job.tables``): each is told what it lacks.

    (the log has the table) ─▶ SaveTable ─▶ ReadShard, to the job's master ─▶ SaveShard ─▶ ReadShard …
                                              └─ nothing new: after a pause ─┘
    (the log has dropped it) ─▶ SaveTable, over

Only the leader of a group asks, of one shard one thing at a time. What it has asked for and proposed may come
twice, or too late: a record says behind which result it comes, and a shard that is elsewhere skips it
(protocol 7.15).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from elf.fields import replace
from elf.job.catalog.log import CatalogLog
from elf.job.effects import Effect, SaveShard, SaveTable, Send
from elf.job.output import OutputSpec
from elf.job.spec import job_of
from elf.job.tables import (
    ReadShard,
    ShardRows,
    ShardWindows,
    StoredTable,
    TableKept,
    begun,
    is_shard,
    is_table,
    shard_uid,
)
from elf.wire.base import Answer

PAUSE_MS: Final = 500
"""After an answer without results, or none."""
ASKED_MS: Final = 5_000
"""What has not come by then is asked for, or proposed, again."""
IDS: Final = 1 << 41
"""The first question; those of clients, and of jobs in Python, have lower numbers."""


@dataclass
class _Shard:
    """A shard ``place`` of the table ``of``, in a group. ``kept``: None until the group has it; ``number``:
    of the last result that it has; ``due_ms``: when it is to be seen to next."""

    group: str
    of: str
    place: int
    kept: TableKept | None = None
    number: int = 0
    due_ms: int = 0

    @property
    def uid(self) -> str:
        return shard_uid(self.of, self.place)


class Shards:
    """Those in the groups that the agent at ``address`` leads."""

    def __init__(self, address: str, log: CatalogLog) -> None:
        self._address = address
        self._log = log
        self._led: dict[str, dict[str, _Shard]] = {}
        """By group, and by uid."""
        self._asked: dict[int, _Shard] = {}
        self._ids = IDS

    # -- which there are -------------------------------------------------------------------------------------

    def take_up(self, group: str, stored: Iterable[StoredTable]) -> None:
        """We lead a group, which has these tables."""
        self._led[group] = {}
        for one in stored:
            uid = one.kept.table
            if is_shard(uid):
                of, _, place = uid.partition("#")
                self._led[group][uid] = _Shard(group, of, int(place), one.kept, one.number)
        self.follow()

    def release(self, group: str) -> None:
        """We lead it no more."""
        self._led.pop(group, None)
        self._asked = {id_: one for id_, one in self._asked.items() if one.group != group}

    def follow(self) -> None:
        """The log may have other tables."""
        for group, shards in self._led.items():
            for one in self._wanted(group):
                shards.setdefault(one.uid, one)

    def _wanted(self, group: str) -> Iterator[_Shard]:
        for spec in filter(is_table, self._log.outputs(job_of(group))):
            for place, home in enumerate(self._log.homes(spec.uid)):
                if home == group:
                    yield _Shard(group, spec.uid, place)

    def _all(self) -> list[_Shard]:
        return [one for shards in self._led.values() for one in shards.values()]

    # -- what they lack --------------------------------------------------------------------------------------

    def deadline(self) -> int | None:
        return min((one.due_ms for one in self._all()), default=None)

    def advance(self, now_ms: int) -> list[Effect]:
        """What is due."""
        return [
            effect for one in self._all() if one.due_ms <= now_ms for effect in self._advance(one, now_ms)
        ]

    def _advance(self, one: _Shard, now_ms: int) -> Iterator[Effect]:
        one.due_ms = now_ms + PAUSE_MS
        if one.kept is None:
            spec = self._log.output(one.of)
            if spec is None or self._log.is_dropped(one.of):
                self._led[one.group].pop(one.uid, None)
            elif (kept := self._begun(one, spec)) is not None:
                one.due_ms = now_ms + ASKED_MS
                yield SaveTable(kept)
        elif self._log.is_dropped(one.of):
            one.due_ms = now_ms + ASKED_MS
            yield SaveTable(replace(one.kept, over=True))
        elif (master := self._log.leader(job_of(one.group))) is not None:
            one.due_ms = now_ms + ASKED_MS
            yield Send(master, self._question(one))

    def _begun(self, one: _Shard, spec: OutputSpec) -> TableKept | None:
        job = self._log.job(spec.job)
        found = None if job is None else begun(spec, job.plan)
        return replace(found, job=one.group, table=one.uid) if isinstance(found, TableKept) else None

    def _question(self, one: _Shard) -> ReadShard:
        self._asked = {id_: other for id_, other in self._asked.items() if other is not one}
        self._ids += 1
        self._asked[self._ids] = one
        return ReadShard(
            id=self._ids,
            origin=self._address,
            uid=job_of(one.group),
            table=one.of,
            place=one.place,
            after=one.number,
        )

    # -- what has come ---------------------------------------------------------------------------------------

    def awaits(self, id_: int) -> bool:
        """Whether that answer is for a shard here."""
        return id_ in self._asked

    def answered(self, answer: Answer, now_ms: int) -> list[Effect]:
        """The master of a job says what a shard lacks. Raises ``MsgspecError``, as what another agent sends
        may."""
        one = self._asked.pop(answer.id)
        one.due_ms = now_ms + PAUSE_MS
        if answer.error:
            return []
        said = msgspec.msgpack.decode(answer.body, type=ShardWindows)
        if said.upto <= one.number:
            return []
        one.due_ms = now_ms + ASKED_MS
        return [SaveShard(ShardRows(one.group, one.uid, one.number, said.upto, said.windows, said.lost))]

    def saved(self, done: SaveShard, now_ms: int) -> None:
        """It is committed."""
        one = self._led.get(done.rows.job, {}).get(done.rows.table)
        if one is not None and one.number == done.rows.after:
            one.number, one.due_ms = done.rows.upto, now_ms

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
