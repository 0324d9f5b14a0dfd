"""Windows and tables on standard output: as JSON (one object a row), CSV, or tables for people.

Whoever can send a request can write to a log, so what comes from one is data wherever it goes: what does not
print is escaped in tables, in lines for people (``say``) and in CSV, where a cell never begins as a formula
does either (OWASP, "CSV injection"); JSON has escapes of its own. ``csv-raw`` is the one way around it.

JSON and CSV are for programs: ``window_start`` and ``window_end`` first, then the SELECT list under its
output names, nothing else on standard output. A window without rows prints no row. A status is a row
``{"status": {...}}`` after its window in JSON; CSV has no place for it, so it goes to standard error there.

People are told what a window covers in a line (``elf.client.coverage``): of each window that is not whole,
and with ``--status`` of all; under the rows in tables, on standard error beside JSON and CSV.
"""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Final, Literal, Protocol, TextIO

import pyarrow as pa

from elf.cli.grid import Grid, Styles, is_number
from elf.client.coverage import coverage, is_whole
from elf.client.values import cell, for_terminal, json_rows, plain, printable_json, rfc3339
from elf.client.windows import WINDOW_COLUMNS, Window
from elf.wire.clients import ONE_SHOT_PREFIX

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

UNBOUNDED_COLUMNS: Final = 1_000_000
FACTS_COLUMNS: Final = 120
"""The width of tables about jobs, streams and agents where nobody looks at them in a terminal."""
BLOCK_ROWS: Final = 1 << 14
"""Rows, or windows without any, that are made text at a time, or a little more."""
GAP_COLUMNS: Final = 2
LISTED: Final = "query"
"""The column of long texts in a list of jobs."""
FACTS: Final = ["fact", "value"]
"""The columns of what is told of one."""
TEXT_COLUMNS_MIN: Final = 12
"""The least that is shown of a long text, however narrow the terminal is."""

_QUOTE: Final = '"'
_QUOTED: Final = re.compile('[",\r\n]')
_FORMULA: Final = re.compile(r"[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")
"""How a cell begins that a spreadsheet computes; the last four are full-width forms, which some take too."""
_NUMBER: Final = re.compile(r"[+-]?([0-9]+([.][0-9]*)?|[.][0-9]+)([eE][+-]?[0-9]+)?|-")
"""What begins like one and is none; a lone dash is what access logs have for nothing."""
_INDENT: Final = frozenset("\t\r\n")
"""What does not print and is text in a quoted cell all the same."""

Output = Literal["table", "json", "csv", "csv-raw"]


class Printer(Protocol):
    """Writes results in one of the three forms."""

    rows_only: bool
    """Whether a program reads what is written, so that texts go to standard error."""

    def windows(self, windows: Iterable[Window]) -> None:
        """The rows of each window; what it covers if it is not whole; its status if that was asked for."""

    def ended(self, columns: Sequence[str]) -> None:
        """No window comes any more; ``columns`` are those that rows have, if one came or not."""

    def table(self, table: pa.Table) -> None:
        """Rows that belong to no window (SHOW, DESCRIBE …)."""

    def data(self, data: dict[str, object]) -> bool:
        """What a statement came to, as an object; False: its text is wanted instead."""

    def beside(self) -> None:
        """Something else is about to be said below what was printed."""


def printer(
    output: Output,
    *,
    status: bool = False,
    out: TextIO | None = None,
    summed: Collection[str] = frozenset(),
) -> Printer:
    """The printer for ``--output``; ``status`` adds a status after each window. ``summed``: counts that
    somebody says for all windows, so that not each of them needs a line on standard error."""
    out = out or sys.stdout
    if output == "json":
        return JsonPrinter(out, status, summed)
    if output == "table":
        return TablePrinter(out, status)
    return CsvPrinter(out, status, summed, raw=output == "csv-raw")


def say(text: str, out: TextIO | None = None) -> None:
    """A line or more for people, of what may come from elsewhere: what does not print is escaped. To standard
    error, or to ``out``."""
    print(for_terminal(text), file=out or sys.stderr, flush=True)


