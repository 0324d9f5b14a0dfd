"""Comma-separated values (RFC 4180): ``csv:a,b,c`` names the columns; ``csv`` alone takes them from the first
line of the input. What separates the names separates the values: a comma, a semicolon, a tab or a bar. A
value may be in double quotes, a quote in it is doubled. A line with fewer values is rejected, one with more
has ``extra_1`` and so on. A line that is the header again is no record. Types are told from samples."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from agents.formats.dialect import Dialect, Mask, Step, is_reserved
from agents.formats.fields import Cut, Field, Fielded
from agents.formats.saying import cannot

_SEPARATORS: Final = "\t;|,"
_COLUMNS_MAX: Final = 1000


class Csv(Fielded):
    """``header``: the first line, as it is written."""

    def __init__(self, header: str) -> None:
        self._header = header
        self.separator = separator_of(header)
        names = values(header, self.separator)
        super().__init__(
            f"csv:{header}",
            [Field(name.strip() or f"column_{n}", "untold") for n, name in enumerate(names, 1)],
        )

    def headings(self, lines: pa.StringArray) -> Mask | None:
        """See ``Format``."""
        found: Mask = pc.equal(pc.utf8_rtrim(lines, "\r"), self._header).to_numpy(zero_copy_only=False)
        return found

    def samples_of(self, samples: pa.StringArray) -> tuple[dict[int, pa.StringArray], list[list[str]]]:
        """See ``Fielded``."""
        count = len(self.fields)
        rows = [values(text, self.separator) for text in samples.to_pylist() if text and text != self._header]
        rows = [row for row in rows if len(row) >= count]
        told = {n: pa.array([row[n] for row in rows], pa.string()) for n in range(count)}
        return told, [row[count:] for row in rows if len(row) > count]

    def cut(self, dialect: Dialect, wanted: Sequence[int], *, extras: bool) -> Cut:
        """See ``Fielded``."""
        count = len(self.fields)
        bare, ends = dialect.without("line", "\r$"), dialect.contains("line", dialect.literal("\r"))
        steps: list[Step] = [
            (("_l", f"CASE WHEN {ends} THEN {bare} ELSE line END"),),
            (("_p", dialect.split("_l", '"')),),
            (("_v", dialect.values("_p", "_l", self.separator)),),
            (("_n", dialect.items("_v")),),
        ]
        texts = {
            number: dialect.unmarked(dialect.item("_v", number + 1), self.separator) for number in wanted
        }
        paired = f"{dialect.items('_p')} % 2 = 1"
        if extras:
            steps.append((("_w", dialect.rest("_v", count)),))
        return Cut(
            steps,
            f"coalesce({paired} AND _n >= {count}, FALSE)",
            texts,
            "_w",
            f"(_n > {count})",
            self.separator,
        )


def separator_of(header: str) -> str:
    """What separates the names of a header."""
    return max(_SEPARATORS, key=lambda one: (header.count(one), one == ","))


def values(line: str, separator: str) -> list[str]:
    """What ``Dialect.values`` finds, unmarked."""
    pieces = line.rstrip("\r").split('"')
    last = len(pieces) - 1
    whole = "".join(
        ('"' if not piece and 0 < place < last else piece)
        if place % 2 == 0
        else piece.replace(separator, "\0s")
        for place, piece in enumerate(pieces)
    )
    return [one.replace("\0s", separator) for one in whole.split(separator)]


def csv(text: str) -> Csv:
    """``csv:HEADER``. Raises ``ConfigError`` with the place of what is wrong."""
    header = text.removeprefix("csv:").strip("\r\n")
    names = [name.strip() for name in values(header, separator_of(header))]
    if not header.strip():
        raise cannot(text, 4, "csv: is followed by the names of the columns, such as csv:time,path,status")
    if len(names) > _COLUMNS_MAX:
        raise cannot(text, 4, f"more than {_COLUMNS_MAX} columns")
    for place, name in enumerate(names):
        if name and (name in names[:place] or is_reserved(name)):
            raise cannot(text, text.rfind(name), f"a column cannot be called {name} here")
    return Csv(header)


def looks_like_header(line: str) -> bool:
    """Whether a first line has the names of columns: two or more, all of them words that are no numbers."""
    names = values(line, separator_of(line))
    return len(names) > 1 and all(re.fullmatch(r"\s*[A-Za-z_@][\w .()/@#-]{0,63}\s*", name) for name in names)
