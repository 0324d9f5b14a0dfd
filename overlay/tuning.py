"""Near nodes in the routing table (Pastry section 2.5): rivals for a cell are measured, and the nearer gets
it.

Rules: hearsay never replaces an entry; a rival does when it has answered us and its round trip is clearly
shorter. One rival is measured at a time, every ``tune_ms``, faster just after a join. Near nodes know near
nodes: every other exchange of rows goes to a member of the *neighbourhood set*, the nodes that near nodes
name are measured first, and a node that turns out to be the nearest so far is asked for its row at once.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable

from overlay.context import Context
from overlay.ids import Peer
from overlay.messages import Ping
from overlay.proximity import Proximity
from overlay.routing import RoutingTable

_RIVALS_MAX = 64
_QUICK_ASKS = 64
"""Measurements made in quick order after a join."""


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
