"""What the model (``elf.planning.latency``) says of a job's latency, from what its agents count and have
stamped (``agents.answering.learned``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agents.answering.learned import delays_of, members_of_model
from elf.job.costs import flow_costs
from elf.job.spec import JobSpec
from elf.job.stamps import StampStatus
from elf.job.work import WorkStatus
from elf.planning.latency import Moments, normal_quantile, phases_of_pane, total


def predicted(
    spec: JobSpec, stamped: Sequence[StampStatus], worked: Mapping[str, WorkStatus], poll_ms: int
) -> dict[str, Any] | None:
    """As a JSON object; None where nothing is known of any member. ``worked``: by address; ``poll_ms``: that
    agents use now."""
    flows = list(flow_costs([flow.uid for flow in spec.flows], worked).values())
    delays = delays_of(spec, stamped, worked, flows, poll_ms)
    if delays is None:
        return None
    members, costs = members_of_model(spec, flows), delays.costs
    phases = phases_of_pane(members, costs, poll_ms / 1000)
    whole = total(phases.values())
    return {
        "phases": {name: _told(one) for name, one in phases.items()},
        "total": {**_told(whole), "p99_ms": round(normal_quantile(whole, 0.99), 3)},
        "facts": {
            "lines_s": [round(one.lines_s, 3) for one in members],
            "looks_ms": poll_ms,
            "sync": _told(costs.sync),
            "draft_cpu_ms": round(costs.draft + costs.made, 3),
            "queued": _told(costs.queued),
            "agreed": None if costs.agreed is None else _told(costs.agreed),
            "hop_ms": round(costs.hop.mean, 3),
            "depth": costs.depth,
        },
    }


def _told(of: Moments) -> dict[str, float]:
    return {"mean_ms": round(of.mean, 3), "variance_ms2": round(of.variance, 3)}
