"""The buffer tree against a dict, step by step, with nodes so small that they split all the time."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from elf.aggregates import State
from elf.cbt import BufferTree
from elf.cbt.node import height
from elf.cbt.run import Layout
from elf.keys import KeyHash, UInt64s, hash_keys
from tests.support.drawer import Drawer

Key = tuple[int | None, str | None, float | None]
Row = tuple[Key, int, float | None, str | None]
Group = tuple[int, int, float | None, str | None]
Of = TypeVar("Of", float, str)

TYPES = [pa.int64(), pa.string(), pa.float64()]
STATES = (
    State("n", "sum", identity_zero=True),
    State("total", "sum"),
    State("low", "min"),
    State("last", "max"),
)
KEYS = st.tuples(
    st.none() | st.integers(0, 3),
    st.none() | st.sampled_from(["", "\0", "a\0", "a"]) | st.integers(0, 40).map("key {}".format),
    st.sampled_from([None, 0.0, math.nan, 1.0]),
)
ROWS = st.lists(
    st.tuples(
        KEYS,
        st.integers(-(2**62), 2**62),
        st.none() | st.sampled_from([math.nan, 1.5, -2.0, 0.0]),
        st.none() | st.sampled_from(["", "x", "y" * 50]),
    ),
    max_size=40,
)


def colliding(columns: Sequence[pa.Array | pa.ChunkedArray]) -> UInt64s:
    """Four hashes for all keys, the two ends of the range among them."""
    hashes = hash_keys(columns) % np.uint64(4)
    return np.take(np.array([0, 1 << 63, 5, (1 << 64) - 1], dtype=np.uint64), hashes)


def one_hash(columns: Sequence[pa.Array | pa.ChunkedArray]) -> UInt64s:
    return np.full(len(columns[0]), 7, dtype=np.uint64)


def partials_of(rows: list[Row]) -> pa.Table:
    columns = [pa.array([row[0][i] for row in rows], kind) for i, kind in enumerate(TYPES)]
    columns.append(pa.array([1] * len(rows), pa.int64()))
    columns += [
        pa.array([row[1] for row in rows], pa.int64()),
        pa.array([row[2] for row in rows], pa.float64()),
        pa.array([row[3] for row in rows], pa.string()),
    ]
    return pa.table(columns, names=["pane", "word", "real", *(state.name for state in STATES)])


def pick(choose: Callable[[Of, Of], bool], left: Of | None, right: Of | None) -> Of | None:
    if left is None or right is None:
        return right if left is None else left
    return left if choose(left, right) else right


def less(left: float, right: float) -> bool:
    """NaN is the greatest."""
    return not math.isnan(left) and (math.isnan(right) or left < right)


def known(key: Key) -> tuple[Any, ...]:
    """A key that equals itself, NaN or not."""
    return tuple("NaN" if part != part else part for part in key)


class Machine(RuleBasedStateMachine):
    hash_keys: KeyHash = staticmethod(hash_keys)

    memory_max_bytes: int | None = None

    def __init__(self) -> None:
        super().__init__()
        self.store = Drawer()
        self.tree = self.fresh()
        self.model: dict[tuple[Any, ...], Group] = {}

    def fresh(self) -> BufferTree:
        names = ["pane", "word", "real"]
        return BufferTree.of_partials(
            names,
            STATES,
            node_bytes_max=400,
            fanout=4,
            hash_keys=self.hash_keys,
            memory_max_bytes=self.memory_max_bytes,
            store=self.store if self.memory_max_bytes else None,
        )

    def read(self, table: pa.Table) -> dict[tuple[Any, ...], Group]:
        """Groups as a dict; each only once, in the order of their hashes."""
        hashes = self.hash_keys(table.columns[:3]).tolist() if table.num_rows else []
        assert hashes == sorted(hashes)
        columns = [column.to_pylist() for column in table.columns]
        groups = {known(row[:3]): row[3:] for row in zip(*columns, strict=True)}
        assert len(groups) == table.num_rows
        return groups

    @rule(rows=ROWS)
    def insert(self, rows: list[Row]) -> None:
        self.tree.insert_partials(partials_of(rows))
        for key, total, low, last in rows:
            n, t, lo, la = self.model.get(known(key), (0, 0, None, None))
            smallest, largest = pick(less, lo, low), pick(operator.gt, la, last)
            self.model[known(key)] = (n + 1, t + total, smallest, largest)

    @rule()
    def flush(self) -> None:
        assert repr_of(self.read(self.tree.partials())) == repr_of(self.model)

    @rule()
    def leaf_by_leaf(self) -> None:
        batches = list(self.tree.batches())
        groups = self.read(pa.Table.from_batches(batches)) if batches else {}
        assert repr_of(groups) == repr_of(self.model)

    @rule()
    def empty(self) -> None:
        self.tree.empty()
        self.model.clear()
        assert not self.store.kept

    @rule(rows_max=st.integers(0, 100))
    def work(self, rows_max: int) -> None:
        self.tree.work(rows_max)

    @rule()
    def crash(self) -> None:
        data = self.tree.dump()
        rows, self.store = self.tree.rows, Drawer()
        self.tree = self.fresh()
        self.tree.load(data)
        assert self.tree.rows == rows
        assert self.tree.dump() == data

    @rule(below=st.integers(0, 4))
    def seal(self, below: int) -> None:
        taken = self.read(self.tree.split_off("pane", below))
        sealed = {key for key in self.model if key[0] is not None and key[0] < below}
        assert repr_of(taken) == repr_of({key: self.model.pop(key) for key in sealed})

    @invariant()
    def sound(self) -> None:
        self.tree.check()
        assert (self.tree.rows == 0) == (not self.model)
        assert self.tree.rows >= len(self.model)
        assert self.tree.spilled_bytes == sum(map(len, self.store.kept.values()))

    def teardown(self) -> None:
        self.flush()


def repr_of(groups: dict[tuple[object, ...], Group]) -> dict[tuple[object, ...], str]:
    return {key: repr((n, int(t), low, last)) for key, (n, t, low, last) in groups.items()}


class SpillingMachine(Machine):
    """All but some hundred bytes of its buffers are always in the store."""

    memory_max_bytes = 6 * 2 * 400 + 300


class CollidingMachine(Machine):
    hash_keys = staticmethod(colliding)


class OneHashMachine(Machine):
    hash_keys = staticmethod(one_hash)
    memory_max_bytes = 6 * 2 * 400


QUICK = settings(max_examples=40, stateful_step_count=20, deadline=None)

TestTree = Machine.TestCase
TestTree.settings = QUICK
TestCollidingTree = CollidingMachine.TestCase
TestCollidingTree.settings = QUICK
TestOneHashTree = OneHashMachine.TestCase
TestOneHashTree.settings = QUICK
TestSpillingTree = SpillingMachine.TestCase
TestSpillingTree.settings = QUICK


def test_many_keys_make_a_high_tree_and_sealing_takes_it_down() -> None:
    tree = BufferTree.of_partials(["pane", "word"], STATES[:2], node_bytes_max=2000, fanout=4)
    words = [f"word {i}" for i in range(12_000)]
    for start in range(0, len(words), 500):
        part = words[start : start + 500]
        tree.insert_partials(
            pa.table({"pane": [len(w) % 3 for w in part], "word": part, "n": [1] * 500, "total": [2] * 500})
        )
    tree.check()
    assert height(tree._top) >= 4
    assert tree.partials().num_rows == len(words)
    tree.check()
    assert tree.split_off("pane", 0).num_rows == 0
    tree.check()
    assert height(tree._top) >= 4
    taken = tree.split_off("pane", 1)["word"].to_pylist()
    assert sorted(taken) == sorted(word for word in words if len(word) % 3 == 0)
    tree.check()
    assert tree.split_off("pane", 3).num_rows == len(words) - len(taken)
    assert (tree.rows, height(tree._top)) == (0, 0)


def test_what_is_one_run_already_is_not_merged_again(monkeypatch: pytest.MonkeyPatch) -> None:
    sorts, sort = list[int](), Layout.sort

    def counted(layout: Layout, rows: Sequence[pa.Table]) -> pa.Table:
        sorts.append(len(rows))
        return sort(layout, rows)

    monkeypatch.setattr(Layout, "sort", counted)
    tree = BufferTree.of_partials(("k",), (State("n", "sum", identity_zero=True),))
    tree.insert_partials(pa.table({"k": [None], "n": [1]}))
    tree.insert_partials(pa.table({"k": [None], "n": [2]}))
    assert tree.partials().to_pylist() == tree.partials().to_pylist() == [{"k": None, "n": 3}]
    assert sorts == [2]
    tree.insert_partials(pa.table({"k": pa.array([], pa.string()), "n": pa.array([], pa.int64())}))
    assert tree.partials().schema.field("k").type == pa.string(), "as it is known to be by now"
    tree.insert_partials(pa.table({"k": ["a"], "n": [4]}))
    assert sorted(row["n"] for row in tree.partials().to_pylist()) == [3, 4]
    assert sorts == [2, 1, 2]
