"""How many roots a job should have, and which agents a fleet can do without: Stela's ETP (``etp``) over what
elf's operators are.

    lines ─▶ roots, one a key range (TREES) ─▶ windows, made by the master

Lines are mapped where their files are, and a master makes its windows alone: only roots can be more, or
fewer. An instance is to take ``ROOM`` of a core at most, so an operator is congested (1.2 times that) before
it is behind. Where the windows are congested, the ETP of the roots is 0: more of them would only wait.

    roots congested ─▶ one more          with one fewer each takes ≤ ``IDLE`` ─▶ one fewer
                       └─────────────── between: hysteresis ───────────────┘

All loads are in cores.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec

from elf.planning.decision import Decision
from elf.planning.etp import CONGESTION_RATE, Operator, Topology, etp, scale_in, target

ROOM: Final = 0.5
"""Of a core, for an instance: the rest is for what else its agent does."""
FULL: Final = CONGESTION_RATE * ROOM
IDLE: Final = 0.3
"""Half of ``FULL``: a job that has just grown does not shrink."""
ROOTS: Final = "roots"
WINDOWS: Final = "windows"


class Job(msgspec.Struct, frozen=True):
    """What a job takes: all of its ``trees`` roots together, and the ``windows`` that its master makes beside
    them. Windows that are made with the panes of the only root count as that root's."""

    trees: int
    roots: float
    windows: float = 0.0


class Trees(Decision, frozen=True):
    """How many trees a job should have."""

    trees: int


class Leaver(msgspec.Struct, frozen=True):
    """An agent that can go, and what it has: how many masters and roots."""

    agent: str
    etp_sum: float
    masters: int
    roots: int


class Leaving(Decision, frozen=True):
    """The agents that matter least, the first first."""

    leavers: tuple[Leaver, ...]


def topology(job: Job) -> Topology:
    return _of({"": job})


def _of(jobs: Mapping[str, Job]) -> dict[str, Operator]:
    """Several jobs, by name: each its own graph. Of each thing that is done a job needs its whole load."""
    found = {}
    for name, job in jobs.items():
        whole = job.roots + job.windows
        found[f"{name}lines"] = Operator(arrives=whole, processes=whole, children=(name + ROOTS,))
        found[name + ROOTS] = _operator(whole, job.roots, job.trees, (name + WINDOWS,))
        found[name + WINDOWS] = _operator(whole, job.windows, 1, ())
    return found


def _operator(whole: float, takes: float, instances: int, children: tuple[str, ...]) -> Operator:
    """It does as much of what comes as it has room for."""
    share = min(1.0, instances * ROOM / takes) if takes else 1.0
    return Operator(arrives=whole, processes=share * whole, children=children, instances=instances)


def trees_for(job: Job, least: int, most: int) -> Trees:
    """By itself, between two bounds: one tree more or fewer at a time, or as many as it has."""
    now, each = job.trees, job.roots / job.trees
    if not least <= now <= most:
        trees = least if now < least else most
        return Trees(reasons=(f"it has {now}, and is to have {least} to {most}",), trees=trees)
    found = target(topology(job))
    if found.congested:
        what = _takes(job)
        if found.operator == WINDOWS:
            return Trees(reasons=(f"{what}: more roots would only wait for its master",), trees=now)
        if now == most:
            return Trees(reasons=(f"{what}, and there are {most} at most",), trees=now)
        waits = f"{found.etp:.0%} of its output waits for them"
        return Trees(reasons=(f"{what}, from {FULL:.0%} there is one more; {waits}",), trees=now + 1)
    if now > least and job.roots / (now - 1) <= IDLE:
        fewer = f"with one fewer each takes {job.roots / (now - 1):.0%}, of {IDLE:.0%} at most"
        return Trees(reasons=(f"{_takes(job)}; {fewer}",), trees=now - 1)
    return Trees(reasons=(f"a root takes {each:.0%} of a core: that is neither much nor little",), trees=now)


def _takes(job: Job) -> str:
    each, made = job.roots / job.trees, f"its windows {job.windows:.0%} of a core at its master"
    roots = f"each of its {job.trees} roots takes" if job.trees > 1 else "its root takes"
    return f"{roots} {each:.0%} of a core" + (f", {made}" if job.windows > 0.005 else "")


def stands(job: Job) -> str:
    """What a job takes, and where it is congested."""
    found = target(topology(job))
    if not found.congested:
        expected = "nothing of it is congested"
    elif found.operator == WINDOWS:
        expected = "its output waits for its master, and not for its roots"
    else:
        expected = f"{found.etp:.0%} of its output waits for its roots"
    return f"{_takes(job)}; {expected}"


def as_asked(job: Job, trees: int) -> Trees:
    """As many as a person wants; the reasons say what can be expected of it."""
    after = f"with {trees} of them each takes {job.roots / trees:.0%}"
    return Trees(reasons=(f"{stands(job)}; {after}",), trees=trees)


def places(loads: Mapping[str, float], taken: Collection[str], count: int) -> tuple[str, ...]:
    """The agents of ``count`` new roots: those with the least to do (``loads``) and none of the job's yet
    (``taken``), in turn."""
    order = sorted(loads, key=lambda agent: (agent in taken, loads[agent], agent))
    return tuple(order[place % len(order)] for place in range(count)) if order else ()


def leaving(
    jobs: Mapping[str, Job],
    masters: Mapping[str, Sequence[str]],
    roots: Mapping[str, Sequence[str]],
    stay: Collection[str],
    count: int,
) -> Leaving:
    """Which ``count`` agents should go: those with the lowest ETPSum. ``masters`` and ``roots``: for every
    agent, the jobs of which it has one, a job as often as it has some; ``stay``: agents that never go. Raises
    ``ValueError`` if there are not so many."""
    of = _of(jobs)
    placement = {
        agent: [*(job + WINDOWS for job in masters[agent]), *(job + ROOTS for job in roots[agent])]
        for agent in masters
    }
    shares, found = etp(of), []
    for one in scale_in(of, placement, count, stay=stay).removals:
        agent = one.machine
        own = sum(shares[name] for name in placement[agent])  # not what those before it leave to it
        found.append(Leaver(agent, own, len(masters[agent]), len(roots[agent])))
    return Leaving(reasons=tuple(map(_why_it, found)), leavers=tuple(found))


def _why_it(one: Leaver) -> str:
    if not one.masters + one.roots:
        return "it has no master and no root"
    return f"of those that can go it is on the way of the least output: ETPSum {one.etp_sum:.2f}"
