"""From rounded trees to better ones: one job at a time takes another candidate, or two jobs do, where the
first alone would overload a link that the second can leave. Where there are few combinations each is
looked at.

There are thousands of such changes, so they are judged without a programme, by *filling*: from the
longest intervals that are allowed all jobs are sent more often, each by the same part of that, until a
link is full; jobs over it stay, the others go on. What that is worth decides. No change overloads a link
more than before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Final

import numpy as np

from elf.planning.routes.intervals import SLACK
from elf.planning.routes.model import Problem, Tree

JUDGED: Final = 1_500
"""Changes that are filled, ``WORK`` allowing."""
WORK: Final = 8_000_000
"""Jobs times links, of all that are filled."""
BEST: Final = 12
PAIRED: Final = 2
"""Partners of a change that are filled, those that leave links emptiest."""
_BETTER: Final = 1e-6
_NONE: Final = 1e-15


class Options:
    """A job's candidates. By row: what it takes of all links, as parts of what they carry, at its lowest
    frequency, and for each batch a second more."""

    def __init__(self, trees: Sequence[Tree], at_low: np.ndarray, more: np.ndarray) -> None:
        self.trees, self.at_low, self.more = list(trees), at_low, more


class Exchange:
    """See the module's docstring. ``low`` and ``high``: frequencies by job."""

    def __init__(
        self, problem: Problem, options: Sequence[Options], low: np.ndarray, high: np.ndarray
    ) -> None:
        self._problem, self._options, self._low, self._high = problem, options, low, high
        self._left = min(JUDGED, WORK // max(1, len(low) * options[0].more.shape[1])) if options else 0

    def improved(self, trees: Sequence[Tree], order: Sequence[int]) -> list[Tree]:
        """``order``: of the jobs, those first that could gain most."""
        self._at = [one.trees.index(tree) for one, tree in zip(self._options, trees, strict=True)]
        self._base = self._sum([one.at_low for one in self._options])
        self._more = np.stack([one.more[at] for one, at in zip(self._options, self._at, strict=True)])
        self._over, self._value = float(_over(self._base)), self._filled(self._base, self._more)
        going = True
        while going and self._left:
            moved = [self._single(place) for place in order]
            going = any(moved) or any(self._double(place) for place in order)
        return [one.trees[at] for one, at in zip(self._options, self._at, strict=True)]

    def every(self) -> list[list[Tree]]:
        """The ``BEST`` of all combinations; empty where there are more than would be judged."""
        if math.prod(len(one.trees) for one in self._options) > JUDGED:
            return []
        found = []
        for at in product(*(range(len(one.trees)) for one in self._options)):
            pairs = list(zip(self._options, at, strict=True))
            base = np.asarray(np.sum([one.at_low[number] for one, number in pairs], axis=0))
            more = np.stack([one.more[number] for one, number in pairs])
            found.append((float(_over(base)), -self._filled(base, more), at))
        best = sorted(found)[:BEST]
        return [[one.trees[number] for one, number in zip(self._options, at, strict=True)] for *_, at in best]

    def _sum(self, rows: Sequence[np.ndarray]) -> np.ndarray:
        return np.asarray(np.sum([one[at] for one, at in zip(rows, self._at, strict=True)], axis=0))

    def _single(self, place: int) -> bool:
        options = self._options[place]
        bases = self._base - options.at_low[self._at[place]] + options.at_low
        for number in np.flatnonzero(_over(bases) <= self._over):
            if number != self._at[place] and self._tried({place: int(number)}, bases[number]):
                return True
        return False

    def _double(self, place: int) -> bool:
        options = self._options[place]
        bases = self._base - options.at_low[self._at[place]] + options.at_low
        for number in np.flatnonzero(_over(bases) > self._over):
            full = bases[number] > 1 + SLACK
            for other, its in enumerate(self._options):
                if other == place or not its.at_low[self._at[other]][full].any():
                    continue
                both = bases[number] - its.at_low[self._at[other]] + its.at_low
                fits = np.flatnonzero(_over(both) <= self._over)
                for second in fits[np.argsort(both[fits].max(axis=1), kind="stable")][:PAIRED]:
                    if self._tried({place: int(number), other: int(second)}, both[second]):
                        return True
        return False

    def _tried(self, change: dict[int, int], base: np.ndarray) -> bool:
        """Kept if it is better."""
        if not self._left:
            return False
        self._left -= 1
        more = self._more.copy()
        for place, number in change.items():
            more[place] = self._options[place].more[number]
        over, value = float(_over(base)), self._filled(base, more)
        if over > self._over - _BETTER and value <= self._value + _BETTER * max(1.0, abs(self._value)):
            return False
        for place, number in change.items():
            self._at[place] = number
        self._base, self._more, self._over, self._value = base, more, over, value
        return True

    def _filled(self, base: np.ndarray, more: np.ndarray) -> float:
        """What jobs are worth by filling. A job that is sent as often as it may be is full by itself."""
        jobs = len(more)
        grows = np.hstack([more * self._low[:, None], np.eye(jobs)])
        over = (grows > 0).astype(float)
        room = np.concatenate([np.maximum(1 - base, 0.0), self._high / self._low - 1])
        level, going, at = np.zeros(jobs), np.ones(jobs), 0.0
        while going.any():
            each = going @ grows
            steps = room / np.maximum(each, _NONE)
            step = float(steps.min())
            at += step
            full = steps <= step * (1 + _BETTER) + _NONE
            ends = (over @ full > 0) & (going > 0)
            level[ends], going[ends] = at, 0.0
            room -= step * each
            room[full] = np.inf
        return self._problem.value((self._low * (1 + level)).tolist())


def _over(bases: np.ndarray) -> np.ndarray:
    """By how much links are overloaded."""
    return np.asarray(np.where(bases > 1 + SLACK, bases - 1, 0.0).sum(axis=-1))
