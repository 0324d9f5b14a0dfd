"""The best of all plans, by trying every combination of trees: for a few jobs and regions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from elf.planning.routes.intervals import intervals
from elf.planning.routes.model import Demand, Link, Objective, Problem
from elf.planning.routes.planner import direct_intervals, floors_beside
from lab.wan.printed import trees_of


def best_value(links: Sequence[Link], demands: Sequence[Demand], objective: Objective) -> float | None:
    """The objective in units; None: no plan carries everything. Intervals are no longer than direct ones, as
    the planner's."""
    problem = Problem(links, demands, objective)
    floors = floors_beside(problem, direct_intervals(problem))
    every = product(*(list(trees_of(problem, job)) for job in problem.jobs))
    found = [intervals(problem, trees, floors) for trees in every]
    return max((one.value for one in found if not one.overloaded), default=None)
