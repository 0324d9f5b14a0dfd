"""The live answer and Spark's against DuckDB over the whole table, with the question written by hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from elf.ql.planner import plan_text
from tests.ql.cases import Case, prepare, queries, scalars
from tests.ql.pipeline import Result, difference, plain, run_by_hand, run_live
from tests.ql.table import SCHEMA, rows

TABLE = rows()


CASES = (*queries(), *scalars())


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    prepare(connection, TABLE)
    yield connection
    connection.close()


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("spark")
    session = (
        SparkSession.builder.master("local[1]")
        .appName("tests.ql")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "1")
        # Many small queries: compiling each would take longer than running it.
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    _register(session, folder)
    yield session
    session.stop()


def _register(session: SparkSession, folder: Path) -> None:
    zoned = pa.table(
        {
            name: TABLE[name].cast(pa.timestamp("us", "UTC")) if name in ("ts", "seen") else TABLE[name]
            for name in TABLE.column_names
        }
    )
    path = folder / "rows.parquet"
    pq.write_table(zoned.append_column("_ts", TABLE["ts"].cast(pa.int64())), path)
    session.read.parquet(str(path)).createOrReplaceTempView("rows")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_live_answer_is_that_of_duckdb(con: duckdb.DuckDBPyConnection, case: Case) -> None:
    plan = plan_text(case.elf, SCHEMA)
    wanted = run_by_hand(con, case.by_hand)
    assert wanted[1] or "nowhere" in case.elf
    for parts, seed in ((1, 0), (3, 1), (3, 2)):
        assert difference(run_live(con, plan, TABLE, parts=parts, seed=seed), wanted) is None


def test_spark_answers_alike(con: duckdb.DuckDBPyConnection, spark: SparkSession) -> None:
    wrong = []
    for case in CASES:
        frame = spark.sql(plan_text(case.elf, SCHEMA).spark_sql)
        result: Result = (frame.columns, plain([tuple(row) for row in frame.collect()]))
        found = difference(result, run_by_hand(con, case.by_hand))
        if found is not None:
            wrong.append(f"{case.elf}\n    {found}")
    assert not wrong, "\n".join(wrong)
