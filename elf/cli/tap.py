"""``elf tap``: rows of a stream as its agents read them.

JSON and CSV are for programs, as everywhere. For people each row is a line under its columns' names. On a
terminal a line ends where the screen does, so columns that have held nothing yet are left out, and times come
without their date; the names come again when a screen is full. What there was and is not shown, since an
agent shows so many rows a second, is said on standard error at the end; what keeps an agent from showing any,
when it happens.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TextIO

import pyarrow as pa
from rich.cells import cell_len, set_cell_size

from elf.cli.ask import ask
from elf.cli.options import Output
from elf.cli.printing import console, printer, say, use_utf8
from elf.client import connect
from elf.client.values import for_terminal
from elf.errors import ElfError
from elf.wire.clients import TapReply

CELL_CHARS_MAX: Final = 48
"""A wider cell does not make its column wider."""
GAP: Final = "  "


def tap_stream(
    address: str,
    cluster: str,
    stream: str,
    where: str,
    columns: Sequence[str],
    limit: int | None,
    output: Output,
) -> int:
    """Print rows until Ctrl-C, or so many."""
    use_utf8()
    out: Rows = printer(output.value)
    if output is Output.TABLE:
        out = Lines(sys.stdout)
    told = Told(stream, bool(where))

    async def watch() -> None:
        left = limit
        async with (
            connect(address, cluster=cluster) as client,
            contextlib.aclosing(client.tap(stream, where, columns)) as taps,
        ):
            async for tapped in taps:
                told.hear(tapped.told)
                rows = tapped.rows
                if rows is None:
                    continue
                out.table(rows if left is None else rows.slice(0, left))
                left = None if left is None else left - rows.num_rows
                if left is not None and left <= 0:
                    return

    try:
        with contextlib.suppress(KeyboardInterrupt):
            ask(watch())
    except ElfError:
        told.end()
        raise
    told.end()
    return 0


class Rows(Protocol):
    """Writes rows of one stream after others."""

    def table(self, table: pa.Table) -> None: ...


class Told:
    """What is said of rows that are not shown, on standard error."""

    def __init__(self, stream: str, chooses: bool) -> None:
        self._stream = stream
        self._chooses = chooses
        self._said: set[tuple[str, str]] = set()
        self._hidden = 0
        self._unseen = 0
        self._last = TapReply()

    def hear(self, told: TapReply) -> None:
        """Count, and say what has not been said."""
        self._last = told
        self._hidden += told.hidden
        self._unseen += told.unseen
        if told.waiting:
            self._say("", f"{told.waiting}; waiting for one")
        for agent, why in told.silent.items():
            self._say(agent, f"no rows of {agent}: {why}")

    def _say(self, agent: str, text: str) -> None:
        if (agent, text) not in self._said:
            self._said.add((agent, text))
            say(f"elf: {text}")

    def end(self) -> None:
        """The counts."""
        hidden, unseen = (self._hidden, self._unseen) if self._chooses else (self._hidden + self._unseen, 0)
        if hidden:
            self._count(f"{hidden:,} rows not shown", self._last.rows_max)
        if unseen:
            self._count(f"{unseen:,} lines not looked at", self._last.lines_max)

    def _count(self, what: str, limit: int) -> None:
        print(f"… {what}: more than {limit:,} a second of an agent", file=sys.stderr)


class Lines:
    """Rows for people, a line each. Columns are as wide as what they have held so far."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._console = console(out) if out.isatty() else None
        self._names: list[str] = []
        self._shown: list[str] = []
        self._columns: dict[int, _Column] = {}
        self._since_names = 0

    def table(self, table: pa.Table) -> None:
        if table.column_names != self._names:
            self._names, self._columns = table.column_names, {}
            self._shown = [_line(name) for name in self._names]
        texts = [self._texts(column) for column in table.columns]
        for place, column in enumerate(texts):
            self._fit(place, column, table.schema.field(place).type)
        shown = sorted(self._columns)
        for row in zip(*texts, strict=True):
            if self._since_names <= 0:
                self._write({place: self._shown[place] for place in shown})
                self._since_names = self._console.height - 1 if self._console is not None else sys.maxsize
            self._write({place: row[place] for place in shown})
            self._since_names -= 1
        self._out.flush()

    def _texts(self, column: pa.ChunkedArray) -> list[str]:
        short = self._console is not None and pa.types.is_timestamp(column.type)
        if short:
            return [_line(value)[len("2026-01-01T") : -1] for value in column.to_pylist()]
        return [_line(value) for value in column.to_pylist()]

    def _fit(self, place: int, texts: Sequence[str], kind: pa.DataType) -> None:
        """Make the column as wide as these; one that is new brings the names again."""
        known = self._columns.get(place)
        if known is None:
            if self._console is not None and not any(texts):
                return
            right = pa.types.is_integer(kind) or pa.types.is_floating(kind)
            known = self._columns[place] = _Column(cell_len(self._shown[place]), right)
            self._since_names = 0
        widest = max((min(cell_len(text), CELL_CHARS_MAX) for text in texts), default=0)
        known.width = max(known.width, widest)

    def _write(self, texts: Mapping[int, str]) -> None:
        line = GAP.join(self._columns[place].padded(text) for place, text in texts.items()).rstrip()
        if self._console is not None and cell_len(line) > self._console.width:
            line = set_cell_size(line, self._console.width - 1) + "…"
        self._out.write(line + "\n")


@dataclass
class _Column:
    width: int
    right: bool

    def padded(self, text: str) -> str:
        blanks = " " * (self.width - cell_len(text))
        return blanks + text if self.right else text + blanks


def _line(value: object) -> str:
    """A cell in one line."""
    return for_terminal(value).replace("\n", r"\n")
