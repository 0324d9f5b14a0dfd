"""What is drawn of each feature that a schedule may have: which jobs have it, and the faults and requests
that are about it.

Each is drawn apart, by a generator of its own, so that a seed's other faults are the same with it and
without it.
"""

from __future__ import annotations

import random

from lab.chaos.files import Style
from lab.chaos.jobs import OTHERWISE, OWN, OWNED, PASTS, RANGED, READERS, UNITS
from lab.chaos.schedule import STORM_MS, Fault

FEATURES = ("moves", "offloads", "promises", "regions", "rings", "scales", "tables")
"""Those that may be asked for in every schedule; with ``tables`` the key of one changes, too."""
DRAWN = 4
"""Jobs of each schedule; equal ones come after them."""
GONE_OF, GONE_SHARE = 5, 0.4
"""Of fleets with so many agents from the beginning this share loses one for good."""
HEIR_SHARE = 0.5
"""In this share of those fleets the holders of that agent's replicas are asked to leave then."""
MIRRORED_SHARE = 0.3
"""The share of schedules in which jobs have ``STRAGGLERS MIRROR``."""
SPREAD_SHARE = 0.5
"""The share of jobs that leap over stragglers which have TREES."""
EQUAL_SHARE = 0.35
"""The share of schedules with jobs with equal queries at one agent."""
REDUCED_SHARE = 0.3
"""The share of schedules in which some job gets a reduce function."""
BARE_SHARE = 0.15
"""The share of schedules in which some agent has no stream: it votes in job groups, and adds nothing to
windows."""
PASTS_SHARE = 0.3
"""The share of schedules in which jobs begin in the past, and retention eats archives."""
BUDGETS_SHARE = 0.4
"""The share of schedules in which agents leave rows out over budgets."""
PROMISES_SHARE = 0.4
"""The share of schedules without files in which jobs say WITHIN, and agents get more than they can map."""
PROMISED_SHARE = 0.8
"""The share of their jobs, after the first one, that do."""
RESEARCH_SHARE = 0.25
"""The share of jobs, where some promise something, with PRIORITY RESEARCH."""
OUTPUTS_SHARE = 0.3
"""The share of schedules in which windows go out of the fleet."""
TABLES_SHARE = 0.3
"""The share of schedules in which jobs have tables, which are read."""
RINGS_SHARE = 0.15
"""The share of schedules in which a job has a table with a ring."""
HOLDS_SHARE = 0.7
"""The share of changes of tables' keys that are paused."""
ASKED_MS = (0, 100, 200, 400, 800, 1_600)
"""When people ask for that."""
UNHOLDS_SHARE = 0.75
"""The share of those that go on before the storm is over."""
JOINS_SHARE = 0.5
"""The share of schedules with tables in which a job joins one."""
PROGRAM_SHARE = 0.4
"""The share of schedules with a job in Python that counts; of those in which no agent leaves, and none reads
files, from which rows may be gone."""
TREES = (1, 1, 0, 2, 3)
"""How many trees that job has; 0: two with names."""
MASTER_SHARE = 0.5
"""In this share of those, of fleets with ``GONE_OF`` agents from the beginning, the agent with its master is
gone for good, unless another one is."""
MOVES_SHARE = 0.4
"""Of schedules in which jobs are moved."""
SCALES_SHARE = 0.4
"""Of schedules in which jobs get other trees, and are decided of."""
REGIONS_SHARE = 0.35
"""The share of schedules in which agents stand in regions, whose heads die, and whose borders are slow and
cut."""
ROUTED_SHARE = 0.6
"""Of schedules with regions, those in which it is decided over which regions jobs send, and how long heads
hold."""
OWNED_SHARE = 0.3
"""The share of schedules in which jobs count by an aggregate of one's own."""
OFFLOADS_SHARE = 0.25
"""The share of schedules in which helpers map rows of agents."""
FILES_SHARE = 0.34
"""The share of schedules in which agents read files, which are rotated, and are stopped."""
PACKED = ("", "", "now", "later")
KEPT = (1, 2, 3, 9)
HIDDEN_SHARE = 0.4
"""For rotated files: how they are packed, how many are kept, and how often no pattern matches them."""
MERGED_SHARE = 0.6
"""The share of plain jobs whose panes heads may merge, where agents stand in regions."""


