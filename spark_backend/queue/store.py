"""What a queue remembers: runs, their tasks, and which input's partial states are on disk; in SQLite. What
is to be submitted at times (``schedules``) and who may submit (``rights``) are in tables of the same file.

The folder of a queue has ``queue.db`` and, for each run, ``run-NUMBER/`` with a file of partial states for
each input that is done. A command writes what it asks for into the database, and the daemon reads it: nobody
listens on a port, and who may write to the folder may use the queue. An output counts when its row is here,
after its file is durable; a row is written once, so an input is never counted twice.
"""

from __future__ import annotations

import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from agents.disk.durable import sync_path
from elf.errors import UserError
from elf.schema import Schema
from elf.security import files

RUNS_MAX: Final = 1_000
"""Runs that are not over; one more is refused."""
OPEN: Final = ("waiting", "running", "suspended", "committing")
"""States of a run that is not over; the others are done, failed and cancelled."""
_VERSION: Final = 2
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS runs (
    number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, owner TEXT NOT NULL,
    spec BLOB NOT NULL, out TEXT NOT NULL, production INTEGER NOT NULL, deadline_ms INTEGER,
    submitted_ms INTEGER NOT NULL,
    state TEXT NOT NULL DEFAULT 'waiting', asked TEXT NOT NULL DEFAULT '', ended_ms INTEGER,
    progress REAL NOT NULL DEFAULT 0, remaining_ms INTEGER, containers INTEGER NOT NULL DEFAULT 0,
    suspends INTEGER NOT NULL DEFAULT 0, why TEXT NOT NULL DEFAULT '',
    schedule TEXT NOT NULL DEFAULT '', said BLOB NOT NULL DEFAULT x'', asked_said BLOB NOT NULL DEFAULT x'');
CREATE TABLE IF NOT EXISTS tasks (
    run INTEGER NOT NULL, task INTEGER NOT NULL, inputs BLOB NOT NULL, attempts INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (run, task));
CREATE TABLE IF NOT EXISTS outputs (
    run INTEGER NOT NULL, task INTEGER NOT NULL, input INTEGER NOT NULL, attempt TEXT NOT NULL,
    PRIMARY KEY (run, task, input));
CREATE TABLE IF NOT EXISTS schedules (
    name TEXT PRIMARY KEY, owner TEXT NOT NULL, cron TEXT NOT NULL, zone TEXT NOT NULL, asked BLOB NOT NULL,
    out TEXT NOT NULL, production INTEGER NOT NULL, deadline_ms INTEGER, late_ms INTEGER NOT NULL,
    next_ms INTEGER NOT NULL, missed INTEGER NOT NULL DEFAULT 0, judged BLOB NOT NULL DEFAULT x'',
    said BLOB NOT NULL DEFAULT x'');
CREATE TABLE IF NOT EXISTS missed (
    schedule TEXT NOT NULL, at_ms INTEGER NOT NULL, why TEXT NOT NULL, PRIMARY KEY (schedule, at_ms));
