"""Which vertices of a graph go where when servers come to a computation, or leave it: ring-based
repartitioning (*Assured cloud computing*, 6.5.2), beside the contiguous one (``stretches``).

A server that comes splits a stretch with the one that has it, and one that leaves gives its own to the next:
at most as many servers are touched as come or leave. Stretches are no longer equal afterwards, unless a
multiple comes; so the longest are split, and of those who may leave the one goes whose leaving makes the
shortest stretch.
"""

from __future__ import annotations

from collections.abc import Sequence

from elf.planning.stretches import Part, Parts, equal, in_order


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
