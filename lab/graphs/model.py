"""Iterations of a graph computation on servers, in seconds of a model, while vertices move.

An iteration gathers (each server goes over the edges into its vertices), scatters (each sends the values that
others have subscribed to) and waits at barriers. A change goes over three iterations:

    i      static data (ids and edges) go to those who will have the vertices, while others gather
    i + 1  what is left of them; then all make their subscriptions anew
    i + 2  after the gather the values of moved vertices go too, and the scatter knows the new servers

While nobody scatters the network is free for static data; while somebody does they wait. Sending and
receiving them, and making subscriptions, takes ``BACKGROUND`` of the servers' cores. If two iterations do not
suffice, the change waits for the barrier of the first that does. ``first_cut`` does all of it at one barrier.
An *optimal* change has the new servers from the same iteration on, and moves nothing.

The figures are those of the paper's graph (Twitter) and of servers like its own, as far as it tells them;
rates are assumptions, stated here, and alike for all that are compared.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from elf.planning.stretches import Part, in_common

VERTICES: Final = 41_650_000
EDGES: Final = 1_470_000_000
GATHER: Final = 25e6
"""Edges a second of a server, all cores."""
NETWORK: Final = 125e6
"""Bytes a second, in and out."""
VALUE_BYTES: Final = 8
EDGE_BYTES: Final = 8
BARRIER_SECS: Final = 0.02
BACKGROUND: Final = 0.15
"""Of the cores, taken by what goes on beside the gather."""
ITERATIONS: Final = 10
BEGINS: Final = 1


@dataclass(frozen=True)
class Run:
    """Seconds of each iteration; ``changed``: the first with the new servers."""

    seconds: tuple[float, ...]
    changed: int

    @property
    def total(self) -> float:
        return sum(self.seconds)


def iteration(parts: Mapping[str, Part]) -> tuple[float, float]:
    """(Seconds of a gather, of a scatter and the barriers): those of the busiest server."""
    largest = max(end - start for start, end in parts.values())
    edges = EDGES * largest / VERTICES
    known = VERTICES * (1 - math.exp(-edges / VERTICES))  # in-neighbours, drawn at random
    remote = known * (1 - largest / VERTICES)
    return edges / GATHER, remote * VALUE_BYTES / NETWORK + 2 * BARRIER_SECS


def traffic(before: Mapping[str, Part], after: Mapping[str, Part]) -> int:
    """Vertices through the busiest server's network, in or out."""
    nowhere = (0, 0)
    comes = [_size(part) - in_common(part, before.get(one, nowhere)) for one, part in after.items()]
    goes = [_size(part) - in_common(part, after.get(one, nowhere)) for one, part in before.items()]
    return max(*comes, *goes, 0)


def _size(part: Part) -> int:
    return part[1] - part[0]


def changed(before: Mapping[str, Part], after: Mapping[str, Part]) -> Run:
    """In the background, as above."""
    gather, scatter = iteration(before)
    static = traffic(before, after) * (EDGE_BYTES + EDGE_BYTES * EDGES / VERTICES) / NETWORK
    subscriptions = iteration(after)[0] / 2  # as a gather without arithmetic
    values = traffic(before, after) * VALUE_BYTES / NETWORK
    seconds = [gather + scatter] * BEGINS
    left, subscribed, number = static, 0.0, 0
    while left > 0 or subscribed < subscriptions or number < 2:
        sends = min(left, gather)
        left -= sends
        idle = gather - sends if left <= 0 else 0.0
        makes = min(subscriptions - subscribed, idle)
        subscribed += makes
        seconds.append(gather + scatter + BACKGROUND * (sends + makes))
        number += 1
    seconds.append(gather + values + iteration(after)[1])
    first = len(seconds)
    rest = [sum(iteration(after))] * (ITERATIONS - first)
    return Run((*seconds, *rest), first)


def first_cut(before: Mapping[str, Part], after: Mapping[str, Part]) -> Run:
    """All at the next barrier."""
    seconds = [sum(iteration(before))] * (BEGINS + 1)
    vertices = traffic(before, after)
    moving = vertices * (EDGE_BYTES + EDGE_BYTES * EDGES / VERTICES + VALUE_BYTES) / NETWORK
    seconds[-1] += moving + iteration(after)[0] / 2
    return Run((*seconds, *[sum(iteration(after))] * (ITERATIONS - len(seconds))), len(seconds))


def optimal(before: Mapping[str, Part], after: Mapping[str, Part], first: int) -> Run:
    """The new servers are there from iteration ``first`` on, and the scatter of the one before is theirs."""
    old = [sum(iteration(before))] * (first - 1)
    turned = iteration(before)[0] + iteration(after)[1]
    return Run((*old, turned, *[sum(iteration(after))] * (ITERATIONS - first)), first)
