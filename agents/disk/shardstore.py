"""What a job's master has for the shards of its tables (``elf.job.tables``): of each result the rows of one
shard."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec
import pyarrow as pa

from agents.disk.store import Store
from elf.aggregates import split_by_range
from elf.batch import WRONG, decode, encode
from elf.errors import PeerError
from elf.fields import replace
from elf.job.commits import WindowCommit
from elf.job.tables import NO_TABLE, WINDOWS_MAX, ReadShard, ShardWindows

RESULTS_BYTES: Final = 8 << 20
"""Rows of results that are divided for one answer, but for a single larger one."""
_encode: Final = msgspec.msgpack.Encoder().encode


def answer(store: Store, asked: ReadShard) -> tuple[str, bytes]:
    """(error, body) of an answer."""
    begins = asked.after + 1 if asked.after else store.tables.begins(asked.uid, asked.table)
    if begins is None or asked.place >= asked.shards:
        return NO_TABLE, b""
    after = max(begins - 1, 0)
    rows = store.some_windows_after(asked.uid, after, WINDOWS_MAX, RESULTS_BYTES)
    if asked.upto and rows and rows[0].seq > asked.upto:
        return "", _encode(ShardWindows(asked.upto, (), max(asked.upto - after, 0)))
    rows = [row for row in rows if not asked.upto or row.seq <= asked.upto]
    if not rows:
        return "", _encode(ShardWindows(asked.after))
    found = _fitting(_of(row, asked) for row in rows)
    first = after if asked.after else found[0].seq - 1
    lost = found[-1].seq - first - len(found)
    return "", _encode(ShardWindows(found[-1].seq, found, lost))


def _fitting(rows: Iterable[WindowCommit]) -> tuple[WindowCommit, ...]:
    """The first of these, which go into one record: most may be of one shard."""
    found: list[WindowCommit] = []
    size = 0
    for row in rows:
        size += len(row.rows) + len(row.status)
        if found and size > RESULTS_BYTES:
            break
        found.append(row)
    return tuple(found)


def _of(row: WindowCommit, asked: ReadShard) -> WindowCommit:
    """The rows of a shard. Of what has no such key the first shard has all, and counts it."""
    try:
        table = decode(row.rows) if row.rows else pa.table({})
        part = split_by_range(table, asked.key, asked.shards)[asked.place] if table.num_rows else table
        rows = encode(part) if part.num_rows else b""
    except (PeerError, *WRONG):
        rows = b"" if asked.place else row.rows
    return replace(row, rows=rows, status=row.status if row.revision else b"", panes_used=b"")
