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

**A way** may lead over one other region (``Regions.go``): while the host stands in ``Way.target``, the head
of a region that is in ``Way.vias`` asks the head of the named region in place of the host. Where nobody there
answers it asks the host, as without a way. Who is asked takes the asker like any child, and hangs below the
host itself. No way has more than two hops: a region over which others go is not in ``vias`` itself. Two nodes
that know different ways may ask one another; no circle of trees lasts (``treelinks``).

Where fewer than two regions are known, or a topic has no host, nothing is different from trees without
regions.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from overlay.context import Context
from overlay.ids import closeness, key_of, node_id, to_int


def region_of(place: str) -> str:
    """The region of a place, ``region/rack``; empty: it names none."""
    return place.split("/")[0]


def key_of_head(topic: bytes, region: str) -> bytes:
    """The key whose nearest node in a region is the region's head in a topic's tree."""
    return key_of(topic + b"\0head of " + region.encode())


class Way(NamedTuple):
    """Over which regions a topic's tree goes to a host in the region ``target``. ``vias``: by region, the one
    over which it goes; others go there directly."""

    target: str
    vias: Mapping[str, str]


Placed = Sequence[tuple[int, str]]
"""Nodes, by their places on the ring."""


class Regions:
    """Where nodes stand, as one node knows it."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._of: dict[str, str] = {}
        self._in: dict[str, Placed] = {}
        """The nodes of each region."""
        self._region = ""
        self._ways: Mapping[bytes, Way] = {}

    def know(self, places: Mapping[str, str]) -> None:
        """Where all nodes stand of which that is known, by address; who is not named stands nowhere."""
        self._of = {address: region for address, place in places.items() if (region := region_of(place))}
        here = self._of.get(self._context.me.address, "")
        self._region = here if len(set(self._of.values())) > 1 else ""
        named: dict[str, list[tuple[int, str]]] = {}
        for address, region in self._of.items():
            named.setdefault(region, []).append((node_id(address), address))
        self._in = {region: sorted(nodes) for region, nodes in named.items()}

    def go(self, ways: Mapping[bytes, Way]) -> None:
        """The ways of all topics that have one, or have had one: heads leave the region over which they went
        when that is no longer in their way."""
        self._ways = ways

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
        head = self._head(topic, self._region, avoid) or me
        if head != me:
            return head
        via = self.via(topic, host)
        return (self._head(topic, via, avoid) if via else "") or host

    def via(self, topic: bytes, host: str) -> str:
        """The region over which a topic's tree goes from ours to its host; empty: it goes there directly."""
        way = self._ways.get(topic)
        if way is None or not self._region or self._of.get(host) != way.target:
            return ""
        via = way.vias.get(self._region, "")
        return "" if via in (self._region, way.target) else via

    def astray(self, topic: bytes, parent: str, above: str) -> bool:
        """Whether our parent stands where it should not, and should be ``above``. A head may be below any
        node of another region, to which a full host has sent it on, unless its topic has or had a way."""
        if not (self.crosses(parent) and self.crosses(above)):
            return self.crosses(parent) != self.crosses(above)
        return topic in self._ways and self.of(above) not in ("", self.of(parent))

    def _head(self, topic: bytes, region: str, avoid: Callable[[int], bool]) -> str:
        """Of a region; empty: all of its nodes are to be avoided."""
        me, key = self._context.me.address, to_int(key_of_head(topic, region))
        nearest = self._nearest(self._in.get(region, ()), key)
        return next((address for node, address in nearest if address == me or not avoid(node)), "")

    def _nearest(self, ours: Placed, key: int) -> Iterator[tuple[int, str]]:
        """Nodes of a region, the nearest to a key first: from there around the ring, both ways."""
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
