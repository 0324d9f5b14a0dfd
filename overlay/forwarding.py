"""Routed messages on their way: each hop is acknowledged, and a silent hop is routed around.

Rules: a node acknowledges a message that it accepts. Without an acknowledgement the message goes to the next
best node, unless the silent one is the closest leaf, which alone may deliver: that one is asked again until
it answers or is dead. So a payload ends at the closest *live* node, and can be lost only with a node that had
acknowledged it. A payload that arrives twice because an acknowledgement was lost is delivered once, also when
a node has come between meanwhile: its neighbours tell it what they delivered, with the lease. The closest
node delivers while it holds its leases. A message that comes before a node is ready, or while it lacks a
lease, waits there and is acknowledged only when it goes on: if the node dies meanwhile, the sender still has
it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from overlay.context import Context
from overlay.effects import Delivered
from overlay.ids import Peer, closeness, to_int
from overlay.messages import HopAck, JoinReply, JoinRequest, Route, RouteName
from overlay.pastry import Pastry

Routed = Route | JoinRequest

_BACKOFF_MAX_MS = 1_000
_UNDER_WAY_MS = 15_000
"""A copy is repeated for no longer than that: ``hop_tries`` of at most ``_BACKOFF_MAX_MS``."""


@dataclass
class _Hop:
    """A message, as it came to us, sent to ``to`` at ``sent``, and not acknowledged yet."""

    message: Routed
    to: Peer
    sent: int
    tries: int = 1
    silent: set[int] = field(default_factory=set)


class Forwarding:
    """What this node routes on behalf of itself and of others."""

    def __init__(self, context: Context, pastry: Pastry) -> None:
        self._context = context
        self._pastry = pastry
        self._hops: dict[int, _Hop] = {}
        self._held: dict[RouteName, Routed] = {}
        """What came before we were ready. Of copies the last one is kept, as its sender has waited least."""
        self.waiting: dict[RouteName, Route] = {}
        """Messages that are ours, as far as we know, but came while a lease was missing."""
        self._delivered: OrderedDict[RouteName, tuple[int, int | None]] = OrderedDict()
        """When, and the key; None if others say that they delivered it."""
        pastry.neighbours.delivered_for = self._delivered_for
        self._routes = 0
        self._tokens = 0
        self.ready = False
        self.dropped = 0
        """Messages given up: too many hops, too many tries, too many at once."""

    def route(self, key: bytes, payload: bytes) -> None:
        """Send a payload of our own towards a key."""
        self._routes += 1
        me = self._context.me
        self._take(Route(me, 0, key, me, self._routes, 0, payload))

    def receive(self, message: Routed) -> None:
        """A message to be passed on, or for us. It is acknowledged unless it waits or finds no room."""
        if self._take(message):
            self._acknowledge(message)

    def delivered_before(self, names: Iterable[RouteName]) -> None:
        """The former owners of our keys have delivered these."""
        for name in names:
            if name not in self._delivered:
                self._note(name, None)

    def acknowledged(self, message: HopAck) -> None:
        """The next hop (perhaps one that we had given up) has the message."""
        hop = self._forget(message.token)
        if hop is not None and hop.tries == 1:
            self._pastry.proximity.echoed(hop.to.id, hop.sent)

    def open(self) -> None:
        """This node has become ready: go on with what was held."""
        self.ready = True
        held, self._held = self._held, {}
        self._resume(held)

    def reconsider(self) -> None:
        """Leases or leaves have changed: deliver what waits, or send it on."""
        waiting, self.waiting = self.waiting, {}
        self._resume(waiting)

    def gone(self, peer: Peer) -> None:
        """A peer died: what it had not acknowledged goes another way at once."""
        for token in [token for token, hop in self._hops.items() if hop.to.id == peer.id]:
            hop = self._forget(token)
            if hop is not None:
                self._advance(hop.message)

    def hop_due(self, token: int) -> None:
        """A hop has not been acknowledged in time."""
        hop = self._hops[token]
        self._pastry.suspect(hop.to)
        if hop.tries >= self._context.config.hop_tries:
            self._forget(token)
            self.dropped += 1
            return
        hop.silent.add(hop.to.id)
        hop.tries += 1
        following = self._next(hop.message, hop.silent)
        if following is None:
            self._forget(token)
            self._arrive(hop.message)
            return
        hop.to = following
        self._send(token, hop)

    # -- the parts -------------------------------------------------------------------------------------------

    def _resume(self, messages: Mapping[RouteName, Routed]) -> None:
        for message in messages.values():
            if self._advance(message):
                self._acknowledge(message)

    def _take(self, message: Routed) -> bool:
        full = len(self._held) + len(self.waiting) + len(self._hops) >= self._context.config.held_max
        if full or message.hops >= self._context.config.hops_max:
            self.dropped += 1
            return not full
        if self.ready:
            return self._advance(message)
        self._held[_name(message)] = message
        return False

    def _acknowledge(self, message: Routed) -> None:
        if message.token:
            self._context.send(message.sender, HopAck(self._context.me, message.token))

    def _advance(self, message: Routed) -> bool:
        """Pass the message on, or let it arrive; False if it waits."""
        if isinstance(message, JoinRequest):
            message = self._with_rows(message)
        following = self._next(message, ())
        if following is None:
            return self._arrive(message)
        self._tokens += 1
        self._hops[self._tokens] = _Hop(message, following, self._context.now)
        self._send(self._tokens, self._hops[self._tokens])
        return True

    def _next(self, message: Routed, silent: set[int] | tuple[()]) -> Peer | None:
        """The next hop; None when the message has arrived. A joiner is no hop to itself."""
        joiner = message.joiner.id if isinstance(message, JoinRequest) else None
        key = to_int(message.key) if isinstance(message, Route) else message.joiner.id
        following = self._pastry.next_hop(key, silent)
        return None if following.id in (self._context.id, joiner) else following

    def _send(self, token: int, hop: _Hop) -> None:
        wait_ms = min(self._context.config.hop_ms << (hop.tries - 1), _BACKOFF_MAX_MS)
        self._context.timers.set(("hop", token), self._context.now + wait_ms)
        onward = replace(hop.message, sender=self._context.me, token=token, hops=hop.message.hops + 1)
        self._context.send(hop.to, onward)

    def _forget(self, token: int) -> _Hop | None:
        self._context.timers.cancel(("hop", token))
        return self._hops.pop(token, None)

    def _arrive(self, message: Routed) -> bool:
        """The message ends here; False if it waits for our leases."""
        if isinstance(message, JoinRequest):
            leaves = (self._context.me, *self._pastry.leaves)
            self._context.send(message.joiner, JoinReply(self._context.me, leaves, message.peers))
            return True
        name = _name(message)
        if name in self._delivered:
            return True
        if not self._pastry.neighbours.leases.held():
            self.waiting[name] = message
            return False
        self._note(name, to_int(message.key))
        self._context.emit(Delivered(message.key, message.payload, message.origin.address, message.hops))
        return True

    def _note(self, name: RouteName, key: int | None) -> None:
        self._delivered[name] = (self._context.now, key)
        if len(self._delivered) > self._context.config.held_max:
            self._delivered.popitem(last=False)

    def _delivered_for(self, neighbour: Peer) -> tuple[RouteName, ...]:
        """What we delivered of keys nearer to that peer than to us, as long as a copy may be under way."""
        since, me = self._context.now - _UNDER_WAY_MS, self._context.id
        return tuple(
            name
            for name, (at, key) in self._delivered.items()
            if at >= since and (key is None or closeness(key, neighbour.id) < closeness(key, me))
        )

    def _with_rows(self, message: JoinRequest) -> JoinRequest:
        known = {peer.id: peer for peer in message.peers}
        for peer in (self._context.me, *self._pastry.rows_for(message.joiner.id)):
            known.setdefault(peer.id, peer)
        known.pop(message.joiner.id, None)
        return replace(message, peers=tuple(known.values()))


def _name(message: Routed) -> RouteName:
    """The same for all copies. A node's own routes are counted from 1."""
    if isinstance(message, JoinRequest):
        return RouteName(message.joiner, 0)
    return RouteName(message.origin, message.number)
