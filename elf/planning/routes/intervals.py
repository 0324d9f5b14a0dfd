"""How often each job sends a batch when its tree is given: the paper's problem (6).

In the frequency f = 1/τ a line's rate is a·r + b·f, so this is one linear programme. A curve's rate is
concave in f, and a tangent of it never too low: with links charged by tangents at the last answer, each
answer keeps to what links carry. What jobs are worth is concave too, and is bounded by tangents in many
places.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from elf.planning.routes.model import Pair, Problem, Tree
from elf.planning.routes.solving import Programme, Rows, solve

GRID: Final = 12
"""Tangents of a job's worth between its longest and its shortest interval."""
GAIN: Final = 1e-4
"""Of the objective: as near to the best an answer is."""
SLACK: Final = 1e-6
"""Of a link's rate: what a solver's last digits may take."""
OFTEN: Final = 1e-4
"""What a job that is sent as often as it may be is worth beside the objective: where more bytes mean nothing,
sooner is still better."""


class Intervals(msgspec.Struct, frozen=True):
    """``often``: batches a second, by job. ``value``: the objective. ``overloaded``: links that cannot carry
    even the longest intervals; jobs over them have these, and are ``held``. ``prices``: what one more byte a
    second on a link would be worth."""

    often: tuple[float, ...]
    value: float
    overloaded: tuple[Pair, ...]
    held: frozenset[int]
    prices: dict[Pair, float]


def intervals(problem: Problem, trees: Sequence[Tree], low: Sequence[float], rounds: int = 8) -> Intervals:
    """The frequencies with the greatest value, none below ``low``; nearer to it with more ``rounds``."""
    if not problem.jobs:
        return Intervals((), 0.0, (), frozenset(), {})
    return _Programme(problem, trees, low).solved(rounds)


class _Programme:
    def __init__(self, problem: Problem, trees: Sequence[Tree], low: Sequence[float]) -> None:
        self._problem, self._low = problem, np.array(low, float)
        self._uses = [job.inputs(tree) for job, tree in zip(problem.jobs, trees, strict=True)]
        loads = problem.loads(trees, low)
        self._over = tuple(
            sorted(pair for pair, load in loads.items() if load > problem.capacity[pair] * (1 + SLACK))
        )
        over = set(self._over)
        self._held = frozenset(place for place, uses in enumerate(self._uses) if over & uses.keys())
        self._links = sorted(loads.keys() - over)
        self._high = np.array(
            [
                one if place in self._held else max(job.high, one)
                for place, (job, one) in enumerate(zip(problem.jobs, self._low, strict=True))
            ]
        )
        self._tangents = [
            (place, *line)
            for place, job in enumerate(problem.jobs)
            for line in job.worth_tangents(np.geomspace(self._low[place], self._high[place], GRID).tolist())
        ]

    def solved(self, rounds: int) -> Intervals:
        often, prices = self._low, dict[Pair, float]()
        value = self._problem.value(often.tolist())
        for _ in range(rounds):
            found, worth, bound = self._round(often)
            better = self._problem.value(found.tolist())
            gained = better - value
            if not prices or gained > 0:
                often, prices, value = found, worth, better
            if bound - value <= GAIN * max(1.0, abs(value)) and gained <= GAIN * max(1.0, abs(value)):
                break
            for place, job in enumerate(self._problem.jobs):
                self._tangents += [(place, *line) for line in job.worth_tangents([float(found[place])])]
        return Intervals(tuple(often.tolist()), value, self._over, self._held, prices)

    def _round(self, at: np.ndarray) -> tuple[np.ndarray, dict[Pair, float], float]:
        """With curves charged by tangents at the frequencies ``at``; and what nothing is worth more than,
        charged so."""
        problem, jobs = self._problem, len(self._problem.jobs)
        rows = Rows()
        of_link = {pair: rows.row(float(problem.capacity[pair]) / problem.scale) for pair in self._links}
        for place, (job, uses) in enumerate(zip(problem.jobs, self._uses, strict=True)):
            if not uses:
                continue
            alphas, betas = job.size.tangent(np.array(list(uses.values())), at[place])
            for pair, alpha, beta in zip(uses, alphas / problem.scale, betas / problem.scale, strict=True):
                if (row := of_link.get(pair)) is not None:
                    rows.add(row, place, alpha)
                    rows.limits[row] -= float(beta)
        for row in of_link.values():  # a tangent's last digits
            rows.limits[row] += SLACK * abs(rows.limits[row]) + 1e-12
        places, slopes, rests = (np.array(one) for one in zip(*self._tangents, strict=True))
        first = len(rows.limits)
        rows.limits += (rests / problem.unit).tolist()
        numbers = np.arange(first, len(rows.limits))
        rows.add(numbers, jobs + places, 1.0)
        rows.add(numbers, places, -slopes / problem.unit)
        worth = np.concatenate([OFTEN / np.array([job.high for job in problem.jobs]), np.ones(jobs)])
        bounds = np.full((2 * jobs, 2), (-np.inf, np.inf))
        bounds[:jobs, 0], bounds[:jobs, 1] = self._low, self._high
        found = solve(Programme(worth, bounds, rows, Rows()))
        prices = {pair: float(found.upper[row]) / problem.scale for pair, row in of_link.items()}
        often = np.clip(found.values[:jobs], self._low, self._high)
        return often, prices, float(found.values[jobs:].sum())
