"""Masks lines of formats with fields: those of a layout or a pattern, of CSV, of logfmt.

A line that matches a pattern has the text of its masked fields replaced, and what is behind its last field is
left out unless the mask names it (``extra``). What Python finds is not believed: the line counts as masked if
RE2, which is what reads it later, finds in it what is left of each value, and else it is withheld. A line of
CSV or logfmt is put together anew from its values, so what is no value is not in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from agents.formats.csv import Csv, values
from agents.formats.fields import parts
from agents.formats.layout import Patterned, with_names
from agents.formats.layout import masked as marked
from agents.formats.logfmt import is_line, pairs
from agents.formats.maskable import EXTRA
from agents.formats.requests import taken_apart
from agents.masks import WITHHELD, masked

Rewrite = Callable[[str], str]
"""From the text of a field to what is left of it."""
_NOTHING: Final = ("", "-")
_DIRECTIVE: Final = "#Fields:"


class PatternMask:
    """Of lines that match a pattern."""

    def __init__(self, fmt: Patterned, mask: Mapping[str, str], key: bytes) -> None:
        self._fmt, self._key = fmt, key
        self._extra = mask.get(EXTRA, "drop")
        rewrites = {number: self._rewrite(fmt, number, mask) for number in range(len(fmt.fields))}
        self._rewrites = {number: one for number, one in rewrites.items() if one is not None}
        pattern, groups, count = fmt.whole(list(self._rewrites))
        self._groups = {groups[number]: one for number, one in self._rewrites.items()}
        if fmt.separator is not None:
            self._groups[count] = self._behind
        self._last = count if fmt.separator is not None else 0
        self._python = re.compile(rf"(?:{pattern})\Z", re.ASCII | re.DOTALL)
        self._re2 = rf"(?s)^(?:{with_names(pattern)})\z"

    def _rewrite(self, fmt: Patterned, number: int, mask: Mapping[str, str]) -> Rewrite | None:
        """Of a field; None: it stays."""
        field = fmt.fields[number]
        names = [part.column.name for part in parts(field)]
        if field.kind in ("request", "uri"):
            if "cs_request" in mask and field.kind == "request":
                return self._masked(mask["cs_request"])
            query = mask.get("cs_uri_query")
            return None if query is None else self._query(query, whole=field.kind == "uri")
        hows = [mask[name] for name in names if name in mask]
        if not hows:
            return None
        return self._masked(hows[0], "?" if field.kind == "query" else "")

    def _masked(self, how: str, before: str = "") -> Rewrite:
        def rewrite(text: str) -> str:
            if text in _NOTHING:
                return text
            return masked(how, text.removeprefix(before), self._key) or "-"

        return rewrite

    def _query(self, how: str, *, whole: bool) -> Rewrite:
        """Of a request, or of a URI that is the ``whole`` text: all but what is behind the question mark."""

        def target(text: str) -> str:
            stem, mark, query = text.partition("?")
            left = masked(how, query, self._key) if mark else None
            return f"{stem or '-'}?{left}" if left is not None else stem or "-"

        def rewrite(text: str) -> str:
            if text in _NOTHING or whole:
                return text if text in _NOTHING else target(text)
            method, asked, version = taken_apart(text)
            if not method:
                return "-"
            return " ".join(filter(None, (method, target(asked), version)))

        return rewrite

    def _behind(self, text: str) -> str:
        return masked(self._extra, text, self._key) or ""

    def mask(self, lines: pa.StringArray) -> pa.StringArray:
        """See ``agents.tasks.masking.Lines``."""
        escapes = self._fmt.escapes
        given = marked(lines) if escapes else lines
        wanted: list[list[str]] = []
        made = [self._line(text, wanted) for text in given.to_pylist()]
        fitting = self._fitting(pa.array(made, pa.string()), wanted)
        written = [
            _unmarked(text) if fits and escapes else text if fits else WITHHELD
            for text, fits in zip(made, fitting, strict=True)
        ]
        if (headings := self._fmt.headings(lines)) is not None:
            for at in headings.nonzero()[0].tolist():
                line = lines[at].as_py()
                written[at] = line if line.startswith(_DIRECTIVE) else "#"
        return pa.array(written, pa.string())

    def _line(self, text: str, wanted: list[list[str]]) -> str:
        """The line with what is left of its fields, which are ``wanted`` in it; empty where it is none."""
        found = self._python.match(text)
        left: list[str] = []
        wanted.append(left)
        if found is None:
            return ""
        made, at = "", 0
        for group, rewrite in sorted(self._groups.items()):
            start, end = found.span(group)
            own = "" if start < 0 else rewrite(_unmarked(found[group]))
            left.append(own)
            if start < 0:
                continue
            if group == self._last and not own and self._fmt.separator:
                start -= len(self._fmt.separator)
            made, at = made + text[at:start] + own, end
        return made + text[at:]

    def _fitting(self, made: pa.StringArray, wanted: Sequence[Sequence[str]]) -> list[bool]:
        """Whether RE2 finds what is wanted."""
        found = pc.extract_regex(made, self._re2)
        valid = found.is_valid().to_pylist()
        columns = [found.field(group - 1).to_pylist() for group in sorted(self._groups)]
        return [
            bool(ok and text and list(row) == list(left))
            for ok, text, left, *row in zip(valid, made.to_pylist(), wanted, *columns, strict=True)
        ]

    def close(self) -> None:
        pass


class CsvMask:
    """Of comma-separated values."""

    def __init__(self, fmt: Csv, mask: Mapping[str, str], key: bytes) -> None:
        self._fmt, self._key = fmt, key
        self._hows = {n: mask[field.name] for n, field in enumerate(fmt.fields) if field.name in mask}
        self._extra = mask.get(EXTRA, "drop")
        self._special = re.compile(f'["{re.escape(fmt.separator)}\\r\\n]')

    def mask(self, lines: pa.StringArray) -> pa.StringArray:
        """See ``agents.tasks.masking.Lines``."""
        headings = self._fmt.headings(lines)
        heads = [False] * len(lines) if headings is None else headings.tolist()
        found = [
            text if head else self._line(text) for text, head in zip(lines.to_pylist(), heads, strict=True)
        ]
        return pa.array(found, pa.string())

    def _line(self, text: str) -> str:
        count = len(self._fmt.fields)
        row = values(text, self._fmt.separator)
        if text.count('"') % 2 or len(row) < count:
            return WITHHELD
        kept = [self._left(self._hows.get(number), value) for number, value in enumerate(row[:count])]
        if row[count:] and (behind := self._left(self._extra, self._fmt.separator.join(row[count:]))):
            kept.append(behind)
        return self._fmt.separator.join(map(self._quoted, kept)) or "-"

    def _left(self, how: str | None, value: str) -> str:
        if how is None or value in _NOTHING:
            return value
        return masked(how, value, self._key) or ""

    def _quoted(self, value: str) -> str:
        doubled = value.replace('"', '""')
        return f'"{doubled}"' if self._special.search(value) else value

    def close(self) -> None:
        pass


class LogfmtMask:
    """Of logfmt: keys in any case, wherever they are in a line."""

    def __init__(self, mask: Mapping[str, str], key: bytes) -> None:
        self._mask = {name.lower(): how for name, how in mask.items()}
        self._key = key

    def mask(self, lines: pa.StringArray) -> pa.StringArray:
        """See ``agents.tasks.masking.Lines``."""
        return pa.array([self._line(text) for text in lines.to_pylist()], pa.string())

    def _line(self, text: str) -> str:
        if not is_line(text):
            return WITHHELD
        return " ".join(f"{name}={self._left(name, value, quoted)}" for name, value, quoted in pairs(text))

    def _left(self, name: str, value: str, quoted: bool) -> str:
        how = self._mask.get(name.lower())
        if how is None or value in _NOTHING:
            return f'"{value}"' if quoted else value
        return masked(how, value, self._key) or ""

    def close(self) -> None:
        pass


def _unmarked(text: str) -> str:
    return text.replace("\0q", '\\"').replace("\0b", "\\\\") if "\0" in text else text
