"""What people are told of jobs and flows, out of the catalog log and out of what masters and roots know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from agents.answering.decided import last_decision, offloads_told
from agents.answering.joining import as_of
from agents.answering.moments import moment_of
from elf.batch import decode
from elf.job.catalog.assignments import TRIES
from elf.job.catalog.log import CatalogLog
from elf.job.gaps import estimate_of
from elf.job.messages.groups import JobStatus
from elf.job.messages.inquiries import FlowStatus
from elf.job.promised import promise_told
from elf.job.rollup.rooted import event_time
from elf.job.spec import END_OF_TIME, Flow, JobSpec, VersionRecord
from elf.job.stragglers import policy_of
from elf.job.tables import is_table
from elf.job.work import EstimateWork, JobWork
from elf.planning.costs import FlowCost, JobCosts
from elf.ql.own import owns_of
from elf.ql.plan import Fragment, Plan, Table
from elf.ql.user_functions import functions_of

TOLD_MAX = 3
"""Agents that are named in a list of jobs."""


def job_row(spec: JobSpec, log: CatalogLog, reason: str, work: JobWork | None) -> dict[str, object]:
    """A job in a list of jobs. ``readers``: how many jobs read its flow, or the one of its flows that most
    read; ``reason``: why nothing comes of it, if that is known; ``work``: its master's.
    """
    return {
        "job": spec.name,
        "creator": spec.creator,
        "stream": ", ".join(spec.plan.streams),
        "master": spec.leader,
        "flow": ", ".join(flow.uid[:8] for flow in spec.flows),
        "readers": max(len(log.readers(flow.uid)) for flow in spec.flows),
        "query": spec.plan.sql,
        "state": "paused" if log.is_paused(spec.uid) else "active",
        "reason": reason,
        "promise": promise_of(spec, work),
        "priority": priority_of(spec),
        "budget": "" if work is None or work.estimate is None else estimate_told(work.estimate),
    }


def priority_of(spec: JobSpec) -> str:
    """Who gives way where an agent cannot map all that comes."""
    return "research" if spec.plan.gives_way else "production"


def promise_of(spec: JobSpec, work: JobWork | None) -> str:
    """What a job promises and whether its master keeps it, for people; empty: it promises nothing. ``work``:
    its master's."""
    promise = spec.plan.promise
    return "" if promise is None else promise_told(promise, None if work is None else work.promise)


def outputs_of(job: str, log: CatalogLog) -> list[str]:
    """The outputs of a job, for people."""
    return [f"{one.name} to {one.target}" for one in log.outputs(job) if not is_table(one)]


def tables_of(job: str, log: CatalogLog) -> list[str]:
    """The tables of a job, for people."""
    return [f"{one.name} by {one.option('key')}" for one in log.outputs(job) if is_table(one)]


def describe(
    facts: JobStatus,
    log: CatalogLog,
    named: Callable[[str], str],
    roots: Sequence[FlowStatus | None] = (),
) -> dict[str, str]:
    """A job's facts, by name. ``named`` says an address with its agent's name; ``roots`` is what the roots of
    its flows know.
    """
    plan, flows = facts.spec.plan, facts.spec.flows
    members = (member.name for flow in flows for member in log.asked(flow.fragment))
    told = {
        "state": facts.state,
        "version": str(facts.spec.version),
        "master": named(facts.master),
        **({"kept by": ", ".join(map(named, facts.voters))} if facts.voters else {}),
        "creator": facts.spec.creator,
        "query": plan.sql,
        **({"scale": text} if (text := _scale(facts.spec, log)) else {}),
        **last_decision(facts.spec.uid, log, named),
        **({"offloaded": text} if (text := offloads_told(facts.spec.uid, log, named)) else {}),
        **({"outputs": ", ".join(out)} if (out := outputs_of(facts.spec.uid, log)) else {}),
        **({"tables": ", ".join(there)} if (there := tables_of(facts.spec.uid, log)) else {}),
        **({"function": text} if (text := functions_told(plan)) else {}),
        **({"aggregates": text} if (text := aggregates_told(plan)) else {}),
        **{f"table {place}": described(one) for place, one in enumerate(_tables(plan), 1)},
        **({"reads": ", ".join(read_jobs(plan, log))} if plan.reads else {}),
        **({"joins" if plan.join.side else "beside": plan.join.about} if plan.join is not None else {}),
        "windows": "; ".join(kind.text for kind in plan.windows) or "none",
        "emits": _emission(plan.fragment),
        "stragglers": _stragglers(facts, roots),
        "answers from": moment_of(facts.first_us),
        "committed to": moment_of(facts.committed_us),
        "members": ", ".join(dict.fromkeys(members)),
    }
    if len(facts.versions) > 1:
        told |= {f"version {one.spec.version}": _version(one, facts) for one in facts.versions}
    for place, flow in enumerate(flows, 1):
        told["flow" if len(flows) == 1 else f"flow {place}"] = (
            f"{flow.uid[:8]} over {flow.fragment.stream}{_keys(flow)}, root {named(flow.leader)}, "
            f"read by {', '.join(reader.name for reader in log.readers(flow.uid))}"
        )
    told |= {"regions": text} if (text := regions_told(roots)) else {}
    told |= {"unusable": text} if (text := _unusable(roots)) else {}
    told |= {"uncast": text} if (text := _uncast(facts)) else {}
    told |= {"estimates": text} if (text := _estimates(facts)) else {}
    told |= {"costs": text} if (text := costs_told(facts.spec, facts.costs)) else {}
    told |= {"waits": facts.waiting} if facts.waiting else {}
    return told | ({"failure": facts.failure} if facts.failure else {})


