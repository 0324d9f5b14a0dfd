"""A report: queries and their windows in one HTML file, which reads without a network.

It is the page's own view of windows (``static/windows.js``), with what that needs, and its data. Rules:

- Whatever comes from a log is data: JSON in a block that no browser runs, and scripts set text alone. The
  file's Content-Security-Policy knows the scripts and the styles by their hashes, and lets nothing be loaded.
- It has an end: of each query the last ``WINDOWS_MAX`` windows, and of these ``ROWS_MAX`` rows of all; what
  is left out is told.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from html import escape
from pathlib import Path
from typing import Final

from elf.client.windows import Window
from elf.page.answers import encode, window_of

WINDOWS_MAX: Final = 300
ROWS_MAX: Final = 20_000
_STATIC: Final = Path(__file__).with_name("static")
_PLOT: Final = _STATIC / "vendor" / "uplot-1.6.32"
_MODULES: Final = ("dom", "chart", "table", "windows", "report")
"""In the order in which they import each other."""
_IMPORT: Final = re.compile(r'^import (\{[^}]+\}) from "\./(\w+)\.js";$', re.MULTILINE)
_EXPORT: Final = re.compile(r"^export ((?:async )?(?:class|function|const) (\w+))", re.MULTILINE)
_AGENTS: Final = re.compile(r"\A\d+ of \d+ agents?(?:, |\Z)")
_MORE_STYLE: Final = """
.report { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 34rem), 1fr)); gap: 1rem; }
.report > section { margin: 0; }
.report .scroll { max-height: 26rem; overflow: auto; }
.report details { margin-top: .6rem; }
"""


@dataclass(frozen=True)
class Section:
    """A query and its windows, in any order. ``wide``: as the page is; ``keys``: columns whose numbers
    measure nothing; ``alone``: one agent has read all, of which nothing is to be said; ``count``: how many
    windows there were, where not all are given."""

    title: str
    about: str
    sql: str
    windows: Sequence[Window]
    wide: bool = False
    keys: tuple[str, ...] = ()
    alone: bool = False
    count: int = 0


class Last:
    """The last windows of a query, as they come, each in its last revision. More than a report shows are
    counted and forgotten."""

    def __init__(self) -> None:
        self._found: dict[object, Window] = {}
        self._past: datetime | None = None
        self.count = 0

    def add(self, window: Window) -> None:
        """One more window, or a revision."""
        key = (window.start, window.end)
        if key not in self._found:
            if window.revision and window.end is not None and self._past and window.end <= self._past:
                return  # of one that is forgotten
            self.count += 1
        self._found[key] = window
        if len(self._found) > 2 * WINDOWS_MAX:
            gone = self._found.pop(next(iter(self._found)))
            self._past = max(filter(None, (self._past, gone.end)), default=None)

    @property
    def windows(self) -> list[Window]:
        return list(self._found.values())


@dataclass(frozen=True)
class Report:
    """``span``: the times that it is of, for people; ``facts``: figures, by name; ``without``: what is not in
    it, and why."""

    title: str
    span: str
    facts: Mapping[str, str]
    sections: Sequence[Section]
    without: Mapping[str, str] = field(default_factory=dict)


def pieces(report: Report) -> Iterator[str]:
    """The text of a report."""
    script, style = _script(), _style()
    policy = f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}"
    made = datetime.now(UTC).strftime("made %Y-%m-%d %H:%M UTC by elf report")
    data = {
        "title": report.title,
        "about": "; ".join(filter(None, (report.span, made))),
        "facts": report.facts,
        "sections": [_section(one) for one in report.sections],
        "without": list(report.without.items()),
    }
    yield (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(report.title)}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        '<main id="main"></main>\n<noscript><p class="notice">This report needs JavaScript.</p></noscript>\n'
    )
    # Only this character could end the block; JSON has another way to write it.
    told = encode(data).decode().replace("<", "\\u003c")
    yield f'<script type="application/json" id="data">{told}</script>\n'
    yield f'<script type="module">{script}</script>\n</body>\n</html>\n'


def _section(one: Section) -> dict[str, object]:
    last: dict[object, Window] = {}
    for window in one.windows:
        last[window.start, window.end] = window
    order = sorted(last.values(), key=lambda w: (w.end is not None, w.end, w.start))
    kept: list[Window] = []
    rows = 0
    for window in reversed(order):
        rows += window.table.num_rows
        if len(kept) == WINDOWS_MAX or (kept and rows > ROWS_MAX):
            break
        kept.append(window)
    return {
        "title": one.title,
        "about": one.about,
        "sql": one.sql,
        "windows": [_window(window, alone=one.alone) for window in reversed(kept)],
        "older": max(one.count, len(order)) - len(kept),
        "wide": one.wide,
        "keys": one.keys,
    }


def _window(window: Window, *, alone: bool) -> dict[str, object]:
    told = window_of(window)
    if alone:
        told["coverage"] = _AGENTS.sub("", window.coverage) or "all of its lines"
    return told


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def _style() -> str:
    parts = [(_PLOT / "uPlot.min.css").read_text("utf-8"), (_STATIC / "style.css").read_text("utf-8")]
    return "".join([*parts, _MORE_STYLE])


@cache
def _script() -> str:
    """The page's modules as one, each in a function of its own."""
    plot = (_PLOT / "uPlot.esm.js").read_text("utf-8")
    parts = [_wrapped("globalThis.elfPlot", plot.replace("export { uPlot as default };", ""), "uPlot")]
    parts.append("const modules = {};")
    for name in _MODULES:
        text = (_STATIC / f"{name}.js").read_text("utf-8")
        names = [found[2] for found in _EXPORT.finditer(text)]
        text = _IMPORT.sub(r"const \1 = modules.\2;", _EXPORT.sub(r"\1", text))
        parts.append(_wrapped(f"modules.{name}", text, f"{{ {', '.join(names)} }}"))
    return "\n".join(parts)


def _wrapped(name: str, text: str, value: str) -> str:
    return f"{name} = (() => {{\n{text}\nreturn {value};\n}})();"
