"""The store of a timed agent: SQLite in memory, which counts what a file would have been synced for."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from lab.chaos.disk import SimStore, Transaction
from lab.chaos.ledger import Ledger


class TimedStore(SimStore):
    """Transactions that have changed something, but for those that are ``unsynced``, are synced."""

    def __init__(self, ledger: Ledger | None, agent: int) -> None:
        self._syncs = 0
        super().__init__(ledger, agent)

    def waited(self) -> int:
        """Syncs since it was last asked."""
        syncs, self._syncs = self._syncs, 0
        return syncs

    def _writing(self, plain: Transaction) -> Transaction:
        before = super()._writing(plain)

        @contextmanager
        def writing() -> Iterator[sqlite3.Connection]:
            with before() as con:
                changes = con.total_changes
                yield con
                changed = con.total_changes != changes
            self._syncs += changed and not self._loose

        return writing
