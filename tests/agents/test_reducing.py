"""A user's reduce function over the groups of panes: each pane is one call, and what it cannot do is said."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from agents.committing import panecommits
from agents.committing.panecommits import Makers
from agents.committing.reducing import ReduceFunction, reducing, why_not
from agents.disk import groupstore
from agents.disk.store import Store
from agents.tasks.streams import FunctionsAt
from elf.batch import decode, encode
from elf.errors import ElfBug, UserError
from elf.fields import replace
from elf.job.commits import PaneCommit
from elf.job.contributions import Piece
from elf.job.counters import counters
from elf.job.effects import CommitPanes
from elf.job.group import records as grouplog
from elf.job.spec import Flow
from elf.ql.plan import Fragment, Function, Plan
from elf.ql.planner import plan_text
from elf.ql.user_functions import functions_of, with_function
from elf.schema import Column, Schema
from lab.chaos.engine import here

FLOW = 24 * "f"
SCHEMA = Schema((Column("ts", "timestamp"), Column("product", "text"), Column("n", "bigint")), "ts")
QUERY = "SELECT product, SUM(n) AS clicks, COUNT(*) AS rows FROM rows GROUP BY product WINDOWING 1 SECONDS"
ROWS = [(0, "b", 2), (0, "a", 1), (1, "c", 3), (1, "bomb", 4), (2, "b", 6), (2, "a", 5)]
FIRST = "return batch.slice(0, 1)"


def reduce(body: str) -> Function:
    text = (
        f"import time\nimport pyarrow as pa\nimport pyarrow.compute as pc\ndef reduce(batch):\n    {body}\n"
    )
    return Function("reduce", text, "r.py")


def planned(body: str = FIRST, query: str = QUERY) -> Plan:
    return with_function(plan_text(query, SCHEMA), reduce(body))


def groups(rows: list[tuple[int, str, int]] = ROWS) -> pa.Table:
    panes, products, clicks = zip(*rows, strict=True)
    sums = pa.array(clicks, pa.int64()).cast(pa.decimal128(38, 0))
    counts = pa.array([1] * len(rows), pa.int64())
    return pa.table([panes, products, counts, sums], names=["_pane", "k0", "s0_count", "s1_sum"])


def plain(table: pa.Table) -> list[tuple[int, str, int]]:
    columns = (table[name].to_pylist() for name in ("_pane", "k0", "s1_sum"))
    return [(pane, product, int(clicks)) for pane, product, clicks in zip(*columns, strict=True)]


def py_reduce(fragment: Fragment) -> ReduceFunction:
    """A fragment's reduce function, without a process."""
    assert fragment.reduce is not None
    return ReduceFunction(fragment, fragment.reduce, here(fragment.reduce.function))


def reduced(at: FunctionsAt, body: str) -> tuple[list[tuple[int, str, int]], tuple[int, ...], ReduceFunction]:
    with reducing(planned(body).fragment, at) as function:
        assert function is not None
        made, left = function(groups())
    assert made.schema == groups().schema
    return plain(made), left, function


def test_each_pane_is_one_call_with_the_names_of_the_query(at: FunctionsAt) -> None:
    found, left, _ = reduced(at, FIRST)
    assert found == [(0, "a", 1), (1, "bomb", 4), (2, "a", 5)], "groups come in the order of their keys"
    assert left == ()
    found, _, _ = reduced(at, "return batch.filter(pc.greater(batch['clicks'], 3))")
    assert found == [(1, "bomb", 4), (2, "a", 5), (2, "b", 6)]
    most = "pa.array([min(int(n), 3) for n in batch['clicks'].to_pylist()], pa.int64())"
    found, _, _ = reduced(at, f"return pa.table({{**batch.to_pydict(), 'clicks': {most}, 'more': [1, 2]}})")
    assert [n for _, _, n in found] == [1, 2, 3, 3, 3, 3], "whole numbers do for sums, other columns go"
    assert reduced(at, "return batch.slice(0, 0)")[0] == []
    assert reduced(at, "assert batch.schema.names == ['product', 'clicks', 'rows']; return batch")[1] == ()


