"""From what jobs take of an agent to the weights at which their flows are mapped there
(``elf.job.sampling``).

A *holder* of a budget is a job, a creator with all of their jobs, or the agent itself. What a flow takes is
divided among the jobs that read it. A holder that has taken more than its budget, in two looks in a row, has
its weight doubled; one that would take less than ``ROOM`` of it with twice as many rows, for ``CALM`` looks,
halved. So a budget is held within seconds, and given back within a minute. Nothing is left out in vain: where
what is never sampled takes more than a budget by itself, that budget has no rows left out.

No job is read slower than another, since one pass over the lines serves all: a job over its budget is sampled
at once. An agent over its own is read slower first (``agents.tasks.allowance``), and sampled when that has
put it ``lag_ms`` behind and it does not catch up.

A flow is mapped at the least weight of its readers: nobody's rows are left out for the budget of somebody
else who reads the same. What has no estimate is mapped whole, whatever it takes; that is said."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

WEIGHT_MAX: Final = 64
"""One row in so many, at least, is always mapped."""
LOOK_MS: Final = 5_000
"""Between two looks at what flows have taken."""
OVER: Final = 2
"""So many looks in a row tell that a holder is over its budget."""
CALM: Final = 6
"""So many, that it may have more rows."""
ROOM: Final = 0.8
HOLDERS_MAX: Final = 4_096
"""Holders that are looked at: those that take most."""


class Use(NamedTuple):
    """What a holder takes, by the second."""

    cpu_share: float
    up_bytes_per_sec: float


NOTHING: Final = Use(0.0, 0.0)


@dataclass(frozen=True)
class Budget:
    """What a holder may take of an agent; 0: no bound. ``cpu_share``: of one core, by stream tasks and for
    jobs in Python; ``up_bytes_per_sec``: of partial aggregates, on their way up."""

    cpu_share: float = 0.0
    up_bytes_per_sec: int = 0

    @property
    def bounds(self) -> bool:
        return self.cpu_share > 0 or self.up_bytes_per_sec > 0

    @property
    def said(self) -> str:
        """In words."""
        cpu = f"{self.cpu_share:.2%} of a core" if self.cpu_share else ""
        up = f"{self.up_bytes_per_sec:,} bytes up a second" if self.up_bytes_per_sec else ""
        return " and ".join(filter(None, (cpu, up)))

    def part(self, use: Use, never: Use = NOTHING) -> float:
        """How much of the budget that is; 1: all. ``never``: what of it is never sampled. A bound that this
        alone is over, so that no weight can hold it, is then passed over."""
        bounds = zip((self.cpu_share, self.up_bytes_per_sec), use, never, strict=True)
        return max((took / most for most, took, alone in bounds if most and alone <= most), default=0.0)


@dataclass(frozen=True)
class Budgets:
    """``job``, ``creator``: of each; ``jobs`` (``creator/name``), ``creators``: of some, in their place.
    ``lag_ms``: how far reading may be behind before the agent's own budget has rows left out; 0: they never
    are.
    """

    job: Budget = field(default_factory=Budget)
    creator: Budget = field(default_factory=Budget)
    jobs: Mapping[str, Budget] = field(default_factory=dict)
    creators: Mapping[str, Budget] = field(default_factory=dict)
    lag_ms: int = 60_000

    def of(self, holder: Holder) -> Budget:
        one, each = (self.jobs, self.job) if holder.kind == "job" else (self.creators, self.creator)
        return one.get(holder.name, each)


class Holder(NamedTuple):
    """Of a budget. ``name``: of a job ``creator/name``, since two creators may have jobs of one name."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


AGENT: Final = Holder("the", "agent")


def holders(job: str, creator: str) -> tuple[Holder, Holder]:
    """The job, and its creator."""
    return Holder("job", f"{creator}/{job}"), Holder("creator", creator)


class Reader(NamedTuple):
    """A job that reads a flow. ``whole``: why no row of it is left out, if none is."""

    job: str
    creator: str
    whole: str = ""


class FlowUse(NamedTuple):
    """What a flow, or a job in Python, has taken so far."""

    uid: str
    cpu_us: int
    up_bytes: int
    readers: tuple[Reader, ...]

    @property
    def is_whole(self) -> bool:
        """Whether none of its rows is ever left out."""
        return any(reader.whole for reader in self.readers)