def use_utf8() -> None:
    """Results are UTF-8, whatever the locale says: a name that it cannot show must not end a run."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="replace")


def status_json(window: Window) -> str:
    """``{"status": {...}}`` of a window: its times, revision and counts."""
    fields: dict[str, object] = {}
    if window.start is not None and window.end is not None:
        fields.update(window_start=rfc3339(window.start), window_end=rfc3339(window.end))
    fields["revision"] = window.revision
    if window.early:
        fields["early"] = window.early
    fields.update((name, plain(value)) for name, value in window.status.items())
    return json.dumps({"status": fields}, ensure_ascii=False, separators=(",", ":"))


def tell_coverage(window: Window, summed: Collection[str]) -> None:
    """On standard error, for whoever looks on: what a window covers that is not whole, but for what is
    ``summed`` for all of them."""
    status = {name: value for name, value in window.status.items() if name not in summed}
    if not is_whole(status, window.revision):
        which = title(replace(window, revision=0))  # which the line says
        line = ": ".join(filter(None, (which, coverage(status, window.revision))))
        say(f"elf: {line}")


def shown(window: Window) -> pa.Table:
    """The rows of a window, or, of a job that says EMIT CHANGES, what changes with it."""
    return window.table if window.changes is None else window.changes


@dataclass(frozen=True)
class Block:
    """Windows that are written together, and all of their rows."""

    windows: Sequence[Window]
    rows: pa.Table

    def places(self) -> Iterator[tuple[Window, tuple[int, int]]]:
        """Each window, and which rows are its."""
        ends = accumulate((shown(window).num_rows for window in self.windows), initial=0)
        return zip(self.windows, pairwise(ends), strict=True)

    def parts(self, lines: Sequence[str]) -> Iterator[tuple[Window, Sequence[str]]]:
        """Each window, and its part of what there is one of for each row."""
        return ((window, lines[begin:end]) for window, (begin, end) in self.places())


def blocks_of(windows: Iterable[Window]) -> Iterator[Block]:
    """Windows with the same columns, about ``BLOCK_ROWS`` at a time."""
    some: list[Window] = []
    rows = 0
    for window in windows:
        if some and (rows >= BLOCK_ROWS or shown(window).schema != shown(some[0]).schema):
            yield Block(some, pa.concat_tables(map(shown, some)))
            some, rows = [], 0
        some.append(window)
        rows += max(1, shown(window).num_rows)
    if some:
        yield Block(some, pa.concat_tables(map(shown, some)))


class JsonPrinter:
    """One JSON object a row."""

    rows_only = True

    def __init__(self, out: TextIO, status: bool, summed: Collection[str] = frozenset()) -> None:
        self._out = out
        self._status = status
        self._summed = summed

    def windows(self, windows: Iterable[Window]) -> None:
        for block in blocks_of(windows):
            lines = json_rows(block.rows)
            if self._status:
                lines = [line for one, part in block.parts(lines) for line in (*part, status_json(one))]
            self._write(lines)
            for window in block.windows:
                tell_coverage(window, self._summed)

    def ended(self, columns: Sequence[str]) -> None:
        pass

    def table(self, table: pa.Table) -> None:
        self._write(json_rows(table))

    def beside(self) -> None:
        pass

    def data(self, data: dict[str, object]) -> bool:
        self._write([json_text(data)])
        return True

    def _write(self, lines: Iterable[str]) -> None:
        text = "\n".join(lines)
        if text:
            self._out.write(printable_json(text) + "\n")
            self._out.flush()


def json_text(value: object) -> str:
    """An answer as one line of JSON, for whoever reads it."""
    return printable_json(json.dumps(value, ensure_ascii=False))


class CsvPrinter:
    """RFC 4180 with LF; a header before the first row, or at the end if there is none, and again when the
    columns change. NULL is nothing, and an empty text is ``""``, as in PostgreSQL and DuckDB. Not ``raw``, it
    does no harm in a spreadsheet or a terminal."""

    rows_only = True

    def __init__(
        self, out: TextIO, status: bool, summed: Collection[str] = frozenset(), *, raw: bool = False
    ) -> None:
        self._field = raw_field if raw else csv_field
        self._out = out
        self._status = status
        self._summed = summed
        self._header: list[str] = []

    def windows(self, windows: Iterable[Window]) -> None:
        for block in blocks_of(windows):
            if block.rows.num_rows:
                self.table(block.rows)
            for window in block.windows:
                if self._status:
                    print(printable_json(status_json(window)), file=sys.stderr, flush=True)
                else:
                    tell_coverage(window, self._summed)

    def ended(self, columns: Sequence[str]) -> None:
        if not self._header:
            self._write([columns])

    def table(self, table: pa.Table) -> None:
        if table.column_names != self._header:
            self._header = table.column_names
            self._write([self._header])
        self._write(zip(*(column.to_pylist() for column in table.columns), strict=True))
        self._out.flush()

    def beside(self) -> None:
        pass

    def data(self, data: dict[str, object]) -> bool:
        return False

    def _write(self, rows: Iterable[Sequence[object]]) -> None:
        self._out.writelines(",".join(map(self._field, row)) + "\n" for row in rows)


def raw_field(value: object) -> str:
    """A value in CSV, as ``csv.QUOTE_NOTNULL`` of Python 3.12 tells NULL from an empty text."""
    if value is None:
        return ""
    return str(value) if type(value) is int else _quoted(cell(value))


def csv_field(value: object) -> str:
    """The same for spreadsheets and terminals: a text that begins as a formula does has ``'`` before it, and
    what does not print is escaped."""
    if value is None or type(value) is int:
        return raw_field(value)
    text = cell(value)
    if not text.isprintable():
        text = "".join(c if c.isprintable() or c in _INDENT else for_terminal(c) for c in text)
    if _FORMULA.match(text) and not _NUMBER.fullmatch(text):
        text = f"'{text}"
    return _quoted(text)


def _quoted(text: str) -> str:
    return f'"{text.replace(_QUOTE, _QUOTE * 2)}"' if not text or _QUOTED.search(text) else text


class TablePrinter:
    """A table a window under a line that says which; as wide as it needs to be when nobody looks at it in a
    terminal.
    """

    rows_only = False

    def __init__(self, out: TextIO, status: bool) -> None:
        self._out = out
        self._status = status
        self._width, self._styles = UNBOUNDED_COLUMNS, Styles()
        if out.isatty():
            self._width = self._console.width
            self._styles = Styles(bold=self._codes("bold"), dim=self._codes("dim"))

    def windows(self, windows: Iterable[Window]) -> None:
        for block in blocks_of(windows):
            grid = Grid(block.rows, self._width, self._styles)
            lines: list[str] = []
            for window, (begin, end) in block.places():
                lines += self._lines(window, grid, begin, end)
            self._out.writelines(f"{line}\n" for line in lines)
            self._out.flush()

    def _lines(self, window: Window, grid: Grid, begin: int, end: int) -> Iterator[str]:
        """All that is said of a window, whose rows these are."""
        heading = for_terminal(title(window))
        tells = self._status or not window.whole
        if begin < end:
            if heading:
                yield heading.join(self._styles.bold)
            yield from grid.lines(begin, end) or self._folded(shown(window))
        elif tells:  # one that a revision has emptied is not whole either
            nothing = "no rows" if window.changes is None else "no changes"
            yield f"{heading}  {nothing}".lstrip()
        if tells and window.coverage:
            yield for_terminal(window.coverage)

    def _folded(self, rows: pa.Table) -> Iterator[str]:
        """A table with cells of several lines."""
        with self._console.capture() as drawn:
            self._console.print(rich_table(rows))
        yield drawn.get().removesuffix("\n")

    def _codes(self, style: str) -> tuple[str, str]:
        """What stands around a text of that style."""
        with self._console.capture() as drawn:
            self._console.print("x", style=style, end="")
        before, _, after = drawn.get().partition("x")
        return before, after

    @cached_property
    def _console(self) -> Console:
        return console(self._out)

    def ended(self, columns: Sequence[str]) -> None:
        pass

    def lines_of(self, window: Window) -> list[str]:
        """A window as it is printed."""
        rows = shown(window)
        return list(self._lines(window, Grid(rows, self._width, self._styles), 0, rows.num_rows))

    def table(self, table: pa.Table) -> None:
        self._out.write(self.text_of(table))
        self._out.flush()

    def text_of(self, table: pa.Table) -> str:
        """Rows that belong to no window, as they are printed."""
        width = (
            min(self._console.width, FACTS_COLUMNS) if not self._console.is_terminal else self._console.width
        )
        with self._console.capture() as drawn:
            self._console.print(facts_table(table, width))
        return drawn.get()

    def beside(self) -> None:
        pass

    def data(self, data: dict[str, object]) -> bool:
        return False


def console(out: TextIO) -> Console:
    """A rich console, to which brackets are text; where nobody looks at it in a terminal, lines are as long
    as they need to be."""
    from rich.console import Console

    class Terminal(Console):
        """Rich's, but for one thing: that its reader has gone (``elf run … | head``) is for the caller to
        know, who may be in the middle of a loop, and not the end of the process."""

        def on_broken_pipe(self) -> None:
            raise

    width = None if out.isatty() else UNBOUNDED_COLUMNS
    return Terminal(file=out, highlight=False, markup=False, emoji=False, width=width)


def title(window: Window) -> str:
    """Which window this is, in a line; a one-shot SELECT has no name to speak of."""
    parts = [] if window.name.startswith(ONE_SHOT_PREFIX) else [window.name]
    if window.start is not None and window.end is not None:
        parts.append(f"{rfc3339(window.start)} … {rfc3339(window.end)}")
    if window.early:
        parts.append(f"early {window.early}")
    if window.revision:
        parts.append(f"revision {window.revision}")
    return "  ".join(parts)


def rich_table(table: pa.Table) -> Table:
    """Rows as a table for people; numbers to the right, the window's times in the line above instead of in
    each row.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    names = [name for name in table.column_names if name not in WINDOW_COLUMNS]
    drawn = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in names:
        kind = table.schema.field(name).type
        right = is_number(kind)
        drawn.add_column(Text(for_terminal(name)), justify="right" if right else "left", overflow="fold")
    columns = [[_shown(value) for value in table[name].to_pylist()] for name in names]
    for row in zip(*columns, strict=True):
        drawn.add_row(*row)
    return drawn


