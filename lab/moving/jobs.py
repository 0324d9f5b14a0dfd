"""Random jobs as in section 7 of Enorm, and the baseline of its figures 14 and 15.

The paper says how the number of attributes of an operator changes ("by a random value") but not by how much:
``STEP_MAX`` is constructed. So is ``SENT``; only shares are looked at.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Final

from elf.planning.fusion import Fusing, Fusion, Graph, fuse

ATTRIBUTES: Final = tuple(f"p{n}" for n in range(30))
STEP_MAX: Final = 3
SENT: Final = 1_000.0
"""Tuples that each operator sends downstream."""
LEVELS_LEAST: Final = 3


def random_job(operators: int, rng: random.Random) -> Graph:
    """Attributes first, then levels, then what each operator sends to those of the next level."""
    attributes, size = [], len(ATTRIBUTES) // 2
    for _ in range(operators):
        attributes.append(frozenset(rng.sample(ATTRIBUTES, size)))
        size = min(max(1, size + rng.randint(-STEP_MAX, STEP_MAX)), len(ATTRIBUTES))
    count = rng.randint(LEVELS_LEAST, max(LEVELS_LEAST, int(0.75 * operators)))
    bounds = [level * operators // count for level in range(count + 1)]
    rates: dict[tuple[int, int], float] = {}
    for level in range(count - 1):
        for origin in range(bounds[level], bounds[level + 1]):
            left = SENT
            for target in range(bounds[level + 1], bounds[level + 2]):
                sent = rng.uniform(0, left) * rng.random()
                rates[origin, target] = sent
                left -= sent
    return Graph(attributes, rates)


def baseline(graph: Graph, rng: random.Random) -> Fusion:
    """Grow the component of the first operator downstream, by the most attributes in common, as far as it
    goes; then that of another one, drawn from those that are in none yet."""
    work, alone = Fusing(graph), set(range(len(graph.attributes)))
    operator = 0
    while alone:
        alone.discard(operator)
        while (edge := work.downstream(operator)) is not None:
            work.fuse(*work.ends(edge))
            alone -= set(work.ends(edge))
        if alone:
            operator = rng.choice(sorted(alone))
    return work.found("from one operator downstream, then from another")


HEURISTICS: Final[Mapping[str, Callable[[Graph, random.Random], Fusion]]] = {
    "comm": lambda graph, _: fuse(graph, "comm"),
    "attributes": lambda graph, _: fuse(graph, "attributes"),
    "baseline": baseline,
}


def shares(jobs: int, operators: int, seed: int) -> dict[str, dict[str, float]]:
    """By heuristic, the mean over so many jobs: components, and the share of tuples between them."""
    rng = random.Random(f"{seed}/{operators}")
    total = {name: [0.0, 0.0] for name in HEURISTICS}
    for _ in range(jobs):
        graph = random_job(operators, rng)
        for name, heuristic in HEURISTICS.items():
            found = heuristic(graph, rng)
            total[name][0] += len(found.components)
            total[name][1] += found.between
    return {
        name: {"components": round(parts / jobs, 1), "between": round(between / jobs, 4)}
        for name, (parts, between) in total.items()
    }
