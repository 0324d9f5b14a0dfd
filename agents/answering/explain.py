"""EXPLAIN and EXPLAIN ANALYZE: a plan, who computes what of it, and what that costs, as one JSON object.

ANALYZE asks all agents that work for the job (members of its streams, roots, master, and whoever else is a
parent in its trees), some at a time; who does not answer is named. ``agents.answering.explained`` lays the
object out for a terminal.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from agents.answering.about import costs_told, described, functions_told, read_jobs
from agents.answering.asks import Ask, Procedure, ToAddress
from agents.answering.decided import offloads_told
from agents.answering.explained import laid_out
from agents.answering.fleet import Fleet
from agents.answering.moments import moment_of
from agents.answering.workers import ask_all, depth_of, members_of
from elf.errors import UserError
from elf.job.catalog.loads import by_group, job_of_loads
from elf.job.catalog.log import CatalogLog
from elf.job.costs import learned_in
from elf.job.messages.groups import DropJob
from elf.job.messages.inquiries import FlowStatus, InspectFlow
from elf.job.spec import Flow, JobSpec
from elf.job.stragglers import policy_of
from elf.job.tops import not_thresholds, strategy
from elf.job.work import FlowWork, InspectWork, JobWork, WorkStatus
from elf.planning.scaling import stands
from elf.ql.graphs import WORK, GraphStep, bounds_of
from elf.ql.plan import Fragment, Function, Plan, StreamJoin, side_groups
from elf.ql.promises import Promise
from elf.ql.user_functions import functions_of
from elf.windows.merging import describe as merges
from elf.windows.sharing import Choice
from elf.wire.base import Answer
from elf.wire.clients import Reply

ROUNDS_MAX: Final = 8
"""How often parents that nobody named before are asked."""

Told = dict[str, Any]
"""A JSON object."""


class Explanations:
    """Of what this agent is asked to explain."""

    def __init__(self, log: CatalogLog, fleet: Fleet) -> None:
        self._log = log
        self._fleet = fleet

    def of(
        self,
        request: int,
        plan: Plan,
        spec: JobSpec | None,
        *,
        analyze: bool = False,
        cost: Told | None = None,
    ) -> Procedure:
        """A plan; ``spec``: the job that runs it; ``cost``: what it would cost, where none does."""
        told = self._plan(plan, spec) | ({} if cost is None else {"cost": cost})
        if spec is not None:
            facts = yield from self.roots(spec)
            for flow, known in zip(told["flows"], facts, strict=True):
                flow["depth"] = None if known is None else _depth(known)
        if spec is not None and analyze:
            told["live"] = yield from self._live(spec)
            job = job_of_loads(self._log, spec, by_group((yield from self._fleet.loads())))
            told["live"]["takes"] = None if job is None else stands(job)
        return Reply(request=request, text=laid_out(told), body=json.dumps(told).encode())

    def offline(self, request: int, plan: Plan) -> Reply:
        """What Spark would run over the archive; its own plan is for who has Spark. Raises ``UserError``."""
        if not plan.spark_sql or functions_of(plan):
            why = "Spark does not run its function" if plan.spark_sql else _why_not_offline(plan)
            raise UserError(f"only the live engine answers this query: {why}")
        told = {"query": plan.sql, "streams": list(plan.streams), "offline": plan.spark_text}
        way = "-- elf offline run --archive PATH --explain shows files, columns and Spark's own plan"
        return Reply(request=request, text=f"{plan.spark_text}\n{way}", body=json.dumps(told).encode())

    def of_one_shot(self, request: int, plan: Plan, spec: JobSpec) -> Procedure:
        """The same of a SELECT that ran for some windows; it is dropped."""
        reply = yield from self.of(request, plan, spec, analyze=True)
        yield [ToAddress(spec.leader, DropJob(id=0, origin="", uid=spec.uid))]
        return reply

    # -- the plan --------------------------------------------------------------------------------------------

    def _plan(self, plan: Plan, spec: JobSpec | None) -> Told:
        top, why = strategy(plan)
        fragments = plan.fragments
        flows = spec.flows if spec is not None else [self._log.equal(fragment) for fragment in fragments]
        return {
            "query": plan.sql,
            "job": None if spec is None else spec.name,
            "master": None if spec is None else self._fleet.named(spec.leader),
            "function": functions_told(plan) or None,
            "offloaded": "" if spec is None else offloads_told(spec.uid, self._log, self._fleet.named),
            "reads": read_jobs(plan, self._log),
            "graph": graph(plan),
            "streams": list(plan.streams),
            "windows": [kind.text for kind in plan.windows],
            "panes": merges(plan.windows, plan.fragment.pane_us) if plan.windows else "one, for everything",
            "choice": None if plan.choice is None else _choice(plan.choice),
            "promise": None if plan.promise is None else promise_facts(plan.promise, plan),
            "priority": "research" if plan.gives_way else "production",
            "trees": plan.trees,
            "top_k": {"strategy": top, "why": why, "thresholds": not_thresholds(plan)},
            "fragments": [_fragment(one) for one in plan.unranged],
            "join": None if plan.join is None else _join(plan.join),
            "flows": [self._flow(*both, spec) for both in zip(fragments, flows, strict=True)],
            "stages": [
                {"windows": stage.window.text, "keys": list(stage.keys), "sql": stage.sql}
                for side in plan.sides
                for stage in side.stages
            ],
            "graphs": [_graph(one) for one in plan.all_graphs],
            "steps": [{"what": one.what, "by": list(one.by), "at": one.at} for one in plan.steps],
            "components": [msgspec.structs.asdict(one) for one in plan.components],
            "not_at_roots": plan.not_at_roots,
            "final": plan.final_sql,
            "final_by": "DuckDB" if plan.direct is None else "Arrow",
            "offline": plan.spark_text or None,
            "not_offline": "" if plan.spark_sql else _why_not_offline(plan),
        }

    def _flow(self, fragment: Fragment, flow: Flow | None, spec: JobSpec | None) -> Told:
        """``flow``: one that runs; of a query that does not, one that it would read."""
        place, count = fragment.range
        readers = [] if flow is None else self._log.readers(flow.uid)
        return {
            "stream": fragment.stream,
            "keys": "all" if count == 1 else f"range {place + 1} of {count}",
            "flow": None if flow is None else flow.uid,
            "topic": None if flow is None else flow.topic.hex(),
            "root": None if flow is None else self._fleet.named(flow.leader),
            "depth": None,
            "asked": len(self._fleet.asked(fragment)),
            "members": len(self._fleet.expected(fragment.stream)),
            "shared_with": sorted(job.name for job in readers if spec is None or job.uid != spec.uid),
        }

    def roots(self, spec: JobSpec) -> Generator[list[Ask], list[Answer], list[FlowStatus | None]]:
        """What the roots know; None of one that does not answer."""
        answers = yield [
            ToAddress(flow.leader, InspectFlow(id=0, origin="", uid=flow.uid)) for flow in spec.flows
        ]
        return [
            None if answer.error else msgspec.msgpack.decode(answer.body, type=FlowStatus)
            for answer in answers
        ]

    # -- what it costs ---------------------------------------------------------------------------------------

    def _live(self, spec: JobSpec) -> Generator[list[Ask], list[Answer], Told]:
        todo = members_of(self._fleet, spec)
        uids = tuple(flow.uid for flow in spec.flows)
        request = InspectWork(id=0, origin="", flows=uids, jobs=(spec.uid,), costs=True)
        found: dict[str, WorkStatus | None] = {}
        for _ in range(ROUNDS_MAX):
            found |= yield from ask_all(todo, request, WorkStatus)
            parents = (flow.parent for one in found.values() if one is not None for flow in one.flows)
            todo = sorted({parent for parent in parents if parent} - found.keys())
            if not todo:
                break
        answered = {address: facts for address, facts in found.items() if facts is not None}
        return {
            "asked": len(found),
            "silent": sorted(self._fleet.named(address) for address in found.keys() - answered.keys()),
            "flows": [{"flow": flow.uid, "levels": levels_of(flow, answered)} for flow in spec.flows],
            "between": _between(spec.flows, answered.values()) if spec.plan.components else None,
            "master": _master(spec.uid, answered.values()),
            "learned": _learned(spec, answered.values()),
            "budgets": [
                {"agent": facts.agent, **{name: getattr(one, name) for name in one.__struct_fields__}}
                for facts in answered.values()
                for one in facts.budgets
            ],
        }


def _choice(choice: Choice) -> Told:
    """Of panes, when the job was planned."""
    return {
        "pane_s": choice.pane_us / 1e6,
        "own_pane_s": choice.own_us / 1e6,
        "shared": choice.is_shared,
        "shared_ms_an_hour": choice.shared_ms,
        "own_ms_an_hour": choice.own_ms,
        "why": choice.why,
    }


def promise_facts(promise: Promise, plan: Plan) -> Told:
    """What it promises, and from when on that counts."""
    return {
        "text": promise.text,
        "within_ms": promise.within_us / 1000,
        "percent": promise.percent,
        "best_effort": promise.best_effort,
        "from": f"the window's end and LATENESS, {plan.lateness_us / 1e6:g} s",
        "by_the_model": None if plan.chosen is None else msgspec.structs.asdict(plan.chosen),
    }


def _why_not_offline(plan: Plan) -> str:
    if plan.fragment.count is not None:
        return "where windows of rows began to be counted is not in the archive"
    return "which rows came late is not in the archive"


def _fragment(fragment: Fragment) -> Told:
    late = fragment.lateness_us
    return {
        "stream": fragment.stream,
        "columns": [f"{column.name} {column.type}" for column in fragment.columns],
        "keys": list(fragment.group_keys),
        "range_keys": list(fragment.ranged_by),
        "stage": None if fragment.stage is None else fragment.stage.sql,
        "states": [f"{state.name} {state.merge}" for state in fragment.states],
        "pane_s": fragment.pane_us / 1e6 if fragment.pane_us else None,
        "lateness_s": None if late is None else late / 1e6,
        "stragglers": policy_of(fragment),
        "since_us": fragment.since_us,
        "tables": [described(table) for table in fragment.tables],
        "map": fragment.map_sql,
        "map_by": "DuckDB" if fragment.direct is None else "Arrow",
    }


def graph(plan: Plan) -> list[str]:
    """The stages of a job and what connects them, from its lines to its windows: a line for each side."""
    found = []
    for number, side in enumerate(plan.sides):
        one, lines = side.fragment, " and ".join(dict.fromkeys(f.stream for f in (side.fragment, *side.more)))
        trees = f"{side.trees} trees, one a key range" if side.trees > 1 else "a tree"
        parts = [f"lines of {lines}", f"map at the agents{_by(one.function)}", trees]
        meets = side.join is not None and side.join.side != ""
        what = "rows of panes" if meets else "reduce"
        where = "at their roots" if side.trees > 1 else "at its root"
        parts.append(f"{what} {where}{_by(one.reduce.function if one.reduce is not None else None)}")
        if one.stage is not None:
            parts.append(f"later stages at their roots, in ranges of {', '.join(one.stage.by)}")
        parts += ["panes of joined rows at the master"] if meets else []
        parts += [f"panes beside those of {side.join.about}"] if side.join and not meets else []
        for stage in side.stages:
            parts += [f"windows of {stage.window.text}", *_graphs(stage.graphs)]
            parts.append("map and reduce at the master")
        parts.append("; ".join(f"windows of {kind.text}" for kind in side.windows) or "one result")
        parts += _graphs(side.graphs)
        if len(plan.sides) == 1:
            parts.append(f"final fragment at the master{_by(plan.final)}")
        else:
            parts.append(f"the final fragment's {side_groups(number)}")
        found.append(" → ".join(parts))
    return found


def _graphs(steps: Iterable[GraphStep]) -> list[str]:
    return [f"graph of each at the master ({step.graph.algorithm})" for step in steps]


def _graph(step: GraphStep) -> Told:
    """What WITH GRAPH does, and its bounds."""
    most = bounds_of(step.graph)
    return {
        "graph": step.graph.text,
        "edges": step.sql,
        "edges_max": most.edges,
        "vertices_max": most.vertices,
        **({} if most.work is None else {"work": WORK[step.graph.algorithm], "work_max": most.work}),
        "columns": list(step.graph.names),
    }


def _by(function: Function | None) -> str:
    return f" ({function.kind} of {function.filename})" if function is not None else ""


def _join(join: StreamJoin) -> Told:
    return {
        "partners": join.about,
        "streams": join.side != "",
        "before_s": join.before_us / 1e6,
        "after_s": join.after_us / 1e6,
        "keys": list(join.keys[: len(join.keys) - len(join.cells)]),
        "states": [f"{state.name} {state.merge}" for state in join.states],
        "joining": join.sql,
    }


def _depth(facts: FlowStatus) -> int:
    """Edges from the deepest member to the root, as it last heard."""
    parents = {edge.address: edge.parent for edge in facts.tree}
    return max((depth_of(address, parents, facts.leader) for address in parents), default=0)


def levels_of(flow: Flow, answered: Mapping[str, WorkStatus]) -> list[Told]:
    """An agent's work for a flow, summed over each level of its tree, the root being level 0."""
    work = {
        address: (facts.agent, one)
        for address, facts in answered.items()
        for one in facts.flows
        if one.flow == flow.uid
    }
    parents = {address: one.parent for address, (_, one) in work.items()}
    levels: dict[int, list[tuple[str, FlowWork]]] = defaultdict(list)
    for address, named in work.items():
        levels[depth_of(address, parents, flow.leader)].append(named)
    return [_level(level, levels[level]) for level in sorted(levels)]


