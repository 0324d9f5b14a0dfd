"""The tree of a job as PNG or SVG, with matplotlib (the extra ``bench``), which is imported only to draw.

Colours are Okabe and Ito's, which the colour-blind and a grey printer tell apart; what differs by colour
differs by shape or hatching too.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from elf.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Numbers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]

BLUE: Final = "#0072B2"
ORANGE: Final = "#E69F00"
RED: Final = "#D55E00"
GREY: Final = "#9A9A9A"
LIGHT: Final = "#D0D0D0"
LEVELS: Final = (BLUE, "#009E73", ORANGE, "#CC79A7", "#56B4E9", "#666666")
"""By depth from 1 on; the root is red."""
NAMES_DRAWN: Final = 80
"""A tree with more leaves has no names."""


def check_plot(path: Path) -> None:
    """Raises ``UserError`` if there can be no picture there."""
    if path.suffix not in (".png", ".svg"):
        raise UserError(f"--plot writes .png or .svg, not {path.suffix or path.name}")
    if not path.resolve().parent.is_dir():
        raise UserError(f"no folder {path.resolve().parent}")
    if importlib.util.find_spec("matplotlib") is None:
        raise UserError("--plot needs matplotlib: install elf-stream[bench]")


def draw_tree(
    names: Sequence[str], parents: Numbers, members: Sequence[bool], root: int, title: str, path: Path
) -> None:
    """The tree of a job, its root to the left; a large one round its root, without names.

    ``parents``: node → parent, the root's being itself; others that are their own have no parent yet. Who is
    no member only forwards.
    """
    place = stand(parents)
    if place.leaves <= NAMES_DRAWN:
        column = max(2.2, 0.075 * max(map(len, names)))
        width = max(7.0, 0.1 * len(title), column * (1.5 + int(place.depth.max())))
        figure = figure_of(width, 1.5 + 0.3 * place.leaves)
        axes = figure.subplots()
        _sideways(axes, names, parents, members, root, place)
        figure.suptitle(title, fontsize=11)
    else:
        figure = figure_of(9, 9.5)
        axes = figure.subplots()
        draw_radial(axes, parents)
        axes.set_title(title, fontsize=11)
    save(figure, path)


# -- where nodes stand ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stand:
    """Where the nodes of a forest stand: ``depth`` below its root, and ``across``: leaves at 0, 1, 2 …,
    others in the middle of their children."""

    depth: Numbers
    across: Reals
    leaves: int


def depths(parents: Numbers) -> Numbers:
    """Edges between each node and the root of its tree."""
    at = np.arange(len(parents))
    depth = np.zeros(len(parents), np.int64)
    while (moving := parents[at] != at).any():
        depth += moving
        at = parents[at]
    return depth


def stand(parents: Numbers) -> Stand:
    """Lay a forest out so that no two edges cross; the larger subtrees come first."""
    depth = depths(parents)
    children: list[list[int]] = [[] for _ in parents]
    size = np.ones(len(parents), np.int64)
    for node in np.argsort(-depth, kind="stable").tolist():
        if parents[node] != node:
            size[parents[node]] += size[node]
            children[parents[node]].append(node)
    across = np.zeros(len(parents))
    leaves = 0
    waiting = [(int(root), False) for root in np.flatnonzero(parents == np.arange(len(parents)))[::-1]]
    while waiting:
        node, below_done = waiting.pop()
        if below_done:
            across[node] = (across[children[node][0]] + across[children[node][-1]]) / 2
        elif children[node]:
            children[node].sort(key=lambda child: (-size[child], child))
            waiting.append((node, True))
            waiting.extend((child, False) for child in reversed(children[node]))
        else:
            across[node] = leaves
            leaves += 1
    return Stand(depth, across, leaves)


# -- drawing -------------------------------------------------------------------------------------------------


def figure_of(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def save(figure: Figure, path: Path) -> None:
    """Equal pictures are equal files."""
    from matplotlib import rc_context

    dated = {"Date": None} if path.suffix == ".svg" else {}
    with rc_context({"svg.hashsalt": "elf"}):
        figure.savefig(path, dpi=130, metadata=dated)


def draw_radial(axes: Any, parents: Numbers) -> None:
    """A tree round its root: rings are depths."""
    place = stand(parents)
    x, y = on_circle(place.across / max(place.leaves, 1))
    x, y = x * place.depth, y * place.depth
    child = np.flatnonzero(parents != np.arange(len(parents)))
    ends = np.stack([np.stack([x, y], 1)[parents[child]], np.stack([x, y], 1)[child]], 1)
    many = len(parents) > 300
    draw_lines(axes, ends, LIGHT if many else GREY, 0.4 if many else 0.8, 1)
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
    bare(axes, max(deepest, 1) * 1.06)


def _sideways(
    axes: Any, names: Sequence[str], parents: Numbers, members: Sequence[bool], root: int, place: Stand
) -> None:
    """A tree from left to right, with a name at each node: beside a leaf, above what has children."""
    x, y = place.depth.astype(float), place.across
    child = np.flatnonzero(parents != np.arange(len(parents)))
    above = parents[child]
    elbow = x[above] + 0.5
    corners = [(x[above], y[above]), (elbow, y[above]), (elbow, y[child]), (x[child], y[child])]
    draw_lines(axes, np.stack([np.stack(corner, 1) for corner in corners], 1), GREY, 1.0, 1)
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


def draw_lines(axes: Any, segments: Reals, colour: str, width: float, zorder: int) -> None:
    from matplotlib.collections import LineCollection

    axes.add_collection(LineCollection(list(segments), colors=colour, linewidths=width, zorder=zorder))


def on_circle(turns: Reals) -> tuple[Reals, Reals]:
    """Clockwise from the top."""
    return np.sin(2 * np.pi * turns), np.cos(2 * np.pi * turns)


def _colour(depth: int) -> str:
    return RED if depth == 0 else LEVELS[(depth - 1) % len(LEVELS)]


def _marker(depth: int) -> str:
    return "D" if depth == 0 else "o"


def bare(axes: Any, reach: float) -> None:
    axes.set_aspect("equal")
    axes.set_xlim(-reach, reach)
    axes.set_ylim(-reach, reach)
    axes.axis("off")
