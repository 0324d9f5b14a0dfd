"""Repartitioning a graph: the paper's figure, the best matching by trying all, and what a ring moves."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import accumulate, combinations, pairwise, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elf.errors import UserError
from elf.planning.rings import joined, left, who_leaves
from elf.planning.stretches import Part, equal, greedy, leavers, moved
from lab.graphs.placement import appended, matched

VERTICES = 60 * 7 * 11
"""So that parts of up to seven servers are whole numbers."""


def servers(count: int, vertices: int) -> dict[str, Part]:
    return {f"s{place + 1}": part for place, part in enumerate(equal(vertices, count))}


def least(before: dict[str, Part], come: Sequence[str], leave: Sequence[str]) -> int:
    """By trying all."""
    stay = [*(one for one in before if one not in leave), *come]
    vertices = max(end for _, end in before.values())
    ways = permutations(equal(vertices, len(stay)))
    return min(moved(before, dict(zip(stay, way, strict=True))) for way in ways)


def is_whole(parts: dict[str, Part], vertices: int) -> bool:
    ends = [0, *(end for _, end in sorted(parts.values()))]
    return [start for start, _ in sorted(parts.values())] == ends[:-1] and ends[-1] == vertices


def test_figure_6_14() -> None:
    before = servers(4, 100)
    assert moved(before, appended(before, ["s5"])) == 50
    assert moved(before, greedy(before, ["s5"])) == moved(before, matched(before, ["s5"])) == 30
    assert greedy(before, ["s5"])["s5"] == (40, 60)


def test_greedy_is_the_best_of_all_changes_of_up_to_six_servers() -> None:
    for count in range(1, 7):
        before = servers(count, VERTICES)
        for more in range(1, 7 - count):
            come = [f"n{place}" for place in range(more)]
            assert moved(before, greedy(before, come)) == least(before, come, ())
        for fewer in range(1, count):
            for leave in combinations(before, fewer):
                assert moved(before, greedy(before, (), leave)) == least(before, (), leave), (count, leave)


def test_greedy_is_not_the_best_where_three_of_eight_leave() -> None:
    before = servers(8, 8 * VERTICES)
    leave = ("s1", "s3", "s5")
    found, best = moved(before, greedy(before, (), leave)), moved(before, matched(before, (), leave))
    assert found / best == pytest.approx(1.0435, abs=1e-4)


CHANGES = st.tuples(st.integers(1, 9), st.integers(0, 9), st.integers(20, 500), st.integers(0, 511))


@given(CHANGES)
def test_a_matching_moves_no_more_than_others_and_all_vertices_have_a_server(
    change: tuple[int, int, int, int],
) -> None:
    count, more, vertices, bits = change
    before = servers(count, vertices)
    leave = [one for place, one in enumerate(before) if bits >> place & 1][: count - 1]
    come = [f"n{place}" for place in range(more)]
    found = [way(before, come, leave) for way in (matched, greedy, appended)]
    assert all(is_whole(parts, vertices) and not parts.keys() & set(leave) for parts in found)
    costs = [moved(before, parts) for parts in found]
    assert costs[0] == min(costs)


def test_the_best_matching_is_refused_without_scipy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(UserError, match=r"needs scipy: install elf-stream\[graphs\]"):
        matched(servers(2, 10), ["s3"])


@pytest.mark.parametrize("times", [2, 3, 4])
def test_where_a_multiple_comes_a_ring_moves_as_little_as_a_matching(times: int) -> None:
    before = servers(5, 600)
    come = [f"n{place}" for place in range(5 * (times - 1))]
    after = joined(before, come)
    assert {end - start for start, end in after.values()} == {600 // 5 // times}
    assert moved(before, after) == moved(before, matched(before, come))
    halves = left(servers(10, 600), [f"s{place}" for place in range(1, 10, 2)])
    assert moved(servers(10, 600), halves) == moved(
        servers(10, 600), matched(servers(10, 600), (), [f"s{place}" for place in range(1, 10, 2)])
    )


@given(CHANGES)
def test_a_ring_touches_no_more_servers_than_come_or_leave(change: tuple[int, int, int, int]) -> None:
    count, more, vertices, _ = change
    before = servers(count, vertices)
    after = joined(before, [f"n{place}" for place in range(more)])
    assert is_whole(after, vertices)
    assert sum(before[one] != after[one] for one in before) <= more
    leave = who_leaves(before, min(more, count - 1))
    rest = left(before, leave)
    assert is_whole(rest, vertices)
    assert sum(before[one] != rest[one] for one in rest) <= len(leave)


def test_those_leave_a_ring_whose_leaving_keeps_it_even() -> None:
    before = {"a": (0, 10), "b": (10, 20), "c": (20, 50), "d": (50, 60)}
    assert who_leaves(before, 1) == ["a"]
    assert sorted(who_leaves(servers(6, 600), 3)) in (["s1", "s3", "s5"], ["s2", "s4", "s6"])


def test_a_change_that_cannot_be() -> None:
    before = servers(2, 10)
    for come, leave in ((["s1"], []), ([], ["s3"]), ([], ["s1", "s2"])):
        with pytest.raises(ValueError, match="no such change"):
            greedy(before, come, leave)
    with pytest.raises(ValueError, match="nobody is left"):
        left(before, ["s1", "s2"])


def test_those_leave_whose_leaving_moves_least() -> None:
    for count in range(2, 8):
        before = servers(count, VERTICES)
        for fewer in range(1, count):
            leave = leavers(before, fewer)
            assert len(leave) == fewer
            every = [moved(before, greedy(before, (), some)) for some in combinations(before, fewer)]
            assert moved(before, greedy(before, (), leave)) == min(every)


@given(st.lists(st.integers(1, 60), min_size=2, max_size=9), st.integers(1, 8))
def test_so_many_leave_of_uneven_servers(sizes: list[int], fewer: int) -> None:
    ends = [0, *accumulate(sizes)]
    before = {f"s{place}": part for place, part in enumerate(pairwise(ends))}
    leave = leavers(before, min(fewer, len(before) - 1))
    assert len({*leave}) == min(fewer, len(before) - 1)
    assert is_whole(greedy(before, (), leave), ends[-1])
