"""A seed's schedule: how the fleet is made, what people ask of it, and which faults befall it, as values.

Every fault has a number in the schedule. A run may leave some out: that is how a failing one is made small.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from elf.fields import replace
from lab.chaos.files import Style
from overlay.turns import AT_ONCE

CLICKS, BUYS = "clicks", "buys"
STORM_MS = 16_000
JOINERS_MAX = 2
GONE_OF, GONE_SHARE = 5, 0.4
"""Of fleets with so many agents from the beginning this share loses one for good."""
HEIR_SHARE = 0.5
"""In this share of those fleets the holders of that agent's replicas are asked to leave then."""
MIRRORED_SHARE = 0.3
"""The share of schedules in which jobs have ``STRAGGLERS MIRROR``."""
EAGER_SHARE = 0.4
"""The share of schedules in which copies are eager."""
SPREAD_SHARE = 0.5
"""The share of jobs that leap over stragglers which have TREES."""
EQUAL_SHARE = 0.35
"""The share of schedules with jobs with equal queries at one agent."""
REDUCED_SHARE = 0.3
"""The share of schedules in which some job gets a reduce function."""
LISTED_SHARE = 0.3
"""The share of schedules in which returning agents have a list of others, and do not know which of them
live."""
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
OUTPUTS_SHARE = 0.3
"""The share of schedules in which windows go out of the fleet."""
TABLES_SHARE = 0.3
"""The share of schedules in which jobs have tables, which are read."""
PROGRAM_SHARE = 0.4
TREES = (1, 1, 0, 2, 3)
"""The share of schedules with a job in Python that counts; of those in which no agent leaves, and none reads
files, from which rows may be gone."""
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
FILES_SHARE = 0.34
"""The share of schedules in which agents read files, which are rotated, and are stopped."""


@dataclass(frozen=True)
class Fault:
    """A fault that befalls the fleet ``at_ms`` after the storm has begun, or a request.

    ``who``: numbers of agents; ``for_ms``: how long; ``amount``: percent, milliseconds, points of work, or
    the number of a job, as the kind says.
    """

    kind: str
    at_ms: int
    who: tuple[int, ...] = ()
    for_ms: int = 0
    amount: int = 0

    def __str__(self) -> str:
        names = " ".join(f"a{index}" for index in self.who)
        lasts = f" for {self.for_ms / 1000:g} s" if self.for_ms else ""
        said = SAID[self.kind].format(who=names, amount=self.amount)
        return f"{self.at_ms / 1000:6.3f} s  {said}{lasts}"