def test_what_it_fails_on_is_as_it_was_and_named(at: FunctionsAt, tmp_path: Path) -> None:
    body = f"'bomb' in batch['product'].to_pylist() and 1 / 0; {FIRST}"
    found, left, function = reduced(at, body)
    assert left == (1, 2), "after the first failure it is not tried again"
    assert found == [(0, "a", 1), (1, "bomb", 4), (1, "c", 3), (2, "a", 5), (2, "b", 6)]
    assert function.failure.startswith("r.py:5: ZeroDivisionError: division by zero in `'bomb' in batch")
    assert " at row 0 of the pane from 1970-01-01 00:00:01 to 1970-01-01 00:00:02" in function.failure
    (kept,) = tmp_path.glob("*.arrow")
    assert f"; its input is in {kept}" in function.failure
    with pa.ipc.open_file(kept) as file:
        assert file.read_all()["product"].to_pylist() == ["bomb", "c"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return None", "r.py: it returns NoneType, not a pyarrow.RecordBatch or Table of the pane"),
        (
            "return batch.select(['product'])",
            "reduce() gives the columns product; clicks, rows must be",
        ),
        ("return batch.set_column(1, 'clicks', pa.array(['x', 'y']))", "gives a column of another type"),
        (
            "return batch.set_column(2, 'rows', pa.array([1, None]))",
            "r.py: reduce() gives NULL in rows, which is a count of the pane from 1970-01-01 00:00:00",
        ),
        ("return batch.take([0, 0])", "r.py: reduce() gives a group twice (product = 'a'): it may leave"),
        (
            "return batch.set_column(0, 'product', pa.array(['other', 'b']))",
            "reduce() gives a group that it was not given (product = 'other')",
        ),
        ("return batch.take(list(range(2)) * 200_000)", "it returns 400000 rows; at most 300000"),
        ("x = bytearray(1 << 30)", "r.py:5: MemoryError: it wants more than its 48 MiB"),
        ("import os; os._exit(3)", "its process ended in the middle of a call (exit status 3)"),
    ],
)
def test_what_is_no_result(at: FunctionsAt, body: str, said: str) -> None:
    found, left, function = reduced(at, body)
    assert said in function.failure
    assert left == (0, 1, 2)
    assert found == sorted(plain(groups()))


def test_one_that_blocks_holds_panes_up_once(at: FunctionsAt) -> None:
    began = time.monotonic()
    _, left, function = reduced(at, "time.sleep(60)")
    assert left == (0, 1, 2)
    assert "it did not return within 0.3 s" in function.failure
    assert time.monotonic() - began < 20


# -- commits -------------------------------------------------------------------------------------------------

KEEP_TWO = (
    "return batch.take(pc.select_k_unstable(batch, 2, [('clicks', 'descending'), ('product', 'ascending')]))"
)
LIMITED = (
    "most = pa.scalar(7, batch['clicks'].type); "
    "return batch.set_column(1, 'clicks', pc.min_element_wise(batch['clicks'], most))"
)
SEVERAL = "return batch.filter(pc.greater(batch['clicks'], 4))"
REDUCED: dict[str, Callable[[Counter[str]], dict[str, int]]] = {
    KEEP_TWO: lambda all_: dict(sorted(all_.items(), key=lambda one: (-one[1], one[0]))[:2]),
    LIMITED: lambda all_: {key: min(n, 7) for key, n in all_.items()},
    SEVERAL: lambda all_: {key: n for key, n in all_.items() if n > 4},
}


def flow_of(body: str) -> Flow:
    return Flow(FLOW, planned(body).fragment, b"", "here")


def work(
    flow: Flow, start: int, end: int, member: int, rows: list[tuple[int, str, int]], revision: int
) -> CommitPanes:
    panes = pa.array(sorted({pane for pane, _, _ in rows}), pa.int64()).to_numpy()
    counts = encode(counters(panes, rows_in=len(rows))) if rows else b""
    piece = Piece(start, end, 1 << member, counts, encode(groups(rows)) if rows else b"")
    members = (2 << member) - 1
    return CommitPanes(flow, start, end, (piece,), revision, members, 1)


