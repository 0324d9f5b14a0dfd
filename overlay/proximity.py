"""How far peers are: round trips where measured, locality labels where those say nothing.

Every answer that echoes a stamp is a measurement, so most cost no message. What is remembered is bounded;
the least recently measured is forgotten first.

Near nodes in the routing table (Pastry section 2.5): rivals for a cell are measured, the nearer holds it.

Rules: hearsay never replaces anybody; a rival does when it has answered us and its round trip is clearly
shorter. One rival is measured at a time, every ``tune_ms``, faster just after a join. Near nodes know near
nodes: every other exchange of rows goes to a member of the *neighbourhood set*, what near nodes tell is
measured first, and a node that turns out to be the nearest so far is asked for its row at once.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from overlay.context import Context
from overlay.ids import Peer
from overlay.messages import NO_STAMP, Ping
from overlay.routing import RoutingTable

_SMOOTHING = 0.25
_EQUAL_MS = 1.0
"""The clock's grain: round trips that differ by less are equal, and labels decide."""

_RIVALS_MAX = 64
_QUICK_ASKS = 64
"""Measurements made in quick order after a join."""


@dataclass
class Reach:
    """Smoothed round trip in ms (None before the first), and locality label (empty: unknown)."""

    rtt_ms: float | None = None
    place: str = ""


def steps(one: str, other: str) -> int:
    """How far labels are apart: 0 the same, 1 the same region, 2 another or unknown."""
    if not one or not other:
        return 2
    if one == other:
        return 0
    return 1 if one.split("/")[0] == other.split("/")[0] else 2


class Proximity:
    """What is known of the distance to peers, by node id."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._reach: OrderedDict[int, Reach] = OrderedDict()

    def echoed(self, node: int, stamp: int, held_ms: int = 0) -> int | None:
        """A peer echoed our stamp, which it had held for so long: note the round trip, if it is valid."""
        rtt_ms = self._context.now - stamp - held_ms
        if stamp == NO_STAMP or held_ms < 0 or rtt_ms < 0:
            return None
        reach = self._of(node)
        known = reach.rtt_ms
        reach.rtt_ms = rtt_ms if known is None else known + _SMOOTHING * (rtt_ms - known)
        return rtt_ms

    def placed(self, node: int, place: str) -> None:
        """A peer said where it stands."""
        if place:
            self._of(node).place = place

    def rtt_ms(self, node: int) -> float | None:
        """The smoothed round trip; None if it was never measured."""
        reach = self._reach.get(node)
        return reach.rtt_ms if reach else None

    def place(self, node: int) -> str:
        """The peer's locality label; empty: unknown."""
        reach = self._reach.get(node)
        return reach.place if reach else ""

    def nearer(self, node: int, holder: int) -> bool:
        """Whether a measured peer is so much nearer than another that it should take its place."""
        percent = self._context.config.nearer_percent
        mine, its = self._reach.get(node), self._reach.get(holder)
        if percent == 100 or mine is None or mine.rtt_ms is None or its is None or its.rtt_ms is None:
            return False
        if mine.rtt_ms * 100 < its.rtt_ms * (100 - percent) and its.rtt_ms - mine.rtt_ms > _EQUAL_MS:
            return True
        return abs(its.rtt_ms - mine.rtt_ms) <= _EQUAL_MS and self._steps(mine) < self._steps(its)

    def promising(self, node: int, holder: int) -> bool:
        """Whether labels say that an unmeasured peer stands nearer than another."""
        mine, its = self._reach.get(node), self._reach.get(holder)
        return mine is not None and self._steps(mine) < self._steps(its or Reach())

    def nearest(self, peers: Iterable[Peer], count: int) -> tuple[Peer, ...]:
        """The nearest measured ones among these, nearest first."""
        known = []
        for peer in peers:
            reach = self._reach.get(peer.id)
            if reach is not None and reach.rtt_ms is not None:
                known.append((reach.rtt_ms, self._steps(reach), peer.id, peer))
        known.sort()  # ids differ, so peers are never compared
        return tuple(item[-1] for item in known[:count])

    def _steps(self, reach: Reach) -> int:
        return steps(self._context.place, reach.place)

    def _of(self, node: int) -> Reach:
        reach = self._reach.setdefault(node, Reach())
        self._reach.move_to_end(node)
        if len(self._reach) > self._context.config.reach_max:
            self._reach.popitem(last=False)
        return reach


class Tuning:
    """The queue of rivals, timer ``tune``. ``ask_row`` asks a peer for the row that it shares with us."""

    def __init__(
        self,
        context: Context,
        table: RoutingTable,
        proximity: Proximity,
        ask_row: Callable[[Peer], None],
    ) -> None:
        self._context = context
        self._ask_row = ask_row
        self._nearest_ms = math.inf
        self._table = table
        self._proximity = proximity
        self._rivals: OrderedDict[int, Peer] = OrderedDict()
        self._quick = _QUICK_ASKS

    def consider(self, peer: Peer, holder: Peer, soon: bool = False) -> None:
        """A peer was named whose cell ``holder`` has: measure it when there is time, or ``soon``."""
        node = peer.id
        if node in self._rivals or holder.id == node or self._proximity.rtt_ms(node) is not None:
            return
        if self._context.config.nearer_percent == 100:
            return
        self._rivals[node] = peer
        if soon or self._proximity.promising(node, holder.id):
            self._rivals.move_to_end(node, last=False)
        if len(self._rivals) > _RIVALS_MAX:
            self._rivals.popitem()

    def measured(self, peer: Peer) -> None:
        """A peer has answered: let it have its cell if it is nearer than the holder."""
        self._rivals.pop(peer.id, None)
        rtt_ms = self._proximity.rtt_ms(peer.id)
        if rtt_ms is not None and rtt_ms < self._nearest_ms:
            self._nearest_ms = rtt_ms
            self._ask_row(peer)
        holder = self._table.rival(peer.id)
        if holder is None or holder.id == peer.id:
            return
        if self._proximity.rtt_ms(holder.id) is None:
            self._rivals.update({holder.id: holder, peer.id: peer})  # the holder first, then once more
        elif self._proximity.nearer(peer.id, holder.id):
            self._table.put(peer)

    def due(self) -> int:
        """Measure the next rival; the time until the next one."""
        config = self._context.config
        if self._rivals:
            _, peer = self._rivals.popitem(last=False)
            self._context.send(peer, Ping(self._context.me, self._context.now))
            self._quick = max(self._quick - 1, 0)
        return config.sweep_ms if self._quick and self._rivals else config.tune_ms