SAID = {
    "crash": "{who} is killed",
    "point": "{who} is killed after {amount} more steps of its work",
    "leader": "the leader of job {amount} is killed",
    "cut off": "the leader of job {amount} hears nobody, and nobody hears it,",
    "unheard": "nobody hears the leader of job {amount}, which hears everybody,",
    "power": "the power of {who} fails after {amount} more steps of its work",
    "gone": "{who} will be gone for good, disk and all: before, what it seals gets lost on its way",
    "heir": "who has copies of the one that is gone for good is asked to leave",
    "way up": "the slices that {who} sends get lost",
    "blackout": "all are killed",
    "deaths": "whoever writes to its disk dies of it in {amount} of 1000 cases",
    "loss": "{amount} % of messages are lost",
    "doubles": "{amount} % of messages come twice",
    "overtaking": "{amount} % of messages take up to 2 s",
    "partition": "{who} hear only one another",
    "mute": "nobody hears {who}",
    "slow": "{who} is up to {amount} ms slow",
    "stuck": "{who} neither reads nor computes",
    "slow disk": "writes of {who} take up to {amount} ms",
    "full disk": "the disk of {who} is full",
    "clock": "{who} is killed, and comes back with a clock that is {amount} ms off,",
    "join": "{who} joins",
    "leave": "{who} leaves",
    "create": "job {amount} is created through {who}",
    "drop": "job {amount} is dropped",
    "alter": "job {amount} is altered",
    "pause": "job {amount} is paused",
    "resume": "job {amount} is resumed",
    "rollback": "job {amount} goes back to version 1",
    "budget": "of {amount} rows of {who} one counts",
    "overload": "{who} gets more than it can map (a piece of work takes {amount} ms)",
    "waited": "reading of {who} has waited for its budget",
    "output": "windows of job {amount} are wanted outside, through {who}",
    "table": "windows of job {amount} go to a table, made through {who}",
    "rekey": "the tables get another key, through {who}",
    "untable": "the tables are dropped, through {who}",
    "outside": "the outside takes nothing",
    "boom": "a row comes to {who} that final functions fail on",
    "move": "job {amount} is moved to {who}",
    "heir dies": "job {amount} is moved to {who}, which is killed while it comes",
    "scale": "job {amount} gets more trees, or fewer",
    "decide": "it is decided of job {amount} that it moves to {who}, or gets other trees, and once more",
    "reduce": "job {amount} is altered to one with a reduce function",
    "rotate": "log {amount} of {who} is rotated",
    "remove": "log {amount} of {who} is deleted, and written on to",
    "stop": "{who} is stopped, and goes on",
    "retention": "of what {who} has archived, {amount} % are deleted",
    "upkeep": "{who} merges small files of the archive",
    "recluster": "somebody sorts the archive, and dies after {amount} steps of it (0: does not)",
    "bang": "a row comes to {who} that reduce functions fail on",
    "master": "the agent with the master of the job in Python is gone for good, disk and all",
    "border": "agents of region {amount} hear only one another",
    "slow border": "between regions messages take {amount} ms more",
    "route": "it is decided how the panes of job {amount} go over borders, and once more",
    "head": "whoever is a head in the trees of region {amount} is killed",
    "process": "the processes of jobs in Python of {who} end",
}
"""What each kind is in words."""


@dataclass(frozen=True)
class Schedule:
    """``nodes``: all that ever run; the last ``joiners`` of them come during the storm. ``jobs``: what each
    one is (``lab.chaos.jobs``); the first ``begun`` are there before the storm."""

    seed: int
    nodes: int
    joiners: int
    group_members: int
    jobs: tuple[str, ...]
    begun: int
    disorder_ms: int
    faults: tuple[Fault, ...]
    streams: tuple[str, ...] = ()
    """What each agent reads: ``c`` clicks, ``b`` buys, ``cb`` both, ``-`` nothing; none: clicks."""
    rate_ms: int = 400
    """Between two rows of an agent's log."""
    quota: int = 256 << 20
    """Bytes that an agent may retain of a flow."""
    storm_ms: int = STORM_MS
    mirrored: tuple[int, ...] = ()
    """Jobs with ``STRAGGLERS MIRROR``."""
    together: tuple[int, ...] = ()
    """Jobs with equal queries that are to have one job group."""
    at_once: int = AT_ONCE
    """How many job groups, and parents, an agent speaks to each second."""
    files: tuple[tuple[Style, ...], ...] = ()
    """The logs of each agent, in each of its streams; none: its rows come without files."""
    pasts: tuple[tuple[int, int], ...] = ()
    """Jobs that begin in the past (SINCE): number, and how many ms before they are asked for."""
    promised: tuple[int, ...] = ()
    """Jobs with WITHIN."""
    research: tuple[int, ...] = ()
    """Jobs with PRIORITY RESEARCH."""
    eager: bool = False
    """Copies are eager: of open panes too."""
    owned: tuple[int, ...] = ()
    """Jobs that count by an aggregate of one's own."""
    listed: bool = False
    """A returning agent asks those that its configuration names, whatever has become of them."""
    program: bool = False
    """Whether there is a job in Python that counts (``lab.chaos.programs``)."""
    trees: int = 1
    """How many trees it has; 0: two with names."""
    regions: tuple[int, ...] = ()
    """The region of each agent; none: trees do not go by regions."""

    def only(self, numbers: tuple[int, ...]) -> Schedule:
        """The same with these faults only (numbers from 1)."""
        return replace(self, faults=tuple(f for n, f in enumerate(self.faults, 1) if n in numbers))


