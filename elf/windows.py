"""Panes and windows: integer arithmetic on event time, in microseconds since the epoch (UTC).

Pane ``p`` is ``[p * pane_us, (p + 1) * pane_us)``. A window starts at a multiple of its slide and is a whole
number of panes. Without a window clause everything is pane 0. All intervals are half-open.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]


def panes_of(ts_us: Int64s, pane_us: int) -> Int64s:
    """The pane of each event time (floor, so that times before 1970 are right too)."""
    if pane_us == 0:
        return np.zeros(len(ts_us), dtype=np.int64)
    return np.floor_divide(ts_us, pane_us)


def highest_before(ts_us: Int64s, highest: int) -> Int64s:
    """For each row, the highest event time read before it from its source; ``highest`` is that of earlier
    chunks.
    """
    before = np.empty(len(ts_us), dtype=np.int64)
    if len(ts_us):
        before[0] = highest
        before[1:] = ts_us[:-1]
        np.maximum.accumulate(before, out=before)
    return before


def sealable(watermark_us: int, lateness_us: int, pane_us: int) -> int:
    """The first pane that must stay open: every pane whose end plus lateness is at or below the watermark may
    be sealed.
    """
    return (watermark_us - lateness_us) // pane_us


def first_window(from_us: int, slide_us: int) -> int:
    """Start of the first window that starts at ``from_us`` or later."""
    return -(-from_us // slide_us) * slide_us


def complete_windows(committed_us: int, size_us: int, slide_us: int) -> int:
    """Windows that start before this have ended by ``committed_us``: (the last such start) + slide."""
    return ((committed_us - size_us) // slide_us + 1) * slide_us


def touched_windows(start_us: int, end_us: int, size_us: int, slide_us: int) -> tuple[int, int]:
    """The range ``[first, last)`` of starts of windows that hold any of ``[start_us, end_us)``."""
    first = ((start_us - size_us) // slide_us + 1) * slide_us
    last = ((end_us - 1) // slide_us + 1) * slide_us
    return first, last


def sums_by_window(panes: Int64s, values: Int64s, starts: Int64s, panes_each: int) -> Int64s:
    """Sums of ``values`` (a row a pane, which may repeat; a column each) over windows of ``panes_each`` panes
    from each of ``starts`` on: running sums, what had come before subtracted, which is exact for integers.
    """
    order = np.argsort(panes, kind="stable")
    running = np.zeros((len(panes) + 1, values.shape[1]), np.int64)
    np.cumsum(values[order], axis=0, out=running[1:])
    ordered = panes[order]
    ends = np.searchsorted(ordered, starts + panes_each)
    found: Int64s = running[ends] - running[np.searchsorted(ordered, starts)]
    return found


def windows_with(panes: Int64s, panes_each: int, step: int) -> Int64s:
    """The first panes of all windows that hold any of ``panes``: multiples of ``step``, ascending."""
    panes = np.unique(panes)
    first = -np.floor_divide(panes_each - 1 - panes, step)
    last = np.floor_divide(panes, step)
    first[1:] = np.maximum(first[1:], last[:-1] + 1)
    counts = np.maximum(last - first + 1, 0)
    before = np.cumsum(counts) - counts
    return (np.repeat(first - before, counts) + np.arange(counts.sum(), dtype=np.int64)) * step
