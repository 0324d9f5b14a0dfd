"""The leaf set: the live nodes next to us on the ring, half of them on each side (Pastry section 2.1).

Rules: every member has been heard by us, in its present incarnation; in a ring of at most ``size`` other
nodes everybody is a member. It is what makes routing right; the routing table only makes it short.
"""

from __future__ import annotations

from collections.abc import Iterator

from sortedcontainers import SortedDict

from overlay.errors import OverlayBug
from overlay.ids import RING, Peer, clockwise, closeness


class LeafSet:
    """Members by their clockwise offset from us: the first half are the successors, the last half the
    predecessors."""

    def __init__(self, me: int, size: int) -> None:
        self._me = me
        self._size = size
        self._members = SortedDict()

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Peer]:
        """All members, clockwise from us."""
        yield from self._members.values()

    def __contains__(self, node: int) -> bool:
        return clockwise(self._me, node) in self._members

    def get(self, node: int) -> Peer | None:
        """The member with that id."""
        peer: Peer | None = self._members.get(clockwise(self._me, node))
        return peer

    @property
    def full(self) -> bool:
        return len(self._members) >= self._size

    def wants(self, node: int) -> bool:
        """Whether a node with that id, not yet a member, would become one."""
        if node == self._me or node in self:
            return False
        offset = clockwise(self._me, node)
        return not self.full or not self._last_successor() < offset < self._last_predecessor()

    def add(self, peer: Peer) -> bool:
        """Make a peer a member (or renew it) if it is near enough; the farthest on its side makes room. True
        if it is in."""
        if peer.id not in self and not self.wants(peer.id):
            return False
        self._members[clockwise(self._me, peer.id)] = peer
        if len(self._members) > self._size:
            self._members.popitem(self._size // 2)
        return True

    def remove(self, node: int) -> bool:
        """Drop a member; False if it was none."""
        return self._members.pop(clockwise(self._me, node), None) is not None

    def covers(self, key: int) -> bool:
        """Whether the key lies between the farthest members of a full set. A set that isn't full covers
        nothing surely."""
        if not self.full:
            return False
        offset = clockwise(self._me, key)
        return offset <= self._last_successor() or offset >= self._last_predecessor()

    def closest(self, key: int) -> Peer | None:
        """The member closest to the key; None when we are closer than all of them."""
        if not self._members:
            return None
        index = self._members.bisect_left(clockwise(self._me, key))
        around = (self._members.peekitem(place % len(self))[1] for place in (index - 1, index))
        best: Peer = min(around, key=lambda peer: closeness(key, peer.id))
        return best if closeness(key, best.id) < closeness(key, self._me) else None

    def neighbours(self) -> tuple[Peer, ...]:
        """Our direct predecessor and successor (one node in a ring of two, none in a ring of one)."""
        if len(self._members) < 2:
            return tuple(self._members.values())
        return (self._members.peekitem(-1)[1], self._members.peekitem(0)[1])

    def farthest(self) -> tuple[Peer, ...]:
        """The last member on each side: they know best who comes next."""
        split = self._members.bisect_left(RING // 2)
        return tuple(
            self._members.peekitem(place)[1] for place in (split - 1, split) if 0 <= place < len(self)
        )

    def check(self) -> None:
        """Raise OverlayBug unless the members are well placed."""
        if len(self._members) > self._size:
            raise OverlayBug(f"leaf set of {len(self._members)} members, {self._size} at most")
        for offset, peer in self._members.items():
            if offset == 0 or offset != clockwise(self._me, peer.id):
                raise OverlayBug(f"leaf {peer.address} stands at a wrong place")

    def _last_successor(self) -> int:
        offset: int = self._members.peekitem(self._size // 2 - 1)[0]
        return offset

    def _last_predecessor(self) -> int:
        offset: int = self._members.peekitem(self._size // 2)[0]
        return offset