PACKED = ("", "", "now", "later")
KEPT = (1, 2, 3, 9)
HIDDEN_SHARE = 0.4
"""For rotated files: how they are packed, how many are kept, and how often no pattern matches them."""
DRAWN = 4
"""Jobs of each schedule; equal ones come after them."""
JOBS = {
    "plain": 1,
    "slide": 3,
    "odd": 1,
    "where": 1,
    "both": 3,
    "top": 2,
    "late": 2,
    "trees": 1,
    "larger": 2,
    "over": 1,
    "joined": 1,
    "final": 2,
    "wait": 2,
    "leap": 3,
    "first": 2,
}
"""Kinds of jobs, and how often they are."""
UNITS = ("four", "six")
"""Kinds of jobs whose panes heads may merge; where agents stand in regions some are of these."""
MERGED_SHARE = 0.6
PASTS = ("plain", "slide", "odd", "where", "both", "top", "late", "larger", "wait")
"""Kinds of jobs that may begin in the past."""
OWNED = ("plain", "slide", "odd", "where", "both", "trees", "late", "long", "wait", "leap")
"""Kinds of jobs that may count by an aggregate of one's own."""
OTHERWISE = ("wait", "leap", "leap trees", "first")
"""They have straggler policies of their own."""
READERS = ("over", "joined")
"""They read job 0, which is plain."""
OWN = ("larger", "final", *READERS)
"""Their windows are made for each job, also for equal ones (``agents.committing.kept.alike``)."""


RANGED = {
    "plain": ("plain", "ranked", "tallied"),
    "trees": ("trees", "ranked", "tallied"),
    "odd": ("odd", "ranked"),
    "where": ("where", "tallied"),
}
"""What kinds of jobs may be instead: with a later stage at the roots of key ranges."""


def drawn(seed: int, nodes: int, *, in_regions: bool = False) -> Schedule:
    """The schedule of a seed. ``in_regions``: agents stand in regions, whatever the seed says of that."""
    rng = random.Random(f"chaos {seed} {nodes}")
    joiners = min(rng.choice([0, 0, 1, JOINERS_MAX]), max(0, nodes - 3))
    first = nodes - joiners
    begun = rng.choice([1, 2, 3, 3])
    kinds = rng.choices(list(JOBS), list(JOBS.values()), k=DRAWN - 1)
    apart = random.Random(f"staged {seed} {nodes}")
    jobs = _spread(seed, nodes, ("plain", *(apart.choice(RANGED.get(kind, (kind,))) for kind in kinds)))
    mirrored, broken = _mirrored(seed, nodes, first, jobs)
    more, together, asked = _equal(seed, nodes, first, jobs[:begun])
    reduced = _reduced(seed, nodes, first, begun, together)
    faults = _Draw(rng, first, nodes, jobs, begun).faults()
    files, rotated = _files(seed, nodes, first)
    out = _outputs(seed, nodes, first, begun)
    out = (*out, *_tables(seed, nodes, first, begun))
    out = (*out, *_budgets(seed, nodes, first))
    past, pasts, begun_late = _pasts(seed, nodes, first, len(jobs) + len(more))
    faults = (*faults, *_gone(seed, nodes, first), *broken, *asked, *reduced, *rotated, *out, *begun_late)
    faults = (*faults, *_moves(seed, nodes, first, begun), *_scales(seed, nodes, first, begun))
    program, ended = _program(seed, nodes, first, faults, stays=not files)
    promised, overloads = _promises(seed, nodes, first, len(jobs) + len(more), stays=not files)
    regions, borders = _regions(seed, nodes, first, in_regions=in_regions)
    jobs = _merged(seed, nodes, jobs, together) if regions else jobs
    regions, routes = _routes(seed, begun, regions)
    faults = (*faults, *ended, *overloads, *borders, *routes)
    return Schedule(
        seed,
        nodes,
        joiners,
        rng.choice([1, 3, 5, 5]),
        (*jobs, *more, *past),
        begun,
        rng.choice([300, 300, 300, 1_500]),
        tuple(sorted(faults, key=lambda fault: fault.at_ms)),
        _bared(
            seed,
            ("cb", *rng.choices(["c", "c", "b", "cb"], k=nodes - 1)) if "both" in jobs else ("c",) * nodes,
        ),
        rng.choice([400, 400, 150]),
        rng.choice([256 << 20, 256 << 20, 256 << 20, 6_000]),
        mirrored=(*mirrored, *(len(jobs) + n for n in range(len(more)) if together[0] in mirrored)),
        together=together,
        files=files,
        at_once=random.Random(f"turns {seed} {nodes}").choice([1, 2, AT_ONCE]),
        pasts=pasts,
        promised=promised,
        research=_research(seed, nodes, promised),
        eager=random.Random(f"eager {seed} {nodes}").random() < EAGER_SHARE,
        listed=random.Random(f"listed {seed} {nodes}").random() < LISTED_SHARE,
        program=program,
        trees=random.Random(f"trees {seed} {nodes}").choice(TREES) if program else 1,
        owned=_owned(seed, nodes, jobs, together),
        regions=regions,
    )


