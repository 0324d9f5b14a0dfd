"""Keeps trees flat: nodes that the fan-out cap sent down move up again when there is room.

A node with room, in its answer to a child's refresh, offers a place to one of that child's children
(``spare``). The child names the one of them with the most children of its own (``climb``, in its answer to
that one's refresh). That node asks its grandparent to take it, and leaves its parent when the grandparent has
agreed. So no node is without a parent meanwhile, nothing is sent except in answers that are sent anyway, and
one JOIN moves a subtree up.

This comes to rest: a climb makes its node's path shorter by one, and nothing here makes one longer. Room
counts only if it was there a refresh ago already, so that the orphans of a dead child find it first. A climb
that fails is not tried again for ``_RETRY_MS``. A node whose grandparent is more than ``tree.FAR_MS`` farther
than its parent stays: a level less is not worth a way to another region.
"""

from __future__ import annotations

from typing import Final

from overlay.context import Context
from overlay.tree import Child, Tree
from overlay.treelinks import TreeLinks
from overlay.treemessages import Subscribe

_RETRY_MS: Final = 10_000


class Rebalancing:
    """One node as grandparent, parent and child."""

    def __init__(self, context: Context, links: TreeLinks) -> None:
        self._context = context
        self._links = links

    def look(self, tree: Tree) -> None:
        """Once a refresh: count the room that lasts, and forget a climb that was not answered."""
        free = self._context.config.fanout_max - len(tree.children)
        room = free if self._links.attached(tree) else 0
        tree.spare, tree.room = min(room, tree.room), room
        tree.rebalancing = ""

    def offers(self, tree: Tree, child: Child, below: int) -> bool:
        """A child says how many children it has: whether one of them may come to us."""
        child.below = below
        if below < 1 or tree.spare < 1:
            return False
        tree.spare -= 1
        return True

    def offered(self, tree: Tree) -> None:
        """Our parent has room: choose which child moves there."""
        since = self._context.now - _RETRY_MS
        fit = [
            child for child in tree.children.values() if child.raised_at is None or child.raised_at < since
        ]
        chosen = max(fit, key=lambda child: child.below, default=None)
        if chosen is not None:
            chosen.raised, chosen.raised_at = True, self._context.now

    def climb(self, tree: Tree) -> None:
        """We were chosen: ask our grandparent."""
        if len(tree.path) > 1:
            tree.rebalancing, tree.climbing_since = tree.path[1], self._context.now
            me, place = self._context.me, self._context.place
            ask = Subscribe(me, tree.topic, tree.host, False, True, (), place)
            self._context.send_to(tree.rebalancing, ask)
