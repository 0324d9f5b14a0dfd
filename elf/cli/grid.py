"""Rows of many windows as lines of text: for each window the table that ``rich_table`` of printing draws,
to the letter, at a few microseconds a row.

Cells are written once for all rows. What would go over several lines, or is wider than there is room, is not
drawn here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import pyarrow as pa

from elf.client.values import for_terminal
from elf.client.windows import WINDOW_COLUMNS

NULL: Final = "NULL"
GAP: Final = "   "
RULE: Final = "─"


class Styles(NamedTuple):
    """What stands around a text of a style in a terminal."""

    bold: tuple[str, str] = ("", "")
    dim: tuple[str, str] = ("", "")


@dataclass(frozen=True)
class _Column:
    head: str
    texts: list[str | None]
    """None: NULL, which is no text."""
    right: bool


def is_number(kind: pa.DataType) -> bool:
    """Whether values of the type are written to the right."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


class Grid:
    """The rows of many windows, without the times of these."""

    def __init__(self, rows: pa.Table, width: int, styles: Styles) -> None:
        self._width = width
        self._styles = styles
        self._columns = [
            _Column(for_terminal(name), list(map(_text, column.to_pylist())), is_number(column.type))
            for name, column in zip(rows.column_names, rows.columns, strict=True)
            if name not in WINDOW_COLUMNS
        ]

    def lines(self, begin: int, end: int) -> list[str] | None:
        """The table of these rows; None where it is not drawn here."""
        parts = [[column.head, *column.texts[begin:end]] for column in self._columns]
        cells = [[NULL if text is None else text for text in part] for part in parts]
        sizes = [_sizes(texts) for texts in cells]
        widths = [max(some) for some in sizes]
        whole = sum(widths) + len(GAP) * (len(widths) - 1)
        if (
            not widths
            or not all(widths)
            or whole > self._width
            or any("\n" in t for some in cells for t in some)
        ):
            return None
        for column, part, texts, size, width in zip(self._columns, parts, cells, sizes, widths, strict=True):
            self._style(part, texts)
            _pad(texts, size, width, right=column.right)
        head, *rows = map(GAP.join, zip(*cells, strict=True))
        return [head, RULE * whole, *rows]

    def _style(self, part: Sequence[str | None], texts: list[str]) -> None:
        """The head and what is NULL, in a terminal."""
        before, after = self._styles.bold
        texts[0] = f"{before}{texts[0]}{after}"
        before, after = self._styles.dim
        if before and None in part:
            texts[:] = [
                f"{before}{NULL}{after}" if p is None else t for p, t in zip(part, texts, strict=True)
            ]


def _text(value: object) -> str | None:
    return None if value is None else for_terminal(value)


def _sizes(texts: Sequence[str]) -> list[int]:
    """How many columns of a terminal each takes."""
    return list(map(_size_of(texts), texts))


def _size_of(texts: Sequence[str]) -> Callable[[str], int]:
    if all(map(str.isascii, texts)):
        return len
    from rich.cells import cell_len

    return cell_len


def _pad(texts: list[str], sizes: Sequence[int], width: int, *, right: bool) -> None:
    for place, size in enumerate(sizes):
        if size < width:
            blanks = " " * (width - size)
            texts[place] = blanks + texts[place] if right else texts[place] + blanks
