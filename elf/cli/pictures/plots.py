"""Pictures as PNG or SVG: a simulated overlay, and the tree of a job.

Colours are Okabe and Ito's, which the colour-blind and a grey printer tell apart; what differs by colour
differs by shape or hatching too.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from elf.cli.pictures.layout import Numbers, Reals, Scene, Stand, loads, nearest_to_root, stand

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE: Final = "#0072B2"
ORANGE: Final = "#E69F00"
RED: Final = "#D55E00"
GREY: Final = "#9A9A9A"
LIGHT: Final = "#D0D0D0"
LEVELS: Final = (BLUE, "#009E73", ORANGE, "#CC79A7", "#56B4E9", "#666666")
"""By depth from 1 on; the root is red."""
NODES_DRAWN: Final = 2_000
"""Of a larger tree those nearest to its root; of a larger ring only the nodes that root trees."""
NAMES_DRAWN: Final = 80
"""A tree with more leaves has no names."""


def draw_overlay(scene: Scene, title: str, path: Path) -> None:
    """Ring, one tree and balance, side by side."""
    figure = _figure(16, 5.6)
    ring, tree, balance = figure.subplots(1, 3, width_ratios=(1, 1, 1.1))
    figure.suptitle(title, fontsize=13)
    _ring(ring, scene)
    kept, parents = nearest_to_root(scene.parents, NODES_DRAWN)
    _radial(tree, parents)
    count = f"{len(kept):,} nodes nearest to its root" if len(kept) < len(scene.parents) else "all nodes"
    tree.set_title(f"One tree: {count}", fontsize=10)
    _balance(balance, scene)
    _save(figure, path)


def draw_tree(
    names: Sequence[str], parents: Numbers, members: Sequence[bool], root: int, title: str, path: Path
) -> None:
    """The tree of a job, its root to the left; a large one round its root, without names.

    ``parents`` as in ``Scene``; others than the root that are their own have no parent yet. Who is no member
    only forwards.
    """
    place = stand(parents)
    if place.leaves <= NAMES_DRAWN:
        column = max(2.2, 0.075 * max(map(len, names)))
        width = max(7.0, 0.1 * len(title), column * (1.5 + int(place.depth.max())))
        figure = _figure(width, 1.5 + 0.3 * place.leaves)
        axes = figure.subplots()
        _sideways(axes, names, parents, members, root, place)
        figure.suptitle(title, fontsize=11)
    else:
        figure = _figure(9, 9.5)
        axes = figure.subplots()
        _radial(axes, parents)
        axes.set_title(title, fontsize=11)
    _save(figure, path)


def _figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _save(figure: Figure, path: Path) -> None:
    """Equal pictures are equal files."""
    from matplotlib import rc_context

    dated = {"Date": None} if path.suffix == ".svg" else {}
    with rc_context({"svg.hashsalt": "elf"}):
        figure.savefig(path, dpi=130, metadata=dated)


def _ring(axes: Any, scene: Scene) -> None:
    """Nodes on a circle, and at each a ray as long as it roots trees."""
    count = loads(len(scene.places), scene.roots)
    angle = np.linspace(0, 2 * np.pi, 361)
    axes.plot(np.sin(angle), np.cos(angle), color=GREY, linewidth=0.8, zorder=1)
    shown = np.arange(len(scene.places)) if len(scene.places) <= NODES_DRAWN else np.flatnonzero(count)
    x, y = _on_circle(scene.places[shown])
    most = max(int(count.max(initial=0)), 1)
    reach = 1 + 0.3 * count[shown] / most
    segments = np.stack([np.stack([x, y], 1), np.stack([x * reach, y * reach], 1)], 1)
    _lines(axes, segments, BLUE, 1.0, 2)
    axes.scatter(x, y, s=4 if len(shown) > 300 else 14, color="black", linewidths=0, zorder=3)
    root_x, root_y = _on_circle(scene.places[scene.root : scene.root + 1])
    axes.scatter(root_x, root_y, s=70, color=RED, marker="D", edgecolors="white", zorder=4)
    text = f"{len(scene.places):,} nodes\n{len(scene.roots):,} trees"
    axes.text(0, 0, text, ha="center", va="center", fontsize=12)
    axes.text(0, -0.24, "◆ root of the tree\nbeside", ha="center", va="center", fontsize=9, color=RED)
    part = "" if len(shown) == len(scene.places) else "\n(nodes without a tree are not drawn)"
    axes.set_title(f"The ring, and at each node the trees that it roots: at most {most}{part}", fontsize=10)
    _bare(axes, 1.35)


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


def _radial(axes: Any, parents: Numbers) -> None:
    """A tree round its root: rings are depths."""
    place = stand(parents)
    x, y = _on_circle(place.across / max(place.leaves, 1))
    x, y = x * place.depth, y * place.depth
    child = np.flatnonzero(parents != np.arange(len(parents)))
    ends = np.stack([np.stack([x, y], 1)[parents[child]], np.stack([x, y], 1)[child]], 1)
    many = len(parents) > 300
    _lines(axes, ends, LIGHT if many else GREY, 0.4 if many else 0.8, 1)
    deepest = int(place.depth.max())
    for depth in range(deepest + 1):
        here = np.flatnonzero(place.depth == depth)
        size = 90 if depth == 0 else max(5.0, min(40.0, 2_000 / len(here)))
        axes.scatter(
            x[here], y[here], s=size, color=_colour(depth), marker=_marker(depth),
            edgecolors="white", linewidths=0.3, zorder=3 + deepest - depth,
        )  # fmt: skip
    _legend(
        axes,
        [
            (f"depth {depth}: {count:,}" if depth else "root", _colour(depth), _marker(depth), True)
            for depth, count in enumerate(np.bincount(place.depth).tolist())
        ],
    )
    _bare(axes, max(deepest, 1) * 1.06)


def _sideways(
    axes: Any, names: Sequence[str], parents: Numbers, members: Sequence[bool], root: int, place: Stand
) -> None:
    """A tree from left to right, with a name at each node: beside a leaf, above what has children."""
    x, y = place.depth.astype(float), place.across
    child = np.flatnonzero(parents != np.arange(len(parents)))
    above = parents[child]
    elbow = x[above] + 0.5
    corners = [(x[above], y[above]), (elbow, y[above]), (elbow, y[child]), (x[child], y[child])]
    _lines(axes, np.stack([np.stack(corner, 1) for corner in corners], 1), GREY, 1.0, 1)
    inner = set(above.tolist())
    for node, name in enumerate(names):
        colour = GREY if parents[node] == node else _colour(int(place.depth[node]))
        marker, size, filled = ("s", 45, members[node]) if parents[node] == node else ("o", 40, members[node])
        if node == root:
            colour, marker, size, filled = RED, "D", 70, True
        axes.scatter(
            x[node], y[node], s=size, marker=marker, zorder=3,
            facecolors=colour if filled else "white", edgecolors=colour,
        )  # fmt: skip
        offset, sides = ((0, 7), ("center", "bottom")) if node in inner else ((8, 0), ("left", "center"))
        axes.annotate(
            name, (x[node], y[node]), offset, textcoords="offset points", ha=sides[0], va=sides[1],
            fontsize=9, zorder=4, bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.85},
        )  # fmt: skip
    axes.set_xlim(-0.5, x.max() + 1)
    axes.set_ylim(place.leaves - 0.3, -0.9)
    axes.axis("off")
    kinds = [("master", RED, "D", True), ("member", BLUE, "o", True), ("only forwards", BLUE, "o", False)]
    if len(above) < len(names) - 1:
        kinds.append(("no parent yet", GREY, "s", True))
    _legend(axes, kinds)


def _legend(axes: Any, kinds: Sequence[tuple[str, str, str, bool]]) -> None:
    """(label, colour, marker, filled) of each kind of node, below the picture."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], linestyle="", marker=marker, color=colour, label=label,
               markerfacecolor=colour if filled else "white")
        for label, colour, marker, filled in kinds
    ]  # fmt: skip
    axes.legend(
        handles=handles, loc="upper center", bbox_to_anchor=(0.5, 0.0), fontsize=9, ncols=min(len(kinds), 4),
        frameon=False, handletextpad=0.1, columnspacing=1.2,
    )  # fmt: skip


def _lines(axes: Any, segments: Reals, colour: str, width: float, zorder: int) -> None:
    from matplotlib.collections import LineCollection

    axes.add_collection(LineCollection(list(segments), colors=colour, linewidths=width, zorder=zorder))


def _on_circle(turns: Reals) -> tuple[Reals, Reals]:
    """Clockwise from the top."""
    return np.sin(2 * np.pi * turns), np.cos(2 * np.pi * turns)


def _colour(depth: int) -> str:
    return RED if depth == 0 else LEVELS[(depth - 1) % len(LEVELS)]


def _marker(depth: int) -> str:
    return "D" if depth == 0 else "o"


def _bare(axes: Any, reach: float) -> None:
    axes.set_aspect("equal")
    axes.set_xlim(-reach, reach)
    axes.set_ylim(-reach, reach)
    axes.axis("off")
