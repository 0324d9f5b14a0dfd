"""Flows of one stream that promise different things: does it keep more rows in time to do each flow's part of
a chunk by itself, in the order of deadlines, than to do all flows of a chunk in one pass?

A stream task on virtual time (ms), with windows of a second. Chunks are read as agents do; of each line
something is done once (``SHARED_MS``), and something for each flow. A flow's window is there when all its
rows are done that are not left out; what its last chunk waits for is in it.

| policy | order | what is left out |
|---|---|---|
| ``weights`` | all flows of a chunk in one pass | rows by weight, as agents do (``elf.planning.overload``) |
| ``ordered`` | (chunk, flow) tasks, the earliest deadline first | the same, by the flow that is latest |
| ``cost-aware`` | the same | tasks by Algorithm 2, but for one row in ``WEIGHT_MAX`` for the others |

Tasks are cut into slices of ``SLICE_MS``, so that who is in a hurry waits for no more than one. What waits is
in memory: of ``ordered`` at most ``WAITING_ROWS``, beyond which the oldest is done first.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from elf.planning.budgets import WEIGHT_MAX
from elf.planning.overload import LOOK_MS, FlowLoad, Lag, Overload
from lab.latency.deadlines import Task, Tasks

WINDOW_MS: Final = 1_000
GATHER_MS: Final = 200
"""A chunk has the lines of so long, or those up to the end of a window."""
SHARED_MS: Final = 0.01
SLICE_MS: Final = 20.0
WAITING_ROWS: Final = 100_000
"""Of all flows together."""
LAG_MS: Final = 50.0
TOLD_MS: Final = 1_000


class Flow(msgspec.Struct, frozen=True):
    row_ms: float
    within_ms: float


class Load(msgspec.Struct, frozen=True):
    """``shape``: what comes by the second, of what can be done, in turns."""

    flows: tuple[Flow, ...]
    shape: tuple[float, ...]
    secs: int = 120

    @property
    def line_ms(self) -> float:
        return SHARED_MS + sum(flow.row_ms for flow in self.flows)

    def lines(self, begin: float, end: float) -> int:
        return round((end - begin) * self.shape[int(begin // 1_000) % len(self.shape)] / self.line_ms)


MIXES: Final[Mapping[str, tuple[Flow, ...]]] = {
    "alike": (Flow(0.01, 1_000),) * 6,
    "SQL within 0.1, 1 and 5 s": (Flow(0.002, 100), Flow(0.01, 1_000), Flow(0.02, 5_000)) * 2,
    "Python within 5 s": (Flow(0.002, 100), Flow(0.002, 100), Flow(0.005, 1_000), Flow(0.1, 5_000)),
    "Python within 0.2 s": (Flow(0.002, 5_000), Flow(0.002, 5_000), Flow(0.005, 1_000), Flow(0.1, 200)),
}
SHAPES: Final[Mapping[str, tuple[float, ...]]] = {
    "0.7": (0.7,),
    "1.4": (1.4,),
    "1.8": (1.8,),
    "2.4 for 2 s of 10, else 0.4": (2.4,) * 2 + (0.4,) * 8,
}


class Chunk(msgspec.Struct, frozen=True):
    number: int
    begin: int
    end: int
    lines: int

    @property
    def window(self) -> int:
        return self.begin // WINDOW_MS


def chunks(load: Load) -> list[Chunk]:
    begins = range(0, 1_000 * load.secs, GATHER_MS)
    return [
        Chunk(number, at, at + GATHER_MS, load.lines(at, at + GATHER_MS)) for number, at in enumerate(begins)
    ]


class Run:
    """What is done, and when: ``rows`` and ``ready`` of each (flow, window)."""

    def __init__(self, load: Load) -> None:
        self.load, self.now, self.busy = load, 0.0, 0.0
        self.rows: Counter[tuple[int, int]] = Counter()
        self.ready: dict[tuple[int, int], float] = {}
        self.spent = [0.0] * len(load.flows)
        self.given = [0] * len(load.flows)

    def works(self, ms: float) -> None:
        self.now += ms
        self.busy += ms

    def does(self, flow: int, window: int, rows: float, cost: float) -> None:
        self.works(cost)
        self.spent[flow] += cost
        self.rows[flow, window] += rows  # type: ignore[assignment]
        self.ready[flow, window] = self.now

    def in_time(self) -> float:
        """Pairs of windows that were there within what their flow promises."""
        return sum(
            rows
            for (flow, window), rows in self.rows.items()
            if self.ready[flow, window] <= (window + 1) * WINDOW_MS + self.load.flows[flow].within_ms
        )


class Weights:
    """The planner as an agent has it; ``within``: the promises that count when it looks."""

    def __init__(self, run: Run) -> None:
        self._run, self._overload = run, Overload()
        self._looked = self._told = 0.0
        self._least = float("inf")
        self._lag = Lag(0.0)
        self._before: list[tuple[float, int]] = [(0.0, 0)] * len(run.load.flows)

    def of(self, flow: int) -> int:
        return self._overload.weights.get(str(flow), 1)

    def see(self, lag: float, within: Callable[[Flow], float]) -> None:
        run = self._run
        self._least = min(self._least, lag)
        if run.now - self._told >= TOLD_MS:
            least = self._least if self._least >= LAG_MS else 0.0
            self._lag = Lag(least, run.busy, run.busy, int(run.now))
            self._told, self._least = run.now, float("inf")
        if run.now - self._looked < LOOK_MS:
            return
        self._looked, now = run.now, list(zip(run.spent, run.given, strict=True))
        loads = [
            FlowLoad(str(n), cpu - cpu0, within(run.load.flows[n]), rows=rows - rows0)
            for n, ((cpu, rows), (cpu0, rows0)) in enumerate(zip(now, self._before, strict=True))
        ]
        self._before = now
        self._overload.look(loads, self._lag, int(run.now))


def by_weights(load: Load) -> Run:
    run = Run(load)
    weights = Weights(run)
    for chunk in chunks(load):
        run.now = max(run.now, float(chunk.end))
        run.works(SHARED_MS * chunk.lines)
        done = []
        for number, flow in enumerate(load.flows):
            rows = chunk.lines / weights.of(number)
            run.given[number] += chunk.lines
            run.does(number, chunk.window, rows, rows * flow.row_ms)
            done.append((number, chunk.window))
        run.ready |= dict.fromkeys(done, run.now)  # one checkpoint for all
        weights.see(run.now - chunk.end, lambda flow: flow.within_ms)
    return run


def ordered(load: Load) -> Run:
    """Each flow has its tasks in the order in which they came."""
    run = Run(load)
    weights = Weights(run)
    coming, waiting = deque(chunks(load)), [deque[tuple[Chunk, float]]() for _ in load.flows]

    def deadline(number: int) -> tuple[float, int]:
        """Of those with one deadline who came first."""
        chunk, _ = waiting[number][0]
        return (chunk.window + 1) * WINDOW_MS + load.flows[number].within_ms, chunk.number

    while coming or any(waiting):
        if coming and (run.now >= coming[0].end or not any(waiting)):
            ages = [
                (run.now - tasks[0][0].end) / flow.within_ms if tasks else 0.0
                for flow, tasks in zip(load.flows, waiting, strict=True)
            ]
            worst = max(range(len(ages)), key=ages.__getitem__)
            bound = load.flows[worst].within_ms
            weights.see(ages[worst] * bound, lambda _, bound=bound: bound)  # type: ignore[misc]
            chunk = coming.popleft()
            run.now = max(run.now, float(chunk.end))
            run.works(SHARED_MS * chunk.lines)
            for number, tasks in enumerate(waiting):
                run.given[number] += chunk.lines
                tasks.append((chunk, chunk.lines / weights.of(number)))
        else:
            able = [number for number, tasks in enumerate(waiting) if tasks]
            full = sum(rows for tasks in waiting for _, rows in tasks) > WAITING_ROWS
            number = min(able, key=(lambda n: (0.0, waiting[n][0][0].number)) if full else deadline)
            chunk, rows = waiting[number].popleft()
            part = min(rows, SLICE_MS / load.flows[number].row_ms)
            run.does(number, chunk.window, part, part * load.flows[number].row_ms)
            if part < rows:
                waiting[number].appendleft((chunk, rows - part))
    return run


def cost_aware(load: Load) -> Run:
    """What is left of tasks that are left out is done in their turn."""
    run, tree = Run(load), Tasks()
    coming, parts = deque(chunks(load)), defaultdict[int, tuple[int, int, float]]()
    names = 0

    def cut(dropped: list[Task]) -> None:
        for task in dropped:
            number, window, rows = parts.pop(task.name)
            run.does(number, window, rows / WEIGHT_MAX, task.cost / WEIGHT_MAX)

    while coming or len(tree):
        if coming and (run.now >= coming[0].end or not len(tree)):
            chunk = coming.popleft()
            run.now = max(run.now, float(chunk.end))
            run.works(SHARED_MS * chunk.lines)
            new = []
            for number, flow in enumerate(load.flows):
                rows = float(chunk.lines)
                while rows > 0:
                    part = min(rows, SLICE_MS / flow.row_ms)
                    parts[names] = number, chunk.window, part
                    until = (chunk.window + 1) * WINDOW_MS + flow.within_ms
                    new.append(Task(part * flow.row_ms, until, names))
                    rows, names = rows - part, names + 1
            cut(tree.offer(new, run.now))
            continue
        cut(tree.offer((), run.now))
        if (task := tree.next()) is not None:
            number, window, rows = parts.pop(task.name)
            run.does(number, window, rows, task.cost)
    return run


POLICIES: Final[Mapping[str, Callable[[Load], Run]]] = {
    "weights": by_weights,
    "ordered": ordered,
    "cost-aware": cost_aware,
}


def bound(load: Load) -> float:
    """Pairs that no schedule can be above: the cheapest flows first, in all the time that there is."""
    lines = sum(chunk.lines for chunk in chunks(load))
    left = 1_000.0 * load.secs + max(flow.within_ms for flow in load.flows) - SHARED_MS * lines
    found = 0.0
    for flow in sorted(load.flows, key=lambda one: one.row_ms):
        able = min(float(lines), max(0.0, left) / flow.row_ms)
        found, left = found + able, left - able * flow.row_ms
    return found


def compared(load: Load) -> dict[str, Any]:
    """Of each policy: the pairs in time, of the bound."""
    most = bound(load)
    return {name: round(policy(load).in_time() / most, 3) for name, policy in POLICIES.items()}
