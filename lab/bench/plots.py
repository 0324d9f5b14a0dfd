"""Pictures of figures, as PNG or SVG by the file's suffix; they need matplotlib (the extra ``bench``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path


def draw_bars(rates: Mapping[str, float], unit: str, title: str, path: Path) -> None:
    """Rates, in millions of ``unit``: a bar for each side, longest first."""
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


def draw_curves(rows: Sequence[Mapping[str, object]], path: Path) -> None:
    """Of ``elf bench cbt``: throughput, and memory a key, over distinct keys."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.5), layout="constrained")
    speed, memory = figure.subplots(1, 2)
    for side in dict.fromkeys(str(row["side"]) for row in rows):
        mine = [row for row in rows if row["side"] == side]
        groups = [row["groups"] for row in mine]
        speed.plot(groups, [float(str(row["keys_per_s"])) / 1e6 for row in mine], marker="o", label=side)
        memory.plot(groups, [row["peak_bytes_per_key"] for row in mine], marker="o", label=side)
    kinds = ", ".join(dict.fromkeys(f"{row['keys']} keys of {row['key_length']} bytes" for row in rows))
    for axes, title, unit in (
        (speed, "Insert and read out", "million keys/s"),
        (memory, "Resident memory at its peak", "bytes a distinct key"),
    ):
        axes.set(title=f"{title}: {kinds}", xlabel="distinct keys", ylabel=unit, xscale="log")
        axes.title.set_fontsize(9)
        axes.grid(alpha=0.3)
        axes.set_ylim(bottom=0)
    memory.set_yscale("log")
    speed.legend()
    figure.savefig(path, dpi=120)
