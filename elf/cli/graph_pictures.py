"""A graph as PNG or SVG: vertices that hang together have one colour and stand together. Equal edges give
equal pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from elf.cli.pictures import GREY, LEVELS, NAMES_DRAWN, RED, Numbers, Reals, bare, draw_lines, figure_of, save

ROUNDS: Final = 150
_COLOURS: Final = (*LEVELS, RED)
_NAME_MAX: Final = 28


def draw_graph(names: Sequence[str], edges: Sequence[tuple[str, str]], title: str, path: Path) -> None:
    """``edges``: between ``names``, from the first to the second."""
    place = {name: number for number, name in enumerate(names)}
    ends = np.array([[place[one], place[other]] for one, other in edges])
    labels = components(len(names), ends)
    where = laid_out(labels, ends)
    figure = figure_of(9, 9.5)
    axes = figure.subplots()
    draw_lines(axes, where[ends], GREY, 0.7, 1)
    degree = np.bincount(ends.ravel(), minlength=len(names))
    numbers = {label: number for number, label in enumerate(np.unique(labels).tolist())}
    colours = [_COLOURS[numbers[label] % len(_COLOURS)] for label in labels.tolist()]
    across, up = where.T
    axes.scatter(
        across,
        up,
        s=20 + 120 * degree / degree.max(),
        c=colours,
        edgecolors="white",
        linewidths=0.5,
        zorder=3,
    )
    if len(names) <= NAMES_DRAWN:
        for name, (x, y) in zip(names, where, strict=True):
            shown = name if len(name) <= _NAME_MAX else f"{name[: _NAME_MAX - 1]}…"
            axes.annotate(
                shown, (x, y), (5, 4), textcoords="offset points", fontsize=7.5, zorder=4, parse_math=False
            )
    axes.set_title(title, fontsize=11, parse_math=False)
    bare(axes, float(np.abs(where).max()) * 1.15)
    save(figure, path)


def components(size: int, ends: Numbers) -> Numbers:
    """The least vertex of each vertex's component."""
    least = np.arange(size)
    while True:
        lower = np.minimum(least[ends[:, 0]], least[ends[:, 1]])
        now = least.copy()
        np.minimum.at(now, ends[:, 0], lower)
        np.minimum.at(now, ends[:, 1], lower)
        now = now[now]
        if (now == least).all():
            return now
        least = now


def laid_out(labels: Numbers, ends: Numbers) -> Reals:
    """Where vertices stand: edges pull, vertices push each other away and are drawn to the middle
    (Fruchterman and Reingold). They begin on a circle, components side by side."""
    size = len(labels)
    order = np.empty(size)
    order[np.lexsort((np.arange(size), labels))] = np.arange(size)
    turns = 2 * np.pi * order / size
    where = np.stack([np.cos(turns), np.sin(turns)], axis=1) * (1 + 0.01 * (order % 7))[:, None]
    want = 1.6 / np.sqrt(size)
    for number in range(ROUNDS):
        apart = where[:, None] - where[None]
        squares = np.maximum((apart**2).sum(axis=2), 1e-6)
        force = (apart * (want**2 / squares)[:, :, None]).sum(axis=1)
        pulls = where[ends[:, 0]] - where[ends[:, 1]]
        pulls = pulls * (np.sqrt((pulls**2).sum(axis=1)) / want)[:, None]
        np.subtract.at(force, ends[:, 0], pulls)
        np.add.at(force, ends[:, 1], pulls)
        force -= 0.6 * where
        length = np.maximum(np.sqrt((force**2).sum(axis=1)), 1e-9)
        step = 0.12 * (1 - number / ROUNDS) + 0.002
        where = where + force / length[:, None] * np.minimum(length, step)[:, None]
    return np.asarray(where - where.mean(axis=0))
