"""From what jobs take of an agent to the weights at which their flows are mapped there
(``elf.job.sampling``).

A *holder* of a budget is a job, a creator with all of their jobs, or the agent itself. What a flow takes is
divided among the jobs that read it. A holder that has taken more than its budget, in two looks in a row, has
its weight doubled; one that would take less than ``ROOM`` of it with twice as many rows, for ``CALM`` looks,
halved. So a budget is held within seconds, and given back within a minute. Nothing is left out in vain: where
what is never sampled takes more than a budget by itself, that budget has no rows left out.

Open panes beyond a budget of memory go to disk first (``elf.planning.memory``); what cannot, and what is on
disk, is judged like the rest. Bytes of a day are spread over it (``elf.planning.days``).

No job is read slower than another, since one pass over the lines serves all: a job over its budget is sampled
at once. An agent over its own is read slower first (``agents.tasks.allowance``), and sampled when that has
put it ``lag_ms`` behind and it does not catch up.

A flow is mapped at the least weight of its readers: nobody's rows are left out for the budget of somebody
else who reads the same. What has no estimate is mapped whole, whatever it takes; that is said."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from elf.planning.days import Day, paced
from elf.planning.lent import AGENT, NOTHING, Budget, Budgets, FlowUse, Holder, Reader, Told, Use, holders

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


@dataclass
class _Held:
    weight: int = 1
    uses: deque[Use] = field(default_factory=lambda: deque(maxlen=CALM))
    """Of the looks since the weight changed."""
    never: deque[Use] = field(default_factory=lambda: deque(maxlen=CALM))
    """What of them is never sampled."""
    last: Use = NOTHING
    whole: str = ""
    """Why its flows, or some, are never sampled."""

    def mean(self, last: int) -> Use:
        """What it took when it was last looked at, where the weight has just changed."""
        return _mean(list(self.uses)[-last:]) if self.uses else self.last

    def can_be(self, budget: Budget, last: int) -> float:
        """How much it takes of what weights can hold it to."""
        return budget.part(self.mean(last), _mean(list(self.never)[-last:]))

    def turn(self, weight: int) -> None:
        self.weight = weight
        self.uses.clear()
        self.never.clear()


def _mean(some: Sequence[Use]) -> Use:
    return Use(*(sum(part) / len(some) for part in zip(*some, strict=True)))


def _use(flow: FlowUse, cpu_share: float, up_bytes_per_sec: float) -> Use:
    """By one of its readers."""
    held, among = flow.held, max(len(flow.readers), 1)
    disk = (held.spilled_bytes + held.other_disk_bytes) / among
    held_by = (held.pinned_bytes / among, disk, held.memory_bytes / among, held.spilled_bytes / among)
    return Use(cpu_share, up_bytes_per_sec, *held_by)


class BudgetKeeper:
    """Of one agent."""

    def __init__(self, budgets: Budgets, day: Day | None = None) -> None:
        """``day``: what has gone up today by an earlier life's account."""
        self.budgets = budgets
        self.day = day or Day()
        self._up: Mapping[str, int] = {}
        """Since the last look, by holders with a budget by the day."""
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
        return self.budgets.bounds or self._weight > 1

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
        self.day.add(self._up, now_ms)
        for holder, (use, never) in uses.items():
            self._judge(holder, use, never, now_ms)
        self._held = {holder: held for holder, held in self._held.items() if holder in uses}
        return {flow.uid: self._wanted(flow) for flow in flows}

    def _uses(self, flows: Sequence[FlowUse], after_ms: int | None) -> dict[Holder, tuple[Use, Use]]:
        """What holders take, and what of it is never sampled."""
        before, self._taken = self._taken, {flow.uid: (flow.cpu_us, flow.up_bytes) for flow in flows}
        if not after_ms:
            return {}
        uses, never = defaultdict[Holder, Use](lambda: NOTHING), defaultdict[Holder, Use](lambda: NOTHING)
        whole, up = dict[Holder, str](), Counter[Holder]()
        for flow in flows:
            cpu_us, up_bytes = self._share(flow, before)
            use = _use(flow, cpu_us / after_ms / 1e3, up_bytes / after_ms * 1e3)
            for reader in flow.readers:
                for holder in holders(reader.job, reader.creator):
                    uses[holder] = uses[holder].plus(use)
                    never[holder] = never[holder].plus(use, flow.is_whole)
                    whole[holder] = reader.whole or whole.get(holder, "")
                    up[holder] += up_bytes
        for holder, why in whole.items():
            if self.budgets.of(holder).bounds and len(self._held) < HOLDERS_MAX:
                self._held.setdefault(holder, _Held()).whole = why
        self._up = {str(holder): up[holder] for holder in self._held if self._by_day(holder)}
        return {one: (uses[one], never[one]) for one in self._held if one in whole}

    def _share(self, flow: FlowUse, before: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
        """CPU time (µs) and bytes up since the last look, of each of its readers."""
        cpu_us, up_bytes = before.get(flow.uid, (flow.cpu_us, flow.up_bytes))
        among = max(len(flow.readers), 1)
        return max(flow.cpu_us - cpu_us, 0) // among, max(flow.up_bytes - up_bytes, 0) // among

    def _by_day(self, holder: Holder) -> int:
        return self.budgets.of(holder).up_bytes_per_day

    def _of_now(self, holder: Holder, now_ms: int) -> Budget:
        """Its budget, with what a day's bytes leave for a second of now."""
        budget = self.budgets.of(holder)
        pace = paced(budget.up_bytes_per_day, self.day.of(str(holder)), now_ms)
        if pace is None:
            return budget
        most = max(int(pace), 1)
        return replace(budget, up_bytes_per_sec=min(budget.up_bytes_per_sec or most, most))

    def _judge(self, holder: Holder, use: Use, never: Use, now_ms: int) -> None:
        budget, held = self._of_now(holder, now_ms), self._held[holder]
        held.last = use
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
        held, today = self._held[holder], self.day.of(str(holder))
        return Told(holder, self.use(holder), self.budgets.of(holder), held.weight, held.whole, today)

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
        return told if told.weight > 1 or told.is_over else None
