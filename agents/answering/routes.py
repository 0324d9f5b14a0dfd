"""Over which regions jobs would send, and how often, if the planner (``elf.planning.routes``) had its way;
beside how they do: for EXPLAIN ROUTES, and for the agent that decides (``agents.answering.routing``). All
agents are asked for their work and for what they know of links.

| what | from |
|---|---|
| links | what this agent's ``cluster.links`` states; else the more of what probes have found |
|       | (``elf.job.probes``) and the most of a period (``elf.job.links``) |
| delays | stated; else half of the shortest round trip that an agent has measured |
| demands | one of each flow: rows a second by region, as agents have counted, or as was learned before |
| sizes | U(I), fitted over what agents sealed, heads sent and roots committed at a time, on the mean |

What is in none of these is named as missing, and left out of the plan.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Generator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from agents.answering.asks import Ask, Procedure, plan_routes
from agents.answering.fleet import Fleet
from agents.answering.routestold import laid_out
from agents.answering.workers import ask_all
from elf.errors import UserError
from elf.job.catalog.log import CatalogLog
from elf.job.costs import flow_costs
from elf.job.links import PERIOD_MS, PERIODS
from elf.job.spec import Flow
from elf.job.units import held_panes, hold_us, unit_of
from elf.job.work import InspectWork, WorkStatus
from elf.planning.costs import FlowCost
from elf.wire.base import Answer
from elf.wire.clients import Reply
from overlay.regions import region_of

Told = dict[str, Any]
"""A JSON object."""
Pair = tuple[str, str]
"""From a region to another one."""
Stated = Mapping[Pair, tuple[float, float | None]]
"""Bytes a second and delay (s) of links, as settings state them."""
SURE: Final = ("stated", "probed")
"""How a rate must be known for a plan that rests on it to act; one that was seen may be far below it."""
NAMED_MAX: Final = 8
"""Of pairs or agents of which nothing is known: so many are named."""
LATELY: Final = f"the last {PERIODS * PERIOD_MS // 60_000} minutes"
_NOWHERE: Final = "no agent says where it stands (agent.place and cluster.regions)"


class Wanted(msgspec.Struct, frozen=True):
    """What a flow wants to have carried. ``sources``: rows a second by region; ``samples``: rows and bytes of
    batches; ``unit``: how many panes may be one, ``held``: how many are; ``vias``: over which regions others
    send to ``target``, where they do."""

    uid: str
    name: str
    target: str
    sources: dict[str, float]
    samples: tuple[list[float], list[float]]
    pane_s: float
    unit: int
    held: int
    vias: dict[str, str]


Turn = tuple[str, str, tuple[tuple[str, str], ...], int]
"""What a flow turns to: its uid, the region of its root, over which regions others send there, and how many
panes heads hold (0: as many as readers allow)."""


class Turned(msgspec.Struct, frozen=True):
    """What flows are to turn to, and ``why``, or why not."""

    turns: tuple[Turn, ...] = ()
    why: list[str] = []


class Planned(msgspec.Struct, frozen=True):
    """``sizes``: U(I) of each job; ``loads``: of links, bytes a second; the ``plan``, if there is one; and
    what it does in another way than today, and what is missing."""

    sizes: dict[str, Told]
    loads: dict[Pair, Told]
    plan: Told | None
    differs: list[str]
    missing: list[str]
    turned: Turned = Turned()


class Found(msgspec.Struct, frozen=True):
    """Everything that EXPLAIN ROUTES tells; what flows are to turn to; and an agent of each region that has
    answered."""

    told: Told
    turned: Turned = Turned()
    agents: dict[str, str] = {}


class Routes:
    """As this agent would plan them. ``hold_us``: how long heads hold panes at most (None: as long as readers
    allow)."""

    def __init__(self, log: CatalogLog, fleet: Fleet, stated: Stated, hold_us: int | None) -> None:
        self._log = log
        self._fleet = fleet
        self._stated = stated
        self._hold_us = hold_us

    def of(self, request: int, mode: str) -> Procedure:
        """EXPLAIN ROUTES. ``mode``: ``cluster.routes`` of this agent."""
        told = (yield from self.found()).told
        told["acts"] = _acts(mode)
        return Reply(request=request, text=laid_out(told), body=json.dumps(told).encode())

    def found(self) -> Generator[list[Ask], list[Answer], Found]:
        """Ask all agents, and plan."""
        regions = {address: region_of(place) for address, place in self._log.places().items()}
        names = sorted(set(regions.values()))
        if len(names) < 2:
            one = f"all agents that say where they stand are in {names[0]}" if names else _NOWHERE
            return Found({"why_not": f"nothing crosses a border: {one}"})
        flows = self._log.flows()
        jobs = tuple(spec.uid for spec in self._log.jobs())
        uids = tuple(flow.uid for flow in flows)
        asked = InspectWork(id=0, origin="", flows=uids, jobs=jobs, links=True, costs=True)
        addresses = sorted(self._log.addresses() | {flow.leader for flow in flows})
        answers = yield from ask_all(addresses, asked, WorkStatus)
        worked = {address: one for address, one in answers.items() if one is not None}
        told: Told = {
            "regions": [
                {"region": name, "agents": sum(its == name for its in regions.values())} for name in names
            ],
            "links": links_of(names, regions, worked, self._stated),
            "jobs": [],
            "missing": self._unknown(addresses, worked, regions),
        }
        demands = self._demands(flows, regions, worked, told)
        told["missing"] += _unmeasured(told["links"])
        turned = yield from _add_plan(told, demands)
        return Found(told, turned, {regions[one]: one for one in worked if one in regions})

    def _unknown(
        self, addresses: Sequence[str], worked: Mapping[str, WorkStatus], regions: Mapping[str, str]
    ) -> list[str]:
        """Of which agents something is missing."""
        silent = [self._fleet.named(one) for one in addresses if one not in worked]
        nowhere = [self._fleet.named(one) for one in addresses if one not in regions]
        found = [f"no answer from {_some(silent)}: their rows and links are not in this"] if silent else []
        return found + (
            [f"{_some(nowhere)} do not say where they stand: their rows are not in this"] if nowhere else []
        )

    def _demands(
        self,
        flows: Sequence[Flow],
        regions: Mapping[str, str],
        worked: Mapping[str, WorkStatus],
        told: Told,
    ) -> list[Wanted]:
        """What flows want to have carried. Adds each to what is told, and what is missing of it."""
        found, named = list[Wanted](), Counter[str]()
        costs = flow_costs([flow.uid for flow in flows], worked)
        parents: dict[str, dict[str, str]] = defaultdict(dict)
        for address, status in worked.items():
            for work in status.flows:
                parents[work.flow][address] = work.parent
        for flow in flows:
            name = ", ".join(sorted({spec.name for spec in self._log.attached(flow.uid)})) or "no job"
            named[name] += 1
            name = name if named[name] == 1 else f"{name} ({named[name]})"
            job, wanted, why = self._wanted(name, flow, regions, costs[flow.uid], parents[flow.uid])
            told["jobs"].append(job)
            found += [wanted] if wanted is not None else []
            told["missing"] += [f"{name} is not planned: {why}"] if why else []
        return found

    def _wanted(
        self,
        name: str,
        flow: Flow,
        regions: Mapping[str, str],
        cost: FlowCost,
        parents: Mapping[str, str],
    ) -> tuple[Told, Wanted | None, str]:
        """What is told of a flow, what it wants to have carried, or why that is not known. ``parents``: of
        the agents in its tree."""
        pane_s, unit = flow.fragment.pane_us / 1e6, unit_of(self._log, flow.uid)
        held = held_panes(unit, flow.fragment.pane_us, hold_us(self._log, flow, self._hold_us))
        target, sources = regions.get(flow.leader, ""), defaultdict[str, float](float)
        for address, one in cost.members:
            if pane_s and one.rows and address in regions:
                sources[regions[address]] += one.rows / pane_s
        told: Told = {
            "job": name,
            "stream": flow.fragment.stream,
            "target": target,
            "rows_per_sec": {region: round(rate, 3) for region, rate in sorted(sources.items())},
            "pane_s": pane_s,
            "panes": unit,
            "today_s": pane_s * held,
            "vias": self._vias(flow, target),
            "heads": {},
            "size": None,
        }
        if not pane_s:
            return told, None, "it has no panes of event time"
        if not target:
            return told, None, f"where its root stands, {self._fleet.named(flow.leader)}, is not known"
        if not sources:
            return told, None, "no pane with a row has been sealed yet"
        if set(sources) == {target}:
            return told, None, ""
        held_s = pane_s * held
        heads, names = _heads(regions, parents, target), self._fleet.names()
        told["heads"] = {region: [names.get(one, one) for one in ones] for region, ones in heads.items()}
        inputs = {one: sources.get(region, 0.0) * held_s for region, ones in heads.items() for one in ones}
        samples, vias = _samples(cost, inputs), told["vias"]
        wanted = Wanted(flow.uid, name, target, dict(sources), samples, pane_s, unit, held, vias)
        return told, wanted, ""

    def _vias(self, flow: Flow, target: str) -> dict[str, str]:
        """Over which regions others send to that of a flow's root, where they do."""
        last = self._log.routings.last(flow.uid)
        return dict(last.vias) if last is not None and last.acts and last.target == target else {}


