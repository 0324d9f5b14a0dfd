"""Pane and window arithmetic against counting on one's fingers."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from elf import windows

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
