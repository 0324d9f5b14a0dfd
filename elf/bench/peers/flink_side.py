"""Flink SQL: a streaming job over the file, watermarks as late as the disorder. All sums go to CSV; the top
ones are taken after the clock has stopped (a window Top-N makes it three times slower)."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from pyflink.table import EnvironmentSettings, TableEnvironment
from pyflink.version import __version__

if TYPE_CHECKING:
    from elf.bench.peers.serve import Job, Rows

SETTINGS = {
    "parallelism.default": "1",
    "pipeline.object-reuse": "true",
    "table.local-time-zone": "UTC",
}
OUT = "window_start BIGINT, product STRING, clicks BIGINT"


class Engine:
    version = __version__

    def __init__(self, job: Job, scratch: str) -> None:
        self.job = job
        self.out = Path(scratch, "out")
        self.tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        for name, value in SETTINGS.items():
            self.tables.get_config().set(name, value)
        self.tables.execute_sql(
            f"CREATE TEMPORARY TABLE sums ({OUT}) "
            f"WITH ('connector' = 'filesystem', 'path' = 'file://{self.out}', 'format' = 'csv')"
        )

    def lay(self, path: str) -> None:
        shutil.rmtree(self.out, ignore_errors=True)
        self.tables.execute_sql("DROP TEMPORARY TABLE IF EXISTS clicks")
        self.tables.execute_sql(
            "CREATE TEMPORARY TABLE clicks ("
            "created_at BIGINT, product STRING, clicks_count BIGINT, store STRING, "
            "ts AS TO_TIMESTAMP_LTZ(created_at, 3), "
            f"WATERMARK FOR ts AS ts - INTERVAL '{self.job.disorder_ms // 1000}' SECOND) "
            f"WITH ('connector' = 'filesystem', 'path' = 'file://{path}', 'format' = 'json')"
        )

    def run(self) -> None:
        job = self.job
        size, slide = (
            f"INTERVAL '{ms // 1000}' SECOND({len(str(ms // 1000))})" for ms in (job.size_ms, job.slide_ms)
        )
        windows = (
            f"TUMBLE(TABLE clicks, DESCRIPTOR(ts), {size})"
            if job.tumbles
            else f"HOP(TABLE clicks, DESCRIPTOR(ts), {slide}, {size})"
        )
        where = f"WHERE store = '{job.store}'" if job.store else ""
        self.tables.execute_sql(f"""
            INSERT INTO sums
            SELECT 1000 * UNIX_TIMESTAMP(CAST(window_start AS STRING)), product, clicks FROM (
              SELECT window_start, product, SUM(clicks_count) AS clicks
              FROM TABLE({windows}) {where} GROUP BY window_start, window_end, product)""").wait()

    def answer(self) -> Rows:
        found: Rows = []
        for path in (path for path in self.out.rglob("*") if path.is_file() and path.suffix != ".crc"):
            with path.open(newline="") as file:
                found += [(int(start), product, int(clicks)) for start, product, clicks in csv.reader(file)]
        return found
