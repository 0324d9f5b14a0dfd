"""All figures as one HTML page that reads without a network and has no script: where elf loses, what was not
measured, and then each figure beside what the paper reported.

Whatever comes from a command is text: it goes through ``escape``.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Final

from lab.bench.paper.curves import Axes, Point
from lab.bench.paper.measured import Measured
from lab.bench.runner import shown

_STYLE: Final = Path(__file__).with_name("page.css")
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
QUICK: Final = "a quick look, as small as it can be; it shows that everything runs, and measures nothing."

ABOUT: Final = (
    "The paper: 1,280 agents on 60 machines of 12 cores and 48 GiB. Real agents share this machine; "
    "simulated ones are whole nodes on virtual time, with a core each, whose CPU is measured and charged."
)


def page(measured: Mapping[str, Measured], pictures: Mapping[str, Sequence[Path]]) -> str:
    """The page; ``pictures``: by figure, the files of its axes in their order."""
    where = list(dict.fromkeys(_machine(one.machine) for one in measured.values()))
    quick = [number for number, one in measured.items() if one.quick]
    took = {command: secs for one in measured.values() for command, secs in one.seconds.items()}
    links = "".join(f'<a href="#f{number}">{number}</a>' for number in measured)
    style = _STYLE.read_text(encoding="utf-8")
    lines = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>elf: the paper's figures</title><style>{style}</style></head><body>",
        "<h1>The paper's figures, measured with elf</h1>",
        *(f'<p class="dim">{one}</p>' for one in where),
        f'<p class="dim">All commands took {shown(sum(took.values()) / 60)} minutes. {ABOUT}</p>',
        f"<p><strong>{', '.join(quick)}: {QUICK}</strong></p>" if quick else "",
        f"<nav>{links}</nav>",
        *_listed("Where elf loses", "loses", {number: one.loses for number, one in measured.items()}),
        *_listed("Not measured", "lacking", {number: one.not_measured for number, one in measured.items()}),
    ]
    for number, one in measured.items():
        lines += _figure(number, one, pictures.get(number, ()))
    return "\n".join(filter(None, [*lines, "</body></html>"])) + "\n"


def _listed(title: str, kind: str, found: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Sentences by figure."""
    items = [f"<li><b>{number}</b> {escape(text)}</li>" for number, texts in found.items() for text in texts]
    yield f'<section class="{kind}"><h3>{title}</h3>'
    yield f"<ul>{''.join(items)}</ul>" if items else "<p>Nothing.</p>"
    yield "</section>"


def _figure(number: str, one: Measured, pictures: Sequence[Path]) -> Iterator[str]:
    name = f"Section {number}" if number == "4.1" else f"Figure {number}"
    yield f'<h2 id="f{number}">{name}: {escape(one.title)}</h2>'
    yield f"<p>The paper: {escape(one.paper)}</p>"
    if one.loses:
        yield from _listed("elf loses", "loses", {"": one.loses})
    yield '<div class="pictures">'
    for axes, picture in zip(one.axes, pictures, strict=False):
        data = base64.b64encode(picture.read_bytes()).decode()
        yield f'<img alt="{escape(axes.title)}" src="data:image/svg+xml;base64,{data}">'
    yield "</div>"
    if one.beside:
        rows = ((row.what, row.paper, row.here) for row in one.beside)
        yield from _table(("", "the paper", "here"), rows)
    if one.not_measured:
        yield from _listed("Not measured", "lacking", {"": one.not_measured})
    said = f"Spread: {escape(one.spread)}. Seed: {one.seed}, where a command takes one."
    yield f'<p class="dim">{said} {_machine(one.machine)}</p>'
    yield "<details><summary>Commands and all values</summary>"
    yield f"<pre>{escape(chr(10).join(one.commands))}</pre>"
    for axes in one.axes:
        yield f"<h3>{escape(axes.title)}, {escape(axes.unit)}</h3>"
        yield from _values(axes)
    yield "</details>"


def _machine(machine: Mapping[str, str]) -> str:
    return escape("; ".join(machine.values())) + "."


def _values(axes: Axes) -> Iterator[str]:
    """A row a curve, a column an x."""
    at = sorted({point.x for curve in axes.curves for point in curve.points})
    heads = ["", *(f"{shown(x)} {axes.x}" if axes.x else "" for x in at)]
    rows = []
    for curve in axes.curves:
        points = {point.x: point for point in curve.points}
        rows.append([curve.name, *(_value(points[x]) if x in points else "" for x in at)])
    yield from _table(heads, rows)


def _value(point: Point) -> str:
    if point.low is None or point.high is None or point.low == point.high:
        return shown(point.y)
    return f"{shown(point.y)} ({shown(point.low)} – {shown(point.high)})"


def _table(heads: Sequence[str], rows: Iterator[Sequence[str]] | Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"<table><tr>{''.join(f'<th>{escape(head)}</th>' for head in heads)}</tr>"
    for row in rows:
        yield f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>"
    yield "</table>"
