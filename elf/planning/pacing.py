"""When something may be changed by itself: rarely enough that each change is measured before the next.

    at rest ── imbalance > ``above`` ──▶ changing ── ≤ ``below``, or no change for ``follow_ms`` ──▶ at rest

Between the two thresholds lies the *hysteresis*. Which of the two states it is follows from the time of the
last changes, which are facts of the catalog log: a new decider is in the same state as the one before. A unit
that has moved stays for ``cool_ms``; so does one that is being changed in any other way, until that is over.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from elf.planning.decision import Decision

HOUR_MS: Final = 3_600_000


class Pace(msgspec.Struct, frozen=True):
    """``period_ms``: between two decisions, in which loads are measured anew. ``most``: changes within an
    hour, whatever loads do, since each stays in the log."""

    above: float = 1.25
    below: float = 1.15
    period_ms: int = 10_000
    follow_ms: int = 30_000
    cool_ms: int = 600_000
    most: int = 200

    def __post_init__(self) -> None:
        if not 1 <= self.below <= self.above or self.follow_ms < self.period_ms:
            raise ValueError(f"no pace: {self}")


class Turn(Decision, frozen=True):
    """Whether it is time, and which units may not move (``held``)."""

    due: bool
    held: frozenset[str] = frozenset()


def paced(pace: Pace, moved: Sequence[tuple[str, int]], changing: Collection[str], now_ms: int) -> Turn:
    """Whether anything may change at all. ``moved``: units, and when a decision changed them (ms).
    ``changing``: units that something else is done to."""
    ages = [(unit, max(0, now_ms - at)) for unit, at in moved]
    held = frozenset(changing) | {unit for unit, age in ages if age < pace.cool_ms}
    last = min((age for _, age in ages), default=None)
    if last is not None and last < pace.period_ms:
        why = f"the last move was {last / 1e3:.0f} s ago: loads are measured first"
        return Turn(reasons=(why,), due=False, held=held)
    lately = sum(age < HOUR_MS for _, age in ages)
    if lately >= pace.most:
        why = f"there were {lately} in the last hour, of {pace.most} at most"
        return Turn(reasons=(why,), due=False, held=held)
    return Turn(reasons=("loads are measured",), due=True, held=held)


def turn(
    pace: Pace, imbalance: float, moved: Sequence[tuple[str, int]], changing: Collection[str], now_ms: int
) -> Turn:
    """Whether units are to move, from the greatest load over the mean (``imbalance``); the rest as above."""
    found = paced(pace, moved, changing, now_ms)
    if not found.due:
        return found
    last = min((max(0, now_ms - at) for _, at in moved), default=None)
    follows = last is not None and last < pace.follow_ms
    limit = pace.below if follows else pace.above
    rule = "until it is at most" if follows else "from"
    why = f"the busiest agent has {imbalance:.2f} times the mean load; agents are balanced {rule} {limit:g}"
    return Turn(reasons=(why,), due=imbalance > limit, held=found.held)