def _spread(seed: int, nodes: int, jobs: tuple[str, ...]) -> tuple[str, ...]:
    """The same, where those that leap over stragglers may have trees. Drawn apart."""
    rng = random.Random(f"spread {seed} {nodes}")
    return tuple(f"{kind} trees" if kind == "leap" and rng.random() < SPREAD_SHARE else kind for kind in jobs)


def _bared(seed: int, streams: tuple[str, ...]) -> tuple[str, ...]:
    """The same, perhaps with one agent without a stream; not the first one. Drawn apart."""
    rng = random.Random(f"bare {seed} {len(streams)}")
    if len(streams) < 2 or rng.random() >= BARE_SHARE:
        return streams
    bare = rng.randrange(1, len(streams))
    return (*streams[:bare], "-", *streams[bare + 1 :])


def _owned(seed: int, nodes: int, jobs: tuple[str, ...], together: tuple[int, ...]) -> tuple[int, ...]:
    """Perhaps some jobs count by an aggregate of one's own. Drawn apart."""
    rng = random.Random(f"classes {seed} {nodes}")
    if together or rng.random() >= OWNED_SHARE:
        return ()
    read = any(kind in READERS for kind in jobs)
    found = (n for n, kind in enumerate(jobs) if kind in OWNED and rng.random() < 0.7)
    return tuple(n for n in found if n or not read)


def _gone(seed: int, nodes: int, first: int) -> tuple[Fault, ...]:
    """Perhaps one agent that never comes back. Drawn apart, so that a seed's other faults stay as they were
    before."""
    rng = random.Random(f"gone {seed} {nodes}")
    if first < GONE_OF or rng.random() >= GONE_SHARE:
        return ()
    who, lasts_ms = (rng.randrange(first),), rng.choice([1_200, 2_000, 3_000, 5_000])
    goes = Fault("gone", rng.randrange(500, STORM_MS - 1_000 - lasts_ms), who, lasts_ms)
    heir = Fault("heir", goes.at_ms + lasts_ms + rng.choice([50, 500, 2_000, 4_000]))
    return (goes, heir) if rng.random() < HEIR_SHARE else (goes,)


def _mirrored(
    seed: int, nodes: int, first: int, jobs: tuple[str, ...]
) -> tuple[tuple[int, ...], tuple[Fault, ...]]:
    """Perhaps some jobs have mirrors, and the way up of some agent is broken. Drawn apart."""
    rng = random.Random(f"mirrored {seed} {nodes}")
    if rng.random() >= MIRRORED_SHARE:
        return (), ()
    named = tuple(n for n, kind in enumerate(jobs) if kind not in OTHERWISE and rng.random() < 0.6)
    broken = (
        Fault("way up", rng.randrange(STORM_MS - 3_000), (rng.randrange(first),), rng.randrange(1_000, 8_000))
        for _ in range(rng.choice([0, 1, 1, 2]))
    )
    return named, tuple(broken)


