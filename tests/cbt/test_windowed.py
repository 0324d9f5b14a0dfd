"""The group-by that forgets by time, against rows in a list."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pyarrow as pa
import pytest

from elf.aggregates import State, merge_tables
from elf.cbt import WindowedTree
from elf.errors import PeerError

STATES = (State("n", "sum", identity_zero=True), State("top", "max"), State("total", "sum"))
PANE_US, PANES = 10, 6
Row = tuple[int, str, int]
"""Event time, key, value."""


def a_tree() -> WindowedTree:
    return WindowedTree(("key",), STATES, PANE_US, PANES)


def groups(rows: Sequence[Row]) -> tuple[pa.Table, pa.ChunkedArray]:
    values = [value for _, _, value in rows]
    keys = [key for _, key, _ in rows]
    table = pa.table({"key": keys, "n": [1] * len(rows), "top": values, "total": values})
    return table, pa.chunked_array([pa.array([at // PANE_US for at, _, _ in rows], pa.int64())])


def said(table: pa.Table) -> dict[str, tuple[int, int, int]]:
    assert len(set(table["key"].to_pylist())) == table.num_rows
    return {row["key"]: (row["n"], row["top"], int(row["total"])) for row in table.to_pylist()}


def truth(rows: Sequence[Row], first: int) -> dict[str, tuple[int, int, int]]:
    found: dict[str, list[int]] = {}
    for at, key, value in rows:
        if at // PANE_US >= first:
            found.setdefault(key, []).append(value)
    return {key: (len(values), max(values), sum(values)) for key, values in found.items()}


@pytest.mark.parametrize("seed", range(6))
def test_it_has_the_groups_of_the_last_panes_whatever_came_in_which_order(seed: int) -> None:
    rng = random.Random(seed)
    tree, rows, now = a_tree(), list[Row](), 0
    for _ in range(40):
        now += rng.choice((0, 3, 10, 25, 200))
        some = [
            (now - rng.randrange(90), f"k{rng.randrange(8)}", rng.randrange(-50, 50))
            for _ in range(rng.randrange(9))
        ]
        tree.insert_panes(*groups(some))
        newest = max((at // PANE_US for at, _, _ in (*rows, *some)), default=0)
        rows = [row for row in (*rows, *some) if row[0] // PANE_US > newest - PANES]
        since = now - rng.randrange(60)
        pieces = tree.pieces(since)  # before anything is merged
        assert said(merge_tables([pieces], ("key",), STATES)) == truth(rows, since // PANE_US)
        assert said(tree.partials()) == truth(rows, newest - PANES + 1)
        assert said(tree.partials(since)) == truth(rows, since // PANE_US)
        assert said(merge_tables([tree.pieces()], ("key",), STATES)) == said(tree.partials())
        if rng.random() < 0.3:  # a crash
            again = a_tree()
            again.load(tree.images())
            tree = again


def test_pieces_stay_as_they_were_when_more_comes() -> None:
    tree = a_tree()
    tree.insert_at(groups([(1, f"k{n}", n) for n in range(2_000)])[0], 1)  # in a table of groups
    pieces = tree.pieces()
    before = pieces.to_pylist()
    tree.insert_at(groups([(2, f"k{n}", 7) for n in range(2_000)])[0], 2)
    assert pieces.to_pylist() == before
    assert said(tree.partials()) == truth([(1, f"k{n}", v) for n in range(2_000) for v in (n, 7)], 0)


def test_only_panes_that_have_changed_are_written_anew() -> None:
    tree = a_tree()
    tree.insert_panes(*groups([(at, f"k{at}", at) for at in range(0, 50, 5)]))
    before = tree.images()
    tree.insert_at(groups([(47, "more", 1)])[0], 47)
    after = tree.images()
    assert [pane for pane in after if after[pane] is not before.get(pane)] == [4]
    tree.insert_at(groups([(61, "k", 1)])[0], 61)
    assert tree.held() == [1, 2, 3, 4, 6]
    assert tree.images()[1] is before[1]


def test_what_is_older_than_the_window_is_not_kept_and_a_load_of_other_bytes_changes_nothing() -> None:
    tree = a_tree()
    tree.insert_at(groups([(100, "a", 1)])[0], 100)
    tree.insert_at(groups([(49, "b", 1)])[0], 49)
    assert said(tree.partials()) == {"a": (1, 1, 1)}
    with pytest.raises(PeerError):
        tree.load({1: b"no table"})
    assert tree.held() == [10]
    tree.empty()
    assert tree.partials().num_rows == 0
    assert tree.partials().schema.field("key").type == pa.string()
    tree.insert_at(groups([(3, "b", 1)])[0], 3)  # another time
    assert said(tree.partials()) == {"b": (1, 1, 1)}


def test_of_a_chunk_over_many_panes_only_those_of_the_window_are_inserted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tree, inserted = a_tree(), list[int]()
    insert = tree._insert

    def noted(some: pa.Table, pane: int) -> None:
        inserted.append(pane)
        insert(some, pane)

    monkeypatch.setattr(tree, "_insert", noted)
    rows = [(at, f"k{at % 7}", at) for at in range(0, 1000, 5)]
    tree.insert_panes(*groups(rows))
    assert inserted == tree.held() == list(range(94, 100))
    assert said(tree.partials()) == truth(rows, 94)
    tree.insert_panes(*groups(rows[:180]))
    assert inserted == list(range(94, 100)), "all of them are too old"


@pytest.mark.parametrize(("pane_us", "panes"), [(0, 1), (1, 0)])
def test_a_window_has_panes_and_panes_have_a_length(pane_us: int, panes: int) -> None:
    with pytest.raises(ValueError, match="a window has"):
        WindowedTree(("key",), STATES, pane_us, panes)