def spread(seed: int, nodes: int, jobs: tuple[str, ...]) -> tuple[str, ...]:
    """The same, where those that leap over stragglers may have trees."""
    rng = random.Random(f"spread {seed} {nodes}")
    return tuple(f"{kind} trees" if kind == "leap" and rng.random() < SPREAD_SHARE else kind for kind in jobs)


def bared(seed: int, streams: tuple[str, ...]) -> tuple[str, ...]:
    """The same, perhaps with one agent without a stream; not the first one."""
    rng = random.Random(f"bare {seed} {len(streams)}")
    if len(streams) < 2 or rng.random() >= BARE_SHARE:
        return streams
    bare = rng.randrange(1, len(streams))
    return (*streams[:bare], "-", *streams[bare + 1 :])


def owned(seed: int, nodes: int, jobs: tuple[str, ...], together: tuple[int, ...]) -> tuple[int, ...]:
    """Perhaps some jobs count by an aggregate of one's own."""
    rng = random.Random(f"classes {seed} {nodes}")
    if together or rng.random() >= OWNED_SHARE:
        return ()
    read = any(kind in READERS for kind in jobs)
    found = (n for n, kind in enumerate(jobs) if kind in OWNED and rng.random() < 0.7)
    return tuple(n for n in found if n or not read)


def gone(seed: int, nodes: int, first: int) -> tuple[Fault, ...]:
    """Perhaps one agent that never comes back."""
    rng = random.Random(f"gone {seed} {nodes}")
    if first < GONE_OF or rng.random() >= GONE_SHARE:
        return ()
    who, lasts_ms = (rng.randrange(first),), rng.choice([1_200, 2_000, 3_000, 5_000])
    goes = Fault("gone", rng.randrange(500, STORM_MS - 1_000 - lasts_ms), who, lasts_ms)
    heir = Fault("heir", goes.at_ms + lasts_ms + rng.choice([50, 500, 2_000, 4_000]))
    return (goes, heir) if rng.random() < HEIR_SHARE else (goes,)


def mirrored(
    seed: int, nodes: int, first: int, jobs: tuple[str, ...]
) -> tuple[tuple[int, ...], tuple[Fault, ...]]:
    """Perhaps some jobs have mirrors, and the way up of some agent is broken."""
    rng = random.Random(f"mirrored {seed} {nodes}")
    if rng.random() >= MIRRORED_SHARE:
        return (), ()
    named = tuple(n for n, kind in enumerate(jobs) if kind not in OTHERWISE and rng.random() < 0.6)
    broken = (
        Fault("way up", rng.randrange(STORM_MS - 3_000), (rng.randrange(first),), rng.randrange(1_000, 8_000))
        for _ in range(rng.choice([0, 1, 1, 2]))
    )
    return named, tuple(broken)


def equal(
    seed: int, nodes: int, first: int, begun: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[int, ...], tuple[Fault, ...]]:
    """Perhaps some more jobs: their kinds; those that are to be together, one that has begun before the storm
    or only these; and what people ask for them."""
    rng = random.Random(f"equal {seed} {nodes}")
    if rng.random() >= EQUAL_SHARE:
        return (), (), ()
    models = [number for number, kind in enumerate(begun) if kind not in OWN]
    model = rng.choice(models)
    kind = rng.choice([begun[model], "long"])
    numbers = range(DRAWN, DRAWN + rng.choice([2, 2, 3]))
    joins = kind == begun[model] and rng.random() < 0.7
    begins = [0 if joins else rng.randrange(500), *(2_000 for _ in numbers[1:])]
    found = [
        Fault("create", at + rng.randrange(1_500), (rng.randrange(first),), amount=number)
        for number, at in zip(numbers, begins, strict=True)
    ]
    for _ in range(rng.choice([0, 1, 1, 2])):
        number, at = rng.choice(numbers), rng.randrange(6_000, STORM_MS - 1_000)
        verb = rng.choice(["alter", "alter", "rollback", "pause", "drop"])
        whom = numbers if verb == "alter" and rng.random() < 0.5 else (number,)
        found += [Fault(verb, at + rng.randrange(500), amount=one) for one in whom]
        if verb == "pause":
            found.append(Fault("resume", at + rng.randrange(1_000, 5_000), amount=number))
    return (kind,) * len(numbers), (*([model] if joins else []), *numbers), tuple(found)


