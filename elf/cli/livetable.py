"""Windows on a terminal: the last one of each kind in a table that is drawn anew in place; and tables that
are longer than the screen, a page at a time.

A window that comes takes the place of the one before it. Where a statement has windows of several lengths the
last of each is there. What is drawn never is higher than the screen, or it could not be drawn over: rows that
have no room are counted.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from typing import Final, TextIO

import pyarrow as pa

from elf.cli.printing import TablePrinter
from elf.client.windows import Window

UP: Final = "\x1b[{}F"
"""To the beginning of so many lines above."""
ERASE: Final = "\x1b[J"
"""All from there on."""
PAGER: Final = "less -FRSX"
"""Where PAGER is not set: it leaves at once what fits, and leaves it on the screen."""


class ScreenPrinter(TablePrinter):
    """``live``: windows in place, else one below the other. ``pages``: whether long tables are paged."""

    def __init__(self, out: TextIO, *, live: bool = True, pages: bool = True) -> None:
        super().__init__(out, status=False)
        self._live = live and out.isatty()
        self._pages = pages and out.isatty()
        self._last: dict[object, list[str]] = {}
        self._drawn = 0

    def windows(self, windows: Iterable[Window]) -> None:
        if not self._live:
            super().windows(windows)
            return
        for window in windows:
            whole = replace(window, changes=None)  # in place is all of it
            length = None if window.start is None or window.end is None else window.end - window.start
            self._last[window.name, length] = self.lines_of(whole)
        self._draw()

    def _draw(self) -> None:
        height = shutil.get_terminal_size().lines - 1
        lines = [line for one in self._last.values() for line in one]
        if len(lines) > height:
            lines = [*lines[: height - 1], f"… {len(lines) - height + 1:,} more lines (\\live off shows all)"]
        before = UP.format(self._drawn) + ERASE if self._drawn else ""
        self._out.write(before + "".join(f"{line}\n" for line in lines))
        self._out.flush()
        self._drawn = len(lines)

    def beside(self) -> None:
        """What is drawn stays where it is, and is drawn again below what is said."""
        self._drawn = 0

    def table(self, table: pa.Table) -> None:
        text = self.text_of(table)
        if not self._pages or text.count("\n") < shutil.get_terminal_size().lines:
            self._out.write(text)
            self._out.flush()
        else:
            self._out.flush()
            paged(text)


def paged(text: str) -> None:
    """Show a long text with the user's pager; as it is, where there is none."""
    command = shlex.split(os.environ.get("PAGER") or PAGER)
    try:
        subprocess.run(command, input=text.encode(), check=False)
    except OSError:
        sys.stdout.write(text)
        sys.stdout.flush()
