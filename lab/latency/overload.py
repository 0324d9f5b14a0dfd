"""Rows that come faster than they can be done, each with a deadline: how many of them are done in time.

One server, nothing is given up half-way. Rows come in batches; what a row costs is known by its class, on
average, and drawn. Deadlines are rounded down to a tenth of the bound (4.3). Times are ms.

The *oracle's* share is a bound that no schedule can be above: the cheapest rows, as many as fit into the
whole time, whenever they came.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import Any, Final, Protocol

import msgspec
import numpy as np

from elf.planning.deadlines import Task, Tasks

GRAINS: Final = 10
"""Deadlines within the bound."""


class Overload(msgspec.Struct, frozen=True, kw_only=True):
    """``classes``: (share of the rows, least and greatest cost). ``factor``: what comes over what can be
    done."""

    classes: tuple[tuple[float, float, float], ...]
    factor: float
    bound_ms: float = 500.0
    batch_ms: float = 5.0
    secs: float = 4.0

    @property
    def cost(self) -> float:
        return sum(share * (least + most) / 2 for share, least, most in self.classes)


class Policy(Protocol):
    def offer(self, tasks: Iterable[Task], now: float) -> None:
        """A batch has come."""

    def next(self, now: float) -> Task | None:
        """The task to do now."""


class Edf:
    """The earliest deadline first; what cannot be done in time any more is left out."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Task]] = []

    def offer(self, tasks: Iterable[Task], now: float) -> None:
        self._heap += ((task.deadline, task.name, task) for task in tasks)
        heapify(self._heap)

    def next(self, now: float) -> Task | None:
        while self._heap:
            _, _, task = heappop(self._heap)
            if now + task.cost <= task.deadline:
                return task
        return None


class CostAware:
    """Algorithm 2."""

    def __init__(self) -> None:
        self._tasks = Tasks()

    def offer(self, tasks: Iterable[Task], now: float) -> None:
        self._tasks.offer(tasks, now)

    def next(self, now: float) -> Task | None:
        self._tasks.offer((), now)
        return self._tasks.next()


class DOver:
    """D-over (Koren and Shasha, 1995), for tasks that are worth one each and whose deadlines come in order.

    Tasks that can all be done are *privileged*, and done by EDF; others wait. A waiting task whose last
    moment has come is done at once if it is worth more than (1 + √k) times all privileged ones, and is given
    up otherwise; k: the greatest value of a unit of time over the least. When no privileged task is left, the
    waiting ones have their turn.
    """

    def __init__(self, ratio: float) -> None:
        self._worth = 1 + math.sqrt(ratio)
        self._edf: list[tuple[float, int, Task]] = []
        self._sum = 0.0
        self._others: list[tuple[float, int, Task]] = []
        """By the last moment at which they can begin."""

    def offer(self, tasks: Iterable[Task], now: float) -> None:
        for task in tasks:
            self._admit(task, now)

    def _admit(self, task: Task, now: float) -> None:
        if now + self._sum + task.cost <= task.deadline:
            self._sum += task.cost
            heappush(self._edf, (task.deadline, task.name, task))
        else:
            heappush(self._others, (task.deadline - task.cost, task.name, task))

    def next(self, now: float) -> Task | None:
        while self._others and self._others[0][0] <= now:
            _, _, task = heappop(self._others)
            if self._is_worth_it(now, task):
                return task
        while not self._edf and self._others:
            waiting, self._others = self._others, []
            for _, _, task in sorted(waiting, key=lambda one: (one[2].deadline, one[1])):
                self._admit(task, now)
            if not self._edf:
                return None
        while self._edf:
            _, _, task = heappop(self._edf)
            self._sum -= task.cost
            if now + task.cost <= task.deadline:
                return task
        return None

    def _is_worth_it(self, now: float, task: Task) -> bool:
        privileged = len(self._edf)
        return now + task.cost <= task.deadline and self._worth * privileged < 1


def policies(load: Overload) -> dict[str, Policy]:
    least = min(one[1] for one in load.classes)
    most = max(one[2] for one in load.classes)
    return {"edf": Edf(), "cost-aware": CostAware(), "d-over": DOver(most / least)}


def run(load: Overload, seed: int) -> dict[str, Any]:
    """The share of the rows that is done in time, by each policy, and of what the oracle could do; and CPU of
    the scheduler for a task (µs)."""
    batches, costs = _drawn(load, seed)
    bound = oracle(costs, load.secs * 1e3 + load.bound_ms)
    found: dict[str, Any] = {"rows": len(costs), "oracle": bound / len(costs)}
    for name, policy in policies(load).items():
        done, cpu_s = _done(load, policy, batches, costs)
        found[name] = {
            "share": done / len(costs),
            "of_oracle": done / bound,
            "scheduler_us_a_task": 1e6 * cpu_s / len(costs),
        }
    return found


def oracle(costs: np.ndarray, time_ms: float) -> int:
    return int(np.searchsorted(np.cumsum(np.sort(costs)), time_ms, side="right"))


def _drawn(load: Overload, seed: int) -> tuple[list[list[Task]], np.ndarray]:
    """By batch, and what each row really costs."""
    rng = np.random.default_rng(seed)
    grain = load.bound_ms / GRAINS
    each = load.factor * load.batch_ms / load.cost
    shares = np.array([one[0] for one in load.classes])
    batches, costs = list[list[Task]](), list[np.ndarray]()
    name = 0
    for batch in range(int(load.secs * 1e3 / load.batch_ms)):
        count = int(rng.poisson(each))
        kinds = rng.choice(len(shares), count, p=shares / shares.sum())
        came = np.sort(rng.random(count)) * load.batch_ms + batch * load.batch_ms
        least, most = np.array([one[1:] for one in load.classes])[kinds].T if count else (came, came)
        costs.append(rng.uniform(least, most))
        deadlines = np.floor((came + load.bound_ms) / grain) * grain
        batches.append(
            [
                Task(float(cost), float(deadline), name + place)
                for place, (cost, deadline) in enumerate(zip((least + most) / 2, deadlines, strict=True))
            ]
        )
        name += count
    return batches, np.concatenate(costs)


def _done(load: Overload, policy: Policy, batches: list[list[Task]], costs: np.ndarray) -> tuple[int, float]:
    """Rows in time, and CPU of the policy in seconds."""
    now, came, done = 0.0, 0, 0
    began = time.process_time()
    while True:
        while came < len(batches) and (came + 1) * load.batch_ms <= now:
            policy.offer(batches[came], now)
            came += 1
        task = policy.next(now)
        if task is not None:
            now += float(costs[task.name])
            done += int(now <= task.deadline)
        elif came < len(batches):
            now = (came + 1) * load.batch_ms
        else:
            return done, time.process_time() - began
