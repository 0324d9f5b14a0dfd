"""What crosses the borders of a fleet in several regions: real nodes, panes and merges on virtual time, with
trees that do not go by regions, that do, and whose heads merge panes (``elf.job.units``)."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from elf.job.spec import JobSpec
from elf.windows import Sliding
from lab.chaos.engine import united
from lab.chaos.world import World

WINDOW_S: Final = 60
PANES: Final = 12
"""Panes of a window: of 5 s."""
SETTLE_MS: Final = 20_000
"""So long a job runs before anything is counted, and after the last window."""
SKEW: Final = 1.0
"""Keys are chosen like pages: the n-th is 1/n as likely as the first."""
DRAWN: Final = 20_000


@dataclass(frozen=True)
class Fleet:
    """What is simulated. ``rate``: rows a second of each agent; ``keys``: how many there are to choose
    from."""

    agents: int = 12
    regions: int = 3
    rate: int = 10
    keys: int = 2_000
    windows: int = 3
    seed: int = 1


@dataclass(frozen=True)
class Crossed:
    """Bytes of slices that crossed borders for each window, in how many windows, and how many of these were
    not what the logs say."""

    bytes_a_window: int
    windows: int
    wrong: int


HOW: Final = ("no heads", "heads", "heads that merge")


def crossed(fleet: Fleet, how: str) -> Crossed:
    """Run a fleet in one of the three ways."""
    world = World(fleet.seed, fleet.agents, checking=False)
    drawn = random.Random(f"keys {fleet.seed}")
    weights = [1 / (n + 1) ** SKEW for n in range(fleet.keys)]
    world.keys = drawn.choices([f"/page/{n}" for n in range(fleet.keys)], weights, k=DRAWN)
    world.border_us = 0 if how == "heads" else None
    for agent in world.agents:
        agent.place = f"region{agent.index % fleet.regions}"
        agent.by_regions = how != "no heads"
    world.start_all()
    length_ms = 1_000 * WINDOW_S * fleet.windows
    first_ms = -(-(world.now + SETTLE_MS) // (1_000 * WINDOW_S)) * 1_000 * WINDOW_S
    until = first_ms + length_ms
    for agent in world.agents:
        world.write(agent, until + SETTLE_MS, rate_ms=1_000 // fleet.rate)
    spec = world.create(1, united(WINDOW_S, PANES))
    world.run(first_ms + SETTLE_MS // 2 - world.now)
    before = world.crossed
    world.run(length_ms)
    return Crossed((world.crossed - before) // fleet.windows, *_checked(world, spec, first_ms, until))


def _checked(world: World, spec: JobSpec, first_ms: int, until: int) -> tuple[int, int]:
    (kind,) = spec.plan.windows
    assert isinstance(kind, Sliding)
    world.run(SETTLE_MS)
    found = {
        start: counts == world.truth(spec, start)
        for start, (_, counts, _) in world.committed(spec).items()
        if first_ms * 1_000 <= start and start + kind.size_us <= until * 1_000
    }
    return len(found), sum(not right for right in found.values())
