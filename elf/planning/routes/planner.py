"""The plan: for all jobs at once, over which regions each sends, and how often.

1. *Direct* paths with the best intervals that they allow: what a plan is measured by. No job's interval may
   become longer than that.
2. Trees and intervals together, relaxed and rounded (``trees``), then the intervals of these trees
   (``intervals``). Curves are taken for lines at the intervals of the round before.
3. What cannot be carried is named: the job that needs most of what is short for its weight is left out, until
   the rest fits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from statistics import median
from typing import Final

import msgspec
import numpy as np

from elf.planning.decision import Decision
from elf.planning.routes.intervals import Intervals, intervals
from elf.planning.routes.model import Demand, Link, Objective, Pair, Problem, Tree
from elf.planning.routes.trees import EXCESS, NO_WAY, Choosing, cheapest, cost_of, near

ROUNDS: Final = 3
GAIN: Final = 1e-3
"""Of the objective; less is no reason for another round."""
PAIRED: Final = 24
"""Changes of single jobs that are tried by twos, too."""
TRIES: Final = 120
"""Changes that are judged by a programme, ``TRIES_WORK`` allowing."""
TRIES_WORK: Final = 50_000
"""Jobs times links, of all of them."""
TRIAL: Final = 2
"""Rounds for the intervals of a tree that is tried."""
FULL: Final = 0.99
BETTER: Final = 1e-6
"""Relative; less is a solver's last digits."""


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """A job's, to ``target``. ``vias``: the region over which each other region sends; the target itself is
    the direct way. ``direct_s``: the interval over direct paths; None: they cannot carry it. ``batch_s``: how
    long a batch is under way if its links are free."""

    target: str
    vias: dict[str, str]
    interval_s: float
    direct_s: float | None
    batch_s: float

    @property
    def detours(self) -> bool:
        return any(via != self.target for via in self.vias.values())


class Use(msgspec.Struct, frozen=True):
    """Of a link: bytes a second, of those that it may carry."""

    load: float
    rate: float


class Plan(Decision, frozen=True):
    """``routes``: by job. ``links``: those that carry something, by origin and target. ``infeasible``: jobs
    that are not carried beside all others, and why. ``value``: the objective, of ``routes``."""

    routes: dict[str, Route]
    links: dict[tuple[str, str], Use]
    infeasible: dict[str, str]
    value: float


def plan(links: Sequence[Link], demands: Sequence[Demand], objective: Objective = "fair") -> Plan:
    """See the module's docstring. Raises ``ValueError`` where a demand or a link makes no sense, and
    ``UserError`` without SciPy."""
    problem = Problem(links, demands, objective)
    direct_s = direct_intervals(problem)
    infeasible = _unreachable(problem)
    while True:
        problem = Problem(links, [one for one in demands if one.name not in infeasible], objective)
        search = _Search(problem, direct_s)
        if not search.best.overloaded:
            return _told(problem, search, direct_s, infeasible)
        name, why = _worst(problem, search)
        infeasible[name] = why


def direct_intervals(problem: Problem) -> dict[str, float | None]:
    """The best ones over direct paths, by job; None: one of its links cannot carry even the longest."""
    found = intervals(problem, [job.direct for job in problem.jobs], [job.low for job in problem.jobs])
    return {
        job.demand.name: None if place in found.held else 1 / often
        for place, (job, often) in enumerate(zip(problem.jobs, found.often, strict=True))
    }


def floors_beside(problem: Problem, direct_s: Mapping[str, float | None]) -> list[float]:
    """How often jobs are sent at least: no interval is longer than over direct paths, by which it counts."""
    found = []
    for job in problem.jobs:
        longest_s = direct_s[job.demand.name] or job.demand.most_s
        job.beside_s = longest_s
        found.append(max(job.low, 1 / longest_s))
    return found


def _unreachable(problem: Problem) -> dict[str, str]:
    free = np.where(problem.capacity > 0, 0.0, np.inf)
    found = {}
    for job in problem.jobs:
        tree, cost = cheapest(job, job.low, free)
        if cost >= NO_WAY:
            cut = [one for one, way in job.ways(tree) if not all(problem.capacity[pair] for pair in way)]
            names = ", ".join(problem.regions[one] for one in cut)
            found[job.demand.name] = f"no link leads from {names} to {job.demand.target}, nor any two"
    return found


