"""Which windows a commit speaks of: as intervals in µs, beside the rows that they have."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from typing import Final

import numpy as np
import pyarrow as pa

from elf.job.effects import CommitWindows
from elf.job.spec import END_OF_TIME, START_OF_TIME
from elf.windows import Calendar, Spans

STATUS_ROWS_MAX: Final = 1_000
"""Windows without any row get a status of their own up to this many at a time; beyond, only those with rows
do.
"""
Span = tuple[int, int]
_EPOCH: Final = datetime(1970, 1, 1)


def spans_of(effect: CommitWindows, calendar: Calendar, tally: pa.Table | None, rows: pa.Table) -> Spans:
    """The windows of a commit: all that end in its range, if those are few and all that there are, else those
    with a pane that counted something; of sessions, those with rows.
    """
    if calendar.session is not None:
        return _of_rows(rows)
    length = effect.last_us - effect.first_us
    if not effect.portion and length <= STATUS_ROWS_MAX * min(kind.step_us for kind in calendar.kinds):
        return calendar.ending(effect.first_us, effect.last_us)
    panes = tally["_pane"].to_numpy() if tally is not None else np.empty(0, np.int64)
    return Spans.joined([calendar.holding(panes, effect.first_us, effect.last_us), _of_rows(rows)])


def touched(spans: Spans, panes: tuple[int, int], pane_us: int, reach: tuple[int, int] = (0, 0)) -> Spans:
    """Those that hold one of these panes, or reach it."""
    start, end = (us if abs(us) >= END_OF_TIME else us * pane_us for us in panes)
    before, after = reach
    end, start = min(end + before, END_OF_TIME), max(start - after, START_OF_TIME)
    return spans.where((spans.starts < end) & (spans.ends > start))


def changed(rows: pa.Table, published: Mapping[Span, tuple[int, pa.Table]]) -> Spans:
    """Windows whose rows are not what was published of them, and those that are no more."""
    now = by_span(rows)
    spans = [
        span
        for span in sorted({*now, *published})
        if _said(now.get(span)) != _said(published[span][1] if span in published else None)
    ]
    both = np.array(spans, np.int64).reshape(-1, 2)
    return Spans(both[:, 0], both[:, 1])


def _said(rows: pa.Table | None) -> list[str]:
    return [] if rows is None else sorted(map(repr, rows.to_pylist()))


def rows_of(rows: pa.Table, spans: Spans) -> pa.Table:
    """The rows of these windows."""
    wanted = set(zip(spans.starts.tolist(), spans.ends.tolist(), strict=True))
    return _where(rows, lambda span: span in wanted)


def without(rows: pa.Table, spans: Collection[Span]) -> pa.Table:
    """The rows of all other windows."""
    return _where(rows, lambda span: span not in spans)


def _where(rows: pa.Table, wanted: Callable[[Span], bool]) -> pa.Table:
    if not rows.num_rows:
        return rows
    starts, ends = _bounds(rows)
    return rows.filter(pa.array([wanted(span) for span in zip(starts.tolist(), ends.tolist(), strict=True)]))


def by_span(rows: pa.Table) -> dict[Span, pa.Table]:
    """The rows of each window."""
    if not rows.num_rows:
        return {}
    starts, ends = _bounds(rows)
    order = np.lexsort((ends, starts))
    rows, starts, ends = rows.take(pa.array(order)), starts[order], ends[order]
    edges = [0, *(np.flatnonzero((np.diff(starts) != 0) | (np.diff(ends) != 0)) + 1).tolist(), len(starts)]
    return {(int(starts[a]), int(ends[a])): rows.slice(a, b - a) for a, b in itertools.pairwise(edges)}


def micros(moment: datetime) -> int:
    """µs since the epoch of a naive UTC time."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


def _of_rows(rows: pa.Table) -> Spans:
    return Spans.joined([Spans(*_bounds(rows))]) if rows.num_rows else Spans.none()


def _bounds(rows: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    starts, ends = (
        rows[name].cast(pa.timestamp("us")).cast(pa.int64()) for name in ("window_start", "window_end")
    )
    return starts.to_numpy(), ends.to_numpy()
