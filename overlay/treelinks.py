"""The shape of trees: JOINs, the loss of parents and children, and a node's departure.

A JOIN goes one hop towards the topic. That node takes the asker as a child, answers at once, and if it is not
in the tree itself asks its own next hop. The rendezvous, closest to the topic, is the root or, if the topic
has a *host* elsewhere, an inner node whose parent is the host. While the host is away the tree keeps its
shape and the rendezvous asks again.

Rules:

- Only the child maintains the tree link (``maintenance``); a dead parent is replaced.
- No node has more than ``fanout_max`` children in a topic. A full node sends a further asker to the child
  that is nearest to it. So the asker goes down until there is room, and the depth stays about the logarithm
  of the members.
- No circle lasts. A JOIN names those on whose behalf it is made, and every node knows the path above it; a
  node that is asked by one of its ancestors leaves its parent (the ancestor is nearer to the topic) or
  refuses. Routing has no circles, so only stale tree links can make them. An asker is sent on only below a
  node that is attached and not its own descendant.
- Where regions are known, a node asks the head of its region in place of the next hop, and the head asks the
  host (``regions``). Who hangs elsewhere moves when it has been taken there.
- A node that leaves gives its children to its parent; a rendezvous without a parent gives them to the node
  that will be closest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from overlay.admission import Admission
from overlay.context import Context
from overlay.effects import TreeChanged
from overlay.errors import OverlayBug
from overlay.history import Histories
from overlay.ids import Peer, closeness, node_id, to_int
from overlay.multicasts import Multicasts
from overlay.pastry import Pastry
from overlay.regions import Regions
from overlay.tree import FAR_MS, PATH_MAX, Child, Tree
from overlay.treemessages import Handover, Refreshed, Refused, Subscribe, Subscribed, TopicPath, Unsubscribe

_SILENT_FORGIVEN_TRIES = 4
"""After so many tries a silent next hop is asked again: it may only have been slow."""
_PUSHES_MAX = PATH_MAX
"""How often one JOIN is sent on before it rests until its deadline; being sent away from there counts for
``_RETURN`` times."""
_RETURN = 8


class TreeLinks:
    """The trees of one node, by topic."""

    def __init__(
        self,
        context: Context,
        pastry: Pastry,
        multicasts: Multicasts,
        admission: Admission,
        regions: Regions,
    ) -> None:
        self._context = context
        self._pastry = pastry
        self._regions = regions
        self._multicasts = multicasts
        self._admission = admission
        self._trees: dict[bytes, Tree] = {}
        self._changed: dict[bytes, None] = {}
        self._vanished: dict[bytes, tuple[str | None, tuple[str, ...]]] = {}
        self.ready = False

    # -- asked about -----------------------------------------------------------------------------------------

    def get(self, topic: bytes) -> Tree | None:
        """Our place in a topic's tree, if we have one."""
        return self._trees.get(topic)

    def take_part(self, topic: bytes) -> Tree:
        """Our place in the tree, created if we had none."""
        to_int(topic)
        tree = self._trees.get(topic)
        if tree is None:
            config = self._context.config
            shown = self._vanished.pop(topic, (None, ()))
            histories = Histories(config.kept_max, config.kept_bytes)
            tree = self._trees[topic] = Tree(topic, histories, shown=shown)
        return tree

    def __iter__(self) -> Iterator[Tree]:
        return iter(self._trees.values())

    def is_root(self, tree: Tree) -> bool:
        """Whether a multicast starts here: we host the topic, or it has no host and we are closest."""
        if tree.hosting:
            return True
        if tree.parent is not None or not self.ready or tree.host not in ("", self._context.me.address):
            return False
        return self._pastry.next_hop(to_int(tree.topic)).id == self._context.id

    def attached(self, tree: Tree) -> bool:
        """Whether a path leads up to a root, as far as we know."""
        return tree.parent is not None or self.is_root(tree)

    def child_of(self, topic: bytes, node: int) -> tuple[Tree, Child] | None:
        """A topic's tree and our child in it."""
        tree = self._trees.get(topic)
        child = tree.children.get(node) if tree is not None else None
        return None if tree is None or child is None else (tree, child)

    def below(self, topic: bytes, node: int) -> Tree | None:
        """A topic's tree, if that node is our parent in it."""
        tree = self._trees.get(topic)
        return tree if tree is not None and tree.parent is not None and tree.parent.id == node else None

    # -- what changes ----------------------------------------------------------------------------------------

    def settle(self, tree: Tree) -> None:
        """Look for a parent if one is needed and none is being asked."""
        if not tree.asked and tree.parent is None:
            self._ask(tree)

    def ask_again(self, tree: Tree) -> None:
        """Ask for a parent from the beginning, whichever node is being asked."""
        tree.tries = tree.pushes = 0
        self._ask(tree)

    def release(self, tree: Tree) -> None:
        """Become the root: no parent, and no request for one."""
        self._leave_parent(tree)
        self._stop_asking(tree)

    def prune(self, tree: Tree) -> None:
        """Leave the tree if it is not needed here."""
        if not tree.idle:
            return
        self.release(tree)
        self._multicasts.forget(tree)
        del self._trees[tree.topic]
        self._vanished[tree.topic] = tree.shown

    def orphan(self, tree: Tree) -> None:
        """Our parent is gone: look for another."""
        tree.detach()
        tree.behalf = ()
        self._changed[tree.topic] = None
        self._ask(tree)

    def home(self, tree: Tree) -> None:
        """See that we hang where we should: a head, and who stands beside the host, below the host; others in
        their own region. Whoever is asked for that is our parent when it has said yes."""
        above = self._above(tree)
        if above is None or tree.parent is None or tree.parent.address == above:
            return
        if self._regions.astray(tree.topic, tree.parent.address, above):
            tree.homing = 1
            self._move(tree, above, pushed=False)

    def may_climb(self, tree: Tree) -> bool:
        """Whether our grandparent may be our parent: not where only a head should cross the border, or where
        our way goes over the region of our parent."""
        if tree.parent is None or len(tree.path) < 2:
            return False
        parent, above = tree.parent.address, tree.path[1]
        if self._regions.crosses(parent) and self._regions.via(tree.topic, tree.host):
            return self._regions.of(parent) == self._regions.of(above)
        return self._regions.crosses(parent) or not self._regions.crosses(above)

    def climb(self, tree: Tree) -> None:
        """Ask our grandparent for a place."""
        tree.homing = 0
        self._move(tree, tree.path[1], pushed=True)

    def new_path(self, tree: Tree, host: str, path: tuple[str, ...]) -> None:
        """Our parent has moved; if we are above it now, this tree link must go."""
        if tree.parent is None:
            raise OverlayBug("a path without a parent")
        if self._circular(path):
            self._leave_parent(tree)
            self._ask(tree)
            return
        before, tree.path = tree.path, (tree.parent.address, *path)
        self._learn_host(tree, host)
        if tree.path != before:
            self._tell(tree)

    def drop_child(self, tree: Tree, node: int) -> None:
        """A child is gone."""
        del tree.children[node]
        self._changed[tree.topic] = None
        self.prune(tree)

    def gone(self, peer: Peer) -> None:
        """A peer died, left, or lives in a new incarnation and knows nothing of the tree."""
        for tree in tuple(self._trees.values()):
            child = tree.children.get(peer.id)
            if child is not None and child.peer.incarnation <= peer.incarnation:
                self.drop_child(tree, peer.id)
            parent = tree.parent
            if parent is not None and parent.id == peer.id and parent.incarnation <= peer.incarnation:
                self.orphan(tree)
            elif tree.asked == peer.address and tree.topic in self._trees:
                self._ask(tree)

    def returned(self, address: str) -> None:
        """A peer is up: if it is a host that we wait for, ask it now."""
        for tree in self._trees.values():
            if tree.host == address and tree.asked == address:
                tree.tries = 0
                self._ask(tree)

    def leave(self) -> None:
        """This node goes: its children belong to its parent now, or to the node that will be root."""
        me = self._context.me
        for tree in self._trees.values():
            if tree.hosting or not tree.children:
                continue
            heir = tree.parent or self._next_closest(tree)
            if heir is None:
                continue
            children = tuple(c.peer for c in tree.children.values() if c.peer.id != heir.id)
            for peer in (heir, *children):
                self._context.send(peer, Handover(me, tree.topic, heir, children))

    # -- heard -----------------------------------------------------------------------------------------------

    def subscribe_message(self, message: Subscribe) -> None:
        """A node wants to be our child."""
        asker = message.sender
        self._pastry.proximity.placed(asker.id, message.place)
        known = self._trees.get(message.topic)
        attached = known is not None and self.attached(known)
        reason = self._admission.objection(message, known, attached)
        if reason:
            self._context.send(asker, Refused(self._context.me, message.topic, reason, ""))
            return
        tree = known or self.take_part(message.topic)
        if message.host and not tree.host:
            tree.host = message.host
        if asker.address in tree.path:
            self._leave_parent(tree)
            self._tell(tree)
        if tree.asked == asker.address:
            self._stop_asking(tree)
        if asker.id not in tree.children and self._admission.full(tree):
            instead = self._admission.instead(tree, message)
            self._context.send(asker, Refused(self._context.me, tree.topic, "full", instead))
        else:
            tree.children[asker.id] = Child(asker, self._context.now)
            self._changed[tree.topic] = None
            tree.behalf = (*message.path, asker.address)
            heads = tree.histories.heads()
            self._context.send(asker, Subscribed(self._context.me, tree.topic, tree.host, tree.path, heads))
        self.settle(tree)

    def subscribed_message(self, message: Subscribed) -> None:
        """A node takes us as its child."""
        sender = message.sender
        tree = self._trees.get(message.topic)
        if tree is not None and self.below(message.topic, sender.id) is not None:
            self.new_path(tree, message.host, message.path)
            return
        if tree is None or tree.hosting or sender.address not in (tree.asked, tree.rebalancing):
            self._context.send(sender, Unsubscribe(self._context.me, (message.topic,)))
            return
        if sender.id in tree.children or self._circular(message.path) or self._too_far(tree):
            self._context.send(sender, Unsubscribe(self._context.me, (message.topic,)))
            return  # the deadline asks again
        self._stop_asking(tree)
        if tree.parent is not None:
            self._context.send(tree.parent, Unsubscribe(self._context.me, (message.topic,)))
        tree.attach(sender, message.path)
        self._learn_host(tree, message.host)
        self._changed[tree.topic] = None
        self._tell(tree)
        self._multicasts.compare(tree, message.heads, up=False)

    def refused_message(self, message: Refused) -> None:
        """Refused: go where we are sent; from there back to routing; else, when the deadline comes, ask
        elsewhere if possible."""
        tree = self._trees.get(message.topic)
        if tree is not None and tree.rebalancing == message.sender.address:
            tree.rebalancing = ""
            self._go_on(tree, message.instead)
        if tree is None or tree.asked != message.sender.address:
            return
        instead = message.instead
        known = instead == self._context.me.address or node_id(instead) in tree.children
        if tree.pushes < _PUSHES_MAX and instead and not known:
            tree.pushes += 1
            self._ask_at(tree, instead, direct=False, pushed=True)
        elif tree.pushes < _PUSHES_MAX and tree.pushed:
            tree.pushes += _RETURN
            self._ask(tree)
        else:
            tree.silent.add(message.sender.id)

    def unsubscribe_message(self, topics: Iterable[bytes], sender: Peer) -> None:
        """A child leaves."""
        for topic in topics:
            link = self.child_of(topic, sender.id)
            if link is not None:
                self.drop_child(link[0], sender.id)

    def handover_message(self, message: Handover) -> None:
        """A neighbour leaves: its children are ours now, or we are another node's."""
        if message.parent.id == self._context.id:
            self._inherit(message)
            return
        tree = self.below(message.topic, message.sender.id)
        if tree is None:
            return
        tree.detach()
        self._changed[tree.topic] = None
        if message.parent.id in tree.children:
            self._ask(tree)
        else:
            self._ask_at(tree, message.parent.address, direct=False, pushed=True)

    # -- timers ----------------------------------------------------------------------------------------------

    def ask_due(self, topic: bytes) -> None:
        """No answer to our JOIN, or a refusal.

        From now on it names no nodes below us. Those that are there know it by now and refuse us themselves;
        the others hang elsewhere, and a full node whose children they all are would send us nowhere for ever.
        """
        tree = self._trees[topic]
        tree.behalf = ()
        asked = node_id(tree.asked)
        target = self._pastry.known(asked)
        if target is not None:
            self._pastry.suspect(target)
        if target is not None or self._regions.region:
            tree.silent.add(asked)
        tree.tries += 1
        tree.pushes = 0
        if tree.tries % _SILENT_FORGIVEN_TRIES == 0:
            tree.silent.clear()
        self._ask(tree)

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
        """Raise OverlayBug unless every place is a valid one."""
        for topic, tree in self._trees.items():
            tree.check(self._context.me.address)
            if bool(tree.asked) != (("tree", topic) in self._context.timers):
                raise OverlayBug("a JOIN has no deadline, or a deadline no JOIN")
            if tree.asked and tree.parent is not None:
                raise OverlayBug("a node with a parent asks for another")
            if len(tree.children) > self._context.config.fanout_max:
                raise OverlayBug(f"{len(tree.children)} children in one topic")

    # -- the parts -------------------------------------------------------------------------------------------

    def _ask(self, tree: Tree) -> None:
        """Send a JOIN to the node that should be our parent now; there is none if we are the root."""
        self._stop_asking(tree)
        if not self.ready or tree.hosting or tree.parent is not None:
            return
        hop = self._pastry.next_hop(to_int(tree.topic), tree.silent)
        direct = hop.id == self._context.id
        if direct and tree.host in ("", self._context.me.address):
            tree.tries = 0
            return
        above = self._above(tree)
        if above is not None:
            self._ask_at(tree, above, direct=above == tree.host, pushed=False)
        else:
            self._ask_at(tree, tree.host if direct else hop.address, direct=direct, pushed=False)

    def _above(self, tree: Tree) -> str | None:
        """Who should be our parent where regions are known. The last one before all silent ones are asked
        again is the host."""
        dead = self._pastry.liveness.dead
        above = self._regions.above(tree.topic, tree.host, lambda node: node in dead or node in tree.silent)
        last = (tree.tries + 1) % _SILENT_FORGIVEN_TRIES == 0
        return tree.host if above is not None and last else above

    def _move(self, tree: Tree, address: str, *, pushed: bool) -> None:
        """Ask for another parent, and keep ours until that one has said yes."""
        tree.rebalancing, tree.climbing_since = address, self._context.now
        me, place = self._context.me, self._context.place
        direct = address == tree.host and not pushed
        self._context.send_to(address, Subscribe(me, tree.topic, tree.host, direct, pushed, (), place))

    def _go_on(self, tree: Tree, instead: str) -> None:
        """Who should be our parent is full, and names a child of its own."""
        known = instead in ("", self._context.me.address) or node_id(instead) in tree.children
        if known or tree.parent is None or not 0 < tree.homing < PATH_MAX or instead == tree.parent.address:
            return
        if self._regions.crosses(instead) and not self._regions.crosses(tree.parent.address):
            return
        tree.homing += 1
        self._move(tree, instead, pushed=True)

    def _ask_at(self, tree: Tree, address: str, direct: bool, pushed: bool) -> None:
        config, me = self._context.config, self._context.me
        tree.asked, tree.pushed = address, pushed
        wait_ms = min(config.hop_ms << min(tree.tries, 16), config.host_retry_ms)
        self._context.timers.set(("tree", tree.topic), self._context.now + wait_ms)
        join = Subscribe(me, tree.topic, tree.host, direct, pushed, tree.behalf, self._context.place)
        self._context.send_to(address, join)

    def _stop_asking(self, tree: Tree) -> None:
        tree.asked, tree.pushed = "", False
        self._context.timers.cancel(("tree", tree.topic))

    def _inherit(self, message: Handover) -> None:
        """The children of a node that leaves, as many as there is room for; the others will be sent on."""
        sender = message.sender
        tree = self.take_part(message.topic)
        tree.children.pop(sender.id, None)
        if tree.parent is not None and tree.parent.id == sender.id:
            tree.detach()
        above = {*tree.path, tree.asked, self._context.me.address}
        for peer in message.children:
            if peer.id not in tree.children and peer.address not in above and not self._admission.full(tree):
                tree.children[peer.id] = Child(peer, self._context.now)
        tree.silent.add(sender.id)
        self._changed[tree.topic] = None
        self.prune(tree)
        if not tree.idle:
            self.settle(tree)

    def _next_closest(self, tree: Tree) -> Peer | None:
        """The node that will be closest to the topic when we are gone."""
        key = to_int(tree.topic)
        return min(self._pastry.leaves, key=lambda peer: closeness(key, peer.id), default=None)

    def _leave_parent(self, tree: Tree) -> None:
        if tree.parent is not None:
            self._context.send(tree.parent, Unsubscribe(self._context.me, (tree.topic,)))
            tree.detach()
        self._changed[tree.topic] = None

    def _too_far(self, tree: Tree) -> bool:
        """Whether the grandparent that has just answered is much farther than our parent."""
        if tree.parent is None or tree.homing:
            return False
        known_ms = self._pastry.proximity.rtt_ms(tree.parent.id) or 0
        return self._context.now - tree.climbing_since > known_ms + FAR_MS

    def _circular(self, path: tuple[str, ...]) -> bool:
        return self._context.me.address in path or len(path) >= PATH_MAX

    def _tell(self, tree: Tree) -> None:
        """The path above us has changed: tell the children at once, so that they refuse no JOIN for an old
        one and a circle is found as fast as messages go round it."""
        item = TopicPath(tree.topic, tree.host, tree.path, tree.histories.heads())
        for child in tree.children.values():
            self._multicasts.round += 1
            answer = Refreshed(self._context.me, self._multicasts.round, (item,), ())
            self._context.send(child.peer, answer)

    def _learn_host(self, tree: Tree, host: str) -> None:
        if host and not tree.host:
            tree.host = host
