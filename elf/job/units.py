"""Units: panes that a region's head merges into one before they cross its border (protocol 4.11).

A window of 60 s over panes of 5 s needs twelve panes of each agent, and never one of them alone. Where all
versions that read a flow are such, the head of a region (``overlay.regions``) holds its panes until a unit of
them is whole, merges them into one piece whose rows stand in the first pane of the unit, and sends that. The
root commits a unit with such pieces as a whole or not at all, so nothing durable has one half of it.

    wishes      all versions that the catalog log attaches to a flow: ``panes_of`` each, together ``agreed``
    at a head   pieces of [u, u + n) ── whole ──▶ one piece, ``unit`` n       (``elf.job.rollup.border``)
    at a root   taken whole, if all readers that its log knows accept n; else refused, and its members are
                asked for their snapshots, pane by pane, as any that are missing (protocol 4.5)

**Why no window is cut.** A root that has not yet heard of a version with finer windows may commit a unit
across one of their bounds. So a version that joins a running flow counts only from behind a commit whose
root's log had come far enough (``Panes.known_from``; protocol 6.10): to the version's entry, or to an earlier
one from which on, up to that, all units that readers agreed on fit into its windows (``fit_since`` in
``elf.job.catalog.readings``). So windows like those that are read already, or of a multiple of their units,
wait for nobody. A commit says how far its root's log was (``roster_version``). A later root takes no unit
before its log has come as far as all commits of the flow that it has. So whoever commits a unit that such a
version reads takes none that cuts its windows.

Nothing of this happens where the log has never named two regions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from elf.job.catalog.log import CatalogLog
from elf.job.spec import Flow, JobSpec, flow_uid
from elf.ql.plan import Fragment, Plan
from elf.windows import Cumulative, Sliding

PANE_US_MAX: Final = 60_000_000
"""Panes that are as long as this cross by themselves: a version waits for a commit of one pane at most."""
UNIT_US_MAX: Final = 600_000_000
"""A longer unit is not held."""


def is_mergeable(fragment: Fragment) -> bool:
    """Whether panes of a flow may ever be merged into units: short ones, whose commit is a plain merge that
    may be revised."""
    shaped = fragment.function or fragment.changes_panes or fragment.first or fragment.keep or fragment.count
    policy = fragment.leap or fragment.mirror or fragment.since_us is not None
    early = fragment.changes_us is not None or bool(fragment.late_of)
    return 0 < fragment.pane_us < PANE_US_MAX and not (shaped or policy or early)


def panes_of(plan: Plan) -> int:
    """How many panes of its flows a version lets be one; 1: it needs each by itself."""
    plain = not (plan.stages or plan.beside or plan.join or plan.reads or plan.since or any(plan.reach))
    if not plain or not plan.windows or not all(map(is_mergeable, plan.fragments)):
        return 1
    if not all(type(kind) in (Sliding, Cumulative) for kind in plan.windows):
        return 1
    return math.gcd(*(kind.unit_us for kind in plan.windows)) // plan.fragment.pane_us


def agreed(readers: Iterable[JobSpec], fragment: Fragment) -> int:
    """How many panes all of these versions let be one."""
    found = math.gcd(*(panes_of(spec.plan) for spec in readers)) or 1
    return held_panes(found, fragment.pane_us, UNIT_US_MAX)


def held_panes(unit: int, pane_us: int, hold_us: int | None) -> int:
    """How many panes of a unit are one where none is held for longer than ``hold_us`` (None: as long as the
    unit takes): the largest divisor of it that is not too long."""
    if unit == 1 or hold_us is None:
        return unit
    return next((n for n in range(min(unit, hold_us // pane_us), 1, -1) if unit % n == 0), 1)


def unit_of(log: CatalogLog, uid: str) -> int:
    """How many panes of a flow may be one, as far as this log goes."""
    flow = log.flow(uid)
    if flow is None or not log.spans_regions or not is_mergeable(flow.fragment):
        return 1
    return agreed(log.attached(uid), flow.fragment)


def hold_us(log: CatalogLog, flow: Flow, most_us: int | None) -> int | None:
    """How long a head holds panes of a flow: what was decided of it (``elf.job.catalog.routings``), and never
    longer than its own ``most_us``. None: as long as readers allow."""
    decided_us = log.routings.panes(flow.uid) * flow.fragment.pane_us
    return min((one for one in (decided_us, most_us) if one), default=None) if most_us != 0 else 0


def unit_end_us(log: CatalogLog, flow: Flow, pane: int) -> int:
    """When the unit that a pane is in ends, in event time."""
    unit = unit_of(log, flow.uid)
    return (pane // unit + 1) * unit * flow.fragment.pane_us


def joined_at(log: CatalogLog, spec: JobSpec) -> tuple[int, ...]:
    """For each flow of a version that now begins to read how far the log of the flow's root must have come
    before the version counts; 0: the version has brought the flow, or its panes are never merged, or no root
    can ever have taken a unit that crosses a bound of its windows."""
    own = {flow_uid(flow.fragment, f"{spec.uid}.{spec.version}.{n}") for n, flow in enumerate(spec.flows)}
    return tuple(
        _joined_at(log, spec, flow)
        if log.spans_regions and is_mergeable(flow.fragment) and flow.uid not in own
        else 0
        for flow in spec.flows
    )


def _joined_at(log: CatalogLog, spec: JobSpec, flow: Flow) -> int:
    panes = panes_of(spec.plan)
    return log.readings.fit_since(flow.uid, spec, lambda there: panes % agreed(there, flow.fragment) == 0)
