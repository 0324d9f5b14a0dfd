"""What the planner makes of links and of what flows want, what of it is not as today, and whether it is so
much better that flows turn to it (``elf.planning.routes.turning``)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from agents.answering.routes import SURE, Pair, Planned, Told, Turned, Wanted
from elf.errors import UserError
from elf.planning.routes.model import Demand, Job, Link, Problem, Tree
from elf.planning.routes.planner import Plan, Route, plan
from elf.planning.routes.sizes import fitted
from elf.planning.routes.turning import Standing, compared, panes_to_hold, sooner


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
    problem = Problem(known, demands, "fair")
    routes = _routes(found, problem, by_name)
    told: Told = {"routes": routes, "infeasible": found.infeasible, "reasons": list(found.reasons)}
    told["reasons"] += _sooner_told(found, routes)
    turned = _turned(problem, links, routes, by_name)
    told["today"] = turned.why
    loads = _loads(problem, routes, by_name)
    return Planned(sizes, loads, told, _differs(routes, by_name), missing, turned)


def _today(of: Wanted) -> Standing:
    return Standing(of.vias, of.pane_s * of.held)


def _by_plan(of: Wanted, route: Told) -> Standing:
    return Standing(route["vias"], of.pane_s * route["panes"])


def _loads(problem: Problem, routes: Mapping[str, Told], wanted: Mapping[str, Wanted]) -> dict[Pair, Told]:
    """Bytes a second on each link by the fitted sizes: as flows send today, and by the plan."""
    loads: dict[Pair, Told] = defaultdict(dict)
    jobs = {job.demand.name: job for job in problem.jobs}
    today = {name: _today(wanted[name]) for name in jobs}
    by_plan = {name: _by_plan(wanted[name], route) for name, route in routes.items()}
    for what, standings in (("today_load", today), ("planned_load", by_plan)):
        those = [jobs[name] for name in standings]
        trees = [problem.tree(job, standings[job.demand.name].vias) for job in those]
        often = [1 / standings[job.demand.name].interval_s for job in those]
        for (a, b), load in problem.loads_of(those, trees, often).items():
            loads[problem.regions[a], problem.regions[b]][what] = load
    return dict(loads)


def _routes(found: Plan, problem: Problem, wanted: Mapping[str, Wanted]) -> dict[str, Told]:
    """By job. ``panes``: how many heads hold, of those that divide the unit."""
    jobs = [job for job in problem.jobs if job.demand.name in found.routes]
    routes = [found.routes[job.demand.name] for job in jobs]
    trees = [problem.tree(job, route.vias) for job, route in zip(jobs, routes, strict=True)]
    trees = sooner(problem, jobs, trees, [1 / route.interval_s for route in routes])
    return {
        job.demand.name: _route(problem, job, tree, route, wanted[job.demand.name])
        for job, tree, route in zip(jobs, trees, routes, strict=True)
    }


def _sooner_told(found: Plan, routes: Mapping[str, Told]) -> list[str]:
    """The ways that are not the planner's, and why."""
    return [
        f"{name}: {source} sends {_said(via, route['target'])}, as a batch is then under way for "
        f"{route['batch_s']:.2g} s in place of {found.routes[name].batch_s:.2g} s"
        for name, route in routes.items()
        for source, via in route["vias"].items()
        if via != found.routes[name].vias[source]
    ]


def _route(problem: Problem, job: Job, tree: Tree, route: Route, of: Wanted) -> Told:
    able = [n for n in range(1, of.unit + 1) if of.unit % n == 0]
    under_way_s = {n: problem.batch_s(job, tree, 1 / (n * of.pane_s)) for n in able}
    panes = panes_to_hold(under_way_s, of.pane_s, route.interval_s)
    return {
        "target": route.target,
        "vias": problem.vias(job, tree),
        "interval_s": route.interval_s,
        "panes": panes,
        "direct_s": route.direct_s,
        "batch_s": under_way_s[panes],
    }


def _differs(routes: Mapping[str, Told], wanted: Mapping[str, Wanted]) -> list[str]:
    """What jobs would do in another way than today."""
    found = []
    for name, route in routes.items():
        one, panes = wanted[name], route["panes"]
        told = [
            f"{source} would send {_said(via, one.target)}, and sends {_said(was, one.target)}"
            for source, via in route["vias"].items()
            if via != (was := one.vias.get(source, one.target))
        ]
        if panes != one.held:
            told.append(f"heads would hold {panes * one.pane_s:g} s, and hold {one.held * one.pane_s:g} s")
        found += [f"{name}: {'; '.join(told)}"] if told else []
    return found


def _said(via: str, target: str) -> str:
    return f"directly to {target}" if via == target else f"over {via}"


def _turned(
    problem: Problem, links: Sequence[Told], routes: Mapping[str, Told], wanted: Mapping[str, Wanted]
) -> Turned:
    """What flows turn to, if it is worth it and links are known well enough."""
    other = {name: route for name, route in routes.items() if _differs({name: route}, wanted)}
    if not other:
        return Turned((), ["flows send as the plan has it"])
    known = {(one["origin"], one["target"]): one["is"] for one in links}
    unsure = {
        name: _unsure(known, route["vias"], _today(wanted[name]).vias, route["target"])
        for name, route in routes.items()
    }
    fit = {name: route for name, route in routes.items() if not unsure[name]}
    why = []
    if pairs := {pair for name in other for pair in unsure[name]}:
        said = ", ".join(f"{a} → {b}" for a, b in sorted(pairs))
        why.append(
            "nothing turns to links that are neither stated nor probed, nor away from links that were only "
            f"seen to carry something: {said}"
        )
    if not fit.keys() & other.keys():
        return Turned((), why)
    comparison = compared(
        problem,
        {name: _today(wanted[name]) for name in fit},
        {name: _by_plan(wanted[name], route) for name, route in fit.items()},
    )
    why = [*comparison.reasons, *why]
    if not comparison.turns:
        return Turned((), why)
    turns = [
        (wanted[name].uid, route["target"], _detours(route), _hold(route, wanted[name]))
        for name, route in other.items()
        if name in fit
    ]
    return Turned(tuple(turns), why)


def _unsure(
    known: Mapping[Pair, str], plan: Mapping[str, str], today: Mapping[str, str], target: str
) -> set[Pair]:
    """The links for which a job stays as it is: it would turn to them, and they may carry little; or it goes
    over them today, and they may carry much more than was seen."""
    now = _uses({source: today.get(source, target) for source in plan}, target)
    to = {pair for pair in _uses(plan, target) if known.get(pair) not in SURE}
    return to | {pair for pair in now if known.get(pair) == "at least"}


def _uses(vias: Mapping[str, str], target: str) -> set[Pair]:
    found = {(source, via) for source, via in vias.items()}
    return found | {(via, target) for via in vias.values() if via != target}


def _detours(route: Told) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((a, via) for a, via in route["vias"].items() if via != route["target"]))


def _hold(route: Told, of: Wanted) -> int:
    """0: as many as readers allow."""
    return 0 if route["panes"] == of.unit else int(route["panes"])
