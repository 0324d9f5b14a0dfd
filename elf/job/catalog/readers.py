"""Jobs that read jobs (FROM JOB): what the catalog log does not accept, by the order of its entries.

A reader is planned over the query that the job has. The first entry wins: a reader whose job has been dropped
or changed when its entry comes is dropped at once, and a version that changes a job which has a reader by
then is over before it begins. RESUME changes nothing, so it is allowed with readers. While one version takes
over from another there is no single query to read. Only a drop cannot be undone once the job group has given
the job up: a reader that came in between goes on, with the query that it was planned over.
"""

from __future__ import annotations

from collections.abc import Sequence

from elf.job.catalog.log import CatalogLog
from elf.job.spec import JobSpec


def is_read(name: str, readers: Sequence[str]) -> str:
    """The refusal to change a job that other jobs read."""
    by = ", ".join(readers)
    return f"job {name} is read by {by} (FROM JOB), so it stays as it is; drop what reads it first"


def not_led(log: CatalogLog, *, job: str = "", flow: str = "") -> str:
    """The answer of an agent that is taken for the job group of a job, or for the root of a flow, and is
    not."""
    if job and log.job(job) is None:
        return "no such job here any more"
    if flow and log.flow(flow) is None:
        return "no such flow here any more"
    return "it is not up here yet, has just moved, or most of the agents that keep it are away; try again"


def not_taken(log: CatalogLog, spec: JobSpec) -> str:
    """Why the log does not accept a job or version; empty if it does."""
    newest = log.job(spec.uid)
    if newest is not None and newest.plan == spec.plan:
        return ""
    readers = log.read_by(spec.uid) or log.read_by(spec.replaces)
    if readers:
        return is_read(spec.name, readers)
    if any(map(log.is_dropped, spec.plan.reads)):
        return "a job that it reads has been dropped meanwhile"
    for uid, identity in zip(spec.plan.reads, spec.plan.read_as, strict=False):
        if identity != readable_as(log, uid):
            name = next((one.name for one in log.versions(uid)), uid)
            return f"job {name}, which it reads, has been changed meanwhile; try again"
    return ""


def readable_as(log: CatalogLog, uid: str) -> str | None:
    """What a job looks like to its readers; None while a version takes over from another."""
    found = {spec.plan.identity for spec in log.versions(uid)}
    return found.pop() if len(found) == 1 else None
