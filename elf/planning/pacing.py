"""When something may be changed by itself: rarely enough that each change is measured before the next.

    at rest ── imbalance > ``above`` ──▶ changing ── ≤ ``below``, or no change for ``follow_ms`` ──▶ at rest

Between the two thresholds lies the *hysteresis*. Which of the two states it is follows from the time of the
last change, which is a fact of the catalog log: a new decider is in the same state as the one before. A unit
that has moved stays for ``cool_ms``; so does one that is being changed in any other way, until that is over.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from elf.planning.decision import Decision


class Pace(msgspec.Struct, frozen=True):
    """``period_ms``: between two decisions, in which loads are measured anew."""

    above: float = 1.25
    below: float = 1.15
    period_ms: int = 10_000
    follow_ms: int = 30_000
    cool_ms: int = 120_000

    def __post_init__(self) -> None:
        if not 1 <= self.below <= self.above or self.follow_ms < self.period_ms:
            raise ValueError(f"no pace: {self}")


class Turn(Decision, frozen=True):
    """Whether it is time, and which units may not move (``held``)."""

    due: bool
    held: frozenset[str] = frozenset()


def turn(
    pace: Pace, imbalance: float, moved_ms: Mapping[str, int], changing: Collection[str], now_ms: int
) -> Turn:
    """``moved_ms``: when each unit was last moved by a decision. ``changing``: units that something is done
    to."""
    ages = {unit: max(0, now_ms - at) for unit, at in moved_ms.items()}
    held = frozenset(changing) | {unit for unit, age in ages.items() if age < pace.cool_ms}
    last = min(ages.values(), default=None)
    if last is not None and last < pace.period_ms:
        why = f"the last move was {last / 1e3:.0f} s ago: its loads are measured first"
        return Turn(reasons=(why,), due=False, held=held)
    follows = last is not None and last < pace.follow_ms
    limit = pace.below if follows else pace.above
    rule = "until it is at most" if follows else "from"
    why = f"the busiest agent has {imbalance:.2f} times the mean load; agents are balanced {rule} {limit:g}"
    return Turn(reasons=(why,), due=imbalance > limit, held=held)
