"""Spark Structured Streaming: the file in pieces, one a micro-batch, in append mode; each batch's windows are
whole, so that their top rows are taken there.

In append mode a window comes out when the watermark has passed it, so two late events close the last ones.
"""

from __future__ import annotations

import json
import os
import shutil
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import __version__
from pyspark.sql import DataFrame, SparkSession, Window
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
        self.rows: Rows = []
        builder = SparkSession.builder.master("local[1]")
        for name, value in SETTINGS.items():
            builder = builder.config(name, value)
        self.session = builder.getOrCreate()
        self.session.sparkContext.setLogLevel("ERROR")

    def lay(self, path: str) -> None:
        self.rows = []
        pieces, checkpoint = self.scratch / "in", self.scratch / "checkpoint"
        for folder in (pieces, checkpoint):
            shutil.rmtree(folder, ignore_errors=True)
        pieces.mkdir()
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
        writer = sums.writeStream.outputMode("append").trigger(availableNow=True).foreachBatch(self._tops)
        writer.option("checkpointLocation", str(self.scratch / "checkpoint")).start().awaitTermination()

    def _tops(self, batch: DataFrame, _number: int) -> None:
        places = Window.partitionBy("w").orderBy(F.desc("clicks"), "product")
        tops = batch.withColumn("place", F.row_number().over(places)).where(F.col("place") <= self.job.top)
        start = F.unix_millis(F.col("w.start"))
        self.rows += [tuple(row) for row in tops.select(start, "product", "clicks").collect()]

    def answer(self) -> Rows:
        return [row for row in self.rows if row[0] <= END_MS - self.job.size_ms]