def _equal(
    seed: int, nodes: int, first: int, begun: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[int, ...], tuple[Fault, ...]]:
    """Perhaps some more jobs: their kinds; those that are to be together, one that has begun before the storm
    or only these; and what people ask for them. Drawn apart."""
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


def _reduced(seed: int, nodes: int, first: int, begun: int, together: tuple[int, ...]) -> tuple[Fault, ...]:
    """Perhaps a job gets a reduce function, or all equal ones do; it may fail, or be taken back. Drawn
    apart."""
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


def _files(seed: int, nodes: int, first: int) -> tuple[tuple[tuple[Style, ...], ...], tuple[Fault, ...]]:
    """Perhaps the logs of agents, and what is done to them: rotations at any time, and agents that are
    stopped or killed, most of them during rotations. Drawn apart."""
    rng = random.Random(f"files {seed} {nodes}")
    if rng.random() >= FILES_SHARE:
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


def _budgets(seed: int, nodes: int, first: int) -> tuple[Fault, ...]:
    """Perhaps rows are left out over budgets, more and fewer of them, and agents die meanwhile. Drawn
    apart."""
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


def _promises(
    seed: int, nodes: int, first: int, jobs: int, *, stays: bool
) -> tuple[tuple[int, ...], tuple[Fault, ...]]:
    """Perhaps jobs say WITHIN, and agents get more than they can map and die meanwhile. Drawn apart."""
    rng = random.Random(f"promises {seed} {nodes}")
    if not stays or rng.random() >= PROMISES_SHARE:
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


def _research(seed: int, nodes: int, promised: tuple[int, ...]) -> tuple[int, ...]:
    """Where some promise something, some give way. Drawn apart."""
    rng = random.Random(f"research {seed} {nodes}")
    most = max(promised, default=-1) + 2
    return tuple(number for number in range(most) if promised and rng.random() < RESEARCH_SHARE)


def _outputs(seed: int, nodes: int, first: int, begun: int) -> tuple[Fault, ...]:
    """Perhaps windows go out of the fleet, where nobody takes them for a while. Drawn apart."""
    rng = random.Random(f"outputs {seed} {nodes}")
    if rng.random() >= OUTPUTS_SHARE:
        return ()
    found = [
        Fault("output", rng.randrange(8_000), (rng.randrange(first),), amount=rng.randrange(begun))
        for _ in range(rng.choice([1, 1, 2]))
    ]
    downs = (rng.randrange(STORM_MS - 2_000) for _ in range(rng.choice([0, 1, 2])))
    return (*found, *(Fault("outside", at, for_ms=rng.randrange(500, 6_000)) for at in downs))


def _tables(seed: int, nodes: int, first: int, begun: int) -> tuple[Fault, ...]:
    """Perhaps jobs have tables, and perhaps these are dropped. Drawn apart."""
    rng = random.Random(f"tables {seed} {nodes}")
    if rng.random() >= TABLES_SHARE:
        return ()
    found = [
        Fault("table", rng.randrange(6_000), (rng.randrange(first),), amount=rng.randrange(begun))
        for _ in range(rng.choice([1, 1, 2]))
    ]
    found += [
        Fault("rekey", rng.randrange(3_000, STORM_MS), (rng.randrange(first),))
        for _ in range(rng.choice([0, 1, 2]))
    ]
    if rng.random() < 0.2:
        found.append(Fault("untable", rng.randrange(STORM_MS), (rng.randrange(first),)))
    return tuple(found)


