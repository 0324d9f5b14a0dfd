"""A job as ``elf compare`` hears of it, whose windows are what Spark found over an archive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from agents.committing.status import STATUS_SCHEMA
from elf.batch import encode
from elf.client import ArchiveStatus, CompareFacts
from elf.job.messages.groups import JobStatus
from elf.job.spec import VersionRecord
from elf.ql.plan import Plan
from elf.wire.clients import WindowResult
from lab.chaos.engine import spec_of
from spark_backend import offline
from tests.support.offline import archived

Bounds = tuple[int, int]


def job_over(
    spark: SparkSession,
    plan: Plan,
    path: Path,
    windows: Sequence[Bounds],
    statuses: Mapping[Bounds, Mapping[str, object]],
    *,
    silent: Sequence[str] = (),
    version: int = 1,
) -> CompareFacts:
    """Its windows have the rows of the archive as it is now, and say of themselves what ``statuses`` has."""
    rows = offline.run(spark, plan, [archived(path)], windows)
    starts = rows["window_start"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
    results = []
    for start, end in windows:
        mine = rows.filter(pa.array([one == start for one in starts]))
        status = {"expected": 2, "reported": 2, "missing": [], "gaps": [], **statuses[start, end]}
        row = {"window_start": start, "window_end": end, "revision": 0, "version": version, **status}
        for name in ("window_start", "window_end"):
            place = mine.schema.get_field_index(name)
            mine = mine.set_column(place, name, mine[name].cast(pa.timestamp("us")))
        results.append(
            WindowResult(
                job="00.1",
                name="busy",
                version=version,
                master="h:1",
                first_us=start,
                last_us=end,
                revision=0,
                status=encode(pa.Table.from_pylist([row], schema=STATUS_SCHEMA)),
                payload=encode(mine),
            )
        )
    spec = spec_of("busy", "ada", 0, plan, ())
    known = JobStatus(
        spec, "active", "h:1", None, None, tuple(results), versions=(VersionRecord(spec, "committed"),)
    )
    source = ArchiveStatus("clicks", "json", "ts", (str(path),), tuple(silent))
    return CompareFacts((source,), known)
