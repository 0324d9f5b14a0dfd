"""Live against offline, window by window: do the agents and Spark give the same rows?

Rules: the last revision that the live side committed counts. Rows are compared as multisets (an order that
the query does not fix is nobody's promise), cells exactly, floats to one part in 10¹² of the value. Rows that
differ are paired by their keys. Every window that either side knows is judged: rows that Spark finds in a
window that the live side never committed are a difference. Nothing compared is no success.

Why windows differ is said elsewhere (``spark_backend.reasons``); here is how a reason looks.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
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


class Outcome(IntEnum):
    """How a window, or all of them, came out; also the exit status of ``elf compare``.

    Example:
        >>> max(Outcome.EQUAL, Outcome.EXPLAINED).name
        'EXPLAINED'
    """

    EQUAL = 0
    EXPLAINED = 1
    UNEXPLAINED = 2


@dataclass(frozen=True)
class Error:
    """By how much a number of the live side is off.

    Attributes:
        column (str): of the SELECT list.
        absolute (float): live less offline, without its sign.
        relative (float): the same by the offline value; infinite where that is 0.

    Example:
        >>> Error("n", absolute=3.0, relative=0.25).relative
        0.25
    """

    column: str
    absolute: float
    relative: float


@dataclass(frozen=True)
class Difference:
    """A row of one side that the other does not have; both where they have the same keys.

    Attributes:
        live (Row | None): the cells of the live side.
        offline (Row | None): the cells of the offline side.

    Example:
        >>> Difference(live=("/cart", 2), offline=None).kind
        'extra'
        >>> Difference(live=("/cart", 2), offline=("/cart", 3)).errors(("page", "n"))
        (Error(column='n', absolute=1.0, relative=0.3333333333333333),)
    """

    live: Row | None
    offline: Row | None

    @property
    def kind(self) -> str:
        """Which side has it: ``missing`` (the live side lacks it), ``extra`` (it alone has it) or
        ``different``."""
        return "missing" if self.live is None else "extra" if self.offline is None else "different"

    def errors(self, columns: Sequence[str]) -> tuple[Error, ...]:
        """By how much each number is off that is not the same on both sides.

        Args:
            columns (Sequence[str]): the names of the cells.

        Returns:
            tuple[Error, ...]: none for a row that one side lacks, and none for texts and NULLs.

        Raises:
            Nothing.
        """
        if self.live is None or self.offline is None:
            return ()
        cells = zip(columns, self.live, self.offline, strict=True)
        return tuple(_error(name, ours, theirs) for name, ours, theirs in cells if _off(ours, theirs))


@dataclass(frozen=True)
class Reason:
    """Why a window differs.

    Attributes:
        name (str): ``late``, ``not covered``, ``shed``, ``leapt``, ``outside the roster``, ``ahead of the
            clock``, ``archive``, ``approximate``, ``uncast``, ``skipped``, ``version`` or ``unexplained``.
        text (str): for people.
        rows (int | None): rows of the stream that it accounts for, below 0 those that the archive lacks;
            None: it is not about a number of rows.

    Example:
        >>> Reason("late", "12 rows came too late", rows=12).rows
        12
    """

    name: str
    text: str
    rows: int | None = None


UNEXPLAINED: Final = "unexplained"


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
        differences (tuple[Difference, ...]): rows without a partner that is the same on the other side.
        columns (tuple[str, ...]): the names of the cells.
        reasons (tuple[Reason, ...]): why it differs; or why it was not compared.
        compared (bool): whether it could be.

    Example:
        >>> Verdict(0, 60_000_000, None, {}, live_rows=0, offline_rows=1).equal
        False
        >>> late = Reason("late", "1 row came too late", rows=1)
        >>> gone = Difference(live=None, offline=("/cart", 1))
        >>> window = Verdict(0, 60_000_000, 0, {"expected": 4, "reported": 3}, live_rows=9, offline_rows=10,
        ...     differences=(gone,), columns=("page", "n"), reasons=(late,))
        >>> window.outcome.name, window.error, window.overlap, window.coverage
        ('EXPLAINED', 1.0, 0.9, 0.75)
    """

    start_us: int
    end_us: int
    revision: int | None
    status: Mapping[str, object]
    live_rows: int
    offline_rows: int
    differences: tuple[Difference, ...] = ()
    columns: tuple[str, ...] = ()
    reasons: tuple[Reason, ...] = ()
    compared: bool = True

    @property
    def equal(self) -> bool:
        """Whether it was committed, and both sides have the same rows."""
        return self.compared and self.revision is not None and not self.differences

    @property
    def outcome(self) -> Outcome:
        """How it came out: ``EXPLAINED`` where it differs, or was not compared, and every reason is known."""
        if self.equal:
            return Outcome.EQUAL
        known = self.reasons and all(reason.name != UNEXPLAINED for reason in self.reasons)
        return Outcome.EXPLAINED if known else Outcome.UNEXPLAINED

    @property
    def error(self) -> float:
        """The largest relative error of a cell; 1 for a row that one side lacks, or a text that differs."""
        return max((_size(one, self.columns) for one in self.differences), default=0.0)

    @property
    def overlap(self) -> float:
        """The share of rows whose keys both sides have: of the top k the share that both name."""
        alone = sum(one.offline is None for one in self.differences)
        most = max(self.live_rows, self.offline_rows)
        return (self.live_rows - alone) / most if most else 1.0

    @property
    def coverage(self) -> float | None:
        """The share of the expected agents that it covers; None where the status does not say."""
        expected, reported = self.status.get("expected"), self.status.get("reported")
        if not isinstance(expected, int) or not isinstance(reported, int) or not expected:
            return None
        return reported / expected


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
        >>> nothing.outcome.name, nothing.counts
        ('UNEXPLAINED', {'equal': 0, 'explained': 0, 'unexplained': 0})
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

    @property
    def outcome(self) -> Outcome:
        """The worst of all windows."""
        return max((window.outcome for window in self.windows), default=Outcome.UNEXPLAINED)

    @property
    def counts(self) -> dict[str, int]:
        """How many windows came out how."""
        found = Counter(window.outcome for window in self.windows)
        return {outcome.name.lower(): found[outcome] for outcome in Outcome}