def reduced(seed: int, nodes: int, first: int, begun: int, together: tuple[int, ...]) -> tuple[Fault, ...]:
    """Perhaps a job gets a reduce function, or all equal ones do; it may fail, or be taken back."""
    rng = random.Random(f"reduced {seed} {nodes}")
    if rng.random() >= REDUCED_SHARE:
        return ()
    every = bool(together) and rng.random() < 0.5
    numbers = together if every else (rng.randrange(begun),)
    at = rng.randrange(5_000, 7_000) if every else rng.randrange(500, 7_000)
    found = [Fault("reduce", at + rng.randrange(300), amount=number) for number in numbers]
    if rng.random() < 0.5:
        who = tuple(sorted(rng.sample(range(first), min(3, first))))
        found.append(Fault("bang", rng.randrange(at + 4_000, STORM_MS - 1_000), who))
    if rng.random() < 0.4:
        back = rng.randrange(at + 1_000, STORM_MS - 1_000)
        found.append(Fault("rollback", back, amount=rng.choice(numbers)))
    return tuple(found)


def files(
    seed: int, nodes: int, first: int, *, never: bool
) -> tuple[tuple[tuple[Style, ...], ...], tuple[Fault, ...]]:
    """Perhaps the logs of agents, and what is done to them: rotations at any time, and agents that are
    stopped or killed, most of them during rotations."""
    rng = random.Random(f"files {seed} {nodes}")
    if rng.random() >= FILES_SHARE or never:
        return (), ()
    files = tuple(tuple(_style(rng) for _ in range(rng.choice([0, 1, 2, 2, 3]))) for _ in range(nodes))
    found = []
    there = [(who, number) for who in range(first) for number in range(len(files[who]))]
    for who, number in there:
        times = (rng.randrange(STORM_MS) for _ in range(rng.choice([0, 1, 1, 2, 3])))
        found += [Fault("rotate", at, (who,), amount=number) for at in times]
        if rng.random() < 0.1 and not files[who][number].copies:  # nobody could know of an earlier truncation
            found.append(Fault("remove", rng.randrange(STORM_MS), (who,), amount=number))
    for _ in range(rng.choice([1, 2, 2, 3])):
        who, at = rng.randrange(first), rng.randrange(STORM_MS - 2_000)
        lasts_ms = rng.choice([600, 2_500, 4_000, 7_000])
        found.append(Fault(rng.choice(["crash", "stop", "stop"]), at, (who,), lasts_ms))
        for _ in range(rng.choice([0, 1, 1, 2, 4]) if files[who] else 0):
            number = rng.randrange(len(files[who]))
            found.append(Fault("rotate", at + rng.randrange(lasts_ms), (who,), amount=number))
    return files, tuple(found)


def budgets(seed: int, nodes: int, first: int) -> tuple[Fault, ...]:
    """Perhaps rows are left out over budgets, more and fewer of them, and agents die meanwhile."""
    rng = random.Random(f"budgets {seed} {nodes}")
    if rng.random() >= BUDGETS_SHARE:
        return ()
    found = []
    for _ in range(rng.choice([1, 2, 4])):
        who, at = (rng.randrange(first),), rng.randrange(STORM_MS - 6_000)
        for weight in (rng.choice([2, 4, 8, 64]), rng.choice([1, 2, 16]), 1):
            found.append(Fault("budget", at, who, amount=weight))
            at += rng.randrange(200, 3_000)
        if rng.random() < 0.5:
            found.append(Fault("crash", at - rng.randrange(150), who, rng.choice([100, 300, 1_500])))
        if rng.random() < 0.5:
            found.append(Fault("waited", at, who))
    return tuple(found)


def promises(
    seed: int, nodes: int, first: int, jobs: int, *, stays: bool, always: bool
) -> tuple[tuple[int, ...], tuple[Fault, ...]]:
    """Perhaps jobs say WITHIN, and agents get more than they can map and die meanwhile."""
    rng = random.Random(f"promises {seed} {nodes}")
    if not stays or (rng.random() >= PROMISES_SHARE and not always):
        return (), ()
    promised = tuple(number for number in range(jobs) if not number or rng.random() < PROMISED_SHARE)
    found = []
    for _ in range(rng.choice([1, 2, 3])):
        who, at = (rng.randrange(first),), rng.randrange(STORM_MS - 6_000)
        lasts_ms = rng.randrange(3_000, 10_000)
        found.append(Fault("overload", at, who, lasts_ms, rng.choice([200, 500, 1_000])))
        if rng.random() < 0.5:
            found.append(Fault("crash", at + rng.randrange(lasts_ms), who, rng.choice([100, 300, 1_500])))
    return promised, tuple(found)


