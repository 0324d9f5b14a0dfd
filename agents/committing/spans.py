"""Which windows a commit speaks of: as intervals in µs, beside the rows that they have.

And how many of them a master makes at a time where their range has no end: those of a finite input, all of
which are complete at once. A *portion* bounds what is held, and is published before the next one is made.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import numpy as np
import pyarrow as pa

from agents.committing.panetables import opened_counters, opened_groups
from elf.fields import replace
from elf.grouping import grouped
from elf.job.contributions import Piece
from elf.job.effects import CommitWindows
from elf.job.spec import END_OF_TIME, START_OF_TIME
from elf.windows import Calendar, Kind, Landmark, Session, Spans
from elf.windows.kinds import Int64s

STATUS_ROWS_MAX: Final = 1_000
"""Windows without any row get a status of their own up to this many at a time; beyond, only those with rows
do.
"""
PORTION_ROWS: Final = 1 << 17
"""Rows of a portion and of its status, about."""
PORTIONS_READ: Final = 8
"""Panes are read again for each portion. So where windows have no more rows than their panes, and these are
many, there are only about so many portions."""
Span = tuple[int, int]
_EPOCH: Final = datetime(1970, 1, 1)


def spans_of(effect: CommitWindows, calendar: Calendar, counters: pa.Table | None, rows: pa.Table) -> Spans:
    """The windows of a commit: all that end in its range, if those are few and all that there are, else those
    with a pane that counted something; of sessions, those with rows.
    """
    if calendar.session is not None:
        return _of_rows(rows)
    length = effect.last_us - effect.first_us
    if not effect.portion and length <= STATUS_ROWS_MAX * min(kind.step_us for kind in calendar.kinds):
        return calendar.ending(effect.first_us, effect.last_us)
    panes = counters["_pane"].to_numpy() if counters is not None else np.empty(0, np.int64)
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


def has_portions(effect: CommitWindows) -> bool:
    """Whether windows are made some at a time: there is no end to their range."""
    endless = effect.last_us >= END_OF_TIME and effect.revised is None and effect.skipped_to is None
    return endless and bool(effect.spec.plan.windows)


def portion(effect: CommitWindows, pieces: Sequence[Piece]) -> CommitWindows:
    """The first of the windows, that are about so many rows; all of them where that is what is left.

    ``pieces``: the panes that they are made of. A row of a pane may be in each window that holds it, and no
    window has more rows than there are groups: the smaller of both counts.
    """
    groups, counter_tables = opened_groups(pieces), opened_counters(pieces)
    rows = _panes(groups)
    panes, inverse = np.unique(np.concatenate([rows, _panes(counter_tables)]), return_inverse=True)
    if not len(panes):
        return effect
    weights = 1 + np.bincount(inverse[: len(rows)], minlength=len(panes))
    firsts, stops, weights, each = _held(effect, panes, weights)
    aim = max(PORTION_ROWS, len(rows) // PORTIONS_READ)
    if not len(firsts) or float((weights * ((stops - firsts) // each)).sum()) <= aim:
        return effect
    largest = 1 + _groups_max(effect, groups, len(rows))
    by_rows = _reached(firsts, stops, weights / each, aim)
    by_windows = _reached(firsts, _apart(firsts, stops, each), largest / each, aim)
    last = effect.calendar.last_end(max(by_rows, by_windows, int(firsts.min())))
    last -= last % effect.calendar.pane_us  # sessions end anywhere, and need what is committed below
    if last >= int(stops.max() - each.min()):
        return effect
    return replace(effect, last_us=last, final=False, portion=True)


def _panes(tables: Sequence[pa.Table]) -> Int64s:
    columns = [table["_pane"].to_numpy() for table in tables]
    return np.concatenate([np.empty(0, np.int64), *columns]).astype(np.int64)


def _held(effect: CommitWindows, panes: Int64s, weights: Int64s) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Of each pane and kind: when the first window ends that holds the pane and is to be made, a step after
    the last one does, the pane's weight, and the step."""
    starts = panes * effect.calendar.pane_us
    found = []
    for kind in effect.calendar.kinds:
        first, stop, weight = _ends(effect.calendar, kind, starts, weights)
        if effect.first_us > START_OF_TIME:
            first = np.maximum(first, kind.ends_by(effect.first_us) + kind.step_us)
        found.append(np.stack([first, stop, weight, np.full(len(first), kind.step_us)]))
    first, stop, weights, each = np.concatenate(found, axis=1)
    wanted = stop > first
    return first[wanted], stop[wanted], weights[wanted], each[wanted]


def _ends(calendar: Calendar, kind: Kind, starts: Int64s, weights: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Where windows of a kind end that hold panes, as of ``_held``. A session ends somewhere in a step: a key
    has one there. Each landmark window stands for itself: those that hold a pane are not evenly apart."""
    if isinstance(kind, Session):
        return starts + kind.gap_us, starts + 2 * kind.gap_us, weights
    if isinstance(kind, Landmark):
        ends = np.unique(kind.ends_by(starts) + kind.step_us)
        before = np.concatenate([[0], np.cumsum(weights)])
        begin, stop = (np.searchsorted(starts, us) for us in (calendar.starts_of(kind, ends), ends))
        return ends, ends + kind.step_us, before[stop] - before[begin]
    return kind.ends_by(starts) + kind.step_us, kind.last_end(starts) + kind.step_us, weights


def _apart(firsts: Int64s, stops: Int64s, each: Int64s) -> Int64s:
    """Where each stretch ends so that no window of a step is in two of them."""
    order = np.lexsort((firsts, each))
    after = np.concatenate([firsts[order][1:], [END_OF_TIME]])
    after[np.concatenate([np.diff(each[order]) != 0, [True]])] = END_OF_TIME
    found = stops.copy()
    found[order] = np.minimum(stops[order], after)
    return found


def _reached(firsts: Int64s, stops: Int64s, rates: np.ndarray, aim: int) -> int:
    """The time by which stretches that bring so much a µs have brought ``aim``."""
    times = np.concatenate([firsts, stops])
    change = np.concatenate([rates, -rates])
    order = np.argsort(times, kind="stable")
    times, rate = times[order], np.cumsum(change[order])
    brought = np.concatenate([[0.0], np.cumsum(rate[:-1] * np.diff(times))])
    at = int(np.searchsorted(brought, aim))
    if at >= len(times):
        return int(times[-1])
    more = (aim - brought[at - 1]) / rate[at - 1] if at else 0.0
    return int(times[at - 1] + more) if at else int(times[0])


def _groups_max(effect: CommitWindows, groups: Sequence[pa.Table], rows: int) -> int:
    """The most rows that a window can have."""
    plan = effect.spec.plan
    if plan.join is not None or plan.stages or plan.beside or plan.fragment.stage is not None:
        return rows  # what it is made of has other groups
    keys = list(plan.made.keys)
    if not keys:
        return 1
    tables = [table.select(keys) for table in groups if table.num_rows]
    distinct = grouped(pa.concat_tables(tables, promote_options="permissive"), keys).num_rows if tables else 0
    return min(rows, distinct, plan.top.rows if plan.top is not None else distinct)
