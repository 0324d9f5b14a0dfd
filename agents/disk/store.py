"""The agent's durable memory: what of its state must survive a crash, by table.

What is in it: facts about the agent; for a worker the *checkpoint* of each stream and the snapshots that it
retains (protocol 3.1), and replicas of those of others; for a root its flows and pane commits, for a reader
on another node replicas of these; for a master its jobs and window commits (protocol 5.6); the checkpoints of
jobs in Python (protocol 14.1); and the catalog log (protocol 2.1).

Rules: every method is one transaction, durable when it returns, and may be called from any thread. Values
are opaque bytes made by the callers. Pane numbers, times (µs) and revisions are signed 64-bit integers;
ranges are half-open. A name that was given once keeps its contents: saying the same again changes nothing,
saying something else under the name raises ``ElfBug``.

It must never interpret a payload, or answer before the disk has.
"""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from agents.disk import hardstate, tablestore
from agents.disk.sqlite import SqliteFile, StoreError
from agents.disk.tables import APPLICATION_ID, SCHEMA, SCHEMA_VERSION, STEPS
from agents.disk.tablestore import TableStore
from elf.errors import ElfBug
from elf.job import provenance
from elf.job.commits import UNNUMBERED, PaneCommit, PaneCommitName, WindowCommit
from elf.job.provenance import Traced
from elf.job.snapshots import Sealed, SnapshotName
from overlay import raft

__all__ = [
    "JobRow",
    "ReplicaRow",
    "Store",
    "StoreError",
]


class ReplicaRow(NamedTuple):
    """A replica of a snapshot of another member of the flow's stream, with the crc32 of its contents."""

    flow: str
    member: int
    start: int
    end: int
    part: int
    counters: bytes
    payload: bytes
    checksum: int


@dataclass(frozen=True)
class JobRow:
    """A job that this agent is the job group of."""

    uid: str
    record: bytes
    state: str


@dataclass(frozen=True)
class MasterRow:
    """The job group of a job in Python, and the last checkpoint of its master; number 0: none yet."""

    bootstrapped: bytes
    number: int
    checkpoint: bytes


TRACED_KEPT: Final = 500_000
"""Snapshots of which it is known which rows they have counted, some 100 bytes each: those of ten flows with
panes of a minute for a month."""
_SNAPSHOT: Final = "SELECT flow, pane_start, pane_end, part, counters, payload FROM snapshots"
_REPLICA_NAME: Final = "flow, member, pane_start, pane_end, part"
_PANE_NAME: Final = "flow, pane_start, pane_end, revision, members, roster_version"
_PANE: Final = f"SELECT {_PANE_NAME}, counters, payload, seq FROM pane_commits"
_WINDOW_NAME: Final = "job, first_start, last_end, revision, version, provisional"
_WINDOW: Final = f'SELECT {_WINDOW_NAME}, status, "rows", panes_used, seq FROM window_commits'
_NAMED: Final = " WHERE (flow, pane_start, pane_end, part) = (?, ?, ?, ?)"
_OVERLAP: Final = "WHERE flow = ? AND pane_start < ? AND pane_end > ?"
_AS: Final = "WHERE (flow, pane_start, pane_end, revision) = (?, ?, ?, ?)"


