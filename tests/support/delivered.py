"""Committed windows of a job in a store, and their delivery by an agent."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa

from agents.disk.store import Store
from agents.outputs.delivering import Deliveries
from elf.batch import encode
from elf.fields import replace
from elf.job.commits import WindowCommit
from elf.job.effects import Deliver
from elf.job.events import Delivered
from elf.job.output import OutputKept, OutputSpec
from tests.support.window_commits import spec

SECOND = 1_000_000
JOB = spec(10, 10)


def output(target: str, generation: int = 1, **options: str) -> OutputSpec:
    return OutputSpec("out", "me", generation, JOB.uid, target, tuple(sorted(options.items())))


def commit(
    store: Store, start: int, rows: list[dict[str, object]], revision: int = 0, version: int = 1
) -> None:
    """A window of ten seconds from ``start`` (s)."""
    first, last = start * SECOND, (start + 10) * SECOND
    at = [datetime.fromtimestamp(us / SECOND, UTC).replace(tzinfo=None) for us in (first, last)]
    bounds = {"window_start": at[0], "window_end": at[1]}
    status = pa.table(
        {
            **{name: pa.array([moment], pa.timestamp("us")) for name, moment in bounds.items()},
            "revision": [revision],
            "expected": [3],
            "reported": [2],
            "missing": [["web-2"]],
        }
    )
    table = pa.Table.from_pylist([{**bounds, **row} for row in rows]) if rows else pa.table({})
    store.commit_windows(
        WindowCommit(JOB.uid, first, last, revision, version, False, encode(status), encode(table), b"")
    )


def deliver(to: Deliveries, spec: OutputSpec, store: Store, after: int = 0) -> Delivered:
    kept = OutputKept(JOB.uid, spec.uid, after)
    return to.deliver(Deliver(spec, JOB, kept), store)


def again(to: Deliveries, done: Delivered, store: Store) -> Delivered:
    """What comes after it."""
    return to.deliver(Deliver(done.done.output, JOB, replace(done.kept)), store)
