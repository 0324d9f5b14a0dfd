"""What a query would cost agents if it were a job, told from what runs there (``elf.planning.costs``): for
EXPLAIN, and for whoever asks for a job and is near the budget of this agent."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any, Final

from agents.answering.asks import Ask
from agents.answering.fleet import Fleet
from agents.answering.quotas import OverQuota
from agents.answering.workers import ask_all, members_of
from elf.job.catalog.log import CatalogLog
from elf.job.costs import flow_costs
from elf.job.spec import Flow, JobSpec
from elf.job.work import InspectWork, WorkStatus
from elf.planning.budgets import BudgetKeeper
from elf.planning.costs import PANES_MIN, Cost, FlowCost, Running, Wanted, cost_of, total
from elf.planning.lent import MB, Holder, Use
from elf.ql.plan import Fragment, Plan
from elf.wire.base import Answer

AGENTS_MAX: Final = 16
"""Agents that are asked for what they know."""
TOLD_MAX: Final = 6
"""Budgets that are told of a job that runs."""
FLOWS_MAX: Final = 64
"""Flows of a stream that are asked for: those that most jobs read."""

Told = dict[str, Any]
"""A JSON object."""


class Costs:
    """Of what is not a job yet."""

    def __init__(self, log: CatalogLog, fleet: Fleet, here: str, keeper: BudgetKeeper) -> None:
        """``here``: the address of this agent."""
        self._log = log
        self._fleet = fleet
        self._here = here
        self._keeper = keeper

    def of(self, plan: Plan) -> Generator[list[Ask], list[Answer], Told]:
        """As a JSON object."""
        new = self._new(plan)
        addresses = {m.address for one in new for m in self._fleet.asked(one)}
        some = self._asked(addresses)
        costs = yield from self._at(some, new)
        return {
            "flows": len(plan.unranged),
            "new": len(new),
            "agents": len(addresses),
            "asked": len(some),
            "told": [
                {"agent": agent, **one._asdict()} for agent, one in sorted(costs.items()) if one is not None
            ],
        }

    def refuse(self, name: str, creator: str, plan: Plan) -> Generator[list[Ask], list[Answer], None]:
        """Raises ``OverQuota``: the job would bring its creator over the budget that this agent has for
        them."""
        holder = Holder("creator", creator)
        budget = self._keeper.budgets.of(holder)
        new = self._new(plan) if budget.bounds else []
        if not new:
            return
        (cost,) = (yield from self._at([self._here], new)).values() or (None,)
        if cost is None:
            return
        has = self._keeper.use(holder)
        more = Use(cost.cpu_share, cost.up_bytes_per_sec, disk_bytes=cost.memory_bytes)
        if budget.part(has._replace(pinned_bytes=0.0).plus(more)) > 1:
            would = (
                f"{cost.cpu_share:.2%} of a core, {cost.up_bytes_per_sec:,.0f} bytes up a second and "
                f"{cost.memory_bytes / MB:,.1f} MB in open panes"
            )
            raise OverQuota(
                "budget",
                f"job {name} would take some {would} of this agent, told by {_like(cost)}; {creator} has "
                f"{has.cpu_share:.2%}, {has.up_bytes_per_sec:,.0f} and {has.disk_bytes / MB:,.1f} MB on disk "
                f"already, of {budget.said}; "
                "drop or pause a job first, or ask for less",
            )

    def within(self, spec: JobSpec) -> Generator[list[Ask], list[Answer], str]:
        """What a job that runs, and its creator, take of agents that have budgets for them; empty: none of
        those that are asked has."""
        addresses = members_of(self._fleet, spec)
        some = self._asked(addresses)
        request = InspectWork(id=0, origin="", flows=(), jobs=(spec.uid,))
        answered = (yield from ask_all(some, request, WorkStatus)).values()
        told = [(one, status.agent) for status in answered if status is not None for one in status.budgets]
        told.sort(key=lambda pair: (-pair[0].weight, pair[1]))
        said = [f"{agent}: {one.said}" for one, agent in told[:TOLD_MAX]]
        said += [f"and {len(told) - TOLD_MAX:,} more"] if len(told) > TOLD_MAX else []
        asked = f" ({len(some)} of {len(addresses)} agents asked)" if len(some) < len(addresses) else ""
        return "; ".join(said) + asked if said else ""

    def _asked(self, addresses: Iterable[str]) -> list[str]:
        """Some of them, and this one first."""
        return sorted(addresses, key=lambda address: (address != self._here, address))[:AGENTS_MAX]

    def _new(self, plan: Plan) -> list[Fragment]:
        """What does not run yet."""
        return [one for one in plan.unranged if self._log.equal(one) is None]

    def _at(
        self, addresses: Sequence[str], new: Sequence[Fragment]
    ) -> Generator[list[Ask], list[Answer], dict[str, Cost | None]]:
        """By the names of agents: of those that answer, or of which it was learned before."""
        streams = {one.stream for one in new}
        flows = sorted(
            (
                flow
                for flow in self._log.flows()
                if flow.fragment.stream in streams and not flow.fragment.range[0]
            ),
            key=lambda flow: -len(self._log.readers(flow.uid)),
        )[:FLOWS_MAX]
        known = {flow.uid: flow for flow in flows}
        jobs = [spec for uid in known for spec in self._log.readers(uid)]
        uids = tuple(dict.fromkeys(spec.uid for spec in jobs))
        request = InspectWork(id=0, origin="", flows=tuple(known), jobs=uids, costs=True)
        answers = (yield from ask_all(addresses, request, WorkStatus)) if known and addresses else {}
        running = self._at_each(addresses, known, answers)
        others = list(dict.fromkeys(spec.leader for spec in jobs if spec.leader not in answers))
        if others and not all(map(_is_known, running.values())):
            learned = yield from ask_all(others[:AGENTS_MAX], request, WorkStatus)
            running = self._at_each(addresses, known, {**learned, **answers})
        return {
            self._fleet.named(at) if (said := answers.get(at)) is None else said.agent: self._cost(new, one)
            for at, one in running.items()
            if answers.get(at) is not None or one
        }

    def _at_each(
        self, addresses: Iterable[str], known: Mapping[str, Flow], answers: Mapping[str, WorkStatus | None]
    ) -> dict[str, list[tuple[str, Running]]]:
        """By address, what flows take of each agent."""
        costs = flow_costs(known, {at: status for at, status in answers.items() if status is not None})
        return {address: self._running(address, known, costs) for address in addresses}

    def _cost(self, new: Iterable[Fragment], running: Sequence[tuple[str, Running]]) -> Cost | None:
        """All that is new, at one agent. None: nothing tells what some of it costs."""
        found = []
        for one in new:
            wanted = Wanted(keys_of(one), one.pane_us, one.lateness_us or 0)
            cost = cost_of(wanted, [of for stream, of in running if stream == one.stream])
            if cost is None:
                return None
            found.append(cost)
        return total(found)

    def _running(
        self, address: str, known: Mapping[str, Flow], costs: Mapping[str, FlowCost]
    ) -> list[tuple[str, Running]]:
        """What flows take of an agent, each with its stream."""
        found = []
        for uid, flow in known.items():
            fragment, cost = flow.fragment, dict(costs[uid].members).get(address)
            if cost is not None:
                jobs = tuple(sorted(spec.name for spec in self._log.readers(uid)))
                running = Running(jobs, keys_of(fragment), fragment.pane_us, cost)
                found.append((fragment.stream, running))
        return found


def _is_known(running: Sequence[tuple[str, Running]]) -> bool:
    """Whether an agent speaks for itself of something."""
    return any(one.cost.panes >= PANES_MIN for _, one in running)


def keys_of(fragment: Fragment) -> tuple[str, ...]:
    """What tells which flows have the same groups."""
    if fragment.direct is not None:
        return tuple(fragment.direct.keys)
    return tuple(f"{key} of {fragment.map_sql}" for key in fragment.group_keys)


def _like(cost: Cost) -> str:
    return f"{cost.alike}, {', '.join(cost.like[:3])}" if cost.like else cost.alike
