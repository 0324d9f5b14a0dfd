"""What people are told of jobs and flows, out of the stream log and out of what masters and roots know."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from elf.job import messages as say
from elf.job.spec import Flow, JobSpec
from elf.job.streamlog import StreamLog
from elf.ql.plan import Fragment


def job_row(spec: JobSpec, log: StreamLog) -> dict[str, object]:
    """A job in a list of jobs. ``readers``: how many jobs read its flow, or the one of its flows that most
    read.
    """
    return {
        "job": spec.name,
        "creator": spec.creator,
        "stream": ", ".join(spec.plan.streams),
        "master": spec.home,
        "flow": ", ".join(flow.uid[:8] for flow in spec.flows),
        "readers": max(len(log.readers(flow.uid)) for flow in spec.flows),
        "query": spec.plan.sql,
        "state": "active",
        "reason": "",
    }


def describe(facts: say.JobFacts, log: StreamLog, named: Callable[[str], str]) -> dict[str, str]:
    """A job's facts, by name. ``named`` says an address with its agent's name."""
    plan, flows = facts.spec.plan, facts.spec.flows
    members = (member.name for stream in plan.streams for member in log.members(stream))
    told = {
        "state": facts.state,
        "master": named(facts.master),
        "creator": facts.spec.creator,
        "query": plan.sql,
        "windows": "; ".join(kind.text for kind in plan.windows) or "none",
        "emits": _emission(plan.fragment),
        "answers from": _moment(facts.first_us),
        "committed to": _moment(facts.committed_us),
        "members": ", ".join(dict.fromkeys(members)),
    }
    for place, flow in enumerate(flows, 1):
        told["flow" if len(flows) == 1 else f"flow {place}"] = (
            f"{flow.uid[:8]} over {flow.fragment.stream}{_keys(flow)}, root {named(flow.home)}, "
            f"read by {', '.join(reader.name for reader in log.readers(flow.uid))}"
        )
    return told | ({"failure": facts.failure} if facts.failure else {})


def _emission(fragment: Fragment) -> str:
    """When windows are said, in the words of the query."""
    if fragment.changes_us is not None:
        return f"CHANGES EVERY {fragment.changes_us / 1e6:g} SECONDS"
    if fragment.revise_us is not None:
        return f"FINAL REVISE {fragment.revise_us / 1e6:g} SECONDS"
    return "FINAL"


def _keys(flow: Flow) -> str:
    place, count = flow.fragment.range
    return f", key range {place + 1} of {count}" if count > 1 else ""


def summary(facts: say.JobFacts, members: int) -> dict[str, object]:
    """What a comparison needs to know of a job."""
    plan = facts.spec.plan
    return {
        "uid": facts.spec.uid,
        "state": facts.state,
        "version": facts.spec.version,
        "creator": facts.spec.creator,
        "master": facts.master,
        "query": plan.sql,
        "windows": [kind.text for kind in plan.windows],
        "pane_us": plan.fragment.pane_us,
        "first_us": facts.first_us,
        "committed_us": facts.committed_us,
        "failure": facts.failure,
        "members": members,
    }


def _moment(us: int | None) -> str:
    if us is None:
        return "the first row"
    return datetime.fromtimestamp(us / 1e6, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def trees(spec: JobSpec, flows: Sequence[say.FlowFacts]) -> dict[str, object]:
    """The trees of a job's flows."""
    drawn: list[dict[str, object]] = [
        {
            "flow": one.flow.uid,
            "stream": one.flow.fragment.stream,
            "root": one.flow.home,
            "readers": [reader.name for reader in one.readers],
            "edges": [
                {"name": e.name, "address": e.address, "parent": e.parent, "sealed_us": e.sealed_us}
                for e in one.tree
            ],
        }
        for one in flows
    ]
    return {"job": spec.name, "master": spec.home, "flows": drawn}
