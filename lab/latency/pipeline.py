"""One node of the paper's: rows come one by one, are gathered in batches, mapped, shuffled, fetched and
reduced; all its threads share its cores.

    row ─ batch ─ queue ─ map ─ shuffle ─ network ─ fetch ─ queue ─ reduce ─▶ done

Each mapper and reducer is a thread that does one job at a time, in order. With more threads at work than
cores each gets an equal share. A mapper hands its rows on when the batch is done. A reducer does those of a
fetch one by one, by key and so in no order of time. Times are ms.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

import msgspec
import numpy as np

PHASES: Final = ("batch", "map queue", "map", "shuffle", "network", "fetch", "reduce queue", "reduce")
MEMORY_MS: Final = 0.002
DISK_MS: Final = (0.01, 0.1)
DRIFT: Final = 1.013
"""Clocks of fetches go so much slower than those of flushes, as clocks do: in step they would see only some
of the waits that there are."""
WARM: Final = 0.2
"""The share of the rows, from the first on, that are not looked at."""


class Workload(msgspec.Struct, frozen=True):
    """``map_ms`` a row; ``memory``: the share of rows whose key is in memory, the others are on disk;
    ``row_bytes`` on the network, which takes ``bytes_ms``; ``job_ms``: CPU of a batch, flush or fetch beside
    its rows."""

    map_ms: float = 0.01
    memory: float = 0.5
    row_bytes: int = 100
    bytes_ms: float = 100_000.0
    job_ms: float = 1.0
    cores: int = 4

    def costs(self, rng: np.random.Generator, rows: int) -> np.ndarray:
        """Of reducing rows."""
        disk = rng.uniform(*DISK_MS, rows)
        return np.where(rng.random(rows) < self.memory, MEMORY_MS, disk)

    def moment(self, power: int) -> float:
        """Of what reducing a row costs."""
        least, most = (end ** (power + 1) for end in DISK_MS)
        disk = (most - least) / ((power + 1) * (DISK_MS[1] - DISK_MS[0]))
        return self.memory * MEMORY_MS**power + (1 - self.memory) * float(disk)

    @property
    def reduce_ms(self) -> float:
        return self.moment(1)


class Setting(msgspec.Struct, frozen=True):
    """θ: threads, and how long rows gather, at the source, before the shuffle, and between two fetches."""

    mappers: int
    reducers: int
    shuffle_ms: float
    fetch_ms: float
    batch_ms: float = 5.0


class _Job(msgspec.Struct):
    work: float
    rows: list[np.ndarray]
    begun: float = 0.0

    def all_rows(self) -> np.ndarray:
        return np.concatenate(self.rows)


class Node:
    """Threads that share cores. ``done`` is told of each job at its end, and may give more of them."""

    def __init__(self, cores: int, threads: int, done: Callable[[int, _Job, float], None]) -> None:
        self._cores = cores
        self._queues: list[deque[_Job]] = [deque() for _ in range(threads)]
        self._left: dict[int, float] = {}
        self._later: list[tuple[float, int, int, _Job]] = []
        self._given = 0
        self._done = done

    def give(self, at: float, thread: int, job: _Job) -> None:
        self._given += 1
        heappush(self._later, (at, self._given, thread, job))

    def run(self) -> None:
        now = 0.0
        while self._later or self._left:
            share = min(1.0, self._cores / len(self._left)) if self._left else 1.0
            ends = now + min(self._left.values()) / share if self._left else float("inf")
            until = min(ends, self._later[0][0]) if self._later else ends
            for thread in self._left:
                self._left[thread] -= (until - now) * share
            now = until
            if now == ends:
                thread = min(self._left, key=lambda one: self._left[one])
                job = self._queues[thread].popleft()
                del self._left[thread]
                self._begin(thread, now)
                self._done(thread, job, now)
            else:
                _, _, thread, job = heappop(self._later)
                self._queues[thread].append(job)
                if thread not in self._left:
                    self._begin(thread, now)

    def _begin(self, thread: int, now: float) -> None:
        if self._queues[thread]:
            job = self._queues[thread][0]
            job.begun, self._left[thread] = now, job.work


def simulate(workload: Workload, setting: Setting, rows_ms: float, secs: float, seed: int) -> np.ndarray:
    """The length of each phase of each row (rows × phases), without the first of them."""
    rng = np.random.default_rng(seed)
    count = int(rng.poisson(rows_ms * secs * 1e3))
    came = np.sort(rng.random(count)) * secs * 1e3
    costs, reducer_of = workload.costs(rng, count), rng.integers(setting.reducers, size=count)
    at = np.zeros((len(PHASES) + 1, count))
    at[0] = came
    phases = np.concatenate([_apart(setting.mappers, rng), _apart(setting.reducers, rng)])
    fetches: dict[tuple[int, float], _Job] = {}
    flushes: set[tuple[int, float]] = set()

    def mapped(mapper: int, job: _Job, now: float) -> None:
        rows = job.all_rows()
        at[2, rows], at[3, rows] = job.begun, now
        tick = _tick(now, setting.shuffle_ms, phases[mapper])
        there = tick + len(rows) * workload.row_bytes / workload.bytes_ms
        at[4, rows], at[5, rows] = tick, there
        if (mapper, tick) not in flushes:
            flushes.add((mapper, tick))
            node.give(tick, mapper, _Job(workload.job_ms, []))
        for reducer in range(setting.reducers):
            mine = rows[reducer_of[rows] == reducer]
            if len(mine):
                fetch(reducer, mine, there)

    def fetch(reducer: int, rows: np.ndarray, there: float) -> None:
        tick = _tick(there, DRIFT * setting.fetch_ms, phases[setting.mappers + reducer])
        at[6, rows] = tick
        job = fetches.get((reducer, tick))
        if job is None:
            job = fetches[reducer, tick] = _Job(workload.job_ms, [])
            node.give(tick, setting.mappers + reducer, job)
        job.rows.append(rows)
        job.work += float(costs[rows].sum())

    def reduced(job: _Job, now: float) -> None:
        rows = rng.permutation(job.all_rows())
        at[7, rows] = job.begun
        done = (np.cumsum(costs[rows]) + workload.job_ms) / job.work
        at[8, rows] = job.begun + (now - job.begun) * done

    def done(thread: int, job: _Job, now: float) -> None:
        if thread >= setting.mappers:
            reduced(job, now)
        elif job.rows:
            mapped(thread, job, now)

    node = Node(workload.cores, setting.mappers + setting.reducers, done)
    batch_of = (came // setting.batch_ms).astype(np.int64)
    for batch in np.unique(batch_of):
        rows = np.arange(*np.searchsorted(batch_of, [batch, batch + 1]))
        ready = (batch + 1) * setting.batch_ms
        at[1, rows] = ready
        work = workload.job_ms + len(rows) * workload.map_ms
        node.give(ready, int(batch) % setting.mappers, _Job(work, [rows]))
    node.run()
    return np.diff(at, axis=0).T[int(WARM * count) :]


def _apart(threads: int, rng: np.random.Generator) -> np.ndarray:
    """When the clocks of so many threads tick, as shares of their period: all over it."""
    return (np.arange(threads) + rng.random()) / threads


def _tick(at: float, every: float, phase: float) -> float:
    """The first one from then on."""
    return float((np.ceil(at / every - phase) + phase) * every)
