"""Keeps tree links alive: a child tells each of its parents its topics every ``tree_refresh_ms``. A parent
that does not know the child says so, and the child asks anew; a child that is silent for ``child_ttl_ms`` is
dropped. With many parents their turns come less often (``turns``).

Both ends compare a checksum of the path above the child and of the multicasts that it has heard. Only where
they differ does the parent say how it is, so peace costs a message and 23 bytes a topic, whatever was
multicast.

Trees that stay flat: who was sent down by the fan-out cap comes up again when there is room.

A node with room, in its answer to a child's refresh, offers a place to one of that child's children
(``spare``); the child names the one of them with the most children of its own (``climb``, in its answer to
that one's refresh), which asks its grandparent to take it and leaves its parent when that has said yes. So
nobody is without a parent meanwhile, nothing is said but in answers that are sent anyway, and one JOIN moves
a subtree up.

It comes to rest: a climb makes its node's path shorter by one, and nothing here makes one longer. Room counts
when it was there a refresh ago already, so that the orphans of a dead child find it first. A climb that
fails is not tried again for ``_RETRY_MS``. Who finds the grandparent more than ``tree.FAR_MS`` farther than
its parent stays: a level less is not worth a way to another region. Nor does anybody climb over a border that
only its region's head should cross (``regions``).
"""

from __future__ import annotations

from typing import Final

from overlay.context import Context
from overlay.history import mark
from overlay.ids import Peer
from overlay.multicasts import Multicasts
from overlay.tree import Child, Tree
from overlay.treelinks import TreeLinks
from overlay.treemessages import Refresh, Refreshed, TopicMark, TopicPath
from overlay.turns import Turns

_RETRY_MS: Final = 10_000

_TOPICS_A_MESSAGE = 256


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
        if self._links.may_climb(tree):
            self._links.climb(tree)


class Maintenance:
    """The refreshes of one node, as a child and as a parent."""

    def __init__(self, context: Context, links: TreeLinks, multicasts: Multicasts) -> None:
        self._context = context
        self._links = links
        self._multicasts = multicasts
        self._rebalancing = Rebalancing(context, links)
        self._rounds: dict[Peer, int] = {}
        """For each parent, the round of its last answer."""
        config = context.config
        self._turns: Turns[Peer] = Turns(config.refresh_at_once, config.refresh_turns_max)

    def schedule(self) -> None:
        """Set the next refresh. Who has neighbours in a tree does not put it off: with heartbeats that come
        together with it, now and then a dead parent is found a second later."""
        name, period_ms = ("refresh", 0), self._context.config.tree_refresh_ms
        if any(tree.parent is not None or tree.children for tree in self._links):
            self._context.timers.set(name, self._context.every(period_ms))
        else:
            self._context.about(name, period_ms)

    def due(self, late: bool) -> None:
        """Speak to all parents, drop silent children (unless we slept), and see which node should be root."""
        self._speak()
        for tree in tuple(self._links):
            self._expire(tree, late)
            if not tree.idle:
                self._links.settle(tree)
                self._rebalancing.look(tree)
                self._links.home(tree)
        self.schedule()

    def refresh_message(self, message: Refresh) -> None:
        """A child stays: tell it what has changed above it, what is settled here, and of which topics it is
        no child."""
        paths: list[TopicPath] = []
        unknown: list[bytes] = []
        spare: list[bytes] = []
        climb: list[bytes] = []
        me = self._context.me
        for theirs in message.topics:
            link = self._links.child_of(theirs.topic, message.sender.id)
            if link is None:
                unknown.append(theirs.topic)
                continue
            tree, child = link
            child.heard = self._context.now
            child.every = min(max(message.every, 1), self._context.config.refresh_turns_max)
            child.flight.round_over(message.round)
            if self._rebalancing.offers(tree, child, theirs.below):
                spare.append(tree.topic)
            if child.raised:
                child.raised = False
                climb.append(tree.topic)
            heads = tree.histories.heads()
            if mark((me.address, *tree.path), heads) != theirs.mark:
                paths.append(TopicPath(tree.topic, tree.host, tree.path, heads))
        self._multicasts.round += 1
        told = (tuple(paths), tuple(unknown), tuple(spare), tuple(climb))
        self._context.send(message.sender, Refreshed(me, self._multicasts.round, *told))

    def refreshed_message(self, message: Refreshed) -> None:
        """What our parent says."""
        for topic in message.unknown:
            tree = self._links.below(topic, message.sender.id)
            if tree is not None:
                self._links.orphan(tree)
        for item in message.paths:
            tree = self._links.below(item.topic, message.sender.id)
            if tree is not None:
                self._links.new_path(tree, item.host, item.path)
                if tree.parent is not None:
                    self._multicasts.compare(tree, item.heads, up=True)
        for topic in message.spare:
            tree = self._links.below(topic, message.sender.id)
            if tree is not None:
                self._rebalancing.offered(tree)
        for topic in message.climb:
            tree = self._links.below(topic, message.sender.id)
            if tree is not None:
                self._rebalancing.climb(tree)
        self._rounds[message.sender] = message.round

    def owed(self) -> dict[Peer, int]:
        """All parents and children: how much later than ``tree_refresh_ms`` after their last message the next
        is due, in ms."""
        found: dict[Peer, int] = {}
        ours_ms = self._later_ms(self._turns.every)
        for tree in self._links:
            if tree.parent is not None:
                found[tree.parent] = min(ours_ms, found.get(tree.parent, ours_ms))
            for child in tree.children.values():
                theirs_ms = self._later_ms(child.every)
                found[child.peer] = min(theirs_ms, found.get(child.peer, theirs_ms))
        return found

    # -- the parts -------------------------------------------------------------------------------------------

    def _speak(self) -> None:
        by_parent: dict[Peer, list[TopicMark]] = {}
        for tree in self._links:
            if tree.parent is not None:
                known = TopicMark(tree.topic, mark(tree.path, tree.histories.heads()), len(tree.children))
                by_parent.setdefault(tree.parent, []).append(known)
        self._rounds = {parent: self._rounds.get(parent, 0) for parent in by_parent}
        for parent in self._turns.take(by_parent):
            marks, every = by_parent[parent], self._turns.every
            for start in range(0, len(marks), _TOPICS_A_MESSAGE):
                part = tuple(marks[start : start + _TOPICS_A_MESSAGE])
                self._context.send(parent, Refresh(self._context.me, self._rounds[parent], part, every))

    def _expire(self, tree: Tree, late: bool) -> None:
        horizon = self._context.now - self._context.config.child_ttl_ms
        for node, child in tuple(tree.children.items()):
            if late:
                child.heard = self._context.now
            elif child.heard < horizon - self._later_ms(child.every):
                self._links.drop_child(tree, node)

    def _later_ms(self, every: int) -> int:
        return (every - 1) * self._context.config.tree_refresh_ms
