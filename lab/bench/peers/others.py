"""The other engines of ``elf bench peers``: a function each, which the engine's own interpreter calls (see
``lab.bench.peers.serve``), and which imports the engine.

All sums of Spark, Flink, Pathway and Bytewax are written out; the top ones are taken after the clock has
stopped.
"""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lab.bench.peers.serve import Answer, Job, Lay, Run

SPARK_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "6g",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.session.timeZone": "UTC",
}
SPARK_BATCH_LINES, SPARK_SLIDING_BATCH_LINES = 500_000, 100_000
FLINK_SETTINGS = {
    "parallelism.default": "1",
    "pipeline.object-reuse": "true",
    "table.local-time-zone": "UTC",
}
BYTEWAX_BATCH_LINES = 10_000
BYTEWAX_WAIT = timedelta(seconds=30)
END_MS = 4_000_000_000_000
FIELDS = ("client", "ident", "login", "day", "zone", "request", "status", "size", "referer", "agent")
"""Of an access log, split at blanks outside quotes; ``day``: ``[02/Jan/2026:03:04:05``."""
DAY, DAY_OF_JAVA = "%d/%b/%Y:%H:%M:%S", "dd/MMM/yyyy:HH:mm:ss"
HIT = re.compile(r'\S+ \S+ \S+ \[([^ ]+) \+0000\] "\S+ ([^ ?"]+)')


def parts(folder: Path) -> Iterator[tuple[int, str, int]]:
    """The rows of CSV files that Spark and Flink name alike."""
    for path in folder.rglob("part-*"):
        with path.open(newline="") as file:
            for start, product, clicks in csv.reader(file):
                yield int(start), product, int(clicks)


@lru_cache
def ms_of(day: str) -> int:
    """Milliseconds since the epoch of a time of an access log."""
    return int(datetime.strptime(day, DAY).replace(tzinfo=UTC).timestamp()) * 1000


def hit(line: str) -> tuple[int, str]:
    """Time and page of a line of an access log."""
    found = HIT.match(line)
    assert found, line
    return ms_of(found[1]), found[2]


def polars(job: Job, scratch: Path) -> Lay:
    """Polars' streaming engine: one batch query, over panes as long as the slide."""
    os.environ["POLARS_MAX_THREADS"] = "1"
    import polars as pl

    schema = {"created_at": pl.Int64, "product": pl.String, "clicks_count": pl.Int64, "store": pl.String}

    def lay(path: str) -> Run:
        def run() -> Answer:
            if job.format == "json":
                clicks = pl.scan_ndjson(path, schema=schema)
            else:
                columns = dict.fromkeys(FIELDS, pl.String)
                log = pl.scan_csv(path, has_header=False, separator=" ", schema=columns)
                day = pl.col("day").str.slice(1).str.to_datetime(DAY, time_unit="ms")
                page = pl.col("request").str.split(" ").list.get(1).str.split("?").list.get(0)
                clicks = log.select(
                    day.dt.epoch("ms").alias("created_at"), page.alias("product"), clicks_count=1
                )
            if job.store:
                clicks = clicks.filter(pl.col("store") == job.store)
            start = pl.col("created_at") // job.slide_ms * job.slide_ms
            sums = clicks.group_by(start.alias("start"), "product").agg(pl.col("clicks_count").sum())
            if not job.tumbles:
                back = pl.LazyFrame({"back": range(0, job.size_ms, job.slide_ms)})
                sums = sums.join(back, how="cross").with_columns(start=pl.col("start") - pl.col("back"))
                sums = sums.group_by("start", "product").agg(pl.col("clicks_count").sum())
            best_first = {"by": ["clicks_count", "product"], "descending": [True, False]}
            ordered = sums.collect(engine="streaming").sort(**best_first)
            tops = ordered.group_by("start", maintain_order=True).head(job.top)
            rows = tops.select("start", "product", "clicks_count").rows()
            return lambda: rows

        return run

    return lay


