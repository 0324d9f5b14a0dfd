"""The node of ``lab.latency.pipeline`` by the model, and what follows from it: the highest rate within a
bound, and the setting that carries it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import product
from typing import Final

import numpy as np

from elf.planning.latency import (
    Moments,
    Service,
    batching,
    normal_quantile,
    queueing,
    shared_cpu,
    total,
    within_batch,
)
from lab.latency.pipeline import PHASES, WARM, Setting, Workload, simulate

THREADS: Final = (1, 2, 4)
LENGTHS_MS: Final = (10.0, 20.0, 50.0, 100.0, 200.0, 400.0, 1_000.0)
RULES: Final = tuple(
    Setting(4, 4, shuffle_ms, fetch_ms) for shuffle_ms, fetch_ms in product((10.0, 100.0, 1_000.0), repeat=2)
)
"""Table 4's nine."""
GROWS: Final = 0.01
STEPS: Final = 8
"""Of a search for a rate."""


def phases_of(workload: Workload, setting: Setting, rows_ms: float) -> dict[str, Moments]:
    """Raises ``ValueError`` where the rate is beyond what can be done."""
    mappers, reducers, cores = setting.mappers, setting.reducers, workload.cores
    flush_ms = max(setting.shuffle_ms, mappers * setting.batch_ms)
    fetch_ms = max(setting.fetch_ms, flush_ms / mappers)
    map_cores = rows_ms * workload.map_ms + workload.job_ms * (1 / setting.batch_ms + mappers / flush_ms)
    reduce_cores = rows_ms * workload.reduce_ms + workload.job_ms * reducers / fetch_ms
    busy = map_cores + reduce_cores
    if busy >= cores:
        raise ValueError(f"{busy:.2f} of {cores} cores")
    a_row = tuple(workload.map_ms**power for power in (1, 2, 3))
    map_others = (busy - map_cores / mappers) / cores
    mapping = _job(workload.job_ms, rows_ms * setting.batch_ms, a_row, cores, map_others)
    a_row = tuple(workload.moment(power) for power in (1, 2, 3))
    rows = rows_ms * fetch_ms / reducers
    reducing = _job(workload.job_ms, rows, a_row, cores, (busy - reduce_cores / reducers) / cores)
    sent_ms = rows_ms * setting.batch_ms * workload.row_bytes / workload.bytes_ms
    values = (
        batching(setting.batch_ms),
        queueing(_regular(mappers * setting.batch_ms), mapping),
        _moments(mapping),
        batching(setting.shuffle_ms),
        Moments(sent_ms),
        batching(setting.fetch_ms),
        queueing(_regular(fetch_ms), reducing),
        within_batch(_moments(reducing)),
    )
    return dict(zip(PHASES, values, strict=True))


def _job(job_ms: float, rows: float, a_row: tuple[float, ...], cores: int, others: float) -> Service:
    """How long a job takes with so many rows on average (Poisson), by the moments of what one costs."""
    slower = shared_cpu(Moments(1.0), cores, others).mean
    mean, variance, third = (rows * moment for moment in a_row)
    mean += job_ms
    second = variance + mean**2
    return Service(mean * slower, second * slower**2, (third + 3 * mean * variance + mean**3) * slower**3)


def _moments(of: Service) -> Moments:
    return Moments(of.first, of.second - of.first**2)


def _regular(apart: float) -> Service:
    return Service(apart, apart**2, apart**3)


# -- what follows --------------------------------------------------------------------------------------------

Latency = Callable[[float], float]
"""The mean latency at a rate; infinite beyond what can be done."""


def by_model(workload: Workload, setting: Setting, rows_ms: float) -> float:
    try:
        return total(phases_of(workload, setting, rows_ms).values()).mean
    except ValueError:
        return float("inf")


def by_simulation(workload: Workload, setting: Setting, seed: int, secs: float, rows_ms: float) -> float:
    """Infinite where a backlog grows: from the first third of the rows to the last they wait longer in
    queues, by more than ``GROWS`` of the time between."""
    took = simulate(workload, setting, rows_ms, secs, seed)
    queues = [place for place, name in enumerate(PHASES) if name.endswith("queue")]
    first, _, last = (float(one.sum(axis=1).mean()) for one in np.array_split(took[:, queues], 3))
    between_ms = (1 - WARM) * secs * 1e3 * 2 / 3
    return float("inf") if last - first > GROWS * between_ms else float(took.sum(axis=1).mean())


def highest(latency: Latency, bound_ms: float, most: float) -> float:
    """Λ: the highest rate (rows a ms) up to ``most`` whose latency is within the bound; 0: none is."""
    least = 0.0
    for _ in range(STEPS):
        middle = (least + most) / 2
        if latency(middle) <= bound_ms:
            least = middle
        else:
            most = middle
    return least


def best(
    workload: Workload, bound_ms: float, settings: Iterable[Setting] | None = None
) -> tuple[Setting, float]:
    """Θ: of all settings the one with the highest Λ by the model, and that; of equal ones the first."""
    if settings is None:
        pairs = product(THREADS, THREADS, LENGTHS_MS, LENGTHS_MS)
        settings = [Setting(*one) for one in pairs]
    limit = most_rows(workload)
    found = [(highest(partial(by_model, workload, one), bound_ms, limit), one) for one in settings]
    rate, setting = max(found, key=lambda one: one[0])
    return setting, rate


def most_rows(workload: Workload, setting: Setting | None = None) -> float:
    """Rows a ms that all cores, and all threads of a setting, could do if there were nothing but rows."""
    all_cores = workload.cores / (workload.map_ms + workload.reduce_ms)
    if setting is None:
        return all_cores
    return min(all_cores, setting.mappers / workload.map_ms, setting.reducers / workload.reduce_ms)


def p99(phases: Iterable[Moments]) -> float:
    return normal_quantile(total(phases), 0.99)
