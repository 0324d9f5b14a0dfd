"""Anycasts: a payload for any one subscriber that takes it, near the sender (Scribe, section 2.4 of
SplitStream).

It goes hop by hop towards the topic until it meets the tree, then through the tree depth first: to a child
that it has not visited, the nearest to its origin, else to the parent. Each subscriber that it visits is
offered the payload. Who does nothing has taken it; who declines sends it on. Who finds nobody left tells the
origin.

Rules:

- Each hop is acknowledged and repeated; a silent node counts as visited and is gone round, except where it
  is the only way: then it is asked until it answers or is buried. So a payload gets through while nodes die;
  two may be offered it if an acknowledgement is lost three times.
- The message itself carries all that is known of it: no node holds anything once the next has it.
- The origin is not offered its own payload.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace

from overlay.admission import scattered
from overlay.bonds import Bonds
from overlay.context import Context
from overlay.effects import Anycasted, AnycastFailed
from overlay.ids import Peer, node_id, to_int
from overlay.messages import Anycast, AnycastAck, AnycastEnd
from overlay.pastry import Pastry
from overlay.tree import Tree

_HOP_TRIES = 3
"""How often one hop is made before its node is gone round."""


@dataclass
class _Hop:
    """A hop that is not acknowledged yet, and how often it was made."""

    to: str
    message: Anycast
    tries: int


class Anycasts:
    """The anycasts that pass a node."""

    def __init__(self, context: Context, pastry: Pastry, bonds: Bonds) -> None:
        self._context = context
        self._pastry = pastry
        self._bonds = bonds
        self._hops: dict[int, _Hop] = {}
        self._tokens = 0
        self._seen: OrderedDict[tuple[Peer, int], None] = OrderedDict()
        self._silent: dict[str, int] = {}
        """Who did not answer, and when we gave up; for as long as it takes to bury it."""

    def send(self, topic: bytes, payload: bytes) -> None:
        """An anycast of ours."""
        to_int(topic)
        me = self._context.me
        self._onward(Anycast(me, 0, topic, me, 0, (me.address,), payload))

    def decline(self, offer: Anycast) -> None:
        """Our application does not take it."""
        self._onward(offer)

    def anycast_message(self, message: Anycast) -> None:
        """One comes by: offer it if we are a subscriber and new to it."""
        me, name = self._context.me, (message.sender, message.token)
        self._silent.pop(message.sender.address, None)
        self._context.send(message.sender, AnycastAck(me, message.token))
        if name in self._seen:
            return
        self._seen[name] = None
        while len(self._seen) > self._context.config.held_max:
            self._seen.popitem(last=False)
        tree = self._bonds.get(message.topic)
        if tree is None or me.address in message.visited:
            self._onward(message)
            return
        visited = replace(message, visited=(*message.visited, me.address))
        if tree.subscribed:
            self._context.emit(Anycasted(message.topic, message.payload, message.origin.address, visited))
        else:
            self._onward(visited)

    def ack_message(self, message: AnycastAck) -> None:
        """The next node has it."""
        self._silent.pop(message.sender.address, None)
        hop = self._hops.get(message.token)
        if hop is not None and hop.to == message.sender.address:
            del self._hops[message.token]
            self._context.agenda.cancel(("anycast", message.token))

    def end_message(self, message: AnycastEnd) -> None:
        """Nobody takes ours."""
        self._context.emit(AnycastFailed(message.topic, message.payload))

    def hop_due(self, token: int) -> None:
        """A hop was not acknowledged in time: again, and in the end round the silent node."""
        hop = self._hops[token]
        if hop.tries < _HOP_TRIES:
            hop.tries += 1
            self._make(token, hop)
            return
        del self._hops[token]
        silent = self._pastry.liveness.live.get(node_id(hop.to))
        if silent is not None:
            self._pastry.suspect(silent)
        self._silent[hop.to] = self._context.now
        visited = dict.fromkeys((*hop.message.visited, hop.to))
        self._onward(replace(hop.message, visited=tuple(visited)))

    # -- the parts -------------------------------------------------------------------------------------------

    def _onward(self, message: Anycast) -> None:
        """To the next node: down, else up, else towards the topic."""
        config, me = self._context.config, self._context.me
        tree = self._bonds.get(message.topic)
        to = self._below(tree, message) or self._above(tree, message.topic)
        if not to or message.hops >= config.anycast_hops_max or len(self._hops) >= config.held_max:
            self._end(message)
            return
        self._tokens += 1
        onward = replace(message, sender=me, token=self._tokens, hops=message.hops + 1)
        self._make(self._tokens, _Hop(to, onward, 1))

    def _below(self, tree: Tree | None, message: Anycast) -> str:
        """The unvisited child nearest to the origin."""
        if tree is None:
            return ""
        left = [c.peer for c in tree.children.values() if c.peer.address not in message.visited]
        nearest = min(left, key=lambda child: scattered(message.origin, child), default=None)
        return nearest.address if nearest is not None else ""

    def _above(self, tree: Tree | None, topic: bytes) -> str:
        """The parent; who has none, or a silent one, hands it towards the topic, if that is not here."""
        parent = tree.parent.address if tree is not None and tree.parent is not None else ""
        since = self._context.now - self._context.config.dead_ms
        self._silent = {address: at for address, at in self._silent.items() if at > since}
        if parent and parent not in self._silent:
            return parent
        hop = self._pastry.next_hop(to_int(topic), [node_id(address) for address in self._silent])
        following = hop.address if hop != self._context.me else ""
        return following if following and following not in self._silent else parent or following

    def _make(self, token: int, hop: _Hop) -> None:
        self._hops[token] = hop
        self._context.agenda.set(("anycast", token), self._context.now + self._context.config.hop_ms)
        self._context.send_to(hop.to, hop.message)

    def _end(self, message: Anycast) -> None:
        if message.origin.id == self._context.id:
            self._context.emit(AnycastFailed(message.topic, message.payload))
        else:
            end = AnycastEnd(self._context.me, message.topic, message.payload)
            self._context.send(message.origin, end)
