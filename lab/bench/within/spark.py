"""Spark Structured Streaming beside it: the same lines at the same rate, the same counts, and how long after
its end a window is there. A process of its own, and the only one that imports Spark.

Lines come over a socket, so that no file is looked for, and micro-batches follow one another without a pause.
In append mode a window is there when the watermark has passed its end. The clock stops when the batch that
has its rows begins to write them.
"""

from __future__ import annotations

import socket
import tempfile
import threading
import time
from contextlib import suppress
from typing import Any, Final

import msgspec

from elf.errors import ElfError
from lab.bench.within.load import TICK_SECS, WORKLOADS, Lines

STUCK_SECS: Final = 1.0
WARM_WINDOWS: Final = 10
"""That are not counted, since first batches compile."""
START_SECS: Final = 240.0
SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.extraJavaOptions": "-Xss16m",
}
"""With the usual stack the query ends in a regular expression of Spark's own, after a minute or two."""


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
    with tempfile.TemporaryDirectory(prefix="elf-bench-spark-") as folder, socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        host, port = listening.getsockname()
        source = session.readStream.format("socket").option("host", host).option("port", port).load()
        parsed = source.select(F.from_json("value", "ts timestamp, person string, word string").alias("row"))
        rows = parsed.select("row.*").withWatermark("ts", "0 milliseconds")
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
        writing = threading.Thread(target=_write, args=(listening, asked.rate, stopped), daemon=True)
        query = ends.writeStream.foreachBatch(arrived).outputMode("append")
        writing.start()
        running = query.option("checkpointLocation", folder).start()
        try:
            deadline = time.monotonic() + START_SECS
            while len(took) < WARM_WINDOWS and running.isActive and time.monotonic() < deadline:
                time.sleep(TICK_SECS)
            if len(took) < WARM_WINDOWS:
                raise ElfError(f"Spark has made {len(took)} windows in {START_SECS:g} s")
            warm = len(took)
            running.awaitTermination(round(asked.seconds))
            if not running.isActive:
                raise ElfError(f"Spark has stopped: {running.exception()}")
        finally:
            stopped.set()
            writing.join()
            running.stop()
            session.stop()
    if not (found := list(took.values())[warm:]):
        raise ElfError(f"Spark has made no window in {asked.seconds:g} s")
    return Took(found)


def _write(listening: socket.socket, rate: float, stopped: threading.Event) -> None:
    """To whoever connects last: Spark does so once to see the columns, and once to read."""
    lines, due, at = Lines(1), 0.0, time.monotonic()
    listening.settimeout(TICK_SECS)
    reader: socket.socket | None = None
    while not stopped.is_set():
        with suppress(TimeoutError):
            reader, _ = listening.accept()
            reader.settimeout(STUCK_SECS)
        now = time.monotonic()
        due, at = due + rate * (now - at), now
        if reader is not None:
            with suppress(OSError):
                reader.sendall(lines.take(time.time_ns() // 1_000_000 * 1_000, int(due)))
        due -= int(due)
    if reader is not None:
        reader.close()