def _level(level: int, agents: Sequence[tuple[str, FlowWork]]) -> Told:
    names = [name for name in FlowWork.__struct_fields__ if name not in ("flow", "parent")]
    sums = {name: sum(getattr(work, name) for _, work in agents) for name in names}
    if not level:  # what a root sends to itself is no message
        sums["messages"] = sums["sent_bytes"] = sums["crossed_bytes"] = 0
    slowest, took = max(((name, _cpu_us(work)) for name, work in agents), key=lambda one: (one[1], one[0]))
    return {"level": level, "agents": len(agents), **sums, "slowest": slowest, "slowest_us": took}


def _cpu_us(work: FlowWork) -> int:
    return work.map_us + work.tree_us + work.seal_us + work.merge_us + work.commit_us


def _between(flows: Sequence[Flow], answered: Iterable[WorkStatus]) -> Told:
    """Rows of agents, groups that they sent to roots, and what these made of them for the master."""
    uids = {flow.uid for flow in flows}
    works = [work for status in answered for work in status.flows if work.flow in uids]
    return {
        "rows": sum(work.rows for work in works),
        "to_roots": sum(work.keys for work in works),
        "to_master": sum(work.commit_keys for work in works),
    }


def _learned(spec: JobSpec, answered: Iterable[WorkStatus]) -> Told | None:
    """What its master has kept of what the job costs."""
    costs = next((one for one in learned_in(answered) if one.job == spec.uid), None)
    if costs is None:
        return None
    return {
        "at": moment_of(1_000 * costs.at_ms),
        "flows": [
            {
                "flow": one.flow,
                "members": {address: msgspec.structs.asdict(cost) for address, cost in one.members},
                "root": None if one.root is None else msgspec.structs.asdict(one.root),
            }
            for one in costs.flows
        ],
        "delays": None if costs.delays is None else msgspec.structs.asdict(costs.delays),
        "told": costs_told(spec, costs),
    }


def _master(uid: str, answered: Iterable[WorkStatus]) -> Told | None:
    """A job has one master."""
    found: list[JobWork] = [job for facts in answered for job in facts.jobs if job.job == uid]
    if not found:
        return None
    return {"commits": found[0].commits, "rows": found[0].rows, "final_us": found[0].final_us}
