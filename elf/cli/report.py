"""``elf report``: one HTML file that reads without a network, from log files or from a job's windows.

Of log files without a query it has the panels of a web-log report (``elf.page.panels``): each is a query over
all lines, which are read once. A panel that needs columns that the log has not is named with the reason.
"""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from elf.cli.errors import ended_at_once
from elf.cli.numbers import size
from elf.cli.printing import say, use_utf8
from elf.cli.progress import Progress
from elf.cli.results import part_of
from elf.cli.run import DEFAULT_STREAM, LineOptions, inputs_of, request_of, size_of, tell_losses
from elf.client import Window, connect
from elf.client.results import facts_of
from elf.client.values import rfc3339
from elf.client.windows import WINDOW_COLUMNS, split
from elf.errors import UserError
from elf.page import panels
from elf.page.report import WINDOWS_MAX, Last, Report, Section, pieces

if TYPE_CHECKING:
    from agents.run import Summary
    from agents.runinputs import RunRequest
    from elf.wire.clients import WindowResult

_LINES: Final = "COUNT(*) AS hits"
_OVER_TIME: Final = (f"SELECT {_LINES}, SUM(sc_bytes) AS bytes FROM log", f"SELECT {_LINES} FROM log")
"""The first of these that the log has columns for."""
_OVER_TIME_ALREADY: Final = frozenset({"bandwidth"})
"""Panels that say the same."""
_A_TIME: Final = re.compile(r",? an? (?:minute|hour|day) at a time")
_SMALL_BYTES: Final = 64 << 20
"""Of a log up to that size each minute is counted, of a larger one each ten."""
_POINTS: Final = 240
"""Of the chart over time; steps are put together until there are no more."""


@dataclass(frozen=True)
class ReportOptions:
    """The command line of ``elf report``."""

    html: Path
    inputs: tuple[str, ...]
    sql: str | None
    lines: LineOptions
    title: str | None


def of_logs(options: ReportOptions) -> int:
    """Write the report of log files. Raises ``UserError``."""
    from agents.runinputs import Asked

    use_utf8()
    _check(options.html)
    asked = Asked(options.sql or "SELECT COUNT(*) AS n FROM log")
    if asked.is_question or asked.is_look:
        raise UserError("a report has the windows of a SELECT with groups; elf run shows rows and plans")
    with tempfile.TemporaryDirectory(prefix="elf-report-") as folder, ended_at_once(Path(folder)):
        inputs = inputs_of(options.inputs, (), Path(folder), None, early=False)
        request = request_of(asked, inputs.streams, options.lines)
        read = [Path(path) for path in inputs.streams[DEFAULT_STREAM]]
        if options.html.exists() and any(map(options.html.samefile, read)):
            raise UserError(f"cannot write {options.html}: it is one of the logs")
        total = sum(path.stat().st_size for path in read)
        with Progress("reading", size_of(inputs), size) as line:
            request = replace(request, told=line.tell)
            made = _queried(request) if options.sql else _panels(request, total)
    title = options.title or f"Report of {', '.join(options.inputs)}"
    facts = {"lines": f"{made.summary.rows_in:,}", "rejected": f"{made.summary.rows_rejected:,}"}
    facts |= {"bytes": size(made.summary.bytes_in)}
    if made.summary.rows_rejected < made.summary.rows_in:
        _write(options.html, Report(title, made.span, facts, made.sections, made.without))
    tell_losses(made.summary, inputs.names, live=False)
    return 0


@dataclass(frozen=True)
class _Made:
    """``span``: the times that it is of; empty where windows say them. ``without``: what is left out, and
    why."""

    sections: Sequence[Section]
    summary: Summary
    span: str = ""
    without: Mapping[str, str] = field(default_factory=dict)


def _queried(request: RunRequest) -> _Made:
    from agents.run import run

    last = Last()

    def on_windows(result: WindowResult) -> None:
        for window in split(result):
            if not window.early:
                last.add(window)

    summary = run(request, on_windows)
    sql = request.asked.sql
    section = Section("Answer", "", sql, last.windows, wide=True, alone=True, count=last.count)
    return _Made([section], summary)


