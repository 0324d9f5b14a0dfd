"""The plan of merges, and when jobs should share panes."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from elf.windows import Cumulative, Landmark, Session, Sliding
from elf.windows.merging import describe, merges_an_hour, plan_merges

MINUTE = 60_000_000
SECOND = 1_000_000


def tumbling(*minutes: int) -> list[Sliding]:
    return [Sliding(m * MINUTE, m * MINUTE) for m in minutes]


def test_enorms_figures_7_and_8() -> None:
    merges = merges_an_hour(tumbling(5, 10, 15, 20), MINUTE)
    assert (merges.planned, merges.naive) == (86, 240)
    assert "merges an hour: 86 instead of 240" in describe(tumbling(5, 10, 15, 20), MINUTE)


def test_the_plan_for_people() -> None:
    assert describe(tumbling(10, 60, 1440), 10 * MINUTE) == (
        "pane 10 min; 1 h = 6 panes; 1 d = 24 × 1 h; merges an hour: 7 instead of 12"
    )
    said = describe(
        [Cumulative(1440 * MINUTE, 60 * MINUTE), Landmark(MINUTE), Session(MINUTE, 4 * MINUTE)], MINUTE
    )
    assert "cumulative to 1 d = the one before and a piece of 1 h" in said


@given(st.lists(st.integers(1, 40), min_size=1, max_size=5), st.integers(0, 3_000))
@settings(max_examples=80, deadline=None)
def test_tiles_lie_end_to_end_in_every_unit_and_are_few(lengths: list[int], place: int) -> None:
    built = [1]
    for tiles in plan_merges(lengths):
        start = place // tiles.length * tiles.length
        cover = np.zeros(tiles.length, np.int64)
        count = 0
        for length, used in tiles.used.items():
            assert length in built
            for n in range(-(-start // length), (start + tiles.length) // length):
                if used[n % len(used)] and n * length // tiles.length * tiles.length == start:
                    cover[n * length - start : (n + 1) * length - start] += 1
                    count += 1
        assert cover.tolist() == [1] * tiles.length
        assert count <= tiles.length // max(v for v in built if tiles.length % v == 0)
        built.append(tiles.length)


def test_patterns_that_hardly_repeat_are_made_of_what_divides() -> None:
    (_, day) = plan_merges([7_001, 86_400])
    assert day.pieces == {1: 86_400}