def flink(job: Job, scratch: Path) -> Lay:
    """Flink SQL: a streaming job over the file, watermarks as late as the disorder. (A window Top-N makes it
    three times slower.)"""
    from pyflink.table import EnvironmentSettings, TableEnvironment

    out, disorder = scratch / "out", f"INTERVAL '{job.disorder_ms // 1000}' SECOND"
    size, slide = (
        f"INTERVAL '{ms // 1000}' SECOND({len(str(ms // 1000))})" for ms in (job.size_ms, job.slide_ms)
    )
    windows = (
        f"TUMBLE(TABLE clicks, DESCRIPTOR(ts), {size})"
        if job.tumbles
        else f"HOP(TABLE clicks, DESCRIPTOR(ts), {slide}, {size})"
    )
    where = f"WHERE store = '{job.store}'" if job.store else ""
    if job.format == "json":
        columns = "created_at BIGINT, product STRING, clicks_count BIGINT, store STRING, "
        columns += "ts AS TO_TIMESTAMP_LTZ(created_at, 3)"
        read = "'format' = 'json'"
    else:
        columns = ", ".join(f"`{name}` STRING" for name in FIELDS)
        columns += f", ts AS TO_TIMESTAMP(SUBSTRING(`day` FROM 2), '{DAY_OF_JAVA}')"
        columns += ", product AS SPLIT_INDEX(SPLIT_INDEX(request, ' ', 1), '?', 0)"
        columns += ", clicks_count AS CAST(1 AS BIGINT)"
        read = "'format' = 'csv', 'csv.field-delimiter' = ' '"
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for name, value in FLINK_SETTINGS.items():
        tables.get_config().set(name, value)
    tables.execute_sql(
        "CREATE TEMPORARY TABLE sums (window_start BIGINT, product STRING, clicks BIGINT) "
        f"WITH ('connector' = 'filesystem', 'path' = 'file://{out}', 'format' = 'csv')"
    )

    def lay(path: str) -> Run:
        shutil.rmtree(out, ignore_errors=True)
        tables.execute_sql("DROP TEMPORARY TABLE IF EXISTS clicks")
        tables.execute_sql(
            f"CREATE TEMPORARY TABLE clicks ({columns}, WATERMARK FOR ts AS ts - {disorder}) "
            f"WITH ('connector' = 'filesystem', 'path' = 'file://{path}', {read})"
        )

        def run() -> Answer:
            tables.execute_sql(f"""
                INSERT INTO sums
                SELECT 1000 * UNIX_TIMESTAMP(CAST(window_start AS STRING)), product, clicks FROM (
                  SELECT window_start, product, SUM(clicks_count) AS clicks
                  FROM TABLE({windows}) {where} GROUP BY window_start, window_end, product)""").wait()
            return lambda: parts(out)

        return run

    return lay


