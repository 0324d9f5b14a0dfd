"""The engines of ``elf bench peers`` that run in elf's own interpreter (see ``lab.bench.peers.serve``)."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

import duckdb as duck
import pyarrow as pa

from elf.schema import Column
from lab.bench.duckdb_side import access
from lab.bench.peers.serve import Answer, Job, Lay, Rows, Run
from lab.bench.pipeline import Clicks
from lab.bench.sides import THREADS
from lab.bench.sliding import duckdb_sql
from lab.bench.task_side import archive_in

STREAM: Final = "input"


def elf(job: Job, scratch: Path, *, archives: bool = False) -> Lay:
    """The stream task of an agent, its tree, the commits of panes and windows at the master; as ``elf run``.
    ``archives``: every line goes to an archive, too, as on an agent that has one."""
    pa.set_cpu_count(THREADS)
    pa.set_io_thread_count(THREADS)
    windowing = f"{job.size_ms} MILLISECONDS SLIDE {job.slide_ms} MILLISECONDS"

    def lay(path: str) -> Run:
        shutil.rmtree(scratch / "archived", ignore_errors=True)
        archive = archive_in(scratch / "archived", STREAM) if archives else None
        clicks = Clicks(path, windowing, job.top, job.store, job.format, archive)

        def run() -> Answer:
            sealed = clicks.sealed()
            clicks.master.commit(sealed)
            clicks.master.finish(sealed)
            return lambda: in_ms(clicks.master.answer())

        return run

    return lay


def elf_archive(job: Job, scratch: Path) -> Lay:
    """The same with an archive."""
    return elf(job, scratch, archives=True)


def duckdb(job: Job, scratch: Path) -> Lay:
    """One batch query on one thread, over panes as long as the slide."""
    connection = duck.connect(config={"threads": THREADS})

    def lay(path: str) -> Run:
        source = hits_sql(path) if job.format == "combined" else None
        sql = duckdb_sql(path, job.size_ms, job.slide_ms, job.store, source)

        def run() -> Answer:
            rows = connection.execute(sql).fetchall()
            return lambda: in_ms(rows)

        return run

    return lay


def hits_sql(path: str) -> str:
    """An access log as clicks of products, by DuckDB's CSV reader."""
    source, values = access(path, [Column("ts", "timestamp"), Column("cs_uri_stem", "text")])
    return (
        f"(SELECT epoch_ms({values['ts']}) AS created_at, {values['cs_uri_stem']} AS product, "
        f"1 AS clicks_count FROM {source})"
    )


def in_ms(rows: Rows) -> Rows:
    """Of rows whose windows start in µs."""
    return [(start_us // 1000, product, clicks) for start_us, product, clicks in rows]