def costs_told(spec: JobSpec, costs: JobCosts | None) -> str:
    """What was learned of a job; empty: nothing was. Of several streams each is told of."""
    if costs is None:
        return ""
    known = {one.flow: one for one in costs.flows if one.members}
    told = []
    for stream in dict.fromkeys(flow.fragment.stream for flow in spec.flows):
        flows = [known[one.uid] for one in spec.flows if one.fragment.stream == stream and one.uid in known]
        told += [f"{stream}: {_flow_costs(flows, spec.plan.fragment.pane_us / 1e6)}"] if flows else []
    if (delays := costs.delays) is not None and delays.phases:
        waits = ", ".join(f"{name} {mean:,.1f}" for name, mean, _ in delays.phases)
        sync, variance = delays.sync
        told.append(f"panes wait (ms): {waits}; a sync takes {sync:,.1f} ± {variance**0.5:,.1f}")
    return f"learned {moment_of(1_000 * costs.at_ms)}: {'; '.join(told)}"


def _flow_costs(flows: Sequence[FlowCost], pane_s: float) -> str:
    """An agent of all key ranges together, on the mean; the first one counts the rows of all."""
    n = max(len(one.members) for one in flows)
    each = [cost for one in flows for _, cost in one.members]
    read = max(sum(cost.read for cost in each), 1.0)
    groups, size = sum(cost.groups for cost in each) / n, sum(cost.bytes for cost in each) / n
    sent, crossed = sum(cost.sent for cost in each) / n, sum(cost.crossed for cost in each) / n
    roots = [one.root.commit_us / 1e3 for one in flows if one.root is not None]
    rates = f", {sent / pane_s:,.0f} bytes/s up" if pane_s else ""
    rates += f" ({crossed / pane_s:,.0f} over borders)" if pane_s and crossed else ""
    rates += f", {' and '.join(f'{ms:,.2f}' for ms in roots)} ms a commit at the root" if roots else ""
    return (
        f"of {n} agents each takes {sum(cost.map_us for cost in each) / read:,.3f} µs of CPU a row, makes "
        f"{sum(cost.mapped for cost in each) / read:.3g} groups of one, and of a pane {groups:,.0f} groups "
        f"in {size:,.0f} bytes{rates}"
    )


def _scale(spec: JobSpec, log: CatalogLog) -> str:
    if spec.scale is None:
        return ""
    text = "by itself, {} to {} trees".format(*spec.scale)
    if len(log.versions(spec.uid)) > 2 or (vain := log.assignments.in_vain(spec)) < TRIES:
        return text
    return f"{text}; {vain} decisions came to nothing: no more until the job is altered; SCALE OUT 1 says why"


def _tables(plan: Plan) -> list[Table]:
    return list(dict.fromkeys(table for one in plan.unranged for table in one.tables))