CREATE TABLE IF NOT EXISTS settings (name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""
_ADDED: Final = """
ALTER TABLE runs ADD COLUMN schedule TEXT NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN said BLOB NOT NULL DEFAULT x'';
ALTER TABLE runs ADD COLUMN asked_said BLOB NOT NULL DEFAULT x'';
"""
"""What version 1 had not."""


class Check(msgspec.Struct, frozen=True):
    """Windows of a job that are to be held against Spark's, as ``elf compare`` does.

    Attributes:
        job (str): its name.
        connect (str): agents of its fleet, ``HOST:PORT[,…]``.
        cluster (str): the fleet's name.
        windows (int | None): the last so many; None: all.
        span (tuple[int, int] | None): event times in µs; None: all.
        follow (bool): whether each window is judged once, over all runs of a schedule.

    Example:
        >>> Check("busy", "127.0.0.1:7071", "elf").follow
        False
    """

    job: str
    connect: str
    cluster: str
    windows: int | None = None
    span: tuple[int, int] | None = None
    follow: bool = False


class Spec(msgspec.Struct, frozen=True):
    """What a run is to answer: a query, or a check.

    Attributes:
        text (str): as ``spark_backend.queries.question`` takes it; empty for a check.
        archives (tuple[str, ...]): their paths or URIs.
        span (tuple[int, int] | None): event times in µs.
        schemas (dict[str, Schema]): of its streams, as they were when it was submitted.
        tables (dict[str, bytes]): contents of the files that it joins.
        texts (dict[str, str]): texts of the aggregates that it creates.
        check (Check | None): instead of a query.

    Example:
        >>> Spec("SELECT COUNT(*) AS n FROM clicks", ("/archive",)).span is None
        True
    """

    text: str
    archives: tuple[str, ...]
    span: tuple[int, int] | None = None
    schemas: dict[str, Schema] = {}
    tables: dict[str, bytes] = {}
    texts: dict[str, str] = {}
    check: Check | None = None


@dataclass(frozen=True)
class Run:
    """A run, as the queue knows it.

    Attributes:
        number (int): in the order of submission, from 1.
        name (str): unique.
        owner (str): who has submitted it.
        out (str): the file that its rows go to, an absolute path.
        production (bool): its priority.
        deadline_ms (int | None): when it has to be done, ms since the epoch.
        submitted_ms (int): when it was submitted.
        state (str): waiting, running, suspended, committing, done, failed or cancelled.
        asked (str): suspend, resume or cancel, until the daemon has done so; empty.
        ended_ms (int | None): when it was over.
        progress (float): 0 to 1.
        remaining_ms (int | None): how long it still takes; None: not known.
        containers (int): that it has now.
        suspends (int): how often a task of it gave way.
        why (str): why it has failed.
        schedule (str): which schedule has made it; empty: none.
        said (bytes): its owner's signature (``rights``); empty: none.
        asked_said (bytes): the signature of who asks for something.

    Example:
        >>> run.name, run.state, run.progress
        ('nightly', 'waiting', 0.0)
    """

    number: int
    name: str
    owner: str
    out: str
    production: bool
    deadline_ms: int | None
    submitted_ms: int
    state: str
    asked: str
    ended_ms: int | None
    progress: float
    remaining_ms: int | None
    containers: int
    suspends: int
    why: str
    schedule: str = ""
    said: bytes = b""
    asked_said: bytes = b""

    @property
    def over(self) -> bool:
        """Whether it will not change any more by itself."""
        return self.state not in OPEN and not self.asked


_COLUMNS: Final = (
    "number, name, owner, out, production, deadline_ms, submitted_ms, state, asked, ended_ms, progress, "
    "remaining_ms, containers, suspends, why, schedule, said, asked_said"
)


class Store:
    """The database of a queue; any thread may use it.

    Args:
        folder (Path): the queue's.
        create (bool): whether it may be made; for its owner alone.

    Raises:
        UserError: where it is not there, or cannot be used.

    Example:
        >>> Store(folder, create=True).runs()
        []
    """

    def __init__(self, folder: Path, *, create: bool = False) -> None:
        self.folder = folder
        path = folder / "queue.db"
        try:
            if create:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            elif not path.exists():
                raise UserError(f"there is no queue in {folder}: start one with elf offline serve")
            self._lock = threading.RLock()
            with self._named_errors():
                self._con = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
                self._con.execute("PRAGMA journal_mode=WAL")
                self._con.execute("PRAGMA synchronous=FULL")
                found = self._con.execute("PRAGMA user_version").fetchone()[0]
                if found > _VERSION:
                    raise UserError(f"{path} was written by a newer elf (version {found}): start that one")
                if found < _VERSION:
                    added = _ADDED if found == 1 else ""
                    script = f"BEGIN IMMEDIATE;{added}{_SCHEMA}PRAGMA user_version={_VERSION};COMMIT;"
                    self._con.executescript(script)
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise UserError(f"cannot use the queue in {folder}: {why}") from None

    def close(self) -> None:
        """No call may follow."""
        self._con.close()

    # -- runs ------------------------------------------------------------------------------------------------

    def submit(
        self,
        name: str,
        spec: Spec,
        out: Path,
        *,
        owner: str,
        production: bool,
        deadline_ms: int | None,
        now_ms: int,
        schedule: str = "",
        said: bytes = b"",
        within: Callable[[Sequence[Run]], str] = lambda _: "",
    ) -> Run:
        """A run joins the queue. ``within``: why it is too much beside all runs that are not over. Raises
        ``UserError`` for that, for a name that is taken, and for a queue that is full."""
        with self.writing() as con:
            waiting = self.runs(over=False)
            if len(waiting) >= RUNS_MAX:
                raise UserError(f"{len(waiting)} runs are in the queue: wait for some, or cancel them")
            if why := within(waiting):
                raise UserError(why)
            if con.execute("SELECT 1 FROM runs WHERE name = ?", (name,)).fetchone():
                raise UserError(f"there is a run {name} already: give another --name")
            con.execute(
                "INSERT INTO runs (name, owner, spec, out, production, deadline_ms, submitted_ms, schedule, "
                "said) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *(name, owner, msgspec.msgpack.encode(spec), str(out), production, deadline_ms, now_ms),
                    *(schedule, said),
                ),
            )
        return self.run(name)

    def runs(self, *, over: bool = True) -> list[Run]:
        """All of them, in order; with those that are over."""
        where = "" if over else f"WHERE state IN {OPEN} OR asked <> ''"
        with self.reading():
            rows = self._con.execute(f"SELECT {_COLUMNS} FROM runs {where} ORDER BY number").fetchall()
        return [_run(row) for row in rows]

    def run(self, name: str) -> Run:
        """One of them. Raises ``UserError`` where there is none."""
        with self.reading():
            row = self._con.execute(f"SELECT {_COLUMNS} FROM runs WHERE name = ?", (name,)).fetchone()
        if row is None:
            raise UserError(
                f"there is no run {name} in {self.folder}: elf offline queue shows which there are"
            )
        return _run(row)

    def spec(self, number: int) -> Spec:
        """What a run is to answer. It may be large: the files that are joined are in it."""
        with self.reading():
            row = self._con.execute("SELECT spec FROM runs WHERE number = ?", (number,)).fetchone()
        return msgspec.msgpack.decode(row[0], type=Spec)

    def ask(self, name: str, what: str, said: bytes = b"") -> None:
        """Ask the daemon to suspend, resume or cancel a run. Raises ``UserError`` where that is nothing."""
        run = self.run(name)
        if run.over and not (run.state == "failed" and what == "resume"):
            raise UserError(f"{name} is {run.state}: there is nothing to {what}")
        if what == "resume" and run.state not in ("suspended", "failed") and run.asked != "suspend":
            raise UserError(f"{name} is {run.state}: it need not be resumed")
        self.update(run.number, asked=what, asked_said=said)

    def answer(self, run: Run, **values: object) -> None:
        """Set columns of a run, as it was asked to; what it was asked for since then stays."""
        with self.writing() as con:
            if values:
                self.update(run.number, **values)
            con.execute("UPDATE runs SET asked = '' WHERE number = ? AND asked = ?", (run.number, run.asked))

    def update(self, number: int, **values: object) -> None:
        """Set columns of a run."""
        names = ", ".join(f"{name} = ?" for name in values)
        with self.writing() as con:
            con.execute(f"UPDATE runs SET {names} WHERE number = ?", (*values.values(), number))

    def setting(self, name: str) -> str:
        """What the last daemon has set; empty: nothing."""
        with self.reading() as con:
            row = con.execute("SELECT value FROM settings WHERE name = ?", (name,)).fetchone()
        return "" if row is None else row[0]

    def settle(self, values: Mapping[str, str]) -> None:
        """Set settings that commands go by."""
        with self.writing() as con:
            con.executemany("INSERT OR REPLACE INTO settings VALUES (?, ?)", list(values.items()))

    # -- tasks and outputs -----------------------------------------------------------------------------------

    def plan(self, number: int, tasks: Sequence[Sequence[bytes]]) -> None:
        """Fix the tasks of a run, each with its inputs, once."""
        with self.writing() as con:
            con.executemany(
                "INSERT INTO tasks (run, task, inputs) VALUES (?, ?, ?)",
                [(number, place, msgspec.msgpack.encode(inputs)) for place, inputs in enumerate(tasks)],
            )
            con.execute("UPDATE runs SET state = 'running' WHERE number = ?", (number,))

    def tasks(self, number: int) -> list[list[bytes]]:
        """The inputs of each task of a run; empty before it is planned."""
        with self.reading():
            rows = self._con.execute(
                "SELECT inputs FROM tasks WHERE run = ? ORDER BY task", (number,)
            ).fetchall()
        return [msgspec.msgpack.decode(row[0], type=list[bytes]) for row in rows]

    def attempts(self, number: int) -> list[int]:
        """Of each task, how many attempts have been named."""
        with self.reading():
            rows = self._con.execute(
                "SELECT attempts FROM tasks WHERE run = ? ORDER BY task", (number,)
            ).fetchall()
        return [row[0] for row in rows]

    def begin(self, number: int, task: int, attempt: int) -> None:
        """An attempt is about to begin; its number is never given again."""
        with self.writing() as con:
            con.execute(
                "UPDATE tasks SET attempts = MAX(attempts, ?) WHERE run = ? AND task = ?",
                (attempt + 1, number, task),
            )

    def output(self, number: int, task: int, place: int, attempt: str, data: bytes) -> None:
        """The partial states of an input are there: durable, before they count."""
        path = self.path(number, task, place, attempt)
        files.write(path, data)
        sync_path(path.parent)
        with self.writing() as con:
            con.execute("INSERT INTO outputs VALUES (?, ?, ?, ?)", (number, task, place, attempt))

    def outputs(self, number: int) -> list[tuple[int, int, str]]:
        """Task, input and attempt of each partial output of a run, in order."""
        with self.reading():
            rows = self._con.execute(
                "SELECT task, input, attempt FROM outputs WHERE run = ? ORDER BY task, input", (number,)
            ).fetchall()
        return [(task, place, attempt) for task, place, attempt in rows]

    def path(self, number: int, task: int, place: int, attempt: str) -> Path:
        """The file of a partial output."""
        return self.folder / f"run-{number}" / f"{task}-{place}-{attempt.rpartition('.')[2]}.arrow"

    def drop(self, number: int) -> None:
        """Forget the partial outputs of a run that is over."""
        with self.writing() as con:
            con.execute("DELETE FROM outputs WHERE run = ?", (number,))
            con.execute("DELETE FROM tasks WHERE run = ?", (number,))
        shutil.rmtree(self.folder / f"run-{number}", ignore_errors=True)

    def forget(self, schedule: str, keep: int) -> None:
        """Of the runs of a schedule that are over, only the last so many stay in the list."""
        with self.writing() as con:
            over = [run.number for run in self.runs() if run.schedule == schedule and run.over]
            for number in over[:-keep]:
                self.drop(number)
                con.execute("DELETE FROM runs WHERE number = ?", (number,))

    # -- SQLite ----------------------------------------------------------------------------------------------

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction, or a part of the one around it: all of the block, or nothing of it. Raises
        ``UserError``."""
        with self.reading():
            if self._con.in_transaction:
                yield self._con
                return
            self._con.execute("BEGIN IMMEDIATE")
            try:
                yield self._con
                self._con.execute("COMMIT")
            except BaseException:
                if self._con.in_transaction:
                    self._con.execute("ROLLBACK")
                raise

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """The database, by this thread alone. Raises ``UserError``."""
        with self._lock, self._named_errors():
            yield self._con

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise UserError(f"cannot use {self.folder / 'queue.db'}: {error}") from error


def _run(row: Sequence[Any]) -> Run:
    number, name, owner, out, production, *rest = row
    return Run(number, name, owner, out, bool(production), *rest)