def research(seed: int, nodes: int, promised: tuple[int, ...]) -> tuple[int, ...]:
    """Where some promise something, some give way."""
    rng = random.Random(f"research {seed} {nodes}")
    most = max(promised, default=-1) + 2
    return tuple(number for number in range(most) if promised and rng.random() < RESEARCH_SHARE)


def outputs(seed: int, nodes: int, first: int, begun: int) -> tuple[Fault, ...]:
    """Perhaps windows go out of the fleet, where nobody takes them for a while."""
    rng = random.Random(f"outputs {seed} {nodes}")
    if rng.random() >= OUTPUTS_SHARE:
        return ()
    found = [
        Fault("output", rng.randrange(8_000), (rng.randrange(first),), amount=rng.randrange(begun))
        for _ in range(rng.choice([1, 1, 2]))
    ]
    downs = (rng.randrange(STORM_MS - 2_000) for _ in range(rng.choice([0, 1, 2])))
    return (*found, *(Fault("outside", at, for_ms=rng.randrange(500, 6_000)) for at in downs))


def tables(seed: int, nodes: int, first: int, begun: int, *, always: bool) -> tuple[Fault, ...]:
    """Perhaps jobs have tables, and perhaps these are dropped."""
    rng = random.Random(f"tables {seed} {nodes}")
    if rng.random() >= TABLES_SHARE and not always:
        return ()
    found = [
        Fault("table", rng.randrange(6_000), (rng.randrange(first),), amount=rng.randrange(begun))
        for _ in range(rng.choice([1, 1, 2]))
    ]
    found += [
        Fault("rekey", rng.randrange(3_000, STORM_MS), (rng.randrange(first),))
        for _ in range(max(rng.choice([0, 1, 2]), always))
    ]
    if rng.random() < 0.2:
        found.append(Fault("untable", rng.randrange(STORM_MS), (rng.randrange(first),)))
    return tuple(found)


def rings(seed: int, nodes: int, first: int, begun: int, *, always: bool) -> tuple[Fault, ...]:
    """Perhaps a job has a table with a ring, and agents die in each phase of a change of its key."""
    rng = random.Random(f"rings {seed} {nodes}")
    if rng.random() >= RINGS_SHARE and not always:
        return ()
    found = [Fault("ring", rng.randrange(4_000), (rng.randrange(first),), amount=rng.randrange(begun))]
    for _ in range(max(rng.choice([0, 1, 1, 2]), always)):
        at = rng.randrange(4_000, STORM_MS)
        found.append(Fault("rekey", at, (rng.randrange(first),)))
        for _ in range(rng.choice([0, 1, 1])):
            died = at + rng.choice([50, 300, 700, 1_200, 2_000])
            found.append(Fault("crash", died, (rng.randrange(first),), rng.choice([300, 1_500])))
    return tuple(found)


def holds(seed: int, nodes: int, first: int, tabled: tuple[Fault, ...]) -> tuple[Fault, ...]:
    """Perhaps changes of tables' keys are paused, by people who ask until somebody knows of one; and go
    on."""
    rng, found = random.Random(f"holds {seed} {nodes}"), []
    for rekey in (fault for fault in tabled if fault.kind == "rekey"):
        if rng.random() < HOLDS_SHARE:
            at = rekey.at_ms + rng.choice([50, 100, 400])
            found += [Fault("hold", at + ms, (rng.randrange(first),)) for ms in ASKED_MS]
            if rng.random() < UNHOLDS_SHARE:
                found.append(Fault("unhold", at + rng.randrange(1_000, 6_000), (rng.randrange(first),)))
    return tuple(found)


def joins(seed: int, nodes: int, first: int, tabled: tuple[Fault, ...]) -> tuple[Fault, ...]:
    """Perhaps a job joins a table, and is altered."""
    rng = random.Random(f"joins {seed} {nodes}")
    made = min((fault.at_ms for fault in tabled if fault.kind == "table"), default=None)
    if made is None or rng.random() >= JOINS_SHARE:
        return ()
    at = made + rng.choice([500, 1_500, 4_000])
    found = [Fault("join table", at, (rng.randrange(first),))]
    found += [Fault("rejoin", rng.randrange(at + 1_000, STORM_MS)) for _ in range(rng.choice([0, 1, 2, 4]))]
    return tuple(found)


