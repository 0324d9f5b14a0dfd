"""A comparison as people read it (a table of the windows, why they differ, the rows that differ, one closing
line), and as one JSON object."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from elf.client.coverage import coverage
from elf.client.values import for_terminal
from spark_backend.compare import EVERYTHING, Cell, Comparison, Difference, Outcome, Row, Verdict

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
            bounds(window),
            "-" if window.revision is None else str(window.live_rows),
            str(window.offline_rows),
            _coverage(window),
            _count(window, "late"),
            _verdict(window),
        )
    console.print(table)
    for window in comparison.windows:
        if window.status.get("gaps"):  # equal or not: what is gone unread is on neither side
            text = for_terminal(f"{bounds(window)}: {coverage(window.status, window.revision or 0)}")
            console.print(text, markup=False, highlight=False, soft_wrap=True)
        for line in named(window):
            console.print(for_terminal(line), markup=False, highlight=False, soft_wrap=True)
    counts = comparison.counts
    others = [f"{counts[name]} {name}" for name in ("explained", "unexplained") if counts[name]]
    if others:
        console.print(f"different: {', '.join(others)}", markup=False, highlight=False)
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


def as_json(comparison: Comparison, job: str) -> dict[str, object]:
    """A comparison as one JSON object.

    Args:
        comparison (Comparison): of ``spark_backend.compare.compare``.
        job (str): the job's name.

    Returns:
        dict[str, object]: ``job``, ``outcome``, ``counts``, and ``windows`` (``window_as_json``).

    Raises:
        Nothing.

    Example:
        >>> as_json(Comparison(("n",)), "busy")["outcome"]
        'unexplained'
    """
    windows = [window_as_json(window) for window in comparison.windows]
    outcome = comparison.outcome.name.lower()
    return {"job": job, "outcome": outcome, "counts": comparison.counts, "windows": windows}


def window_as_json(window: Verdict) -> dict[str, object]:
    """A window of a comparison as a JSON object.

    Args:
        window (Verdict): of ``Comparison.windows``.

    Returns:
        dict[str, object]: ``window_start`` and ``window_end`` (RFC 3339), ``outcome``, ``compared``,
        ``revision``, ``live_rows``, ``offline_rows``, ``error``, ``overlap``, ``coverage``, ``reasons``
        (reason, text, rows) and ``differences`` (kind, live, offline, errors by column). Numbers that JSON
        lacks are null.

    Raises:
        Nothing.

    Example:
        >>> window = Verdict(0, 60_000_000, 0, {}, 1, 1, (Difference((2,), (4,)),), ("n",))
        >>> window_as_json(window)["differences"][0]["errors"]
        {'n': {'absolute': 2.0, 'relative': 0.5}}
    """
    whole = (window.start_us, window.end_us) == EVERYTHING
    return {
        "window_start": None if whole else moment(window.start_us),
        "window_end": None if whole else moment(window.end_us),
        "outcome": window.outcome.name.lower(),
        "compared": window.compared,
        "revision": window.revision,
        "live_rows": window.live_rows,
        "offline_rows": window.offline_rows,
        "error": _finite(window.error),
        "overlap": window.overlap,
        "coverage": window.coverage,
        "reasons": [
            {"reason": reason.name, "text": reason.text, "rows": reason.rows} for reason in window.reasons
        ],
        "differences": [_difference_as_json(one, window.columns) for one in window.differences],
    }


def _difference_as_json(one: Difference, columns: tuple[str, ...]) -> dict[str, object]:
    errors = {
        error.column: {"absolute": _finite(error.absolute), "relative": _finite(error.relative)}
        for error in one.errors(columns)
    }
    sides = {"live": _row_as_json(one.live, columns), "offline": _row_as_json(one.offline, columns)}
    return {"kind": one.kind, **sides, "errors": errors}


def _row_as_json(row: Row | None, columns: tuple[str, ...]) -> dict[str, Cell] | None:
    if row is None:
        return None
    return {n: _finite(c) if isinstance(c, float) else c for n, c in zip(columns, row, strict=True)}


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def window_line(window: Verdict) -> str:
    """A window in one line: when, how it came out, and why.

    Args:
        window (Verdict): of ``Comparison.windows``.

    Returns:
        str: for people.

    Raises:
        Nothing.

    Example:
        >>> window_line(Verdict(0, 60_000_000, 0, {}, live_rows=2, offline_rows=2))
        '1970-01-01T00:00:00.000Z + 60 s: equal'
    """
    why = "; ".join(reason.text for reason in window.reasons)
    rows = f" in {len(window.differences)} row{'s' * (len(window.differences) != 1)}"
    said = window.outcome.name.lower() if window.compared else "not compared"
    return f"{bounds(window)}: {said}{rows * bool(window.differences)}{': ' * bool(why)}{why}"


def bounds(window: Verdict) -> str:
    """When a window is, for people.

    Args:
        window (Verdict): of ``Comparison.windows``.

    Returns:
        str: its start and its length.

    Raises:
        Nothing.

    Example:
        >>> bounds(Verdict(0, 60_000_000, 0, {}, live_rows=2, offline_rows=2))
        '1970-01-01T00:00:00.000Z + 60 s'
    """
    if (window.start_us, window.end_us) == EVERYTHING:
        return "everything"
    return f"{moment(window.start_us)} + {(window.end_us - window.start_us) / 1e6:g} s"


def moment(us: int) -> str:
    """A moment, for people and programs.

    Args:
        us (int): µs since the epoch.

    Returns:
        str: RFC 3339, UTC, milliseconds; a number for what lies outside the calendar.

    Raises:
        Nothing.

    Example:
        >>> moment(1_500_000)
        '1970-01-01T00:00:01.500Z'
    """
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
    style = "yellow" if window.outcome is Outcome.EXPLAINED else "red"
    if not window.compared:
        return Text("not compared", style)
    rows = f"{len(window.differences)} row{'s' * (len(window.differences) != 1)}"
    what = "never committed live" if window.revision is None else f"different in {rows}"
    said = "explained" if window.outcome is Outcome.EXPLAINED else "unexplained" if window.reasons else ""
    return Text.assemble((what, style), f", {said}" * bool(said))


def named(window: Verdict) -> Iterator[str]:
    """A window that differs, in lines: why, and its first rows.

    Args:
        window (Verdict): of ``Comparison.windows``.

    Yields:
        str: for people; nothing of a window that is equal.

    Raises:
        Nothing.

    Example:
        >>> list(named(Verdict(0, 60_000_000, 0, {}, 1, 0, (Difference((2,), None),), ("n",))))[1:]
        ['  live     n=2', '  offline  no such row']
    """
    if window.equal:
        return
    yield window_line(window)
    for difference in window.differences[:DIFFERENCES_SHOWN_MAX]:
        yield from _sides(difference, window.columns)
    rest = len(window.differences) - DIFFERENCES_SHOWN_MAX
    if rest > 0:
        yield f"  … and {rest} more"


def _sides(difference: Difference, columns: tuple[str, ...]) -> Iterator[str]:
    errors = [
        f"{error.column} by {error.absolute:,g} ({error.relative:.2%})"
        for error in difference.errors(columns)
    ]
    for side, row in (("live   ", difference.live), ("offline", difference.offline)):
        cells = (
            "no such row"
            if row is None
            else ", ".join(f"{n}={c!r}" for n, c in zip(columns, row, strict=True))
        )
        yield f"  {side}  {cells}"
    if errors:
        yield f"  off      {', '.join(errors)}"
