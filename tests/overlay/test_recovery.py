"""Trees after a crash of many: back within four seconds, three of which it takes to notice."""

from __future__ import annotations

import random

import pytest

from overlay.config import OverlayConfig
from overlay.recovery import recover


@pytest.mark.parametrize("seed", range(2))
def test_five_per_cent_die_at_once_and_all_trees_are_whole_within_four_seconds(seed: int) -> None:
    seen = recover(100, 4, 0.05, random.Random(seed), watch_ms=8_000)
    assert (seen.crashed, seen.places, seen.never) == (5, 4 * 95, 0)
    assert 0 < seen.cut_off < seen.places
    assert 2.0 < seen.tree_seconds.p99 <= 4.0, "sooner would be a death without a look"
    assert seen.place_seconds.p50 <= seen.place_seconds.p99 <= seen.tree_seconds.max
    assert seen.fanout_max <= OverlayConfig().fanout_max
    assert seen.depth_max <= 6


def test_equal_seeds_see_the_same() -> None:
    one, same = (recover(12, 1, 0.2, random.Random(5), watch_ms=5_000, check=True) for _ in range(2))
    assert one == same


@pytest.mark.parametrize(("nodes", "topics", "share"), [(1, 1, 0.1), (9, 0, 0.1), (9, 1, 0.0), (9, 1, 1.0)])
def test_a_crash_needs_a_world(nodes: int, topics: int, share: float) -> None:
    with pytest.raises(ValueError, match="at least two nodes"):
        recover(nodes, topics, share, random.Random(1))