def read_jobs(plan: Plan, log: CatalogLog) -> list[str]:
    """The jobs that a job reads, by name."""
    specs = [(uid, log.job(uid)) for uid in plan.reads]
    return ["a job that is dropped" if spec is None else f"job {spec.name}" for uid, spec in specs]


def described(table: Table) -> str:
    """A table that is joined: its name, file, columns, size and digest."""
    columns = ", ".join(column.name for column in table.columns)
    size = f"{table.rows:,} rows, {len(table.data):,} bytes"
    return f"{table.name} of {as_of(table)} ({columns}; {size}; {table.relation})"


def _emission(fragment: Fragment) -> str:
    """When windows are said, in the words of the query."""
    if fragment.changes_us is not None:
        return f"CHANGES EVERY {fragment.changes_us / 1e6:g} SECONDS"
    if fragment.revise_us is not None:
        return f"FINAL REVISE {fragment.revise_us / 1e6:g} SECONDS"
    return "FINAL"


def _stragglers(facts: JobStatus, roots: Sequence[FlowStatus | None]) -> str:
    """The policy, and what came of it."""
    fragment = facts.spec.plan.fragment
    if fragment.leap:
        return f"{policy_of(fragment)}: {_leapt(facts)}"
    return f"{policy_of(fragment)}: {_mirrored(roots)}" if fragment.mirror else policy_of(fragment)


def _mirrored(roots: Sequence[FlowStatus | None]) -> str:
    """For whom neighbours have answered."""
    sent: Counter[str] = Counter()
    for root in roots:
        sent.update(root.mirrored if root is not None else {})
    named = [f"{n:,} snapshots of {name}" for name, n in sorted(sent.items())]
    silent = "; a root does not answer" if None in roots else ""
    return f"neighbours have sent {', '.join(named) or 'no snapshots yet'}{_run_again(roots)}{silent}"


def _run_again(roots: Sequence[FlowStatus | None]) -> str:
    """Whose work was run again, by whom; and why not."""
    runs: Counter[tuple[str, str]] = Counter()
    failed: dict[str, tuple[int, str]] = {}
    for root in roots:
        for agent, by, panes in root.reexecution if root is not None else ():
            runs[agent, by] += panes
        for agent, (count, why) in root.not_run.items() if root is not None else ():
            failed[agent] = failed.get(agent, (0, ""))[0] + count, why
    told = [f"{by} has run {n:,} panes of {agent} again" for (agent, by), n in sorted(runs.items())]
    told += [
        f"{count:,} times {agent} could not be run again, the last time since {why}"
        for agent, (count, why) in sorted(failed.items())
    ]
    return "".join(f"; {one}" for one in told)


def regions_told(roots: Sequence[FlowStatus | None]) -> str:
    """How many agents each region has, and through which of them its panes leave it, of all flows; empty:
    trees do not go by regions."""
    edges = [edge for root in roots if root is not None for edge in root.tree]
    found = []
    for region in sorted({edge.region for edge in edges} - {""}):
        ours = {edge.address for edge in edges if edge.region == region}
        heads = sorted({e.name for e in edges if e.address in ours and e.parent not in {"", *ours}})
        through = f" through {', '.join(heads)}" if heads else ""
        found.append(f"{region}: {len(ours)} agent{'s' * (len(ours) > 1)}{through}")
    return "; ".join(found)


def _unusable(roots: Sequence[FlowStatus | None]) -> str:
    """Of whom snapshots could not be opened."""
    told = (one for root in roots if root is not None for one in sorted(root.unusable.items()))
    return "; ".join(f"{n:,} pieces of {name} cannot be opened: {why}" for name, (n, why) in told)


def _uncast(facts: JobStatus) -> str:
    """What its last window says of values that are none of the types that the job was made with."""
    last = decode(facts.windows[-1].status).to_pylist() if facts.windows else []
    count = max((status.get("uncast") or 0 for status in last), default=0)
    return (
        f"{count:,} values of the last window are NULL: they do not fit the types that the columns had when "
        "this version was made; ALTER JOB … AS the same query takes those that they have now"
        if count
        else ""
    )


def _estimates(facts: JobStatus) -> str:
    """What its last window says of rows that were left out, or read late, over budgets."""
    estimate = estimate_of(decode(facts.windows[-1].status)) if facts.windows else None
    return "" if estimate is None else estimate_told(estimate)