def compare(live: Sequence[LiveWindow], offline: pa.Table, keys: Sequence[str] | None = None) -> Comparison:
    """Judge every window that is in ``live`` or has rows in ``offline``.

    Args:
        live (Sequence[LiveWindow]): committed windows, in any order. Of several revisions the last counts.
        offline (pyarrow.Table): the answer of ``spark_backend.offline.run``: ``window_start`` and
            ``window_end`` first when the job has windows, then the columns of the SELECT list.
        keys (Sequence[str] | None): the columns that tell rows of a window from each other; none where there
            is one row. Rows that differ are paired by them. None: they are not known, and pairs are made of
            rows whose floats alone differ.

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
        >>> compare(live, pa.table({"page": ["/cart", "/"], "n": [3, 12]}), ["page"]).windows[0].differences
        (Difference(live=('/cart', 2), offline=('/cart', 3)),)
    """
    committed: dict[Bounds, LiveWindow] = {}
    for window in live:
        bounds = (window.start_us, window.end_us)
        if bounds not in committed or committed[bounds].revision < window.revision:
            committed[bounds] = window
    columns = _result_names(offline)
    places = None if keys is None else [columns.index(key) for key in keys if key in columns]
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
        verdicts.append(_judge(bounds, live_window, found.get(bounds, []), columns, places))
    return Comparison(columns, tuple(verdicts))


def _judge(
    bounds: Bounds,
    live: LiveWindow | None,
    offline: list[Row],
    columns: tuple[str, ...],
    keys: Sequence[int] | None,
) -> Verdict:
    rows = [] if live is None else [row for rows in _by_window(live.table).values() for row in rows]
    apart = _differences(rows, offline)
    return Verdict(
        *bounds,
        revision=None if live is None else live.revision,
        status={} if live is None else live.status,
        live_rows=len(rows),
        offline_rows=len(offline),
        differences=tuple(apart if keys is None else _paired(apart, keys)),
        columns=columns,
    )


def _paired(apart: Sequence[Difference], keys: Sequence[int]) -> list[Difference]:
    """Rows that one side has alone, with those of the other side that have the same keys."""
    theirs: dict[Row, list[Row]] = defaultdict(list)
    for one in apart:
        if one.live is None and one.offline is not None:
            theirs[tuple(one.offline[place] for place in keys)].append(one.offline)
    found = [one for one in apart if one.live is not None and one.offline is not None]
    for one in apart:
        if one.live is not None and one.offline is None:
            others = theirs.get(tuple(one.live[place] for place in keys))
            found.append(Difference(one.live, others.pop(0)) if others else one)
    return [*found, *(Difference(None, row) for rows in theirs.values() for row in rows)]


def _off(ours: Cell, theirs: Cell) -> bool:
    numbers = all(isinstance(cell, int | float) and not isinstance(cell, bool) for cell in (ours, theirs))
    return numbers and not same(ours, theirs)


def _error(column: str, ours: Cell, theirs: Cell) -> Error:
    live, offline = float(ours or 0), float(theirs or 0)
    absolute = abs(live - offline)
    if not math.isfinite(absolute):
        return Error(column, math.inf, math.inf)
    return Error(column, absolute, absolute / abs(offline) if offline else math.inf)


def _size(difference: Difference, columns: Sequence[str]) -> float:
    if difference.live is None or difference.offline is None:
        return 1.0
    errors = [one.relative for one in difference.errors(columns)]
    return max(errors, default=1.0)


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
    apart = [i for i in range(common) if not all(map(same, ours[i], theirs[i]))]
    left = [theirs[i] for i in apart] + theirs[common:]
    alone = []
    for row in [ours[i] for i in apart] + ours[common:]:
        partner = next((i for i, other in enumerate(left) if all(map(same, row, other))), None)
        if partner is None:
            alone.append(row)
        else:
            left.pop(partner)
    return alone, left


def same(one: Cell, other: Cell) -> bool:
    """Whether two cells are equal; floats to one part in 10¹²."""
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
