"""What jobs take of this agent, against the budgets that its owner has set (``elf.planning.budgets``), and
against what they promise (``elf.planning.overload``): the weights at which flows are mapped here."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from agents.node.beginning import TODAY_FACT, Context
from elf.fields import replace
from elf.job.commands import SetBounds, SetMemory, SetWeights
from elf.job.effects import SaveFact, Work
from elf.job.rollup.sender import Sender
from elf.job.sampling import why_plan_whole
from elf.job.spec import flow_uid
from elf.job.work import BudgetWork
from elf.planning.budgets import BudgetKeeper
from elf.planning.days import Day
from elf.planning.lent import AGENT, Budgets, FlowUse, Held, Reader, holders
from elf.planning.memory import memory_bounds
from elf.planning.overload import LOOK_MS, FlowLoad, Lag, Overload
from elf.planning.rests import Rest
from elf.planning.turns import CUT_FIRST, CUT_LAST, GRAINS, RESTS_MOST, UNCUT, Bound, differ

PYTHON = "is in Python"
REMEMBER_MS = 60_000
"""A crash forgets what has gone up since the last time, at most."""
Weight = tuple[int, str]
"""And whose budget, or promise, that is."""
WHOLE: Weight = (1, "")
Promised = tuple[float, str]
"""Within how many ms, and whose promise that is."""
NO_PROMISE: Promised = (0.0, "")


class Agreed(NamedTuple):
    """What the readers of a flow have agreed to: the tightest of their promises, if they have any; whether
    rows may be left out; whether that may be first."""

    promise: Promised | None
    is_able: bool
    gives_way: bool

    def load(self, uid: str, cpu_ms: float, rows: int) -> FlowLoad:
        within_ms = self.promise[0] if self.promise else None
        return FlowLoad(uid, cpu_ms, within_ms, self.is_able, self.gives_way, rows)

    def bound(self, tightest: Promised, rest_ms: int) -> Bound:
        """``tightest``: the promise that the flow gives way to, if it promises nothing itself; ``rest_ms``:
        what comes after the flow."""
        rank = UNCUT if not self.is_able else CUT_FIRST if self.gives_way else CUT_LAST
        if self.promise is None:
            return Bound(None, rank, tightest[1])
        within_ms, whose = self.promise
        grain = within_ms / GRAINS
        return Bound(within_ms, rank, whose, min(math.ceil(rest_ms / grain) * grain, within_ms))


def _tightest(flows: Mapping[str, Agreed]) -> Promised | None:
    """Of promises of flows whose rows may be left out, or else of all; None: nothing is promised."""
    promised = sorted((not one.is_able, one.promise) for one in flows.values() if one.promise)
    return promised[0][1] if promised else None


def _bounds(flows: Mapping[str, Agreed], rest: Callable[[str], Rest]) -> dict[str, Bound]:
    """None where all promise the same, or nothing."""
    tightest = _tightest(flows)
    bounds = {uid: one.bound(tightest, rest(uid).ms) for uid, one in flows.items()} if tightest else {}
    return bounds if differ(bounds) else {}


class Lending:
    """``keeper`` decides for budgets; here is what it needs to know, and what becomes of it. ``lags``: how
    far behind streams are, for promises. A flow has the higher weight of both."""

    def __init__(self, context: Context, sender: Sender, budgets: Budgets, up_today: bytes = b"") -> None:
        self._me, self._log = context.me.address, context.log
        self._sender = sender
        self.keeper = BudgetKeeper(budgets, Day.restored(up_today))
        self.lags: dict[str, Lag] = {}
        self._overloads: dict[str, Overload] = {}
        self._spent: dict[str, dict[str, tuple[int, int]]] = {}
        """By stream and flow: µs of CPU, and rows."""
        self._lent: dict[str, Weight] = {}
        self._late: dict[str, dict[str, Weight]] = {}
        """By stream."""
        self._said: dict[str, Weight] = {}
        self._bounds: dict[str, int] = {}
        """What flows may hold in memory, where that is bounded, as it was said."""
        self._agreed_to: dict[str, dict[str, Bound]] = {}
        """What the readers of flows have agreed to, by stream, as it was said."""
        self._agreed_ms = -LOOK_MS
        self._agreed_at: tuple[int, frozenset[str], int] | None = None
        """When that was looked at last, how far the catalog log was then, which flows were here, and how
        often it was measured what comes after one."""
        self._remembered, self._remember_ms = up_today, 0

    def look(self, installed: Mapping[str, str], programs: Mapping[str, int], now_ms: int) -> list[Work]:
        """``installed``: the streams of the flows that are computed here; ``programs``: what jobs in Python
        have taken, in µs."""
        found = list[Work]()
        # Who goes forgets it, and is told anew when it comes again.
        self._bounds = {uid: most for uid, most in self._bounds.items() if uid in installed}
        if self.keeper.due(now_ms):
            uses = [*self._flows(installed), *self._programs(programs)] if self.keeper.bounds else []
            weights = self.keeper.look(uses, now_ms)
            self._lent = {uid: weights.get(uid, WHOLE) for uid in installed}
            found += self._bound(memory_bounds(uses, self.keeper.budgets), installed)
        stand = self._log.last, frozenset(installed), self._sender.rested
        if now_ms - self._agreed_ms >= LOOK_MS and stand != self._agreed_at:
            self._agreed_ms, self._agreed_at = now_ms, stand
            found += self._agree(installed)
        self._promised(installed, now_ms)
        late = {uid: one for flows in self._late.values() for uid, one in flows.items()}
        wanted = {
            uid: max(self._lent.get(uid, WHOLE), late.get(uid, WHOLE), key=lambda one: one[0])
            for uid in self._lent | late
            if uid in installed
        }
        changed = {uid: one for uid, one in wanted.items() if one != self._said.get(uid)}
        self._said = wanted
        by_stream: dict[str, list[tuple[str, int, str]]] = defaultdict(list)
        for uid, (weight, whose) in changed.items():
            by_stream[installed[uid]].append((uid, weight, whose))
        return found + [Work(stream, SetWeights(tuple(ones))) for stream, ones in by_stream.items()]

    def _bound(self, bounds: dict[str, int], installed: Mapping[str, str]) -> list[Work]:
        """Tell what flows may hold in memory from now on, where that is something else."""
        before, self._bounds = self._bounds, bounds
        by_stream: dict[str, list[tuple[str, int | None]]] = defaultdict(list)
        for uid in before.keys() | bounds.keys():
            if uid in installed and bounds.get(uid) != before.get(uid):
                by_stream[installed[uid]].append((uid, bounds.get(uid)))
        return [Work(stream, SetMemory(tuple(sorted(ones)))) for stream, ones in sorted(by_stream.items())]

    def _agree(self, installed: Mapping[str, str]) -> list[Work]:
        """Tell streams whose flows promise different things what has been agreed to, where that is something
        else: they take turns."""
        agreed: dict[str, dict[str, Agreed]] = defaultdict(dict)
        for uid, stream in installed.items():
            agreed[stream][uid] = self._agreed(uid)
        found, before = list[Work](), self._agreed_to
        able = {stream: flows for stream, flows in agreed.items() if not any(map(self._is_range, flows))}
        self._agreed_to = {
            stream: bounds for stream, flows in able.items() if (bounds := _bounds(flows, self._sender.rest))
        }
        for stream in sorted(before.keys() | self._agreed_to.keys()):
            bounds = self._agreed_to.get(stream, {})
            if bounds != before.get(stream):
                found.append(Work(stream, SetBounds(tuple(sorted(bounds.items(), key=lambda one: one[0])))))
        return found

    def remember(self, now_ms: int) -> list[SaveFact]:
        """Write down what has gone up today, so that a restart gives nobody the day's bytes again."""
        if not self.keeper.day.taken or now_ms < self._remember_ms:
            return []
        image = self.keeper.day.image()
        if image == self._remembered:
            return []
        self._remembered, self._remember_ms = image, now_ms + REMEMBER_MS
        return [SaveFact(TODAY_FACT, image)]

    def _promised(self, installed: Mapping[str, str], now_ms: int) -> None:
        """What is left out so that jobs keep what they promise: of all key ranges of a fragment alike, since
        the first one counts the rows of all."""
        for stream, lag in self.lags.items():
            overload = self._overloads.setdefault(stream, Overload())
            if stream in self._agreed_to:  # its tasks are cut short one by one (``elf.planning.turns``)
                self._late.pop(stream, None)
                continue
            if not overload.due(now_ms):
                continue
            flows = {uid: self._agreed(uid) for uid, where in installed.items() if where == stream}
            tightest = _tightest(flows) or NO_PROMISE
            united = {uid: self._united(uid) for uid in flows}
            before, taken = self._spent.get(stream, {}), self._sender.taken()
            spent = self._spent[stream] = {uid: taken.get(uid, (0, 0)) for uid in flows}
            loads: dict[str, FlowLoad] = {}
            for uid, of in united.items():
                took = zip(spent[uid], before.get(uid, spent[uid]), strict=True)
                took_us, rows = (max(0, now - then) for now, then in took)
                load = flows[uid].load(of, took_us / 1000, rows)
                loads[of] = load.with_another(loads[of]) if of in loads else load
            weights = overload.look(list(loads.values()), lag, now_ms)
            self._late[stream] = {
                uid: (weights[of], (flows[uid].promise or tightest)[1])
                for uid, of in united.items()
                if of in weights
            }

    def _is_range(self, uid: str) -> bool:
        """Whether a flow has a key range, of which one map serves all: they take no turns."""
        flow = self._log.flow(uid)
        return flow is not None and flow.fragment.range[1] > 1

    def _united(self, uid: str) -> str:
        """The same of all key ranges of a fragment."""
        flow = self._log.flow(uid)
        if flow is None or not self._is_range(uid):
            return uid
        return flow_uid(replace(flow.fragment, range=(0, flow.fragment.range[1])), "")

    def _agreed(self, uid: str) -> Agreed:
        """What the readers of a flow have agreed to (protocol 3.11): less than what comes after its map has
        taken, or, before that was measured, than the model says, nobody can promise."""
        readers, least_ms = self._log.readers(uid), self._sender.rest(uid).least_ms
        promises = [
            (
                max(promise.within_us / 1000, least_ms / RESTS_MOST) if least_ms else spec.plan.within_ms,
                f"the promise of job {spec.creator}/{spec.name}",
            )
            for spec in readers
            if (promise := spec.plan.promise) is not None
        ]
        agree = (spec.plan.promise is not None or spec.plan.gives_way for spec in readers)
        return Agreed(
            min(promises, default=None),
            bool(readers) and all(agree) and not any(why_plan_whole(spec.plan) for spec in readers),
            all(spec.plan.gives_way for spec in readers),
        )

    def of(self, jobs: Collection[str]) -> tuple[BudgetWork, ...]:
        """How these jobs (uids), and their creators, are with their budgets here."""
        asked = {AGENT}
        for uid in jobs:
            spec = self._log.job(uid) or self._log.program(uid)
            if spec is not None:
                asked |= {*holders(spec.name, spec.creator)}
        return tuple(
            BudgetWork(
                whose=str(one.holder),
                weight=one.weight,
                cpu_ppm=round(one.use.cpu_share * 1e6),
                up_bytes=round(one.use.up_bytes_per_sec),
                most_cpu_ppm=round(one.budget.cpu_share * 1e6),
                most_up_bytes=one.budget.up_bytes_per_sec,
                said=one.said,
            )
            for one in self.keeper.told()
            if one.holder in asked
        )

    def _flows(self, installed: Mapping[str, str]) -> list[FlowUse]:
        spent, sent, held = self._sender.spent(), self._sender.sent_bytes(), self._sender.held()
        found = []
        for uid in installed:
            readers = self._log.readers(uid)
            told = tuple(Reader(one.name, one.creator, why_plan_whole(one.plan)) for one in readers)
            flow = self._log.flow(uid)
            here = flow is not None and flow.leader == self._me
            up = 0 if here else sent.get(uid, 0)
            has = Held(*held.get(uid, ()))
            if uid not in self._bounds:  # nobody has asked yet that it be on disk
                has = has._replace(pinned_bytes=0)
            found.append(FlowUse(uid, spent.get(uid, 0), up, told, has))
        return found

    def _programs(self, programs: Mapping[str, int]) -> list[FlowUse]:
        known = ((self._log.program(uid), us) for uid, us in programs.items())
        return [
            FlowUse(spec.uid, us, 0, (Reader(spec.name, spec.creator, PYTHON),))
            for spec, us in known
            if spec is not None
        ]
