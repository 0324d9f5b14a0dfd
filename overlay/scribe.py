"""Trees: a topic's subscribers hang below its root, along the ways that their JOINs took (Scribe; ELF section
2.3).

A JOIN goes one hop towards the topic; that node takes the asker as a child, answers at once, and if it is not
in the tree itself asks its own next hop. The rendezvous, closest to the topic, is the root; or, if the topic
has a *home* elsewhere, an inner node whose parent is the home. While the home is away the tree keeps its
shape and the rendezvous asks again.

Rules:

- Only the child keeps the bond: it tells each parent its topics every ``tree_refresh_ms``; a parent that does
  not know it says so and the child asks anew; a silent child is dropped, a dead parent replaced.
- No circle lasts: a JOIN names those on whose behalf it is made, every node knows the path above it; a node
  asked by one of its ancestors leaves its parent (it is nearer to the topic) or refuses. Routing has no
  circles, so stale bonds alone can.
- A multicast has the root's number in the topic; what was seen is dropped, so each subscriber gets it once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from overlay.context import Context
from overlay.effects import Multicasted, TreeChanged
from overlay.errors import NotRoot, OverlayBug
from overlay.ids import Peer, node_id, to_int
from overlay.messages import (
    Multicast,
    Refresh,
    Refreshed,
    Refused,
    Subscribe,
    Subscribed,
    TopicMark,
    TopicPath,
    Unsubscribe,
)
from overlay.pastry import Pastry
from overlay.tree import PATH_MAX, Child, Tree, path_mark

_TOPICS_A_MESSAGE = 256
_SILENT_FORGIVEN_TRIES = 4
"""After so many tries a next hop that was silent is asked again: it may have been slow only."""


class Scribe:
    """The trees of one node, by topic."""

    def __init__(self, context: Context, pastry: Pastry) -> None:
        self._context = context
        self._pastry = pastry
        self._trees: dict[bytes, Tree] = {}
        self._changed: dict[bytes, None] = {}
        self._vanished: dict[bytes, tuple[str | None, tuple[str, ...]]] = {}
        self._sent: dict[bytes, int] = {}
        self.ready = False

    # -- asked by the application ----------------------------------------------------------------------------

    def subscribe(self, topic: bytes, home: str | None) -> None:
        """Take part in a topic."""
        tree = self._tree(topic)
        tree.subscribed = True
        if home is not None:
            tree.home = home
        self._settle(tree)

    def unsubscribe(self, topic: bytes) -> None:
        """Take part no more; children keep us in the tree as a forwarder."""
        tree = self._trees.get(topic)
        if tree is not None:
            tree.subscribed = False
            self._prune(tree)

    def host(self, topic: bytes) -> None:
        """Be the root of a topic, wherever on the ring it is."""
        tree = self._tree(topic)
        tree.hosting = True
        tree.home = self._context.me.address
        self._leave_parent(tree)
        self._stop_asking(tree)

    def unhost(self, topic: bytes) -> None:
        """Be its root no more."""
        tree = self._trees.get(topic)
        if tree is not None and tree.hosting:
            tree.hosting = False
            tree.home = ""
            self._settle(tree)
            self._prune(tree)

    def multicast(self, topic: bytes, payload: bytes) -> None:
        """Send a payload down the tree. Raises NotRoot unless we are its root."""
        if not self.is_root(topic):
            raise NotRoot(f"{self._context.me.address} is not the root of {topic.hex()}")
        self._sent[topic] = self._sent.get(topic, 0) + 1
        me = self._context.me
        self._deliver(self._trees[topic], Multicast(me, topic, me, self._sent[topic], payload))

    # -- asked about -----------------------------------------------------------------------------------------

    def tree(self, topic: bytes) -> Tree | None:
        """Our place in a topic's tree, if we have one."""
        return self._trees.get(topic)

    def topics(self) -> tuple[bytes, ...]:
        """All topics in whose trees we are."""
        return tuple(self._trees)

    def is_root(self, topic: bytes) -> bool:
        """Whether a multicast starts here: we host the topic, or it has no home and we are closest."""
        tree = self._trees.get(topic)
        if tree is None or tree.hosting:
            return tree is not None
        if tree.parent is not None or not self.ready or tree.home not in ("", self._context.me.address):
            return False
        return self._pastry.next_hop(to_int(topic)).id == self._context.id

    def neighbours(self) -> Iterator[Peer]:
        """All parents and children (some of them more than once)."""
        for tree in self._trees.values():
            if tree.parent is not None:
                yield tree.parent
            for child in tree.children.values():
                yield child.peer

    # -- heard -----------------------------------------------------------------------------------------------

    def open(self) -> None:
        """This node has become ready: look for the parents that were asked for before."""
        self.ready = True
        self.settle()

    def settle(self) -> None:
        """The ring around us has changed: a root may not be the closest node any more."""
        for tree in self._trees.values():
            self._settle(tree)

    def gone(self, peer: Peer) -> None:
        """A peer died, left, or lives in a new incarnation and knows nothing of this."""
        for tree in tuple(self._trees.values()):
            child = tree.children.get(peer.id)
            if child is not None and child.peer.incarnation <= peer.incarnation:
                self._drop_child(tree, peer.id)
            if (
                tree.parent is not None
                and tree.parent.id == peer.id
                and tree.parent.incarnation <= peer.incarnation
            ):
                self._orphan(tree)
            elif tree.asked == peer.address and tree.topic in self._trees:
                self._ask(tree)

    def returned(self, address: str) -> None:
        """A peer is up: if it is a home that we wait for, ask it now."""
        for tree in self._trees.values():
            if tree.home == address and tree.asked == address:
                tree.tries = 0
                self._ask(tree)

    def subscribe_message(self, message: Subscribe) -> None:
        """Somebody wants to be our child."""
        asker = message.sender
        known = self._trees.get(message.topic)
        reason = self._objection(message, known)
        if reason:
            self._context.send(asker, Refused(self._context.me, message.topic, reason))
            return
        tree = known or self._tree(message.topic)
        if message.home and not tree.home:
            tree.home = message.home
        if asker.address in tree.path:
            self._leave_parent(tree)
        if tree.asked == asker.address:
            self._stop_asking(tree)
        tree.children[asker.id] = Child(asker, self._context.now)
        self._changed[tree.topic] = None
        tree.behalf = (*message.path, asker.address)
        self._context.send(asker, Subscribed(self._context.me, tree.topic, tree.home, tree.path))
        self._settle(tree)

    def subscribed_message(self, message: Subscribed) -> None:
        """Somebody takes us as its child."""
        sender = message.sender
        tree = self._trees.get(message.topic)
        if tree is not None and tree.parent is not None and tree.parent.id == sender.id:
            self._new_path(tree, message.home, message.path)
            return
        if tree is None or tree.hosting or tree.parent is not None or tree.asked != sender.address:
            self._context.send(sender, Unsubscribe(self._context.me, (message.topic,)))
            return
        if sender.id in tree.children or self._circular(message.path):
            self._context.send(sender, Unsubscribe(self._context.me, (message.topic,)))
            return  # the deadline asks again
        self._stop_asking(tree)
        tree.attach(sender, message.path)
        self._learn_home(tree, message.home)
        self._changed[tree.topic] = None

    def refused_message(self, message: Refused) -> None:
        """Not there: when the deadline comes, ask elsewhere if there is an elsewhere."""
        tree = self._trees.get(message.topic)
        if tree is not None and tree.asked == message.sender.address:
            tree.silent.add(message.sender.id)

    def unsubscribe_message(self, message: Unsubscribe) -> None:
        """A child goes."""
        for topic in message.topics:
            tree = self._trees.get(topic)
            if tree is not None and message.sender.id in tree.children:
                self._drop_child(tree, message.sender.id)

    def refresh_message(self, message: Refresh) -> None:
        """A child stays: tell it what has changed above it, and where it is no child."""
        paths: list[TopicPath] = []
        unknown: list[bytes] = []
        for mark in message.topics:
            tree = self._trees.get(mark.topic)
            child = tree.children.get(message.sender.id) if tree is not None else None
            if tree is None or child is None:
                unknown.append(mark.topic)
                continue
            child.heard = self._context.now
            if path_mark((self._context.me.address, *tree.path)) != mark.mark:
                paths.append(TopicPath(tree.topic, tree.home, tree.path))
        self._context.send(message.sender, Refreshed(self._context.me, tuple(paths), tuple(unknown)))

    def refreshed_message(self, message: Refreshed) -> None:
        """What our parent says."""
        for topic in message.unknown:
            tree = self._trees.get(topic)
            if tree is not None and tree.parent is not None and tree.parent.id == message.sender.id:
                self._orphan(tree)
        for item in message.paths:
            tree = self._trees.get(item.topic)
            if tree is not None and tree.parent is not None and tree.parent.id == message.sender.id:
                self._new_path(tree, item.home, item.path)

    def multicast_message(self, message: Multicast) -> None:
        """A payload on its way down. From another than our parent it is taken, but the sender is told."""
        tree = self._trees.get(message.topic)
        from_parent = tree is not None and tree.parent is not None and tree.parent.id == message.sender.id
        if not from_parent and (tree is None or tree.asked != message.sender.address):
            self._context.send(message.sender, Unsubscribe(self._context.me, (message.topic,)))
        if tree is not None:
            self._deliver(tree, message)

    # -- timers ----------------------------------------------------------------------------------------------

    def ask_due(self, topic: bytes) -> None:
        """No answer to our JOIN, or a refusal."""
        tree = self._trees[topic]
        target = self._pastry.liveness.live.get(node_id(tree.asked))
        if target is not None:
            self._pastry.suspect(target)
            tree.silent.add(target.id)
        tree.tries += 1
        if tree.tries % _SILENT_FORGIVEN_TRIES == 0:
            tree.silent.clear()
        self._ask(tree)

    def refresh_due(self, late: bool) -> None:
        """Speak to all parents, drop silent children (unless we slept), and see who should be root."""
        self._refresh_parents()
        for tree in tuple(self._trees.values()):
            self._expire_children(tree, late)
            if tree.topic in self._trees:
                self._settle(tree)
        self.schedule()

    def schedule(self) -> None:
        """Set the next refresh."""
        self._context.agenda.set(("refresh", 0), self._context.every(self._context.config.tree_refresh_ms))

    def show(self) -> None:
        """Report the places that have changed since the last call."""
        for topic in self._changed:
            tree = self._trees.get(topic)
            before = self._vanished.get(topic, (None, ())) if tree is None else tree.shown
            place = (None, ()) if tree is None else tree.place()
            if place != before:
                self._context.emit(TreeChanged(topic, *place))
            if tree is not None:
                tree.shown = place
        self._changed.clear()
        self._vanished.clear()

    def check(self) -> None:
        """Raise OverlayBug unless every place is a possible one."""
        for topic, tree in self._trees.items():
            tree.check(self._context.me.address)
            if bool(tree.asked) != (("tree", topic) in self._context.agenda):
                raise OverlayBug("a JOIN has no deadline, or a deadline no JOIN")
            if tree.asked and tree.parent is not None:
                raise OverlayBug("a node with a parent asks for another")

    # -- the parts -------------------------------------------------------------------------------------------

    def _tree(self, topic: bytes) -> Tree:
        to_int(topic)
        tree = self._trees.get(topic)
        if tree is None:
            tree = self._trees[topic] = Tree(topic, shown=self._vanished.pop(topic, (None, ())))
        return tree

    def _settle(self, tree: Tree) -> None:
        """Look for a parent if one is needed and none is being asked."""
        if not tree.asked and tree.parent is None:
            self._ask(tree)

    def _ask(self, tree: Tree) -> None:
        """Send a JOIN to whoever should be our parent now; nobody should if we are the root."""
        self._stop_asking(tree)
        if not self.ready or tree.hosting or tree.parent is not None:
            return
        config, me = self._context.config, self._context.me
        hop = self._pastry.next_hop(to_int(tree.topic), tree.silent)
        direct = hop.id == self._context.id
        if direct and tree.home in ("", me.address):
            tree.tries = 0
            return
        tree.asked = tree.home if direct else hop.address
        wait_ms = min(config.hop_ms << min(tree.tries, 16), config.home_retry_ms)
        self._context.agenda.set(("tree", tree.topic), self._context.now + wait_ms)
        self._context.send_to(tree.asked, Subscribe(me, tree.topic, tree.home, direct, tree.behalf))

    def _stop_asking(self, tree: Tree) -> None:
        tree.asked = ""
        self._context.agenda.cancel(("tree", tree.topic))

    def _objection(self, message: Subscribe, tree: Tree | None) -> str:
        """Why the asker can't be our child; empty if it can."""
        asker = message.sender
        if tree is not None and tree.hosting:
            return ""
        if message.direct:
            return "not the home"
        if self._context.me.address in message.path or len(message.path) >= PATH_MAX:
            return "loop"
        below_asker = tree is not None and (asker.address in tree.path or tree.asked == asker.address)
        if below_asker and self._pastry.next_hop(to_int(message.topic)).id == asker.id:
            return "loop"
        return ""

    def _orphan(self, tree: Tree) -> None:
        tree.detach()
        tree.behalf = ()
        self._changed[tree.topic] = None
        self._ask(tree)

    def _leave_parent(self, tree: Tree) -> None:
        if tree.parent is not None:
            self._context.send(tree.parent, Unsubscribe(self._context.me, (tree.topic,)))
            tree.detach()
        self._changed[tree.topic] = None

    def _circular(self, path: tuple[str, ...]) -> bool:
        return self._context.me.address in path or len(path) >= PATH_MAX

    def _new_path(self, tree: Tree, home: str, path: tuple[str, ...]) -> None:
        """Our parent has moved; if we are above it now, this bond must go."""
        if tree.parent is None:
            raise OverlayBug("a path without a parent")
        if self._circular(path):
            self._leave_parent(tree)
            self._ask(tree)
            return
        tree.path = (tree.parent.address, *path)
        self._learn_home(tree, home)

    def _learn_home(self, tree: Tree, home: str) -> None:
        if home and not tree.home:
            tree.home = home

    def _drop_child(self, tree: Tree, node: int) -> None:
        del tree.children[node]
        self._changed[tree.topic] = None
        self._prune(tree)

    def _prune(self, tree: Tree) -> None:
        """Leave the tree if nobody needs us in it."""
        if not tree.idle:
            return
        self._leave_parent(tree)
        self._stop_asking(tree)
        del self._trees[tree.topic]
        self._vanished[tree.topic] = tree.shown

    def _deliver(self, tree: Tree, message: Multicast) -> None:
        if not tree.accept(message.root, message.number, self._context.config.multicast_window):
            return
        if tree.subscribed:
            self._context.emit(Multicasted(message.topic, message.payload))
        onward = replace(message, sender=self._context.me)
        for child in tree.children.values():
            if child.peer.id != message.sender.id:
                self._context.send(child.peer, onward)

    def _refresh_parents(self) -> None:
        by_parent: dict[Peer, list[TopicMark]] = {}
        for tree in self._trees.values():
            if tree.parent is not None:
                mark = TopicMark(tree.topic, path_mark(tree.path))
                by_parent.setdefault(tree.parent, []).append(mark)
        for parent, marks in by_parent.items():
            for part in _parts(marks):
                self._context.send(parent, Refresh(self._context.me, part))

    def _expire_children(self, tree: Tree, late: bool) -> None:
        horizon = self._context.now - self._context.config.child_ttl_ms
        for node, child in tuple(tree.children.items()):
            if late:
                child.heard = self._context.now
            elif child.heard < horizon:
                self._drop_child(tree, node)


def _parts(marks: list[TopicMark]) -> Iterable[tuple[TopicMark, ...]]:
    for start in range(0, len(marks), _TOPICS_A_MESSAGE):
        yield tuple(marks[start : start + _TOPICS_A_MESSAGE])
