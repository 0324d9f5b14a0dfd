"""Pane and window arithmetic against counting on one's fingers."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from elf import windows

sizes = st.integers(1, 40)
times = st.integers(-500, 500)


@given(st.lists(times, max_size=20), st.integers(1, 17))
def test_a_pane_holds_its_times(moments: list[int], pane: int) -> None:
    found = windows.panes_of(np.array(moments, dtype=np.int64), pane)
    for moment, number in zip(moments, found.tolist(), strict=True):
        assert number * pane <= moment < (number + 1) * pane


@given(st.lists(times, min_size=1, max_size=20), times)
def test_highest_before_is_what_was_read_before(moments: list[int], highest: int) -> None:
    found = windows.highest_before(np.array(moments, dtype=np.int64), highest)
    assert found.tolist() == [max([highest, *moments[:i]]) for i in range(len(moments))]


@given(times, st.integers(0, 50), st.integers(1, 17))
def test_sealable_panes_have_ended_with_their_lateness(watermark: int, lateness: int, pane: int) -> None:
    first_open = windows.sealable(watermark, lateness, pane)
    assert first_open * pane + lateness <= watermark < (first_open + 1) * pane + lateness


@given(times, sizes, sizes)
def test_windows_that_are_complete_and_those_that_are_touched(at: int, size: int, slide: int) -> None:
    starts = [n * slide for n in range(-1000 // slide - 2, 1000 // slide + 2)]
    complete = windows.complete_windows(at, size, slide)
    assert all((start < complete) == (start + size <= at) for start in starts)
    first, last = windows.touched_windows(at, at + 7, size, slide)
    assert all((first <= start < last) == (start < at + 7 and at < start + size) for start in starts)
    assert windows.first_window(at, slide) == min(start for start in starts if start >= at)


@given(st.lists(st.integers(-30, 30), max_size=15), st.integers(1, 6), st.integers(1, 6))
def test_windows_with_a_pane_and_their_sums(panes: list[int], panes_each: int, step: int) -> None:
    numbers = np.array(panes, dtype=np.int64)
    starts = windows.windows_with(numbers, panes_each, step)
    every = range(-60 * step, 60 * step, step)
    assert starts.tolist() == [s for s in every if any(s <= pane < s + panes_each for pane in panes)]
    values = np.stack([np.arange(len(panes), dtype=np.int64), np.ones(len(panes), np.int64)], axis=1)
    sums = windows.sums_by_window(numbers, values, starts, panes_each)
    for start, (total, count) in zip(starts.tolist(), sums.tolist(), strict=True):
        inside = [row for row, pane in enumerate(panes) if start <= pane < start + panes_each]
        assert (total, count) == (sum(inside), len(inside))
