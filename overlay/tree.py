"""One topic as one node sees it: its parent and children, and what has been heard."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from overlay.errors import OverlayBug
from overlay.history import Histories
from overlay.ids import Peer

FAR_MS: Final = 20
"""Round trip that a grandparent may be farther than the parent."""
PATH_MAX: Final = 32
"""A path that is longer can only go in circles."""


class Flight:
    """What is under way to a child: multicasts that are sent, and neither acknowledged nor known to be lost.
    They are in the order of sending, each with the round of our answers in which it was sent."""

    def __init__(self) -> None:
        self._sent: deque[tuple[int, Peer, int, int]] = deque()
        self._bytes = 0

    def room(self, messages_max: int, bytes_max: int) -> bool:
        """Whether one more may be sent; one always may, whatever its size."""
        return not self._sent or (len(self._sent) < messages_max and self._bytes < bytes_max)

    def add(self, round_: int, root: Peer, number: int, size: int) -> None:
        """A multicast is sent."""
        self._sent.append((round_, root, number, size))
        self._bytes += size

    def heard(self, root: Peer, number: int) -> None:
        """This one has come; so those sent before it have come too, or are lost."""
        names = [(sent_root, sent_number) for _, sent_root, sent_number, _ in self._sent]
        if (root, number) in names:
            for _ in range(names.index((root, number)) + 1):
                self._pop()

    def round_over(self, round_: int) -> None:
        """An answer of ours has come: what was sent before it has come too, or is lost."""
        while self._sent and self._sent[0][0] < round_:
            self._pop()

    def __len__(self) -> int:
        return len(self._sent)

    def _pop(self) -> None:
        self._bytes -= self._sent.popleft()[3]


@dataclass
class Child:
    """A node that takes a topic from us, when it last said so, and what is under way to it.

    ``every``: it says so once in so many refreshes. ``below``: how many children it has; ``raised``: it is to
    be told to climb, chosen at ``raised_at``.
    """

    peer: Peer
    heard: int
    every: int = 1
    flight: Flight = field(default_factory=Flight)
    below: int = 0
    raised: bool = False
    raised_at: int | None = None


@dataclass
class Tree:
    """A node's place in the tree of a topic.

    Attached: ``parent`` is set, ``path`` leads from it up to the root. Otherwise the node is the root, or
    looks for a parent: then ``asked`` is the address that it asked last, ``pushed`` whether it was sent there
    (``pushes`` times in a row) instead of routed. ``repairing``: the root whose multicasts the parent was
    asked for, and up to which number. ``rebalancing``: the grandparent that an attached node has asked to
    take it; ``homing``: that was not the grandparent but who should be our parent (``overlay.regions``), and
    how often we were sent on from there, from 1; ``room``: for so many more children at the last refresh;
    ``spare``: of these, what is not offered yet.
    """

    topic: bytes
    histories: Histories
    subscribed: bool = False
    hosting: bool = False
    host: str = ""
    parent: Peer | None = None
    path: tuple[str, ...] = ()
    children: dict[int, Child] = field(default_factory=dict)
    asked: str = ""
    pushed: bool = False
    pushes: int = 0
    tries: int = 0
    silent: set[int] = field(default_factory=set)
    behalf: tuple[str, ...] = ()
    shown: tuple[str | None, tuple[str, ...]] = (None, ())
    repairing: tuple[Peer, int] | None = None
    repair_tries: int = 0
    come_messages: int = 0
    come_bytes: int = 0
    rebalancing: str = ""
    homing: int = 0
    climbing_since: int = 0
    room: int = 0
    spare: int = 0

    @property
    def idle(self) -> bool:
        """Whether no subscriber, host or child needs this node in the tree."""
        return not self.subscribed and not self.hosting and not self.children

    def place(self) -> tuple[str | None, tuple[str, ...]]:
        """Addresses of parent and children."""
        children = tuple(sorted(child.peer.address for child in self.children.values()))
        return (self.parent.address if self.parent else None, children)

    def attach(self, parent: Peer, path: tuple[str, ...]) -> None:
        """Hang below a parent, above which is ``path``."""
        self._begin()
        self.parent = parent
        self.path = (parent.address, *path)

    def detach(self) -> None:
        """Be without a parent."""
        self._begin()
        self.parent = None
        self.path = ()

    def _begin(self) -> None:
        self.asked = ""
        self.rebalancing = ""
        self.pushed = False
        self.pushes = 0
        self.tries = 0
        self.silent.clear()
        self.repairing = None
        self.repair_tries = 0
        self.come_messages = 0
        self.come_bytes = 0

    def check(self, me: str) -> None:
        """Raise OverlayBug unless the place is a possible one."""
        if (self.parent is None) != (self.path == ()) or (
            self.parent and self.path[0] != self.parent.address
        ):
            raise OverlayBug("path and parent differ")
        if self.hosting and self.parent is not None:
            raise OverlayBug("a host has a parent")
        if self.parent is not None and self.parent.id in self.children:
            raise OverlayBug(f"{self.parent.address} is parent and child")
        if me in self.path:
            raise OverlayBug(f"{me} is above itself")
        if self.idle:
            raise OverlayBug("a tree that nobody needs is kept")
