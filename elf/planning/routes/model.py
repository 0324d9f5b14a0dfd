"""Regions, the links between them, what jobs want to have carried, and trees, as names and as arrays."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec
import numpy as np

from elf.planning.routes.sizes import Size


class Link(msgspec.Struct, frozen=True):
    """One direction between two regions. ``rate``: what this may carry in a second (a share of what the line
    can, where others use it too), in the unit of sizes."""

    origin: str
    target: str
    rate: float
    delay_s: float = 0.0


Objective = Literal["fair", "goodput"]
"""What is maximised, with f the batches a second of a job. ``fair``: over direct paths Σ weight · log f,
where twice as often counts alike for each job; then, with intervals τ beside those, −Σ weight · τ / τ direct.
Or the paper's (1), Σ weight · R(f), bytes a second of the answers, which lets jobs with small or dear batches
wait as long as they may."""


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """A job. ``sources``: input a second, by region; those in ``target`` itself cross no border. Its batches
    are at least ``least_s`` and at most ``most_s`` long. ``weight``: in the objective."""

    name: str
    target: str
    sources: Mapping[str, float]
    size: Size
    least_s: float = 0.1
    most_s: float = 30.0
    weight: float = 1.0


Tree = tuple[int, ...]
"""By source outside of the target: the region over which it sends, the target itself where it sends directly.
A region that relays sends its own directly, so each region has one parent and nothing takes three hops."""
Pair = tuple[int, int]
"""A link by the places of its regions."""


class Job:
    """A demand by the places of regions. ``low`` and ``high``: batches a second."""

    __slots__ = (
        "_objective",
        "all",
        "beside_s",
        "demand",
        "high",
        "low",
        "rates",
        "size",
        "sources",
        "target",
    )

    def __init__(self, demand: Demand, places: Mapping[str, int], objective: Objective) -> None:
        self._objective = objective
        self.beside_s: float | None = None
        """The interval that others are measured by; None: there is none yet."""
        self.demand = demand
        self.size = demand.size
        self.target = places[demand.target]
        there = sorted((places[name], rate) for name, rate in demand.sources.items() if rate > 0)
        self.all = sum(rate for _, rate in there)
        self.sources = [place for place, _ in there if place != self.target]
        self.rates = [rate for place, rate in there if place != self.target]
        self.low, self.high = 1 / demand.most_s, 1 / demand.least_s

    @property
    def direct(self) -> Tree:
        return (self.target,) * len(self.sources)

    def goodput(self, often: float) -> float:
        """R: bytes a second of the answer."""
        return float(self.size.rate(np.array(self.all), np.array(often))) if self.all else 0.0

    def worth(self, often: float) -> float:
        """Its part of the objective."""
        if self._objective == "goodput":
            return self.demand.weight * self.goodput(often)
        one = math.log(often) if self.beside_s is None else -1 / (often * self.beside_s)
        return self.demand.weight * one

    def worth_tangents(self, at: Iterable[float]) -> list[tuple[float, float]]:
        """(slope, rest) of lines that are nowhere below ``worth``, which is concave, and touch it there."""
        weight = self.demand.weight
        if self._objective == "fair" and self.beside_s is not None:
            each = weight / self.beside_s
            return [(each / often**2, -2 * each / often) for often in at]
        if self._objective == "fair":
            return [(weight / often, weight * (math.log(often) - 1)) for often in at]
        if not self.all:
            return [(0.0, 0.0)]
        if self.size.shape == "line":
            at = list(at)[:1]
        found = [self.size.tangent(np.array(self.all), np.array(often)) for often in at]
        return [(weight * float(alpha), weight * float(beta)) for alpha, beta in found]

    def ways(self, tree: Tree) -> list[tuple[int, tuple[Pair, ...]]]:
        """By source: the links to the target."""
        return [
            (one, ((one, self.target),) if via == self.target else ((one, via), (via, self.target)))
            for one, via in zip(self.sources, tree, strict=True)
        ]

    def inputs(self, tree: Tree) -> dict[Pair, float]:
        """What each link carries the groups of, a second: at a relay they are merged."""
        found: dict[Pair, float] = {}
        for source, via, rate in zip(self.sources, tree, self.rates, strict=True):
            if via != self.target:
                found[source, via] = found.get((source, via), 0.0) + rate
            last = via if via != self.target else source
            found[last, self.target] = found.get((last, self.target), 0.0) + rate
        return found


class Problem:
    """Everything at once. Raises ``ValueError`` where a demand or a link makes no sense."""

    def __init__(self, links: Sequence[Link], demands: Sequence[Demand], objective: Objective) -> None:
        named = {name for link in links for name in (link.origin, link.target)}
        named |= {name for one in demands for name in (one.target, *one.sources)}
        self.regions = tuple(sorted(named))
        places = {name: place for place, name in enumerate(self.regions)}
        count = len(self.regions)
        self.capacity = np.zeros((count, count))
        self.delay = np.zeros((count, count))
        for link in links:
            if link.rate <= 0 or link.delay_s < 0 or link.origin == link.target:
                raise ValueError(f"no link: {link.origin} to {link.target}, {link.rate:g} a second")
            pair = places[link.origin], places[link.target]
            self.capacity[pair], self.delay[pair] = link.rate, link.delay_s
        for one in demands:
            if not 0 < one.least_s <= one.most_s:
                raise ValueError(f"{one.name} has no interval between {one.least_s:g} and {one.most_s:g} s")
            if one.weight < 0 or min(one.sources.values(), default=0) < 0:
                raise ValueError(f"{one.name} has a weight or a rate below 0")
        if len({one.name for one in demands}) < len(demands):
            raise ValueError("two demands have one name")
        self.jobs = [Job(one, places, objective) for one in sorted(demands, key=lambda one: one.name)]

        self.scale = float(self.capacity.max(initial=0.0)) or 1.0
        """Rates are divided by it in programmes; so is worth, where it is a rate."""
        self.size = len(self.jobs) * int(np.count_nonzero(self.capacity))
        """Jobs times links: how much work it is."""
        self.unit = self.scale if objective == "goodput" else 1.0

    def value(self, often: Sequence[float]) -> float:
        """The objective, in units."""
        worth = sum(job.worth(one) for job, one in zip(self.jobs, often, strict=True))
        return worth / self.unit

    def said(self, pair: Pair) -> str:
        return f"{self.regions[pair[0]]} → {self.regions[pair[1]]}"

    def tree(self, job: Job, vias: Mapping[str, str]) -> Tree:
        """A job's tree by places: directly where a source's region has no ``vias``, or one that is not known,
        as agents send where all of that region is gone."""
        places = {name: place for place, name in enumerate(self.regions)}
        return tuple(places.get(vias.get(self.regions[source], ""), job.target) for source in job.sources)

    def vias(self, job: Job, tree: Tree) -> dict[str, str]:
        """The reverse: by source the region over which it sends."""
        return {
            self.regions[source]: self.regions[via] for source, via in zip(job.sources, tree, strict=True)
        }

    def loads(self, trees: Sequence[Tree], often: Sequence[float]) -> dict[Pair, float]:
        """Bytes a second on each link."""
        return self.loads_of(self.jobs, trees, often)

    def loads_of(
        self, jobs: Sequence[Job], trees: Sequence[Tree], often: Sequence[float]
    ) -> dict[Pair, float]:
        """The same of some jobs."""
        found: dict[Pair, float] = {}
        for job, tree, one in zip(jobs, trees, often, strict=True):
            for pair, rate in job.inputs(tree).items():
                more = float(job.size.rate(np.array(rate), np.array(one)))
                found[pair] = found.get(pair, 0.0) + more
        return found

    def batch_s(self, job: Job, tree: Tree, often: float) -> float:
        """How long a batch is under way when it has its links for itself: a relay waits for all of it."""
        took: dict[Pair, float] = {}
        for pair, rate in job.inputs(tree).items():
            size = float(job.size(np.array(rate / often)))
            room = self.capacity[pair]
            took[pair] = size / room + self.delay[pair] if room else float("inf")
        relayed: dict[int, float] = {}
        for source, via in zip(job.sources, tree, strict=True):
            if via != job.target:
                relayed[via] = max(relayed.get(via, 0.0), took[source, via])
        last = [relayed.get(one, 0.0) + took[one, job.target] for one in {*relayed, *job.sources}
                if (one, job.target) in took]  # fmt: skip
        return max(last, default=0.0)
