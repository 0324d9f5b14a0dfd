"""A simulated overlay as PNG or SVG."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np

from elf.cli.pictures import (
    BLUE,
    GREY,
    ORANGE,
    RED,
    bare,
    draw_lines,
    draw_radial,
    figure_of,
    on_circle,
    save,
)
from lab.pictures.scene import Scene, loads, nearest_to_root

NODES_DRAWN: Final = 2_000
"""Of a larger tree those nearest to its root; of a larger ring only the nodes that root trees."""


def draw_overlay(scene: Scene, title: str, path: Path) -> None:
    """Ring, one tree and balance, side by side."""
    figure = figure_of(16, 5.6)
    ring, tree, balance = figure.subplots(1, 3, width_ratios=(1, 1, 1.1))
    figure.suptitle(title, fontsize=13)
    _ring(ring, scene)
    kept, parents = nearest_to_root(scene.parents, NODES_DRAWN)
    draw_radial(tree, parents)
    count = f"{len(kept):,} nodes nearest to its root" if len(kept) < len(scene.parents) else "all nodes"
    tree.set_title(f"One tree: {count}", fontsize=10)
    _balance(balance, scene)
    save(figure, path)


def _ring(axes: Any, scene: Scene) -> None:
    """Nodes on a circle, and at each a ray as long as it roots trees."""
    count = loads(len(scene.places), scene.roots)
    angle = np.linspace(0, 2 * np.pi, 361)
    axes.plot(np.sin(angle), np.cos(angle), color=GREY, linewidth=0.8, zorder=1)
    shown = np.arange(len(scene.places)) if len(scene.places) <= NODES_DRAWN else np.flatnonzero(count)
    x, y = on_circle(scene.places[shown])
    most = max(int(count.max(initial=0)), 1)
    reach = 1 + 0.3 * count[shown] / most
    segments = np.stack([np.stack([x, y], 1), np.stack([x * reach, y * reach], 1)], 1)
    draw_lines(axes, segments, BLUE, 1.0, 2)
    axes.scatter(x, y, s=4 if len(shown) > 300 else 14, color="black", linewidths=0, zorder=3)
    root_x, root_y = on_circle(scene.places[scene.root : scene.root + 1])
    axes.scatter(root_x, root_y, s=70, color=RED, marker="D", edgecolors="white", zorder=4)
    text = f"{len(scene.places):,} nodes\n{len(scene.roots):,} trees"
    axes.text(0, 0, text, ha="center", va="center", fontsize=12)
    axes.text(0, -0.24, "◆ root of the tree\nbeside", ha="center", va="center", fontsize=9, color=RED)
    part = "" if len(shown) == len(scene.places) else "\n(nodes without a tree are not drawn)"
    axes.set_title(f"The ring, and at each node the trees that it roots: at most {most}{part}", fontsize=10)
    bare(axes, 1.35)


def _balance(axes: Any, scene: Scene) -> None:
    """Share of agents by trees rooted, on a log scale so that the tail shows."""
    trees, bound = scene.bound
    first, chosen = scene.load_shares()
    at = np.arange(len(first))
    nodes = len(scene.places)
    for shares, shift, colour, hatch, label in (
        (first, -0.2, ORANGE, "//", "one key a tree"),
        (chosen, 0.2, BLUE, "", "the less loaded of two"),
    ):
        below = 100 * shares[:bound].sum()
        axes.bar(
            at + shift, 100 * shares, 0.4, color=colour, hatch=hatch, edgecolor="white",
            label=f"{label}: {below:.2f} % root fewer than {bound}",
        )  # fmt: skip
    axes.axvline(bound - 0.5, color="black", linestyle="--", linewidth=1)
    text = f"{bound} and more →"
    axes.text(bound - 0.4, 0.97, text, transform=axes.get_xaxis_transform(), va="top", fontsize=9)
    loads_shown = max(len(at), bound + 2)
    axes.set_yscale("log")
    axes.set_ylim(100 / nodes / 2, 250)
    axes.set_xlim(-0.6, loads_shown - 0.4)
    axes.set_xticks(np.arange(0, loads_shown, max(1, len(at) // 12)))
    axes.yaxis.set_major_formatter(lambda share, _: f"{share:g}")
    axes.set_xlabel("trees that an agent roots")
    axes.set_ylabel("% of agents")
    axes.set_title(f"Balance of {trees:,} trees", fontsize=10)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), fontsize=9, frameon=False)
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
