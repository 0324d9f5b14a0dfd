"""When anything may be changed by itself, and of which jobs: the one pace of all planners that change jobs.

Planners propose; whether a job may be changed now is said here, from the *changes* that were decided so far,
whatever they are about. They are facts of the catalog log, so a new decider goes on at the pace of the one
before.

- *Changes are measured before the next.* Between two decisions there is a period, in which loads are measured
  anew.
- *One change at a time a job.* A job that was changed rests, and one that is being changed by anybody waits.
- *What does not settle is left alone.* The same thing of a job (where a root is, how many trees it has) rests
  twice as long after each change of the last hour. So a first guess is mended soon, and what goes to and fro
  soon stays where it is.
- *Hysteresis.* Where a planner has two limits, the farther one holds from the first change on until there has
  been none for a while:

    at rest ── imbalance > ``above`` ──▶ changing ── ≤ ``below``, or no change for ``follow_ms`` ──▶ at rest
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from elf.planning.decision import Decision

HOUR_MS: Final = 3_600_000


class Pace(msgspec.Struct, frozen=True):
    """``above`` and ``below``: the limits of the greatest load over the mean. ``period_ms``: between two
    decisions. ``rest_ms``: of a job that was changed, for the first time: until two whole periods of it were
    measured. ``most``: changes within an hour, whatever loads do, since each stays in the log."""

    above: float = 1.25
    below: float = 1.15
    period_ms: int = 10_000
    follow_ms: int = 30_000
    rest_ms: int = 30_000
    most: int = 200

    def __post_init__(self) -> None:
        if not 1 <= self.below <= self.above or min(self.follow_ms, self.rest_ms) < self.period_ms:
            raise ValueError(f"no pace: {self}")


class Change(msgspec.Struct, frozen=True):
    """``what`` of a job was to be different, as was decided then."""

    job: str
    what: str
    at_ms: int


class Turn(Decision, frozen=True):
    """Whether it is time, and for how many changes. ``held``: jobs that are not changed now, and what of the
    other jobs is not. ``follows``: something was changed just now."""

    due: bool
    room: int = 0
    held: frozenset[str] = frozenset()
    follows: bool = False

    def may(self, job: str, what: str) -> bool:
        """Whether this of a job may be changed."""
        return self.due and job not in self.held and what not in self.held


def paced(pace: Pace, changes: Iterable[Change], changing: Collection[str], now_ms: int) -> Turn:
    """What may be changed now. ``changing``: jobs to which something is being done."""
    ages: dict[str, list[int]] = defaultdict(list)
    held, every = set(changing), list[int]()
    for one in changes:
        age = max(0, now_ms - one.at_ms)
        if age >= HOUR_MS:
            continue
        every.append(age)
        ages[one.what].append(age)
        held |= {one.job} if age < pace.rest_ms else set()
    held |= {what for what, some in ages.items() if min(some) < pace.rest_ms << (len(some) - 1)}
    last = min(every, default=HOUR_MS)
    room = pace.most - len(every)
    due, why = True, "loads are measured"
    if last < pace.period_ms:
        due, why = False, f"the last change was {last / 1e3:.0f} s ago: loads are measured first"
    elif room <= 0:
        due, why = False, f"there were {len(every)} in the last hour, of {pace.most} at most"
    return Turn(
        reasons=(why,), due=due, room=max(0, room), held=frozenset(held), follows=last < pace.follow_ms
    )


def unbalanced(pace: Pace, imbalance: float, turn: Turn) -> Turn:
    """The same, if the greatest load over the mean (``imbalance``) is a reason to change anything."""
    if not turn.due:
        return turn
    limit = pace.below if turn.follows else pace.above
    rule = "until it is at most" if turn.follows else "from"
    why = f"the busiest agent has {imbalance:.2f} times the mean load; agents are balanced {rule} {limit:g}"
    return msgspec.structs.replace(turn, due=imbalance > limit, reasons=(why,))
