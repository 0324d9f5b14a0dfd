"""Polars' streaming engine: one batch query, over panes as long as the slide."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

os.environ["POLARS_MAX_THREADS"] = "1"
import polars as pl

if TYPE_CHECKING:
    from elf.bench.peers.serve import Job, Rows

SCHEMA = {"created_at": pl.Int64, "product": pl.String, "clicks_count": pl.Int64, "store": pl.String}


class Engine:
    version: str = pl.__version__

    def __init__(self, job: Job, scratch: str) -> None:
        self.job = job
        self.path = ""
        self.rows: Rows = []

    def lay(self, path: str) -> None:
        self.path = path

    def run(self) -> None:
        job, clicks = self.job, pl.scan_ndjson(self.path, schema=SCHEMA)
        if job.store:
            clicks = clicks.filter(pl.col("store") == job.store)
        start = pl.col("created_at") // job.slide_ms * job.slide_ms
        sums = clicks.group_by(start.alias("start"), "product").agg(pl.col("clicks_count").sum())
        if not job.tumbles:
            back = pl.LazyFrame({"back": range(0, job.size_ms, job.slide_ms)})
            sums = sums.join(back, how="cross").with_columns(start=pl.col("start") - pl.col("back"))
            sums = sums.group_by("start", "product").agg(pl.col("clicks_count").sum())
        ordered = sums.collect(engine="streaming").sort("clicks_count", "product", descending=[True, False])
        tops = ordered.group_by("start", maintain_order=True).head(job.top)
        self.rows = tops.select("start", "product", "clicks_count").rows()

    def answer(self) -> Rows:
        return self.rows
