"""Panes: integer arithmetic on event time, in microseconds since the epoch (UTC).

Pane ``p`` is ``[p * pane_us, (p + 1) * pane_us)``. Without a window clause everything is pane 0. All
intervals are half-open.
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


def sums_by_window(panes: Int64s, values: Int64s, starts: Int64s, ends: Int64s) -> Int64s:
    """Sums of ``values`` (a row a pane, which may repeat; a column each) over the panes ``[start, end)`` of
    each window: running sums, what had come before subtracted, which is exact for integers.
    """
    order = np.argsort(panes, kind="stable")
    running = np.zeros((len(panes) + 1, values.shape[1]), np.int64)
    np.cumsum(values[order], axis=0, out=running[1:])
    ordered = panes[order]
    found: Int64s = running[np.searchsorted(ordered, ends)] - running[np.searchsorted(ordered, starts)]
    return found
