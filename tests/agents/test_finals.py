"""A user's final function over the rows of windows: each is one call, and what it cannot do is said."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest

from agents.committing import windowcommits
from agents.committing.finals import FinalFunction, running, why_not
from agents.committing.status import STATUS_SCHEMA
from agents.disk.store import Store
from agents.tasks.streams import FunctionsAt
from elf.batch import decode, encode
from elf.errors import UserError
from elf.fields import replace
from elf.job.commits import WindowCommit
from elf.ql.plan import Function, Plan
from elf.ql.planner import plan_text
from elf.ql.user_functions import functions_of, with_function
from elf.schema import Column, Schema
from lab.chaos.engine import planned as with_plan
from tests.support.window_commits import Everything, commit, effect, spec

SCHEMA = Schema((Column("ts", "timestamp"), Column("product", "text"), Column("n", "bigint")), "ts")
QUERY = "SELECT product, SUM(n) AS clicks FROM rows GROUP BY product"
DROPS = "return batch.filter(pa.array([p != 'a' for p in batch['product'].to_pylist()]))"
ROWS = [(0, "a", 1), (0, "b", 2), (1, "c", 3), (1, "bomb", 4), (2, "a", 5), (2, "b", 6)]


def final(body: str) -> Function:
    return Function("final", f"import time\nimport pyarrow as pa\ndef final(batch):\n    {body}\n", "f.py")


def planned(body: str = DROPS, query: str = f"{QUERY} WINDOWING 1 SECONDS") -> Plan:
    return with_function(plan_text(query, SCHEMA), final(body))


def table(rows: list[tuple[int, str, int]] = ROWS) -> pa.Table:
    starts, products, clicks = zip(*rows, strict=True)
    bounds = [pa.array([(s + more) * 1_000_000 for s in starts], pa.timestamp("us")) for more in (0, 1)]
    numbers = pa.array(clicks, pa.int64()).cast(pa.decimal128(38, 0))
    return pa.table([*bounds, products, numbers], names=["window_start", "window_end", "product", "clicks"])


def statuses(count: int = 3) -> pa.Table:
    plain = {field.name: None for field in STATUS_SCHEMA} | {"function_failed": False}
    rows = [plain | {"window_start": n * 1_000_000, "window_end": (n + 1) * 1_000_000} for n in range(count)]
    return pa.Table.from_pylist(rows, schema=STATUS_SCHEMA)


def treated(at: FunctionsAt, body: str) -> tuple[list[tuple[str, int]], list[bool], FinalFunction]:
    with running(final(body), 2, at) as function:
        status, rows = function(statuses(), table())
    assert rows.schema == table().schema
    found = list(zip(rows["product"].to_pylist(), map(int, rows["clicks"].to_pylist()), strict=True))
    return found, status["function_failed"].to_pylist(), function


def test_each_window_is_one_call_and_any_rows_come_back(at: FunctionsAt) -> None:
    found, failed, _ = treated(at, DROPS)
    assert found == [("b", 2), ("c", 3), ("bomb", 4), ("b", 6)]
    assert failed == [False, False, False]
    found, _, _ = treated(at, "return batch.take([1, 0, 0])")
    assert found[:3] == [("b", 2), ("a", 1), ("a", 1)]
    found, _, _ = treated(at, "return batch.slice(0, 0)")
    assert found == []
    ten = "pa.array([int(n) * 10 for n in batch['clicks'].to_pylist()], pa.int64())"
    found, _, _ = treated(at, f"return pa.table({{**batch.to_pydict(), 'clicks': {ten}, 'more': [1, 2]}})")
    assert found[0] == ("a", 10), "whole numbers do for sums, and columns of its own are left out"


def test_without_windows_all_rows_are_one_call(at: FunctionsAt) -> None:
    rows = table().select(["product", "clicks"])
    status = pa.Table.from_pylist([{"function_failed": False}], schema=STATUS_SCHEMA)
    with running(final("return batch.slice(0, 1)"), 2, at) as function:
        assert function(status, rows)[1].num_rows == 1
    with running(final("return 1"), 2, at) as function:
        status, same = function(status, rows)
    assert (status["function_failed"].to_pylist(), same.num_rows) == ([True], 6)


def test_what_it_fails_on_keeps_its_rows_and_says_so(at: FunctionsAt) -> None:
    body = "'bomb' in batch['product'].to_pylist() and 1 / 0; return batch.slice(0, 1)"
    found, failed, function = treated(at, body)
    assert failed == [False, True, True], "after the first failure it is not tried again"
    assert found == [("a", 1), ("c", 3), ("bomb", 4), ("a", 5), ("b", 6)]
    assert function.failure.startswith("f.py:4: ZeroDivisionError: division by zero in `'bomb' in batch")
    assert " at row 1 of the window from 1970-01-01 00:00:01 to 1970-01-01 00:00:02" in function.failure
    assert "; its input is in " in function.failure


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return None", "f.py: it returns NoneType, not a pyarrow.RecordBatch or Table of the window"),
        ("return batch.select(['product'])", "final() gives the columns product; window_start, window_end"),
        (
            "return batch.set_column(3, 'clicks', pa.array(['x'] * len(batch)))",
            "gives a column of another type",
        ),
        (
            "return batch.set_column(0, 'window_start', pa.array([0] * len(batch), pa.timestamp('us')))"
            " if 'c' in batch['product'].to_pylist() else batch",
            "final() gives a row with a window_start that it was not given",
        ),
        ("return batch.take(list(range(len(batch))) * 200_000)", "it returns 400000 rows; at most 300000"),
        (
            "return batch.set_column(2, 'product', pa.array(['x' * 5_000_000] * len(batch)))",
            " bytes more than it gets; at most 8388608 are taken",
        ),
        ("return len(batch) % 2 or [] + 1", "f.py:4: TypeError: "),
        ("x = bytearray(1 << 30)", "f.py:4: MemoryError: it wants more than its 48 MiB"),
        ("import os; os._exit(3)", "its process ended in the middle of a call (exit status 3)"),
    ],
)
def test_what_is_no_result(at: FunctionsAt, body: str, said: str) -> None:
    found, failed, function = treated(at, body)
    assert said in function.failure
    assert any(failed)
    assert len(found) == 6


def test_one_that_blocks_holds_windows_up_once(at: FunctionsAt) -> None:
    began = time.monotonic()
    _, failed, function = treated(at, "time.sleep(60)")
    assert failed == [True, True, True]
    assert "it did not return within 0.3 s" in function.failure
    assert time.monotonic() - began < 20


def test_it_is_tried_on_the_last_window_with_rows(at: FunctionsAt) -> None:
    store = Store(":memory:")
    body = "'b' in batch['product'].to_pylist() and 1 / 0; return batch"
    assert why_not(planned(body), "job", store, at) == "", "there is no window yet: no rows, in its columns"
    assert "f.py: final() gives the columns (none); window_start" in why_not(
        planned("return pa.table({})"), "job", store, at
    )
    for end, rows in ((3, table()), (4, table().slice(0, 0))):
        status = encode(statuses())
        store.commit_windows(WindowCommit("job", 0, end * 1_000_000, 0, 1, False, status, encode(rows), b""))
    said = why_not(planned(body), "job", store, at)
    assert said.startswith("f.py:4: ZeroDivisionError")
    assert " at row 1 of the window from 1970-01-01 00:00:02 to 1970-01-01 00:00:03" in said
    other = "SELECT product, COUNT(*) AS clicks FROM rows GROUP BY product WINDOWING 1 SECONDS"
    assert why_not(planned(body, other), "job", store, at) == "", "those are rows of another query"
    store.close()


def test_a_window_that_is_committed_is_not_given_to_it_again() -> None:
    store, job = Store(":memory:"), spec(4, 2)
    job = with_plan(job, replace(job.plan, final=final("return batch")))
    rows = [commit(0, 4, 0, [])]
    for row in rows:
        store.commit_panes(row)
    wanted, calls = effect(job, 0, 4, rows), []

    def treat(status: pa.Table, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
        calls.append(status.num_rows)
        return status, rows

    made, new = windowcommits.made_windows(wanted, store, Everything(), None, treat)
    assert new
    store.commit_windows(made)
    again, new = windowcommits.made_windows(wanted, store, Everything(), None, treat)
    assert (decode(again.status).num_rows, new, len(calls)) == (calls[0], False, 1)
    store.close()


def test_which_jobs_can_have_one() -> None:
    for query, said in (
        (f"{QUERY} WINDOWING SESSION 10 SECONDS", "over sessions is not supported yet"),
        (f"{QUERY} WINDOWING 10 ROWS", "over windows of rows is not supported yet"),
        (f"{QUERY} ORDER BY clicks DESC LIMIT 3 APPROXIMATE WINDOWING 1 SECONDS", "APPROXIMATE rows"),
    ):
        with pytest.raises(UserError, match=said):
            planned(query=query)
    both = with_function(planned(), Function("map", "def map(batch): return batch", "m.py"))
    assert [one.kind for one in functions_of(both)] == ["map", "final"]
    assert both.fragment != planned().fragment
    assert planned().fragments == plan_text(planned().sql, SCHEMA).fragments, "it needs no flow of its own"
