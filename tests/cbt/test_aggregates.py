"""The tree as users have it: raw rows in, values of aggregates out."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from elf.cbt import BufferTree

AGGREGATES = [("count", None), ("count", "n"), ("sum", "n"), ("avg", "n"), ("min", "x"), ("max", "t")]


def some_rows(rows: int, groups: int, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    numbers = rng.integers(-(2**62), 2**62, rows)
    return pa.table(
        {
            "word": pa.array([f"w{i}" for i in rng.integers(0, groups, rows)]),
            "code": pa.array(rng.integers(0, 3, rows), mask=rng.random(rows) < 0.1),
            "n": pa.array(numbers, mask=rng.random(rows) < 0.1),
            "x": pa.array(rng.integers(-1000, 1000, rows) / 4),
            "t": pa.array([f"text {i}" for i in numbers % 97]),
            "unused": pa.array([[1]] * rows),
        }
    )


def by_duckdb(rows: pa.Table) -> dict[object, tuple[object, ...]]:
    connection = duckdb.connect(config={"threads": 1})
    connection.register("rows", rows)
    sql = "SELECT word, code, COUNT(*), COUNT(n), SUM(n), MIN(x), MAX(t) FROM rows GROUP BY ALL"
    found = connection.sql(sql).fetchall()
    connection.close()
    # DuckDB's own quotient of a HUGEINT is off by the last bit at times: Python rounds once.
    return {
        (w, c): (rows, n, s, None if s is None else float(s) / n, x, t) for w, c, rows, n, s, x, t in found
    }


def small_tree() -> BufferTree:
    return BufferTree(keys=["word", "code"], aggregates=AGGREGATES, node_bytes_max=4000, fanout=4)


@pytest.mark.parametrize("groups", [5, 300, 100_000])
def test_equals_duckdb(groups: int) -> None:
    rows = some_rows(6000, groups)
    tree = small_tree()
    for batch in rows.to_batches(max_chunksize=700):
        tree.insert(batch)
    tree.check()
    table = tree.flush()
    names = ["word", "code", "count", "count_n", "sum_n", "avg_n", "min_x", "max_t"]
    assert table.column_names == names
    columns = [column.to_pylist() for column in table.columns]
    assert {row[:2]: row[2:] for row in zip(*columns, strict=True)} == by_duckdb(rows)
    assert table.num_rows == len(by_duckdb(rows))
    assert pa.Table.from_batches(list(tree.batches())).equals(table.combine_chunks())
    assert tree.flush().equals(table), "flush must keep the state"


def test_one_big_batch_equals_many_small_ones() -> None:
    rows = some_rows(3000, 1000)
    one, many = small_tree(), small_tree()
    one.insert(rows)
    for batch in rows.to_batches(max_chunksize=10):
        many.insert(batch)
    one.check()
    many.check()
    assert (
        one.flush()
        .sort_by([("word", "ascending"), ("code", "ascending")])
        .equals(many.flush().sort_by([("word", "ascending"), ("code", "ascending")]))
    )


def test_nothing() -> None:
    tree = small_tree()
    assert tree.flush().num_rows == 0
    assert tree.flush().column_names[:3] == ["word", "code", "count"]
    assert list(tree.batches()) == []
    assert (tree.rows, tree.nbytes) == (0, 0)
    tree.insert(some_rows(0, 1))
    tree.check()
    assert tree.flush().num_rows == 0


def test_no_keys_is_one_group() -> None:
    tree = BufferTree(keys=[], aggregates=[("count", None), ("sum", "n")], node_bytes_max=100)
    assert tree.flush().num_rows == 0
    for start in range(0, 1000, 100):
        tree.insert(pa.table({"n": list(range(start, start + 100))}))
        tree.check()
    assert tree.flush().to_pylist() == [{"count": 1000, "sum_n": Decimal(499_500)}]


def test_keys_of_any_bytes() -> None:
    keys = [bytes([i, j]) for i in (0, 1, 255) for j in range(256)] + [b"", b"\0", b"\0\0\0", None]
    tree = BufferTree(keys=["k"], aggregates=[("count", None)], node_bytes_max=500, fanout=4)
    for _ in range(3):
        tree.insert(pa.table({"k": pa.array(keys, pa.binary())}))
        tree.check()
    table = tree.flush()
    assert Counter(table["k"].to_pylist()) == Counter(keys)
    assert set(table["count"].to_pylist()) == {3}


def test_huge_keys_among_small_ones() -> None:
    huge = [str(i) * (1 << 20) for i in range(6)]
    tree = BufferTree(keys=["k"], aggregates=[("count", None)], node_bytes_max=10_000, fanout=4)
    for _ in range(2):
        tree.insert(pa.table({"k": huge + [str(i) for i in range(2000)]}))
        tree.check()
    table = tree.flush()
    assert table.num_rows == 2006
    assert set(table["count"].to_pylist()) == {2}
    assert tree.nbytes < 1 << 20, "buffers below the root are compressed"


def test_a_column_of_nulls_gets_its_type_later() -> None:
    tree = BufferTree(keys=["k"], aggregates=[("count", None), ("max", "x")], node_bytes_max=50, fanout=4)
    tree.insert(pa.table({"k": pa.nulls(40), "x": pa.nulls(40)}))
    tree.insert(pa.table({"k": [f"k{i}" for i in range(40)], "x": pa.array(range(40), pa.int64())}))
    tree.insert(pa.table({"k": pa.nulls(2), "x": pa.nulls(2)}))
    tree.check()
    groups = {row["k"]: row for row in tree.flush().to_pylist()}
    assert groups[None] == {"k": None, "count": 42, "max_x": None}
    assert groups["k7"] == {"k": "k7", "count": 1, "max_x": 7}


def test_narrow_numbers_join_wide_ones() -> None:
    tree = BufferTree(keys=["k"], aggregates=[("count", None)])
    tree.insert(pa.table({"k": pa.array([1, 2], pa.int64())}))
    tree.insert(pa.table({"k": pa.array([1], pa.int16())}))
    assert sorted(tree.flush()["count"].to_pylist()) == [1, 2]
    with pytest.raises(ValueError, match="do not fit"):
        tree.insert(pa.table({"k": pa.array([2**64 - 1], pa.uint64())}))


def test_zeros_and_nans_are_one_key_each() -> None:
    tree = BufferTree(keys=["k"], aggregates=[("count", None)])
    tree.insert(pa.table({"k": [0.0, -0.0, float("nan"), -float("nan")]}))
    tree.insert(pa.table({"k": [-0.0, float("nan")]}))
    assert sorted(tree.flush()["count"].to_pylist()) == [3, 3]


def test_reading_while_writing_is_an_error() -> None:
    tree = small_tree()
    tree.insert(some_rows(3000, 3000))
    reader = tree.batches()
    next(reader)
    tree.insert(some_rows(1, 1))
    with pytest.raises(RuntimeError, match="changed"):
        next(reader)


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        (pa.table({"word": ["a"]}), "no column n"),
        (pa.table({"word": ["a"], "n": ["1"]}), "has no sum"),
        (pa.table({"word": [["a"]], "n": [1]}), "was string before"),
        (pa.table({"word": [1], "n": [1]}), "was string before"),
        (pa.table({"word": [1.5], "n": [1]}), "was string before"),
    ],
)
def test_rows_that_do_not_fit(rows: pa.Table, text: str) -> None:
    tree = BufferTree(keys=["word"], aggregates=[("sum", "n")])
    tree.insert(pa.table({"word": ["a"], "n": [1]}))
    with pytest.raises(ValueError, match=text):
        tree.insert(rows)
    assert tree.flush().to_pylist() == [{"word": "a", "sum_n": Decimal(1)}]


@pytest.mark.parametrize(
    ("keys", "aggregates"),
    [
        (["count"], [("count", None)]),
        (["k"], [("median", "x")]),
        (["k"], [("sum", None)]),
        (["k"], [("count_star", "x")]),
        (["k", "k"], [("max", "x")]),
    ],
)
def test_what_no_tree_can_be(keys: list[str], aggregates: list[tuple[str, str | None]]) -> None:
    with pytest.raises(ValueError):
        BufferTree(keys=keys, aggregates=aggregates)
