"""The store of a simulated agent: SQLite in memory. It survives crashes, may be full, and may lose power."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from agents.disk.store import ReplicaRow, Store
from agents.disk.tablestore import TableStore
from elf.job.commits import PaneCommit, WindowCommit
from elf.job.replicas import ReplicaName
from elf.job.tables import ShardRound, TableKept, TableRound, is_shard
from lab.chaos.ledger import Ledger

PAGES_MAX: Final = 1 << 30
Transaction = Callable[[], AbstractContextManager[sqlite3.Connection]]


class SimStore(Store):
    """Tells the ledger, if there is one, what it has kept. ``remember``: keep an image of what is synced, for
    ``cut_power``; this costs a copy of everything for each write that is not synced."""

    def __init__(self, ledger: Ledger | None, agent: int) -> None:
        super().__init__(":memory:")
        self.remember = False
        self._ledger = ledger
        self._agent = agent
        self._synced: bytes | None = None
        self._loose = False
        self.tables.round_rows = 2
        self.tables.begin = self._begin_table  # type: ignore[method-assign]
        self.tables.copy = self._copy_rows  # type: ignore[method-assign]
        self.tables.join = self._join_rows  # type: ignore[method-assign]
        self._file.writing = self._writing(self._file.writing)  # type: ignore[method-assign, assignment]

    def fill(self, full: bool) -> None:
        """From now on SQLite finds no room for another page; or it does again."""
        with self._file.reading() as con:
            (pages,) = con.execute("PRAGMA page_count").fetchone()
            con.execute(f"PRAGMA max_page_count = {pages if full else PAGES_MAX}")

    def cut_power(self) -> None:
        """What was written since the last sync is gone."""
        if self._synced is not None:
            with self._file.reading() as con:
                con.deserialize(self._synced)
        self._synced, self.remember = None, False

    def _writing(self, plain: Transaction) -> Transaction:
        """A transaction: everything before it is synced with it, unless it itself is not synced."""

        @contextmanager
        def writing() -> Iterator[sqlite3.Connection]:
            if self.remember and self._loose and self._synced is None:
                with self._file.reading() as con:
                    self._synced = con.serialize()
            with plain() as con:
                yield con
            if not self._loose:
                self._synced = None

        return writing

    @contextmanager
    def unsynced(self) -> Iterator[None]:
        self._loose = True
        try:
            with super().unsynced():
                yield
        finally:
            self._loose = False

    def _begin_table(self, kept: TableKept, last: WindowCommit | None, number: int) -> None:
        TableStore.begin(self.tables, kept, last, number)
        if self._ledger is not None and not is_shard(kept.table):
            first = number if kept.shards > 1 else 0 if last is None else last.seq
            told = (number, first, kept.retain_us)
            self._ledger.tables.setdefault(kept.table, self._ledger.tables.get(kept.of, told))

    def _copy_rows(self, said: TableRound) -> bool:
        whole = TableStore.copy(self.tables, said)
        if self._ledger is not None:
            self._ledger.rekeyings.had(said.table, said.number)
        return whole

    def _join_rows(self, said: ShardRound) -> None:
        TableStore.join(self.tables, said)
        for one in self.tables.stored(said.job) if self._ledger is not None else ():
            if one.kept.table == said.table and self._ledger is not None:
                self._ledger.rekeyings.had(said.table, one.rounds)

    # -- what the ledger hears -------------------------------------------------------------------------------

    def commit_panes(self, *rows: PaneCommit, again: bool = False) -> int:
        seq = super().commit_panes(*rows, again=again)
        if self._ledger is not None:
            for row in rows:
                self._ledger.committed(self._agent, row)
        return seq

    def keep_replicas(self, rows: Sequence[ReplicaRow]) -> None:
        super().keep_replicas(rows)
        if self._ledger is not None:
            for row in rows:
                self._ledger.replicas.kept(self._agent, row)

    def forget_replicas(self, names: Sequence[tuple[str, int, int, int, int]]) -> None:
        super().forget_replicas(names)
        if self._ledger is not None:
            for name in names:
                self._ledger.replicas.deleted(self._agent, ReplicaName(*name))

    def commit_windows(self, *rows: WindowCommit) -> int:
        seq = super().commit_windows(*rows)
        if self._ledger is not None:
            for row in rows:
                self._ledger.windows.assembled(self._agent, row)
        return seq