class Store:
    """The SQLite file of one agent; ``":memory:"`` keeps everything in memory and forgets it on ``close``."""

    def __init__(self, path: Path | str) -> None:
        """Opens or creates the file. Raises ``StoreError`` if it is damaged, foreign, or of another
        schema."""
        self._file = SqliteFile(
            str(path), schema=SCHEMA, version=SCHEMA_VERSION, steps=STEPS, application_id=APPLICATION_ID
        )
        self.tables = TableStore(self._file)

    def close(self) -> None:
        """Closes every thread's connection. No other call may be under way or follow."""
        self._file.close()

    def free_bytes(self) -> int:
        """Of the file: what is free for what is written next."""
        return self._file.free_bytes()

    def unsynced(self) -> AbstractContextManager[None]:
        """What is written in this block, by this thread, is durable with the next write outside of such."""
        return self._file.unsynced()

    @contextmanager
    def together(self) -> Iterator[None]:
        """What is written in this block, by this thread, is one transaction."""
        with self._file.writing():
            yield

    @contextmanager
    def whole(self) -> Iterator[None]:
        """What is written in this block, inside of ``together``, is all there or, if it raises, nothing of
        it."""
        with self._file.writing() as con:
            con.execute("SAVEPOINT whole")
            try:
                yield
            except ElfBug:
                con.execute("ROLLBACK TO whole")
                raise
            finally:
                if con.in_transaction:
                    con.execute("RELEASE whole")

    # -- facts -----------------------------------------------------------------------------------------------

    def get(self, key: str) -> bytes | None:
        with self._file.reading() as con:
            return _blob(con, "SELECT value FROM facts WHERE key = ?", key)

    def put(self, key: str, value: bytes) -> None:
        with self._file.writing() as con:
            _put(con, key, value)

    def agent_id(self) -> str:
        """The agent's UUID: made at the first call, the same for ever after."""
        with self._file.writing() as con:
            known = _blob(con, "SELECT value FROM facts WHERE key = ?", "agent_id")
            if known is None:
                known = str(uuid.uuid4()).encode()
                _put(con, "agent_id", known)
            return known.decode()

    def begin_incarnation(self, least: int = 1) -> int:
        """Counts one more start of this agent and returns its number: one above the last, and ``least`` or
        more.

        Agents give the time in seconds: then one that has lost its data folder, and with it the count, is
        above what its peers remember of that address, and so is heard.
        """
        with self._file.writing() as con:
            known = int(_blob(con, "SELECT value FROM facts WHERE key = ?", "incarnation") or b"0")
            number = max(known + 1, least)
            _put(con, "incarnation", str(number).encode())
            return number

    # -- worker: cuts and snapshots --------------------------------------------------------------------------

    def save_checkpoint(
        self,
        stream: str,
        checkpoint: bytes,
        snapshots: Sequence[Sealed] = (),
        *,
        forget: Sequence[SnapshotName] = (),
        joined: Mapping[str, bytes] | None = None,
        traced: Sequence[Traced] = (),
        postponed: tuple[Mapping[int, bytes], Collection[int]] = ({}, ()),
    ) -> None:
        """The stream's cut, the snapshots sealed since the last, and those needed no more: all or nothing.
        ``joined``: the contents of all tables that its flows join, by digest, where that has changed.
        ``traced``: which rows the snapshots have counted; the last ``TRACED_KEPT`` of these are kept.
        ``postponed``: more rows that wait for a turn, by number, and which wait no more."""
        with self._file.writing() as con:
            _remove(con, forget)
            if joined is not None:
                con.execute("DELETE FROM joined WHERE stream = ?", (stream,))
                rows = [(stream, digest, data) for digest, data in joined.items()]
                con.executemany("INSERT INTO joined VALUES (?, ?, ?)", rows)
            more, gone = postponed
            con.executemany(
                "DELETE FROM postponed WHERE stream = ? AND number = ?", [(stream, n) for n in gone]
            )
            con.executemany(
                "INSERT INTO postponed VALUES (?, ?, ?)", [(stream, *one) for one in more.items()]
            )
            for row in snapshots:
                _keep(con, "snapshots", row.name, (row.counters, row.payload), _SNAPSHOT + _NAMED)
            con.execute("INSERT OR REPLACE INTO cuts VALUES (?, ?)", (stream, checkpoint))
            _keep_traced(con, traced)

    def traced(self, flow: str, start: int, end: int) -> list[Traced]:
        """Which rows the snapshots of a flow with a pane in ``[start, end)`` have counted, as far as that is
        kept: by part, then start. Raises ``PeerError`` for what cannot be read."""
        with self._file.reading() as con:
            before = "SELECT max(pane_start) FROM traced WHERE flow = ? AND pane_start <= ? AND part = 0"
            (first,) = con.execute(before, (flow, start)).fetchone()
            sql = "SELECT flow, pane_start, pane_end, part, panes FROM traced"
            sql = f"{sql} {_OVERLAP} AND pane_start >= ? ORDER BY part, pane_start"
            rows = con.execute(sql, (flow, end, start, start if first is None else first))
            return [
                Traced(flow, first, last, part, provenance.from_bytes(panes))
                for flow, first, last, part, panes in rows
            ]

    def load_checkpoint(self, stream: str) -> bytes | None:
        with self._file.reading() as con:
            return _blob(con, "SELECT cut FROM cuts WHERE stream = ?", stream)

    def postponed(self, stream: str) -> dict[int, bytes]:
        """The rows that wait for a turn, by number."""
        with self._file.reading() as con:
            found = con.execute("SELECT number, data FROM postponed WHERE stream = ?", (stream,))
            return {int(number): bytes(data) for number, data in found}

    def joined(self, stream: str) -> dict[str, bytes]:
        """Contents of the tables that the flows of the stream's cut join, by digest."""
        with self._file.reading() as con:
            found = con.execute("SELECT digest, data FROM joined WHERE stream = ?", (stream,))
            return {str(digest): bytes(data) for digest, data in found}

    def snapshots(self, flow: str) -> list[Sealed]:
        """All that is retained of the flow, by start, end and part."""
        with self._file.reading() as con:
            found = con.execute(f"{_SNAPSHOT} WHERE flow = ? ORDER BY pane_start, pane_end, part", (flow,))
            return [_sealed(row) for row in found]

    def retained_bytes(self, flow: str) -> int:
        """What the retained snapshots of the flow come to."""
        with self._file.reading() as con:
            sizes = "SELECT SUM(LENGTH(counters) + LENGTH(payload)) FROM snapshots WHERE flow = ?"
            return int(con.execute(sizes, (flow,)).fetchone()[0] or 0)

    def overlapping(self, flow: str, start: int, end: int) -> list[Sealed]:
        """What is retained of the flow and has a pane in ``[start, end)``, by start, end and part."""
        with self._file.reading() as con:
            found = con.execute(
                f"{_SNAPSHOT} {_OVERLAP} ORDER BY pane_start, pane_end, part", (flow, end, start)
            )
            return [_sealed(row) for row in found]

    def delete_snapshots(self, names: Sequence[SnapshotName]) -> None:
        with self._file.writing() as con:
            _remove(con, names)

    def named_snapshots(self, names: Sequence[SnapshotName]) -> list[Sealed]:
        """Those of these that are retained."""
        with self._file.reading() as con:
            found = (con.execute(_SNAPSHOT + _NAMED, name).fetchone() for name in names)
            return [_sealed(row) for row in found if row is not None]

    def delete_flow(self, flow: str) -> None:
        """Forgets the flow, its snapshots, replicas and pane commits."""
        with self._file.writing() as con:
            con.execute("DELETE FROM flows WHERE uid = ?", (flow,))
            con.execute("DELETE FROM snapshots WHERE flow = ?", (flow,))
            con.execute("DELETE FROM replicas WHERE flow = ?", (flow,))
            con.execute("DELETE FROM pane_commits WHERE flow = ?", (flow,))
            con.execute("DELETE FROM pane_parts WHERE flow = ?", (flow,))

    # -- holder: replicas of the snapshots of others ---------------------------------------------------------

    def keep_replicas(self, rows: Sequence[ReplicaRow]) -> None:
        """Of two replicas of one name the first stays."""
        with self._file.writing() as con:
            con.executemany(f"INSERT OR IGNORE INTO replicas VALUES ({_marks(8)})", rows)

    def replicas(self) -> list[tuple[tuple[str, int, int, int, int], int]]:
        """Names (flow, member, first pane, end, part) and bytes of contents, the oldest first."""
        with self._file.reading() as con:
            found = con.execute(
                f"SELECT {_REPLICA_NAME}, length(counters) + length(payload) FROM replicas ORDER BY rowid"
            )
            return [(row[:5], int(row[5])) for row in found]

    def replicas_of(self, flow: str, member: int, start: int, end: int, part: int) -> list[ReplicaRow]:
        """Replicas of a member's snapshots with a pane in ``[start, end)``, of that part, by start."""
        with self._file.reading() as con:
            sql = f"SELECT * FROM replicas {_OVERLAP} AND member = ? AND part = ? ORDER BY pane_start"
            return [ReplicaRow(*row) for row in con.execute(sql, (flow, end, start, member, part))]

    def forget_replicas(self, names: Sequence[tuple[str, int, int, int, int]]) -> None:
        with self._file.writing() as con:
            con.executemany(f"DELETE FROM replicas WHERE ({_REPLICA_NAME}) = ({_marks(5)})", names)

    # -- root: pane commits ----------------------------------------------------------------------------------

    def save_flow(self, uid: str, first_pane: int) -> None:
        """The first pane that the flow's root commits."""
        with self._file.writing() as con:
            con.execute("INSERT OR REPLACE INTO flows VALUES (?, ?)", (uid, first_pane))

    def flows(self) -> dict[str, int | None]:
        """The flows of which something is kept; the first pane of those whose root is here."""
        with self._file.reading() as con:
            found = con.execute(
                "SELECT flow, max(first_pane) FROM (SELECT uid AS flow, first_pane FROM flows UNION ALL "
                "SELECT DISTINCT flow, NULL FROM pane_commits UNION ALL "
                "SELECT DISTINCT flow, NULL FROM snapshots) GROUP BY flow"
            )
            return {str(uid): first for uid, first in found}

    def commit_panes(self, *rows: PaneCommit, again: bool = False) -> int:
        """Commits in one transaction; returns the number of the last. A second word on a pane's revision
        raises ``ElfBug`` (protocol 5.9), unless it is to be said ``again``, by whoever had its name only.
        Rows with a number keep it, others get the next of their flow.
        """
        seq = 0
        with self._file.writing() as con:
            for row in rows:
                if again:
                    con.execute(f"DELETE FROM pane_commits {_AS}", row.name)
                values = (*row.name, row.members, row.roster_version, row.counters, row.payload)
                taken = con.execute(
                    f"{_PANE} {_OVERLAP} AND revision = ?", (row.flow, row.end, row.start, row.revision)
                )
                known = [PaneCommit(*other) for other in taken]
                if any(other != row for other in known):
                    raise ElfBug(
                        f"panes [{row.start}, {row.end}) of {row.flow}: revision {row.revision} is committed"
                    )
                seq = known[0].seq if known else row.seq or self._last_seq(con, row.flow) + 1
                con.execute(
                    f"INSERT OR IGNORE INTO pane_commits VALUES ({_marks(10)})", (*values, seq, row.raw)
                )
                if row.parts:
                    named = (row.flow, row.start, row.revision, row.parts)
                    con.execute("INSERT OR IGNORE INTO pane_parts VALUES (?, ?, ?, ?)", named)
        return seq

    @staticmethod
    def _last_seq(con: sqlite3.Connection, flow: str) -> int:
        row = con.execute("SELECT max(seq) FROM pane_commits WHERE flow = ?", (flow,)).fetchone()
        return int(row[0] or 0)

    def last_seq(self, flow: str) -> int:
        """Number of the flow's last commit, 0 if there is none."""
        with self._file.reading() as con:
            return self._last_seq(con, flow)

    def commits_after(self, flow: str, seq: int, start: int, limit: int) -> list[PaneCommit]:
        """Commits with a higher number that have a pane from ``start`` on, by number."""
        with self._file.reading() as con:
            sql = f"{_PANE} WHERE flow = ? AND seq > ? AND pane_end > ? ORDER BY seq LIMIT ?"
            return [PaneCommit(*row) for row in con.execute(sql, (flow, seq, start, limit))]

    def committed_as(self, flow: str, start: int, end: int, revision: int) -> PaneCommit | None:
        """The commit of that name."""
        with self._file.reading() as con:
            row = con.execute(f"{_PANE} {_AS}", (flow, start, end, revision)).fetchone()
            return None if row is None else PaneCommit(*row)

    def pane_commits(self, flow: str, start: int, end: int) -> list[PaneCommit]:
        """Every revision of every commit that has a pane in ``[start, end)``, by revision, then start."""
        with self._file.reading() as con:
            found = con.execute(f"{_PANE} {_OVERLAP} ORDER BY revision, pane_start", (flow, end, start))
            return [PaneCommit(*row) for row in found]

    def pane_names(self, flow: str, start: int, end: int) -> list[PaneCommitName]:
        """The same without reading the contents."""
        with self._file.reading() as con:
            sql = f"SELECT {_PANE_NAME} FROM pane_commits {_OVERLAP} ORDER BY revision, pane_start"
            return [PaneCommitName(*row) for row in con.execute(sql, (flow, end, start))]

    def committed(self, flow: str) -> list[PaneCommitName]:
        """What is committed of the flow, by start, then revision, without reading the contents."""
        with self._file.reading() as con:
            sql = f"SELECT {_PANE_NAME} FROM pane_commits WHERE flow = ?"
            found = con.execute(f"{sql} ORDER BY pane_start, pane_end, revision", (flow,))
            return [PaneCommitName(*row) for row in found]

    def parts_of(self, flow: str) -> dict[tuple[int, int], bytes]:
        """(Pane, revision) → parts of late rows, of the commits that have some."""
        with self._file.reading() as con:
            found = con.execute("SELECT pane, revision, parts FROM pane_parts WHERE flow = ?", (flow,))
            return {(int(pane), int(revision)): bytes(parts) for pane, revision, parts in found}

    def raw_of(self, flow: str, start: int, end: int) -> dict[tuple[int, int], bytes]:
        """(First pane, revision) → what the commit's rows were before a reduce function, of the commits that
        have a pane in ``[start, end)`` and that it has changed."""
        with self._file.reading() as con:
            sql = f"SELECT pane_start, revision, raw FROM pane_commits {_OVERLAP} AND raw <> x''"
            found = con.execute(sql, (flow, end, start))
            return {(int(first), int(revision)): bytes(raw) for first, revision, raw in found}

    def prune_panes(self, flow: str, below: int | None) -> None:
        """Forgets commits all of whose panes are below ``below``, but the last one, whose number must not be
        given again; with None all of them.
        """
        with self._file.writing() as con:
            if below is None:
                con.execute("DELETE FROM pane_commits WHERE flow = ?", (flow,))
                con.execute("DELETE FROM pane_parts WHERE flow = ?", (flow,))
            else:
                con.execute(
                    "DELETE FROM pane_commits WHERE flow = ? AND pane_end <= ? AND seq < ?",
                    (flow, below, self._last_seq(con, flow)),
                )
                con.execute(
                    "DELETE FROM pane_parts WHERE flow = ? AND pane < ? AND NOT EXISTS (SELECT 1 FROM "
                    "pane_commits AS c WHERE c.flow = pane_parts.flow AND c.pane_start = pane "
                    "AND c.revision = pane_parts.revision)",
                    (flow, below),
                )

    # -- master: jobs and window commits ---------------------------------------------------------------------

    def save_job(self, uid: str, record: bytes, state: str) -> None:
        with self._file.writing() as con:
            con.execute("INSERT OR REPLACE INTO jobs VALUES (?, ?, ?)", (uid, record, state))

    def job(self, uid: str) -> JobRow | None:
        with self._file.reading() as con:
            row = con.execute("SELECT uid, record, state FROM jobs WHERE uid = ?", (uid,)).fetchone()
            return None if row is None else JobRow(*row)

    def load_jobs(self) -> list[JobRow]:
        with self._file.reading() as con:
            return [JobRow(*row) for row in con.execute("SELECT uid, record, state FROM jobs ORDER BY uid")]

    def drop_job(self, uid: str, flows: Sequence[str] = ()) -> None:
        """Forgets the job, its window commits, and what is committed of flows."""
        with self._file.writing() as con:
            con.execute("DELETE FROM jobs WHERE uid = ?", (uid,))
            con.execute("DELETE FROM window_commits WHERE job = ?", (uid,))
            con.execute("DELETE FROM outputs WHERE job = ?", (uid,))
            con.execute("DELETE FROM costs WHERE job = ?", (uid,))
            tablestore.forget(con, uid)
            con.execute("DELETE FROM masters WHERE uid = ?", (uid,))
            for flow in flows:
                con.execute("DELETE FROM flows WHERE uid = ?", (flow,))
                con.execute("DELETE FROM pane_commits WHERE flow = ?", (flow,))
                con.execute("DELETE FROM pane_parts WHERE flow = ?", (flow,))

    def commit_windows(self, *rows: WindowCommit) -> int:
        """Commits in one transaction; returns the number of the last one. Other contents for a committed
        (windows, revision) raise ``ElfBug``."""
        seq = 0
        with self._file.writing() as con:
            for row in rows:
                key = (*row.name, int(row.provisional))
                said = (row.status, row.rows, row.panes_used)
                known = con.execute(f"{_WINDOW} WHERE ({_WINDOW_NAME}) = ({_marks(6)})", key).fetchone()
                if known is not None and known[6:9] != said:
                    raise ElfBug(f"window_commits: {key} is there already, with other contents")
                if known is not None:
                    seq = int(known[9])
                    continue
                seq = self._last_windows_seq(con, row.job) + 1 if row.seq == UNNUMBERED else row.seq
                con.execute(f"INSERT INTO window_commits VALUES ({_marks(10)})", (*key, *said, seq))
        return seq

    @staticmethod
    def _last_windows_seq(con: sqlite3.Connection, job: str) -> int:
        row = con.execute("SELECT max(seq) FROM window_commits WHERE job = ?", (job,)).fetchone()
        return int(row[0] or 0)

    def last_windows_seq(self, job: str) -> int:
        """Number of the job's last commit of windows, 0 if there is none."""
        with self._file.reading() as con:
            return self._last_windows_seq(con, job)

    def windows_after(self, job: str, seq: int) -> list[WindowCommit]:
        """Commits with a higher number, by number."""
        with self._file.reading() as con:
            found = con.execute(f"{_WINDOW} WHERE job = ? AND seq > ? ORDER BY seq", (job, seq))
            return [_window(row) for row in found]

    def some_windows_after(self, job: str, seq: int, most: int, bytes_max: int) -> list[WindowCommit]:
        """The first of these: so many at most, and not many more than so many bytes of rows."""
        found: list[WindowCommit] = []
        with self._file.reading() as con:
            sql = f"{_WINDOW} WHERE job = ? AND seq > ? ORDER BY seq LIMIT ?"
            for row in con.execute(sql, (job, seq, most)):
                found.append(_window(row))
                bytes_max -= len(found[-1].rows)
                if bytes_max <= 0:
                    break
        return found

    def windows_within(
        self, job: str, from_us: int, to_us: int, seq: int, bytes_max: int
    ) -> tuple[list[WindowCommit], bool]:
        """Numbered commits with a window that overlaps ``[from_us, to_us)`` and a higher number, by number,
        not many more than so many bytes; and whether there are more."""
        found: list[WindowCommit] = []
        with self._file.reading() as con:
            sql = f"{_WINDOW} WHERE job = ? AND seq > ? AND first_start < ? AND last_end > ? ORDER BY seq"
            for row in con.execute(sql, (job, max(seq, 0), to_us, from_us)):
                if bytes_max <= 0:
                    return found, True
                found.append(_window(row))
                bytes_max -= sum(map(len, (found[-1].rows, found[-1].status, found[-1].panes_used)))
        return found, False

    def first_window(self, job: str) -> int | None:
        """Where the first window begins that is kept of a job."""
        with self._file.reading() as con:
            sql = "SELECT min(first_start) FROM window_commits WHERE job = ? AND seq > 0"
            found = con.execute(sql, (job,)).fetchone()[0]
            return None if found is None else int(found)

    # -- outputs ---------------------------------------------------------------------------------------------

    def save_output(self, job: str, output: str, number: int, kept: bytes) -> None:
        """How far an output has got; never back."""
        with self._file.writing() as con:
            con.execute(
                "INSERT INTO outputs VALUES (?, ?, ?, ?) ON CONFLICT (job, output) "
                "DO UPDATE SET number = excluded.number, kept = excluded.kept "
                "WHERE excluded.number >= number",
                (job, output, number, kept),
            )

    def drop_output(self, job: str, output: str) -> None:
        with self._file.writing() as con:
            con.execute("DELETE FROM outputs WHERE job = ? AND output = ?", (job, output))

    def outputs(self, job: str) -> list[bytes]:
        """How far the outputs of a job have got."""
        with self._file.reading() as con:
            found = con.execute("SELECT kept FROM outputs WHERE job = ? ORDER BY output", (job,))
            return [bytes(row[0]) for row in found]

    # -- costs -----------------------------------------------------------------------------------------------

    def save_costs(self, job: str, learned: bytes) -> None:
        """What was learned of a job, in place of what was before."""
        with self._file.writing() as con:
            con.execute("INSERT OR REPLACE INTO costs VALUES (?, ?)", (job, learned))

    def costs(self, job: str) -> bytes | None:
        """What was learned of a job last."""
        with self._file.reading() as con:
            row = con.execute("SELECT learned FROM costs WHERE job = ?", (job,)).fetchone()
            return None if row is None else bytes(row[0])

    # -- windows ---------------------------------------------------------------------------------------------

    def windows(self, job: str, from_us: int, to_us: int) -> list[WindowCommit]:
        """Commits with a window that overlaps ``[from_us, to_us)``, by start, then revision. They are found
        by their ends (``+`` keeps SQLite from the starts): mostly they are the last of very many."""
        with self._file.reading() as con:
            sql = f"{_WINDOW} WHERE job = ? AND +first_start < ? AND last_end > ?"
            found = con.execute(f"{sql} ORDER BY first_start, last_end, revision", (job, to_us, from_us))
            return [_window(row) for row in found]

    def last_windows(self, job: str, n: int) -> list[WindowCommit]:
        """The ``n`` commits that end last, the last one at the end."""
        with self._file.reading() as con:
            sql = f"{_WINDOW} WHERE job = ? ORDER BY last_end DESC, revision DESC LIMIT ?"
            return [_window(row) for row in con.execute(sql, (job, n))][::-1]

    def assembled(self, job: str) -> dict[int, int]:
        """By version, the end of the last window that is committed."""
        with self._file.reading() as con:
            sql = "SELECT version, max(last_end) FROM window_commits WHERE job = ? GROUP BY version"
            return {int(version): int(end) for version, end in con.execute(sql, (job,))}

    def prune_windows(self, job: str, below_us: int) -> None:
        """Forgets commits all of whose windows end at ``below_us`` or before, but not the one numbered
        last."""
        with self._file.writing() as con:
            con.execute(
                "DELETE FROM window_commits WHERE job = ? AND last_end <= ? AND seq < ?",
                (job, below_us, self._last_windows_seq(con, job)),
            )

    # -- jobs in Python --------------------------------------------------------------------------------------

    def save_program(self, uid: str, record: bytes) -> None:
        """The checkpoint of a job in Python, in place of the last one."""
        with self._file.writing() as con:
            con.execute("INSERT OR REPLACE INTO programs VALUES (?, ?)", (uid, record))

    def forget_program(self, uid: str) -> None:
        with self._file.writing() as con:
            con.execute("DELETE FROM programs WHERE uid = ?", (uid,))

    def programs(self) -> dict[str, bytes]:
        """The checkpoints of jobs in Python, by uid."""
        with self._file.reading() as con:
            found = con.execute("SELECT uid, record FROM programs")
            return {str(uid): bytes(record) for uid, record in found}

    def bootstrap_master(self, uid: str, record: bytes) -> None:
        """The job in Python of a job group; of a further tree of one there is no record. The first stays."""
        with self._file.writing() as con:
            con.execute("INSERT OR IGNORE INTO masters VALUES (?, ?, 0, x'')", (uid, record))

    def save_master(self, uid: str, number: int, checkpoint: bytes) -> None:
        """The checkpoint of its master, in place of one with a lower number."""
        with self._file.writing() as con:
            con.execute(
                "UPDATE masters SET number = ?, checkpoint = ? WHERE uid = ? AND number < ?",
                (number, checkpoint, uid, number),
            )

    def master(self, uid: str) -> MasterRow | None:
        with self._file.reading() as con:
            found = con.execute(
                "SELECT bootstrapped, number, checkpoint FROM masters WHERE uid = ?", (uid,)
            ).fetchone()
            return None if found is None else MasterRow(*found)

    # -- the catalog log -------------------------------------------------------------------------------------

    def append_log(
        self, entries: Sequence[tuple[int, bytes]], forgotten: Sequence[tuple[int, bytes]] = ()
    ) -> None:
        """Adds (number, entry) pairs; another entry under a known number raises ``ElfBug`` (two founders).
        ``forgotten``: what stands in place of such that are there.

        Nobody waits for the disk: a majority has committed them, and who loses the last of them asks for
        them again. They are durable before anything that is written after them."""
        with self.unsynced(), self._file.writing() as con:
            for seq, entry in entries:
                _keep(con, "log", (seq,), (entry,), "SELECT seq, entry FROM log WHERE seq = ?")
            con.executemany(
                "UPDATE log SET entry = ? WHERE seq = ?", [(entry, seq) for seq, entry in forgotten]
            )

    def load_log(self) -> list[tuple[int, bytes]]:
        with self._file.reading() as con:
            return [
                (int(seq), bytes(entry))
                for seq, entry in con.execute("SELECT seq, entry FROM log ORDER BY seq")
            ]

    # -- Raft groups -----------------------------------------------------------------------------------------

    def persist(self, writes: Sequence[raft.Write]) -> None:
        """Makes writes of Raft groups, in order, in one transaction."""
        with self._file.writing() as con:
            for write in writes:
                hardstate.apply(con, write)

    def load_groups(self) -> dict[bytes, raft.Stored]:
        """The hard state of every group in which this agent has a voter slot."""
        with self._file.reading() as con:
            return hardstate.load(con)


