"""The leaf set: the live nodes next to us on the ring, half of them on each side (Pastry section 2.1).

Rules: every member has been heard by us, in its present incarnation; in a ring of at most ``size`` other
nodes each node is a member. The leaf set makes routing correct; the routing table only makes it short.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sortedcontainers import SortedList

from overlay.errors import OverlayBug
from overlay.ids import RING, Peer, clockwise, closeness


class LeafSet:
    """Members by id, and their clockwise offsets from us in order.

    The first half of them are our successors, the last half our predecessors.
    """

    def __init__(self, me: int, size: int) -> None:
        self._me = me
        self._size = size
        self._members: dict[int, Peer] = {}
        self._offsets = SortedList()
        self._ordered: tuple[Peer, ...] = ()
        self._gap = (RING, 0)
        self.changes = 0
        """How often members came or went."""

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Peer]:
        """All members, clockwise from us."""
        return iter(self._ordered)

    def __contains__(self, node: int) -> bool:
        return node in self._members

    @property
    def offsets(self) -> Iterator[int]:
        """How far clockwise from us the members stand, in order."""
        return iter(self._offsets)

    def get(self, node: int) -> Peer | None:
        """The member with that id."""
        return self._members.get(node)

    @property
    def full(self) -> bool:
        return len(self._members) >= self._size

    def wants(self, node: int) -> bool:
        """Whether a node with that id, not yet a member, would become one."""
        if node == self._me or node in self._members:
            return False
        successor, predecessor = self._gap
        return not successor < clockwise(self._me, node) < predecessor

    def add(self, peer: Peer) -> bool:
        """Make a peer a member (or renew it) if it is near enough; the farthest on its side makes room."""
        node = peer.id
        known = self._members.get(node)
        if known == peer:
            return True
        if known is None:
            if not self.wants(node):
                return False
            self._offsets.add(clockwise(self._me, node))
        self._members[node] = peer
        if len(self._members) > self._size:
            farthest = self._offsets.pop(self._size // 2)
            del self._members[(self._me + farthest) % RING]
        self._measure()
        return True

    def remove(self, node: int) -> bool:
        """Drop a member; False if it was none."""
        if self._members.pop(node, None) is None:
            return False
        self._offsets.remove(clockwise(self._me, node))
        self._measure()
        return True

    def covers(self, key: int) -> bool:
        """Whether the key lies between the farthest members of a full set; others cover nothing."""
        successor, predecessor = self._gap
        return self.full and not successor < clockwise(self._me, key) < predecessor

    def closest(self, key: int) -> Peer | None:
        """The member closest to the key; None when we are closer than all of them."""
        if not self._members:
            return None
        index = self._offsets.bisect_left(clockwise(self._me, key))
        around = (self._ordered[index - 1], self._ordered[index % len(self)])
        best = min(around, key=lambda peer: closeness(key, peer.id))
        return best if closeness(key, best.id) < closeness(key, self._me) else None

    def neighbours(self) -> tuple[Peer, ...]:
        """Our direct predecessor and successor (one node in a ring of two, none in a ring of one)."""
        if len(self._members) < 2:
            return self._ordered
        return (self._ordered[-1], self._ordered[0])

    def farthest(self) -> tuple[Peer, ...]:
        """The last member on each side: they know best which node is next."""
        split = self._offsets.bisect_left(RING // 2)
        return self._ordered[max(split - 1, 0) : split + 1]

    def check(self) -> None:
        """Raise OverlayBug unless the members are well placed."""
        if len(self._members) > self._size:
            raise OverlayBug(f"leaf set of {len(self._members)} members, {self._size} at most")
        if sorted(clockwise(self._me, node) for node in self._members) != list(self._offsets):
            raise OverlayBug("leaves and their offsets differ")
        if self._me in self._members or any(peer.id != node for node, peer in self._members.items()):
            raise OverlayBug("a leaf stands at a wrong place")

    def _measure(self) -> None:
        self.changes += 1
        self._ordered = tuple(self._members[(self._me + offset) % RING] for offset in self._offsets)
        self._gap = gap(self._offsets, self._size)


def gap(offsets: Sequence[int], size: int) -> tuple[int, int]:
    """The range of clockwise offsets in which a leaf set with members at these offsets, in order, wants no
    node.

    It lies between its last successor and its last predecessor; before a set is full it wants all nodes.
    """
    if len(offsets) < size:
        return (RING, 0)
    half = size // 2
    return (offsets[half - 1], offsets[-half])


def reach(me: int, leaves: Sequence[Peer]) -> tuple[int, int]:
    """The clockwise offsets from ``me`` of the last of these on either side: about the range between them a
    set with these members says nothing."""
    offsets = [clockwise(me, peer.id) for peer in leaves]
    ahead = max((offset for offset in offsets if offset < RING // 2), default=0)
    return ahead, min((offset for offset in offsets if offset >= RING // 2), default=RING)
