"""What a seed draws: a schedule."""

from __future__ import annotations

import random
from collections.abc import Collection

from lab.chaos import features
from lab.chaos.features import DRAWN, TREES
from lab.chaos.jobs import JOBS, RANGED
from lab.chaos.schedule import STORM_MS, Fault, Schedule
from overlay.turns import AT_ONCE

JOINERS_MAX = 2
EAGER_SHARE = 0.4
"""The share of schedules in which copies are eager."""
LISTED_SHARE = 0.3
"""The share of schedules in which returning agents have a list of others, and do not know which of them
live."""


def drawn(seed: int, nodes: int, always: Collection[str] = ()) -> Schedule:
    """The schedule of a seed. ``always``: which of ``FEATURES`` it has, whatever the seed says of them."""
    rng = random.Random(f"chaos {seed} {nodes}")
    joiners = min(rng.choice([0, 0, 1, JOINERS_MAX]), max(0, nodes - 3))
    first = nodes - joiners
    begun = rng.choice([1, 2, 3, 3])
    kinds = rng.choices(list(JOBS), list(JOBS.values()), k=DRAWN - 1)
    apart = random.Random(f"staged {seed} {nodes}")
    jobs = ("plain", *(apart.choice(RANGED.get(kind, (kind,))) for kind in kinds))
    jobs = features.spread(seed, nodes, jobs)
    mirrored, broken = features.mirrored(seed, nodes, first, jobs)
    more, together, asked = features.equal(seed, nodes, first, jobs[:begun])
    reduced = features.reduced(seed, nodes, first, begun, together)
    faults = _Draw(rng, first, nodes, jobs, begun).faults()
    files, rotated = features.files(seed, nodes, first, never=not {"offloads", "promises"}.isdisjoint(always))
    past, pasts, begun_late = features.pasts(seed, nodes, first, len(jobs) + len(more))
    faults += (*features.gone(seed, nodes, first), *broken, *asked, *reduced, *rotated)
    tabled = features.tables(seed, nodes, first, begun, always="tables" in always)
    faults += (*features.outputs(seed, nodes, first, begun), *tabled)
    faults += features.rings(seed, nodes, first, begun, always="rings" in always)
    faults += (*features.holds(seed, nodes, first, tabled), *features.joins(seed, nodes, first, tabled))
    faults += (*features.budgets(seed, nodes, first), *begun_late)
    faults += features.moves(seed, nodes, first, begun, always="moves" in always)
    faults += features.scales(seed, nodes, first, begun, always="scales" in always)
    faults += features.offloads(seed, nodes, first, begun, always="offloads" in always)
    program, ended = features.program(seed, nodes, first, faults, stays=not files)
    promised, overloads = features.promises(
        seed, nodes, first, len(jobs) + len(more), stays=not files, always="promises" in always
    )
    regions, borders = features.regions(seed, nodes, first, always="regions" in always)
    jobs = features.merged(seed, nodes, jobs, together) if regions else jobs
    regions, routes = features.routes(seed, begun, regions)
    faults += (*ended, *overloads, *borders, *routes)
    return Schedule(
        seed,
        nodes,
        joiners,
        rng.choice([1, 3, 5, 5]),
        (*jobs, *more, *past),
        begun,
        rng.choice([300, 300, 300, 1_500]),
        tuple(sorted(faults, key=lambda fault: fault.at_ms)),
        features.bared(
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
        research=features.research(seed, nodes, promised),
        eager=random.Random(f"eager {seed} {nodes}").random() < EAGER_SHARE,
        listed=random.Random(f"listed {seed} {nodes}").random() < LISTED_SHARE,
        program=program,
        trees=random.Random(f"trees {seed} {nodes}").choice(TREES) if program else 1,
        owned=features.owned(seed, nodes, jobs, together),
        regions=regions,
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
