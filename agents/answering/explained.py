"""What EXPLAIN found, laid out for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from agents.answering.moments import moment_of

INDENT: Final = "  "
BUDGETS_MAX: Final = 10
"""Budgets that are told of, of however many agents."""
_COLUMNS: Final[tuple[tuple[str, str], ...]] = (
    ("rows", "rows"),
    ("groups", "groups"),
    ("keys", "keys"),
    ("map s", "map_us"),
    ("tree s", "tree_us"),
    ("seal s", "seal_us"),
    ("merge s", "merge_us"),
    ("commit s", "commit_us"),
    ("messages", "messages"),
    ("bytes", "sent_bytes"),
)
"""Of a level: heading, and what of ``elf.job.work.FlowWork`` it is."""
_ACROSS: Final = ("across", "crossed_bytes")
"""The same, where trees go by regions."""


def laid_out(told: Mapping[str, Any]) -> str:
    """Sections with a line before each."""
    head: list[tuple[str, str]] = [("query", " ".join(str(told["query"]).split()))]
    if told["job"]:
        head += [("job", told["job"]), ("master", told["master"])]
    head += [("function", told["function"])] if told["function"] else []
    head += [("reads", ", ".join(told["reads"]))] if told["reads"] else []
    head += [("offloaded", told["offloaded"])] if told["offloaded"] else []
    head += [("graph", line) for line in told["graph"]]
    head += [
        ("windows", "; ".join(told["windows"]) or "none: one result over everything"),
        ("panes", told["panes"]),
        ("top-k", f"{told['top_k']['strategy']}: {told['top_k']['why']}"),
    ]
    head += [("panes chosen", told["choice"]["why"])] if told["choice"] else []
    if (promise := told["promise"]) is not None:
        head.append(("promise", f"{promise['text']}, from {promise['from']}"))
        if (chosen := promise["by_the_model"]) is not None:
            kept = "kept" if chosen["keeps"] else "not kept"
            head.append(("", f"{kept}: {'; '.join(chosen['why'])}"))
    head += [("thresholds", told["top_k"]["thresholds"])] if told["top_k"]["thresholds"] else []
    sections = [_pairs(head)]
    sections += [_fragment(fragment) for fragment in told["fragments"]]
    sections.append(_flows(told["flows"], running=bool(told["job"])))
    sections += [_steps(told["steps"], told["not_at_roots"])] if told["steps"] else []
    sections += [_components(told["components"])] if told["components"] else []
    sections += [_join(told["join"])] if told["join"] else []
    for stage in told["stages"]:
        about = f"what windows are made of: the rows of windows of {stage['windows']}, at the master (DuckDB)"
        sections.append([about, *_sql(stage["sql"])])
    sections += [_graph(graph) for graph in told["graphs"]]
    sections.append(["final fragment, at the master (DuckDB)", *_sql(told["final"])])
    offline = told["offline"] or f"none: {told['not_offline']}"
    sections.append(["offline, over the archive (Spark)", *_sql(offline)])
    if "cost" in told:
        sections.append(_cost(told["cost"]))
    if "live" in told:
        sections.append(_live(told["live"], told["flows"]))
    return "\n\n".join("\n".join(section) for section in sections)


def _pairs(pairs: Sequence[tuple[str, str]], indent: str = "") -> list[str]:
    width = max(len(name) for name, _ in pairs)
    return [f"{indent}{name:<{width}}  {line}" for name, line in pairs]


def _sql(text: str) -> list[str]:
    return textwrap.indent(text, INDENT).splitlines()


def _fragment(fragment: Mapping[str, Any]) -> list[str]:
    late, since = fragment["lateness_s"], fragment["since_us"]
    pairs = [
        ("columns read", ", ".join(fragment["columns"]) or "none"),
        ("group keys", ", ".join(fragment["keys"]) or "none"),
        ("states", ", ".join(fragment["states"]) or "none"),
        ("lateness", "the stream's own" if late is None else f"{late:g} s"),
        ("stragglers", fragment["stragglers"]),
        *([("since", f"{moment_of(since)}, of archives too")] if since is not None else []),
        *(("joins", table) for table in fragment["tables"]),
        ("map (DuckDB)", ""),
    ]
    lines = [line.rstrip() for line in _pairs(pairs, INDENT)]
    sql = textwrap.indent(fragment["map"], 4 * " ").splitlines()
    if fragment["stage"] is not None:
        by = ", ".join(fragment["range_keys"])
        sql += [f"{INDENT}at the root of a range of {by}, over the groups of a pane (DuckDB)"]
        sql += textwrap.indent(fragment["stage"], 4 * " ").splitlines()
    return [f"fragment over {fragment['stream']}", *lines, *sql]


def _steps(steps: Sequence[Mapping[str, Any]], not_at_roots: str) -> list[str]:
    """Where each GROUP BY and OVER is done, and what parts its input there."""
    where = {"roots": "the roots, each its range", "master": "the master"}
    rows = [(one["what"], ", ".join(one["by"]) or "nothing", where[one["at"]]) for one in steps]
    why = [f"{INDENT}later stages are the master's: {not_at_roots}"] if not_at_roots else []
    return ["stages", *table(("stage", "parted by", "done at"), rows), *why]


def _components(components: Sequence[Mapping[str, Any]]) -> list[str]:
    """Which stages run together, by which keys; and which would by the other score, if that differs."""
    rows = [
        (
            " + ".join(one["steps"]),
            ", ".join(one["keys"]) or "none in common",
            "the roots" if one["at"] == "roots" else "the master",
        )
        for one in components
        if one["score"] == "comm"
    ]
    others = [" + ".join(one["steps"]) for one in components if one["score"] == "attributes"]
    lines = table(("stages that run together", "by", "done at"), rows)
    if others:
        lines.append(f"{INDENT}by the number of common keys they would be: {'; '.join(others)}")
    return ["components, by the rows between stages (Enorm's Algorithm 1)", *lines]


def _graph(graph: Mapping[str, Any]) -> list[str]:
    most = f"{graph['edges_max']:,} edges and {graph['vertices_max']:,} vertices at most"
    most += f", and {graph['work_max']:,} {graph['work']}" if "work" in graph else ""
    pairs = [
        ("makes", ", ".join(graph["columns"])),
        ("bounds", f"{most}, else refused"),
        ("warm start", "none: each window begins anew, so that it is the same whoever makes it"),
        ("over (DuckDB)", ""),
    ]
    lines = [line.rstrip() for line in _pairs(pairs, INDENT)]
    return [
        f"WITH GRAPH {graph['graph']}, at the master (scipy)",
        *lines,
        *textwrap.indent(graph["edges"], 4 * " ").splitlines(),
    ]


def _join(join: Mapping[str, Any]) -> list[str]:
    around = f"from {join['before_s']:g} s before it to {join['after_s']:g} s after it"
    held = f"the rows of a pane, and those of the right stream {around}"
    pairs = [
        ("partners" if join["streams"] else "beside each", join["partners"]),
        ("held", held if join["streams"] else f"the groups of a window's panes, and those {around}"),
        ("windows wait", f"{join['after_s']:g} s longer than without the join"),
        ("group keys", ", ".join(join["keys"]) or "none"),
        ("states", ", ".join(join["states"]) or "none"),
        ("joining (DuckDB)", ""),
    ]
    lines = [line.rstrip() for line in _pairs(pairs, INDENT)]
    sql = textwrap.indent(join["joining"], 4 * " ").splitlines()
    what = "join, at the master, of panes of the flows"
    return [what if join["streams"] else "LAG, at the master, of panes of the flow", *lines, *sql]


def _flows(flows: Sequence[Mapping[str, Any]], *, running: bool) -> list[str]:
    rows = [
        (
            flow["stream"],
            flow["keys"],
            flow["flow"][:8] if flow["flow"] else "new",
            flow["root"] or "",
            "" if flow["depth"] is None else str(flow["depth"]),
            (flow["topic"] or "")[:12],
            f"{flow['asked']} of {flow['members']}",
            ", ".join(flow["shared_with"]) or "nobody",
        )
        for flow in flows
    ]
    title = "flows and their trees" if running else "flows, as they would be if it were created now"
    headings = ("stream", "keys", "flow", "root", "depth", "topic", "agents", "shared with")
    return [title, *table(headings, rows)]


def _live(live: Mapping[str, Any], flows: Sequence[Mapping[str, Any]]) -> list[str]:
    silent = f"; silent: {', '.join(live['silent'])}" if live["silent"] else ""
    lines = [
        f"live, CPU and counts since each agent began with the flow (agents asked: {live['asked']}{silent})"
    ]
    for flow, about in zip(live["flows"], flows, strict=True):
        lines.append(f"{INDENT}flow {flow['flow'][:8]} over {about['stream']}, keys: {about['keys']}")
        across = any(level["crossed_bytes"] for level in flow["levels"])
        columns = (*_COLUMNS, *((_ACROSS,) if across else ()))
        rows = [
            (
                "root" if not level["level"] else str(level["level"]),
                str(level["agents"]),
                *(_number(level[name], name) for _, name in columns),
                f"{level['slowest']} {_number(level['slowest_us'], '_us')} s",
            )
            for level in flow["levels"]
        ]
        headings = ("level", "agents", *(heading for heading, _ in columns), "slowest")
        lines += [INDENT + line for line in table(headings, rows)]
        root = flow["levels"][0] if flow["levels"] else None
        if root is not None and not root["level"]:
            lines.append(
                f"{2 * INDENT}the root made {root['commits']:,} commits of {root['commit_keys']:,} keys, "
                f"{root['commit_bytes']:,} bytes"
            )
            left_out = sum(level["left_out"] for level in flow["levels"])
            unsure = f"; the root asked for all of them {root['unsure']:,} times" if root["unsure"] else ""
            lines += [f"{2 * INDENT}agents left {left_out:,} keys out{unsure}"] if left_out else []
    lines += _between(live["between"]) if live["between"] else []
    lines += _budgets(live["budgets"])
    lines += [f"{INDENT}of late {live['takes']}"] if live["takes"] else []
    lines += [f"{INDENT}{live['learned']['told']}"] if live["learned"] else []
    master = live["master"]
    if master is None:
        return [*lines, f"{INDENT}the master does not answer"]
    made = f"{master['commits']:,} commits of windows, {master['rows']:,} rows"
    return [*lines, f"{INDENT}master: {made}, {_number(master['final_us'], '_us')} s of CPU"]


def _between(between: Mapping[str, int]) -> list[str]:
    """What has gone from component to component."""
    rows, groups, made = (between[name] for name in ("rows", "to_roots", "to_master"))
    share = f" ({made / groups:.1%})" if groups else ""
    return [
        f"{INDENT}between components: of {rows:,} rows {groups:,} groups went to the roots, and of these "
        f"{made:,} rows{share} to the master"
    ]


def _cost(cost: Mapping[str, Any]) -> list[str]:
    """What a job would cost its agents, and what tells that."""
    title = "cost at the agents, if it were created now"
    if not cost["new"]:
        return [f"{title}: nothing more, all that it reads is computed already"]
    if not cost["told"]:
        return [f"{title}: not known before some job over its stream has made a pane"]
    most = cost["told"][0]
    like = f" ({', '.join(most['like'][:3])})" if most["like"] else ""
    rows = [
        (
            one["agent"],
            f"{one['lines_per_sec']:,.0f}",
            f"{one['cpu_share']:.2%}",
            f"{one['up_bytes_per_sec']:,.0f}",
            f"{one['memory_bytes'] / 1e6:,.1f}",
        )
        for one in cost["told"]
    ]
    headings = ("agent", "lines/s", "CPU of a core", "bytes up/s", "open panes MB")
    asked = f"{cost['asked']} of {cost['agents']} agents asked"
    new = f"{cost['new']} of {cost['flows']} fragments new, " if cost["flows"] > 1 else ""
    lines = table(headings, rows)
    return [f"{title} ({new}told by {most['alike']}{like}; {asked})", *(INDENT + line for line in lines)]


def _budgets(told: Sequence[Mapping[str, Any]]) -> list[str]:
    """Agents where the job, or its creator, is furthest over a budget."""
    most = sorted(told, key=lambda one: (-one["weight"], one["agent"]))
    rest = [f"{INDENT}and {len(most) - BUDGETS_MAX:,} more budgets"] if len(most) > BUDGETS_MAX else []
    return [*(f"{INDENT}{one['agent']}: {one['said']}" for one in most[:BUDGETS_MAX]), *rest]


def _number(value: int, name: str) -> str:
    return f"{value / 1e6:.3f}" if name.endswith("_us") else f"{value:,}"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Columns as wide as they need to be; numbers to the right."""
    whole = [tuple(headings), *(tuple(row) for row in rows)]
    widths = [max(len(row[place]) for row in whole) for place in range(len(headings))]
    right = [
        all(row[place].replace(",", "").replace(".", "").isdigit() or not row[place] for row in whole[1:])
        for place in range(len(headings))
    ]
    return [
        INDENT
        + INDENT.join(
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in whole
    ]
