"""SAMPLE and ON after FROM: what they are written out as. What they answer, live and by Spark, is among the
cases of ``test_differential``."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import duckdb
import pyarrow as pa
import pytest

from elf.batch import encode
from elf.errors import QueryError
from elf.fields import replace
from elf.ql.looks import is_look, look_of
from elf.ql.plan import Plan, Table
from elf.ql.planner import plan_text
from elf.ql.statements import parse_query
from elf.ql.tables import table_of
from elf.schema import Column, Schema
from tests.support.ql_pipeline import run_live

SCHEMA = Schema(
    (Column("ts", "timestamp"), Column("c_ip", "text"), Column("n", "bigint")), "ts", labels=("place", "role")
)


def planned(sql: str, tables: Mapping[str, Table] | None = None) -> Plan:
    return plan_text(sql, SCHEMA, stream="x", tables=tables)


@pytest.mark.parametrize(
    ("short", "written"),
    [
        ("ON place = 'eu'", "WHERE _labels.place = 'eu'"),
        (
            "ON place = 'eu' OR role LIKE 'x%' WHERE n > 1",
            "WHERE n > 1 AND (_labels.place = 'eu' OR _labels.role LIKE 'x%')",
        ),
        (
            "AS a ON NOT role IN ('a', 'b') WHERE n > 1 OR n < 0",
            "WHERE (n > 1 OR n < 0) AND NOT _labels.role IN ('a', 'b')",
        ),
    ],
)
def test_on_is_a_condition_over_labels(short: str, written: str) -> None:
    query = "SELECT COUNT(*) FROM access {} WINDOWING 1 MINUTE"
    one, other = (planned(query.format(tail)) for tail in (short, written))
    assert one.fragment == other.fragment
    assert one.spark_sql == other.spark_sql


def test_a_look_may_be_at_some_agents() -> None:
    query = parse_query("SELECT c_ip FROM access ON place = 'eu' LIMIT 3")
    assert query is not None
    assert is_look(query)
    assert "_labels.place" in {column.name for column in look_of(query, SCHEMA).columns}


def test_all_rows_of_a_key_are_in_the_sample_or_none() -> None:
    keys = [f"10.0.0.{key}" for key in range(200)]
    chosen = {key for key in keys if hashlib.md5(key.encode()).hexdigest() < "40000000"}
    assert 20 < len(chosen) < 80
    table = pa.table({"c_ip": keys * 3, "n": list(range(600)), "ts": pa.array([0] * 600, pa.timestamp("us"))})
    con = duckdb.connect()
    plan = planned("SELECT n, COUNT(*) AS hits FROM x SAMPLE BY c_ip 25 % GROUP BY n")
    names, rows = run_live(con, plan, table, parts=3, seed=1)
    assert names == ["n", "hits", "hits_error"]
    lines = [line for line in range(600) if keys[line % 200] in chosen]
    assert {row[0]: row[1] for row in rows} == dict.fromkeys(lines, 4)


@pytest.mark.parametrize("number", ["GROUP BY 2 ORDER BY 3 DESC, 2", "GROUP BY ROLLUP (2, 4) ORDER BY 4, 1"])
def test_numbers_are_those_of_the_items_that_were_written(number: str) -> None:
    query = "SELECT COUNT(*) AS a, c_ip, AVG(n) AS b, LENGTH(c_ip) AS c FROM x SAMPLE 1 % {}"
    names: dict[str, str | int | None] = {"1": "a", "2": "c_ip", "3": "b", "4": "c"}
    one, other = (planned(query.format(tail)) for tail in (number, number.translate(str.maketrans(names))))
    assert one.final_sql == other.final_sql


def test_a_number_means_no_alias_of_another_item() -> None:
    query = "SELECT n, AVG(n) AS a, c_ip AS n FROM x SAMPLE 1 % GROUP BY c_ip, n ORDER BY {}"
    assert planned(query.format("3")).final_sql == planned(query.format("c_ip")).final_sql


@pytest.mark.parametrize("key", ["c_ip", "C_IP", "(c_ip)", "X.c_ip"])
@pytest.mark.parametrize("counted", ["c_ip", "x.C_ip", "(c_ip)", "x['c_ip']"])
def test_a_key_is_known_however_it_is_written(key: str, counted: str) -> None:
    plan = planned(f"SELECT COUNT(DISTINCT {counted}) AS n FROM x SAMPLE BY {key} 1 %")
    assert plan.outputs == ("n", "n_error")
    with pytest.raises(QueryError, match="counts a group of its own key"):
        planned(f"SELECT COUNT(*) FROM x SAMPLE BY {key} 1 % GROUP BY {counted}")


@pytest.mark.parametrize("group", ["1", "k", "ROLLUP (n, 1)", "GROUPING SETS ((n), (1, n))", "n, k"])
def test_a_group_of_the_samples_own_key_is_refused(group: str) -> None:
    for key in ("c_ip", "UPPER(c_ip)"):
        with pytest.raises(QueryError, match="counts a group of its own key"):
            planned(f"SELECT c_ip AS k, COUNT(*) FROM x SAMPLE BY {key} 1 % GROUP BY {group}")
    planned(f"SELECT c_ip AS k, COUNT(*) FROM x SAMPLE BY ts 1 % GROUP BY {group}")


def test_a_column_of_a_file_is_not_the_key_of_the_same_name() -> None:
    from_ = "FROM x SAMPLE BY x.c_ip 1 % JOIN 'f.csv' AS f ON n = f.m"
    tables = {"f": table_of("f.csv", encode(pa.table({"c_ip": ["a"], "m": [1]})))}
    planned(f"SELECT f.c_ip, COUNT(*) {from_} GROUP BY f.c_ip", tables)
    planned(f"SELECT COUNT(DISTINCT x.c_ip) {from_}", tables)
    with pytest.raises(QueryError, match="DISTINCT goes with SAMPLE where"):
        planned(f"SELECT COUNT(DISTINCT f.c_ip) {from_}", tables)


def test_an_unnamed_estimate_keeps_its_text_as_its_name() -> None:
    plan = planned("SELECT SUM(n),  COUNT( * ) + 1, AVG(n) AS a FROM x SAMPLE 1 % ORDER BY COUNT(*)")
    assert plan.outputs == ("SUM(n)", "SUM(n)_error", "COUNT( * ) + 1", "a", "a_error")


def test_a_stream_and_a_column_may_be_called_sample() -> None:
    schema = replace(SCHEMA, columns=(*SCHEMA.columns, Column("sample", "bigint")))
    plan = plan_text("SELECT sample, COUNT(*) AS n FROM sample GROUP BY sample", schema)
    assert plan.outputs == ("sample", "n")
