"""SAMPLE and ON after FROM: what they are written out as. What they answer, live and by Spark, is among the
cases of ``test_differential``."""

from __future__ import annotations

import hashlib

import duckdb
import pyarrow as pa
import pytest

from elf.fields import replace
from elf.ql.looks import is_look, look_of
from elf.ql.plan import Plan
from elf.ql.planner import plan_text
from elf.ql.statements import parse_query
from elf.schema import Column, Schema
from tests.support.ql_pipeline import run_live

SCHEMA = Schema(
    (Column("ts", "timestamp"), Column("c_ip", "text"), Column("n", "bigint")), "ts", labels=("place", "role")
)


def planned(sql: str) -> Plan:
    return plan_text(sql, SCHEMA)


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
    plan = planned("SELECT c_ip, COUNT(*) AS n FROM x SAMPLE BY c_ip 25 % GROUP BY c_ip")
    names, rows = run_live(con, plan, table, parts=3, seed=1)
    assert names == ["c_ip", "n", "n_error"]
    assert {row[0]: row[1] for row in rows} == dict.fromkeys(chosen, 12)


def test_an_unnamed_estimate_keeps_its_text_as_its_name() -> None:
    plan = planned("SELECT SUM(n),  COUNT( * ) + 1, AVG(n) AS a FROM x SAMPLE 1 % ORDER BY COUNT(*)")
    assert plan.outputs == ("SUM(n)", "SUM(n)_error", "COUNT( * ) + 1", "a", "a_error")


def test_a_stream_and_a_column_may_be_called_sample() -> None:
    schema = replace(SCHEMA, columns=(*SCHEMA.columns, Column("sample", "bigint")))
    plan = plan_text("SELECT sample, COUNT(*) AS n FROM sample GROUP BY sample", schema)
    assert plan.outputs == ("sample", "n")
