"""What does not fit in memory, what cannot be summed, what takes long: the tree at its limits."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from agents.tasks.spill import SpillFolder
from elf.aggregates import State, SumOverflow
from elf.cbt import BufferTree, SpillError
from tests.support.drawer import Drawer

NODE = 8_000
LIMIT = 6 * 2 * NODE + 8_000


def tree_over(store: Drawer | SpillFolder, **options: int) -> BufferTree:
    given: dict[str, Any] = {"node_bytes_max": NODE, "fanout": 4, "memory_max_bytes": LIMIT, **options}
    return BufferTree(keys=["k"], aggregates=[("count", None)], store=store, **given)


def fill(tree: BufferTree, keys: int, seed: int = 0) -> Counter[str]:
    counts: Counter[str] = Counter()
    for numbers in np.random.default_rng(seed).integers(0, keys, (20, keys // 10)).tolist():
        words = [f"some longer key {number * 2654435761 % 2**32:x}" for number in numbers]
        tree.insert(pa.table({"k": words}))
        counts.update(words)
    return counts


def test_it_spills_to_files_and_answers_exactly(tmp_path: Path) -> None:
    folder = tmp_path / "spill"
    tree = tree_over(SpillFolder(folder))
    counts = fill(tree, 8_000)
    tree.check()
    assert tree.spilled_bytes > tree.nbytes / 2
    assert sum(file.stat().st_size for file in folder.iterdir()) == tree.spilled_bytes
    found: Counter[str] = Counter()
    for batch in tree.batches():
        found.update(dict(zip(*(column.to_pylist() for column in batch.columns), strict=True)))
    assert found == counts
    tree.check()
    tree.empty()
    assert list(folder.iterdir()) == []


def test_a_tree_that_may_hold_less_spills_more_and_answers_the_same() -> None:
    store = Drawer()
    tree = BufferTree.of_partials(["k"], [State("n", "sum")], memory_max_bytes=256 << 20, store=store)
    parts = [pa.table({"k": range(n, n + 40_000), "n": [1] * 40_000}) for n in range(0, 1_200_000, 40_000)]
    for part in parts[:15]:
        tree.insert_partials(part)
    assert not tree.spilled_bytes
    for most in (4 << 20, 1 << 20):
        tree.bound(most)
        assert tree.nbytes - tree.spilled_bytes <= most, "at once"
    for part in parts[15:]:
        tree.insert_partials(part)
        assert tree.nbytes - tree.spilled_bytes <= most
        assert tree.pinned_bytes <= most // 2
    tree.check()
    assert tree.spilled_bytes > 1 << 20
    tree.bound(None)
    assert tree.split_off("k", 600_000).num_rows == tree.partials().num_rows == 600_000
    tree.check()


def test_without_a_store_nothing_is_bounded() -> None:
    tree = BufferTree(keys=["k"], aggregates=[("count", None)])
    tree.bound(1)
    fill(tree, 1_000)
    assert tree.rows


def test_closing_removes_the_folder(tmp_path: Path) -> None:
    store = SpillFolder(tmp_path / "spill")
    fill(tree_over(store), 5_000)
    store.close()
    assert not (tmp_path / "spill").exists()


def test_what_others_left_in_the_folder_is_removed(tmp_path: Path) -> None:
    (tmp_path / "1.run").write_bytes(b"old")
    SpillFolder(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("damage", ["changed", "short", "gone"])
def test_damaged_files_are_an_error(tmp_path: Path, damage: str) -> None:
    tree = tree_over(SpillFolder(tmp_path))
    fill(tree, 8_000)
    file = next(iter(tmp_path.iterdir()))
    data = file.read_bytes()
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes(data[:-1] if damage == "short" else data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(SpillError):
        tree.flush()
    tree.empty()
    assert tree.flush().num_rows == 0


def test_a_full_disk_is_an_error_and_loses_nothing() -> None:
    store = Drawer()
    tree = tree_over(store)
    store.fails = True
    with pytest.raises(SpillError, match="no space"):
        fill(tree, 8_000)
    rows, store.fails = tree.rows, False
    assert rows > 0
    assert sum(tree.flush()["count"].to_pylist()) == tree_rows_in(tree)


def tree_rows_in(tree: BufferTree) -> int:
    return sum(int(batch.column(1).to_numpy().sum()) for batch in tree.batches())


@pytest.mark.parametrize("options", [{"memory_max_bytes": 1000}, {"memory_max_bytes": None}])
def test_limits_that_cannot_be(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="memory"):
        tree_over(Drawer(), **options)


def test_a_dump_has_what_was_spilled() -> None:
    tree, other = tree_over(Drawer()), tree_over(Drawer())
    counts = fill(tree, 10_000)
    assert tree.spilled_bytes
    other.load(tree.dump())
    other.check()
    assert other.spilled_bytes
    assert sum(other.flush()["count"].to_pylist()) == sum(counts.values())


@pytest.mark.parametrize("size", [1, 100, 10_000, 1 << 20])
def test_states_of_any_size(size: int) -> None:
    tree = BufferTree.of_partials(["k"], [State("last", "max")], node_bytes_max=50_000, fanout=4)
    keys = range(8 if size > 100_000 else 200)
    for letter in (b"a", b"c", b"b"):
        tree.insert_partials(pa.table({"k": list(keys), "last": [letter * size for _ in keys]}))
        tree.check()
    table = tree.partials()
    assert sorted(table["k"].to_pylist()) == list(keys)
    assert set(table["last"].to_pylist()) == {b"c" * size}


def test_an_overflow_loses_no_rows() -> None:
    tree = BufferTree.of_partials(
        ["k"], [State("n", "sum", identity_zero=True)], node_bytes_max=400, fanout=4
    )
    tree.insert_partials(pa.table({"k": range(100), "n": [1] * 100}))
    huge = pa.table({"k": [*range(100, 180), 7, 7], "n": [1] * 80 + [2**62, 2**62]})
    with suppress(SumOverflow):
        tree.insert_partials(huge)
    with pytest.raises(SumOverflow):
        tree.partials()
    tree.check()
    assert tree.rows >= 180
    with pytest.raises(SumOverflow):
        tree.split_off("k", 50)
    tree.insert_partials(pa.table({"k": [7], "n": [-(2**62)]}))
    assert sum(tree.partials()["n"].to_pylist()) == 100 + 80 + 2**62


def test_a_merge_that_fails_takes_nothing_out() -> None:
    """The leaves before the one that fails have given their rows already; they get them back."""
    tree = BufferTree.of_partials(
        ["k"], [State("n", "sum", identity_zero=True)], node_bytes_max=4000, fanout=4
    )
    tree.insert_partials(pa.table({"k": range(1000), "n": [1] * 1000}))
    last = tree.partials()["k"][-1].as_py()
    with suppress(SumOverflow):
        tree.insert_partials(pa.table({"k": [last, last], "n": [2**62, 2**62]}))
    for below in (10, 2000):
        with pytest.raises(SumOverflow):
            tree.split_off("k", below)
        tree.check()
    tree.insert_partials(pa.table({"k": [last], "n": [-(2**62)]}))
    taken = tree.split_off("k", 2000)
    assert sorted(taken["k"].to_pylist()) == list(range(1000))
    assert sum(taken["n"].to_pylist()) == 1000 + 2**62
    assert tree.rows == 0


def test_taking_out_keeps_to_the_limit_and_stores_what_stays_once() -> None:
    store = Drawer()
    tree = BufferTree.of_partials(
        ["pane", "k"], [], node_bytes_max=NODE, fanout=4, memory_max_bytes=LIMIT, store=store
    )
    keys = [f"some longer key {number * 2654435761 % 2**32:x}" for number in range(20_000)]
    for start in range(0, len(keys), 2_000):
        part = keys[start : start + 2_000]
        tree.insert_partials(pa.table({"pane": [len(key) % 3 for key in part], "k": part}))
    assert tree.spilled_bytes
    taken = tree.split_off("pane", 1)
    tree.check()
    left = tree.partials()
    assert tree.nbytes < sum(map(len, keys))
    assert sorted([*taken["k"].to_pylist(), *left["k"].to_pylist()]) == sorted(keys)
    assert set(taken["pane"].to_pylist()) == {0}
    assert 0 not in left["pane"].to_pylist()


def test_reading_out_stores_nothing() -> None:
    tree = tree_over(Drawer())
    fill(tree, 8_000)
    first = tree.flush()
    held = (tree.rows, tree.nbytes, tree.spilled_bytes)
    assert tree.flush().equals(first)
    assert (tree.rows, tree.nbytes, tree.spilled_bytes) == held


def test_keys_that_were_null_at_first_take_their_type_later() -> None:
    tree = BufferTree(keys=["k"], aggregates=[("count", None)])
    tree.insert(pa.table({"k": pa.nulls(10_000)}))
    tree.insert(pa.table({"k": ["a", "b"] * 5_000}))
    counts = {row["k"]: row["count"] for row in tree.flush().to_pylist()}
    assert counts == {None: 10_000, "a": 5_000, "b": 5_000}


def test_work_does_no_more_than_it_may() -> None:
    tree = BufferTree.of_partials(
        ["k"], [State("n", "sum", identity_zero=True)], node_bytes_max=2000, fanout=4
    )
    rng = np.random.default_rng(5)
    node_rows_max = 0
    for _ in range(100):
        keys = rng.integers(0, 1 << 40, 50)
        tree.insert_partials(pa.table({"k": keys, "n": np.ones(50, np.int64)}))
        merged = tree.work(10)
        node_rows_max = max(node_rows_max, merged)
        tree.check()
    assert node_rows_max < 10 + 4 * 2000 / 32
    while tree.work(1000):
        tree.check()
    assert tree.work(10_000) == 0
    assert tree.partials().num_rows == 5000
