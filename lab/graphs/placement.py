"""Which vertices of a graph go where when servers come to a computation, or leave it (*Assured cloud
computing*, 6.5.2).

Vertices stand in the order of their hashes, from 0 on, and every server has a stretch of them, ``[start,
end)``. Two ways to change who has what:

- *contiguous*: afterwards all stretches are equal. Which server gets which is a matching of servers and
  stretches that keeps the most vertices where they are. ``matched`` finds the best one, in time that grows
  with the cube of the servers. ``greedy`` goes once through the old stretches where servers come, and
  through the new ones where servers leave, so always through the longer ones, in their order; each gets that
  on the other side which has most in common with it and is free. From which end it goes makes a difference,
  so it goes from both, and the better one counts.
- *ring*: a server that comes splits a stretch with the one that has it, and one that leaves gives its own to
  the next: at most as many servers are touched as come or leave. Stretches are no longer equal, unless a
  multiple comes; so the longest are split, and of those who may leave the one goes whose leaving makes the
  shortest stretch.

Nothing here knows what a vertex is, or what it costs to move one (``lab.graphs.model``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np

from elf.errors import UserError

Part = tuple[int, int]
Parts = Mapping[str, Part]
"""By server; together they are all vertices."""


def equal(vertices: int, servers: int) -> list[Part]:
    """So many stretches, equal up to one vertex."""
    ends = [place * vertices // servers for place in range(servers + 1)]
    return list(pairwise(ends))


def in_common(one: Part, other: Part) -> int:
    return max(0, min(one[1], other[1]) - max(one[0], other[0]))


def moved(before: Parts, after: Parts) -> int:
    """The vertices that are at another server afterwards."""
    return sum(
        end - start - in_common((start, end), before.get(server, (0, 0)))
        for server, (start, end) in after.items()
    )


def in_order(parts: Parts) -> list[str]:
    """The servers as their stretches stand."""
    return sorted(parts, key=lambda server: (parts[server], server))


# -- equal stretches -----------------------------------------------------------------------------------------


def greedy(before: Parts, come: Sequence[str] = (), leave: Collection[str] = ()) -> dict[str, Part]:
    """Equal stretches for those who stay and those who come, by one pass from each end, of which the better
    one counts."""
    stay, stretches = _asked(before, come, leave)
    own = [before[server] for server in stay]
    pairs = [_paired(own, stretches, len(before)), _mirrored(own, stretches, len(before))]
    ways = []
    for found in pairs:
        taken = set(found.values())
        free = (place for place in range(len(stretches)) if place not in taken)
        places = [found[server] if server in found else next(free) for server in range(len(stay))]
        servers = (*stay, *come)
        ways.append({one: stretches[place] for one, place in zip(servers, [*places, *free], strict=True)})
    return min(ways, key=lambda way: moved(before, way))


def _paired(own: Sequence[Part], stretches: Sequence[Part], before: int) -> dict[int, int]:
    """By the place of a server that of its stretch; ``before``: how many servers there were."""
    if len(stretches) >= before:
        return dict(_passed(own, stretches))
    return {column: row for row, column in _passed(stretches, own)}


def _mirrored(own: Sequence[Part], stretches: Sequence[Part], before: int) -> dict[int, int]:
    """The same from the other end."""
    ours, theirs = ([(-end, -start) for start, end in reversed(parts)] for parts in (own, stretches))
    last, end = len(own) - 1, len(stretches) - 1
    return {last - server: end - place for server, place in _paired(ours, theirs, before).items()}


def _passed(rows: Sequence[Part], columns: Sequence[Part]) -> Iterator[tuple[int, int]]:
    """Of each row the free column that has most in common with it, if any has; both in order."""
    taken, first = [False] * len(columns), 0
    for row, (start, end) in enumerate(rows):
        while first < len(columns) and columns[first][1] <= start:
            first += 1
        best, most, place = -1, 0, first
        while place < len(columns) and columns[place][0] < end:
            common = in_common((start, end), columns[place])
            if not taken[place] and common > most:
                best, most = place, common
            place += 1
        if best >= 0:
            taken[best] = True
            yield row, best


def matched(before: Parts, come: Sequence[str] = (), leave: Collection[str] = ()) -> dict[str, Part]:
    """Equal stretches so that as few vertices move as can be. Raises ``UserError`` without scipy."""
    try:
        from scipy.optimize import linear_sum_assignment
    except ImportError:
        raise UserError("the best matching needs scipy: install elf-stream[graphs]") from None
    stay, stretches = _asked(before, come, leave)
    servers = [*stay, *come]
    kept = [[in_common(before.get(one, (0, 0)), stretch) for stretch in stretches] for one in servers]
    _, places = linear_sum_assignment(np.array(kept), maximize=True)
    return {server: stretches[place] for server, place in zip(servers, places.tolist(), strict=True)}


def appended(before: Parts, come: Sequence[str] = (), leave: Collection[str] = ()) -> dict[str, Part]:
    """Equal stretches in the order of the servers, those who come last: what the two others are compared
    with."""
    stay, stretches = _asked(before, come, leave)
    return dict(zip((*stay, *come), stretches, strict=True))


def _asked(before: Parts, come: Sequence[str], leave: Collection[str]) -> tuple[list[str], list[Part]]:
    """(Who stays, in order; the stretches of the new ones.)"""
    stay = [server for server in in_order(before) if server not in leave]
    unknown, known = set(leave) - before.keys(), set(come) & before.keys()
    if unknown or known or not (stay or come):
        raise ValueError(f"no such change: {sorted(unknown or known)} of {in_order(before)}")
    vertices = max(end for _, end in before.values())
    return stay, equal(vertices, len(stay) + len(come))


# -- a ring --------------------------------------------------------------------------------------------------


def joined(before: Parts, come: Sequence[str]) -> dict[str, Part]:
    """Each server that comes splits the stretch whose pieces are the longest yet; a stretch that several
    split has equal pieces, and its server keeps the last."""
    servers = in_order(before)
    pieces = dict.fromkeys(servers, 1)
    for _ in come:
        longest = max(servers, key=lambda one: (before[one][1] - before[one][0]) / pieces[one])
        pieces[longest] += 1
    found: dict[str, Part] = {}
    new = iter(come)
    for server in servers:
        start, end = before[server]
        for first, last in equal(end - start, pieces[server]):
            found[server if last == end - start else next(new)] = (start + first, start + last)
    return found


def left(before: Parts, leave: Sequence[str]) -> dict[str, Part]:
    """Each server that leaves gives its stretch to the next, the last one to the one before."""
    found = dict(before)
    for server in leave:
        servers = in_order(found)
        place = servers.index(server)
        start, end = found.pop(server)
        if not found:
            raise ValueError("nobody is left")
        heir = servers[place + 1] if place + 1 < len(servers) else servers[place - 1]
        found[heir] = (min(start, found[heir][0]), max(end, found[heir][1]))
    return found


def who_leaves(before: Parts, count: int) -> list[str]:
    """Who best leaves a ring: one by one, whose leaving leaves the longest stretch shortest, and whose own
    and the heir's are then the shortest together. Stretches are told apart by hundredths of their mean: a
    vertex more or less must not decide which neighbours go together."""
    found, now = list[str](), dict(before)
    unit = max(1, max(end for _, end in before.values()) // len(before) // 100)

    def cost(server: str) -> tuple[int, int]:
        sizes = {one: end - start for one, (start, end) in left(now, [server]).items()}
        grown = next((size for one, size in sizes.items() if size != now[one][1] - now[one][0]), 0)
        return max(sizes.values()) // unit, grown // unit

    for _ in range(count):
        found.append(min(in_order(now), key=cost))
        now = left(now, found[-1:])
    return found