def pasts(
    seed: int, nodes: int, first: int, jobs: int
) -> tuple[tuple[str, ...], tuple[tuple[int, int], ...], tuple[Fault, ...]]:
    """Perhaps some more jobs begin in the past: their kinds, how far back they begin, and when they are asked
    for; what retention deletes; kills while the past is read."""
    rng = random.Random(f"pasts {seed} {nodes}")
    if rng.random() >= PASTS_SHARE:
        return (), (), ()
    kinds = tuple(rng.choices(PASTS, k=rng.choice([1, 1, 2])))
    pasts = tuple((jobs + place, rng.choice([1_000, 4_000, 9_000, 60_000])) for place, _ in enumerate(kinds))
    found = []
    for number, _ in pasts:
        at = rng.randrange(1_000, STORM_MS - 2_000)
        found.append(Fault("create", at, (rng.randrange(first),), amount=number))
        for _ in range(rng.choice([0, 1, 1, 2])):
            soon = min(at + rng.randrange(3_000), STORM_MS - 1_000)
            points, down_ms = rng.choice([1, 3, 10, 30]), rng.choice([100, 1_500, 4_000])
            found.append(Fault("point", soon, (rng.randrange(first),), down_ms, points))
        if rng.random() < 0.2:
            found.append(Fault(rng.choice(["alter", "rollback", "drop"]), at + 500, amount=number))
    for _ in range(rng.choice([0, 0, 1, 2])):
        who = (rng.randrange(first),)
        found.append(
            Fault("retention", rng.randrange(STORM_MS - 1_000), who, amount=rng.choice([10, 50, 100]))
        )
    return kinds, pasts, (*found, *_sorted(seed, nodes, first))


def offloads(seed: int, nodes: int, first: int, begun: int, *, always: bool) -> tuple[Fault, ...]:
    """Perhaps helpers map rows of agents, and give them back, or others do; they cannot read archives for a
    while, they die, and so do the agents; retention eats what was archived."""
    rng = random.Random(f"offloads {seed} {nodes}")
    if (rng.random() >= OFFLOADS_SHARE and not always) or first < 2:
        return ()
    found = []
    for _ in range(rng.choice([1, 1, 2, 3])):
        number, (agent, *helpers) = rng.randrange(begun), rng.sample(range(first), min(first, 3))
        at = rng.randrange(STORM_MS - 4_000)
        found.append(Fault("offload", at, (agent, helpers[0]), amount=number))
        if rng.random() < 0.4:
            later = min(at + rng.randrange(300, 4_000), STORM_MS - 1_000)
            found.append(Fault("offload", later, (agent, helpers[-1]), amount=number))
        if rng.random() < 0.6:
            back = min(at + rng.randrange(500, 9_000), STORM_MS - 500)
            found.append(Fault("rows back", back, (agent,), amount=number))
        for who in rng.choices([agent, helpers[0], helpers[0]], k=rng.choice([0, 1, 2])):
            soon = min(at + rng.randrange(5_000), STORM_MS - 1_000)
            points, down_ms = rng.choice([1, 3, 10, 30]), rng.choice([100, 1_500, 6_000])
            found.append(Fault("point", soon, (who,), down_ms, points))
        if rng.random() < 0.4:
            soon, for_ms = min(at + rng.randrange(3_000), STORM_MS - 1_000), rng.choice([500, 3_000, 9_000])
            found.append(Fault("blind", soon, (helpers[0],), for_ms))
        if rng.random() < 0.4:
            soon = min(at + rng.randrange(3_000), STORM_MS - 1_000)
            found.append(Fault("retention", soon, (agent,), amount=rng.choice([50, 100])))
    return tuple(found)


def _sorted(seed: int, nodes: int, first: int) -> tuple[Fault, ...]:
    """Where jobs begin in the past: files of the archive are merged, and somebody sorts it."""
    rng = random.Random(f"sorted {seed} {nodes}")
    found = [
        Fault("upkeep", rng.randrange(STORM_MS - 1_000), (rng.randrange(first),))
        for _ in range(rng.randrange(6))
    ]
    for _ in range(rng.choice([0, 1, 1, 2, 3])):
        steps = rng.choice([0, 0, 0, 2, 4, 8, 15, 30])
        found.append(Fault("recluster", rng.randrange(1_000, STORM_MS - 1_000), amount=steps))
    return tuple(found)


