"""Seeded draws, many at a time. Only uniform numbers are taken from numpy: those stay the same from version
to version.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
DISORDER_SHAPE: Final = 3


class Chance:
    """A seeded source of columns."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.Generator(np.random.PCG64(seed))

    def below(self, limit: int, size: int) -> Ints:
        """``size`` integers of [0, limit), all alike."""
        drawn: Ints = (self._rng.random(size) * limit).astype(np.int64)
        return drawn

    def weighted(self, shares: Sequence[float], size: int) -> Ints:
        """``size`` indexes, each as often as its share says."""
        edges = np.cumsum(np.asarray(shares, dtype=np.float64))
        found = np.searchsorted(edges, self._rng.random(size) * edges[-1], side="right")
        drawn: Ints = np.minimum(found, len(edges) - 1).astype(np.int64)
        return drawn

    def counts(self, mean: float, size: int) -> Ints:
        """``size`` whole numbers from 0, geometric, with that mean."""
        steps = np.log1p(-self._rng.random(size)) / np.log(mean / (1 + mean))
        counts: Ints = np.floor(steps).astype(np.int64)
        return counts

    def happens(self, share: float, size: int) -> npt.NDArray[np.bool_]:
        """``size`` times yes or no."""
        return self._rng.random(size) < share

    def delays_us(self, longest_us: int, size: int) -> Ints:
        """``size`` delays of [0, longest), most of them short: how far a line is behind the time of its
        writing.
        """
        delays: Ints = (self._rng.random(size) ** DISORDER_SHAPE * longest_us).astype(np.int64)
        return delays


def zipf(items: int, exponent: float = 1.0) -> list[float]:
    """Shares by rank: the first is the most popular."""
    return [1 / rank**exponent for rank in range(1, items + 1)]
