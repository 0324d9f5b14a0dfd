"""Spark Structured Streaming beside it: the same lines at the same rate, the same counts, and how long after
its end a window is there. A process of its own, and the only one that imports Spark.

Lines come as a small file each ``FILE_SECS``, and micro-batches follow one another without a pause. In append
mode a window is there when the watermark has passed its end. The clock stops when the batch that has its rows
begins to write them.
"""

from __future__ import annotations

import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Final

import msgspec

from elf.errors import ElfError
from lab.bench.within.load import WORKLOADS, Lines

FILE_SECS: Final = 0.1
WARM_WINDOWS: Final = 10
"""That are not counted, since first batches compile."""
START_SECS: Final = 240.0
SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.extraJavaOptions": "-Xss16m",
    "spark.sql.streaming.fileSource.log.compactInterval": "1000000",
}


class Asked(msgspec.Struct, frozen=True):
    """``rate``: lines a second."""

    workload: str
    rate: float
    seconds: float


class Took(msgspec.Struct, frozen=True):
    """Of each window, in ms."""

    took_ms: list[float]


def spark(asked: Asked) -> Took:
    """The windows of so many seconds, when some have come. Raises ``ElfError``."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    workload = WORKLOADS[asked.workload]
    builder = SparkSession.builder.master("local[2]")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    took: dict[int, float] = {}
    with tempfile.TemporaryDirectory(prefix="elf-bench-spark-") as name:
        folder = Path(name)
        (folder / "in").mkdir()
        source = session.readStream.schema("ts timestamp, person string, word string")
        rows = source.json(str(folder / "in")).withWatermark("ts", "0 milliseconds")
        size = f"{workload.size_ms} milliseconds"
        window = (
            F.window("ts", size, f"{workload.slide_ms} milliseconds")
            if workload.slide_ms
            else F.session_window("ts", size)
        )
        counts = rows.groupBy(window.alias("w"), workload.keys).count()
        ends = counts.select(F.unix_millis("w.end").alias("end"))

        def arrived(batch: Any, _number: int) -> None:
            now_ms = time.time() * 1e3
            for row in batch.distinct().collect():
                took.setdefault(row["end"], now_ms - row["end"])

        stopped = threading.Event()
        writing = threading.Thread(target=_write, args=(folder, asked.rate, stopped))
        query = ends.writeStream.foreachBatch(arrived).outputMode("append")
        running = query.option("checkpointLocation", str(folder / "checkpoint")).start()
        writing.start()
        try:
            deadline = time.monotonic() + START_SECS
            while len(took) < WARM_WINDOWS and running.isActive and time.monotonic() < deadline:
                time.sleep(FILE_SECS)
            if len(took) < WARM_WINDOWS:
                raise ElfError(f"Spark has made {len(took)} windows in {START_SECS:g} s")
            warm_ms = time.time() * 1e3
            running.awaitTermination(round(asked.seconds))
        finally:
            stopped.set()
            writing.join()
            running.stop()
            session.stop()
    return Took([ms for end, ms in sorted(took.items()) if end >= warm_ms])


def _write(folder: Path, rate: float, stopped: threading.Event) -> None:
    lines, due, at, number = Lines(1), 0.0, time.monotonic(), 0
    while not stopped.wait(FILE_SECS):
        now = time.monotonic()
        due, at, number = due + rate * (now - at), now, number + 1
        part = folder / f"{number}.json"
        part.write_bytes(lines.take(time.time_ns() // 1_000_000 * 1_000, int(due)))
        due -= int(due)
        part.rename(folder / "in" / part.name)
