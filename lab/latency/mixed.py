"""Flows of one stream that promise different things: does it keep more rows in time to do each flow's part of
a chunk by itself, in the order of deadlines, than to do all flows of a chunk in one pass?

A stream task on virtual time (ms), with windows of a second. Chunks are read as agents do; of each line
something is done once (``SHARED_MS``), and something for each flow. A flow's window is there when all its
rows are done that are not left out; what its last chunk waits for is in it.

- ``weights``: all flows of a chunk in one pass, and rows are left out by weight, as agents do where promises
  are alike (``elf.planning.overload``);
- ``turns``: what a chunk has for each flow is a task, the earliest deadline is first, and most rows are left
  out of tasks that Algorithm 2 chooses, as agents do where promises differ (``elf.planning.turns``).

Both are the code that agents run.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import msgspec

from elf.planning.budgets import WEIGHT_MAX
from elf.planning.overload import LOOK_MS, FlowLoad, Lag, Overload
from elf.planning.turns import CUT_LAST, NEAR_MS, TURN_NEAR_MS, UNCUT, Bound, Postponed, Turns, length_ms

WINDOW_MS: Final = 1_000
GATHER_MS: Final = 200
LAST_MS: Final = 30
"""A chunk has the lines of so long at most, and the last one of a window where something is promised soon."""
SHARED_MS: Final = 0.01
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
    last = [WINDOW_MS - LAST_MS] if min(flow.within_ms for flow in load.flows) < WINDOW_MS else []
    ends = [*range(GATHER_MS, WINDOW_MS, GATHER_MS), *last, WINDOW_MS]
    looks = [0, *(WINDOW_MS * second + end for second in range(load.secs) for end in ends)]
    return [Chunk(n, begin, end, load.lines(begin, end)) for n, (begin, end) in enumerate(pairwise(looks))]


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


@dataclass(eq=False, kw_only=True)
class Part(Postponed):
    window: int


def by_turns(load: Load) -> Run:
    """A window may be sealed when it is over; nothing else is to be done until the next chunk."""
    run, turns, bounds = Run(load), Turns[Part](), [Bound(flow.within_ms, CUT_LAST) for flow in load.flows]
    coming, left = deque(chunks(load)), None
    """``left``: when the last turn began, and what it took, if it left more to do."""

    def offer(number: int, window: int, rows: int, due_ms: float, rank: int, weight: int) -> None:
        turns.offer(Part(str(number), number, rows, weight, due_ms, rank, window=window))

    while coming or len(turns):
        if coming and (run.now >= coming[0].end or not len(turns)):
            chunk = coming.popleft()
            run.now = max(run.now, float(chunk.end))
            run.works(SHARED_MS * chunk.lines)
            for number, bound in enumerate(bounds):
                due_ms = bound.due_ms(run.now, (chunk.window + 1) * WINDOW_MS)
                count = -(-chunk.lines // turns.part_rows(number))
                ends = [chunk.lines * n // count for n in range(count + 1)]
                for begin, end in pairwise(ends):
                    offer(number, chunk.window, end - begin, due_ms, bound.rank, 1)
            continue
        while (part := turns.missed(run.now)) is not None:
            turns.remove(part)
            offer(int(part.flow), part.window, part.rows // WEIGHT_MAX, part.due_ms, UNCUT, WEIGHT_MAX)
        if left is not None:
            turns.paced(left[1], run.now - left[0])
        over = run.now // WINDOW_MS * WINDOW_MS
        takes_ms, until_ms = length_ms(over + WINDOW_MS - run.now), math.inf
        if any(one.is_near(run.now, over) for one in bounds):
            takes_ms, until_ms = TURN_NEAR_MS, run.now + NEAR_MS
        began, some = run.now, turns.next(run.now, (), takes_ms, idle=True, until_ms=until_ms)
        number, rows = int(some[0].flow), sum(part.rows for part in some)
        cost = rows * load.flows[number].row_ms
        for part in some:
            turns.remove(part)
            run.does(number, part.window, part.rows, part.rows * load.flows[number].row_ms)
        turns.mapped(number, rows, cost)
        left = (began, cost) if len(turns) else None
    return run


POLICIES: Final[Mapping[str, Callable[[Load], Run]]] = {"weights": by_weights, "turns": by_turns}


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
