"""Which operators of a job belong in one component: Enorm's Algorithm 1 (4.4.1).

Operators that are divided by a common attribute may be *fused*: an instance of the component then has all
that each of its operators needs of its part of the data, and nothing goes between them over the network. An
operator is in exactly one component, and all operators of a component have an attribute in common (of
several, one is enough to divide it by). It is greedy: the pair with the highest score is fused, until none is
left.

The score is the rate of tuples between two operators (``comm``), which needs a trial run; or the number of
attributes that the two have in common (``attributes``), so that more can be fused afterwards. Both are of the
operators, as in the algorithm's line 16, while whether they can be fused is a matter of their components.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec
import numpy as np

from elf.planning.decision import Decision

Score = Literal["comm", "attributes"]
SCORES: Final[tuple[Score, Score]] = ("comm", "attributes")
Rates = Mapping[tuple[int, int], float]
"""Tuples a second from one operator to another, by their places."""


class Fusion(Decision, frozen=True):
    """``components``: the places of their operators, and ``between``: the share of tuples that go from one to
    another, of all that go between operators."""

    components: tuple[tuple[int, ...], ...]
    between: float


class Graph(msgspec.Struct, frozen=True):
    """The operators by what they are divided by, and the rates between them. Raises ``ValueError`` where a
    rate is of no operator, or is negative."""

    attributes: Sequence[frozenset[str]]
    rates: Rates

    def __post_init__(self) -> None:
        known = range(len(self.attributes))
        for (origin, target), rate in self.rates.items():
            if origin not in known or target not in known or origin == target or rate < 0:
                raise ValueError(f"no rate between operators: {origin} to {target}, {rate:g}")


def fuse(graph: Graph, score: Score = "comm") -> Fusion:
    """See the module's docstring."""
    work = Fusing(graph)
    while (edge := work.best(score)) is not None:
        work.fuse(*work.ends(edge))
    return work.found(f"greedily, by {'tuples a second' if score == 'comm' else 'common attributes'}")


class Fusing:
    """Components while they grow; ``fuse`` is what every heuristic does."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        names = sorted({name for one in graph.attributes for name in one})
        self._divided = np.array([[name in one for name in names] for one in graph.attributes], dtype=bool)
        self._component = np.arange(len(graph.attributes))
        edges = sorted(graph.rates)
        self._ends = np.array(edges, dtype=np.int64).reshape(-1, 2)
        self._rates = np.array([graph.rates[edge] for edge in edges], dtype=float)
        self._alike = (self._divided[self._ends[:, 0]] & self._divided[self._ends[:, 1]]).sum(axis=1)
        self._fused = 0

    def best(self, score: Score) -> int | None:
        """The number of the edge with the highest score of those that can be fused, and have one."""
        scores = np.where(self._common() > 0, self._rates if score == "comm" else self._alike, 0.0)
        if not len(scores) or scores.max() <= 0:
            return None
        return int(scores.argmax())

    def downstream(self, operator: int) -> int | None:
        """The edge out of an operator's component with the most attributes in common."""
        mine = self._component[self._ends[:, 0]] == self._component[operator]
        common = np.where(mine, self._common(), 0)
        return int(common.argmax()) if len(common) and common.max() > 0 else None

    def ends(self, edge: int) -> tuple[int, int]:
        origin, target = self._ends[edge]
        return int(origin), int(target)

    def fuse(self, one: int, other: int) -> None:
        """The components of two operators become one, which has the name of its first operator."""
        mine, theirs = self._component[one], self._component[other]
        kept = min(mine, theirs)
        self._divided[kept] = self._divided[mine] & self._divided[theirs]
        self._component[(self._component == mine) | (self._component == theirs)] = kept
        self._fused += 1

    def found(self, how: str) -> Fusion:
        """As it is now."""
        members: dict[int, list[int]] = {}
        for operator, component in enumerate(self._component):
            members.setdefault(int(component), []).append(operator)
        total = float(self._rates.sum())
        apart = self._component[self._ends[:, 0]] != self._component[self._ends[:, 1]]
        between = float(self._rates[apart].sum()) / total if total else 0.0
        reasons = (
            f"{self._fused} pairs were fused, {how}",
            f"{between:.1%} of all tuples between operators go from component to component",
        )
        components = tuple(tuple(one) for one in members.values())
        return Fusion(reasons=reasons, components=components, between=between)

    def _common(self) -> np.ndarray:
        """By edge: the number of attributes that both components have; 0 within a component."""
        ends = self._component[self._ends]
        common = (self._divided[ends[:, 0]] & self._divided[ends[:, 1]]).sum(axis=1)
        return np.where(ends[:, 0] == ends[:, 1], 0, common)