def _panels(request: RunRequest, total: int) -> _Made:
    from agents.run import run_together

    known = [one for one in panels.panels() if one.name not in _OVER_TIME_ALREADY]
    step = "WINDOWING 1 MINUTES" if total <= _SMALL_BYTES else "WINDOWING 10 MINUTES"
    queries = [*(f"{one} {step}" for one in _OVER_TIME), *(panels.over_all(one, "log") for one in known)]
    windows: dict[int, list[Window]] = defaultdict(list)
    summary, failed = run_together(request, queries, lambda n, result: windows[n].extend(split(result)))
    found = [place for place in range(len(_OVER_TIME)) if place not in failed]
    if not found:
        raise UserError(failed[0])
    over_time = [window for window in windows[found[0]] if window.table.num_rows]
    sections, without, span = [], {}, ""
    if over_time:
        span = f"{_at(over_time[0].start)} to {_at(over_time[-1].end)} UTC"
        about = "How many lines there are, and how many bytes were sent, over time."
        sections = [Section("Over time", about, queries[found[0]], _folded(over_time), wide=True, alone=True)]
    for place, panel in enumerate(known, len(_OVER_TIME)):
        if place in failed:
            without[panel.title] = failed[place].splitlines()[0]
        else:
            about = _A_TIME.sub("", f"{panel.about[:1].upper()}{panel.about[1:]}")
            keys = tuple(panel.columns)
            sections.append(
                Section(panel.title, about, queries[place], windows[place], keys=keys, alone=True)
            )
    return _Made(sections, summary, span, without)


def _at(moment: datetime | None) -> str:
    return "" if moment is None else rfc3339(moment)[:16].replace("T", " ")


def _folded(windows: Sequence[Window]) -> list[Window]:
    """Neighbours together, their numbers added, so that a chart has room for all of them."""
    many = -(-len(windows) // _POINTS)
    if many < 2:
        return list(windows)
    found = []
    for place in range(0, len(windows), many):
        some = windows[place : place + many]
        tables = [one.table.drop_columns([*WINDOW_COLUMNS]) for one in some]
        sums = {
            name: [sum(value or 0 for table in tables for value in table[name].to_pylist())]
            for name in tables[0].column_names
        }
        found.append(replace(some[0], end=some[-1].end, table=pa.table(sums)))
    return found


def of_job(
    html: Path, job: str, since: str, until: str, address: str, cluster: str, title: str | None
) -> int:
    """Write the report of a job's windows. Raises ``UserError``."""
    use_utf8()
    _check(html)
    query, last = asyncio.run(_read(job, since, until, address, cluster))
    windows = last.windows
    if not windows:
        raise UserError(f"job {job} keeps no window since {since or 'it began'}")
    facts = {
        "windows": f"{last.count:,}",
        "not whole" if last.count == len(windows) else f"not whole of the last {len(windows):,}": (
            f"{sum(not one.whole for one in windows):,}"
        ),
    }
    about = f"The last {min(len(windows), WINDOWS_MAX):,} windows."
    section = Section(job, about, query, windows, wide=True, count=last.count)
    ends = [one.end for one in windows if one.end is not None]
    span = f"to {_at(max(ends))} UTC" if ends else ""
    _write(html, Report(title or f"Job {job}", span, facts, [section]))
    return 0


async def _read(job: str, since: str, until: str, address: str, cluster: str) -> tuple[str, Last]:
    """A job's query, and its windows."""
    last = Last()
    async with connect(address, cluster=cluster) as client:
        facts = facts_of(await client.sql(f"DESCRIBE {job}"))
        async for result in client.results(job, since, until):
            for window in split(result):
                last.add(window)
    return facts.get("query", ""), last


def _check(path: Path) -> None:
    if path.is_dir() or not path.absolute().parent.is_dir():
        why = "it is a folder" if path.is_dir() else f"there is no folder {path.absolute().parent}"
        raise UserError(f"cannot write {path}: {why}")


def _write(path: Path, report: Report) -> None:
    with part_of(path) as part, part.open("w", encoding="utf-8") as file:
        file.writelines(pieces(report))
    say(f"{path}: {size(path.stat().st_size)}, which reads without a network", sys.stdout)
