"""Which of many peers to speak to now, when all are to hear from us regularly.

A message to each of them each time costs as many messages as there are peers: with fifty trees, whose roots
and inner nodes all differ, a hundred a second for each node, when nothing happens. So where there are more
than ``at_once`` each is spoken to less often, and is told so; our silence is noticed that much later.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Final, Generic, TypeVar

AT_ONCE: Final = 8
TURNS_MAX: Final = 4

One = TypeVar("One", bound=Hashable)


class Turns(Generic[One]):
    """Each time ``at_once`` of them, those that have waited longest; more where one would have to wait for
    more than ``turns_max`` turns; and all that have not been spoken to yet."""

    def __init__(self, at_once: int = AT_ONCE, turns_max: int = TURNS_MAX) -> None:
        self._at_once = at_once
        self._turns_max = turns_max
        self._spoken: dict[One, None] = {}
        self.every = 1
        """For those whose turn it was, the next one comes after so many."""

    def take(self, everybody: Iterable[One]) -> list[One]:
        """Those whose turn it is."""
        wanted = dict.fromkeys(everybody)
        new = [one for one in wanted if one not in self._spoken]
        known = [one for one in self._spoken if one in wanted]
        self.every = max(1, min(_parts(len(wanted), self._at_once), self._turns_max))
        share = _parts(len(wanted), self.every)
        now = [*new, *known[:share]]
        self._spoken = dict.fromkeys([*known[share:], *now])
        return now

    def forget(self, one: One) -> None:
        """It is to be spoken to the next time."""
        self._spoken.pop(one, None)


def _parts(whole: int, part: int) -> int:
    return -(-whole // part)
