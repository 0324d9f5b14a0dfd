"""The hard state of Raft groups in SQLite: what ``lab.raft.disk.Disk`` says, to the letter.

A group has a row (birth, slot, term, vote, snapshot) and its entries behind the snapshot, a row each. A write
for a group that has none is ignored, except for the one that begins it. Tests hold this to ``Disk``, write by
write.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Final

import msgspec

from overlay.raft import (
    Entry,
    Forgotten,
    Membership,
    Promised,
    Recorded,
    SlotTaken,
    Snapped,
    Snapshot,
    Stored,
    Write,
)

SCHEMA: Final = """\
CREATE TABLE IF NOT EXISTS raft_groups (
  key BLOB PRIMARY KEY, birth INTEGER NOT NULL, slot INTEGER NOT NULL, term INTEGER NOT NULL,
  vote INTEGER NOT NULL, base INTEGER NOT NULL, base_term INTEGER NOT NULL, membership BLOB NOT NULL,
  state BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS raft_entries (
  key BLOB NOT NULL, idx INTEGER NOT NULL, term INTEGER NOT NULL, payload BLOB NOT NULL,
  membership BLOB NOT NULL, PRIMARY KEY (key, idx)) WITHOUT ROWID;
"""

_encode: Final = msgspec.msgpack.Encoder().encode
_membership: Final = msgspec.msgpack.Decoder(Membership).decode
_memberships: Final = msgspec.msgpack.Decoder(tuple[Membership, ...]).decode


def apply(con: sqlite3.Connection, write: Write) -> None:
    """Make one write, inside the caller's transaction."""
    key = write.group
    match write:
        case SlotTaken():
            _forget(con, key)
            snapshot = write.snapshot
            row = (key, write.birth, write.slot, snapshot.term, 0, *_snapshot(snapshot))
            con.execute("INSERT INTO raft_groups VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        case Promised():
            con.execute(
                "UPDATE raft_groups SET term = ?, vote = ? WHERE key = ?", (write.term, write.vote, key)
            )
        case Recorded():
            if _base(con, key) is not None:
                con.execute(
                    "DELETE FROM raft_entries WHERE key = ? AND idx >= ?", (key, write.entries[0].index)
                )
                con.executemany("INSERT INTO raft_entries VALUES (?, ?, ?, ?, ?)", _rows(key, write.entries))
        case Snapped():
            _snap(con, key, write.snapshot)
        case Forgotten():
            _forget(con, key)


def load(con: sqlite3.Connection) -> dict[bytes, Stored]:
    """The hard state of all groups."""
    found: dict[bytes, Stored] = {}
    for key, birth, slot, term, vote, base, base_term, membership, state in con.execute(
        "SELECT * FROM raft_groups"
    ):
        rows = con.execute(
            "SELECT idx, term, payload, membership FROM raft_entries WHERE key = ? ORDER BY idx", (key,)
        )
        entries = tuple(Entry(index, at, bytes(data), _memberships(who)) for index, at, data, who in rows)
        snapshot = Snapshot(base, base_term, _membership(membership), bytes(state))
        found[bytes(key)] = Stored(birth, slot, term, vote, snapshot, entries)
    return found


def _snap(con: sqlite3.Connection, key: bytes, snapshot: Snapshot) -> None:
    """Entries behind the snapshot stay only if the one at its index, or the snapshot before, is of its
    term."""
    base = _base(con, key)
    if base is None:
        return
    at = con.execute(
        "SELECT term FROM raft_entries WHERE key = ? AND idx = ?", (key, snapshot.index)
    ).fetchone()
    known = base[1] if base[0] == snapshot.index else at[0] if at is not None else None
    gone = snapshot.index if known == snapshot.term else (1 << 62)
    con.execute("DELETE FROM raft_entries WHERE key = ? AND idx <= ?", (key, gone))
    con.execute(
        "UPDATE raft_groups SET base = ?, base_term = ?, membership = ?, state = ? WHERE key = ?",
        (*_snapshot(snapshot), key),
    )


def _snapshot(snapshot: Snapshot) -> tuple[int, int, bytes, bytes]:
    return snapshot.index, snapshot.term, _encode(snapshot.membership), snapshot.state


def _rows(key: bytes, entries: Iterable[Entry]) -> list[tuple[bytes, int, int, bytes, bytes]]:
    return [(key, e.index, e.term, e.payload, _encode(e.membership)) for e in entries]


def _base(con: sqlite3.Connection, key: bytes) -> tuple[int, int] | None:
    row = con.execute("SELECT base, base_term FROM raft_groups WHERE key = ?", (key,)).fetchone()
    return None if row is None else (int(row[0]), int(row[1]))


def _forget(con: sqlite3.Connection, key: bytes) -> None:
    con.execute("DELETE FROM raft_groups WHERE key = ?", (key,))
    con.execute("DELETE FROM raft_entries WHERE key = ?", (key,))
