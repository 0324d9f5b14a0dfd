"""Whom a node takes as a child, and where it sends those whom it doesn't."""

from __future__ import annotations

from collections.abc import Callable

from overlay.context import Context
from overlay.ids import Peer, key_of, to_int
from overlay.messages import Subscribe
from overlay.pastry import Pastry
from overlay.tree import PATH_MAX, Tree

Nearness = Callable[[Peer, Peer], int]
"""How far a child is from an asker, in any unit: the hook for measured round-trips and labels."""


def scattered(asker: Peer, child: Peer) -> int:
    """Nearness where nothing is measured: by a hash of both. All children get equal shares, which makes the
    least deep tree (500 nodes: 4 levels; 6 by closeness of ids, since shares of the ring differ)."""
    return to_int(key_of(f"{asker.address} below {child.address}".encode()))


class Admission:
    """The door of a node. It changes nothing."""

    def __init__(self, context: Context, pastry: Pastry, nearness: Nearness = scattered) -> None:
        self._context = context
        self._pastry = pastry
        self._nearness = nearness

    def objection(self, message: Subscribe, tree: Tree | None, attached: bool) -> str:
        """Why the asker can't be our child; empty if it can. ``attached``: we have a parent or are the
        root."""
        asker = message.sender
        if tree is not None and tree.hosting:
            return ""
        if message.direct:
            return "not the home"
        if self._context.me.address in message.path or len(message.path) >= PATH_MAX:
            return "loop"
        below_asker = tree is not None and (asker.address in tree.path or tree.asked == asker.address)
        if message.pushed:
            if below_asker:
                return "loop"
            known = tree is not None and asker.id in tree.children
            return "" if attached or known else "not in the tree"
        if below_asker and self._pastry.next_hop(to_int(message.topic)).id == asker.id:
            return "loop"
        return ""

    def full(self, tree: Tree) -> bool:
        """Whether there is no room for another child."""
        return len(tree.children) >= self._context.config.fanout_max

    def instead(self, tree: Tree, message: Subscribe) -> str:
        """The child to which a full node sends an asker: the nearest to it that lives; empty without one."""
        suspect_ms, liveness = self._context.config.suspect_ms, self._pastry.liveness
        fit = [
            child.peer
            for child in tree.children.values()
            if liveness.silence(child.peer) < suspect_ms and child.peer.address not in message.path
        ]
        nearest = min(fit, key=lambda child: self._nearness(message.sender, child), default=None)
        return nearest.address if nearest is not None else ""
