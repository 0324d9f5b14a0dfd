"""DuckDB, in elf's own interpreter: one batch query on one thread, over panes as long as the slide."""

from __future__ import annotations

import duckdb

from elf.bench.peers.serve import Job, Rows
from elf.bench.sides import THREADS
from elf.bench.sliding_side import duckdb_sql


class Engine:
    version: str = duckdb.__version__

    def __init__(self, job: Job, scratch: str) -> None:
        self.job = job
        self.rows: list[tuple[int, str, int]] = []
        self.connection = duckdb.connect(config={"threads": THREADS})

    def lay(self, path: str) -> None:
        job = self.job
        self.sql = duckdb_sql(path, job.size_ms, job.slide_ms, job.store)

    def run(self) -> None:
        self.rows = self.connection.execute(self.sql).fetchall()

    def answer(self) -> Rows:
        return [(start_us // 1000, product, clicks) for start_us, product, clicks in self.rows]
