"""The tables of one job at its master: the job's group is told when one begins, and when one is over.

    (the log has it) ─▶ SaveTable ─▶ (a record of the group) ─▶ each member puts rows in
    (the log has dropped it) ─▶ SaveTable, over ─▶ each member forgets them

That is all that a master does for a table: its rows follow from the records of the group
(``elf.job.tables``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from elf.fields import replace
from elf.job.catalog.log import CatalogLog
from elf.job.effects import Effect, SaveTable
from elf.job.tables import TableKept, begun, is_table

SAVED_MS_MAX: Final = 5_000
"""A record that is not committed by then is proposed again."""


class Tables:
    """Of the job ``uid``. ``kept``: those that its group has."""

    def __init__(self, uid: str, kept: Iterable[TableKept] = ()) -> None:
        self._uid = uid
        self._kept = {one.table: one for one in kept}
        self._wanted: dict[str, TableKept] = {}
        self._due_ms: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self._kept or self._wanted)

    def follow(self, log: CatalogLog, now_ms: int) -> list[Effect]:
        """The log may have other tables of the job."""
        specs = {spec.uid: spec for spec in log.outputs(self._uid) if is_table(spec)}
        job = log.job(self._uid)
        new = [
            begun(spec, job.plan) for uid, spec in specs.items() if job is not None and uid not in self._kept
        ]
        over = [
            replace(one, over=True)
            for uid, one in self._kept.items()
            if uid not in specs and log.is_dropped(uid)
        ]
        self._wanted = {one.table: one for one in (*new, *over) if isinstance(one, TableKept)}
        return self.advance(now_ms)

    def advance(self, now_ms: int) -> list[Effect]:
        """What is due."""
        due = [one for uid, one in self._wanted.items() if self._due_ms.get(uid, now_ms) <= now_ms]
        self._due_ms |= {one.table: now_ms + SAVED_MS_MAX for one in due}
        return [SaveTable(one) for one in due]

    def deadline(self, now_ms: int) -> int | None:
        return min((self._due_ms.get(uid, now_ms) for uid in self._wanted), default=None)

    def kept(self, done: SaveTable) -> None:
        """A record is committed."""
        one = done.kept
        self._due_ms.pop(one.table, None)
        if self._wanted.get(one.table) == one:
            del self._wanted[one.table]
        if one.over:
            self._kept.pop(one.table, None)
        else:
            self._kept[one.table] = one
