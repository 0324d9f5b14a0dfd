"""Linear programmes, by SciPy's HiGHS: loaded by who plans, and nobody else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike

from elf.errors import UserError

NEEDED: Final = "routes are planned with SciPy, which is not here: pip install 'elf-stream[routes]'"
Entries = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Rows, columns and values of a sparse matrix."""


class Rows:
    """Constraints in the making: Σ coefficient · variable ≤ (or =) limit."""

    def __init__(self, limits: Sequence[float] = ()) -> None:
        self.limits = list(limits)
        self._entries: list[Entries] = []

    def row(self, limit: float) -> int:
        """Its number."""
        self.limits.append(limit)
        return len(self.limits) - 1

    def add(self, rows: ArrayLike, columns: ArrayLike, values: ArrayLike) -> None:
        """Numbers, or arrays of one length."""
        some = np.broadcast_arrays(np.atleast_1d(rows), np.atleast_1d(columns), np.atleast_1d(values))
        self._entries.append((some[0], some[1], some[2]))

    def matrix(self, columns: int) -> Any:
        from scipy.sparse import csr_matrix

        if not self._entries:
            return csr_matrix((len(self.limits), columns))
        rows, places, values = (np.concatenate(parts) for parts in zip(*self._entries, strict=True))
        return csr_matrix((values, (rows, places)), (len(self.limits), columns))


class Programme:
    """``worth`` of each variable, within ``bounds``; ``upper``: rows that are at most their limits,
    ``equal``: that are equal to them."""

    def __init__(self, worth: np.ndarray, bounds: np.ndarray, upper: Rows, equal: Rows) -> None:
        self.worth, self.bounds, self.upper, self.equal = worth, bounds, upper, equal


class Solved:
    """Values of the variables; what one more of each limit is worth."""

    def __init__(self, values: np.ndarray, upper: np.ndarray, equal: np.ndarray) -> None:
        self.values, self.upper, self.equal = values, upper, equal


def solve(of: Programme) -> Solved:
    """The variables that are worth most. Raises ``UserError`` without SciPy, ``ValueError`` where none keep
    to the rows."""
    try:
        from scipy.optimize import linprog
    except ImportError:
        raise UserError(NEEDED) from None
    count = len(of.worth)
    equal = {"A_eq": of.equal.matrix(count), "b_eq": of.equal.limits} if of.equal.limits else {}
    found = linprog(
        -of.worth,
        A_ub=of.upper.matrix(count),
        b_ub=of.upper.limits,
        bounds=of.bounds,
        method="highs",
        **equal,
    )
    if found.status != 0:
        raise ValueError(f"the programme has no solution: {found.message}")
    return Solved(found.x, np.maximum(-found.ineqlin.marginals, 0.0), -found.eqlin.marginals)
