"""What is drawn from a seed: the paper's testbed, and small and large problems."""

from __future__ import annotations

import random
from typing import Final

from elf.planning.routes.model import Demand, Link
from elf.planning.routes.sizes import Size

MBIT: Final = 8.0
"""Bits a byte: rates are Mbit a second here, as the paper's."""
WORD_COUNT: Final = Size("line", 0.40, 0.43 * MBIT)
"""Figure 2: 0.40·I + 0.43 in MB; in Mbit the slope is the same."""
TABLE_I: Final = (
    (1, 4), (2, 2), (5, 1), (2, 4), (2, 1), (2, 4), (4, 3), (4, 2), (2, 1), (2, 3),
    (2, 2), (5, 2), (1, 4), (2, 2), (1, 2), (2, 3), (1, 2), (5, 2), (1, 4), (2, 4),
)  # fmt: skip
"""Mbit a second of the two inputs of each query."""
RATES: Final = (5.0, 35.0)
LEAST_S: Final = 0.1
MOST_S: Final = 30.0
"""Bounds of an interval: the paper has a lower one, and does not say which."""
USED: Final = 0.9
"""What jobs may have of a link: batches vary."""

Drawn = tuple[list[Link], list[Demand]]


def mesh(rng: random.Random, regions: int) -> list[Link]:
    names = [f"n{number:02}" for number in range(1, regions + 1)]
    return [Link(a, b, rng.uniform(*RATES)) for a in names for b in names if a != b]


def the_testbed(seed: int) -> Drawn:
    """Seven nodes and the 20 queries of Table I, at random places. The paper's own matrix of links (Figure 3)
    is an image that our text has lost."""
    rng = random.Random(seed)
    links = mesh(rng, 7)
    names = sorted({one.origin for one in links})
    demands = []
    for number, rates in enumerate(TABLE_I, 1):
        *sources, target = rng.sample(names, 3)
        demands.append(
            Demand(
                name=f"q{number:02}",
                target=target,
                sources=dict(zip(sources, map(float, rates), strict=True)),
                size=WORD_COUNT,
                least_s=LEAST_S,
                most_s=MOST_S,
            )
        )
    return links, demands


def small(seed: int) -> Drawn:
    """Three jobs on three or four regions: few enough to try every plan. Every other one has curves."""
    rng = random.Random(seed)
    links = mesh(rng, 3 + seed // 2 % 2)
    names = sorted({one.origin for one in links})
    sizes = [WORD_COUNT]
    if seed % 2:
        sizes += [Size("power", 2.0, 0.5, 0.6), Size("saturation", 4.0, 0.3, 5.0)]
    demands = []
    for number in range(3):
        *sources, target = rng.sample(names, 3)
        rates = {one: float(rng.randint(1, 5)) for one in sources}
        size = rng.choice(sizes)
        demands.append(Demand(name=f"q{number}", target=target, sources=rates, size=size))
    return links, demands


def large(seed: int, jobs: int = 50, regions: int = 20, sources: int = 3) -> Drawn:
    rng = random.Random(seed)
    links = mesh(rng, regions)
    names = sorted({one.origin for one in links})
    demands = []
    for number in range(jobs):
        *origins, target = rng.sample(names, sources + 1)
        rates = {one: rng.uniform(1.0, 5.0) for one in origins}
        demands.append(Demand(name=f"q{number:02}", target=target, sources=rates, size=WORD_COUNT))
    return links, demands


def usable(links: list[Link]) -> list[Link]:
    """What a plan may count on."""
    return [Link(one.origin, one.target, USED * one.rate, one.delay_s) for one in links]
