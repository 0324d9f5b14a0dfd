"""EXPLAIN ROUTES: what the planner makes of links and of what flows want, and what of it is not as today."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from agents.answering.routes import Pair, Planned, Told, Wanted
from elf.errors import UserError
from elf.planning.routes.model import Demand, Link, Problem
from elf.planning.routes.planner import Plan, plan
from elf.planning.routes.sizes import fitted

_ROUNDING: Final = 1e-6
"""Of intervals: a solver's last digits."""


def planned(links: Sequence[Told], wanted: Sequence[Wanted]) -> Planned:
    """Of links that are known, and of flows whose batches are."""
    sizes, demands, missing = dict[str, Told](), list[Demand](), list[str]()
    for one in wanted:
        try:
            fit = fitted(*one.samples)
        except ValueError as error:
            missing.append(f"{one.name} is not planned: how its batches grow is not known: {error}")
            continue
        sizes[one.name] = {"said": fit.size.said, "residual": fit.residual, "why": list(fit.reasons)}
        demands.append(
            Demand(
                name=one.name,
                target=one.target,
                sources=one.sources,
                size=fit.size,
                least_s=one.pane_s,
                most_s=one.pane_s * one.unit,
            )
        )
    known = [
        Link(one["origin"], one["target"], one["rate"], one["delay_s"] or 0.0) for one in links if one["rate"]
    ]
    if not known or not demands:
        missing += [] if known else ["no plan: no link is measured or stated"]
        return Planned(sizes, {}, None, [], missing)
    try:
        found = plan(known, demands)
    except (UserError, ValueError) as error:
        return Planned(sizes, {}, None, [], [*missing, f"no plan: {error}"])
    if found.infeasible and any(one["is"] == "at least" for one in links):
        missing.append(
            "a job that is not carried may be so only because its links were not seen to carry more: "
            "cluster.links states what they can"
        )
    by_name = {one.name: one for one in wanted}
    routes = _routes(found, by_name)
    told = {"routes": routes, "infeasible": found.infeasible, "reasons": list(found.reasons)}
    loads = _loads(found, Problem(known, demands, "fair"), by_name)
    return Planned(sizes, loads, told, _differs(routes, by_name), missing)


def _loads(found: Plan, problem: Problem, wanted: Mapping[str, Wanted]) -> dict[Pair, Told]:
    """Bytes a second on each link by the fitted sizes: today, when all send directly, and by the plan."""
    todays = [wanted[job.demand.name] for job in problem.jobs]
    often = [1 / (one.pane_s * one.held) for one in todays]
    loads: dict[Pair, Told] = defaultdict(dict)
    for (a, b), load in problem.loads([job.direct for job in problem.jobs], often).items():
        loads[problem.regions[a], problem.regions[b]]["today_load"] = load
    for pair, use in found.links.items():
        loads[pair]["planned_load"] = use.load
    return dict(loads)


def _routes(found: Plan, wanted: Mapping[str, Wanted]) -> dict[str, Told]:
    """By job. ``panes``: what comes nearest to the interval, and is no shorter: heads hold whole panes, as
    many as divide the unit."""
    return {
        name: {
            "target": route.target,
            "vias": route.vias,
            "interval_s": route.interval_s,
            "panes": _panes(wanted[name], route.interval_s),
            "direct_s": route.direct_s,
            "batch_s": route.batch_s,
        }
        for name, route in found.routes.items()
    }


def _panes(of: Wanted, interval_s: float) -> int:
    able = (n for n in range(1, of.unit) if of.unit % n == 0)
    return next((n for n in able if n * of.pane_s >= interval_s - _ROUNDING), of.unit)


def _differs(routes: Mapping[str, Told], wanted: Mapping[str, Wanted]) -> list[str]:
    """What jobs would do in another way than today: all send directly through heads."""
    found = []
    for name, route in routes.items():
        one, panes = wanted[name], route["panes"]
        told = [
            f"{source} would send over {via}, and sends to {route['target']}"
            for source, via in route["vias"].items()
            if via != route["target"]
        ]
        if panes != one.held:
            told.append(f"heads would hold {panes * one.pane_s:g} s, and hold {one.held * one.pane_s:g} s")
        found += [f"{name}: {'; '.join(told)}"] if told else []
    return found
