"""Past windows as one table: ``SELECT … FROM JOB name WINDOWS`` is over it, and ``elf offline export`` writes
it.

A row of a window is a row of the table: ``window_start``, ``window_end`` and ``revision``, the columns of
the job's SELECT list, then what the window says about itself (``expected``, ``reported``, ``late`` …), the
same in each of its rows. Where the SELECT list has a column of such a name, the window's own word has ``_``
before it. A window without rows is in no row of the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elf.batch import NO_CAST, decode
from elf.client.windows import WINDOW_COLUMNS
from elf.wire.clients import WindowResult

_US: Final = pa.timestamp("us")
_FIRST: Final = (*WINDOW_COLUMNS, "revision")
Int64s = npt.NDArray[np.int64]
Bounds = tuple[int, int]
Last = Mapping[Bounds, int]
"""By start and end of a window (µs since the epoch), the number of the last result that has it."""


class Past(NamedTuple):
    """Past windows.

    Attributes:
        table (pyarrow.Table): their rows, by start, end and revision; no columns where there are none.
        windows (int): how many windows there are, a revision for itself.
        empty (int): how many of these have no rows.

    Example:
        >>> past_of([], (0, 1))
        Past(table=pyarrow.Table
        <BLANKLINE>
        ----
        , windows=0, empty=0)
    """

    table: pa.Table
    windows: int
    empty: int


class _Spans(NamedTuple):
    """Of each window: start and end, and the number of its result."""

    starts: Int64s
    ends: Int64s
    numbers: Int64s


def past_of(
    results: Sequence[WindowResult], bounds: Bounds, *, all_revisions: bool = False, last: Last | None = None
) -> Past:
    """Committed results as one table.

    Args:
        results (Sequence[WindowResult]): of one job, in the order of their numbers.
        bounds (Bounds): windows start at the first moment or later, and before the second; µs since the
            epoch.
        all_revisions (bool): every revision of a window; else the last of these.
        last (Last | None): instead, the results that have the last word on each window.

    Returns:
        Past: a column that has had several types, in several versions of the job, has one that holds all of
        them, or text.

    Raises:
        PeerError: for a result that is no table.

    Example:
        >>> from datetime import datetime
        >>> from elf.batch import encode
        >>> start, end = datetime(2026, 1, 1), datetime(2026, 1, 1, 0, 1)
        >>> rows = pa.table({"window_start": [start] * 2, "window_end": [end] * 2, "n": [3, 1]})
        >>> said = {"revision": [0], "expected": [2], "late": [1]}
        >>> status = pa.table({"window_start": [start], "window_end": [end], **said})
        >>> result = WindowResult(
        ...     job="00.1", name="busy", version=1, master="", first_us=0, last_us=0, revision=0,
        ...     status=encode(status), payload=encode(rows), number=1,
        ... )
        >>> past = past_of([result], (0, 1 << 62))
        >>> past.table.column_names
        ['window_start', 'window_end', 'revision', 'n', 'expected', 'late']
        >>> past.table["n"].to_pylist(), past.table["late"].to_pylist()
        ([3, 1], [1, 1])
    """
    tables = [decode(one.status) for one in results]
    said, spans = joined(tables), _spans(tables, results)
    inside = (spans.starts >= bounds[0]) & (spans.starts < bounds[1])
    if last is not None:
        each = zip(*(column.tolist() for column in spans), strict=True)
        inside &= np.array([last.get((start, end)) == number for start, end, number in each], np.bool_)
    chosen = np.flatnonzero(inside)
    if not all_revisions and last is None:
        chosen = _last(spans, chosen)
    payloads = [decode(one.payload) if one.payload else pa.table({}) for one in results]
    of, places = _matched(spans, chosen, payloads, results)
    windows = len(chosen)
    if not len(of):
        return Past(pa.table({}), windows, windows)
    revisions = said["revision"].to_numpy()
    order = np.lexsort((places, spans.numbers[of], revisions[of], spans.ends[of], spans.starts[of]))
    of, places = of[order], places[order]
    rows = joined([_own(table) for table in payloads if table.num_rows]).take(pa.array(places))
    table = _table(said.take(pa.array(of)), rows)
    return Past(table, windows, windows - len(np.unique(of)))


def last_of(results: Iterable[WindowResult]) -> dict[Bounds, int]:
    """Which result has the last word on each window.

    Args:
        results (Iterable[WindowResult]): in the order of their numbers; their rows are not looked at.

    Returns:
        dict[Bounds, int]: by start and end (µs since the epoch), the number of the result.

    Raises:
        PeerError: for a status that is no table.

    Example:
        >>> last_of([])
        {}
    """
    found: dict[Bounds, int] = {}
    for one in results:
        spans = _spans([decode(one.status)], [one])
        found |= dict.fromkeys(zip(spans.starts.tolist(), spans.ends.tolist(), strict=True), one.number)
    return found


def _spans(tables: Sequence[pa.Table], results: Sequence[WindowResult]) -> _Spans:
    """The window of each row of these tables, which are of so many results."""
    sizes = [table.num_rows for table in tables]
    numbers = np.repeat(np.array([one.number for one in results], np.int64), sizes)
    some = [table.select(WINDOW_COLUMNS) for table in tables if table.num_rows]
    if not some or len(numbers) == 0:
        return _Spans(*(np.empty(0, np.int64) for _ in range(3)))
    whole = pa.concat_tables(some)
    starts, ends = (whole[name].cast(_US).cast(pa.int64()).fill_null(0).to_numpy() for name in WINDOW_COLUMNS)
    return _Spans(starts, ends, numbers)


def _last(spans: _Spans, chosen: Int64s) -> Int64s:
    """Of the rows of each window the one with the highest number."""
    order = chosen[np.lexsort((spans.numbers[chosen], spans.ends[chosen], spans.starts[chosen]))]
    starts, ends = spans.starts[order], spans.ends[order]
    is_last = np.ones(len(order), np.bool_)
    is_last[:-1] = (starts[1:] != starts[:-1]) | (ends[1:] != ends[:-1])
    return np.sort(order[is_last])


def _matched(
    spans: _Spans, chosen: Int64s, payloads: Sequence[pa.Table], results: Sequence[WindowResult]
) -> tuple[Int64s, Int64s]:
    """(window, row) of each row that is of a chosen window."""
    rows = _spans(payloads, results)
    wanted = np.stack([column[chosen] for column in spans], axis=1).reshape(-1, 3)
    every = np.concatenate([wanted, np.stack(rows, axis=1).reshape(-1, 3)])
    _, names = np.unique(every, axis=0, return_inverse=True)
    names = names.reshape(-1)
    windows = np.full(int(names.max(initial=-1)) + 1, -1, np.int64)
    windows[names[: len(wanted)]] = chosen
    of = windows[names[len(wanted) :]]
    places = np.flatnonzero(of >= 0)
    return of[places], places


def _table(said: pa.Table, rows: pa.Table) -> pa.Table:
    """The rows between what their windows say."""
    columns = {name: said[name] for name in _FIRST}
    columns |= dict(zip(rows.column_names, rows.columns, strict=True))
    taken = {name.lower() for name in columns}
    for name in said.column_names:
        called = f"_{name}" if name.lower() in taken else name
        if name not in _FIRST and called.lower() not in taken:
            columns[called] = said[name]
    return pa.table(columns)


def _own(table: pa.Table) -> pa.Table:
    """The columns of the SELECT list."""
    return table.select([name for name in table.column_names if name not in _FIRST])


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    """One table of all their rows, in the widest of the types that a column has, or as text."""
    if not tables:
        return pa.table({})
    try:
        return pa.concat_tables(tables, promote_options="permissive").combine_chunks()
    except (*NO_CAST, pa.ArrowTypeError):
        return pa.concat_tables(map(_as_texts, tables), promote_options="permissive").combine_chunks()


def _as_texts(table: pa.Table) -> pa.Table:
    """Of a job whose versions have columns of types that have nothing in common."""
    flat = [
        column if pa.types.is_nested(column.type) else column.cast(pa.string()) for column in table.columns
    ]
    return pa.table(flat, names=table.column_names)