def _acts(mode: str) -> str:
    """What comes of a plan, in words."""
    return {
        "off": "nothing in the fleet is changed by this, and nothing acts on the plan (cluster.routes: off)",
        "propose": "nothing in the fleet is changed by this; what the agent that plans proposes is in SHOW "
        "DECISIONS, and nothing acts on it (cluster.routes: propose)",
        "act": "nothing in the fleet is changed by this; the agent that plans acts on what it finds "
        "(cluster.routes: act), and SHOW DECISIONS says what and why",
    }[mode]


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more


def _heads(regions: Mapping[str, str], parents: Mapping[str, str], target: str) -> dict[str, list[str]]:
    """By region, the agents through which a flow leaves it: whose parent stands in another one."""
    found = defaultdict[str, list[str]](list)
    for address, parent in sorted(parents.items()):
        here = regions.get(address, target)
        if here != target and regions.get(parent, here) != here:
            found[here].append(address)
    return dict(found)


def _samples(cost: FlowCost, heads: Mapping[str, float]) -> tuple[list[float], list[float]]:
    """Rows and bytes of a batch, on the mean: of what each agent has sealed, its root committed, and
    ``heads`` sent, with the rows that their regions have meanwhile."""
    members = dict(cost.members)
    batches = (*members.values(), *(() if cost.root is None else (cost.root,)))
    known = [(one.rows, one.bytes) for one in batches if one.rows and one.bytes]
    sent = [(members[at], rows) for at, rows in heads.items() if at in members]
    known += [(rows, one.sent / one.messages) for one, rows in sent if rows and one.sent]
    return [rows for rows, _ in known], [size for _, size in known]


