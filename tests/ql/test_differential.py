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
from tests.support import ql_functions as functions
from tests.support.long import cases
from tests.support.ql_cases import Case, prepare, queries, scalars
from tests.support.ql_pipeline import Result, difference, plain, run_by_hand, run_live, same
from tests.support.ql_table import SCHEMA, rows

TABLE = rows()


_GENERATED = {"--ql-rows": 100, "--ql-seed": 1}
CASES = (*queries(), *scalars())


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    prepare(connection, TABLE)
    yield connection
    connection.close()


def _register(session: SparkSession, table: pa.Table, path: Path) -> None:
    zoned = pa.table(
        {
            name: table[name].cast(pa.timestamp("us", "UTC"))
            if pa.types.is_timestamp(table.field(name).type)
            else table[name]
            for name in table.column_names
        }
    )
    pq.write_table(zoned, path)
    session.read.parquet(str(path)).createOrReplaceTempView("rows")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_live_answer_is_that_of_duckdb(con: duckdb.DuckDBPyConnection, case: Case) -> None:
    plan = plan_text(case.elf, SCHEMA)
    wanted = run_by_hand(con, case.by_hand)
    assert wanted[1] or "nowhere" in case.elf
    for parts, seed in ((1, 0), (3, 1), (3, 2)):
        assert difference(run_live(con, plan, TABLE, parts=parts, seed=seed), wanted) is None


def test_spark_answers_alike(
    con: duckdb.DuckDBPyConnection, quick_spark: SparkSession, tmp_path: Path
) -> None:
    timed = TABLE.append_column("_ts", TABLE["ts"].cast(pa.int64()))
    _register(quick_spark, timed, tmp_path / "rows.parquet")
    wrong = []
    for case in CASES[:: cases(6, 1)]:
        frame = quick_spark.sql(plan_text(case.elf, SCHEMA).spark_sql)
        result: Result = (frame.columns, plain([tuple(row) for row in frame.collect()]))
        found = difference(result, run_by_hand(con, case.by_hand))
        if found is not None:
            wrong.append(f"{case.elf}\n    {found}")
    assert not wrong, "\n".join(wrong)


def test_spark_computes_every_function_alike(
    con: duckdb.DuckDBPyConnection, quick_spark: SparkSession, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """All functions on generated values; ``--ql-rows`` and ``--ql-seed`` for more."""
    count, seed = (int(pytestconfig.getoption(name, default=given)) for name, given in _GENERATED.items())
    table = functions.rows(count, seed)
    _register(quick_spark, table, tmp_path / "functions.parquet")
    con.register("rows", table)
    live = plain(con.sql(functions.values("duckdb")).fetchall())
    got = plain([tuple(row) for row in quick_spark.sql(functions.values("spark")).collect()])
    wrong: dict[str, str] = {}
    for mine, other in zip(live, got, strict=True):
        for trial, a, b in zip(("id", *functions.TRIALS), mine, other, strict=True):
            if not same(a, b):
                of = table.slice(int(str(mine[0])), 1).to_pylist()
                wrong.setdefault(trial, f"{trial}: DuckDB {a!r}, Spark {b!r}, of {of}")
    assert not wrong, "\n".join(wrong.values())
