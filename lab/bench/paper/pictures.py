"""Figures as SVG, with matplotlib (the extra ``bench``), which is imported only to draw.

Colours are those of ``elf.cli.pictures``; what differs by colour differs by its marker too. Real is drawn
through, simulated is dashed, other engines are dotted.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from elf.cli.pictures import GREY, LEVELS, RED, figure_of, save
from lab.bench.paper.curves import Axes, Curve, Kind, Point
from lab.bench.runner import shown

WIDTH, HEIGHT, ROW = 6.4, 3.4, 0.19
"""Of one picture, in inches, and of a row of names below it."""
NAME_CHARS: Final = 36
"""Of longer names there is one in a row."""
MARKERS: Final = "osD^vPX*"
LINES: Final = {Kind.ELF: "-", Kind.SIMULATED: "--", Kind.BESIDE: ":"}


def draw(axes: Axes, path: Path) -> None:
    """The axes as a file."""
    columns = 1 if max((len(curve.name) for curve in axes.curves), default=0) > NAME_CHARS else 2
    rows = -(-len(axes.curves) // columns) if axes.x else 0
    figure = figure_of(WIDTH, HEIGHT + ROW * rows)
    drawn = figure.subplots()
    (_curves if axes.x else _bars)(drawn, axes)
    drawn.set_title(axes.title, fontsize=10)
    if rows:
        figure.legend(fontsize=7.5, frameon=False, loc="outside lower left", ncols=columns)
    save(figure, path)


def _curves(drawn: Any, axes: Axes) -> None:
    from matplotlib.ticker import LogLocator

    things = list(dict.fromkeys(_thing(curve) for curve in axes.curves))
    for curve in axes.curves:
        number = things.index(_thing(curve))
        colour = LEVELS[number % len(LEVELS)]
        at, values = [point.x for point in curve.points], [point.y for point in curve.points]
        drawn.plot(
            at, values, color=colour, label=curve.name, linestyle=LINES[curve.kind],
            marker=MARKERS[number % len(MARKERS)], markersize=5, linewidth=1.5,
            markerfacecolor="white" if curve.kind == Kind.SIMULATED else colour,
        )  # fmt: skip
        if any(point.high is not None for point in curve.points):
            low, high = _ends(curve)
            drawn.vlines(at, low, high, color=colour, alpha=0.45, linewidth=3)
    for bound in axes.bounds:
        drawn.axhline(bound.y, color=RED, linewidth=0.9, alpha=0.7)
        drawn.annotate(
            bound.name, (0.01, bound.y), xycoords=("axes fraction", "data"), fontsize=7, color=RED,
            va="bottom", ha="left", in_layout=False,
        )  # fmt: skip
    if axes.log_x:
        drawn.set_xscale("log")
    if axes.log_y:
        drawn.set_yscale("log")
    else:
        drawn.set_ylim(bottom=0)
    ticks = sorted({point.x for curve in axes.curves for point in curve.points})
    if ticks and len(ticks) <= 12:
        drawn.set_xticks(ticks, [shown(int(x) if x == int(x) else x) for x in ticks], fontsize=8)
        drawn.minorticks_off()
    if axes.log_y:
        bottom, top = drawn.get_ylim()
        subs = (1, 2, 3, 5, 7) if top < 20 * bottom else (1,)
        drawn.yaxis.set_major_locator(LogLocator(subs=subs))
    drawn.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    drawn.set_xlabel(axes.x)
    drawn.set_ylabel(axes.unit)
    drawn.grid(alpha=0.25)


def _thing(curve: Curve) -> str:
    """What is measured, whether really or simulated: it has one colour."""
    return curve.name.removesuffix(", simulated").removesuffix(", real")


def _ends(curve: Curve) -> tuple[list[float], list[float]]:
    def end(point: Point, value: float | None) -> float:
        return point.y if value is None else value

    points: Sequence[Point] = curve.points
    return [end(one, one.low) for one in points], [end(one, one.high) for one in points]


def _bars(drawn: Any, axes: Axes) -> None:
    names = [curve.name for curve in axes.curves]
    values = [curve.points[0].y for curve in axes.curves]
    colours = [GREY if curve.kind == Kind.BESIDE else LEVELS[0] for curve in axes.curves]
    bars = drawn.barh(names, values, color=colours)
    drawn.bar_label(bars, [shown(value) for value in values], padding=4)
    drawn.set_xlim(0, 1.18 * max(values, default=1) or 1)
    drawn.invert_yaxis()
    drawn.set_xlabel(axes.unit)
