"""What agents say that they do (``AgentLoad``, by address), beside what the catalog log says: what a job
takes in all, and where the roots of more key ranges are to be.

A job group's load is counted where the log says that the group is: its own leader says it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from elf.job.catalog.log import CatalogLog
from elf.job.messages.log import AgentLoad, GroupLoad
from elf.job.spec import JobSpec, group_uid
from elf.planning import scaling

CORE: Final = 1e6
"""Loads are said in millionths of one."""
_LITTLE: Final = 1 / CORE


def total(load: AgentLoad) -> float:
    """In cores."""
    return (load.rest + sum(one.load for one in load.groups)) / CORE


def by_group(agents: Mapping[str, AgentLoad]) -> dict[str, GroupLoad]:
    """What each job group takes."""
    return {one.uid: one for load in agents.values() for one in load.groups}


def job_of_loads(
    log: CatalogLog, spec: JobSpec, groups: Mapping[str, GroupLoad], *, whole: bool = False
) -> scaling.Job | None:
    """What a job takes; None where nobody has said it, or (``whole``) somebody has not, of all its groups. Of
    a group that takes nothing that is said only where its job scales by itself."""
    trees = spec.plan.trees
    uids = {uid for place in range(trees) if log.leader(uid := group_uid(spec.uid, place)) is not None}
    said = [groups[uid] for uid in uids if uid in groups]
    if len(said) < (len(uids) if whole else 1):
        return None
    windows = sum(min(one.load, one.windows) for one in said)
    return scaling.Job(trees, (sum(one.load for one in said) - windows) / CORE, windows / CORE)


def roots_for(
    log: CatalogLog, spec: JobSpec, trees: int, agents: Mapping[str, AgentLoad]
) -> tuple[str, ...] | None:
    """The agents of the key ranges after the first, if a job is to have so many ``trees``: a range that has a
    job group stays. None where nobody is known who could have another one: an agent with a stream, as the log
    has no others by name."""
    known = [log.leader(group_uid(spec.uid, place)) for place in range(1, trees)]
    taken = {spec.leader, *(at for at in known if at)}
    loads = {at: total(load) for at, load in agents.items() if log.there(at)}
    new = iter(scaling.places(loads, taken, known.count(None)))
    found = [at or next(new, "") for at in known]
    return tuple(found) if all(found) else None


def work_of(
    log: CatalogLog, agents: Mapping[str, AgentLoad]
) -> tuple[dict[str, scaling.Job], dict[str, list[str]], dict[str, list[str]]]:
    """What all jobs take, by uid; and of which of them each agent has the master, and a root. A job of which
    nothing is said takes as good as nothing; so do those in Python, which have masters alone."""
    groups = by_group(agents)
    jobs: dict[str, scaling.Job] = {}
    masters: dict[str, list[str]] = defaultdict(list)
    roots: dict[str, list[str]] = defaultdict(list)
    for spec in log.jobs():
        trees = spec.plan.trees
        jobs[spec.uid] = job_of_loads(log, spec, groups) or scaling.Job(trees, _LITTLE)
        masters[spec.leader].append(spec.uid)
        for place in range(trees):
            roots[log.leader(group_uid(spec.uid, place)) or spec.leader].append(spec.uid)
    for program in log.programs():
        jobs[program.uid] = scaling.Job(1, _LITTLE)
        masters[program.master].append(program.uid)
    return jobs, masters, roots
