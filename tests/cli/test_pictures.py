"""Where things stand in a picture, and what the terminal shows of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elf.cli.pictures import NAMES_DRAWN, depths, draw_tree, stand
from elf.fields import replace
from lab.overlay.jobs import Jobs
from lab.overlay.simulator import simulate
from lab.pictures.plots import draw_overlay
from lab.pictures.scene import Scene, nearest_to_root
from lab.pictures.text import balance_lines, bar, overlay_lines, ring_lines, tree_lines


@st.composite
def forests(draw: st.DrawFn) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Parents of some nodes in any order; a root is its own."""
    size = draw(st.integers(1, 40))
    above = [draw(st.integers(0, node)) for node in range(size)]
    names = draw(st.permutations(range(size)))
    parents = np.empty(size, np.int64)
    for node, parent in enumerate(above):
        parents[names[node]] = names[parent]
    return parents


@given(forests())
def test_no_two_edges_cross(parents: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
    """The leaves below a node are neighbours, and it stands among them."""
    place = stand(parents)
    inner = set(parents[parents != np.arange(len(parents))].tolist())
    leaves = [node for node in range(len(parents)) if node not in inner]
    assert sorted(place.across[leaves].tolist()) == list(range(place.leaves))
    assert (place.depth == depths(parents)).all()
    for node in range(len(parents)):
        below = [int(place.across[leaf]) for leaf in leaves if node in path(parents, leaf)]
        assert sorted(below) == list(range(min(below), max(below) + 1))
        assert min(below) <= place.across[node] <= max(below)


def path(parents: np.ndarray[tuple[int], np.dtype[np.int64]], node: int) -> list[int]:
    found = [node]
    while parents[found[-1]] != found[-1]:
        found.append(int(parents[found[-1]]))
    return found


@given(forests(), st.integers(1, 50))
def test_the_top_of_a_tree_keeps_every_parent(
    parents: np.ndarray[tuple[int], np.dtype[np.int64]], most: int
) -> None:
    kept, above = nearest_to_root(parents, most)
    assert len(kept) == min(most, len(parents))
    assert (kept[above] == parents[kept]).all()
    left = np.setdiff1d(np.arange(len(parents)), kept)
    if len(left):
        assert depths(parents)[left].min() >= depths(parents)[kept].max()


def scene(trees: int = 600) -> Scene:
    """Four nodes at the quarters; the root, 2, has children 0 and 1, and 3 below 1."""
    return Scene(
        np.array([0.0, 0.25, 0.5, 0.75]),
        np.array([2, 2, 2, 1]),
        np.zeros(trees, np.int64),
        np.arange(trees) % 4,
    )


def test_a_scene_in_figures() -> None:
    found = scene()
    assert (found.root, found.bound) == (2, (500, 3))
    assert scene(2).bound == (2, 3)
    first, chosen = found.load_shares()
    assert (first[0], first[500], chosen[125]) == (0.75, 0.25, 1.0)
    assert len(first) == len(chosen)


def test_the_ring_in_the_terminal_has_nodes_where_they_are() -> None:
    lines = ring_lines(replace(scene(8), roots=np.array([0, 0, 0, 0, 1, 1])))
    top, right, left = lines[1], lines[8], lines[8]
    assert (top.strip(), lines[15].strip()) == ("█", "◆")
    assert (right[-1], left.strip()[0]) == ("▒", "∙")
    assert "4 nodes" in lines[8]
    assert "6 trees" in lines[9]


def test_the_tree_in_the_terminal_is_counted_by_depth() -> None:
    root, one, two = tree_lines(scene())[1:]
    assert root.startswith("◆ root    1 ")
    assert root.endswith("at most 2 children each")
    assert one.startswith("  depth 1 2 ")
    assert one.endswith("at most 1 child each")
    assert two.rstrip("█") == "  depth 2 1 "


def test_the_balance_in_the_terminal_adds_up() -> None:
    few = replace(scene(8), first=np.array([0, 0, 0, 0, 1]), roots=np.array([0, 1, 2, 3, 0]))
    lines = balance_lines(few)
    assert lines[0].startswith("balance of 5 trees")
    assert lines[-1] == "fewer than 3: 75.00 % with one key, 100.00 % with two"
    assert lines[-2].split()[:4] == ["4", "25.00", "%", "██████▋"]


@given(st.floats(0, 1), st.integers(1, 60))
def test_a_bar_is_as_long_as_its_share(share: float, width: int) -> None:
    drawn = bar(share, width)
    assert len(drawn) <= width
    assert bool(drawn) == (share > 0)
    assert abs(len(drawn) - share * width) <= 1.07


def test_a_terminal_is_wide_enough() -> None:
    assert max(map(len, overlay_lines(scene(8)))) <= 80


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_pictures_of_an_overlay(tmp_path: Path, suffix: str) -> None:
    one, other = tmp_path / f"one{suffix}", tmp_path / f"other{suffix}"
    for path in (one, other):
        draw_overlay(scene(), "four nodes", path)
    assert one.read_bytes()[:5] in (b"\x89PNG\r", b"<?xml")
    assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize("leaves", [0, 3, NAMES_DRAWN + 1])
def test_pictures_of_trees_have_names_while_there_is_room(tmp_path: Path, leaves: int) -> None:
    path = tmp_path / "tree.svg"
    names = [f"web-{number}" for number in range(leaves + 1)]
    parents = np.zeros(leaves + 1, np.int64)
    draw_tree(names, parents, [True] * (leaves + 1), 0, "job busy", path)
    assert ("<!-- web-0 -->" in path.read_text()) == (leaves <= NAMES_DRAWN)


def test_the_picture_of_a_run_is_that_of_its_report() -> None:
    import random

    from lab.cli.sim import facts, quantiles, scene_of

    report = simulate(15, 10, 0.0, random.Random(3), jobs=25, rest_ms=1_000)
    found = scene_of(report)
    assert (len(found.places), len(found.roots)) == (15, 25)
    assert (np.diff(found.places) > 0).all()
    jobs: Jobs = report.jobs
    assert found.root == found.roots[0]
    assert np.bincount(found.roots).max() == max(jobs.roots.count(node) for node in jobs.roots)
    assert facts(report)["recovery_seconds"] is None
    assert quantiles([3.0, 1.0, 2.0]) == {"p50": 2.0, "p99": 3.0}
