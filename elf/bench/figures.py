"""Figures of several measurements of one thing."""

from __future__ import annotations

import math
from collections.abc import Sequence


def percentiles(samples: Sequence[float]) -> dict[str, float]:
    """``p50``, ``p99`` and ``max``, by nearest rank: the least values that half, 99 of 100, all do not
    exceed."""
    ordered = sorted(samples)

    def rank(share: float) -> float:
        return round(ordered[math.ceil(share * len(ordered)) - 1], 2)

    return {"p50": rank(0.5), "p99": rank(0.99), "max": rank(1.0)}
