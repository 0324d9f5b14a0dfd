"""Rates as a picture: a bar for each side, longest first."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def draw(rates: Mapping[str, float], unit: str, title: str, path: Path) -> None:
    """Write the picture; PNG or SVG by its suffix."""
    from matplotlib.figure import Figure

    sides = sorted(rates, key=lambda side: rates[side])
    figure = Figure(figsize=(8, 1.2 + 0.4 * len(sides)), layout="constrained")
    axes = figure.subplots()
    colours = ["tab:orange" if side == "elf" else "tab:blue" for side in sides]
    bars = axes.barh(sides, [rates[side] for side in sides], color=colours)
    axes.bar_label(bars, [f"{rates[side]:,.0f}" for side in sides], padding=4)
    axes.set(title=title, xlabel=unit)
    axes.margins(x=0.15)
    axes.grid(axis="x", alpha=0.3)
    figure.savefig(path, dpi=120)
