"""At most one node acts for a key: leases from both ring neighbours.

A node delivers only while each of its two ring neighbours has lately said "you are my neighbour". The proof
is an echo: our message carried a stamp of our clock, which the neighbour's answer brings back. From the stamp
on the lease lasts ``lease_ms``; only our own clock is read.

Why it is enough: a neighbour that took over our range would first have to declare us dead, and it does so to
no node that it heard in the last ``lease_ms`` (``liveness``); it heard us after the stamp. So when it takes
over, the lease has expired, whether we noticed or slept. No other node can come between: a new node is ready
only when we have answered it, or have been silent to it for ``sure_ms``; then one of our neighbours still
knows us, and grants it nothing.

This costs nothing in quiet times: heartbeats carry stamps and echoes. A node asks (Ping) when a neighbour is
new, or when a lease nearly expires because a heartbeat was lost. A new neighbour may refuse because our
answer to it is still on its way: it is asked again soon. Where answers come late (``health``), these times
are longer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from overlay.context import Context
from overlay.ids import Peer
from overlay.leafset import LeafSet
from overlay.messages import NO_STAMP, Ping

_SOON: Final = 20
"""A neighbour that refused is asked again after this part of a heartbeat's period."""


class Leases:
    """Grants of ring neighbours, by the stamp of ours that they echoed; timer ``lease``."""

    def __init__(self, context: Context, leaves: LeafSet, stretch: Callable[[], float] = lambda: 1.0) -> None:
        self._context = context
        self._stretch = stretch
        self._leaves = leaves
        self._granted: dict[Peer, int] = {}
        self._asked: dict[Peer, int] = {}
        self._open = False

    def _retry_ms(self) -> int:
        """The time until a neighbour that has not answered is asked again."""
        return round(self._context.config.heartbeat_ms // 4 * self._stretch())

    def granted(self, neighbour: Peer, stamp: int) -> None:
        """A peer took us for its neighbour after we wrote that stamp."""
        if NO_STAMP < stamp <= self._context.now and stamp > self._granted.get(neighbour, NO_STAMP):
            self._granted[neighbour] = stamp

    def refused(self, neighbour: Peer) -> None:
        """A peer did not take us for its neighbour."""
        if neighbour in self._asked and not self.known(neighbour):
            retry_ms = round(self._context.config.heartbeat_ms // _SOON * self._stretch())
            self._asked[neighbour] = self._context.now - self._retry_ms() + retry_ms
            self.settle()

    def known(self, neighbour: Peer) -> bool:
        """Whether the peer has granted before: its first grant answers a question, and tells what it
        delivered."""
        return neighbour in self._granted

    def held(self) -> bool:
        """Whether we may act for our keys now; always when alone."""
        return all(self._lasts(peer) > self._context.now for peer in self._leaves.neighbours())

    def open(self) -> None:
        """This node has become ready."""
        self._open = True
        self.settle()

    def settle(self) -> None:
        """Neighbours may have changed: ask new ones, and set the time for the next check."""
        if not self._open:
            return
        context, config = self._context, self._context.config
        neighbours = self._leaves.neighbours()
        self._granted = {peer: at for peer, at in self._granted.items() if peer in neighbours}
        self._asked = {peer: at for peer, at in self._asked.items() if peer in neighbours}
        if not neighbours:
            context.timers.cancel(("lease", 0))
            return
        margin_ms = config.heartbeat_ms // 5
        following = context.now + config.lease_ms
        retry_ms = self._retry_ms()
        for peer in neighbours:
            asked_at = self._asked.get(peer, -retry_ms)
            ask_at = max(self._lasts(peer) - margin_ms, asked_at + retry_ms)
            if ask_at <= context.now:
                self._asked[peer] = context.now
                context.send(peer, Ping(context.me, context.now))
                ask_at = context.now + retry_ms
            following = min(following, ask_at)
        context.timers.set(("lease", 0), following)

    def _lasts(self, peer: Peer) -> int:
        stamp = self._granted.get(peer)
        return 0 if stamp is None else stamp + self._context.config.lease_ms
