"""Algorithm 1 as the paper prints it, beside what it means (``elf.planning.routes``).

Step 5 maximises Σ_e (C_e − Σ_i R_i^e x_i) and leaves constraint (2) out. So it separates by job, and
takes for each the tree with the fewest bytes on all links. That is the direct one: a detour v → w → D in
place of v → D adds v's groups on v → w and takes away as many on v → D, and w → D has no fewer than
before, since U does not decrease. Only where U is constant there are ties.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from elf.planning.routes.intervals import Intervals, intervals
from elf.planning.routes.model import Job, Problem, Tree


def trees_of(problem: Problem, job: Job) -> Iterator[Tree]:
    """All of two hops at most, over links that there are; the direct one first."""
    regions = range(len(problem.regions))
    others = [[one for one in regions if one not in (source, job.target)] for source in job.sources]
    ways = [[job.target, *one] for one in others]
    for tree in product(*ways):
        relays = {via for via in tree if via != job.target}
        own = {via for source, via in zip(job.sources, tree, strict=True) if source in relays}
        if own <= {job.target} and all(problem.capacity[pair] > 0 for pair in job.inputs(tree)):
            yield tree


def step_5(problem: Problem, often: tuple[float, ...]) -> list[Tree]:
    """(7) as printed: by job the tree that leaves most of all links."""
    found = []
    for job, one in zip(problem.jobs, often, strict=True):
        bytes_s = {tree: _bytes_s(job, tree, one) for tree in trees_of(problem, job)}
        least = min(bytes_s.values())
        found.append(next(tree for tree, its in bytes_s.items() if its <= least * (1 + 1e-9)))
    return found


def _bytes_s(job: Job, tree: Tree, often: float) -> float:
    rates = np.array(list(job.inputs(tree).values()))
    return float(job.size.rate(rates, np.array(often)).sum()) if len(rates) else 0.0


def algorithm_1(problem: Problem, steps: int = 10) -> tuple[list[Tree], Intervals]:
    """From the direct trees, until they do not change."""
    low = [job.low for job in problem.jobs]
    trees = [job.direct for job in problem.jobs]
    for _ in range(steps):
        found = intervals(problem, trees, low)
        after = step_5(problem, found.often)
        if after == trees:
            break
        trees = after
    return trees, found
