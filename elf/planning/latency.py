"""What the latency of a row or a window comes to: mean and variance of each phase, which add up, and
quantiles (SCALLA: *Supporting Scalable Analytics with Latency Constraints*, VLDB 2015, section 3).

| cause | here |
|---|---|
| a batch is waited for | ``batching`` |
| CPU that is shared, and the rows of a batch | ``shared_cpu`` (equation 2), ``within_batch`` |
| a queue | ``queueing``: G/G/1, by three moments of services and two of arrivals |
| the last of several | ``last_of`` (normal), ``last_poll`` (of agents that look at their files) |
| results that come over a while | ``spread`` (F of 3.3) |
| a quantile | ``normal_quantile`` where the shape is known to be near to it, else ``cantelli_quantile`` (3.4)
|

Phases are taken for independent. Times have any one unit; variances its square. The paper's formulas for
queues and maxima are lost in the text that we have: those here are the usual ones, each held to a simulation
(``tests/planning/test_latency.py``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import NormalDist
from typing import Final

import msgspec
import numpy as np

POLL_S: Final = 0.05
POLL_MAX_S: Final = 0.2
POLL_GROWS: Final = 1.05
"""Between two looks for the line that ends a pane which is due by the clock: the first one, where no job asks
for less (``elf.planning.solve``), and by how much each is longer than the last, up to the most
(``agents.tasks.feeding``)."""
SURE: Final = 25
"""After so many times what passes between two lines on average there was one, but for 10⁻¹¹."""
ALIKE: Final = 64
"""Of more agents rates are told apart to a twentieth."""
LOOKS_MAX: Final = 20_000
"""That are told apart: what comes later is counted as the last of these."""
_NORMAL: Final = NormalDist()
_EULER: Final = 0.5772156649
_MAXIMA: Final = (
    (0.0, 1.0),
    (0.56419, 0.82565),
    (0.84628, 0.74798),
    (1.02938, 0.70122),
    (1.16296, 0.66898),
    (1.26721, 0.64492),
    (1.35218, 0.62603),
    (1.4236, 0.61065),
    (1.48501, 0.59779),
    (1.53875, 0.58681),
    (1.58644, 0.57728),
    (1.62923, 0.56889),
    (1.66799, 0.56143),
    (1.70338, 0.55473),
    (1.73591, 0.54867),
    (1.76599, 0.54315),
)
"""Mean and standard deviation of the greatest of n standard normals, n = 1 … 16, by numerical integration."""


class Moments(msgspec.Struct, frozen=True):
    """Of a phase."""

    mean: float
    variance: float = 0.0

    def __add__(self, other: Moments) -> Moments:
        return Moments(self.mean + other.mean, self.variance + other.variance)

    @property
    def deviation(self) -> float:
        return math.sqrt(self.variance)


NONE: Final = Moments(0.0)


def total(phases: Iterable[Moments]) -> Moments:
    return sum(phases, NONE)


# -- batches and CPU -----------------------------------------------------------------------------------------


def batching(length: float) -> Moments:
    """Of a row that may come at any time of a batch: until the batch is over. A heartbeat is the same."""
    return Moments(length / 2, length**2 / 12)


def shared_cpu(work: Moments, cores: int, others: float) -> Moments:
    """A batch on one thread: equation 2, without its halving. ``work``: CPU time of the batch; ``others``:
    the share of all cores that threads before this one take, from 0 to less than 1. It is an upper bound,
    since the others are taken to go first."""
    if not 0 <= others < 1 or cores < 1:
        raise ValueError(f"others take {others:g} of {cores} cores")
    rate = min(1 - others, 1 / cores) * cores
    return Moments(work.mean / rate, work.variance / rate**2)


def within_batch(batch: Moments) -> Moments:
    """Of a row anywhere in a batch that takes so long: until that row is done."""
    squared = batch.variance + batch.mean**2
    return Moments(batch.mean / 2, squared / 3 - batch.mean**2 / 4)


# -- queues --------------------------------------------------------------------------------------------------


class Service(msgspec.Struct, frozen=True):
    """The first three moments of a time: E(S), E(S²), E(S³)."""

    first: float
    second: float
    third: float

    @property
    def spread(self) -> float:
        """The squared coefficient of variation."""
        return self.second / self.first**2 - 1


def measured(times: Sequence[float] | np.ndarray) -> Service:
    """The moments of what was measured, at least one."""
    found = np.asarray(times, float)
    return Service(float(found.mean()), float((found**2).mean()), float((found**3).mean()))


def queueing(arrivals: Service, service: Service) -> Moments:
    """The wait in a G/G/1 queue: the mean is Kingman's with the correction of Krämer and Langenbach-Belz, the
    variance Whitt's (the queueing network analyzer). Raises ``ValueError`` where more comes than is served:
    such a queue has no mean."""
    busy = service.first / arrivals.first
    if busy >= 1:
        raise ValueError(f"the queue is {busy:.2f} times as busy as it can be")
    comes, takes = max(arrivals.spread, 0.0), max(service.spread, 0.0)
    if comes + takes == 0:
        return NONE
    if comes <= 1:
        by = math.exp(-2 * (1 - busy) * (1 - comes) ** 2 / (3 * busy * (comes + takes)))
    else:
        by = math.exp(-(1 - busy) * (comes - 1) / (comes + 4 * takes))
    mean = busy / (1 - busy) * (comes + takes) / 2 * service.first * by
    third = service.third / service.first**3
    late = 2 * busy - 1 + 4 * (1 - busy) * third / (3 * (takes + 1) ** 2)
    waits = _chance_to_wait(busy, comes, takes)
    return Moments(mean, mean**2 * max(0.0, (late + 1 - waits) / waits))


def _chance_to_wait(busy: float, comes: float, takes: float) -> float:
    if comes <= 1:
        by = (1 + comes + busy * takes) / (1 + busy * (takes - 1) + busy**2 * (4 * comes + takes))
    else:
        by = 4 * busy / (comes + busy**2 * (4 * comes + takes))
    return min(max(busy + (comes - 1) * busy * (1 - busy) * by, 1e-6), 1.0)


# -- the last one --------------------------------------------------------------------------------------------


def last_of(count: int, each: Moments) -> Moments:
    """The last of so many that are alike, taken for normal. More than sixteen: Gumbel's limit, whose
    deviation is a few per cent too high."""
    if count < 1:
        raise ValueError("the last of none")
    if count <= len(_MAXIMA):
        mean, deviation = _MAXIMA[count - 1]
    else:
        base = _NORMAL.inv_cdf(1 - 1 / count)
        scale = _NORMAL.inv_cdf(1 - 1 / (count * math.e)) - base
        mean, deviation = base + _EULER * scale, math.pi * scale / math.sqrt(6)
    return Moments(each.mean + mean * each.deviation, deviation**2 * each.variance)


def last_poll(rates: Sequence[float], poll_s: float = POLL_S) -> Moments:
    """In seconds: from when a pane is due until the last agent has seen a line beyond it. ``rates``: lines a
    second of each agent, which come at any time; one without lines seals by time, and is left out."""
    some = np.array([rate for rate in rates if rate > 0])
    if not len(some):
        return NONE
    if len(some) > ALIKE:
        some = np.exp(np.round(20 * np.log(some)) / 20)
    comes, times = np.unique(some, return_counts=True)
    at = looks(SURE / float(comes.min()) + poll_s, poll_s)
    all_there = np.exp(times @ np.log1p(-np.exp(-np.outer(comes, at))))
    chance = np.diff(all_there, prepend=0.0)
    chance[-1] += max(0.0, 1 - float(all_there[-1]))
    mean = float(chance @ at)
    return Moments(mean, max(0.0, float(chance @ at**2) - mean**2))


def looks(until_s: float, poll_s: float) -> np.ndarray:
    """When an agent looks at its files from when a pane is due, in seconds."""
    found, pause = [poll_s], poll_s
    while found[-1] < until_s and len(found) < LOOKS_MAX:
        pause = max(poll_s, min(POLL_GROWS * pause, POLL_MAX_S))
        found.append(found[-1] + pause)
    return np.array(found)


def looked(rate: float, poll_s: float) -> float:
    """How often an agent looks until it sees a line, on average."""
    if rate <= 0:
        return 0.0
    at = looks(SURE / rate + poll_s, poll_s)
    return 1 + float(np.exp(-rate * at[:-1]).sum())


def spread(steps: int, length: float) -> Moments:
    """F of 3.3: a window's results come in ``steps`` equal steps over ``length``; until the step of one of
    them."""
    return Moments((1 + 1 / steps) * length / 2, (1 - 1 / steps**2) * length**2 / 12)


# -- quantiles -----------------------------------------------------------------------------------------------


def normal_quantile(of: Moments, share: float) -> float:
    return of.mean + of.deviation * _NORMAL.inv_cdf(share)


def cantelli_quantile(of: Moments, share: float) -> float:
    """No distribution of this mean and variance has a higher one."""
    return of.mean + of.deviation * math.sqrt(share / (1 - share))


# -- the phases of a pane ------------------------------------------------------------------------------------


class Member(msgspec.Struct, frozen=True):
    """What an agent does for a flow: lines a second, and CPU of the pane's last chunk and of its snapshot
    (ms)."""

    lines_s: float
    cpu_ms: float


class Costs(msgspec.Struct, frozen=True, kw_only=True):
    """What a pane costs beyond its members' CPU, in ms. ``sync``: of a checkpoint, with what it waits for;
    ``hop``: a message to another agent; ``depth``: of the tree; ``draft``: CPU of the root, and ``made`` of
    the windows that are made with the pane; ``window``: CPU of the master, None where all are; ``queued``:
    what a draft waits for beside its CPU; ``agreed``: from a draft until a majority has it, None where that
    is not known; ``others``: CPU that other threads take, as a share of all ``cores``."""

    sync: Moments
    hop: Moments
    depth: int
    draft: float
    made: float = 0.0
    window: float | None = None
    queued: Moments = NONE
    agreed: Moments | None = None
    cores: int = 1
    others: float = 0.0


def phases_of_pane(members: Sequence[Member], costs: Costs, poll_s: float = POLL_S) -> dict[str, Moments]:
    """By the names of ``elf.planning.phases``, in ms. A look may be just too early for the line, or just not,
    whichever agent is the last: that spreads a wait by half the time between two looks at most."""

    def cpu(ms: float) -> Moments:
        return shared_cpu(Moments(ms), costs.cores, costs.others)

    waits = last_poll([one.lines_s for one in members], poll_s)
    works = [one.cpu_ms for one in members] or [0.0]
    # a majority of the group's disks, beside the leader's own, and the way to them and back
    agreed = costs.agreed or total((last_of(2, costs.sync), costs.hop, costs.hop))
    return {
        "wait": Moments(1e3 * waits.mean, 1e6 * (waits.variance + poll_s**2 / 4)),
        "seal": cpu(float(np.mean(works))) + costs.sync,
        "tree": total(costs.hop for _ in range(costs.depth)),
        "draft": cpu(costs.draft + costs.made) + costs.queued,
        "commit": agreed,
        "window": NONE if costs.window is None else cpu(costs.window) + costs.queued + agreed + costs.hop,
    }
