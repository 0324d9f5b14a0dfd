"""Trees and intervals together: step 5 of the paper's Algorithm 1 with constraint (2) in it.

Each job has trees that are candidates (*columns*), with a share x of the job and a frequency f; f·x is
one variable, low·x + z. For lines this makes the whole problem linear but for x being 0 or 1, so its
relaxation is solved, and is a bound. A link that is overloaded costs more than anything is worth. What
links cost then says which tree of a job would be cheaper than those that it has: it becomes a candidate,
until none is (column generation). So it does not matter how many trees there are.

Then shares are rounded: the job with the largest gets that tree, and the rest is solved again. What
rounding has lost comes back in part by ``exchange``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from elf.planning.routes.exchange import Exchange, Options
from elf.planning.routes.intervals import GRID, OFTEN
from elf.planning.routes.model import Job, Pair, Problem, Tree
from elf.planning.routes.solving import Programme, Rows, solve

ROUNDS: Final = 7
SWEEPS: Final = 3
FEW: Final = 64
"""Trees, of all jobs, that are all candidates."""
AT_ONCE: Final = 0.4
"""The share of the jobs that are rounded between two solutions."""
SURE: Final = 0.99
"""A share that is rounded at once."""
EXCESS: Final = 1e-6
_GAIN: Final = 1e-6
NO_WAY: Final = 1e30
"""What a link costs that is none."""
DETOUR: Final = 1e-4
"""What a detour costs beside its bytes: of equal trees the direct one is best."""


class Relaxed(NamedTuple):
    """Shares by column; prices of a byte a second by link (infinite where there is none); by job how often it
    is sent, what one more batch a second is worth, and what it has beyond what its links cost; by how much
    links are overloaded, as parts of what they carry."""

    shares: np.ndarray
    prices: np.ndarray
    often: np.ndarray
    batches: np.ndarray
    worth: np.ndarray
    excess: float


class _Column(NamedTuple):
    """A candidate: what it takes of links, as parts of what they carry, at its lowest frequency and for each
    batch a second more."""

    place: int
    tree: Tree
    links: np.ndarray
    at_low: np.ndarray
    more: np.ndarray
    detours: int


class Choosing:
    """Candidates, and what is known of them. ``low``: frequencies by job; ``at``: where curves are taken for
    lines."""

    def __init__(self, problem: Problem, low: Sequence[float], at: Sequence[float]) -> None:
        self._problem, self._at = problem, at
        self._low = np.array(low, float)
        self._high = np.maximum([job.high for job in problem.jobs], self._low)
        self._links: dict[Pair, int] = {
            (int(a), int(b)): place for place, (a, b) in enumerate(np.argwhere(problem.capacity > 0))
        }
        self._columns: list[_Column] = []
        self._known: set[tuple[int, Tree]] = set()
        tangents = [
            job.worth_tangents(np.geomspace(low, high, GRID).tolist())
            for job, low, high in zip(problem.jobs, self._low, self._high, strict=True)
        ]
        self._of = np.repeat(np.arange(len(tangents)), [len(one) for one in tangents])
        """The job of each tangent."""
        self._slopes, self._rests = (
            np.array([line[part] for one in tangents for line in one]) / problem.unit for part in (0, 1)
        )
        spread = problem.value(self._high.tolist()) - problem.value(self._low.tolist())
        self._dear = 10.0 * (spread + 1.0)

    def add(self, place: int, tree: Tree) -> bool:
        """A candidate of a job; False: it is one already, or goes over a link that is none."""
        job = self._problem.jobs[place]
        uses = job.inputs(tree)
        if (place, tree) in self._known or not uses.keys() <= self._links.keys():
            return False
        self._known.add((place, tree))
        alphas, betas = job.size.tangent(np.array(list(uses.values())), np.array(self._at[place]))
        rooms = np.array([self._problem.capacity[pair] for pair in uses])
        links = np.array([self._links[pair] for pair in uses], int)
        at_low, more = (betas + alphas * self._low[place]) / rooms, alphas / rooms
        detours = sum(via != job.target for via in tree)
        self._columns.append(_Column(place, tree, links, at_low, more, detours))
        return True

    def generate(self) -> Relaxed:
        """Candidates until none is missing, or ``ROUNDS`` were made; and what their shares come to."""
        for place, (job, low) in enumerate(zip(self._problem.jobs, self._low, strict=True)):
            self.add(place, cheapest(job, low, np.where(self._problem.capacity > 0, 0.0, np.inf))[0])
        regions = len(self._problem.regions)
        if sum(regions ** len(job.sources) for job in self._problem.jobs) <= FEW:
            for place, job in enumerate(self._problem.jobs):
                for tree in [job.direct, *near(job, job.direct, regions)]:
                    for one in (tree, *near(job, tree, regions)):
                        self.add(place, one)
        for _ in range(ROUNDS):
            found = self._relaxed({})
            if not any(self._priced(found)):
                break
        return found

    def _priced(self, found: Relaxed) -> list[bool]:
        """For each job and end of its interval: whether its cheapest tree is a new candidate."""
        new = []
        for place, job in enumerate(self._problem.jobs):
            for often in {float(self._low[place]), float(self._high[place])}:
                tree, cost = cheapest(job, often, found.prices)
                gain = found.batches[place] * often - cost - found.worth[place]
                if gain > _GAIN * (1 + abs(found.worth[place])):
                    new.append(self.add(place, tree))
        return new

    def rounded(self) -> list[Tree]:
        """One tree for each job."""
        chosen: dict[int, Tree] = {}
        while len(chosen) < len(self._problem.jobs):
            columns = self._open(chosen)
            best: dict[int, tuple[float, Tree]] = {}
            for column, share in zip(columns, self._relaxed(chosen).shares, strict=True):
                if column.place not in chosen and share > best.get(column.place, (-1.0, ()))[0]:
                    best[column.place] = float(share), column.tree
            order = sorted(best, key=lambda place: -best[place][0])
            least = max(1, round(AT_ONCE * len(order)))
            for rank, place in enumerate(order):
                if rank < least or best[place][0] >= SURE:
                    chosen[place] = best[place][1]
        return [chosen[place] for place in range(len(self._problem.jobs))]

    def exchange(self) -> Exchange:
        """Of what are candidates now."""
        options = []
        for place in range(len(self._problem.jobs)):
            mine = [one for one in self._columns if one.place == place]
            at_low, more = np.zeros((2, len(mine), len(self._links)))
            for row, one in enumerate(mine):
                at_low[row, one.links], more[row, one.links] = one.at_low, one.more
            options.append(Options([one.tree for one in mine], at_low, more))
        return Exchange(self._problem, options, self._low, self._high)

    def _open(self, chosen: Mapping[int, Tree]) -> list[_Column]:
        return [one for one in self._columns if chosen.get(one.place, one.tree) == one.tree]

    def _relaxed(self, chosen: Mapping[int, Tree]) -> Relaxed:
        """With the trees of some jobs given."""
        problem, columns = self._problem, self._open(chosen)
        count, links, jobs = len(columns), len(self._links), len(problem.jobs)
        found = solve(self._programme(columns))
        prices = np.full(problem.capacity.shape, np.inf)
        for pair, link in self._links.items():
            prices[pair] = found.upper[link] / problem.capacity[pair]
        each = self._slopes * found.upper[links : links + len(self._of)]
        batches = np.bincount(self._of, each, minlength=jobs)
        places = np.array([one.place for one in columns])
        sent = self._low[places] * found.values[:count] + found.values[count : 2 * count]
        excess = float(found.values[2 * count + jobs :].sum())
        often = np.bincount(places, sent, minlength=jobs)
        return Relaxed(found.values[:count], prices, often, batches, found.equal, excess)

    def _programme(self, columns: Sequence[_Column]) -> Programme:
        """Variables: by column its share, and how much more often it is sent than at least; by job its worth;
        by link its excess. Rows: links, tangents, columns."""
        count, links, jobs = len(columns), len(self._links), len(self._problem.jobs)
        places = np.array([one.place for one in columns])
        lengths = [len(one.links) for one in columns]
        numbers = np.repeat(np.arange(count), lengths)
        upper = Rows([1.0] * links + self._rests.tolist() + [0.0] * count)
        into = np.concatenate([one.links for one in columns])
        upper.add(into, numbers, np.concatenate([one.at_low for one in columns]))
        upper.add(into, count + numbers, np.concatenate([one.more for one in columns]))
        upper.add(np.arange(links), 2 * count + jobs + np.arange(links), -1.0)
        upper.add(links + np.arange(len(self._of)), 2 * count + self._of, 1.0)
        tangent, column = np.nonzero(self._of[:, None] == places[None, :])
        low, slopes = self._low[places[column]], self._slopes[tangent]
        upper.add(links + tangent, column, -slopes * low)
        upper.add(links + tangent, count + column, -slopes)
        own = links + len(self._of) + np.arange(count)
        upper.add(own, count + np.arange(count), 1.0)
        upper.add(own, np.arange(count), (self._low - self._high)[places])
        equal = Rows([1.0] * jobs)
        equal.add(places, np.arange(count), 1.0)
        worth = np.concatenate(
            [
                [-DETOUR * one.detours for one in columns],
                OFTEN / self._high[places],
                np.ones(jobs),
                np.full(links, -self._dear),
            ]
        )
        bounds = np.zeros((len(worth), 2))
        bounds[:, 1] = np.inf
        bounds[:count, 1] = 1.0
        bounds[2 * count : 2 * count + jobs, 0] = -np.inf
        return Programme(worth, bounds, upper, equal)


def cheapest(job: Job, often: float, prices: np.ndarray) -> tuple[Tree, float]:
    """The tree whose links cost least, by the price of a byte a second, of those that are found: each source
    in turn takes its cheapest way, from the direct tree on and from the best one over a single relay."""
    starts = [job.direct]
    if len(job.sources) > 1:
        starts.append(_star(job, often, prices))
    found = [_swept(job, often, prices, start) for start in starts]
    return min(((tree, cost_of(job, tree, often, prices)) for tree in found), key=lambda one: one[1])


def near(job: Job, tree: Tree, regions: int) -> Iterator[Tree]:
    """Trees in which one source has another way."""
    for place, source in enumerate(job.sources):
        if source in tree:  # it relays for others
            continue
        relays = {one for one, via in zip(job.sources, tree, strict=True) if via != job.target}
        for via in set(range(regions)) - relays - {source, tree[place]}:
            yield (*tree[:place], via, *tree[place + 1 :])


def cost_of(job: Job, tree: Tree, often: float, prices: np.ndarray) -> float:
    uses = job.inputs(tree)
    rates = job.size.rate(np.array(list(uses.values())), np.array(often))
    return float(sum(min(prices[pair], NO_WAY) * rate for pair, rate in zip(uses, rates, strict=True)))


def _star(job: Job, often: float, prices: np.ndarray) -> Tree:
    """All over the best single region."""
    rates = job.size.rate(np.array(job.rates), np.array(often))
    whole = float(job.size.rate(np.array(sum(job.rates)), np.array(often)))
    ways = np.minimum(prices[job.sources], NO_WAY)
    ways[range(len(job.sources)), job.sources] = 0.0  # a relay's own has no way to go
    costs = rates @ ways + np.minimum(prices[:, job.target], NO_WAY) * whole
    costs[job.target] = np.inf
    relay = int(costs.argmin())
    return tuple(job.target if source == relay else relay for source in job.sources)


def _swept(job: Job, often: float, prices: np.ndarray, start: Tree) -> Tree:
    tree, target = list(start), job.target
    sources, rates = np.array(job.sources), np.array(job.rates)
    alone = job.size.rate(rates, np.array(often))
    capped = np.minimum(prices, NO_WAY)
    for _ in range(SWEEPS):
        before = tuple(tree)
        for place, source in enumerate(job.sources):
            if source in tree:  # it relays for others
                continue
            lasts = np.where(np.array(tree) == target, sources, tree)
            others = np.arange(len(tree)) != place
            into = np.bincount(lasts[others], rates[others], minlength=len(prices))
            more = job.size.rate(into + rates[place], np.array(often)) - job.size.rate(into, np.array(often))
            costs = capped[source] * alone[place] + capped[:, target] * more
            costs[source] = capped[source, target] * more[source]
            for other, via in zip(job.sources, tree, strict=True):
                if via != target and other != source:
                    costs[other] = np.inf  # it does not send directly, so it cannot relay
            costs[target] = np.inf
            best = int(costs.argmin())
            if costs[best] < costs[source if tree[place] == target else tree[place]] * (1 - 1e-9):
                tree[place] = target if best == source else best
        if tuple(tree) == before:
            break
    return tuple(tree)
