"""Which vertices of a graph go where when servers come to a computation, or leave it (*Assured cloud
computing*, 6.5.2): contiguous repartitioning.

Vertices stand in the order of their hashes, from 0 on, and every server has a stretch of them, ``[start,
end)``. Afterwards all stretches are equal. Which server gets which is a matching of servers and stretches
that should keep the most vertices where they are. ``greedy`` goes once through the old stretches where
servers come, and through the new ones where servers leave, so always through the longer ones, in their order;
each gets that on the other side which has most in common with it and is free. From which end it goes makes a
difference, so it goes from both, and the better one counts.

Nothing here knows what a vertex is (``elf.job.graphs``), or what it costs to move one (``lab.graphs``, which
also has what this is compared with).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise

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


def greedy(before: Parts, come: Sequence[str] = (), leave: Collection[str] = ()) -> dict[str, Part]:
    """Equal stretches for those who stay and those who come, by one pass from each end, of which the better
    one counts."""
    stay, stretches = asked(before, come, leave)
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


def asked(before: Parts, come: Sequence[str], leave: Collection[str]) -> tuple[list[str], list[Part]]:
    """(Who stays, in order; the stretches of the new ones.)"""
    stay = [server for server in in_order(before) if server not in leave]
    unknown, known = set(leave) - before.keys(), set(come) & before.keys()
    if unknown or known or not (stay or come):
        raise ValueError(f"no such change: {sorted(unknown or known)} of {in_order(before)}")
    return stay, equal(_vertices(before), len(stay) + len(come))


def _vertices(parts: Parts) -> int:
    return max(end for _, end in parts.values())


def leavers(before: Parts, count: int) -> list[str]:
    """Who best leaves, by one pass from each end: those that have not most in common with any of the
    stretches there are without them; of more such ones the shortest."""
    servers = in_order(before)
    own, stretches = [before[one] for one in servers], equal(_vertices(before), len(servers) - count)
    ways = []
    for pairs in (_paired(own, stretches, len(servers)), _mirrored(own, stretches, len(servers))):
        rest = [one for place, one in enumerate(servers) if place not in pairs]
        ways.append(sorted(rest, key=lambda one: before[one][1] - before[one][0])[:count])
    return min(ways, key=lambda leave: moved(before, greedy(before, (), leave)))
