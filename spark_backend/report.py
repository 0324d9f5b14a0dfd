"""A comparison as people read it: a table of the windows, the rows that differ, one closing line."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from elf.client.coverage import coverage
from elf.client.values import for_terminal
from spark_backend.compare import EVERYTHING, Comparison, Difference, Verdict

DIFFERENCES_SHOWN_MAX: Final = 5
"""Rows named in full for each window; the rest is a number."""

_EPOCH: Final = datetime.datetime(1970, 1, 1)


def show(comparison: Comparison, console: Console) -> None:
    """Print it all: the windows, rows that differ, and the closing line.

    Args:
        comparison (Comparison): of ``spark_backend.compare.compare``.
        console (rich.console.Console): where to.

    Raises:
        Nothing.

    Example:
        >>> from io import StringIO
        >>> window = Verdict(0, 60_000_000, 0, {"expected": 1, "reported": 1}, live_rows=2, offline_rows=2)
        >>> text = StringIO()
        >>> show(Comparison(("n",), (window,)), Console(file=text))
        >>> text.getvalue().splitlines()[-1]
        'live = offline in 1 of 1 windows'
    """
    table = Table(title="live against offline", title_justify="left")
    table.add_column("window")
    for heading in ("live rows", "offline rows", "agents", "late"):
        table.add_column(heading, justify="right")
    table.add_column("verdict")
    for window in comparison.windows:
        table.add_row(
            _bounds(window),
            "-" if window.revision is None else str(window.live_rows),
            str(window.offline_rows),
            _coverage(window),
            _count(window, "late"),
            _verdict(window),
        )
    console.print(table)
    for window in comparison.windows:
        if window.status.get("gaps"):  # equal or not: what is gone unread is on neither side
            text = for_terminal(f"{_bounds(window)}: {coverage(window.status, window.revision or 0)}")
            console.print(text, markup=False, highlight=False, soft_wrap=True)
        for line in _named(window, comparison.columns):
            console.print(for_terminal(line), markup=False, highlight=False, soft_wrap=True)
    console.print(last_line(comparison), markup=False, highlight=False)


def last_line(comparison: Comparison) -> str:
    """The closing line of a comparison.

    Args:
        comparison (Comparison): of ``spark_backend.compare.compare``.

    Returns:
        str: how many windows are equal, of how many.

    Raises:
        Nothing.

    Example:
        >>> last_line(Comparison(("n",)))
        'live = offline in 0 of 0 windows'
    """
    return f"live = offline in {comparison.equal_windows} of {len(comparison.windows)} windows"


def _bounds(window: Verdict) -> str:
    if (window.start_us, window.end_us) == EVERYTHING:
        return "everything"
    return f"{_moment(window.start_us)} + {(window.end_us - window.start_us) / 1e6:g} s"


def _moment(us: int) -> str:
    """RFC 3339, UTC, milliseconds; a number for what lies outside the calendar."""
    try:
        return (_EPOCH + datetime.timedelta(microseconds=us)).isoformat(timespec="milliseconds") + "Z"
    except OverflowError:
        return f"{us} µs"


def _coverage(window: Verdict) -> str:
    return "-" if window.revision is None else f"{_count(window, 'reported')} of {_count(window, 'expected')}"


def _count(window: Verdict, name: str) -> str:
    return for_terminal(str(window.status.get(name, "-")))


def _verdict(window: Verdict) -> Text:
    if window.equal:
        return Text.assemble(("equal", "green"), f" (revision {window.revision})" if window.revision else "")
    if window.revision is None:
        return Text("never committed live", "red")
    rows = f" in {len(window.differences)} row{'s' * (len(window.differences) != 1)}"
    return Text.assemble(("different", "red"), rows)


def _named(window: Verdict, columns: tuple[str, ...]) -> Iterator[str]:
    if not window.differences:
        return
    yield f"{_bounds(window)}:"
    for difference in window.differences[:DIFFERENCES_SHOWN_MAX]:
        yield from _sides(difference, columns)
    rest = len(window.differences) - DIFFERENCES_SHOWN_MAX
    if rest > 0:
        yield f"  … and {rest} more"


def _sides(difference: Difference, columns: tuple[str, ...]) -> Iterator[str]:
    for side, row in (("live   ", difference.live), ("offline", difference.offline)):
        cells = (
            "no such row"
            if row is None
            else ", ".join(f"{n}={c!r}" for n, c in zip(columns, row, strict=True))
        )
        yield f"  {side}  {cells}"
