"""Ways to share a cluster: Natjam's manager, and a scheduler with capacities beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from spark_backend.queue.manager import App, Container, Manager, Request
from spark_backend.queue.policies import Draw, Policies

PRODUCTION_SHARE: Final = 0.25
"""Of the containers; research has the others (Figure 6.19)."""

NATJAM: Final = Policies()

Made = Callable[[Mapping[str, int], Draw], Manager]


@dataclass(frozen=True)
class Sharing:
    """How a cluster is shared.

    Attributes:
        name (str): what figures call it.
        manager (Made): makes its manager, of the hosts' containers and chance.
        policies (Policies): what masters go by, too.
        keeps (bool): whether a task that gives way saves a checkpoint; else it is killed.
    """

    name: str
    manager: Made
    policies: Policies = NATJAM
    keeps: bool = True


class CapacityManager(Manager):
    """Hadoop's Capacity Scheduler, which does not preempt.

    A queue below its capacity is served first, then, unless capacities are ``hard``, the other one: it may
    expand, and shrinks only as its tasks end.
    """

    def __init__(self, slots: Mapping[str, int], draw: Draw, *, hard: bool, share: float) -> None:
        super().__init__(slots, NATJAM, draw)
        production = round(sum(slots.values()) * share)
        self._capacity = {True: production, False: sum(slots.values()) - production}
        self._hard = hard

    def preempt(self, now_ms: int) -> list[Container]:
        """Nobody gives way."""
        return []

    def waiting(self) -> Iterator[tuple[App, Request]]:
        """All requests that may be served, who is served first, first."""
        apps = self.in_order()
        used = {
            queue: sum(len(app.held) for app in apps if app.production is queue) for queue in (True, False)
        }
        below = {queue: used[queue] < capacity for queue, capacity in self._capacity.items()}
        for entitled in (True,) if self._hard else (True, False):
            for app in apps:
                if below[app.production] is entitled:
                    yield from ((app, request) for request in app.wanted)


def natjam(policies: Policies = NATJAM) -> Sharing:
    """Natjam, or Natjam-R, by its policies."""
    return Sharing("natjam", lambda slots, draw: Manager(slots, policies, draw), policies)


KILL: Final = Sharing("kill", lambda slots, draw: Manager(slots, NATJAM, draw), keeps=False)
"""Natjam's choices, without checkpoints."""
HARD_CAP: Final = Sharing(
    "hard_cap", lambda slots, draw: CapacityManager(slots, draw, hard=True, share=PRODUCTION_SHARE)
)
SOFT_CAP: Final = Sharing(
    "soft_cap", lambda slots, draw: CapacityManager(slots, draw, hard=False, share=PRODUCTION_SHARE)
)
