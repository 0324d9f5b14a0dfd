"""Aggregates of one's own in the tree: merged by their class, as others are by sums."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

from elf.cbt import BufferTree
from elf.errors import UserError
from elf.examples.correlation import Correlation
from elf.keys import KeyHash, UInt64s, hash_keys
from elf.paos import PAO, Groups


def colliding(columns: Any) -> UInt64s:
    """Three hashes for all keys."""
    return hash_keys(columns) % np.uint64(3)


def tree(how: KeyHash = hash_keys, *more: Any) -> BufferTree:
    asked = [("count", None), (Correlation(), ("x", "y")), ("sum", "x"), ("max", "t"), *more]
    return BufferTree(["k", "t"], asked, node_bytes_max=4_096, fanout=4, hash_keys=how)


@pytest.mark.parametrize("how", [hash_keys, colliding])
def test_it_is_what_numpy_says_of_all_rows_however_they_came(how: KeyHash) -> None:
    rng, made, rows = np.random.default_rng(0), tree(how), defaultdict[tuple[int, str], list[Any]](list)
    for _ in range(12):
        k, x = rng.integers(0, 40, 300), rng.integers(0, 9, 300).astype(float)
        y, t = x + rng.integers(0, 5, 300), np.array(["a", "b"])[rng.integers(0, 2, 300)]
        missing = rng.random(300) < 0.1
        made.insert(pa.table({"k": k, "t": t, "x": pa.array(x, mask=missing), "y": y}))
        for key, text, one, other, gone in zip(k, t, x, y, missing, strict=True):
            if not gone:
                rows[int(key), str(text)].append((one, other))
    again = tree(how)
    again.load(made.dump())
    again.check()
    found = {(row["k"], row["t"]): row["correlation_x_y"] for row in again.flush().to_pylist()}
    assert found.keys() == rows.keys()
    for group, pairs in rows.items():
        x, y = np.array(pairs).T
        varies = len(pairs) > 1 and np.ptp(x) > 0 and np.ptp(y) > 0
        assert found[group] == (pytest.approx(np.corrcoef(x, y)[0, 1], abs=1e-9) if varies else None)


def test_a_group_without_a_whole_row_has_no_value() -> None:
    made = tree()
    made.insert(
        pa.table({"k": [1, 1], "t": ["a", "a"], "x": pa.array([1.0, None]), "y": pa.array([None, 2.0])})
    )
    assert made.flush()["correlation_x_y"].to_pylist() == [None]
    assert made.flush()["count"].to_pylist() == [2]


class Bounded(PAO):
    arguments = ("bigint",)
    state: ClassVar = {"n": "bigint"}
    returns = "bigint"

    def create(self, groups: Groups, *columns: pa.Array) -> Mapping[str, Any]:
        return {"n": groups.sum(columns[0])}

    def merge(self, groups: Groups, states: pa.RecordBatch) -> Mapping[str, Any]:
        merged = groups.sum(states["n"])
        if merged.max() > 10:
            raise ValueError("too many")
        return {"n": merged}

    def finalize(self, states: pa.RecordBatch) -> Any:
        return states["n"]


def test_one_that_fails_is_told_and_its_tree_can_be_emptied() -> None:
    made = BufferTree(["k"], [(Bounded(), "n")])
    for n in (4, 5, 6):
        made.insert(pa.table({"k": [1], "n": [n]}))
    with pytest.raises(UserError, match=r"Bounded.merge\(\) fails: ValueError\('too many'\)"):
        made.flush()
    made.empty()
    made.insert(pa.table({"k": [1, 1], "n": [4, 5]}))
    assert made.flush().to_pylist() == [{"k": 1, "bounded_n": 9}]


class Wrong(Bounded):
    returns = "decimal"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ((Correlation(), "x"), "Correlation takes 2 columns, not 1"),
        ((Wrong(), "n"), "Wrong.returns is one of bigint, double, text, boolean, timestamp, not 'decimal'"),
        ((Bounded, "n"), "no aggregate"),
        (("median", "n"), "no aggregate 'median' of 'n'"),
    ],
)
def test_what_cannot_be_is_refused(asked: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        BufferTree(["k"], [asked])
    with pytest.raises(ValueError, match="no column y"):
        tree().insert(pa.table({"k": [1], "t": ["a"], "x": [1.0]}))
