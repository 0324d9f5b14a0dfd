"""Rates as a picture: a bar for each side, longest first."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def draw(rates: Mapping[str, float], unit: str, title: str, path: Path) -> None:
    """Write the picture; PNG or SVG by its suffix. It says millions of ``unit``."""
    from matplotlib.figure import Figure

    sides = sorted(rates, key=lambda side: rates[side])
    figure = Figure(figsize=(8, 1.2 + 0.4 * len(sides)), layout="constrained")
    axes = figure.subplots()
    colours = ["tab:orange" if side == "elf" else "tab:blue" for side in sides]
    millions = [rates[side] / 1e6 for side in sides]
    bars = axes.barh(sides, millions, color=colours)
    axes.bar_label(bars, [f"{rate:.3g}" for rate in millions], padding=4)
    axes.set(title=title, xlabel=f"million {unit}", xlim=(0, 1.15 * max(millions, default=1) or 1))
    axes.grid(axis="x", alpha=0.3)
    figure.savefig(path, dpi=120)
