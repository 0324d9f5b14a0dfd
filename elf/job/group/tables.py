"""The tables of one job at its master: the job's group is told when one begins, and when one is over.

    (the log has it) ─▶ SaveTable ─▶ (a record of the group) ─▶ each member puts rows in
    (it takes the place of another) ─▶ SaveTable ─▶ CopyRows, CopyRows … until it has all rows
        (none while the log says that this is paused)
    (that one is to take it, and has not all rows) ─▶ SaveTable ─▶ it is the one that was there before
    (the log has dropped it, and none takes its rows) ─▶ SaveTable, over ─▶ each member forgets them

That is all that a master does for a table: its rows follow from the records of the group
(``elf.job.tables``). One record of a table is under way at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from elf.fields import replace
from elf.job.catalog.log import CatalogLog
from elf.job.effects import CopyRows, Effect, SaveTable
from elf.job.output import OutputSpec
from elf.job.tables import (
    ROUND_PAUSE_MS,
    StoredTable,
    TableKept,
    TableRound,
    begun,
    generation,
    heir_of,
    is_shard,
    is_table,
    lineage,
    takes_back,
)

SAVED_MS_MAX: Final = 5_000
"""A record that is not committed by then is proposed again."""


class Tables:
    """Of the job ``uid``. ``kept``: those that its group has."""

    def __init__(self, uid: str, kept: Iterable[StoredTable] = ()) -> None:
        self._uid = uid
        self._kept = {one.kept.table: one for one in kept if not is_shard(one.kept.table)}
        self._wanted: dict[str, SaveTable | CopyRows] = {}
        self._due_ms: dict[str, int] = {}
        self._log: CatalogLog | None = None

    def __bool__(self) -> bool:
        return bool(self._kept or self._wanted)

    def follow(self, log: CatalogLog) -> None:
        """The log may have other tables of the job."""
        self._log = log
        self._look()

    def _look(self) -> None:
        """What the group is to be told next of each table."""
        wanted: list[SaveTable | CopyRows] = [*self._begun(), *self._copied(), *self._over()]
        self._wanted = {_table(one): one for one in wanted}  # the last: none that is over gets rows

    def _begun(self) -> Iterator[SaveTable]:
        job = None if self._log is None else self._log.job(self._uid)
        if self._log is None or job is None:
            return
        for spec in self._log.outputs(self._uid):
            new = begun(spec, job.plan) if is_table(spec) and spec.uid not in self._kept else ""
            if not isinstance(new, TableKept):
                continue
            old = self._before(spec)
            if old is None:
                yield SaveTable(replace(new, of=""))
            elif old.whole or takes_back(new.key, old, self._kept.get(old.kept.of)):
                yield SaveTable(replace(new, of=old.kept.table))

    def _before(self, spec: OutputSpec) -> StoredTable | None:
        """The table whose place another one takes: the last one that the group has. One between them may have
        come and gone before the group was told of it."""
        there = [uid for uid in self._kept if spec.option("of") and lineage(uid) == lineage(spec.uid)]
        return self._kept[max(there, key=generation)] if there else None

    def _copied(self) -> Iterator[CopyRows]:
        for uid, one in self._kept.items():
            if not one.whole and not (self._log is not None and self._log.is_rekeying_paused(uid)):
                yield CopyRows(TableRound(self._uid, uid, one.rounds + 1))

    def _over(self) -> Iterator[SaveTable]:
        """Those that the log has dropped, when whoever takes their place has all their rows."""
        if self._log is None:
            return
        for uid, one in self._kept.items():
            if not self._log.is_dropped(uid):
                continue
            heir = heir_of(uid, self._log.outputs(self._uid))
            if heir is None or (heir.uid in self._kept and self._kept[heir.uid].whole):
                yield SaveTable(replace(one.kept, over=True))

    def advance(self, now_ms: int) -> list[Effect]:
        """What is due."""
        due = {uid: one for uid, one in self._wanted.items() if self._due_ms.get(uid, now_ms) <= now_ms}
        self._due_ms |= dict.fromkeys(due, now_ms + SAVED_MS_MAX)
        return list(due.values())

    def deadline(self, now_ms: int) -> int | None:
        return min((self._due_ms.get(uid, now_ms) for uid in self._wanted), default=None)

    def kept(self, done: SaveTable) -> None:
        """That one begins, or is over, is committed."""
        one = done.kept
        if one.over:
            self._kept.pop(one.table, None)
        elif one.table not in self._kept:
            old = self._kept.get(one.of)
            back = old is not None and takes_back(one.key, old, self._kept.get(old.kept.of))
            if old is not None and back:
                del self._kept[one.of], self._kept[old.kept.of]
            self._kept[one.table] = StoredTable(one, whole=old is None or back)
        self._went(one.table)

    def copied(self, done: CopyRows, now_ms: int, *, whole: bool) -> None:
        """A round is committed; ``whole``: it was the last."""
        said = done.round
        if (known := self._kept.get(said.table)) is not None:
            rounds = max(known.rounds, said.number)
            self._kept[said.table] = StoredTable(known.kept, rounds, whole or known.whole)
        self._went(said.table)
        self._due_ms[said.table] = now_ms + ROUND_PAUSE_MS

    def _went(self, uid: str) -> None:
        self._due_ms.pop(uid, None)
        self._look()


def _table(one: SaveTable | CopyRows) -> str:
    return one.kept.table if isinstance(one, SaveTable) else one.round.table
