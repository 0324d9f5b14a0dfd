"""What is known of the costs of flows and jobs (``elf.planning.costs``): from what agents have counted since
they began, and, of what these cannot tell yet, from what job groups have learned before.

An agent that has sealed ``PANES_MIN`` panes of a flow speaks for itself. Of another one, or one that is
silent, the newest record counts that names it. This is the only place that makes costs of counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from elf.job.work import FlowWork, WorkStatus
from elf.planning.costs import PANES_MIN, FlowCost, JobCosts, MemberCost, RootCost


def member_cost(work: FlowWork) -> MemberCost | None:
    """None: it has sealed nothing."""
    n = work.snapshots
    if not n:
        return None
    return MemberCost(
        panes=n,
        rows=work.rows / n,
        late=work.late / n,
        map_us=(work.map_us + work.tree_us) / n,
        seal_us=work.seal_us / n,
        mapped=work.groups / n,
        groups=work.keys / n,
        bytes=work.bytes / n,
        messages=work.messages / n,
        sent=work.sent_bytes / n,
        crossed=work.crossed_bytes / n,
    )


def root_cost(work: FlowWork) -> RootCost | None:
    """None: it has committed nothing."""
    n = work.commits
    if not n:
        return None
    return RootCost(
        commits=n,
        panes=work.commit_panes / n,
        rows=work.commit_rows / n,
        groups=work.commit_keys / n,
        bytes=work.commit_bytes / n,
        commit_us=work.commit_us / n,
    )


def learned_in(worked: Iterable[WorkStatus]) -> list[JobCosts]:
    """What the masters among these say that was learned, the newest first."""
    found = [job.costs for status in worked for job in status.jobs if job.costs is not None]
    return sorted(found, key=lambda one: (-one.at_ms, one.job))


def flow_costs(flows: Iterable[str], worked: Mapping[str, WorkStatus]) -> dict[str, FlowCost]:
    """What is known of these flows. ``worked``: by address, what agents and masters say."""
    learned: dict[str, list[FlowCost]] = {}
    for record in learned_in(worked.values()):
        for one in record.flows:
            learned.setdefault(one.flow, []).append(one)
    live: dict[str, dict[str, FlowWork]] = {}
    for address, status in worked.items():
        for work in status.flows:
            live.setdefault(work.flow, {})[address] = work
    return {uid: _flow_cost(uid, live.get(uid, {}), learned.get(uid, ())) for uid in flows}


def _flow_cost(uid: str, live: Mapping[str, FlowWork], learned: Iterable[FlowCost]) -> FlowCost:
    """``learned``: the newest first."""
    members: dict[str, MemberCost] = {}
    root: RootCost | None = None
    for record in reversed(list(learned)):
        members |= dict(record.members)
        root = record.root or root
    for address, work in live.items():
        cost, known = member_cost(work), members.get(address)
        if cost is not None and (known is None or cost.panes >= PANES_MIN):
            members[address] = cost
    roots = [one for work in live.values() if (one := root_cost(work)) is not None]
    if roots:
        newest = max(roots, key=lambda one: one.commits)
        root = newest if root is None or newest.commits >= PANES_MIN else root
    return FlowCost(uid, tuple(sorted(members.items())), root)
