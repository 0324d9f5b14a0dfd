"""Trees: a topic's subscribers hang below its root, along the ways of their JOINs (Scribe; ELF section 2.3).
This module passes the application's calls and the network's messages to the parts: ``treelinks`` keeps the
shape, ``maintenance`` watches the links, ``multicasts`` sends down."""

from __future__ import annotations

from collections.abc import Iterator

from overlay.admission import Admission
from overlay.context import Context
from overlay.errors import NotRoot
from overlay.ids import Peer
from overlay.maintenance import Maintenance
from overlay.multicasts import Multicasts
from overlay.pastry import Pastry
from overlay.regions import Regions
from overlay.tree import Tree
from overlay.treelinks import TreeLinks
from overlay.treemessages import Heard, Lost, Multicast, Repair, Unsubscribe


class Scribe:
    """The trees of one node."""

    def __init__(self, context: Context, pastry: Pastry) -> None:
        self._context = context
        self.multicasts = Multicasts(context)
        self.regions = Regions(context)
        admission = Admission(context, pastry, self.regions)
        self.links = TreeLinks(context, pastry, self.multicasts, admission, self.regions)
        self.maintenance = Maintenance(context, self.links, self.multicasts)

    # -- asked by the application ----------------------------------------------------------------------------

    def subscribe(self, topic: bytes, host: str | None) -> None:
        """Take part in a topic."""
        tree = self.links.take_part(topic)
        news = not tree.subscribed
        tree.subscribed = True
        if host is not None:
            tree.host = host
        if news:
            self.multicasts.replay(tree)
        self.links.settle(tree)

    def unsubscribe(self, topic: bytes) -> None:
        """Stop taking part; children keep us in the tree as a forwarder."""
        tree = self.links.get(topic)
        if tree is not None:
            tree.subscribed = False
            self.links.prune(tree)

    def host(self, topic: bytes) -> None:
        """Be the root of a topic, wherever on the ring it is."""
        tree = self.links.take_part(topic)
        tree.hosting = True
        tree.host = self._context.me.address
        self.links.release(tree)

    def rehost(self, topic: bytes, host: str) -> None:
        """Its root is another node now: children of the former one, and nodes that wait for it, ask anew."""
        tree = self.links.get(topic)
        if tree is None or tree.hosting or tree.host == host:
            return
        former, tree.host = tree.host, host
        if tree.parent is not None and tree.parent.address == former:
            self.links.release(tree)
        if tree.parent is None:
            self.links.ask_again(tree)

    def unhost(self, topic: bytes, host: str) -> None:
        """Stop being its root."""
        tree = self.links.get(topic)
        if tree is not None and tree.hosting:
            tree.hosting = False
            tree.host = host
            self.links.settle(tree)
            self.links.prune(tree)

    def multicast(self, topic: bytes, payload: bytes) -> None:
        """Send a payload down the tree. Raises NotRoot unless we are its root."""
        tree = self.links.get(topic)
        if tree is None or not self.links.is_root(tree):
            raise NotRoot(f"{self._context.me.address} is not the root of {topic.hex()}")
        self.multicasts.send(tree, payload)

    # -- asked about -----------------------------------------------------------------------------------------

    def tree(self, topic: bytes) -> Tree | None:
        """Our place in a topic's tree, if we have one."""
        return self.links.get(topic)

    def topics(self) -> tuple[bytes, ...]:
        """All topics in whose trees we are."""
        return tuple(tree.topic for tree in self.links)

    def is_root(self, topic: bytes) -> bool:
        """Whether a multicast starts here."""
        tree = self.links.get(topic)
        return tree is not None and self.links.is_root(tree)

    def neighbours(self) -> Iterator[Peer]:
        """All parents and children (some of them more than once)."""
        for tree in self.links:
            if tree.parent is not None:
                yield tree.parent
            for child in tree.children.values():
                yield child.peer

    # -- the ring has changed --------------------------------------------------------------------------------

    def open(self) -> None:
        """This node has become ready: look for the parents that were asked for before."""
        self.links.ready = True
        self.settle()

    def resume(self) -> None:
        """The join had failed, and all deadlines are gone: set those that are still needed."""
        for tree in self.links:
            self.multicasts.resume(tree)

    def settle(self) -> None:
        """The ring around us has changed: a root may not be the closest node any more."""
        for tree in self.links:
            self.links.settle(tree)

    # -- heard -----------------------------------------------------------------------------------------------

    def multicast_message(self, message: Multicast) -> None:
        """A payload on its way. From a stranger it is taken, but the stranger is told."""
        topic, sender = message.topic, message.sender
        tree = self.links.get(topic)
        if tree is None:
            self._context.send(sender, Unsubscribe(self._context.me, (topic,)))
            return
        neighbour = self.links.below(topic, sender.id) or self.links.child_of(topic, sender.id)
        if not neighbour and tree.asked != sender.address:
            self._context.send(sender, Unsubscribe(self._context.me, (topic,)))
        self.multicasts.hear(tree, message)

    def repair_message(self, message: Repair) -> None:
        """A child lacks multicasts."""
        link = self.links.child_of(message.topic, message.sender.id)
        if link is not None:
            self.multicasts.repair(*link, message)

    def lost_message(self, message: Lost) -> None:
        """Our parent has lost multicasts."""
        tree = self.links.below(message.topic, message.sender.id)
        if tree is not None:
            self.multicasts.lost(tree, message)

    def heard_message(self, message: Heard) -> None:
        """A child has received up to this number."""
        link = self.links.child_of(message.topic, message.sender.id)
        if link is not None:
            self.multicasts.acknowledged(link[1], message)

    # -- timers ----------------------------------------------------------------------------------------------

    def due(self, what: str, topic: bytes) -> None:
        """A deadline of one topic has passed."""
        tree = self.links.get(topic)
        if what == "tree":
            self.links.ask_due(topic)
        elif tree is not None:
            self.multicasts.repair_due(tree)

    def check(self) -> None:
        """Raise OverlayBug unless every place is a valid one."""
        self.links.check()
        for tree in self.links:
            self.multicasts.check(tree)
