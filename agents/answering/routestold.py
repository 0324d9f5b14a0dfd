"""What EXPLAIN ROUTES found, laid out for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agents.answering.explained import INDENT, table


def laid_out(told: Mapping[str, Any]) -> str:
    """Sections with a line before each."""
    if "why_not" in told:
        return f"{told['why_not']}\n{told['acts']}"
    sections = [
        ["regions: " + ", ".join(f"{one['region']} ({_agents(one['agents'])})" for one in told["regions"])],
        _links(told),
        _jobs(told),
        *_plan(told),
    ]
    if told["missing"]:
        sections.append(["what is missing, and what would say more", *_indented(told["missing"])])
    sections.append([told["acts"]])
    return "\n\n".join("\n".join(section) for section in sections)


def _agents(count: int) -> str:
    return "1 agent" if count == 1 else f"{count} agents"


def _indented(lines: list[str]) -> list[str]:
    return [INDENT + line for line in lines]


def _links(told: Mapping[str, Any]) -> list[str]:
    known = [one for one in told["links"] if one["rate"] or one["delay_s"] is not None or one["sent_bytes"]]
    if not known:
        return ["links: none is measured or stated"]
    rows = [
        (
            f"{one['origin']} → {one['target']}",
            _number(one["rate"]),
            one["is"],
            "" if one["delay_s"] is None else f"{1000 * one['delay_s']:.1f}",
            one["delay_is"],
            f"{one['sent_bytes']:,}",
            f"{one['arrived_bytes']:,}",
            _share(one, "today_load"),
            _share(one, "planned_load"),
        )
        for one in known
    ]
    headings = ("link", "bytes/s", "rate is", "delay ms", "delay is", "sent", "arrived", "today", "planned")
    return ["links, and how full jobs make them today and by the plan", *table(headings, rows)]


def _share(link: Mapping[str, Any], name: str) -> str:
    load = link.get(name)
    if load is None:
        return ""
    return f"{load / link['rate']:.1%}" if link["rate"] else f"{load:,.0f} bytes/s"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def _jobs(told: Mapping[str, Any]) -> list[str]:
    if not told["jobs"]:
        return ["jobs: none"]
    rows = [
        (
            one["job"],
            one["stream"],
            one["target"],
            ", ".join(f"{region} {rate:,.1f}" for region, rate in one["rows_per_sec"].items()),
            f"{one['pane_s']:g}",
            f"{one['today_s']:g}",
            _detours(one),
            ", ".join(_heads(region, names) for region, names in one["heads"].items()),
            "" if one["size"] is None else f"{one['size']['said']} (off by {one['size']['residual']:.0%})",
        )
        for one in told["jobs"]
    ]
    headings = (
        "job",
        "stream",
        "to",
        "rows/s from",
        "pane s",
        "held s",
        "over",
        "heads",
        "bytes of a batch of I rows",
    )
    return ["jobs, a line for each of their flows", *table(headings, rows)]


def _heads(region: str, names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{len(names)} of {region}"


def _plan(told: Mapping[str, Any]) -> list[list[str]]:
    plan = told["plan"]
    if plan is None:
        return []
    rows = [
        (
            name,
            ", ".join(_way(source, via, one["target"]) for source, via in one["vias"].items()),
            f"{one['interval_s']:.3g}",
            "" if one["direct_s"] is None else f"{one['direct_s']:.3g}",
            str(one["panes"]),
            f"{one['batch_s']:.3g}",
        )
        for name, one in plan["routes"].items()
    ]
    headings = ("job", "ways", "interval s", "direct s", "panes", "batch under way s")
    routes = table(headings, rows) if rows else [f"{INDENT}no job is carried"]
    differs = told["differs"] or ["nothing"]
    return [
        ["plan", *routes, *_indented(plan["reasons"])],
        ["what it would do in another way than today", *_indented(differs)],
        ["whether that is worth a change", *_indented(plan["today"])],
    ]


def _detours(job: Mapping[str, Any]) -> str:
    return ", ".join(_way(source, via, job["target"]) for source, via in job["vias"].items())


def _way(source: str, via: str, target: str) -> str:
    return f"{source} → {target}" if via == target else f"{source} → {via} → {target}"