@pytest.mark.parametrize("body", REDUCED)
@pytest.mark.parametrize("seed", range(4))
def test_revisions_are_those_of_all_rows_whatever_the_function(body: str, seed: int) -> None:
    """What is committed of a pane is the function of everything in it, in whatever pieces and revisions it
    came: though for two of the functions reduce(reduce(a) ∪ b) is something else."""
    rng, store, flow = random.Random(seed), Store(":memory:"), flow_of(body)
    whole: dict[int, Counter[str]] = {pane: Counter() for pane in range(6)}
    bounds = [(0, 3), (3, 4), (4, 6)]
    for revision in range(3):
        for start, end in bounds:
            rows = [
                (pane, key, rng.randrange(1, 5))
                for pane in range(start, end)
                for key in "abcd"
                if rng.random() < 0.6
            ]
            for pane, key, n in rows:
                whole[pane][key] += n
            function = py_reduce(flow.fragment)
            done = panecommits.commit_panes(
                work(flow, start, end, revision, rows, revision), store, Makers(function)
            )
            assert done.seq
        for pane in whole:
            row = max(store.pane_commits(FLOW, pane, pane + 1), key=lambda row: row.revision)
            table = decode(row.payload) if row.payload else groups([(0, "", 0)]).slice(0, 0)
            got = {key: n for p, key, n in plain(table) if p == pane}
            assert got == REDUCED[body](whole[pane]), (revision, pane)
            assert not row.counters or sum(decode(row.counters)["unreduced"].to_pylist()) == 0
    store.close()


def test_a_failure_is_in_the_tally_and_what_failed_is_not_tried_again() -> None:
    store, flow = Store(":memory:"), flow_of(f"'bomb' in batch['product'].to_pylist() and 1 / 0; {FIRST}")
    ranged = replace(flow, fragment=replace(flow.fragment, range=(1, 2)))
    first = work(ranged, 0, 3, 0, ROWS, 0)
    (piece,) = first.pieces
    first = replace(first, pieces=(replace(piece, counters=b""),))
    function = py_reduce(ranged.fragment)
    assert function is not None
    row = panecommits.merged_panes(first, store, makers=Makers(function)).row
    assert "key range 2 of 2" in function.failure
    counted = decode(row.counters)
    assert dict(zip(counted["_pane"].to_pylist(), counted["unreduced"].to_pylist(), strict=True)) == {
        1: 1,
        2: 1,
    }
    assert sum(counted["rows_in"].to_pylist()) == 0, "rows are counted in the first key range"

    plainly = panecommits.merged_panes(replace(first, plain=True), store).row
    assert sorted(plain(decode(plainly.payload))) == sorted(plain(groups()))
    assert decode(plainly.counters)["unreduced"].to_pylist() == [1, 1, 1]
    with pytest.raises(ElfBug, match="nobody to run it"):
        panecommits.merged_panes(first, store)
    store.close()


def test_whoever_leads_next_makes_a_revision_of_what_was_before_the_function() -> None:
    """Records and states of a job group carry it; a reader's copy, which is never revised, does not."""
    flow, ours, theirs, later = flow_of(SEVERAL), Store(":memory:"), Store(":memory:"), Store(":memory:")
    function = py_reduce(flow.fragment)
    work_of = work(flow, 0, 1, 0, [(0, "a", 3), (0, "b", 9)], 0)
    first = panecommits.merged_panes(work_of, ours, 1, Makers(function)).row
    assert plain(decode(first.payload)) == [(0, "b", 9)]
    groupstore.apply(theirs, grouplog.encode(first))
    for kept in groupstore.newest(theirs, FLOW, 1 << 20):
        groupstore.apply(later, grouplog.encode(kept))
    more = work(flow, 0, 1, 1, [(0, "a", 2)], 1)
    second = panecommits.merged_panes(more, later, 2, Makers(function)).row
    assert sorted(plain(decode(second.payload))) == [(0, "a", 5), (0, "b", 9)]
    assert not first.bare.raw
    for store in (ours, theirs, later):
        store.close()


