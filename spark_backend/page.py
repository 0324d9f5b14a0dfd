"""A comparison as one HTML page: error, coverage and overlap over time, and each window with its rows.

Rules: one file that reads without a network, without a script (its Content-Security-Policy allows none), in
light and dark, on a telephone and on paper. Whatever comes from a log is text: it goes through ``_text`` and
nowhere else. It appears whole or not at all.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Final

from elf.client.coverage import coverage
from elf.client.values import for_terminal
from elf.errors import UserError
from spark_backend.compare import Comparison, Difference, Outcome, Row, Verdict
from spark_backend.report import bounds, last_line, moment

ROWS_MAX: Final = 200
"""Rows that are shown of a window; the rest is a number."""
CELL_CHARS: Final = 300
"""Of a cell that are shown."""
_WIDTH: Final = 720
_HEIGHT: Final = 132
_LEFT: Final = 52
_RIGHT: Final = 12
_TOP: Final = 8
_BOTTOM: Final = 28
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
_STYLE: Final = Path(__file__).with_name("page.css")


def write(comparison: Comparison, job: str, query: str, path: Path) -> None:
    """Write a page about a comparison.

    Args:
        comparison (Comparison): of ``spark_backend.judging.judge``.
        job (str): the job's name.
        query (str): the job's query.
        path (Path): the file, which is replaced.

    Raises:
        UserError: when it cannot be written.

    Example:
        >>> window = Verdict(0, 60_000_000, 0, {"expected": 1, "reported": 1}, live_rows=2, offline_rows=2)
        >>> page_of_it = Path(archive).with_name("busy.html")
        >>> write(Comparison(("n",), (window,)), "busy", "SELECT 1", page_of_it)
        >>> "live = offline in 1 of 1 windows" in page_of_it.read_text()
        True
    """
    hidden = path.absolute().with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with hidden.open("w", encoding="utf-8") as file:
            file.writelines(page(comparison, job, query))
        hidden.replace(path)
    except OSError as error:
        with suppress(OSError):
            hidden.unlink(missing_ok=True)
        raise UserError(f"cannot write {path}: {(error.strerror or str(error)).lower()}") from None


def page(comparison: Comparison, job: str, query: str) -> Iterator[str]:
    """The text of a page, in pieces.

    Args:
        comparison (Comparison): of ``spark_backend.judging.judge``.
        job (str): the job's name.
        query (str): the job's query.

    Yields:
        str: HTML.

    Raises:
        Nothing.

    Example:
        >>> "<script>" in "".join(page(Comparison(("n",)), "<script>", "SELECT 1"))
        False
    """
    title = f"{_text(job)}: live against offline"
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    counts = comparison.counts
    yield (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>\n{_STYLE.read_text()}</style>\n</head>\n<body>\n"
    )
    yield f"<header>\n<h1>{title}</h1>\n"
    yield f'<p class="said {comparison.outcome.name.lower()}">{last_line(comparison)}</p>\n'
    yield f"<p>{_extent(comparison)} Made at {now} by elf compare.</p>\n"
    yield f"<details><summary>The query</summary><pre>{_text(query)}</pre></details>\n</header>\n<main>\n"
    yield "<section>\n<h2>Over time</h2>\n"
    windows = comparison.windows
    yield _chart("Largest error of a cell", windows, lambda one: one.error, _relative, None)
    yield _chart("Agents covered", windows, lambda one: one.coverage, _percent, 1.0)
    yield _chart("Rows that both sides name", windows, lambda one: one.overlap, _percent, 1.0)
    yield "</section>\n<section>\n<h2>Windows</h2>\n<form>\n"
    first = "all" if comparison.equal or not windows else comparison.outcome.name.lower()
    for name, said in (("all", "all"), *((name, name) for name in counts)):
        number = len(windows) if name == "all" else counts[name]
        checked = " checked" if name == first else ""
        yield (
            f'<label><input type="radio" name="shown" value="{name}"{checked}>{said}'
            f"<span>{number:,}</span></label>\n"
        )
    yield "</form>\n"
    for place, window in enumerate(windows):
        yield from _window(place, window)
    yield "</section>\n</main>\n</body>\n</html>\n"


def _text(value: object) -> str:
    """Anything as text that means nothing to a browser; what does not print is shown as such."""
    return escape("\n".join(for_terminal(line) for line in str(value).split("\n")), quote=True)


def _extent(comparison: Comparison) -> str:
    if not comparison.windows:
        return "No window was compared."
    first = min(one.start_us for one in comparison.windows)
    last = max(one.end_us for one in comparison.windows)
    return f"From {moment(first)} to {moment(last)}." if last else "One result, without windows."


# -- charts --------------------------------------------------------------------------------------------------


def _chart(
    title: str,
    windows: Sequence[Verdict],
    value: Callable[[Verdict], float | None],
    shown: Callable[[float], str],
    most: float | None,
) -> str:
    """A value of each window by time; one that is infinite, or beyond the top, stands at the top."""
    found = [(place, window, value(window)) for place, window in enumerate(windows) if window.compared]
    points = [(place, window, number) for place, window, number in found if number is not None]
    finite = [number for _, _, number in points if math.isfinite(number)]
    top = most or max([number for number in finite if number], default=0.0) or 1.0
    head = f"<figure>\n<figcaption>{title}</figcaption>\n"
    if not points:
        return f"{head}<p>It is not known.</p></figure>\n"
    first, last = points[0][1].start_us, points[-1][1].start_us
    wide, high = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def at(window: Verdict, number: float) -> tuple[float, float]:
        along = (window.start_us - first) / (last - first) if last > first else 0.5
        share = min(number / top, 1.0) if math.isfinite(number) else 1.0
        return _LEFT + wide * along, _TOP + high * (1 - share)

    places = [at(window, number) for _, window, number in points]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    parts = [
        f'{head}<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{title}">\n',
        f'<line class="axis" x1="{_LEFT}" y1="{_TOP}" x2="{_WIDTH - _RIGHT}" y2="{_TOP}"/>\n',
        f'<line class="axis" x1="{_LEFT}" y1="{_TOP + high}" x2="{_WIDTH - _RIGHT}" y2="{_TOP + high}"/>\n',
        f'<text class="end" x="{_LEFT - 6}" y="{_TOP + 4}">{shown(top)}</text>\n',
        f'<text class="end" x="{_LEFT - 6}" y="{_TOP + high + 4}">{shown(0)}</text>\n',
        f'<text x="{_LEFT}" y="{_HEIGHT - 4}">{_hour(first)}</text>\n',
        f'<text class="end" x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 4}">{_hour(last)}</text>\n' * (last > first),
        f'<polyline points="{line}"/>\n',
    ]
    for (place, window, number), (x, y) in zip(points, places, strict=True):
        outcome = window.outcome.name.lower()
        about = f"{bounds(window)}: {shown(number)}, {outcome}"
        circle = f'<circle class="{outcome}" cx="{x:.1f}" cy="{y:.1f}" r="3"><title>{about}</title></circle>'
        parts.append(f'<a href="#w{place}">{circle}</a>\n')
    return "".join([*parts, "</svg>\n</figure>\n"])


def _hour(us: int) -> str:
    return moment(us)[:19].replace("T", " ")


def _percent(number: float) -> str:
    return f"{number:.0%}" if number in (0, 1) else f"{number:.1%}"


def _relative(number: float) -> str:
    return (
        "∞" if math.isinf(number) else _percent(number) if number >= 1e-4 or not number else f"{number:.1e}"
    )


# -- windows -------------------------------------------------------------------------------------------------


def _window(place: int, window: Verdict) -> Iterator[str]:
    outcome = window.outcome.name.lower()
    said = outcome if window.compared else "not compared"
    if window.compared and window.revision is None:
        said += ", never committed live"
    counts = f"{window.live_rows:,} live rows, {window.offline_rows:,} offline" if window.compared else ""
    opened = " open" if window.outcome is Outcome.UNEXPLAINED and place < ROWS_MAX else ""
    yield (
        f'<details class="window {outcome}"{opened}><summary><time>{bounds(window)}</time> '
        f'<b class="{outcome}">{said}</b> <span>{counts}</span></summary>\n<div id="w{place}">\n'
    )
    if window.reasons:
        items = "".join(f"<li><b>{_text(one.name)}</b> {_text(one.text)}</li>" for one in window.reasons)
        yield f"<ul>{items}</ul>\n"
    covered = coverage(window.status, window.revision or 0)
    yield f"<p>{_text(covered)}</p>\n" if covered else ""
    if window.differences:
        yield from _rows(window)
    yield "</div>\n</details>\n"


def _rows(window: Verdict) -> Iterator[str]:
    heads = "".join(f"<th>{_text(name)}</th>" for name in window.columns)
    yield f'<div class="rows"><table>\n<tr><th></th>{heads}<th>off by</th></tr>\n'
    for one in window.differences[:ROWS_MAX]:
        errors = ", ".join(
            f"{error.column} {error.absolute:,g} ({_relative(error.relative)})"
            for error in one.errors(window.columns)
        )
        off = _text(errors or {"missing": "missing live", "extra": "live alone"}.get(one.kind, ""))
        sides = [
            (name, row) for name, row in (("live", one.live), ("offline", one.offline)) if row is not None
        ]
        for number, (name, row) in enumerate(sides):
            last = f'<td rowspan="{len(sides)}">{off}</td>' if not number else ""
            yield f'<tr class="{name}"><th>{name}</th>{_cells(row, one)}{last}</tr>\n'
    yield "</table></div>\n"
    rest = len(window.differences) - ROWS_MAX
    if rest > 0:
        yield f"<p>… and {rest:,} more rows.</p>\n"


def _cells(row: Row, one: Difference) -> str:
    """Those that differ are marked."""
    both = one.live is not None and one.offline is not None
    found = []
    for place, cell in enumerate(row):
        text = "NULL" if cell is None else str(cell)
        shown = text if len(text) <= CELL_CHARS else f"{text[:CELL_CHARS]}…"
        differs = both and one.live is not None and one.offline is not None
        mark = ' class="off"' if differs and one.live[place] != one.offline[place] else ""  # type: ignore[index]
        found.append(f"<td{mark}>{_text(shown)}</td>")
    return "".join(found)
