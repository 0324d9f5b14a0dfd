"""FROM JOB for Spark: what it says of the queries that ``tests.run.test_over_jobs`` asks a fleet.

All of those with ``ELF_SPARK_ALL=1`` (half a minute); else one of each kind, and two small ones.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from elf.fields import replace
from elf.ql.definition import Read
from elf.ql.jobs import expand
from elf.ql.plan import Plan
from elf.ql.planner import plan_streams, streams_of
from elf.ql.statements import CreateJob, Query, Select, parse
from elf.ql.unions import side_view
from elf.schema import Column, ColumnType, Schema
from spark_backend import offline
from tests.support.offline import (
    BASE_US,
    CLICKS,
    SECOND,
    archived,
    by_window,
    clicks,
    counted,
    store,
    store_clicks,
    windows,
)
from tests.support.ql_pipeline import difference, plain, run_by_hand
from tests.support.run_oracle import connect, rows
from tests.support.run_over_jobs import CASES, Case
from tests.support.run_queries import by_hand

_TYPES: dict[pa.DataType, ColumnType] = {pa.int64(): "bigint", pa.timestamp("us"): "timestamp"}


TWO = Case(
    (
        "CREATE JOB bought AS SELECT product, SUM(clicks) AS n FROM clicks GROUP BY product "
        "WINDOWING 20 SECONDS",
        "CREATE JOB seen AS SELECT product AS p, COUNT(*) AS views FROM views, others WHERE product <> 'x' "
        "GROUP BY p WINDOWING 20 SECONDS",
    ),
    "SELECT b.product, n, views FROM JOB bought AS b LEFT JOIN JOB seen AS s ON b.product = s.p WHERE n > 1",
    "",
)


def test_jobs_of_other_streams(quick_spark: SparkSession, tmp_path: Path) -> None:
    rows = clicks(80, 11)
    store_clicks(tmp_path / "t", rows)
    at = [BASE_US + n * SECOND for n in range(30)]
    for place, stream in enumerate(("views", "others")):
        lines = [json.dumps({"product": ["doom", "x", "zelda"][(n + place) % 3]}) for n in range(30)]
        store(tmp_path / "t", lines, list(at), stream=stream, agent=stream)
    text = Schema((Column("ts", "timestamp"), Column("product", "text")), "ts")
    plan = planned(TWO, {"clicks": CLICKS, "views": text, "others": text})
    assert plan.streams == ("clicks", "views", "others")
    sources = [archived(tmp_path / "t", stream) for stream in plan.streams]
    found = by_window(offline.run(quick_spark, plan, sources, windows(20, 20, 2)))
    for window in range(2):
        seen = Counter(
            ["doom", "x", "zelda"][(n + place) % 3]
            for n in range(30)
            for place in range(2)
            if n // 20 == window
        )
        start = BASE_US + window * 20 * SECOND
        bought = counted(rows, start, start + 20 * SECOND)
        wanted = {(p, n, seen.get(p)) for p, (_, n) in bought.items() if n > 1}
        assert {(p, int(str(n)), v) for p, n, v in found[start]} == wanted
        assert len(wanted) > 1
    larger = replace(TWO, asked="SELECT SUM(n) AS n, COUNT(*) AS rows FROM JOB bought WINDOWING 40 SECONDS")
    plan = planned(larger, {"clicks": CLICKS, "views": text, "others": text})
    found = by_window(quick_spark.sql(plan.spark_sql).toArrow())
    parts = [counted(rows, start, start + 20 * SECOND) for start in (BASE_US, BASE_US + 20 * SECOND)]
    total = sum(n for part in parts for _, n in part.values())
    ((n, count),) = found[BASE_US]
    assert (int(str(n)), count) == (total, sum(map(len, parts)))


def planned(case: Case, schemas: dict[str, Schema]) -> Plan:
    made: dict[str, Plan] = {}

    def of(query: Query) -> Plan:
        asked = expand(query, lambda name: Read.of(name, name, made[name]))
        streams = asked.streams or streams_of(query)
        return asked.finish(plan_streams(asked.query, {stream: schemas[stream] for stream in streams}))

    for text in case.jobs:
        (job,) = parse(text)
        assert isinstance(job, CreateJob)
        made[job.name] = of(job.query)
    (select,) = parse(case.asked)
    assert isinstance(select, Select)
    return of(select.query)


ASKED = tuple(CASES) if "ELF_SPARK_ALL" in os.environ else ("larger windows", "jobs joined")


def test_as_duckdb(quick_spark: SparkSession, tmp_path: Path) -> None:
    table = pa.Table.from_pylist(rows())
    columns = tuple(Column(field.name, _TYPES.get(field.type, "text")) for field in table.schema)
    table = table.append_column("_ts", table["ts"].cast(pa.int64()))
    zoned = table.set_column(0, "ts", table["ts"].cast(pa.timestamp("us", "UTC")))
    pq.write_table(zoned, tmp_path / "rows.parquet")
    for number in range(3):
        view = side_view(number, "rows")
        quick_spark.read.parquet(str(tmp_path / "rows.parquet")).createOrReplaceTempView(view)
    log = connect()
    for name in ASKED:
        case = CASES[name]
        frame = quick_spark.sql(planned(case, {"log": Schema(columns, "ts")}).spark_sql)
        got = (frame.columns, plain([tuple(row) for row in frame.collect()]))
        assert difference(got, run_by_hand(log, by_hand(case.by_hand))) is None, name
    log.close()