class _Search:
    """The best trees that were found so far, and their intervals."""

    def __init__(self, problem: Problem, direct_s: Mapping[str, float | None]) -> None:
        self._problem = problem
        self.floors = floors_beside(problem, direct_s)
        self.trees = [job.direct for job in problem.jobs]
        self.best = intervals(problem, self.trees, self.floors, TRIAL)
        self.proved = False
        """Whether no plan at all carries everything, not even with shares of trees."""
        if not problem.jobs:
            return
        lines = all(job.size.shape == "line" for job in problem.jobs)
        for _ in range(1 if lines else ROUNDS):
            value = self.best.value
            self._together(lines)
            if self.best.value - value <= GAIN * max(1.0, abs(value)):
                break
        self._improve()
        self.best = intervals(problem, self.trees, self.floors)

    def _together(self, lines: bool) -> None:
        choosing = Choosing(self._problem, self.floors, self.best.often)
        for place, tree in enumerate(self.trees):
            choosing.add(place, tree)
        relaxed = choosing.generate()
        self.proved = lines and relaxed.excess > EXCESS
        order = self._behind(relaxed.often)
        for start in (choosing.rounded(), self.trees):
            self._keep(choosing.exchange().improved(start, order))
        for trees in choosing.exchange().every():
            self._keep(trees)

    def _behind(self, often: np.ndarray) -> list[int]:
        """Jobs by how much they lose against shares of trees, the most first."""
        lost = [
            job.worth(one) - job.worth(mine)
            for job, one, mine in zip(self._problem.jobs, often.tolist(), self.best.often, strict=True)
        ]
        return sorted(range(len(lost)), key=lambda place: -lost[place])

    def _keep(self, trees: list[Tree]) -> bool:
        """If they are better: less is overloaded, or else the value is greater."""
        found = intervals(self._problem, trees, self.floors, TRIAL)
        mine, its = self._excess(self.trees, self.best), self._excess(trees, found)
        least = self.best.value + BETTER * max(1.0, abs(self.best.value))
        if its > mine or (its == mine and found.value <= least):
            return False
        self.trees, self.best = trees, found
        return True

    def _excess(self, trees: Sequence[Tree], found: Intervals) -> float:
        """By how much links are overloaded; 0: none is."""
        if not found.overloaded:
            return 0.0
        loads = self._problem.loads(trees, self.floors)
        rooms = {pair: max(float(self._problem.capacity[pair]), 1e-9) for pair in found.overloaded}
        return sum(loads[pair] / room - 1 for pair, room in rooms.items())

    def _improve(self) -> None:
        """One job at a time, or two, judged by a programme."""
        left = min(TRIES, TRIES_WORK // max(1, self._problem.size))
        going = True
        while going and left:
            going = False
            for change in self._changes():
                left -= 1
                trees = list(self.trees)
                for place, tree in change.items():
                    trees[place] = tree
                going = self._keep(trees)
                if going or not left:
                    break

    def _changes(self) -> Iterator[dict[int, Tree]]:
        moves = self._moves()
        yield from ({place: tree} for _, place, tree in moves)
        pairs = [
            (one[0] + other[0], {one[1]: one[2], other[1]: other[2]})
            for one, other in combinations(moves[:PAIRED], 2)
            if one[1] != other[1]
        ]
        yield from (change for _, change in sorted(pairs, key=lambda pair: pair[0]))

    def _moves(self) -> list[tuple[float, int, Tree]]:
        """Trees in which one source has another way, by what they would save at today's prices, the most
        first."""
        prices = self._prices()
        found = []
        for place, (job, now) in enumerate(zip(self._problem.jobs, self.trees, strict=True)):
            often = self.best.often[place]
            paid = cost_of(job, now, often, prices)
            regions = len(self._problem.regions)
            trees = set(near(job, now, regions))
            found += [(cost_of(job, tree, often, prices) - paid, place, tree) for tree in trees]
        return sorted(one for one in found if one[0] < NO_WAY / 2)

    def _prices(self) -> np.ndarray:
        """What a byte a second is worth."""
        prices = np.where(self._problem.capacity > 0, 0.0, np.inf)
        for pair, price in self.best.prices.items():
            if self._problem.capacity[pair]:
                prices[pair] = price
        return prices


def _worst(problem: Problem, search: _Search) -> tuple[str, str]:
    """The job with the most bytes, for its weight, on links that are overloaded; and which these are."""
    over = set(search.best.overloaded)
    loads = problem.loads(search.trees, search.floors)
    needs: dict[str, tuple[float, list[Pair]]] = {}
    for job, tree, low in zip(problem.jobs, search.trees, search.floors, strict=True):
        uses = {pair: rate for pair, rate in job.inputs(tree).items() if pair in over}
        need = sum(float(job.size.rate(np.array(rate), np.array(low))) for rate in uses.values())
        if uses:
            needs[job.demand.name] = need / max(job.demand.weight, 1e-9), sorted(uses)
    name = max(needs, key=lambda one: (needs[one][0], one))
    how = "no plan carries it beside the others" if search.proved else "no plan was found that carries it"
    said = ", ".join(
        f"{problem.said(pair)} would have {loads[pair]:.4g} of {problem.capacity[pair]:.4g} a second"
        for pair in needs[name][1]
    )
    return name, f"{how}: {said}"


def _told(
    problem: Problem, search: _Search, direct_s: Mapping[str, float | None], infeasible: dict[str, str]
) -> Plan:
    routes = {}
    for job, tree, often in zip(problem.jobs, search.trees, search.best.often, strict=True):
        routes[job.demand.name] = Route(
            target=job.demand.target,
            vias=problem.vias(job, tree),
            interval_s=1 / often,
            direct_s=direct_s[job.demand.name],
            batch_s=problem.batch_s(job, tree, often),
        )
    links = {
        (problem.regions[pair[0]], problem.regions[pair[1]]): Use(load, float(problem.capacity[pair]))
        for pair, load in sorted(problem.loads(search.trees, search.best.often).items())
    }
    reasons = (*_summary(routes), *_detours(problem, routes), *_full(links))
    reasons += tuple(f"{name} is not carried: {why}" for name, why in infeasible.items())
    return Plan(
        reasons=reasons,
        routes=routes,
        links=links,
        infeasible=infeasible,
        value=search.best.value * problem.unit,
    )


def _summary(routes: Mapping[str, Route]) -> list[str]:
    detours = sum(route.detours for route in routes.values())
    shares = [route.interval_s / route.direct_s for route in routes.values() if route.direct_s is not None]
    found = [f"{detours} of {len(routes)} jobs take a detour"]
    if shares:
        found.append(f"intervals are {median(shares):.2f} of direct paths' on the median, none longer")
    if only := len(routes) - len(shares):
        found.append(f"direct paths cannot carry {only} of the jobs, this plan does")
    return found


def _detours(problem: Problem, routes: Mapping[str, Route]) -> list[str]:
    """With the rate of the link that is gone round, and the least of those that are taken."""
    rates = {
        (problem.regions[a], problem.regions[b]): float(problem.capacity[a, b])
        for a, b in np.argwhere(problem.capacity > 0).tolist()
    }
    found = []
    for name, route in routes.items():
        for source, via in route.vias.items():
            if via != route.target:
                direct = rates.get((source, route.target), 0.0)
                least = min(rates[source, via], rates[via, route.target])
                found.append(
                    f"{name}: {source} sends over {via}, where links carry {least:.4g} a second or more; "
                    f"{source} → {route.target} carries {direct:.4g}"
                )
    return found


def _full(links: Mapping[tuple[str, str], Use]) -> list[str]:
    full = [f"{a} → {b}" for (a, b), use in links.items() if use.load >= FULL * use.rate]
    return [f"full, so that no interval over them can be shorter: {', '.join(full)}"] if full else []
