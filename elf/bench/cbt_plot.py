"""The figures of ``elf bench cbt`` as a picture: throughput, and memory a key, over distinct keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path


def draw(rows: Sequence[Mapping[str, object]], path: Path) -> None:
    """Write the picture; PNG or SVG by its suffix."""
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