def test_it_is_tried_on_the_last_groups_that_are_here(at: FunctionsAt) -> None:
    store = Store(":memory:")
    body = "'b' in batch['product'].to_pylist() and 1 / 0; return batch"
    assert why_not(planned(body), (FLOW,), store, at) == "", "no pane yet: no groups, in their columns"
    assert "r.py: reduce() gives the columns (none); product, clicks, rows" in why_not(
        planned("return pa.table({})"), (FLOW,), store, at
    )
    for name, payload in (("other", groups()), (f"{FLOW}.copy", groups()), (f"{FLOW}.copy", None)):
        seq = store.last_seq(name)
        data = encode(payload) if payload is not None else b""
        store.commit_panes(PaneCommit(name, 3 * seq, 3 * seq + 3, 0, b"\1", 1, b"", data))
    said = why_not(planned(body), (FLOW,), store, at)
    assert said.startswith("r.py:5: ZeroDivisionError")
    assert " at row 1 of the pane from 1970-01-01 00:00:02 to 1970-01-01 00:00:03" in said
    assert why_not(planned(body), ("g",), store, at) == ""
    other = "SELECT n, MAX(product) AS clicks FROM rows GROUP BY n WINDOWING 1 SECONDS"
    assert why_not(planned("return batch", other), (FLOW,), store, at) == "", "those are other groups"
    store.close()


# -- plans ---------------------------------------------------------------------------------------------------


def columns(query: str) -> tuple[tuple[str, str], ...]:
    made = planned(query=query).fragment.reduce
    assert made is not None
    return made.columns


def test_which_jobs_can_have_one() -> None:
    select = "SELECT product, SUM(n) AS clicks FROM rows GROUP BY product"
    for query, said in (
        (f"{select} WINDOWING SESSION 10 SECONDS", "over sessions is not supported yet"),
        (f"{select} WINDOWING 10 ROWS", "over windows of rows is not supported yet"),
        (f"{select} ORDER BY clicks DESC LIMIT 3 APPROXIMATE WINDOWING 1 SECONDS", "APPROXIMATE rows"),
        (f"{select} WINDOWING 1 SECONDS EMIT CHANGES EVERY 1 SECONDS", "over early results"),
        (
            "SELECT product, COUNT(DISTINCT n) AS d FROM rows GROUP BY product",
            "over aggregates of",
        ),
        ("SELECT product, AVG(n) AS mean FROM rows GROUP BY product", "put each of them there"),
        ("SELECT SUM(n) AS clicks FROM rows GROUP BY product", "put each of them there"),
        (
            "SELECT product, SUM(n) + 1 AS clicks FROM rows GROUP BY product",
            "put each of them there",
        ),
        (f"{select} ORDER BY COUNT(*)", "put each of them there"),
    ):
        with pytest.raises(UserError, match=said):
            planned(query=query)
    assert columns(QUERY) == (("k0", "product"), ("s1_sum", "clicks"), ("s0_count", "rows"))
    assert columns("SELECT COUNT(*) AS n FROM rows") == (("s0_count", "n"),)
    assert columns("SELECT product AS p, AVG(n), SUM(n) AS s, COUNT(n) AS c FROM rows GROUP BY product")[
        0
    ] == ("k0", "p")
    inner = "SELECT MAX(c) AS most FROM (SELECT product, COUNT(*) AS c FROM rows GROUP BY product) AS x"
    assert columns(inner) == (("k0", "product"), ("s0_count", "c")), "the innermost groups"


def test_jobs_with_one_function_share_a_flow() -> None:
    one, two = planned(), planned(query=f"{QUERY} LIMIT 3")
    assert one.fragments == two.fragments
    assert one.fragments != planned(SEVERAL).fragments
    assert one.fragments != plan_text(QUERY, SCHEMA).fragments
    ranged = planned(query=QUERY.replace(" WINDOWING", " TREES 3 WINDOWING"))
    assert all(fragment.reduce is not None for fragment in ranged.fragments)
    others = [Function(kind, f"def {kind}(batch): return batch", f"{kind}.py") for kind in ("final", "map")]
    for function in others:
        one = with_function(one, function)
    assert [function.kind for function in functions_of(one)] == ["map", "reduce", "final"]
    assert isinstance(one.fragment, Fragment)
