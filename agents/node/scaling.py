"""Jobs that get roots, and lose them, by themselves (protocol 5.15): ``ALTER JOB … SCALE AUTO (1, 4)``.

The leader of the catalog log's voters asks the planner (``elf.planning.scaling``) for each such job that
may change (``agents.node.deciding``); a decision is an entry of the log, ``TreesDecided``. The leader of
the job's group carries it out as the statement ``ALTER JOB … TREES n``: a new version, which begins or is
aborted like any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from elf.job.catalog.assignments import TRIES
from elf.job.catalog.loads import by_group, job_of_loads, roots_for
from elf.job.catalog.log import CatalogLog
from elf.job.messages.log import AgentLoad, DecideTrees, GroupLoad
from elf.job.spec import JobSpec
from elf.planning.scaling import trees_for


def proposed(
    log: CatalogLog, free: Iterable[JobSpec], agents: Mapping[str, AgentLoad], now_ms: int
) -> Sequence[DecideTrees]:
    """What is to be decided of those of these jobs that scale by themselves. ``agents``: their loads, by
    address. What came to nothing ``TRIES`` times waits for another version."""
    groups = by_group(agents)
    jobs = [spec for spec in free if spec.scale is not None and log.assignments.in_vain(spec) < TRIES]
    found = [_decided(log, spec, agents, groups, now_ms) for spec in jobs]
    return [one for one in found if one is not None]


def _decided(
    log: CatalogLog,
    spec: JobSpec,
    agents: Mapping[str, AgentLoad],
    groups: Mapping[str, GroupLoad],
    now_ms: int,
) -> DecideTrees | None:
    job = job_of_loads(log, spec, groups, whole=True)
    if spec.scale is None or job is None:
        return None
    decided = trees_for(job, *spec.scale)
    if decided.trees == job.trees:
        return None
    roots = roots_for(log, spec, decided.trees, agents)
    if roots is None:
        return None
    why = "; ".join(decided.reasons)
    return DecideTrees(
        uid=spec.uid, before=job.trees, trees=decided.trees, at_ms=now_ms, why=why, roots=roots
    )
