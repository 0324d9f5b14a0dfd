"""Spark Structured Streaming: the file in pieces, one a micro-batch. All sums go to CSV; the top ones are
taken after the clock has stopped.

In append mode a window comes out when the watermark has passed it, so two late events close the last ones.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import __version__
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from elf.bench.peers.serve import Job, Rows

SCHEMA = "created_at long, product string, clicks_count long, store string"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "6g",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.session.timeZone": "UTC",
}
BATCH_LINES, SLIDING_BATCH_LINES = 500_000, 100_000
END_MS = 4_000_000_000_000


class Engine:
    version = __version__

    def __init__(self, job: Job, scratch: str) -> None:
        self.job = job
        self.scratch = Path(scratch)
        builder = SparkSession.builder.master("local[1]")
        for name, value in SETTINGS.items():
            builder = builder.config(name, value)
        self.session = builder.getOrCreate()
        self.session.sparkContext.setLogLevel("ERROR")

    def lay(self, path: str) -> None:
        for name in ("in", "out", "checkpoint"):
            shutil.rmtree(self.scratch / name, ignore_errors=True)
        (self.scratch / "in").mkdir()
        lines_max = BATCH_LINES if self.job.tumbles else SLIDING_BATCH_LINES
        number = 0
        with Path(path).open() as file:
            while lines := list(islice(file, lines_max)):
                self._piece(number, "".join(lines))
                number += 1
        end = {"created_at": END_MS, "product": "", "clicks_count": 0, "store": self.job.store}
        for late in range(2):
            self._piece(number + late, json.dumps(end) + "\n")

    def _piece(self, number: int, text: str) -> None:
        """A file; Spark reads the oldest first."""
        path = self.scratch / "in" / f"{number:06}.json"
        path.write_text(text)
        os.utime(path, (1_000_000_000 + number,) * 2)

    def run(self) -> None:
        job = self.job
        source = self.session.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        clicks = source.json(str(self.scratch / "in")).withColumn("ts", F.timestamp_millis("created_at"))
        clicks = clicks.withWatermark("ts", f"{job.disorder_ms} milliseconds")
        if job.store:
            clicks = clicks.where(F.col("store") == job.store)
        window = F.window("ts", f"{job.size_ms} milliseconds", f"{job.slide_ms} milliseconds")
        sums = clicks.groupBy(window.alias("w"), "product").agg(F.sum("clicks_count").alias("clicks"))
        rows = sums.select(F.unix_millis(F.col("w.start")).alias("start"), "product", "clicks")
        writer = rows.writeStream.format("csv").outputMode("append").trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(self.scratch / "checkpoint"))
        writer.start(str(self.scratch / "out")).awaitTermination()

    def answer(self) -> Rows:
        found: Rows = []
        for path in (self.scratch / "out").glob("part-*.csv"):
            with path.open(newline="") as file:
                rows = ((int(start), product, int(clicks)) for start, product, clicks in csv.reader(file))
                found += [row for row in rows if row[0] <= END_MS - self.job.size_ms]
        return found
