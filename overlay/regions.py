"""Trees across regions: in each region one node a topic, its *head*, stands between the others and the rest
of the tree, so that what a region sends or hears crosses its border once.

    region eu                  │ region us                 region(a) is the first part of a's place, "us/r1".
       root ◀──────────────────┼── head ◀── members        The head is the node of the region that is nearest
        ▲ ▲                    │   us                      to a key of topic and region (``key_of_head``).
        │ └── members of eu    │
        └──────────────────────┼── head of ap ◀── members

Who stands where is told by the application (``Regions.know``), which has it from one log, so all nodes say
the same of it in the end. From that list each node finds for itself whom to ask (``Regions.above``): the
host, where that stands in its region or where it is the head itself; else the head. A head that is dead or
does not answer is passed over for the next nearest to the key; who gets no answer at all asks the host.

**One head a region is a matter of bytes and never of rows.** Two nodes may take themselves for the head: one
has an older list, or takes the other for dead. Both hang below the host then, each with members of its own,
and what they bring up is disjoint like everything in a tree (protocol 4.2). So a head needs no lease, no
term, and no message that makes it one. Once a refresh each node looks whether it hangs where it should
(``TreeLinks.home``): a second head goes below the first, and keeps its parent until that has said yes.

Where fewer than two regions are known, or a topic has no host, nothing is different from trees without
regions.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterator, Mapping

from overlay.context import Context
from overlay.ids import closeness, key_of, node_id, to_int


def region_of(place: str) -> str:
    """The region of a place, ``region/rack``; empty: it names none."""
    return place.split("/")[0]


def key_of_head(topic: bytes, region: str) -> bytes:
    """The key whose nearest node in a region is the region's head in a topic's tree."""
    return key_of(topic + b"\0head of " + region.encode())


class Regions:
    """Where nodes stand, as one node knows it."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._of: dict[str, str] = {}
        self._ours: list[tuple[int, str]] = []
        """The nodes of our region, by their places on the ring."""
        self._region = ""

    def know(self, places: Mapping[str, str]) -> None:
        """Where all nodes stand of which that is known, by address; who is not named stands nowhere."""
        self._of = {address: region for address, place in places.items() if (region := region_of(place))}
        here = self._of.get(self._context.me.address, "")
        self._region = here if len(set(self._of.values())) > 1 else ""
        self._ours = sorted((node_id(a), a) for a, region in self._of.items() if here and region == here)

    @property
    def region(self) -> str:
        """Ours; empty: trees do not go by regions here."""
        return self._region

    def of(self, address: str) -> str:
        """The region of a node; empty: it is not known."""
        return self._of.get(address, "")

    def crosses(self, address: str) -> bool:
        """Whether a border lies between that node and us: it stands in another region, or nobody knows
        where."""
        return bool(self._region) and self.of(address) != self._region

    def across(self, address: str) -> str:
        """The region of a node that stands in another one; empty: it does not, or nobody knows where."""
        there = self.of(address)
        return there if self._region and there != self._region else ""

    def trips(self, rtt_ms: Callable[[str], float | None]) -> dict[str, float]:
        """The shortest round trip to nodes of each other region, of those that are known."""
        found: dict[str, float] = {}
        for address, region in self._of.items():
            trip = rtt_ms(address) if self.across(address) else None
            if trip is not None:
                found[region] = min(trip, found.get(region, trip))
        return found

    def above(self, topic: bytes, host: str, avoid: Callable[[int], bool]) -> str | None:
        """Whose child we should be in a topic's tree: the address of the host, or of our region's head. None:
        regions say nothing about it. ``avoid``: nodes, by id, that are dead or do not answer."""
        me = self._context.me.address
        if not self._region or host in ("", me):
            return None
        if not self.crosses(host):
            return host
        key = to_int(key_of_head(topic, self._region))
        fit = (address for node, address in self._nearest(key) if address == me or not avoid(node))
        head = next(fit, me)
        return host if head == me else head

    def _nearest(self, key: int) -> Iterator[tuple[int, str]]:
        """The nodes of our region, the nearest to a key first: from there around the ring, both ways."""
        ours = self._ours
        after = bisect(ours, (key,))
        before = after - 1
        for _ in ours:
            one, other = ours[before % len(ours)], ours[after % len(ours)]
            if closeness(key, one[0]) < closeness(key, other[0]):
                before -= 1
                yield one
            else:
                after += 1
                yield other