def _marks(count: int) -> str:
    return ", ".join("?" * count)


def _blob(con: sqlite3.Connection, sql: str, key: str) -> bytes | None:
    row = con.execute(sql, (key,)).fetchone()
    return None if row is None else bytes(row[0])


def _put(con: sqlite3.Connection, key: str, value: bytes) -> None:
    con.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (key, value))


def _keep_traced(con: sqlite3.Connection, traced: Sequence[Traced]) -> None:
    """Panes without rows behind others without are one row."""
    for one in traced:
        data = provenance.to_bytes(one.panes)
        if not data:
            last = "SELECT max(pane_start) FROM traced WHERE flow = ? AND pane_start < ? AND part = 0"
            sql = "UPDATE traced SET pane_end = ? WHERE (flow, pane_end, part, panes) = (?, ?, 0, x'')"
            known = (one.end, one.flow, one.start, one.flow, one.start)
            if not one.part and con.execute(f"{sql} AND pane_start = ({last})", known).rowcount:
                continue
        sql = "INSERT OR REPLACE INTO traced (flow, pane_start, pane_end, part, panes) VALUES (?, ?, ?, ?, ?)"
        con.execute(sql, (one.flow, one.start, one.end, one.part, data))
    if traced:
        con.execute("DELETE FROM traced WHERE number <= (SELECT max(number) FROM traced) - ?", (TRACED_KEPT,))


def _remove(con: sqlite3.Connection, names: Sequence[SnapshotName]) -> None:
    con.executemany("DELETE FROM snapshots" + _NAMED, names)


def _keep(
    con: sqlite3.Connection, table: str, key: tuple[object, ...], values: tuple[bytes, ...], known: str
) -> None:
    """Inserts what has that name for ever; the same again is nothing new, something else is a bug."""
    whole = tuple(key) + values
    done = con.execute(f"INSERT OR IGNORE INTO {table} VALUES ({_marks(len(whole))})", whole)
    if done.rowcount == 0 and con.execute(known, tuple(key)).fetchone() != whole:
        raise ElfBug(f"{table}: {tuple(key)} is there already, with other contents")


def _sealed(row: tuple[str, int, int, int, bytes, bytes]) -> Sealed:
    flow, start, end, part, counters, payload = row
    return Sealed(flow, start, end, counters, payload, part)


def _window(row: tuple[str, int, int, int, int, int, bytes, bytes, bytes, int]) -> WindowCommit:
    job, first_start, last_end, revision, version, provisional, status, rows, panes, seq = row
    return WindowCommit(
        job, first_start, last_end, revision, version, bool(provisional), status, rows, panes, seq
    )
