"""Past windows as one table: ``SELECT … FROM JOB name WINDOWS`` is over it, and ``elf offline export`` writes
it.

A row of a window is a row of the table: ``window_start``, ``window_end`` and ``revision``, the columns of
the job's SELECT list, then what the window says about itself (``expected``, ``reported``, ``late`` …), the
same in each of its rows. Where the SELECT list has a column of such a name, the window's own word has ``_``
before it. A window without rows is in no row of the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from elf.batch import NO_CAST
from elf.client.windows import WINDOW_COLUMNS, Window, split
from elf.wire.clients import WindowResult

if TYPE_CHECKING:
    from elf.job.messages.groups import PastWindows

FIRST: Final = (*WINDOW_COLUMNS, "revision")
_US: Final = pa.timestamp("us")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
Bounds = tuple[int, int]


def windows_of(
    results: Iterable[WindowResult], since_us: int, until_us: int, *, all_revisions: bool = False
) -> list[Window]:
    """The windows in committed results, by their start.

    Args:
        results (Iterable[WindowResult]): in the order of their numbers.
        since_us (int): windows start here or later, µs since the epoch.
        until_us (int): windows start before.
        all_revisions (bool): every revision of a window; else the last one.

    Returns:
        list[Window]: by start, end and revision.

    Raises:
        PeerError: for a result that is no table.

    Example:
        >>> windows_of([], 0, 1)
        []
    """
    found: dict[tuple[object, ...], Window] = {}
    for result in results:
        for window in split(result):
            if window.early or not since_us <= start_us(window) < until_us:
                continue
            name = (window.start, window.end, window.revision if all_revisions else 0)
            found[name] = window
    return sorted(found.values(), key=lambda one: (start_us(one), _us(one.end), one.revision))


Names = Mapping[tuple[int, int], int]
"""By start and end of a window, the number of the last result that has it."""


def last_words(past: PastWindows, bounds: Bounds) -> dict[tuple[int, int], int]:
    """Which windows are in results, and in which one last.

    Args:
        past (PastWindows): in the order of their numbers.
        bounds (Bounds): windows start at the first moment or later and before the second, µs.

    Returns:
        dict[tuple[int, int], int]: by start and end (µs), the number of the result.

    Raises:
        PeerError: for a result that is no table.

    Example:
        >>> from elf.job.messages.groups import PastWindows
        >>> last_words(PastWindows((), more=False, first_us=None), (0, 1))
        {}
    """
    return {
        (start_us(window), _us(window.end)): one.result.number
        for one in past.windows
        for window in split(one.result)
        if bounds[0] <= start_us(window) < bounds[1]
    }


def portion_of(past: PastWindows, bounds: Bounds, last: Names | None, number: int) -> pa.Table:
    """The windows of results as a table.

    Args:
        past (PastWindows): results.
        bounds (Bounds): windows start at the first moment or later and before the second, µs.
        last (Names | None): only what is the last word on its window; None: all.
        number (int): only results up to that number.

    Returns:
        pyarrow.Table: as ``table_of``.

    Raises:
        PeerError: for a result that is no table.

    Example:
        >>> from elf.job.messages.groups import PastWindows
        >>> portion_of(PastWindows((), more=False, first_us=None), (0, 1), None, 7).num_rows
        0
    """
    found = []
    for one in past.windows:
        if one.result.number > number:
            continue
        for window in split(one.result):
            start = start_us(window)
            counts = last is None or last.get((start, _us(window.end))) == one.result.number
            if bounds[0] <= start < bounds[1] and counts:
                found.append(window)
    return table_of(found)


def start_us(window: Window) -> int:
    """When a window starts, in µs since the epoch; 0 for the result of a job without windows.

    Args:
        window (Window): the window.

    Returns:
        int: µs since the epoch.

    Raises:
        Nothing.

    Example:
        >>> start_us(Window("00.1", "busy", 1, "", None, None, 0, {}, pa.table({})))
        0
    """
    return _us(window.start)


def _us(moment: datetime | None) -> int:
    if moment is None:
        return 0
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def table_of(windows: Sequence[Window]) -> pa.Table:
    """Windows as one table (see the module's docstring).

    Args:
        windows (Sequence[Window]): of one job, in the order of the rows.

    Returns:
        pyarrow.Table: no columns where no window has a row. A column that has had several types, in several
        versions of the job, has one that holds all of them, or text.

    Raises:
        Nothing.

    Example:
        >>> start, end = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
        >>> rows = pa.table({"page": ["/", "/cart"], "n": [3, 1]})
        >>> window = Window("00.1", "busy", 1, "", start, end, 0, {"expected": 2, "late": 1}, rows)
        >>> table = table_of([window])
        >>> table.column_names
        ['window_start', 'window_end', 'revision', 'page', 'n', 'expected', 'late']
        >>> table["n"].to_pylist(), table["late"].to_pylist()
        ([3, 1], [1, 1])
    """
    some = [window for window in windows if window.table.num_rows]
    if not some:
        return pa.table({})
    rows = _joined([_own(window.table) for window in some])
    of = pa.array(np.repeat(np.arange(len(some)), [window.table.num_rows for window in some]))
    starts = pa.array(
        [_us(window.start) if window.start is not None else None for window in some], pa.int64()
    )
    ends = pa.array([_us(window.end) if window.end is not None else None for window in some], pa.int64())
    columns = {
        "window_start": starts.cast(_US).take(of),
        "window_end": ends.cast(_US).take(of),
        "revision": pa.array([window.revision for window in some], pa.int64()).take(of),
        **dict(zip(rows.column_names, rows.columns, strict=True)),
    }
    taken = {name.lower() for name in columns}
    for name in dict.fromkeys(name for window in some for name in window.status):
        called = f"_{name}" if name.lower() in taken else name
        if called.lower() not in taken:
            columns[called] = pa.array([window.status.get(name) for window in some]).take(of)
    return pa.table(columns)


def _own(table: pa.Table) -> pa.Table:
    """The columns of the SELECT list."""
    return table.select([name for name in table.column_names if name not in FIRST])


def _joined(tables: Sequence[pa.Table]) -> pa.Table:
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except (*NO_CAST, pa.ArrowTypeError):
        return pa.concat_tables(map(_as_texts, tables), promote_options="permissive")


def _as_texts(table: pa.Table) -> pa.Table:
    """Of a job whose versions have columns of types that have nothing in common."""
    flat = [
        column if pa.types.is_nested(column.type) else column.cast(pa.string()) for column in table.columns
    ]
    return pa.table(flat, names=table.column_names)