def _shown(value: object) -> Text:
    """A value of a result: an empty text is one, and NULL is none."""
    from rich.text import Text

    return Text("NULL", style="dim") if value is None else Text(for_terminal(value))


def facts_table(table: pa.Table, width: int) -> Table:
    """What is told of jobs, streams and agents, each in a line, in a table about so wide: queries are
    shortened in a list of jobs, and go over several lines among the facts of one. Where there is no room,
    columns without a word are left out.
    """
    from rich import box
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    texts = {
        name: [" ".join(for_terminal(value).split()) for value in column.to_pylist()]
        for name, column in zip(table.column_names, table.columns, strict=True)
    }
    widths = {name: max(map(cell_len, [for_terminal(name), *some])) for name, some in texts.items()}
    if sum(widths.values()) + GAP_COLUMNS * (len(widths) - 1) > width and table.num_rows:
        widths = {name: wide for name, wide in widths.items() if any(texts[name])}
    names = list(widths)
    others = sum(widths.values()) + GAP_COLUMNS * (len(widths) - 1)
    drawn = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for name in names:
        drawn.add_column(
            Text(for_terminal(name)),
            justify="right" if pa.types.is_integer(table.schema.field(name).type) else "left",
            overflow="ellipsis" if name == LISTED else "fold",
            no_wrap=name == LISTED,
            max_width=max(width - others + widths[name], TEXT_COLUMNS_MIN)
            if name == LISTED or names == FACTS
            else None,
        )
    for row in zip(*(texts[name] for name in names), strict=True):
        drawn.add_row(*map(Text, row))
    return drawn
