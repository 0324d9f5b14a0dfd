"""The engines of ``elf bench peers`` that run in elf's own interpreter (see ``lab.bench.peers.serve``)."""

from __future__ import annotations

from pathlib import Path

import duckdb as duck
import pyarrow as pa

from lab.bench.peers.serve import Answer, Job, Lay, Rows, Run
from lab.bench.pipeline import Clicks
from lab.bench.sides import THREADS
from lab.bench.sliding import duckdb_sql


def elf(job: Job, scratch: Path) -> Lay:
    """The stream task of an agent, its tree, the commits of panes and windows at the master; as ``elf
    run``."""
    pa.set_cpu_count(THREADS)
    pa.set_io_thread_count(THREADS)
    windowing = f"{job.size_ms} MILLISECONDS SLIDE {job.slide_ms} MILLISECONDS"

    def lay(path: str) -> Run:
        clicks = Clicks(path, windowing, job.top, job.store)

        def run() -> Answer:
            sealed = clicks.sealed()
            clicks.master.commit(sealed)
            clicks.master.finish(sealed)
            return lambda: in_ms(clicks.master.answer())

        return run

    return lay


def duckdb(job: Job, scratch: Path) -> Lay:
    """One batch query on one thread, over panes as long as the slide."""
    connection = duck.connect(config={"threads": THREADS})

    def lay(path: str) -> Run:
        sql = duckdb_sql(path, job.size_ms, job.slide_ms, job.store)

        def run() -> Answer:
            rows = connection.execute(sql).fetchall()
            return lambda: in_ms(rows)

        return run

    return lay


def in_ms(rows: Rows) -> Rows:
    """Of rows whose windows start in µs."""
    return [(start_us // 1000, product, clicks) for start_us, product, clicks in rows]
