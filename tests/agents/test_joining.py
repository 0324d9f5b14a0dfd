"""Rows of a job's table that are joined to a stream: what is read anew, what becomes of a job then, and which
queries cannot have it."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from agents.answering.joining import as_of, check_windows, renewed
from elf.batch import decode, encode
from elf.errors import UserError
from elf.fields import replace
from elf.ql.definition import Contents, Definition, least
from elf.ql.plan import Table, TableMoment
from elf.ql.tables import table_of
from elf.schema import Column, Schema

SCHEMA = Schema((Column("ip", "text"), Column("host", "text"), Column("ts", "timestamp")), "ts")
JOIN = "SELECT c.hits, COUNT(*) AS n FROM log LEFT JOIN TABLE client AS c USING (ip) GROUP BY c.hits"
MEMBER = "SELECT COUNT(*) AS n FROM log WHERE ip NOT IN (SELECT ip FROM TABLE client AS c)"
WINDOWS = " WINDOWING 10 SECONDS"


def rows(ips: Sequence[str], number: int, **columns: pa.Array) -> Table:
    named = {"ip": pa.array(ips, pa.string()), "hits": pa.array(range(len(ips)), pa.int64())} | columns
    data = encode(pa.table(named), small=True)
    return replace(
        table_of("TABLE client", data), name="c", moment=TableMoment("app", number, 1_000_000 * number)
    )


def defined(sql: str, table: Table) -> Definition:
    whole = Definition(sql + WINDOWS, (("log", SCHEMA),), (Contents.of(table),))
    return least(whole, whole.plan)


def test_later_rows_make_a_version_that_differs_in_nothing_else() -> None:
    had = defined(JOIN, rows(["a", "b"], 3))
    new = renewed(had, {"c": rows(["a", "b", "x"], 5)})
    assert new is not None
    assert replace(new, tables=()) == replace(had, tables=())
    (table,) = new.tables
    assert decode(table.data).to_pydict() == {"ip": ["a", "b", "x"], "hits": [0, 1, 2]}
    assert as_of(table) == "TABLE client as of 1970-01-01T00:00:05Z (result 5)"
    assert new.plan.identity != had.plan.identity
    (joined,) = new.plan.fragment.tables
    assert joined.moment == TableMoment("app", 5, 5_000_000)


def test_equal_rows_and_older_ones_make_none() -> None:
    had = defined(JOIN, rows(["a", "b"], 3))
    unread = pa.array([1.0, 2.0])
    assert renewed(had, {"c": rows(["a", "b"], 9, unread=unread)}) is None
    assert renewed(had, {"c": rows(["x"], 2)}) is None


def test_an_empty_list_of_a_table_gets_its_values_later() -> None:
    had = defined(MEMBER, rows([], 3))
    new = renewed(had, {"c": rows(["a"], 4)})
    assert new is not None
    assert replace(new, tables=()) == replace(had, tables=())
    (joined,) = new.plan.fragment.tables
    assert joined.rows == 1
    back = renewed(new, {"c": rows([], 5)})
    assert back is not None
    assert back.plan == had.plan


@pytest.mark.parametrize(
    ("table", "why"),
    [
        (
            table_of("TABLE client", encode(pa.table({"ip": ["a"]}), small=True)),
            "has no column hits any more",
        ),
        (rows(["a"], 5, hits=pa.array(["many"])), "its own rows would have others"),
        (rows(["a"], 5, ip=pa.array([7])), "cannot compare text with bigint"),
    ],
)
def test_a_table_with_other_columns_leaves_a_job_as_it_is(table: Table, why: str) -> None:
    table = replace(table, moment=TableMoment("app", 5))
    with pytest.raises(UserError, match=why):
        renewed(defined(JOIN, rows(["a", "b"], 3)), {"c": table})


@pytest.mark.parametrize(
    "windows",
    ["LANDMARK EVERY 10 SECONDS", "SESSION 10 SECONDS", "10 ROWS", "10 SECONDS, LANDMARK EVERY 10 SECONDS"],
)
def test_windows_that_go_on_have_no_rows_that_change(windows: str) -> None:
    table = rows(["a"], 3)
    plan = Definition(f"{JOIN} WINDOWING {windows}", (("log", SCHEMA),), (Contents.of(table),)).plan
    with pytest.raises(UserError, match="JOIN TABLE client: its rows are read anew between two windows"):
        check_windows(plan, {"c": table})
    check_windows(plan, {"c": replace(table, moment=None)})
