"""Tables of jobs: windows that go into them, and what is found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from elf.batch import decode, encode
from elf.job.commits import WindowCommit
from elf.job.spec import JobSpec
from elf.job.tables import TableKept, TableRows
from lab.chaos.world import World
from tests.support.jobgroups import leader
from tests.support.outside import said

JOB, TABLE = f"{'0' * 32}.1", f"{'a' * 32}.1"
SECOND = 1_000_000
KEPT = TableKept(JOB, TABLE, ("ip", "page"), ("ip",))
Rows = Sequence[tuple[str, str, int]]


def moment(us: int) -> datetime:
    return datetime.fromtimestamp(0, UTC).replace(tzinfo=None) + timedelta(microseconds=us)


def commit(end_s: int, rows: Rows, revision: int = 0, **columns: pa.Array) -> WindowCommit:
    """A window of ten seconds."""
    end = end_s * SECOND
    bounds = {"window_start": [moment(end - 10 * SECOND)], "window_end": [moment(end)]}
    own = {"ip": pa.array([one[0] for one in rows], pa.string())}
    own |= {"page": pa.array([one[1] for one in rows], pa.string())}
    own |= {"n": pa.array([one[2] for one in rows], pa.int64()), **columns}
    spans = {name: pa.array(values * len(rows), pa.timestamp("us")) for name, values in bounds.items()}
    status = encode(pa.table({name: pa.array(one, pa.timestamp("us")) for name, one in bounds.items()}))
    return WindowCommit(
        JOB, end - 10 * SECOND, end, revision, 1, False, status, encode(pa.table({**spans, **own})), b""
    )


def shown(found: TableRows) -> list[tuple[object, ...]]:
    table = decode(found.rows)
    return sorted((row["ip"], row["page"], row["n"]) for row in table.to_pylist())


def rows(world: World, through: int, sql: str) -> list[dict[str, object]]:
    return list(decode(said(world, through, sql).payload).to_pylist())


def last_rows(world: World, spec: JobSpec, since: int) -> Mapping[str, tuple[int, int]]:
    """By key the end of the last window behind that number that has it, and its count there."""
    found: dict[str, tuple[int, int]] = {}
    for row in leader(world, spec).store.windows_after(spec.uid, since):
        for one in decode(row.rows).to_pylist():
            end = int(one["window_end"].timestamp() * 1e6)
            if end >= found.get(one["k0"], (0, 0))[0]:
                found[one["k0"]] = end, one["s0"]
    return found
