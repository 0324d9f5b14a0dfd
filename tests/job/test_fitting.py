"""Rows as a flow takes them: values that are none of its types are NULL, and counted."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from elf.job.ports import Wanted
from elf.job.worker.fitting import arrow_schema, fitted
from elf.ql.planner import plan_text
from elf.schema import Column, ColumnType, Schema

DAY = dt.datetime(2026, 11, 24)


@pytest.mark.parametrize(
    ("given", "kind", "wanted"),
    [
        ([1.0, 1.5, None, -3.0, 1e19, -1e19, float("nan"), float("inf")], "bigint", [1, None, None, -3]),
        ([1, None, 2**62 + 1], "double", [1.0, None, float(2**62)]),
        (["7", "-7", "7.0", "x", "", None, "99999999999999999999"], "bigint", [7, -7]),
        (["7", "-.5", "1e3", "x", None], "double", [7.0, -0.5, 1000.0]),
        (["true", "false", "1", None], "boolean", [True, False]),
        ([1.5, None], "text", ["1.5", None]),
        ([True, False], "text", ["true", "false"]),
        ([DAY, None], "text", ["2026-11-24 00:00:00.000000", None]),
        ([DAY], "bigint", [None]),
        (["2026-11-24"], "timestamp", [None]),
        ([True], "double", [None]),
    ],
)
def test_values_of_another_type(given: list[object], kind: ColumnType, wanted: list[object]) -> None:
    wanted = wanted + [None] * (len(given) - len(wanted))
    schema = arrow_schema([Column("x", kind), Column("not there", "text")])
    rows, lost = fitted(pa.table({"x": given, "other": given}), schema)
    assert rows["x"].to_pylist() == wanted
    assert lost == wanted.count(None) - given.count(None)
    assert rows["other"].type == pa.table({"x": given})["x"].type


def test_columns_that_fit_are_left_alone() -> None:
    table = pa.table({"x": pa.array([1], pa.int64())})
    rows, lost = fitted(table, arrow_schema([Column("x", "bigint")]))
    assert rows is table
    assert lost == 0


@pytest.mark.parametrize(
    ("kinds", "read"),
    [
        (("bigint", "double"), "double"),
        (("double", "bigint"), "double"),
        (("bigint", "text"), "text"),
        (("timestamp", "text"), "timestamp"),
        (("bigint", "bigint"), "bigint"),
    ],
)
def test_lines_are_read_as_the_widest_type_that_a_flow_wants(
    kinds: tuple[ColumnType, ...], read: str
) -> None:
    query = "SELECT x, COUNT(*) AS n FROM rows GROUP BY x WINDOWING 1 SECONDS"
    seen = ((Column("ts", "timestamp"), Column("x", kind)) for kind in kinds)
    wanted = Wanted.of(plan_text(query, Schema(columns, "ts")).fragment for columns in seen)
    assert {column.name: column.type for column in wanted.columns}["x"] == read
