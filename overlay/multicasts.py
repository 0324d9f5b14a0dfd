"""Multicasts on their way down a tree: numbered by their root, repaired where they are missing, held back
from slow children.

Rules:

- A node passes on a new multicast as soon as it comes, and gives it to its application in its turn.
- A node that sees that a number is missing (a later one comes, or the parent says what is settled with it)
  asks its parent, which sends what it keeps and names what is lost. What the parent itself is missing it
  passes on when it comes. A child that has what its parent lacks sends it up, so that all will hear what a
  dead root told one child.
- What no node supplies for ``lost_ms`` is lost. It is named to the application, and never released later.
- At most a window of multicasts is under way to a child. What has no room is not sent; the child sees the gap
  when there is room again and repairs it from this node, which keeps no more for its sake.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from overlay.context import Context
from overlay.effects import Missed, Multicasted
from overlay.errors import OverlayBug
from overlay.history import Word
from overlay.tree import Child, Tree
from overlay.treemessages import Head, Heard, Lost, Multicast, Repair

_ALL = 1 << 64


class Multicasts:
    """Sends, passes on and repairs, in the tree that it is given; its only own state is its own numbers."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._sent: dict[bytes, int] = {}
        self.round = 0
        """Answers to refreshing children so far."""
        self.skipped = 0
        """Multicasts not sent since a child's window was full."""

    def send(self, tree: Tree, payload: bytes) -> None:
        """A multicast of ours, the root's."""
        me = self._context.me
        number = self._sent[tree.topic] = self._sent.get(tree.topic, 0) + 1
        tree.histories.of(me).begin(number)
        self.hear(tree, Multicast(me, tree.topic, me, number, payload))

    def hear(self, tree: Tree, message: Multicast) -> None:
        """A multicast has come, perhaps not for the first time."""
        sender = message.sender
        if tree.parent is not None and tree.parent.id == sender.id:
            self._acknowledge(tree, message)
        words = tree.histories.take(message.root, message.number, message.payload, self._context.now)
        if words is None:
            return
        onward = replace(message, sender=self._context.me)
        for child in tree.children.values():
            if child.peer.id != sender.id:
                self._down(child, onward)
        self._give(tree, words)
        self._catch_up(tree)

    def acknowledged(self, child: Child, message: Heard) -> None:
        """A child has received up to this number."""
        child.flight.heard(message.root, message.number)

    def compare(self, tree: Tree, heads: tuple[Head, ...], up: bool) -> None:
        """Our parent says what is settled with it: ask for what we lack; ``up``: give it what it lacks."""
        for head in heads:
            if head.number > 0:
                tree.histories.of(head.root).exists(head.number, self._context.now)
        if up:
            self._give_up(tree, {head.root: head.number for head in heads})
        self._catch_up(tree)

    def repair(self, tree: Tree, child: Child, message: Repair) -> None:
        """A child lacks something: send what we keep, name what is lost."""
        history = tree.histories.known(message.root)
        if history is None:
            return
        first, last = max(message.first, 1), min(message.last, history.next - 1)
        left = self._context.config.repair_batch
        for number, payload in history.kept(first, last):
            if number > first:
                self._lost(tree, child, message, first, number - 1)
            if not left:
                return
            left -= 1
            again = Multicast(self._context.me, tree.topic, message.root, number, payload)
            if not self._down(child, again):
                return
            first = number + 1
        if first <= last:
            self._lost(tree, child, message, first, last)

    def lost(self, tree: Tree, message: Lost) -> None:
        """Our parent has lost these."""
        history = tree.histories.known(message.root)
        if history is not None:
            self._give(tree, history.lose(message.first, message.last, self._context.now))
            self._catch_up(tree)

    def replay(self, tree: Tree) -> None:
        """The application subscribes where we have forwarded for others already."""
        for history in tree.histories:
            self._give(tree, history.again())

    def repair_due(self, tree: Tree) -> None:
        """What was asked for has not come in time."""
        history = tree.histories.waiting()
        if history is None or history.waits_since is None:
            raise OverlayBug("a repair's deadline outlived the repair")
        tree.repairing = None
        if self._context.now - history.waits_since >= self._context.config.lost_ms:
            first, last = history.missing(_ALL) or (1, 0)
            self._give(tree, history.lose(first, last, self._context.now))
        self._catch_up(tree)

    def resume(self, tree: Tree) -> None:
        """Set the deadline again, which is gone with all others."""
        tree.repairing, tree.repair_tries = None, 0
        self._catch_up(tree)

    def forget(self, tree: Tree) -> None:
        """We leave the tree."""
        self._context.timers.cancel(("repair", tree.topic))

    def check(self, tree: Tree) -> None:
        """Raise OverlayBug if something in the tree is miscounted, or missing and not asked for."""
        tree.histories.check()
        if (tree.histories.waiting() is None) != (("repair", tree.topic) not in self._context.timers):
            raise OverlayBug("something is missing without a deadline, or the other way round")

    # -- the parts -------------------------------------------------------------------------------------------

    def _give(self, tree: Tree, words: Iterable[Word]) -> None:
        if not tree.subscribed:
            return
        for word in words:
            if word.payload is None:
                self._context.emit(Missed(tree.topic, word.root, word.first, word.last))
            else:
                self._context.emit(Multicasted(tree.topic, word.payload))

    def _down(self, child: Child, message: Multicast) -> bool:
        """Send to a child, if there is room."""
        config = self._context.config
        if not child.flight.room(config.window_messages, config.window_bytes):
            self.skipped += 1
            return False
        child.flight.add(self.round, message.root, message.number, len(message.payload))
        self._context.send(child.peer, message)
        return True

    def _lost(self, tree: Tree, child: Child, asked: Repair, first: int, last: int) -> None:
        self._context.send(child.peer, Lost(self._context.me, tree.topic, asked.root, first, last))

    def _acknowledge(self, tree: Tree, message: Multicast) -> None:
        config = self._context.config
        tree.come_messages += 1
        tree.come_bytes += len(message.payload)
        if tree.come_messages * 4 >= config.window_messages or tree.come_bytes * 4 >= config.window_bytes:
            tree.come_messages = tree.come_bytes = 0
            heard = Heard(self._context.me, tree.topic, message.root, message.number)
            self._context.send(message.sender, heard)

    def _give_up(self, tree: Tree, settled: dict[object, int]) -> None:
        """Give the parent what it lacks, a batch of each root."""
        if tree.parent is None:
            return
        for history in tree.histories:
            left = self._context.config.repair_batch
            for number, payload in history.kept(settled.get(history.root, 0) + 1, history.next - 1):
                message = Multicast(self._context.me, tree.topic, history.root, number, payload)
                self._context.send(tree.parent, message)
                left -= 1
                if not left:
                    break

    def _catch_up(self, tree: Tree) -> None:
        """Ask the parent for what is missing, if it has not been asked; without one wait for one."""
        timers, config = self._context.timers, self._context.config
        timer = ("repair", tree.topic)
        if tree.repairing is not None:
            root, last = tree.repairing
            history = tree.histories.known(root)
            if history is not None and history.next <= last:
                return
            tree.repairing, tree.repair_tries = None, 0
        history = tree.histories.waiting()
        missing = history.missing(config.repair_batch) if history is not None else None
        if history is None or missing is None:
            timers.cancel(timer)
            tree.repair_tries = 0
            return
        if tree.parent is None and timer in timers:
            return
        if tree.parent is not None:
            tree.repairing = (history.root, missing[1])
            self._context.send(
                tree.parent, Repair(self._context.me, tree.topic, history.root, missing[0], missing[1])
            )
        wait_ms = min(config.hop_ms << min(tree.repair_tries, 16), config.host_retry_ms)
        tree.repair_tries += 1
        timers.set(timer, self._context.now + wait_ms)
