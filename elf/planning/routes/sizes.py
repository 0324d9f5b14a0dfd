"""U(I): how many bytes the groups of a batch take after reduction, by the batch's input; and how it is
learned from panes that were merged.

| shape | U(I) | where |
|---|---|---|
| ``line`` | b + a·I | each input line may bring a new group: a word count, a filter |
| ``power`` | b + a·I^c, c < 1 | more and more input falls into known groups |
| ``saturation`` | b + a·(1 − exp(−I/c)) | all groups have been seen: most GROUP BYs of web logs |

``b`` is what a batch takes however little is in it. All shapes are concave and do not decrease, so the rate
U(r·τ)/τ falls with a longer τ: that is what ``intervals`` rests on. A shape with one more parameter has to
earn it (Akaike's criterion), by relative residuals: small batches count as much as large ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, Literal

import msgspec
import numpy as np

from elf.planning.decision import Decision

Shape = Literal["line", "power", "saturation"]
GRID: Final = 96
"""Values of ``c`` that are tried."""
_PERFECT: Final = 1e-6
"""A relative residual below which no shape is better than another."""


class Size(msgspec.Struct, frozen=True):
    """``U``; the letters are those of the module's docstring. Inputs and sizes have units of their own."""

    shape: Shape
    a: float
    b: float
    c: float = 1.0

    def __call__(self, inputs: np.ndarray) -> np.ndarray:
        """Without any input there is no batch: 0."""
        inputs = np.asarray(inputs, float)
        return np.where(inputs > 0, self.b + self.a * _basis(self.shape, inputs, self.c), 0.0)

    def slope(self, inputs: np.ndarray) -> np.ndarray:
        """dU/dI for inputs above 0."""
        inputs = np.asarray(inputs, float)
        if self.shape == "line":
            return np.full_like(inputs, self.a)
        if self.shape == "power":
            rising = self.c * inputs ** (self.c - 1)
        else:
            rising = np.exp(-inputs / self.c) / self.c
        return np.asarray(self.a * rising)

    def rate(self, rates: np.ndarray, often: np.ndarray) -> np.ndarray:
        """R: bytes a second of batches that come ``often`` times a second, at such rates of input."""
        return np.asarray(often * self(np.asarray(rates) / often))

    def tangent(self, rates: np.ndarray, often: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(α, β) with R ≤ α·f + β for every frequency f, and equal at ``often``: R is concave in it."""
        inputs = np.asarray(rates) / often
        alpha = np.where(inputs > 0, self(inputs) - inputs * self.slope(np.maximum(inputs, 1e-300)), 0.0)
        return alpha, np.maximum(self.rate(rates, often) - alpha * often, 0.0)

    @property
    def said(self) -> str:
        fixed = f"{self.b:.4g} + " if self.b else ""
        if self.shape == "line":
            return f"{fixed}{self.a:.4g}·I"
        if self.shape == "power":
            return f"{fixed}{self.a:.4g}·I^{self.c:.3g}"
        return f"{fixed}{self.a:.4g}·(1 − exp(−I/{self.c:.4g}))"


class Fit(Decision, frozen=True):
    """``size`` and its relative residual (root of the mean square); ``others``: of the shapes that were not
    chosen."""

    size: Size
    residual: float
    others: dict[str, float]


def fitted(inputs: Sequence[float], sizes: Sequence[float]) -> Fit:
    """From (input, size) of batches. Raises ``ValueError`` with fewer than two different inputs, which say
    nothing of how U grows; curves need four."""
    x, y = np.asarray(inputs, float), np.asarray(sizes, float)
    if len(x) != len(y) or (x <= 0).any() or (y <= 0).any():
        raise ValueError("each batch has an input and a size above 0")
    different = len(np.unique(x))
    if different < 2:
        raise ValueError(f"batches of {different} different inputs: two at least say how sizes grow")
    shapes: tuple[Shape, ...] = ("line", "power", "saturation") if different >= 4 else ("line",)
    found = {shape: _best(shape, x, y) for shape in shapes}
    scores = {shape: _score(shape, one[1], len(x)) for shape, one in found.items()}
    chosen = min(shapes, key=lambda shape: scores[shape])
    size, residual = found[chosen]
    others: dict[str, float] = {shape: one[1] for shape, one in found.items() if shape != chosen}
    beside = ", ".join(f"{shape} {one:.1%}" for shape, one in others.items())
    reasons = [
        f"U(I) = {size.said} ({chosen}) is off by {residual:.1%} over {len(x)} batches"
        + (f"; {beside}" if beside else f": {different} different inputs show no curve")
    ]
    return Fit(reasons=tuple(reasons), size=size, residual=residual, others=others)


def _basis(shape: Shape, inputs: np.ndarray, c: float) -> np.ndarray:
    if shape == "line":
        return inputs
    return inputs**c if shape == "power" else -np.expm1(-inputs / c)


def _best(shape: Shape, x: np.ndarray, y: np.ndarray) -> tuple[Size, float]:
    """The least squares of relative residuals, a and b not negative, c from a grid."""
    cs = {
        "line": np.ones(1),
        "power": np.linspace(0.05, 0.98, GRID),
        "saturation": np.geomspace(x.min() / 10, x.max() * 10, GRID),
    }[shape]
    fits = [_scaled(_basis(shape, x, float(c)) / y, 1 / y) for c in cs]
    place = min(range(len(cs)), key=lambda one: fits[one][2])
    a, b, residual = fits[place]
    return Size(shape, a, b, float(cs[place])), residual


def _scaled(u: np.ndarray, v: np.ndarray) -> tuple[float, float, float]:
    """a, b ≥ 0 with a·u + b·v nearest to 1, and how far it is."""
    uu, vv, uv = float(u @ u), float(v @ v), float(u @ v)
    tries = [(float(u.sum()) / uu, 0.0), (0.0, float(v.sum()) / vv)]
    det = uu * vv - uv * uv
    if det > 1e-12 * uu * vv:
        su, sv = float(u.sum()), float(v.sum())
        tries.append(((su * vv - sv * uv) / det, (sv * uu - su * uv) / det))
    known = [(a, b, float(np.sqrt(np.mean((a * u + b * v - 1) ** 2)))) for a, b in tries if min(a, b) >= 0]
    return min(known, key=lambda one: one[2])


def _score(shape: Shape, residual: float, samples: int) -> float:
    return samples * 2 * math.log(max(residual, _PERFECT)) + 2 * (2 if shape == "line" else 3)