def program(
    seed: int, nodes: int, first: int, faults: tuple[Fault, ...], *, stays: bool
) -> tuple[bool, tuple[Fault, ...]]:
    """Perhaps a job in Python, whose processes end."""
    rng = random.Random(f"program {seed} {nodes}")
    leaves = any(fault.kind in ("heir", "leave") for fault in faults)
    if rng.random() >= PROGRAM_SHARE or leaves or not stays:
        return False, ()
    times = (rng.randrange(STORM_MS - 1_000) for _ in range(rng.choice([0, 1, 2, 4])))
    found = [Fault("process", at, (rng.randrange(first),)) for at in times]
    if first >= GONE_OF and rng.random() < MASTER_SHARE:
        at = rng.randrange(500, STORM_MS - 1_000)
        found.append(Fault("master", at, amount=rng.randrange(max(TREES))))
    return True, tuple(found)


def regions(seed: int, nodes: int, first: int, *, always: bool) -> tuple[tuple[int, ...], tuple[Fault, ...]]:
    """Perhaps agents stand in two or three regions, one of which may be cut off, far away or without a
    head."""
    rng = random.Random(f"regions {seed} {nodes}")
    if (rng.random() >= REGIONS_SHARE and not always) or first < 2:
        return (), ()
    count = rng.choice([2, 2, 3])
    regions = tuple(rng.randrange(count) for _ in range(nodes))
    found = []
    for kind in rng.choices(["border", "slow border", "head", "head"], k=rng.choice([1, 2, 3, 4])):
        at, amount = rng.randrange(STORM_MS - 1_000), rng.randrange(count)
        lasts_ms = rng.choice([300, 1_500, 4_000, 9_000])
        amount = rng.choice([40, 300, 1_200]) if kind == "slow border" else amount
        found.append(Fault(kind, at, for_ms=lasts_ms, amount=amount))
    return regions, tuple(found)


def routes(seed: int, begun: int, regions: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[Fault, ...]]:
    """Perhaps it is decided how jobs send, between three regions."""
    rng = random.Random(f"routes {seed} {len(regions)}")
    if not regions or rng.random() >= ROUTED_SHARE:
        return regions, ()
    routes = (
        Fault("route", rng.randrange(STORM_MS - 1_000), amount=rng.randrange(begun))
        for _ in range(rng.choice([2, 4, 8]))
    )
    return tuple(rng.randrange(3) for _ in regions), tuple(routes)


def merged(seed: int, nodes: int, jobs: tuple[str, ...], together: tuple[int, ...]) -> tuple[str, ...]:
    """Some of the plain jobs have windows of several panes, and one flow together."""
    rng = random.Random(f"merged {seed} {nodes}")
    read = any(kind in READERS for kind in jobs)
    fixed = {*together, *([0] if read else [])}
    return tuple(
        rng.choice(UNITS) if n not in fixed and kind in RANGED and rng.random() < MERGED_SHARE else kind
        for n, kind in enumerate(jobs)
    )


def moves(seed: int, nodes: int, first: int, begun: int, *, always: bool) -> tuple[Fault, ...]:
    """Perhaps jobs are moved to other agents."""
    rng = random.Random(f"moves {seed} {nodes}")
    if rng.random() >= MOVES_SHARE and not always:
        return ()
    return tuple(
        Fault("move", rng.randrange(STORM_MS - 1_000), (rng.randrange(first),), amount=rng.randrange(begun))
        for _ in range(rng.choice([1, 2, 5]))
    )


def scales(seed: int, nodes: int, first: int, begun: int, *, always: bool) -> tuple[Fault, ...]:
    """Perhaps jobs get other trees, and are decided of; and who is to lead one dies on the way."""
    rng = random.Random(f"scales {seed} {nodes}")
    if rng.random() >= SCALES_SHARE and not always:
        return ()

    def one(kind: str) -> Fault:
        at_ms, who = rng.randrange(STORM_MS - 1_000), (rng.randrange(first),)
        dead_ms = rng.choice([300, 3_000]) if kind == "heir dies" else 0
        return Fault(kind, at_ms, who, dead_ms, rng.randrange(begun))

    return tuple(
        one(rng.choice(["scale", "scale", "decide", "heir dies"])) for _ in range(rng.choice([2, 4, 6]))
    )


def _style(rng: random.Random) -> Style:
    return Style(
        copies=rng.random() < 0.3,
        pause_ms=rng.choice([0, 50, 500, 1_000]),
        dated=rng.random() < 0.3,
        packed=rng.choice(PACKED),
        keep=rng.choice(KEPT),
        hidden=rng.random() < HIDDEN_SHARE,
    )