@dataclass
class _Held:
    weight: int = 1
    uses: deque[Use] = field(default_factory=lambda: deque(maxlen=CALM))
    """Of the looks since the weight changed."""
    never: deque[Use] = field(default_factory=lambda: deque(maxlen=CALM))
    """What of them is never sampled."""
    whole: str = ""
    """Why its flows, or some, are never sampled."""

    def mean(self, last: int) -> Use:
        """Nothing where it was not looked at."""
        return _mean(list(self.uses)[-last:]) if self.uses else NOTHING

    def can_be(self, budget: Budget, last: int) -> float:
        """How much it takes of what weights can hold it to."""
        return budget.part(self.mean(last), _mean(list(self.never)[-last:]))

    def turn(self, weight: int) -> None:
        self.weight = weight
        self.uses.clear()
        self.never.clear()


def _mean(some: Sequence[Use]) -> Use:
    return Use(
        sum(use.cpu_share for use in some) / len(some),
        sum(use.up_bytes_per_sec for use in some) / len(some),
    )


class Told(NamedTuple):
    """How a holder is with its budget, for people."""

    holder: Holder
    use: Use
    budget: Budget
    weight: int
    whole: str

    @property
    def said(self) -> str:
        """In a clause."""
        parts = []
        if self.budget.cpu_share:
            parts.append(f"{self.use.cpu_share:.1%} of {self.budget.cpu_share:.1%} of a core")
        if self.budget.up_bytes_per_sec:
            parts.append(
                f"{self.use.up_bytes_per_sec:,.0f} of {self.budget.up_bytes_per_sec:,} bytes up a second"
            )
        if not parts:
            return f"{self.holder} counts one row in {self.weight}"
        said = f"{self.holder} takes {' and '.join(parts)} of this agent"
        if self.weight > 1:
            said += f", with one row in {self.weight}"
        if self.whole and self.budget.part(self.use) > 1:
            said += f"; not sampled is what {self.whole}"
        return said

    def shown(self) -> dict[str, object]:
        """For programs."""
        return {
            "whose": str(self.holder),
            "cpu_share": round(self.use.cpu_share, 4),
            "cpu_share_max": self.budget.cpu_share,
            "up_bytes_per_sec": round(self.use.up_bytes_per_sec),
            "up_bytes_per_sec_max": self.budget.up_bytes_per_sec,
            "weight": self.weight,
            "whole": self.whole,
        }


