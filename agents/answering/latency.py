"""EXPLAIN LATENCY: how long after its end and LATENESS a job's window is committed, phase by phase, from the
stamps of all agents that work for the job (``elf.job.stamps``).

A window's pane is told by the flow that was committed last and the member that sealed it last. What an agent
that is silent knows is missing; a pane without it still counts, if its root and a member have told of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from agents.answering.asks import Procedure
from agents.answering.explain import promise_facts
from agents.answering.explained import table
from agents.answering.fleet import Fleet
from agents.answering.learned import panes_of
from agents.answering.learning import poll_ms
from agents.answering.predicted import predicted
from agents.answering.workers import ask_all, members_of
from elf.job.catalog.log import CatalogLog
from elf.job.promised import is_kept, promise_told
from elf.job.spec import JobSpec
from elf.job.stamps import InspectStamps, StampStatus, one_in
from elf.job.work import BEHIND_MS, InspectWork, WorkStatus
from elf.planning.lateness import shares, shorter
from elf.planning.phases import ABOUT, Phase, Phases, phases_of
from elf.wire.clients import Reply

Told = dict[str, Any]
_COLUMNS: Final = ("mean", "variance", "p50", "p99")


class Latencies:
    """Of what this agent is asked to explain."""

    def __init__(self, log: CatalogLog, fleet: Fleet) -> None:
        self._log = log
        self._fleet = fleet

    def of(self, request: int, spec: JobSpec) -> Procedure:
        """A job that runs."""
        flows = tuple(flow.uid for flow in spec.flows)
        agents = members_of(self._fleet, spec)
        stamps = InspectStamps(id=0, origin="", flows=flows, jobs=(spec.uid,))
        stamped = yield from ask_all(agents, stamps, StampStatus)
        work = InspectWork(id=0, origin="", flows=flows, jobs=(spec.uid,))
        worked = yield from ask_all(agents, work, WorkStatus)
        silent = sorted(self._fleet.named(address) for address in agents if stamped[address] is None)
        told = facts_of(
            spec,
            [one for one in stamped.values() if one is not None],
            {address: one for address, one in worked.items() if one is not None},
            poll_ms(self._log, spec),
        ) | {"asked": len(agents), "silent": silent}
        return Reply(request=request, text=laid_out(told), body=json.dumps(told).encode())


def facts_of(
    spec: JobSpec, stamped: Sequence[StampStatus], worked: Mapping[str, WorkStatus], looks_ms: int
) -> Told:
    """What is measured, and what the model says, as a JSON object. ``worked``: by address; ``looks_ms``: how
    far apart agents look at their files."""
    panes, ended = panes_of(spec, stamped)
    found = phases_of(panes)
    pane_us = spec.plan.fragment.pane_us
    rows, late, behind = rows_of(worked.values())
    seals = [seal for one in stamped for seal in one.seals]
    lateness = max((one.due_us - (one.pane + 1) * pane_us for one in seals), default=None)
    less = None if lateness is None else shorter(lateness / 1000, rows, behind)
    return {
        "job": spec.name,
        "from": "the window's end and LATENESS",
        "lateness_s": None if lateness is None else lateness / 1e6,
        "late_share": late / rows if rows else None,
        "late_if": [{"lateness_ms": ms, "share": share} for ms, share in shares(rows, behind).items()],
        "shorter": None if less is None else {**msgspec.structs.asdict(less), "told": less.text},
        "one_in": one_in(pane_us),
        "panes": found.panes,
        "windows": ended,
        "old": sum(one.old for one in stamped),
        "skewed": found.skewed,
        "total": _phase(found.total) if found.panes else None,
        "phases": {name: _phase(one) for name, one in found.phases.items()} if found.panes else {},
        "predicted": predicted(spec, stamped, worked, looks_ms) if found.panes else None,
        "promise": _promise(spec, worked.values()),
        "dominant": found.dominant or None,
        "last": found.last,
        "reasons": list(_reasons(found, pane_us)),
    }


def _promise(spec: JobSpec, worked: Iterable[WorkStatus]) -> Told | None:
    """What the job promises, and whether its master has kept it."""
    plan, promise = spec.plan, spec.plan.promise
    if promise is None:
        return None
    works = [one.promise for agent in worked for one in agent.jobs if one.job == spec.uid]
    work = works[0] if works else None
    kept = None if work is None else is_kept(promise, work)
    said = {} if work is None else msgspec.to_builtins(msgspec.structs.asdict(work))
    return {**promise_facts(promise, plan), **said, "is_kept": kept, "told": promise_told(promise, work)}


def rows_of(worked: Iterable[WorkStatus]) -> tuple[int, int, dict[int, int]]:
    """All that were read; the late ones of them; and those that would be, by LATENESS (ms)."""
    flows = [flow for one in worked for flow in one.flows]
    late = sum(flow.late for flow in flows)
    behind = {ms: sum(getattr(flow, f"behind_{ms}") for flow in flows) for ms in BEHIND_MS}
    return sum(flow.rows for flow in flows) + late, late, behind


def _phase(phase: Phase) -> Told:
    return {f"{name}_ms{'2' * (name == 'variance')}": round(getattr(phase, name), 3) for name in _COLUMNS}


def _reasons(found: Phases, pane_us: int) -> tuple[str, ...]:
    if found.panes:
        return found.reasons
    if not pane_us:
        return ("the job has no panes of event time: a latency is that of windows of time",)
    after_s = one_in(pane_us) * pane_us / 1e6
    return (
        *found.reasons,
        f"one in {one_in(pane_us)} is stamped: there is one each {after_s:g} s on average",
    )


# -- for a terminal ------------------------------------------------------------------------------------------


def laid_out(told: Mapping[str, Any]) -> str:
    silent = f"; silent: {', '.join(told['silent'])}" if told["silent"] else ""
    what = "each of which ended a window" if told["windows"] else "none of which ended a window"
    head = f"latency of {told['job']}: {told['panes']} stamped panes, {what}"
    lines = [f"{head} (one in {told['one_in']}; agents asked: {told['asked']}{silent})"]
    if told["lateness_s"] is not None:
        share = told["late_share"]
        late = "" if share is None else f"; {share:.2%} of the rows came late"
        lines.append(f"it counts from a window's end and LATENESS, {told['lateness_s']:g} s{late}")
    if told["shorter"] is not None:
        lines.append(told["shorter"]["told"])
    if told["promise"] is not None:
        lines.append(f"promise: {told['promise']['told']}")
    if told["panes"]:
        total, model = told["total"]["mean_ms"], told["predicted"]
        phases = {**told["phases"], "total": told["total"]}
        said = {} if model is None else {**model["phases"], "total": model["total"]}
        rows = [_row(name, one, total, said.get(name)) for name, one in phases.items()]
        headings = ("phase", "mean ms", "sd ms", "p50 ms", "p99 ms", "share", "model ms", "sd ms", "what")
        lines += ["", *table(headings, rows)]
    lines += ["", *told["reasons"]]
    if told["skewed"]:
        lines.append(
            f"in {told['skewed']} panes a step ended before it began, by clocks that differ: it counts 0"
        )
    if told["old"]:
        lines.append(
            f"{told['old']} sealed panes were of old lines, or ahead of the clock, and have no stamp"
        )
    return "\n".join(lines)


def _row(
    name: str, phase: Mapping[str, float], total: float, model: Mapping[str, float] | None
) -> tuple[str, ...]:
    figures = (phase["mean_ms"], _deviation(phase), phase["p50_ms"], phase["p99_ms"])
    share = f"{phase['mean_ms'] / total:.0%}" if total else ""
    said = ("", "") if model is None else (f"{model['mean_ms']:.1f}", f"{_deviation(model):.1f}")
    return (name, *(f"{figure:.1f}" for figure in figures), share, *said, ABOUT.get(name, ""))


def _deviation(of: Mapping[str, float]) -> float:
    return float(of["variance_ms2"] ** 0.5)
