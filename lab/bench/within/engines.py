"""The engines beside elf in ``elf bench within``: a function each, as a process in the engine's own
interpreter: standard library only, and the engine.

    python engines.py NAME JOB

``JOB`` is JSON (see ``Job``). Lines of JSON come from a socket, so that no file is looked for, and are
counted in windows of their own time. Each row of a window is printed as ``+I[end, key, count]`` as soon as
the engine gives it to a sink, until the process is ended. Nothing waits that need not: a watermark is as late
as the last row, and a window is there when that has passed its end. Checkpoints go to disk: Spark's with each
micro-batch, Flink's each second, as elf's. Nothing is asked again of a socket, by either.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

HOST = "127.0.0.1"
SPARK_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": HOST,
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.extraJavaOptions": "-Xss16m",
}
"""With the usual stack the query ends in a regular expression of Spark's own, after a minute or two."""
FLINK_SETTINGS = {
    "parallelism.default": "1",
    "pipeline.object-reuse": "true",
    "pipeline.auto-watermark-interval": "5 ms",
    "execution.buffer-timeout.interval": "1 ms",
    "execution.checkpointing.interval": "1 s",
    "table.local-time-zone": "UTC",
}
"""By itself it would wait up to 200 ms for a watermark, and up to 100 ms for a buffer."""
MOMENT = "yyyy-MM-dd''T''HH:mm:ss.SSS''Z''"


@dataclass(frozen=True)
class Job:
    """Counts by ``key`` of the lines at that port, in windows of ``size_ms`` every ``slide_ms`` (0: sessions
    with that gap). ``checkpoints``: a folder for them."""

    port: int
    key: str
    size_ms: int
    slide_ms: int
    checkpoints: str


def spark(job: Job) -> None:
    """Spark Structured Streaming on two threads, in append mode; micro-batches follow one another at once."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    builder = SparkSession.builder.master("local[2]")
    for name, value in SPARK_SETTINGS.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    source = session.readStream.format("socket").option("host", HOST).option("port", job.port).load()
    parsed = source.select(F.from_json("value", f"ts timestamp, {job.key} string").alias("row"))
    rows = parsed.select("row.*").withWatermark("ts", "0 milliseconds")
    size = f"{job.size_ms} milliseconds"
    window = (
        F.window("ts", size, f"{job.slide_ms} milliseconds") if job.slide_ms else F.session_window("ts", size)
    )
    counts = rows.groupBy(window.alias("w"), job.key).count()

    def arrived(batch: Any, _number: int) -> None:
        print("".join(f"+I[{end}, {key}, {count}]\n" for end, key, count in batch.collect()), flush=True)

    ended = counts.select(F.col("w.end").cast("string"), job.key, "count")
    query = ended.writeStream.foreachBatch(arrived).outputMode("append")
    query.option("checkpointLocation", job.checkpoints).start().awaitTermination()


def flink(job: Job) -> None:
    """Flink SQL, one slot. A watermark is 1 ms before the last row, since it says that no row has that time
    any more."""
    from pyflink.common import Configuration
    from pyflink.datastream import DataStream, StreamExecutionEnvironment
    from pyflink.table import Schema, StreamTableEnvironment

    settings = Configuration()
    for name, value in {
        **FLINK_SETTINGS,
        "execution.checkpointing.dir": f"file://{job.checkpoints}",
    }.items():
        settings.set_string(name, value)
    stream = StreamExecutionEnvironment.get_execution_environment(settings)
    tables = StreamTableEnvironment.create(stream)
    # pyflink has sockets only as Java has them
    lines = DataStream(stream._j_stream_execution_environment.socketTextStream(HOST, job.port))
    columns = (
        Schema.new_builder()
        .column("f0", "STRING")
        .column_by_expression(job.key, f"JSON_VALUE(f0, '$.{job.key}')")
        .column_by_expression("ts", f"TO_TIMESTAMP(JSON_VALUE(f0, '$.ts'), '{MOMENT}')")
        .watermark("ts", "ts - INTERVAL '0.001' SECOND")
    )
    tables.create_temporary_view("rows", tables.from_data_stream(lines, columns.build()))
    size, slide = (f"INTERVAL '{ms / 1e3:.3f}' SECOND" for ms in (job.size_ms, job.slide_ms))
    windows = (
        f"HOP(TABLE `rows`, DESCRIPTOR(ts), {slide}, {size})"
        if job.slide_ms
        else f"SESSION(TABLE `rows` PARTITION BY {job.key}, DESCRIPTOR(ts), {size})"
    )
    tables.execute_sql(
        "CREATE TEMPORARY TABLE ended (window_end TIMESTAMP(3), name STRING, n BIGINT) "
        "WITH ('connector' = 'print')"
    )
    tables.execute_sql(
        f"INSERT INTO ended SELECT window_end, {job.key}, COUNT(*) FROM TABLE({windows}) "
        f"GROUP BY window_start, window_end, {job.key}"
    ).wait()


ENGINES: dict[str, Callable[[Job], None]] = {"spark": spark, "flink": flink}


if __name__ == "__main__":
    ENGINES[sys.argv[1]](Job(**json.loads(sys.argv[2])))
