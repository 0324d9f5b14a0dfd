"""What the agents of a job say of it, as costs and delays (``elf.planning.costs``).

| of the model (``elf.planning.latency``) | from |
|---|---|
| lines a second of each member | rows and snapshots counted, and the pane's length |
| CPU of a member's last chunk, of a root, of the master | CPU counted, by row, snapshot and commit |
| what a sync takes, and waits for | seals beyond their CPU, of the members that were last |
| what a message takes | the way of a pane from its last seal to its last slice at the root: the median |
| what a draft waits for | drafts beyond their CPU, of the flows that were last |
| how long a group takes to agree | commits of these |

Each with mean and variance. So `wait` is predicted from counts alone; of the other phases the model knows
what they took, and what becomes of that with other settings. A log of a group is synced sooner than a
checkpoint, and who is last has mostly had others beside it: neither tells of the other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from agents.answering.workers import depth_of
from elf.fields import replace
from elf.job.costs import flow_costs, learned_in
from elf.job.spec import JobSpec
from elf.job.stamps import LAST, RootStamp, SealStamp, StampStatus
from elf.job.work import WorkStatus
from elf.planning.costs import PANES_MIN, Delays, FlowCost, JobCosts, MemberCost
from elf.planning.latency import NONE, POLL_S, Member, Moments
from elf.planning.phases import Pane, phases_of

T = TypeVar("T")


def job_costs(
    spec: JobSpec,
    stamped: Sequence[StampStatus],
    worked: Mapping[str, WorkStatus],
    poll_ms: int,
    agents: Collection[str],
) -> JobCosts | None:
    """What is known of a job: what its agents say, and what was learned before where they cannot tell. None:
    nothing. ``worked``: by address; ``poll_ms``: that agents use now; ``agents``: those that work for it."""
    flows = tuple(
        replace(one, members=tuple(pair for pair in one.members if pair[0] in agents))
        for one in flow_costs([flow.uid for flow in spec.flows], worked).values()
    )
    if not any(one.members for one in flows):
        return None
    learned = (one.delays for one in learned_in(worked.values()) if one.job == spec.uid)
    delays = delays_of(spec, stamped, worked, flows, poll_ms)
    if delays is None or not delays.phases:
        delays = next(learned, None)
    return JobCosts(spec.uid, 0, flows, delays)


def members_of_model(spec: JobSpec, flows: Iterable[FlowCost]) -> list[Member]:
    """Each agent of a job as the model has it."""
    pane_s = spec.plan.fragment.pane_us / 1e6
    by_agent: defaultdict[str, list[MemberCost]] = defaultdict(list)
    for flow in flows if pane_s else ():
        for address, cost in flow.members:
            by_agent[address].append(cost)
    # with several trees the rows are counted in one of them; the last chunk is that of one look
    last = POLL_S / pane_s if pane_s else 0.0
    return [
        Member(
            max(one.read for one in costs) / pane_s,
            sum(last * one.map_us + one.seal_us for one in costs) / 1e3,
        )
        for costs in by_agent.values()
    ]


def delays_of(
    spec: JobSpec,
    stamped: Sequence[StampStatus],
    worked: Mapping[str, WorkStatus],
    flows: Sequence[FlowCost],
    poll_ms: int,
) -> Delays | None:
    """None: nothing is known of any member. Without ``phases`` where too few panes were stamped."""
    members = members_of_model(spec, flows)
    if not members:
        return None
    panes, _ = panes_of(spec, stamped)
    found = phases_of(panes).phases if len(panes) >= PANES_MIN else {}
    seals = [(agent.agent, seal) for agent in stamped for seal in agent.seals]
    last = _last(((one.flow, one.pane), one.done_us, one) for _, one in seals)
    done = _last((one.pane, one.applied_us, one) for agent in stamped for one in agent.roots)
    depth = max((_depth(flow.uid, flow.leader, worked) for flow in spec.flows), default=0)
    roots = [one.root for one in flows if one.root is not None]
    jobs = [job for agent in worked.values() for job in agent.jobs if job.job == spec.uid and job.commits]
    final = jobs[0].final_us / jobs[0].commits / 1e3 if jobs else None
    beside = _is_beside(stamped)
    draft = max((one.commit_us for one in roots), default=0.0) / 1e3
    made = 0.0 if beside else final or 0.0
    cpu_ms = float(np.mean([one.cpu_ms for one in members]))
    sync = _beyond([one.done_us - one.begun_us for one in last], cpu_ms)
    queued = _beyond([one.made_us - one.draft_us for one in done], draft + made)
    agreed = _beyond([one.applied_us - one.made_us for one in done], 0.0)
    return Delays(
        phases=tuple((name, one.mean, one.variance) for name, one in found.items()),
        sync=(sync.mean, sync.variance),
        hop=_hop_ms(stamped, seals) / max(depth, 1),
        depth=depth,
        draft=draft,
        window=final if beside else None,
        poll_ms=poll_ms,
        trees=spec.plan.trees,
        made=made,
        queued=(queued.mean, queued.variance),
        agreed=(agreed.mean, agreed.variance) if done else None,
    )


def panes_of(spec: JobSpec, stamped: Iterable[StampStatus]) -> tuple[list[Pane], bool]:
    """The last panes of which everything is known, those that ended a window of the job. If none of them did,
    all, and False."""
    sealed: dict[tuple[str, int], tuple[str, SealStamp]] = {}
    roots: defaultdict[int, list[RootStamp]] = defaultdict(list)
    windows: dict[int, int] = {}
    for agent in stamped:
        for seal in agent.seals:
            key = (seal.flow, seal.pane)
            if key not in sealed or seal.done_us > sealed[key][1].done_us:
                sealed[key] = agent.agent, seal
        for root in agent.roots:
            roots[root.pane].append(root)
        for window in agent.windows:
            windows[window.pane] = max(windows.get(window.pane, 0), window.applied_us)
    found = []
    for pane in sorted(roots)[-LAST:]:
        whole = [one for one in roots[pane] if (one.flow, pane) in sealed]
        if whole:
            root = max(whole, key=lambda one: one.applied_us)
            last, seal = sealed[root.flow, pane]
            begun = (seal.due_us, seal.begun_us, seal.done_us)
            made = (root.draft_us, root.made_us, root.applied_us)
            found.append(Pane(pane, last, (*begun, *made, windows.get(pane, root.applied_us))))
    ended = [one for one in found if one.pane in windows]
    return (ended, True) if ended else (found, False)


def _last(done: Iterable[tuple[Hashable, int, T]]) -> list[T]:
    """Of what was done when, the last one of each kind."""
    found: dict[Hashable, tuple[int, T]] = {}
    for kind, at_us, one in done:
        if kind not in found or at_us > found[kind][0]:
            found[kind] = at_us, one
    return [one for _, one in found.values()]


def _beyond(took_us: Sequence[int], cpu_ms: float) -> Moments:
    """What is not CPU of what took so long."""
    if not took_us:
        return NONE
    took = np.array(took_us) / 1e3
    return Moments(max(0.0, float(took.mean()) - cpu_ms), float(took.var()))


def _hop_ms(stamped: Sequence[StampStatus], seals: Sequence[tuple[str, SealStamp]]) -> float:
    """Up the whole tree: the median, since clocks may differ; 0 where nobody else is in it."""
    latest: defaultdict[tuple[str, int], dict[str, int]] = defaultdict(dict)
    for agent, seal in seals:
        latest[seal.flow, seal.pane][agent] = seal.done_us
    found = []
    for status in stamped:
        for root in status.roots:
            others = [at for agent, at in latest[root.flow, root.pane].items() if agent != status.agent]
            if others and root.last_us:
                found.append(max(0, root.last_us - max(others)))
    return float(np.median(found)) / 1e3 if found else 0.0


def _depth(uid: str, root: str, worked: Mapping[str, WorkStatus]) -> int:
    parents = {to: one.parent for to, facts in worked.items() for one in facts.flows if one.flow == uid}
    return max((depth_of(address, parents, root) for address in parents), default=0)


def _is_beside(stamped: Sequence[StampStatus]) -> bool:
    """Whether windows are committed on their own: with a pane, both are applied at once."""
    panes = {root.applied_us for agent in stamped for root in agent.roots}
    return any(one.applied_us not in panes for agent in stamped for one in agent.windows)
