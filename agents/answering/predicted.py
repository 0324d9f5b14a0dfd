"""What the model (``elf.planning.latency``) says of a job's latency, from what its agents count and have
stamped.

| of the model | from |
|---|---|
| lines a second of each member | rows and snapshots counted, and the pane's length |
| CPU of a member's last chunk, of a root, of the master | CPU counted, by row, snapshot and commit |
| what a sync takes | all members' seal stamps beyond their CPU: mean and variance |
| what a message takes | the quickest way of a pane from its last seal to its last slice at the root |

So `wait`, `draft` and `window` are predicted from counts alone, `commit` from syncs of other disks. CPU is
taken to be free: what waits for a core is in what was measured, and not in the model.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from agents.answering.workers import depth_of
from elf.job.spec import JobSpec
from elf.job.stamps import SealStamp, StampStatus
from elf.job.work import FlowWork, WorkStatus
from elf.planning.latency import (
    NONE,
    POLL_S,
    Costs,
    Member,
    Moments,
    normal_quantile,
    phases_of_pane,
    total,
)


def predicted(
    spec: JobSpec, stamped: Sequence[StampStatus], worked: Mapping[str, WorkStatus]
) -> dict[str, Any] | None:
    """As a JSON object; None where nothing is known of any member. ``worked``: by address."""
    members = members_in(spec, worked.values())
    if not members:
        return None
    costs = costs_of(spec, stamped, worked, members)
    phases = phases_of_pane(members, costs)
    whole = total(phases.values())
    return {
        "phases": {name: _told(one) for name, one in phases.items()},
        "total": {**_told(whole), "p99_ms": round(normal_quantile(whole, 0.99), 3)},
        "facts": {
            "lines_s": [round(one.lines_s, 3) for one in members],
            "sync": _told(costs.sync),
            "hop_ms": round(costs.hop.mean, 3),
            "depth": costs.depth,
        },
    }


def _told(of: Moments) -> dict[str, float]:
    return {"mean_ms": round(of.mean, 3), "variance_ms2": round(of.variance, 3)}


def members_in(spec: JobSpec, worked: Iterable[WorkStatus]) -> list[Member]:
    pane_s = spec.plan.fragment.pane_us / 1e6
    found = []
    for agent in worked:
        flows = [one for one in agent.flows if one.snapshots]
        if flows and pane_s:
            # with several trees the rows are counted in one of them
            most = max(flows, key=lambda one: one.rows)
            lines_s = (most.rows + most.late) / (most.snapshots * pane_s)
            found.append(Member(lines_s, sum(_last_ms(one, lines_s) for one in flows)))
    return found


def _last_ms(flow: FlowWork, lines_s: float) -> float:
    """CPU of the chunk that seals a pane, and of its snapshot."""
    a_row = (flow.map_us + flow.tree_us) / max(flow.rows + flow.late, 1)
    return (lines_s * POLL_S * a_row + flow.seal_us / flow.snapshots) / 1e3


def costs_of(
    spec: JobSpec, stamped: Sequence[StampStatus], worked: Mapping[str, WorkStatus], members: Sequence[Member]
) -> Costs:
    seals = [(agent.agent, seal) for agent in stamped for seal in agent.seals]
    depth = max((_depth(flow.uid, flow.leader, worked) for flow in spec.flows), default=0)
    drafts = [_draft_us(flow.uid, worked.values()) for flow in spec.flows]
    jobs = [job for agent in worked.values() for job in agent.jobs if job.job == spec.uid and job.commits]
    beside = _is_beside(stamped)
    return Costs(
        sync=_sync([seal for _, seal in seals], float(np.mean([one.cpu_ms for one in members]))),
        hop=Moments(_hop_ms(stamped, seals) / max(depth, 1)),
        depth=depth,
        draft=max(drafts, default=0.0) / 1e3,
        window=jobs[0].final_us / jobs[0].commits / 1e3 if beside and jobs else None,
    )


def _draft_us(uid: str, worked: Iterable[WorkStatus]) -> float:
    roots = [one for agent in worked for one in agent.flows if one.flow == uid and one.commits]
    return sum(one.commit_us for one in roots) / max(sum(one.commits for one in roots), 1)


def _sync(seals: Sequence[SealStamp], cpu_ms: float) -> Moments:
    if not seals:
        return NONE
    took = np.array([seal.done_us - seal.begun_us for seal in seals]) / 1e3
    return Moments(max(0.0, float(took.mean()) - cpu_ms), float(took.var()))


def _hop_ms(stamped: Sequence[StampStatus], seals: Sequence[tuple[str, SealStamp]]) -> float:
    """Up the whole tree, with nothing in the way; 0 where nobody else is in it."""
    latest: defaultdict[tuple[str, int], dict[str, int]] = defaultdict(dict)
    for agent, seal in seals:
        latest[seal.flow, seal.pane][agent] = seal.done_us
    found = []
    for status in stamped:
        for root in status.roots:
            others = [at for agent, at in latest[root.flow, root.pane].items() if agent != status.agent]
            if others and root.last_us:
                found.append(max(0, root.last_us - max(others)))
    return min(found, default=0) / 1e3


def _depth(uid: str, root: str, worked: Mapping[str, WorkStatus]) -> int:
    parents = {to: one.parent for to, facts in worked.items() for one in facts.flows if one.flow == uid}
    return max((depth_of(address, parents, root) for address in parents), default=0)


def _is_beside(stamped: Sequence[StampStatus]) -> bool:
    """Whether windows are committed on their own: with a pane, both are applied at once."""
    panes = {root.applied_us for agent in stamped for root in agent.roots}
    return any(one.applied_us not in panes for agent in stamped for one in agent.windows)