class BudgetKeeper:
    """Of one agent."""

    def __init__(self, budgets: Budgets) -> None:
        self.budgets = budgets
        self._taken: dict[str, tuple[int, int]] = {}
        self._looked_ms: int | None = None
        self._held: dict[Holder, _Held] = {}
        self._weight = 1
        """The agent's own."""
        self._lag_ms = self._turned_lag_ms = 0
        self._turned_ms = self._lagged_ms = -(1 << 62)

    @property
    def bounds(self) -> bool:
        """Whether anybody has a budget, or rows are left out."""
        known = self.budgets
        each = (known.job, known.creator, *known.jobs.values(), *known.creators.values())
        return any(one.bounds for one in each) or self._weight > 1

    def waited(self, lag_ms: int, now_ms: int) -> None:
        """Reading has waited for the agent's own budget, and is so far behind."""
        self._lag_ms = lag_ms
        most = self.budgets.lag_ms
        if not most or lag_ms < most:
            return
        self._lagged_ms = now_ms
        if lag_ms > self._turned_lag_ms and now_ms - self._turned_ms >= OVER * LOOK_MS:
            self._weight = min(2 * self._weight, WEIGHT_MAX)
            self._turned_ms, self._turned_lag_ms = now_ms, lag_ms

    def due(self, now_ms: int) -> bool:
        return self._looked_ms is None or now_ms - self._looked_ms >= LOOK_MS

    def look(self, flows: Sequence[FlowUse], now_ms: int) -> dict[str, tuple[int, str]]:
        """What flows have taken; the weight of each from now on, and whose budget that is."""
        after_ms = None if self._looked_ms is None else now_ms - self._looked_ms
        uses = self._uses(flows, after_ms)
        self._looked_ms = now_ms
        self._calm(now_ms)
        for holder, (use, never) in uses.items():
            self._judge(holder, use, never)
        self._held = {holder: held for holder, held in self._held.items() if holder in uses}
        return {flow.uid: self._wanted(flow) for flow in flows}

    def _uses(self, flows: Sequence[FlowUse], after_ms: int | None) -> dict[Holder, tuple[Use, Use]]:
        """What holders take, and what of it is never sampled."""
        cpu, up, whole = Counter[Holder](), Counter[Holder](), dict[Holder, str]()
        never_cpu, never_up = Counter[Holder](), Counter[Holder]()
        for flow in flows:
            before = self._taken.get(flow.uid, (flow.cpu_us, flow.up_bytes))
            cpu_us = max(flow.cpu_us - before[0], 0) // max(len(flow.readers), 1)
            up_bytes = max(flow.up_bytes - before[1], 0) // max(len(flow.readers), 1)
            is_whole = flow.is_whole
            for reader in flow.readers:
                for holder in holders(reader.job, reader.creator):
                    cpu[holder] += cpu_us
                    up[holder] += up_bytes
                    never_cpu[holder] += cpu_us * is_whole
                    never_up[holder] += up_bytes * is_whole
                    whole[holder] = reader.whole or whole.get(holder, "")
        self._taken = {flow.uid: (flow.cpu_us, flow.up_bytes) for flow in flows}
        if not after_ms:
            return {}
        for holder, why in whole.items():
            if self.budgets.of(holder).bounds and len(self._held) < HOLDERS_MAX:
                self._held.setdefault(holder, _Held()).whole = why
        return {
            one: (
                Use(cpu[one] / after_ms / 1e3, up[one] / after_ms * 1e3),
                Use(never_cpu[one] / after_ms / 1e3, never_up[one] / after_ms * 1e3),
            )
            for one in self._held
            if one in whole
        }

    def _judge(self, holder: Holder, use: Use, never: Use) -> None:
        budget, held = self.budgets.of(holder), self._held[holder]
        held.uses.append(use)
        held.never.append(never)
        if len(held.uses) >= OVER and held.can_be(budget, OVER) > 1 and held.weight < WEIGHT_MAX:
            held.turn(2 * held.weight)
        elif held.weight > 1 and len(held.uses) >= CALM and 2 * held.can_be(budget, CALM) < ROOM:
            held.turn(held.weight // 2)

    def _calm(self, now_ms: int) -> None:
        """Reading that is no longer behind has more rows again."""
        if self._weight > 1 and now_ms - max(self._lagged_ms, self._turned_ms) >= CALM * LOOK_MS:
            self._weight //= 2
            self._turned_ms, self._turned_lag_ms = now_ms, 0

    def _wanted(self, flow: FlowUse) -> tuple[int, str]:
        """The weight of its most generous reader; none of it is sampled where one has no estimate."""
        if not flow.readers or flow.is_whole:
            return 1, ""
        return min((self._of_reader(reader) for reader in flow.readers), key=lambda one: one[0])

    def _of_reader(self, reader: Reader) -> tuple[int, str]:
        both = holders(reader.job, reader.creator)
        found = [(held.weight, str(holder)) for holder in both if (held := self._held.get(holder))]
        weight, whose = max([(1, ""), (self._weight, str(AGENT)), *found], key=lambda one: one[0])
        return weight, whose if weight > 1 else ""

    def over_budget(self) -> int:
        """How many holders have rows left out."""
        return sum(held.weight > 1 for held in self._held.values()) + (self._weight > 1)

    def told(self) -> list[Told]:
        """All holders, those that are over first."""
        found = [self._told(holder) for holder in self._held]
        if self._weight > 1:
            found.append(Told(AGENT, NOTHING, Budget(), self._weight, ""))
        return sorted(found, key=lambda one: (-one.weight, -one.budget.part(one.use), one.holder))

    def _told(self, holder: Holder) -> Told:
        held = self._held[holder]
        return Told(holder, self.use(holder), self.budgets.of(holder), held.weight, held.whole)

    def use(self, holder: Holder) -> Use:
        """What a holder takes; nothing is known of one without a budget."""
        held = self._held.get(holder)
        return NOTHING if held is None else held.mean(OVER)

    def over(self, creator: str) -> Told | None:
        """How a creator is, who has a budget and takes all of it, or more."""
        holder = Holder("creator", creator)
        if holder not in self._held:
            return None
        told = self._told(holder)
        return told if told.weight > 1 or told.budget.part(told.use) > 1 else None
