"""A test, answered: its lines in files, one run of the engine, and what came of it."""

from __future__ import annotations

import json
import tempfile
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from agents.config import Config
from agents.formats import get_format
from agents.lookups import LOOKUPS
from agents.run import ask, run
from agents.runinputs import Asked, RunRequest, Stated
from agents.tasks.masking import lines_of
from elf.batch import decode
from elf.cli.options import one_text
from elf.cli.testing.cases import Case, File, Lines
from elf.client.files import files_of
from elf.client.tables import read_table
from elf.client.values import plain
from elf.client.windows import Window, split
from elf.errors import UserError
from elf.ql.statements import CreateJob, parse
from elf.wire.clients import Reply, WindowResult

MASK_KEY: Final = bytes(32)
"""What hashes of masked columns are made with in tests: the same everywhere."""

Row = dict[str, Any]


@dataclass
class Came:
    """What came. ``windows``: the last revision of each; ``rows``: of what has none. ``error``: a refusal."""

    windows: dict[tuple[Any, Any], Window] = field(default_factory=dict)
    rows: list[Row] | None = None
    columns: tuple[str, ...] = ()
    ordered: bool = False
    """Whether the query says in which order rows come."""
    rejected: list[tuple[str, str]] = field(default_factory=list)
    """Lines, as they were given, and why."""
    late: int = 0
    unread: list[str] = field(default_factory=list)
    """Files that could not be read to their ends, and why."""
    error: str = ""


@dataclass(frozen=True)
class _Given:
    """The log of a stream: the file that is read, and the lines that it was before they were masked."""

    path: str
    before: Sequence[str] = ()
    offsets: Sequence[int] = ()

    def line(self, record: Mapping[str, Any]) -> str:
        """The line that a record of a reject file is of."""
        if self.before:
            return self.before[bisect_right(self.offsets, record["offset"]) - 1]
        return str(record.get("text", record.get("base64", "")))


def came_of(case: Case, file: File, config: Config | None) -> Came:
    """Run one test. Raises ``UserError`` where its lines or its text are not there."""
    sql = _as_select(one_text(case.query, None if case.job is None else Path(case.job), "query and job"))
    with tempfile.TemporaryDirectory(prefix="elf-test-") as folder:
        return _answered(sql, case, _streams(case, file, config), config, Path(folder))


def _as_select(sql: str) -> str:
    """A text that ends with CREATE JOB asks what the job would."""
    try:
        asked = parse(sql)
    except UserError:
        return sql  # what is wrong is told by whoever answers it
    if not asked or not isinstance(last := asked[-1], CreateJob):
        return sql
    return ";\n".join([*(one.sql for one in asked[:-1]), last.query.sql])


def _streams(case: Case, file: File, config: Config | None) -> dict[str, Lines]:
    """Those that have a log."""
    found: dict[str, Lines] = {}
    for name, stream in (config.streams if config is not None else {}).items():
        if stream.multiline.start:
            raise UserError(f"streams.{name}.multiline: elf test takes each line for a record")
        columns: Any = dict(stream.columns)
        found[name] = Lines(None, None, stream.format, stream.timestamp, stream.timezone or None, columns)
    for some in (file.streams, case.streams):
        found |= {name: one.over(found.get(name, Lines())) for name, one in some.items()}
    return {name: one for name, one in found.items() if one.lines is not None or one.file is not None}


def _answered(
    sql: str, case: Case, streams: Mapping[str, Lines], config: Config | None, folder: Path
) -> Came:
    LOOKUPS.open(() if config is None else config.geoip.databases)
    masks = {} if config is None else {name: of.mask for name, of in config.streams.items() if of.mask}
    given = {name: _given(name, one, masks.get(name), folder) for name, one in streams.items()}
    asked, came = Asked(sql), Came()
    rejects = folder / "rejects"
    try:
        if not given:
            raise UserError("no lines are given: streams.NAME.lines, or file")
        came.ordered = bool(asked.queries and asked.queries[-1].tree.args.get("order"))
        request = RunRequest(
            asked=asked,
            inputs={name: (one.path,) for name, one in given.items()},
            agents=case.agents,
            tables={name: read_table(name) for name in asked.files},
            files=files_of(sql) if asked.has_code else {},
            stated={
                name: Stated(one.format, one.timestamp, one.timezone, one.columns)
                for name, one in streams.items()
            },
            rejects=rejects,
        )
        _answer(request, came)
    except UserError as error:
        came.error = str(error)
    for path in sorted(rejects.glob("*.jsonl")) if rejects.is_dir() else ():
        of = given[path.name.partition(".")[0]]
        records = [json.loads(line) for line in path.read_bytes().splitlines()]
        came.rejected += [(of.line(record), record["reason"]) for record in records]
    return came


def _answer(request: RunRequest, came: Came) -> None:
    """Have it answered by what answers ``elf run``."""
    from agents.firstrows import first_rows

    if request.asked.is_question or request.asked.is_look:
        reply = ask(request) if request.asked.is_question else first_rows(request)
        came.rows, came.columns = _rows_of(reply)
        return

    def on_windows(result: WindowResult) -> None:
        for window in split(result):
            if not window.early:
                came.windows[window.start, window.end] = window

    summary = run(request, on_windows)
    came.columns, came.late = summary.columns, summary.late
    came.unread = [f"{path}: {why}" for path, why in summary.unread.items()]
    whole = came.windows.pop((None, None), None)
    if whole is not None:
        came.rows = rows_of(whole.table)


def _rows_of(reply: Reply) -> tuple[list[Row], tuple[str, ...]]:
    if not reply.payload:
        return [], ()
    table = decode(reply.payload)
    return rows_of(table), tuple(table.column_names)


def rows_of(table: pa.Table) -> list[Row]:
    """The rows, with values as JSON has them."""
    return [{name: plain(value) for name, value in row.items()} for row in table.to_pylist()]


def _given(name: str, stream: Lines, mask: Mapping[str, str] | None, folder: Path) -> _Given:
    if stream.file is not None and mask is None:
        return _Given(stream.file)
    text = one_text(stream.lines, None if stream.file is None else Path(stream.file), "lines and file")
    path = folder / f"{name}.log"
    if mask is None:
        path.write_text(text, encoding="utf-8")
        return _Given(str(path))
    if stream.format is None:  # the configuration names one
        raise UserError(f"streams.{name}: its lines are masked, so it needs a format")
    before = text.removesuffix("\n").split("\n")
    masker = lines_of(get_format(stream.format), mask, MASK_KEY)
    try:
        after = masker.mask(pa.array(before, pa.string())).to_pylist()
    finally:
        masker.close()
    path.write_text("".join(f"{line}\n" for line in after), encoding="utf-8")
    ends = accumulate((len(line.encode()) + 1 for line in after), initial=0)
    return _Given(str(path), before, [*ends][:-1])
