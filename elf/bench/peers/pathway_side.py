"""Pathway: the file as a static table through ``windowby``; all sums go to CSV, the top ones are taken after
the clock has stopped."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ |= {"PATHWAY_THREADS": "1", "PATHWAY_MONITORING_SERVER": ""}
import pathway as pw
from pathway.internals.parse_graph import G

if TYPE_CHECKING:
    from elf.bench.peers.serve import Job, Rows

COLUMNS = {"product": str, "clicks_count": int, "store": str, "created_at": int}


class Engine:
    version: str = pw.__version__

    def __init__(self, job: Job, scratch: str) -> None:
        self.job = job
        self.out = Path(scratch, "out.csv")

    def lay(self, path: str) -> None:
        job, this = self.job, pw.this
        G.clear()
        clicks: Any = pw.io.jsonlines.read(path, schema=pw.schema_from_types(**COLUMNS), mode="static")
        if job.store:
            clicks = clicks.filter(clicks.store == job.store)
        window = (
            pw.temporal.tumbling(duration=job.size_ms)
            if job.tumbles
            else pw.temporal.sliding(hop=job.slide_ms, duration=job.size_ms)
        )
        sums = clicks.windowby(clicks.created_at, window=window, instance=clicks.product).reduce(
            start=this._pw_window_start, product=this._pw_instance, clicks=pw.reducers.sum(this.clicks_count)
        )
        pw.io.csv.write(sums, str(self.out))

    def run(self) -> None:
        pw.run(monitoring_level=pw.MonitoringLevel.NONE)

    def answer(self) -> Rows:
        """Insertions less retractions."""
        kept: dict[tuple[int, str, int], int] = {}
        with self.out.open(newline="") as file:
            for row in csv.DictReader(file):
                key = (int(row["start"]), row["product"], int(row["clicks"]))
                kept[key] = kept.get(key, 0) + int(row["diff"])
        return [key for key, count in kept.items() if count]
