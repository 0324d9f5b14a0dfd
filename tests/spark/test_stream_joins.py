"""Two streams joined within an interval, over an archive: some windows, with partners beyond them, as DuckDB
has them over all rows."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
from pyspark.sql import SparkSession

from agents.committing.spans import micros
from elf.ql.planner import plan_streams
from elf.ql.statements import Select, parse
from spark_backend import offline
from tests.support.offline import archived, store
from tests.support.ql_pipeline import difference, plain, run_by_hand
from tests.support.stream_cases import BUYS, CASES, CLICKS, lines, rows


def test_partners_are_found_beyond_the_windows(spark: SparkSession, tmp_path: Path) -> None:
    connection = duckdb.connect(":memory:")
    sources = []
    for (stream, table), schema in zip(rows(5, 200).items(), (CLICKS, BUYS), strict=True):
        connection.register(stream, table)
        times = table[schema.event_time].cast(pa.int64()).to_pylist()
        store(tmp_path / "archive", lines(table), times, stream=stream)
        sources.append(archived(tmp_path / "archive", stream, timestamp=schema.event_time))
    asked_text, by_hand = CASES[2]
    (asked,) = parse(asked_text)
    assert isinstance(asked, Select)
    plan = plan_streams(asked.query, {"clicks": CLICKS, "buys": BUYS})
    names, wanted = run_by_hand(connection, by_hand)
    bounds = [(micros(row[0]), micros(row[1])) for row in wanted]
    windows = sorted(set(bounds))[1:3]
    found = offline.run(spark, plan, sources, windows)
    got = list(zip(*(column.to_pylist() for column in found.columns), strict=True))
    inside = [row for row, window in zip(wanted, bounds, strict=True) if window in windows]
    assert difference((found.column_names, plain(got)), (names, inside)) is None