def spark(job: Job, scratch: Path) -> Lay:
    """Spark Structured Streaming: the file in pieces, one a micro-batch.

    In append mode a window comes out when the watermark has passed it, so two late events close the last
    ones.
    """
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    builder = SparkSession.builder.master("local[1]")
    for name, value in SPARK_SETTINGS.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    window = F.window("ts", f"{job.size_ms} milliseconds", f"{job.slide_ms} milliseconds")
    end = json.dumps({"created_at": END_MS, "product": "", "clicks_count": 0, "store": job.store})
    if job.format != "json":
        day = datetime.fromtimestamp(END_MS // 1000, UTC).strftime(DAY)
        end = f'- - - [{day} +0000] "GET / HTTP/1.1" 200 0 "-" "-"'
    lines_max = SPARK_BATCH_LINES if job.tumbles else SPARK_SLIDING_BATCH_LINES

    def pieces(path: str) -> Iterator[Iterable[str]]:
        with Path(path).open() as file:
            while lines := list(islice(file, lines_max)):
                yield lines
        for _ in range(2):
            yield [f"{end}\n"]

    def lay(path: str) -> Run:
        for name in ("in", "out", "checkpoint"):
            shutil.rmtree(scratch / name, ignore_errors=True)
        (scratch / "in").mkdir()
        for number, lines in enumerate(pieces(path)):
            piece = scratch / "in" / f"{number:06}.json"
            piece.write_text("".join(lines))
            os.utime(piece, (1_000_000_000 + number,) * 2)  # it reads the oldest first

        def run() -> Answer:
            source = session.readStream.option("maxFilesPerTrigger", 1)
            if job.format == "json":
                source = source.schema("created_at long, product string, clicks_count long, store string")
                clicks = source.json(str(scratch / "in")).withColumn("ts", F.timestamp_millis("created_at"))
            else:
                source = source.schema(", ".join(f"{name} string" for name in FIELDS)).option("sep", " ")
                uri = F.split(F.col("request"), " ")[1]
                clicks = source.csv(str(scratch / "in")).select(
                    F.to_timestamp(F.substring("day", 2, 20), DAY_OF_JAVA).alias("ts"),
                    F.split(uri, "[?]")[0].alias("product"),
                    F.lit(1).alias("clicks_count"),
                )
            clicks = clicks.withWatermark("ts", f"{job.disorder_ms} milliseconds")
            if job.store:
                clicks = clicks.where(F.col("store") == job.store)
            sums = clicks.groupBy(window.alias("w"), "product").agg(F.sum("clicks_count").alias("clicks"))
            rows = sums.select(F.unix_millis(F.col("w.start")).alias("start"), "product", "clicks")
            writer = rows.writeStream.format("csv").outputMode("append").trigger(availableNow=True)
            writer = writer.option("checkpointLocation", str(scratch / "checkpoint"))
            writer.start(str(scratch / "out")).awaitTermination()
            return lambda: (row for row in parts(scratch / "out") if row[0] <= END_MS - job.size_ms)

        return run

    return lay


def pathway(job: Job, scratch: Path) -> Lay:
    """Pathway: the file as a static table through ``windowby``."""
    os.environ |= {"PATHWAY_THREADS": "1", "PATHWAY_MONITORING_SERVER": ""}
    import pathway as pw
    from pathway.internals.parse_graph import G

    out, this = scratch / "out.csv", pw.this
    schema = pw.schema_from_types(product=str, clicks_count=int, store=str, created_at=int)
    window = (
        pw.temporal.tumbling(duration=job.size_ms)
        if job.tumbles
        else pw.temporal.sliding(hop=job.slide_ms, duration=job.size_ms)
    )

    def answer() -> Iterable[tuple[int, str, int]]:
        """Insertions less retractions."""
        kept: Counter[tuple[int, str, int]] = Counter()
        with out.open(newline="") as file:
            for row in csv.DictReader(file):
                kept[int(row["start"]), row["product"], int(row["clicks"])] += int(row["diff"])
        return [key for key, count in kept.items() if count]

    def lay(path: str) -> Run:
        G.clear()
        clicks: Any
        if job.format == "json":
            clicks = pw.io.jsonlines.read(path, schema=schema, mode="static")
        else:
            log = pw.io.plaintext.read(path, mode="static")
            hits = log.select(hit=pw.apply_with_type(hit, tuple[int, str], this.data))
            clicks = hits.select(created_at=this.hit[0], product=this.hit[1], clicks_count=1)
        if job.store:
            clicks = clicks.filter(clicks.store == job.store)
        sums = clicks.windowby(clicks.created_at, window=window, instance=clicks.product).reduce(
            start=this._pw_window_start, product=this._pw_instance, clicks=pw.reducers.sum(this.clicks_count)
        )
        pw.io.csv.write(sums, str(out))

        def run() -> Answer:
            pw.run(monitoring_level=pw.MonitoringLevel.NONE)
            return answer

        return run

    return lay


def bytewax(job: Job, scratch: Path) -> Lay:
    """Bytewax: a fold over windows a product, one worker.

    Its watermark goes on with the machine's clock where events pause: with a wait of 2 s, which is the
    events' disorder, it loses some when the machine is busy; a long one keeps windows open and makes it
    slower.
    """
    import bytewax.operators as op
    import orjson
    from bytewax.connectors.files import FileSource
    from bytewax.dataflow import Dataflow
    from bytewax.operators import windowing
    from bytewax.testing import TestingSink, run_main

    size, slide = timedelta(milliseconds=job.size_ms), timedelta(milliseconds=job.slide_ms)
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    windower = (
        windowing.TumblingWindower(align_to=epoch, length=size)
        if job.tumbles
        else windowing.SlidingWindower(align_to=epoch, length=size, offset=slide)
    )
    clock = windowing.EventClock(
        ts_getter=lambda click: datetime.fromtimestamp(click[0] / 1000, UTC),
        wait_for_system_duration=BYTEWAX_WAIT,
    )

    def parsed(line: str) -> tuple[str, tuple[int, int]] | None:
        if job.format != "json":
            created_at, page = hit(line)
            return page, (created_at, 1)
        row = orjson.loads(line)
        if job.store is not None and row["store"] != job.store:
            return None
        return row["product"], (row["created_at"], row["clicks_count"])

    def lay(path: str) -> Run:
        out: list[tuple[str, tuple[int, int]]] = []
        flow: Any = Dataflow("clicks")
        lines = op.input("lines", flow, FileSource(path, batch_size=BYTEWAX_BATCH_LINES))
        sums = windowing.fold_window(
            "sums",
            op.filter_map("parsed", lines, parsed),
            clock,
            windower,
            builder=lambda: 0,
            folder=lambda total, click: total + click[1],
            merger=lambda one, other: one + other,
            ordered=False,
        )
        op.output("out", sums.down, TestingSink(out))

        def run() -> Answer:
            run_main(flow)
            return lambda: ((number * job.slide_ms, product, clicks) for product, (number, clicks) in out)

        return run

    return lay
