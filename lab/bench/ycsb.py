"""Whom a load asks for, as YCSB draws it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

KEYS: Final = ("uniform", "zipf", "latest")
"""All alike, few often, or those written last."""
_APART: Final = 7_919
"""Those that are asked for often lie anywhere."""


def drawn(kind: str, rng: np.random.Generator, alpha: float, users: int, recent: Sequence[int]) -> int:
    """One of the users 0, 1, …. ``alpha``: the exponent of what is skewed; ``recent``: those written last, in
    their order."""
    if kind == "uniform":
        return int(rng.integers(users))
    rank = int(rng.zipf(alpha)) - 1
    return recent[-1 - rank % len(recent)] if kind == "latest" else rank * _APART % users