def estimate_told(estimate: EstimateWork) -> str:
    """How the last window is over budgets, those of the highest weights first."""
    out = [
        f"{one.whose} on {one.agent} (one row in {one.weight})" for one in estimate.budgets if one.weight > 1
    ]
    late = [one.agent for one in estimate.budgets if one.weight == 1]
    told = []
    if estimate.sampled or out:
        share = f"{estimate.sampled:,} of {estimate.rows:,} rows of the last window left out"
        told.append(f"{share} over {_some(out)}" if out else share)
    if late:
        told.append(f"{_some(late)} read late for its budget")
    return "; ".join(told)


def _some(names: Sequence[str]) -> str:
    """The first of them."""
    more = f" and {len(names) - TOLD_MAX:,} more" if len(names) > TOLD_MAX else ""
    return ", ".join(names[:TOLD_MAX]) + more


def _leapt(facts: JobStatus) -> str:
    """What its last windows say of rows that came to nothing, and who is missing in them."""
    rows, count, until, missing = 0, 0, None, dict[str, None]()
    for status in (one for window in facts.windows for one in decode(window.status).to_pylist()):
        missing |= dict.fromkeys(status["missing"])
        if until is None or status["window_start"] is None or status["window_start"] >= until:
            rows, until = rows + (status.get("leapt") or 0), status["window_end"]
        count += 1
    names = f", and lack {', '.join(missing)}" if missing else ""
    return f"the last {count} windows tell of {rows:,} rows that were leapt over{names}"


def _keys(flow: Flow) -> str:
    place, count = flow.fragment.range
    return f", key range {place + 1} of {count}" if count > 1 else ""


def functions_told(plan: Plan) -> str:
    """A job's functions, for people; empty if it has none."""
    return ", ".join(f"{one.kind} of {one.filename} ({one.hash})" for one in functions_of(plan))


def _version(one: VersionRecord, facts: JobStatus) -> str:
    """A version's part of the job's windows, and what made it."""
    pane_us = one.spec.plan.fragment.pane_us
    if one.state in ("preparing", "aborted"):
        return f"{one.state}: {one.note}"
    first = event_time(one.first_pane, pane_us) if one.after_us is None else one.after_us
    until = one.until_us if one.until_us < END_OF_TIME else one.ends_us
    last = f" until {moment_of(until)}" if until < END_OF_TIME else ""
    state = "current" if one.spec.version == facts.spec.version and one.state == "committed" else one.state
    if one.cut_us < END_OF_TIME:
        last += ", open windows skipped"
    return f"{state}, from {moment_of(first)}{last}: {one.note}"


def current_only(facts: JobStatus) -> JobStatus:
    """Without the windows of other versions than the current one."""
    windows = tuple(w for w in facts.windows if w.version == facts.spec.version)
    return msgspec.structs.replace(facts, windows=windows)


def aggregates_told(plan: Plan) -> str:
    """The aggregates of people's own that a plan calls."""
    return ", ".join(f"{one.name} of {one.filename} ({one.hash})" for one in owns_of(plan.unranged))


def not_comparable(plan: Plan) -> str:
    """Why a job's windows cannot be compared with Spark's over the archive; empty if they can."""
    if plan.fragment.late_of:
        return "reads late rows, and which came late is not in the archive"
    if plan.fragment.count is not None:
        return "has windows of rows, and where it began to count is not in the archive"
    if functions_of(plan):
        return "has a function of its own, which Spark does not run"
    return ""


def summary(facts: JobStatus, members: int) -> dict[str, object]:
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
        "waiting": facts.waiting,
        "members": members,
    }


def trees(spec: JobSpec, flows: Sequence[FlowStatus]) -> dict[str, object]:
    """The trees of a job's flows."""
    drawn: list[dict[str, object]] = [
        {
            "flow": one.flow,
            "stream": one.stream,
            "root": one.leader,
            "readers": [reader.name for reader in one.readers],
            "edges": [
                {
                    "name": e.name,
                    "address": e.address,
                    "parent": e.parent,
                    "sealed_us": e.sealed_us,
                    "region": e.region,
                }
                for e in one.tree
            ],
        }
        for one in flows
    ]
    return {"job": spec.name, "master": spec.leader, "flows": drawn}
