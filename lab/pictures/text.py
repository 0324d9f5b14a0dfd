"""The same pictures for a terminal: lines of text, no colours, no wider than 72 columns."""

from __future__ import annotations

from typing import Final

import numpy as np

from elf.cli.pictures import Reals, depths
from lab.pictures.scene import Scene, fanouts, loads

_BAR: Final = 32
_EIGHTHS: Final = " ▏▎▍▌▋▊▉"
_ROWS, _COLUMNS = 15, 37
"""The ring's box; a character is about twice as high as it is wide."""
_SHADES: Final = "∙░▒▓█"
"""Nodes that root nothing, and four quarters of the most trees that a place has."""


def overlay_lines(scene: Scene) -> list[str]:
    """Ring, tree and balance."""
    return [*ring_lines(scene), "", *tree_lines(scene), "", *balance_lines(scene)]


def ring_lines(scene: Scene) -> list[str]:
    """The ring clockwise from the top: where nodes are, and where the trees have their roots."""
    field = [[" "] * _COLUMNS for _ in range(_ROWS)]
    cells = _cells(scene.places)
    nodes = np.bincount(cells, minlength=_ROWS * _COLUMNS)
    trees = np.bincount(cells, loads(len(scene.places), scene.roots), _ROWS * _COLUMNS)
    most = max(float(trees.max()), 1.0)
    for cell in np.flatnonzero(nodes).tolist():
        shade = int(np.ceil(trees[cell] / most * (len(_SHADES) - 1)))
        field[cell // _COLUMNS][cell % _COLUMNS] = _SHADES[shade]
    root = int(cells[scene.root])
    field[root // _COLUMNS][root % _COLUMNS] = "◆"
    middle = [f"{len(scene.places):,} nodes", f"{len(scene.roots):,} trees"]
    for row, words in enumerate(middle, _ROWS // 2):
        start = (_COLUMNS - len(words)) // 2
        field[row][start : start + len(words)] = words
    key = f"∙ nodes; ░ to █ the trees that they root, up to {most:.0f}; ◆ root of the tree below"
    return ["ring", *("    " + "".join(row).rstrip() for row in field), key]


def tree_lines(scene: Scene) -> list[str]:
    """One tree level by level: how many nodes, and how many children they have."""
    depth, below = depths(scene.parents), fanouts(scene.parents)
    counts = np.bincount(depth)
    width = len(f"{counts.max():,}")
    lines = ["tree"]
    for level, count in enumerate(counts.tolist()):
        most = int(below[depth == level].max())
        children = f"  at most {most} {'child' if most == 1 else 'children'} each" if most else ""
        name = "◆ root   " if level == 0 else f"  depth {level}"
        lines.append(f"{name} {count:{width},} {bar(count / int(counts.max())):{_BAR}}{children}".rstrip())
    return lines


def balance_lines(scene: Scene) -> list[str]:
    """Share of agents by trees rooted: one key a tree, beside the better of two."""
    trees, bound = scene.bound
    first, chosen = scene.load_shares()
    most = max(first.max(), chosen.max())
    half = _BAR // 2 + 4
    lines = [
        f"balance of {trees:,} trees: share of agents by the trees that they root",
        f"    {'one key a tree':{half + 8}}  the less loaded of two",
    ]
    for load, (one, two) in enumerate(zip(first.tolist(), chosen.tolist(), strict=True)):
        if load == bound:
            lines.append(f"    {'┄' * (half + 8)}  {'┄' * (half + 8)} {bound} and more")
        row = "  ".join(f"{_percent(share):>7} {bar(share / most, half):{half}}" for share in (one, two))
        lines.append(f"{load:3} {row}".rstrip())
    below = (_percent(float(shares[:bound].sum())) for shares in (first, chosen))
    lines.append(f"fewer than {bound}: " + " with one key, ".join(below) + " with two")
    return lines


def bar(share: float, width: int = _BAR) -> str:
    """A bar of that share (0 … 1) of the width, in eighths; a little is never nothing."""
    eighths = max(round(share * width * 8), 1 if share > 0 else 0)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %" if share else "–"


def _cells(places: Reals) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The place in the box of each node: row * columns + column."""
    angle = 2 * np.pi * places
    rows = np.rint((1 - np.cos(angle)) / 2 * (_ROWS - 1)).astype(np.int64)
    columns = np.rint((1 + np.sin(angle)) / 2 * (_COLUMNS - 1)).astype(np.int64)
    return rows * _COLUMNS + columns