def _pasts(
    seed: int, nodes: int, first: int, jobs: int
) -> tuple[tuple[str, ...], tuple[tuple[int, int], ...], tuple[Fault, ...]]:
    """Perhaps some more jobs begin in the past: their kinds, how far back they begin, and when they are asked
    for; what retention deletes; kills while the past is read. Drawn apart."""
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


def _sorted(seed: int, nodes: int, first: int) -> tuple[Fault, ...]:
    """Where jobs begin in the past: files of the archive are merged, and somebody sorts it. Drawn apart."""
    rng = random.Random(f"sorted {seed} {nodes}")
    found = [
        Fault("upkeep", rng.randrange(STORM_MS - 1_000), (rng.randrange(first),))
        for _ in range(rng.randrange(6))
    ]
    for _ in range(rng.choice([0, 1, 1, 2, 3])):
        steps = rng.choice([0, 0, 0, 2, 4, 8, 15, 30])
        found.append(Fault("recluster", rng.randrange(1_000, STORM_MS - 1_000), amount=steps))
    return tuple(found)


def _program(
    seed: int, nodes: int, first: int, faults: tuple[Fault, ...], *, stays: bool
) -> tuple[bool, tuple[Fault, ...]]:
    """Perhaps a job in Python, whose processes end. Drawn apart."""
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


def _regions(
    seed: int, nodes: int, first: int, *, in_regions: bool
) -> tuple[tuple[int, ...], tuple[Fault, ...]]:
    """Perhaps agents stand in two or three regions, one of which may be cut off, far away or without a head.
    Drawn apart."""
    rng = random.Random(f"regions {seed} {nodes}")
    if (rng.random() >= REGIONS_SHARE and not in_regions) or first < 2:
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


def _routes(seed: int, begun: int, regions: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[Fault, ...]]:
    """Perhaps it is decided how jobs send, between three regions. Drawn apart."""
    rng = random.Random(f"routes {seed} {len(regions)}")
    if not regions or rng.random() >= ROUTED_SHARE:
        return regions, ()
    routes = (
        Fault("route", rng.randrange(STORM_MS - 1_000), amount=rng.randrange(begun))
        for _ in range(rng.choice([2, 4, 8]))
    )
    return tuple(rng.randrange(3) for _ in regions), tuple(routes)


def _merged(seed: int, nodes: int, jobs: tuple[str, ...], together: tuple[int, ...]) -> tuple[str, ...]:
    """Some of the plain jobs have windows of several panes, and one flow together. Drawn apart."""
    rng = random.Random(f"merged {seed} {nodes}")
    read = any(kind in READERS for kind in jobs)
    fixed = {*together, *([0] if read else [])}
    return tuple(
        rng.choice(UNITS) if n not in fixed and kind in RANGED and rng.random() < MERGED_SHARE else kind
        for n, kind in enumerate(jobs)
    )


def _moves(seed: int, nodes: int, first: int, begun: int) -> tuple[Fault, ...]:
    """Perhaps jobs are moved to other agents. Drawn apart."""
    rng = random.Random(f"moves {seed} {nodes}")
    if rng.random() >= MOVES_SHARE:
        return ()
    return tuple(
        Fault("move", rng.randrange(STORM_MS - 1_000), (rng.randrange(first),), amount=rng.randrange(begun))
        for _ in range(rng.choice([1, 2, 5]))
    )


def _scales(seed: int, nodes: int, first: int, begun: int) -> tuple[Fault, ...]:
    """Perhaps jobs get other trees, and are decided of; and who is to lead one dies on the way. Drawn
    apart."""
    rng = random.Random(f"scales {seed} {nodes}")
    if rng.random() >= SCALES_SHARE:
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


