"""A simulated fleet whose windows are to have rows that agents have archived, and what is to be in them."""

from __future__ import annotations

from collections import Counter

from lab.chaos.books import windows_of
from lab.chaos.engine import SECOND
from lab.chaos.ledger import Ledger
from lab.chaos.world import World

SIZE_US = 2 * SECOND


def writing(seed: int = 7) -> World:
    """Three agents that read lines for a minute."""
    world = World(seed, 3, ledger=Ledger(), checking=False)
    world.start_all(world.agents)
    for agent in world.agents:
        world.write(agent, world.now + 60_000, rate_ms=250)
    return world


def told(world: World) -> dict[int, tuple[Counter[str], dict[str, object]]]:
    """(rows, status) of the last revision of each window, by its start (µs)."""
    (spec,) = world.longest().jobs()  # type: ignore[union-attr]
    found: dict[int, tuple[Counter[str], dict[str, object]]] = {}
    for row in world.leader(spec).store.windows(spec.uid, -(1 << 62), 1 << 62):
        for span, status, counts in windows_of(row):
            before = found.get(span[0])
            if before is None or int(str(before[1]["revision"])) <= int(str(status["revision"])):
                found[span[0]] = counts, dict(status)
    return found


def truth(world: World, start_us: int) -> Counter[str]:
    rows = (row for agent in world.agents for row in agent.log.rows)
    return Counter(key for ts, key in rows if start_us <= ts < start_us + SIZE_US)
