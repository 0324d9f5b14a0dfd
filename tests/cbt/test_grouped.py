"""Rows grouped in C give what numpy and Arrow give, bit by bit, whatever the types."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from elf import native
from elf.aggregates import State, SumOverflow
from elf.cbt import BufferTree
from elf.cbt.rootbuffer import RootBuffer
from elf.keys import hash_keys

needs_native = pytest.mark.skipif(native.library() is None, reason=native.why_not())
KEYS = {
    "text": pa.string(),
    "whole": pa.int64(),
    "time": pa.timestamp("us"),
    "real": pa.float64(),
    "small": pa.int16(),
    "money": pa.decimal128(38, 0),
    "bytes": pa.binary(),
    "flag": pa.bool_(),
    "nothing": pa.null(),
}
STATES = {
    "n": (State("n", "sum", identity_zero=True), pa.int64()),
    "total": (State("total", "sum"), pa.int64()),
    "low": (State("low", "min"), pa.int64()),
    "late": (State("late", "max"), pa.timestamp("us")),
    "least": (State("least", "min"), pa.float64()),
    "most": (State("most", "max"), pa.float64()),
    "weight": (State("weight", "sum"), pa.float64()),
    "word": (State("word", "max"), pa.string()),
}


def drawn(rng: np.random.Generator, kind: pa.DataType, rows: int) -> pa.Array:
    """Few different values, odd ones among them."""
    numbers = rng.integers(-3, 9, rows)
    if pa.types.is_null(kind):
        return pa.nulls(rows)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        values = [("" if n < 0 else "é" * n + "x" * (n % 3 * 9)) for n in numbers.tolist()]
        made = pa.array(values).cast(kind)
    elif pa.types.is_floating(kind):
        odd = np.array([np.nan, -0.0, 0.0, -np.inf, 1e300, 0.1, -0.1, 7.0, np.inf, 1.5, -1.5, 3.25])
        made = pa.array(odd[numbers + 3])
    elif pa.types.is_boolean(kind):
        made = pa.array(numbers > 2)
    elif pa.types.is_decimal(kind):
        made = pa.array([Decimal(n) for n in (numbers * 10**18).tolist()], kind)
    else:
        made = pa.array(numbers).cast(kind)
    if rng.random() < 0.5:
        return pa.array(made.to_pylist(), kind, mask=rng.random(rows) < 0.1) if rows else made
    return made


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every row goes into the table."""
    monkeypatch.setattr("elf.cbt.rootbuffer._FEW_ROWS_MORE", 1)
    monkeypatch.setattr("elf.cbt.rootbuffer._WORTH_A_TRY", 2.0)


@needs_native
@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("seed", range(12))
def test_the_same_answers(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    keys = rng.permutation(list(KEYS))[: rng.integers(0, 4)].tolist()
    states = rng.permutation(list(STATES)[: rng.choice([6, 8])])[: rng.integers(0, 5)].tolist()
    kinds = {**{key: KEYS[key] for key in keys}, **{name: STATES[name][1] for name in states}}
    if not kinds:
        return
    parts = []
    for rows in rng.integers(1, 300, 8).tolist():
        columns = {name: drawn(rng, kind, rows) for name, kind in kinds.items()}
        if "n" in columns:
            columns["n"] = pa.array(rng.integers(0, 5, rows))
        skip = int(rng.integers(0, rows))
        parts.append(pa.table(columns).slice(skip) if rng.random() < 0.5 else pa.table(columns))

    def answers() -> list[pa.Table]:
        made = (keys, [STATES[name][0] for name in states])
        tree = BufferTree.of_partials(*made, node_bytes_max=3000, fanout=4)
        found = []
        for place, part in enumerate(parts):
            tree.insert_partials(part)
            if place % 5 == 2:
                again = BufferTree.of_partials(*made, node_bytes_max=3000, fanout=4)
                again.load(tree.dump())
                assert again.dump() == tree.dump()
                tree = again
            if "whole" in keys and place % 5 == 3:
                found.append(tree.split_off("whole", 0))
        tree.check()
        return [*found, tree.partials()]

    quick = answers()
    monkeypatch.setattr("elf.native.library", lambda: None)
    slow = answers()
    for one, other in zip(quick, slow, strict=True):
        assert one.schema == other.schema
        assert bits_of(one) == bits_of(other)


def bits_of(table: pa.Table) -> list[object]:
    """Values, doubles by their bits."""
    return [
        [None if value is None else float(value).hex() for value in column.to_pylist()]
        if pa.types.is_floating(column.type)
        else column.to_pylist()
        for column in table.columns
    ]


@needs_native
@pytest.mark.usefixtures("eager")
def test_a_sum_that_does_not_fit_is_refused_as_ever() -> None:
    tree = BufferTree.of_partials(["k"], [State("n", "sum", identity_zero=True)])
    tree.insert_partials(pa.table({"k": ["a", "b"], "n": [1 << 62, 5]}))
    tree.insert_partials(pa.table({"k": ["b", "a"], "n": [5, 1 << 62]}))
    with pytest.raises(SumOverflow):
        tree.partials()
    tree.insert_partials(pa.table({"k": ["a"], "n": [-1]}))
    found = {row["k"]: row["n"] for row in tree.partials().to_pylist()}
    assert found == {"a": (1 << 63) - 1, "b": 10}


@needs_native
def test_many_keys_in_the_same_slots_take_no_longer() -> None:
    library = native.library()
    assert library is not None
    table = native.GroupTable(library, [pa.int64()], [0])
    alike = np.full(1000, 77, dtype=np.uint64)
    assert table.add([pa.array(range(1000))], alike) < 200
    assert table.add([pa.array(range(1000))], hash_keys([pa.array(range(1000))])) == 1000


@needs_native
@pytest.mark.usefixtures("eager")
def test_a_table_grows_with_its_keys_and_their_bytes() -> None:
    library = native.library()
    assert library is not None
    words = pa.array([f"{number}-" * (1 + number % 40) for number in range(20_000)] + ["y" * 300_000])
    table = native.GroupTable(library, [words.type, pa.int64()], [0, 1])
    ones = pa.array([1] * len(words))
    hashes = hash_keys([words])
    assert table.add([words, ones], hashes) == len(words)
    assert table.add([words, ones], hashes) == len(words)
    found = table.arrays()
    assert found[1].equals(words)
    assert found[2].to_pylist() == [2] * len(words)
    assert table.nbytes == len(words) * 20 + len(b"".join(word.encode() for word in words.to_pylist()))


def test_rows_that_repeat_stay_in_the_root() -> None:
    tree = BufferTree(keys=["k"], aggregates=[("count", None)], node_bytes_max=100_000)
    for _ in range(30):
        tree.insert(pa.table({"k": [f"key {number % 700}" for number in range(10_000)]}))
    root: RootBuffer = tree._root
    assert tree._top is None
    assert root.rows <= 30 * 700
    assert sum(tree.flush()["count"].to_pylist()) == 30 * 10_000