class _Draw:
    """Draws the faults of one schedule. Agents up to ``first`` are there from the beginning."""

    def __init__(self, rng: random.Random, first: int, nodes: int, jobs: tuple[str, ...], begun: int) -> None:
        self._rng = rng
        self._first = first
        self._nodes = nodes
        self._jobs = jobs
        self._begun = begun

    def faults(self) -> tuple[Fault, ...]:
        rng = self._rng
        found = self._weather()
        for _ in range(rng.randrange(2, 7 + self._nodes // 8)):
            found.append(self._one(rng.choices(*_WEIGHTS)[0]))
        found += [
            Fault("join", rng.randrange(500, STORM_MS * 3 // 4), (index,))
            for index in range(self._first, self._nodes)
        ]
        if self._first > 3 and rng.random() < 0.15:
            found.append(Fault("leave", self._at(), (rng.randrange(self._first),)))
        found += self._people()
        return tuple(sorted(found, key=lambda fault: fault.at_ms))

    def _at(self) -> int:
        return self._rng.randrange(STORM_MS - 1_000)

    def _weather(self) -> list[Fault]:
        rng = self._rng
        found = []
        weather = {"loss": (1, 3, 8), "doubles": (2, 5, 20), "overtaking": (2, 5, 15), "deaths": (3, 5, 8)}
        for kind, amounts in weather.items():
            if rng.random() < 0.6:
                at = rng.choice([0, 0, self._at()])
                found.append(
                    Fault(kind, at, for_ms=rng.randrange(1_000, STORM_MS), amount=rng.choice(amounts))
                )
        return found

    def _some(self, most: int) -> tuple[int, ...]:
        count = self._rng.randrange(1, max(2, most + 1))
        return tuple(sorted(self._rng.sample(range(self._first), min(count, self._first - 1))))

    def _one(self, kind: str) -> Fault:
        rng, at = self._rng, self._at()
        who = (rng.randrange(self._first),)
        down = rng.choice([100, 300, 1_500, 4_000, 9_000])
        match kind:
            case "leader" | "cut off" | "unheard":
                return Fault(kind, at, for_ms=down, amount=rng.randrange(self._begun))
            case "point" | "power":
                return Fault(kind, at, who, down, rng.choice([1, 2, 3, 5, 10, 30, 100]))
            case "blackout":
                return Fault(kind, at, for_ms=down)
            case "partition":
                return Fault(kind, at, self._some(self._first // 2), rng.randrange(500, 9_000))
            case "mute" | "full disk" | "stuck":
                return Fault(kind, at, who, rng.randrange(500, 7_000))
            case "slow" | "slow disk":
                return Fault(kind, at, who, rng.randrange(1_000, 12_000), rng.choice([50, 300, 1_500]))
            case "clock":
                return Fault(kind, at, who, down, rng.choice([-3_000, -700, 400, 2_500]))
            case _:
                return Fault(kind, at, who, down)

    def _people(self) -> list[Fault]:
        """What is asked of the fleet meanwhile."""
        rng = self._rng
        found = [
            Fault("create", self._at(), (rng.randrange(self._first),), amount=number)
            for number in range(self._begun, len(self._jobs))
            if rng.random() < 0.4
        ]
        if rng.random() < 0.4:
            number = rng.randrange(self._begun)
            for _ in range(rng.choice([1, 1, 2])):
                verb = rng.choice(["alter", "alter", "alter", "rollback", "pause"])
                at = self._at()
                found.append(Fault(verb, at, amount=number))
                if verb == "pause":
                    found.append(Fault("resume", at + rng.randrange(1_000, 5_000), amount=number))
        if self._begun > 1 and rng.random() < 0.4:
            found.append(Fault("drop", self._at(), amount=rng.randrange(self._begun)))
        if "final" in self._jobs and rng.random() < 0.5:
            found.append(Fault("boom", self._at(), (rng.randrange(self._first),)))
        return found


_KINDS = {
    "crash": 6,
    "point": 10,
    "leader": 4,
    "cut off": 2,
    "unheard": 2,
    "power": 3,
    "blackout": 1,
    "partition": 3,
    "mute": 1,
    "slow": 2,
    "slow disk": 2,
    "stuck": 2,
    "full disk": 1,
    "clock": 1,
}
_WEIGHTS = (list(_KINDS), list(_KINDS.values()))
