"""What is worked out for a query that says WITHIN, before it runs: settings that keep the promise, from what
agents have measured of flows over the same streams, or from defaults (``elf.planning.solve``)."""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import Final

from agents.answering.asks import Ask
from agents.answering.fleet import Fleet
from agents.answering.latency import rows_of
from agents.answering.learned import members_of_model
from agents.answering.learning import Learning
from elf.errors import UserError
from elf.fields import replace
from elf.job.catalog.log import CatalogLog
from elf.job.spec import JobSpec
from elf.planning.costs import JobCosts
from elf.planning.lateness import shorter
from elf.planning.solve import DEFAULT_MEMBER, DEFAULTS, TREES, Known, Setting, solve
from elf.ql.plan import Plan
from elf.ql.promises import LATENESS_US, Chosen, Promise
from elf.wire.base import Answer
from elf.wire.clients import ONE_SHOT_PREFIX

JOBS_MAX: Final = 3
"""Whose agents are asked, the likest first."""
FAN_OUT: Final = 16


class Promising:
    """Of queries that this agent is asked to plan."""

    def __init__(self, log: CatalogLog, fleet: Fleet) -> None:
        self._log = log
        self._fleet = fleet
        self._learning = Learning(log, fleet)

    def chosen(
        self, plan: Plan, promise: Promise, lateness_us: int | None
    ) -> Generator[list[Ask], list[Answer], Chosen]:
        """The settings for a plan. How many trees there are the query says; where more would do, that is
        told. ``lateness_us``: of its streams."""
        known, job, seen = yield from self._known(plan)
        shared = any(self._log.equal(one) is not None for one in plan.fragments)
        pane_ms = plan.fragment.pane_us / 1000
        known = replace(known, trees=(plan.trees,), pane_ms=pane_ms, beside=shared)
        solved = solve(known, promise.within_us / 1000, promise.percent)
        why = [*solved.reasons, *((f"measured of job {job}",) if job else ())]
        if not solved.keeps and plan.trees == 1 and plan.fragment.group_keys:
            several = solve(replace(known, trees=TREES), promise.within_us / 1000, promise.percent)
            if several.keeps:
                why.append(f"with TREES {several.setting.trees} it would be kept")
        late = LATENESS_US if lateness_us is None else lateness_us
        less = shorter(replace(plan, chosen=Chosen(late)).lateness_us / 1000, *seen)
        why += [] if less is None else [less.text]
        return Chosen(late, solved.setting.poll_ms, math.ceil(solved.reached), solved.keeps, tuple(why))

    def _known(
        self, plan: Plan
    ) -> Generator[list[Ask], list[Answer], tuple[Known, str, tuple[int, dict[int, int]]]]:
        """What is known, the job that it was measured of (empty: none), and how many rows were read and would
        be late."""
        for spec in self._like(plan):
            costs, worked = yield from self._learning.of(spec)
            if (known := _measured(spec, costs)) is not None:
                rows, _, behind = rows_of(worked.values())
                return known, spec.name, (rows, behind)
        members = sum(len(self._fleet.asked(one)) for one in plan.unranged) or 1
        depth = math.ceil(math.log(members, FAN_OUT)) if members > 1 else 0
        known = Known(members=[DEFAULT_MEMBER] * members, costs=replace(DEFAULTS, depth=depth), pane_ms=0.0)
        return known, "", (0, {})

    def _like(self, plan: Plan) -> list[JobSpec]:
        """Jobs over the same streams, those first that have most of the plan's fragments."""
        streams, wanted = set(plan.streams), set(plan.unranged)
        found = [
            spec
            for spec in self._log.jobs()
            if not spec.name.startswith(ONE_SHOT_PREFIX)
            and not self._log.is_paused(spec.uid)
            and streams & set(spec.plan.streams)
        ]
        found.sort(key=lambda spec: (-len(wanted & set(spec.plan.unranged)), spec.name, spec.uid))
        return found[:JOBS_MAX]


def _measured(spec: JobSpec, costs: JobCosts | None) -> Known | None:
    """What a running job shows; None where that is too little."""
    if costs is None or costs.delays is None or not costs.delays.phases:
        return None
    delays = costs.delays
    return Known(
        members=members_of_model(spec, costs.flows),
        costs=delays.costs,
        pane_ms=0.0,
        now=Setting(delays.poll_ms, delays.trees),
        measured=delays.measured,
    )


def promise_worked_out(plan: Plan) -> str:
    """What to add where a job is created."""
    if plan.promise is None or plan.chosen is None:
        return ""
    kept = "" if plan.chosen.keeps else "by the model it is not kept, and is taken with BEST EFFORT: "
    from_when = f"counted from a window's end and LATENESS, {plan.lateness_us / 1e6:g} s"
    return f"; {plan.promise.text}, {from_when}: {kept}{'; '.join(plan.chosen.why)}"


def check_promise(plan: Plan) -> None:
    """Raises ``UserError`` where a plan promises what cannot be kept, and does not say that it may be."""
    promise, chosen = plan.promise, plan.chosen
    if promise is None or chosen is None or chosen.keeps or promise.best_effort:
        return
    best = replace(promise, within_us=1000 * _round_up(chosen.reached_ms))
    raise UserError(
        f"{promise.text} cannot be kept: {'; '.join(chosen.why)}. Say {best.text}, or BEST EFFORT behind it"
    )


def _round_up(ms: int) -> int:
    """To two digits, with something to spare."""
    more = math.ceil(ms / 0.9)
    step: int = 10 ** max(0, len(str(more)) - 2)
    return -(-more // step) * step
