"""Which units of work are to move so that agents are loaded alike: Flux's rule, with measured load.

Agents stand in the order of their load. The biggest *suitable* unit of the first goes to the last, that of
the second to the last but one, and so on. A unit is suitable if the busier of the two is less busy
afterwards, by a share that makes the move worth it: then the variance is smaller too. At most one unit leaves
an agent at a time, since what it comes to is to be measured before the next.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from elf.planning.decision import Decision

GAIN_LEAST: Final = 0.02
"""A move takes at least so much off the busier of two agents, as a share of its load."""


class Load(msgspec.Struct, frozen=True):
    """What an agent does: ``units`` by name, which could be elsewhere, and ``fixed``, which could not. All in
    one unit of measure, such as thousandths of a core."""

    units: Mapping[str, float]
    fixed: float = 0.0

    @property
    def total(self) -> float:
        return self.fixed + sum(self.units.values())


class Move(msgspec.Struct, frozen=True):
    """A unit goes from one agent to another: what it takes, and what the two did before."""

    unit: str
    origin: str
    target: str
    size: float
    origin_load: float
    target_load: float


class Moves(Decision, frozen=True):
    """In the order in which they were found."""

    moves: tuple[Move, ...] = ()


def imbalance(loads: Mapping[str, Load]) -> float:
    """The greatest load over the mean; 1 where nobody does anything."""
    totals = [load.total for load in loads.values()]
    mean = sum(totals) / len(totals) if totals else 0.0
    return max(totals) / mean if mean else 1.0


def balance(loads: Mapping[str, Load], held: Collection[str] = (), gain: float = GAIN_LEAST) -> Moves:
    """The moves of one period. ``held``: units that stay where they are, as they have just moved, or
    change."""
    order = sorted(loads, key=lambda agent: (-loads[agent].total, agent))
    found, kept = [], []
    for hot, cold in zip(order, reversed(order), strict=True):
        if loads[hot].total <= loads[cold].total:
            break
        unit = _biggest(loads[hot], loads[cold].total, held, gain)
        if unit is None:
            both = f"{loads[hot].total:.0f} and {loads[cold].total:.0f}"
            kept.append(f"no unit of {hot} suits {cold}, which are at {both}")
        else:
            size = loads[hot].units[unit]
            found.append(Move(unit, hot, cold, size, loads[hot].total, loads[cold].total))
    reasons = (f"the busiest of {len(loads)} agents has {imbalance(loads):.2f} times the mean load", *kept)
    return Moves(reasons=reasons, moves=tuple(found))


def _biggest(hot: Load, cold: float, held: Collection[str], gain: float) -> str | None:
    most = hot.total * (1 - gain)
    units = [
        (-size, name)
        for name, size in hot.units.items()
        if name not in held and size > 0 and max(hot.total - size, cold + size) <= most
    ]
    return min(units)[1] if units else None
