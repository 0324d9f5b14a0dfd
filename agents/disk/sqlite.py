"""A SQLite file that several threads share and that survives any crash.

Rules: written ahead (WAL), synced in full at every commit; a block of ``writing()`` is one transaction. Each
thread has a connection of its own, so that readers never wait for a writer's sync; ``":memory:"`` has one for
all, behind a lock. A file of an older schema is brought to the present one when it is opened. One that is
damaged, foreign, or of a newer schema is refused.

It knows nothing of what the tables mean.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from agents.disk.durable import waited
from elf.errors import ElfBug, UserError

BUSY_SECS_MAX: Final = 30.0
SYNCHRONOUS = "FULL"
"""What a commit waits for (SQLite's word); ``elf bench durability`` measures what it costs."""
MEMORY: Final = ":memory:"


class StoreError(UserError):
    """The SQLite file cannot be used: unreadable, damaged, foreign, of another schema, or on a full disk."""


class SqliteFile:
    """Connections and transactions of one file."""

    def __init__(
        self, path: str, *, schema: str, version: int, steps: Mapping[int, str], application_id: int
    ) -> None:
        """Opens or creates it. ``schema``: statements that end with ``;``; ``steps``: those that make the
        next version of each older one. Raises ``StoreError``."""
        self.path = path
        self._write = threading.RLock()
        self._mine = threading.local()
        self._opened: list[sqlite3.Connection] = []
        self._closed = False
        self._shared = self._connect() if path == MEMORY else None
        try:
            self._prepare(schema, version, steps, application_id)
        except BaseException:
            self.close()
            raise

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        with self._errors():
            if self._shared is None:
                yield self._connection()
            else:
                with self._write:
                    yield self._connection()

    @contextmanager
    def snapshot(self) -> Iterator[sqlite3.Connection]:
        """What is read in the block is of one moment."""
        with self.reading() as con:
            con.execute("BEGIN")
            try:
                yield con
            finally:
                con.execute("COMMIT")

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction: all of it is durable after the block, or none of it happened. Inside of another
        one of this thread it is a part of that."""
        with self._write, self._errors():
            con = self._connection()
            if con.in_transaction:
                yield con
                return
            before = con.total_changes
            con.execute("BEGIN IMMEDIATE")
            try:
                yield con
                con.execute("COMMIT")
            except BaseException:
                if con.in_transaction:  # SQLite itself rolls back on some errors, such as a full disk
                    con.execute("ROLLBACK")
                raise
            synced = self._shared is None and not getattr(self._mine, "unsynced", False)
            if synced and con.total_changes != before:
                waited("state")

    @contextmanager
    def unsynced(self) -> Iterator[None]:
        """Transactions of this thread in the block are all or nothing, in their order among all others, and
        durable as soon as a later one is that is synced. (In memory nothing is ever synced.)"""
        if self._shared is not None or getattr(self._mine, "unsynced", False):
            yield
            return
        with self._errors():
            con = self._connection()
            con.execute("PRAGMA synchronous=NORMAL")
            self._mine.unsynced = True
            try:
                yield
            finally:
                self._mine.unsynced = False
                con.execute(f"PRAGMA synchronous={SYNCHRONOUS}")

    def free_bytes(self) -> int:
        """Of the file, which does not shrink: what is free for what is written next."""
        with self.reading() as con:
            return _number(con, "PRAGMA freelist_count") * _number(con, "PRAGMA page_size")

    def close(self) -> None:
        """Closes every thread's connection. No other call may be under way or follow."""
        with self._write:
            self._closed = True
            while self._opened:
                self._opened.pop().close()

    def _connect(self) -> sqlite3.Connection:
        # The thread check is off so that close() may close them all; each is still used by its own thread.
        con = sqlite3.connect(self.path, timeout=BUSY_SECS_MAX, isolation_level=None, check_same_thread=False)
        con.execute(f"PRAGMA synchronous={SYNCHRONOUS}")
        with self._write:
            self._opened.append(con)
        return con

    def _connection(self) -> sqlite3.Connection:
        if self._closed:
            raise ElfBug(f"the state file {self.path} was used after it was closed")
        if self._shared is not None:
            return self._shared
        con: sqlite3.Connection | None = getattr(self._mine, "con", None)
        if con is None:
            con = self._mine.con = self._connect()
        return con

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.IntegrityError as error:
            raise ElfBug(f"{self.path}: {error}") from error
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", 0) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
                raise StoreError(_damaged(self.path, str(error))) from error
            raise StoreError(f"cannot use the agent's state file {self.path}: {error}") from error

    def _prepare(self, schema: str, version: int, steps: Mapping[int, str], application_id: int) -> None:
        with self.reading() as con:
            empty = _number(con, "SELECT count(*) FROM sqlite_master") == 0
            if not empty and _number(con, "PRAGMA application_id") != application_id:
                raise StoreError(f"{self.path} is a SQLite file of another program, not an agent's state")
            found = _number(con, "PRAGMA user_version")
            older = range(found, version)
            known = found <= version and all(number in steps for number in older)
            if not (empty or known):
                raise StoreError(
                    f"the agent's state file {self.path} was written by another elf (schema {found}; "
                    f"this one knows {version}): start that elf again, or give this one a data_dir of its own"
                )
            con.execute("PRAGMA journal_mode=WAL")
        if empty or older:
            with self.writing() as con:
                statements = schema if empty else "".join(steps[number] for number in older)
                for statement in statements.split(";\n"):
                    con.execute(statement)
                con.execute(f"PRAGMA application_id={application_id}")
                con.execute(f"PRAGMA user_version={version}")
        with self.reading() as con:
            verdict = con.execute("PRAGMA quick_check(1)").fetchone()[0]
            if verdict != "ok":
                raise StoreError(_damaged(self.path, " ".join(str(verdict).split())))


def _damaged(path: str, why: str) -> str:
    return (
        f"the agent's state file {path} is damaged ({why}): put a copy of it back, or move it away and start "
        "as a new agent, with initial_read_offset: end for its streams, else their lines are counted again"
    )


def _number(con: sqlite3.Connection, sql: str) -> int:
    return int(con.execute(sql).fetchone()[0])
