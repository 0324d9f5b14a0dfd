"""What people are told of decisions that nobody has asked for (``agents.node.deciding``,
``agents.answering.routing``), out of the catalog log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from agents.answering.moments import moment_of
from elf.job.catalog.assignments import Decided
from elf.job.catalog.log import CatalogLog
from elf.job.messages.log import PauseDecided, RouteDecided, RowsOffloaded, TreesDecided
from elf.job.spec import job_of, place_of

CARRIED_MS: Final = 10_000
"""A decision that is not carried out after so long will not be."""


def decisions(log: CatalogLog, named: Callable[[str], str], now_ms: int) -> list[dict[str, object]]:
    """What was decided of jobs without being asked, and of who maps their rows, the last first, and whether
    it was done."""
    rows = [(one.seq, _assigned(one, log, named, now_ms)) for one in log.assignments]
    rows += [(one.seq, _routed(one, log)) for one in log.routings]
    rows += [(one.seq, _offloaded(one, log, named)) for one in log.offloads]
    return [row for _, row in sorted(rows, key=lambda row: -row[0])]


def last_decision(uid: str, log: CatalogLog, named: Callable[[str], str]) -> dict[str, str]:
    """The last one of a job's group, if there was one."""
    last = log.assignments.last(uid)
    if last is None:
        return {}
    done = "" if log.assignments.was_carried_out(last) else ", not done"
    what, before, after = _decided(last, named)
    text = f"{moment_of(1_000 * last.at_ms)} from {before} to {after}{done}: {last.why}"
    return {{"trees": "scaled", "looks": "promise worked out"}.get(what, "moved"): text}


def _assigned(one: Decided, log: CatalogLog, named: Callable[[str], str], now_ms: int) -> dict[str, object]:
    """What was decided of a job."""
    spec = log.ever(job_of(one.uid))
    going = now_ms - one.at_ms <= CARRIED_MS and log.assignments.last(one.uid) == one
    state = "done" if log.assignments.was_carried_out(one) else "under way" if going else "not done"
    what, before, after = _decided(one, named)
    return {
        "at": moment_of(1_000 * one.at_ms),
        "job": spec.name if spec is not None else one.uid,
        "changes": what,
        "from": before,
        "to": after,
        "state": state,
        "why": one.why,
    }


def _routed(one: RouteDecided, log: CatalogLog) -> dict[str, object]:
    """What was decided of how a flow goes over borders: it holds until something else does."""
    last, flow = log.routings.last(one.uid), log.flow(one.uid)
    holds = "in effect" if one.acts else "proposed"
    readers = ", ".join(sorted({spec.name for spec in log.attached(one.uid)}))
    return {
        "at": moment_of(1_000 * one.at_ms),
        "job": readers or one.uid,
        "changes": "route",
        "from": "",
        "to": route_told(one, 0 if flow is None else flow.fragment.pane_us),
        "state": holds if last == one else "over",
        "why": one.why,
    }


def _offloaded(one: RowsOffloaded, log: CatalogLog, named: Callable[[str], str]) -> dict[str, object]:
    """Who is to map rows of a job on an agent, as somebody has asked for: it holds until something else
    does."""
    spec, own = log.ever(one.uid), log.name_of(one.agent_id) or one.agent_id
    holds = log.job(one.uid) is not None and log.offloads.helper(one.uid, one.agent_id) == one.helper
    return {
        "at": moment_of(1_000 * one.at_ms),
        "job": spec.name if spec is not None else one.uid,
        "changes": f"map of {own}",
        "from": "",
        "to": named(one.helper) if one.helper else own,
        "state": "in effect" if holds else "over",
        "why": "asked for",
    }


def offloads_told(uid: str, log: CatalogLog, named: Callable[[str], str]) -> str:
    """Whose rows of a job others map; empty: each agent maps its own."""
    told = [
        f"the rows of {log.name_of(one.agent_id) or one.agent_id} are mapped by {named(one.helper)} since "
        f"{moment_of(1_000 * one.at_ms)}"
        for one in log.offloads.of(uid)
    ]
    return f"{'; '.join(told)}; windows come later, by archive.roll_secs there" if told else ""


def route_told(one: RouteDecided, pane_us: int) -> str:
    """How a flow goes, in words."""
    ways = ", ".join(f"{source} → {via} → {one.target}" for source, via in one.vias)
    held = f"; heads hold {one.panes * pane_us / 1e6:g} s" if one.panes and pane_us else ""
    return f"{ways or f'directly to {one.target}'}{held}"


def _decided(one: Decided, named: Callable[[str], str]) -> tuple[str, str, str]:
    """What is to be different, what it was and what it is to be."""
    if isinstance(one, TreesDecided):
        return "trees", str(one.before), str(one.trees)
    if isinstance(one, PauseDecided):
        return "looks", f"{one.before_ms} ms", f"{one.pause_ms} ms"
    place = place_of(one.uid)
    return f"key range {place + 1}" if place else "master", named(one.origin), named(one.target)