# -- links ---------------------------------------------------------------------------------------------------


def links_of(
    names: Sequence[str], regions: Mapping[str, str], worked: Mapping[str, WorkStatus], stated: Stated
) -> list[Told]:
    """Each ordered pair of regions: what it carries, and how that is known."""
    sent, arrived = Counter[Pair](), Counter[Pair]()
    periods: dict[Pair, Counter[int]] = defaultdict(Counter)
    trips: dict[frozenset[str], list[float]] = defaultdict(list)
    probed: dict[Pair, float] = defaultdict(float)
    for address, status in worked.items():
        here = regions.get(address, "")
        for link in status.links:
            sent[here, link.region] += link.sent
            arrived[link.region, here] += link.arrived
            periods[link.region, here].update(dict(link.periods))
            trips[frozenset((here, link.region))] += [] if link.rtt_ms is None else [link.rtt_ms]
            probed[here, link.region] = max(probed[here, link.region], link.probed or 0.0)
    found = []
    for pair in ((a, b) for a in names for b in names if a != b):
        most = max(periods[pair].values(), default=0) / (PERIOD_MS / 1000)
        rate, delay_s = stated.get(pair, (max(most, probed[pair]) or None, None))
        known = min(trips[frozenset(pair)], default=None)
        measured_s = None if known is None else known / 2000
        found.append(
            {
                "origin": pair[0],
                "target": pair[1],
                "rate": rate,
                "is": _known_as(pair in stated, probed[pair], rate),
                "delay_s": measured_s if delay_s is None else delay_s,
                "delay_is": "stated" if delay_s is not None else "" if known is None else "measured",
                "rtt_s": None if known is None else known / 1000,
                "seen": most or None,
                "sent_bytes": sent[pair],
                "arrived_bytes": arrived[pair],
            }
        )
    return found


def _known_as(stated: bool, probed: float, rate: float | None) -> str:
    if stated:
        return "stated"
    return "probed" if probed else "at least" if rate else "not measured"


def _unmeasured(links: Sequence[Told]) -> list[str]:
    """What more there would have to be known of links."""
    unknown = [f"{one['origin']} → {one['target']}" for one in links if one["is"] == "not measured"]
    found = []
    if unknown:
        found.append(
            f"not measured, and so not used, as nothing came over them in {LATELY}: {_some(unknown)}"
            " (cluster.links states them)"
        )
    instant = [
        f"{one['origin']} → {one['target']}" for one in links if one["rate"] and one["delay_s"] is None
    ]
    if instant:
        found.append(f"no round trip was measured, and the delay counts as 0: {_some(instant)}")
    if any(one["is"] == "at least" for one in links):
        found.append(
            "a rate that is not stated is the most that came in ten seconds: the link carries that or more, "
            "so intervals may be shorter than here"
        )
    return found


# -- the plan ------------------------------------------------------------------------------------------------


def _add_plan(told: Told, wanted: Sequence[Wanted]) -> Generator[list[Ask], list[Answer], Turned]:
    """Add the plan, or say why there is none. Returns what flows are to turn to."""
    told["plan"], told["differs"] = None, []
    if not wanted:
        told["missing"].append("no job over several regions can be planned for now")
        return Turned()
    try:
        found = yield from plan_routes(partial(_plan, told["links"], wanted))
    except UserError as error:
        told["missing"].append(f"no plan: {error}")
        return Turned()
    told["plan"], told["differs"] = found.plan, found.differs
    told["missing"] += found.missing
    for job in told["jobs"]:
        job["size"] = found.sizes.get(job["job"])
    for link in told["links"]:
        link |= found.loads.get((link["origin"], link["target"]), {})
    return found.turned


def _plan(links: Sequence[Told], wanted: Sequence[Wanted]) -> Planned:
    """Beside the loop: numpy and SciPy are loaded by who plans, and nobody else."""
    from agents.answering.routesplanned import planned

    return planned(links, wanted)
