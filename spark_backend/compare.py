"""Live against offline, window by window: do the agents and Spark give the same rows?

Rules: the last revision that the live side committed counts. Rows are compared as multisets (an order that
the query does not fix is nobody's promise), cells exactly, floats to one part in 10¹² of the value. Every
window that either side knows is judged: rows that Spark finds in a window that the live side never committed
are a difference. Nothing compared is no success.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Final

import pyarrow as pa

from elf.errors import ElfBug

FLOAT_TOLERANCE: Final = 1e-12
WINDOW_COLUMNS: Final = ("window_start", "window_end")

Cell = str | int | float | bool | None
Row = tuple[Cell, ...]
Bounds = tuple[int, int]

EVERYTHING: Final[Bounds] = (0, 0)
"""The bounds of the one result of a job without windows."""


@dataclass(frozen=True)
class LiveWindow:
    """A window as the live side committed it.

    Attributes:
        start_us (int): its start, in µs since the epoch; 0 without a window clause.
        end_us (int): its end, which is not in it; 0 without a window clause.
        revision (int): 0 for its first commit.
        status (Mapping[str, object]): the counters by name (``elf.client.Window.status``).
        table (pyarrow.Table): the result rows, with or without the window's own columns.

    Example:
        >>> window = LiveWindow(0, 60_000_000, 0, {"expected": 1, "reported": 1}, pa.table({"n": [12]}))
        >>> (window.end_us - window.start_us) / 1e6
        60.0
    """

    start_us: int
    end_us: int
    revision: int
    status: Mapping[str, object]
    table: pa.Table


@dataclass(frozen=True)
class Difference:
    """A row of one side that the other does not have; both where only floats differ.

    Attributes:
        live (Row | None): the cells of the live side.
        offline (Row | None): the cells of the offline side.

    Example:
        >>> Difference(live=("/cart", 2), offline=None).offline is None
        True
    """

    live: Row | None
    offline: Row | None


@dataclass(frozen=True)
class Verdict:
    """How one window compares.

    Attributes:
        start_us (int): its start, in µs since the epoch.
        end_us (int): its end, in µs since the epoch.
        revision (int | None): the last one that was committed; None when the live side never committed it.
        status (Mapping[str, object]): the counters by name.
        live_rows (int): rows of the live side.
        offline_rows (int): rows of the offline side.
        differences (tuple[Difference, ...]): rows without a partner on the other side.

    Example:
        >>> Verdict(0, 60_000_000, None, {}, live_rows=0, offline_rows=1).equal
        False
    """

    start_us: int
    end_us: int
    revision: int | None
    status: Mapping[str, object]
    live_rows: int
    offline_rows: int
    differences: tuple[Difference, ...] = ()

    @property
    def equal(self) -> bool:
        """Whether it was committed, and both sides have the same rows."""
        return self.revision is not None and not self.differences


@dataclass(frozen=True)
class Comparison:
    """How all windows compare.

    Attributes:
        columns (tuple[str, ...]): the names of the cells in the rows.
        windows (tuple[Verdict, ...]): the windows, by start.

    Example:
        >>> nothing = Comparison(("n",))
        >>> nothing.equal, nothing.equal_windows
        (False, 0)
    """

    columns: tuple[str, ...]
    windows: tuple[Verdict, ...] = field(default=())

    @property
    def equal_windows(self) -> int:
        """The number of windows that are the same on both sides."""
        return sum(window.equal for window in self.windows)

    @property
    def equal(self) -> bool:
        """True when there were windows and each is the same on both sides."""
        return bool(self.windows) and self.equal_windows == len(self.windows)


def compare(live: Sequence[LiveWindow], offline: pa.Table) -> Comparison:
    """Judge every window that is in ``live`` or has rows in ``offline``.

    Args:
        live (Sequence[LiveWindow]): committed windows, in any order. Of several revisions the last counts.
        offline (pyarrow.Table): the answer of ``spark_backend.offline.run``: ``window_start`` and
            ``window_end`` first when the job has windows, then the columns of the SELECT list.

    Returns:
        Comparison: rows are compared as multisets, cells exactly, floats to one part in 10¹² of the value.

    Raises:
        ElfBug: when the two sides do not have the same columns: then they did not run the same query.

    Example:
        >>> live = [LiveWindow(0, 0, 0, {}, pa.table({"page": ["/", "/cart"], "n": [12, 2]}))]
        >>> compare(live, pa.table({"page": ["/cart", "/"], "n": [2, 12]})).equal
        True
        >>> compare(live, pa.table({"page": ["/cart", "/"], "n": [3, 12]})).windows[0].differences
        (Difference(live=('/cart', 2), offline=None), Difference(live=None, offline=('/cart', 3)))
    """
    committed: dict[Bounds, LiveWindow] = {}
    for window in live:
        bounds = (window.start_us, window.end_us)
        if bounds not in committed or committed[bounds].revision < window.revision:
            committed[bounds] = window
    columns = _result_names(offline)
    found = _by_window(offline)
    verdicts = []
    for bounds in sorted({*committed, *found}):
        live_window = committed.get(bounds)
        if (
            live_window is not None
            and live_window.table.num_columns
            and _result_names(live_window.table) != columns
        ):
            raise ElfBug(f"live has the columns {_result_names(live_window.table)}, offline {columns}")
        verdicts.append(_judge(bounds, live_window, found.get(bounds, [])))
    return Comparison(columns, tuple(verdicts))


def _judge(bounds: Bounds, live: LiveWindow | None, offline: list[Row]) -> Verdict:
    rows = [] if live is None else [row for rows in _by_window(live.table).values() for row in rows]
    return Verdict(
        *bounds,
        revision=None if live is None else live.revision,
        status={} if live is None else live.status,
        live_rows=len(rows),
        offline_rows=len(offline),
        differences=tuple(_differences(rows, offline)),
    )


def _differences(live: Sequence[Row], offline: Sequence[Row]) -> list[Difference]:
    """Pairs rows whose exact cells agree, then within those by their floats; reports what is left."""
    inexact = {
        i for rows in (live, offline) for row in rows for i, cell in enumerate(row) if isinstance(cell, float)
    }
    groups: dict[Row, tuple[list[Row], list[Row]]] = defaultdict(lambda: ([], []))
    for side, rows in enumerate((live, offline)):
        for row in rows:
            exact = tuple(None if i in inexact else cell for i, cell in enumerate(row))
            nulls = tuple(cell is None for cell in row)
            groups[exact + nulls][side].append(row)
    found = []
    for ours, theirs in groups.values():
        found += [Difference(one, other) for one, other in zip_longest(*_unpaired(ours, theirs))]
    return found


def _unpaired(ours: list[Row], theirs: list[Row]) -> tuple[list[Row], list[Row]]:
    """Rows without a partner that is the same. In order of their floats nearly all pair off at once; only
    those that rounding has put in another order are looked for one by one."""
    ours.sort(key=_float_order)
    theirs.sort(key=_float_order)
    common = min(len(ours), len(theirs))
    apart = [i for i in range(common) if not all(map(_same, ours[i], theirs[i]))]
    left = [theirs[i] for i in apart] + theirs[common:]
    alone = []
    for row in [ours[i] for i in apart] + ours[common:]:
        partner = next((i for i, other in enumerate(left) if all(map(_same, row, other))), None)
        if partner is None:
            alone.append(row)
        else:
            left.pop(partner)
    return alone, left


def _same(one: Cell, other: Cell) -> bool:
    if isinstance(one, float) or isinstance(other, float):
        if one is None or other is None:
            return one is other
        left, right = float(one), float(other)
        both_nan = math.isnan(left) and math.isnan(right)
        return both_nan or math.isclose(left, right, rel_tol=FLOAT_TOLERANCE, abs_tol=0.0)
    return one == other


def _float_order(row: Row) -> tuple[float, ...]:
    numbers = [float(cell) for cell in row if isinstance(cell, int | float)]
    return tuple(math.inf if math.isnan(number) else number for number in numbers)


def _result_names(table: pa.Table) -> tuple[str, ...]:
    names = tuple(table.column_names)
    return names[2:] if names[:2] == WINDOW_COLUMNS else names


def _by_window(table: pa.Table) -> dict[Bounds, list[Row]]:
    """The rows of a result table by the window that they are of, cells as plain values."""
    columns = [_cells(column) for column in table.columns]
    found: dict[Bounds, list[Row]] = defaultdict(list)
    windowed = tuple(table.column_names[:2]) == WINDOW_COLUMNS
    for row in zip(*columns, strict=True):
        if windowed:
            start, end = row[:2]
            if not (isinstance(start, int) and isinstance(end, int)):
                raise ElfBug(f"a result row has the window {start} to {end}")
            found[start, end].append(row[2:])
        else:
            found[EVERYTHING].append(row)
    return found


def _cells(column: pa.ChunkedArray) -> list[Cell]:
    """Timestamps as µs since the epoch, whole decimals (sums of integers) as integers."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        return list(column.cast(pa.timestamp("us", kind.tz)).cast(pa.int64()).to_pylist())
    if pa.types.is_decimal(kind):
        whole = kind.scale == 0
        return [None if cell is None else int(cell) if whole else float(cell) for cell in column.to_pylist()]
    return list(column.to_pylist())
