"""The tables of one job at its master: the job's group is told when one begins, and when one is over.

    (the log has it) ─▶ SaveTable ─▶ (a record of the group) ─▶ each member puts rows in
    (it takes the place of another) ─▶ SaveTable ─▶ CopyRows, CopyRows … until it has all rows
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
from elf.job.tables import StoredTable, TableKept, TableRound, begun, is_shard, is_table

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
        wanted: list[SaveTable | CopyRows] = [*self._over(), *self._begun(), *self._copied()]
        self._wanted = {_table(one): one for one in wanted}

    def _begun(self) -> Iterator[SaveTable]:
        job = None if self._log is None else self._log.job(self._uid)
        if self._log is None or job is None:
            return
        for spec in self._log.outputs(self._uid):
            old = self._kept.get(spec.option("of"))
            if not is_table(spec) or spec.uid in self._kept or (old and not old.whole):
                continue
            if isinstance(new := begun(spec, job.plan), TableKept):
                yield SaveTable(new)

    def _copied(self) -> Iterator[CopyRows]:
        for uid, one in self._kept.items():
            if not one.whole:
                yield CopyRows(TableRound(self._uid, uid, one.rounds + 1))

    def _over(self) -> Iterator[SaveTable]:
        """Those that the log has dropped, when whoever takes their place has all their rows."""
        if self._log is None:
            return
        for uid, one in self._kept.items():
            heirs = [spec.uid for spec in self._log.outputs(self._uid) if spec.option("of") == uid]
            left = [heir for heir in heirs if heir not in self._kept or not self._kept[heir].whole]
            if self._log.is_dropped(uid) and not left:
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
            self._kept[one.table] = StoredTable(one, whole=one.of not in self._kept)
        self._went(one.table)

    def copied(self, done: CopyRows, *, whole: bool) -> None:
        """A round is committed; ``whole``: it was the last."""
        said = done.round
        if (known := self._kept.get(said.table)) is not None:
            rounds = max(known.rounds, said.number)
            self._kept[said.table] = StoredTable(known.kept, rounds, whole or known.whole)
        self._went(said.table)

    def _went(self, uid: str) -> None:
        self._due_ms.pop(uid, None)
        self._look()


def _table(one: SaveTable | CopyRows) -> str:
    return one.kept.table if isinstance(one, SaveTable) else one.round.table
