"""Which units of work are to move so that agents are loaded alike: Flux's rule, with measured load.

Agents stand in the order of their load. A *suitable* unit of the first goes to the last, one of the second
to the last but one, and so on. A unit is suitable if the busier of the two is less busy afterwards, by a
share that makes the move worth it: then the variance is smaller too. Of these Flux takes the biggest, once a
period. Here it is the one that leaves the two most alike, and that is done again and again, with the loads
that agents will have then, until they are even: a unit moves once, and what it has come to is measured before
it moves again. Who is not among the too busy gives nothing away: that would not help those who are.

What a unit takes is counted only in part: not, for instance, the messages about it. What an agent takes in
all is known. So the factor between the two is *learned* from all agents: by how much those that have more
units by count are busier than others.
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


def learned(loads: Mapping[str, tuple[Load, float]]) -> float:
    """What units take for each part of it that is counted. ``loads``: what agents count, and all that they
    take. The slope of the line through them with the least squares, at least 1, and such that no agent's
    units take more than the agent has beside what is fixed."""
    counted = [sum(load.units.values()) for load, _ in loads.values()]
    beside = [max(0.0, whole - load.fixed) for load, whole in loads.values()]
    most = min((b / c for b, c in zip(beside, counted, strict=True) if c), default=1.0)
    mean, mean_beside = (sum(some) / len(some) if some else 0.0 for some in (counted, beside))
    spread = sum((c - mean) ** 2 for c in counted)
    if not spread:
        return 1.0
    both = sum((c - mean) * (b - mean_beside) for c, b in zip(counted, beside, strict=True))
    return max(1.0, min(most, both / spread))


def beside(load: Load, whole: float | None, factor: float) -> float:
    """What an agent takes that counts this, and takes so much in all, beside its units; None: that is not
    known."""
    return load.fixed if whole is None else max(load.fixed, whole - factor * sum(load.units.values()))


def balance(
    loads: Mapping[str, Load],
    held: Collection[str] = (),
    *,
    below: float = 1.0,
    most: int = 1_000_000,
    gain: float = GAIN_LEAST,
) -> Moves:
    """The moves that make agents even: until the greatest load is at most ``below`` times the mean, as far as
    units suit, and ``most`` at most. ``held``: units that stay where they are, as they have just moved, or
    change."""
    now = {agent: Load(dict(load.units), load.fixed) for agent, load in loads.items()}
    stay, found = set(held), list[Move]()
    kept: list[str] = []
    while imbalance(now) > below and len(found) < most:
        moves, kept = _paired(now, stay, gain, below)
        if not moves:
            break
        for one in moves[: most - len(found)]:
            now[one.origin] = _without(now[one.origin], one.unit)
            now[one.target] = Load({**now[one.target].units, one.unit: one.size}, now[one.target].fixed)
            stay.add(one.unit)
            found.append(one)
    then = f", and will have {imbalance(now):.2f} times after {len(found)} moves" if found else ""
    reasons = (f"the busiest of {len(loads)} agents has {imbalance(loads):.2f} times the mean load{then}",)
    return Moves(reasons=(*reasons, *kept), moves=tuple(found))


def _without(load: Load, unit: str) -> Load:
    return Load({name: size for name, size in load.units.items() if name != unit}, load.fixed)


def _paired(
    loads: Mapping[str, Load], held: Collection[str], gain: float, below: float
) -> tuple[list[Move], list[str]]:
    """The busiest with the idlest, and so on, down to who is not busy enough to give anything away: what
    moves, and why not more does."""
    enough = below * sum(load.total for load in loads.values()) / len(loads)
    order = sorted(loads, key=lambda agent: (-loads[agent].total, agent))
    found, kept = list[Move](), list[str]()
    for hot, cold in zip(order, reversed(order), strict=True):
        if loads[hot].total <= max(loads[cold].total, enough):
            break
        unit = _fittest(loads[hot], loads[cold].total, held, gain)
        if unit is None:
            both = f"{loads[hot].total:.0f} and {loads[cold].total:.0f}"
            kept.append(f"no unit of {hot} suits {cold}, which are at {both}")
        else:
            size = loads[hot].units[unit]
            found.append(Move(unit, hot, cold, size, loads[hot].total, loads[cold].total))
    return found, kept


def _fittest(hot: Load, cold: float, held: Collection[str], gain: float) -> str | None:
    """The suitable unit with which the busier of the two is least busy."""
    most = hot.total * (1 - gain)
    units = [
        (after, name)
        for name, size in hot.units.items()
        if name not in held and size > 0 and (after := max(hot.total - size, cold + size)) <= most
    ]
    return min(units)[1] if units else None
