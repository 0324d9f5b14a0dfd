"""Which panes a job has: its own, or the shorter ones of a flow that runs, where these cost less
(``elf.windows.sharing``).

It is decided once, when a job is planned, and is in its spec: jobs that come and go later change nothing. An
equal flow is read in any case. What flows cost is asked of their roots and of some members; the roots' counts
are since they began. A root that does not answer is no reason to fail: then the job has own panes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec

from agents.answering.asks import Ask, ToAddress, offload
from elf.fields import replace
from elf.job.catalog.log import CatalogLog
from elf.job.catalog.members import Member
from elf.job.costs import flow_costs
from elf.job.spec import Flow, JobSpec
from elf.job.work import InspectWork, WorkStatus
from elf.planning.costs import FlowCost
from elf.ql.plan import Fragment, Function, Plan
from elf.windows import Counted, Landmark, Session
from elf.windows.kinds import HOUR_US, span
from elf.windows.sharing import Choice, Measured, choose
from elf.wire.base import Answer

CANDIDATES_MAX: Final = 4
"""Lengths of panes that are looked at, the longest first: these take the fewest merges."""
FLOWS_MAX: Final = 64
"""Flows that are asked about at once."""

Flows = tuple[Flow, ...]


@dataclass(frozen=True)
class Instead:
    """The job in whose place a query is planned. ``functions``: of an ALTER, which keeps them, and the job's
    panes."""

    spec: JobSpec
    functions: tuple[Function, ...] | None = None


def is_free(plan: Plan) -> bool:
    """Whether a plan could have shorter panes and the same answer, but for rows that are late in one of them.

    Not where something is done to whole panes (what is kept or left out of them, reduced, or lost with them),
    or a function is told of them; nor where all panes are kept for ever (landmarks).
    """
    others = (Session, Counted, Landmark)
    if not plan.windows or any(isinstance(kind, others) for kind in plan.windows):
        return False
    if plan.reads or plan.join is not None or plan.beside:
        return False
    return not any(
        one.keep or one.first or one.function or one.changes_panes or one.leap or one.late_of
        for one in plan.unranged
    )


class Sharing:
    """``sample``: some members of a stream that are there, to be asked."""

    def __init__(self, log: CatalogLog, sample: Callable[[str], Sequence[Member]]) -> None:
        self._log = log
        self._sample = sample

    def plan(
        self, make: Callable[[int | None], Plan], instead: Instead | None
    ) -> Generator[list[Ask], list[Answer], Plan]:
        """``make`` gives the plan with panes of this length; None: its own, which are as long as they can
        be."""
        plan = yield from offload(partial(make, None))
        if not is_free(plan):
            return plan
        own_us = plan.fragment.pane_us
        if instead is not None and instead.functions is not None:
            stays_us = _stays(plan, instead.spec.plan)
            if stays_us:
                why = f"panes of {span(stays_us)}, as the job had them"
                shorter = yield from offload(partial(make, stays_us))
                return _with(shorter, Choice(own_us, stays_us, why))
        if all(self._log.equal(one) is not None for one in plan.fragments):
            return plan
        candidates = self._candidates(plan, None if instead is None else instead.spec.uid)
        if not candidates:
            return plan
        measured, unknown = yield from self._measured(candidates)
        choice = choose(plan.windows, own_us, measured, unknown)
        if choice.is_shared:
            plan = yield from offload(partial(make, choice.pane_us))
        return _with(plan, choice)

    def _candidates(self, plan: Plan, instead: str | None) -> list[Flows]:
        """For each length of shorter panes that jobs other than ``instead`` read, the flows of all fragments
        with it."""
        own_us, fragments = plan.fragment.pane_us, plan.fragments
        lengths = {flow.fragment.pane_us for flow in self._log.flows()}
        found: list[Flows] = []
        for pane_us in sorted((us for us in lengths if 0 < us < own_us and not own_us % us), reverse=True):
            flows = [self._log.equal(_cut(one, pane_us)) for one in fragments]
            there = tuple(flow for flow in flows if flow is not None and self._is_read(flow, instead))
            if len(there) == len(fragments):
                found.append(there)
        return found[: min(CANDIDATES_MAX, FLOWS_MAX // len(fragments))]

    def _is_read(self, flow: Flow, instead: str | None) -> bool:
        return any(job.uid != instead and job.replicated for job in self._log.readers(flow.uid))

    def _measured(
        self, candidates: Sequence[Flows]
    ) -> Generator[list[Ask], list[Answer], tuple[list[Measured], list[str]]]:
        """(what is known, why nothing is of the others)"""
        roots = [flow.leader for flows in candidates for flow in flows]
        streams = dict.fromkeys(flow.fragment.stream for flow in candidates[0])
        members = [member.address for stream in streams for member in self._sample(stream)]
        asked = tuple(dict.fromkeys([*roots, *members]))
        uids = tuple(flow.uid for flows in candidates for flow in flows)
        jobs = tuple(dict.fromkeys(spec.uid for uid in uids for spec in self._log.readers(uid)))
        request = InspectWork(id=0, origin="", flows=uids, jobs=jobs, costs=True)
        answers = yield [ToAddress(to, request) for to in asked]
        known = {
            to: msgspec.msgpack.decode(answer.body, type=WorkStatus)
            for to, answer in zip(asked, answers, strict=True)
            if not answer.error
        }
        costs = flow_costs(uids, known)
        measured, unknown = [], []
        for flows in candidates:
            length = span(flows[0].fragment.pane_us)
            if any(flow.leader not in known for flow in flows):
                unknown.append(f"the root of the flow with panes of {length} does not answer")
                continue
            of = [costs[flow.uid] for flow in flows]
            if not all(one.root is not None and one.root.panes for one in of):
                unknown.append(f"of the flow with panes of {length} nothing has been measured yet")
                continue
            measured.append(measured_of(flows[0].fragment.pane_us, of))
        return measured, unknown


def measured_of(pane_us: int, flows: Sequence[FlowCost]) -> Measured:
    """Of flows whose panes meet, with roots that have made commits of them all, and some agents, of which it
    is known how many groups they make of a row, and in what time."""
    roots = [one.root for one in flows if one.root is not None]
    tasks = [cost for one in flows for _, cost in one.members]
    rows = sum(one.rows / one.panes for one in roots)
    merged = sum(one.groups / one.panes for one in roots)
    came = sum(one.panes * one.rows for one in tasks) or 1.0
    sent = sum(one.panes * one.groups for one in tasks) / came
    map_us = sum(one.panes * one.map_us for one in tasks) / came
    return Measured(pane_us, rows * HOUR_US / pane_us, max(rows * sent, merged), merged, map_us)


def _cut(fragment: Fragment, pane_us: int) -> Fragment:
    return replace(fragment, pane_us=pane_us)


def _stays(plan: Plan, had: Plan) -> int:
    """The length of the panes that a job had, if they are shorter than it needs and it goes on reading the
    same flows; else 0."""
    pane_us, own_us = had.fragment.pane_us, plan.fragment.pane_us
    shared = had.choice is not None and had.choice.is_shared
    shorter = 0 < pane_us < own_us and not own_us % pane_us
    same = {_cut(one, pane_us) for one in plan.fragments} == set(had.fragments)
    return pane_us if shared and shorter and same else 0


def _with(plan: Plan, choice: Choice) -> Plan:
    return replace(plan, choice=choice)
