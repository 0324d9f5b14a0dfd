"""One topic as one node sees it: who is above, who is below, what has been heard."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from overlay.errors import OverlayBug
from overlay.ids import Peer, key_of

PATH_MAX: Final = 32
"""A path that is longer can only go in circles."""

_ROOTS_MAX: Final = 4
"""Roots of one topic whose numbers are remembered: there is one, and there was one before."""


class Numbers:
    """Which numbers of a counter were seen: the last ``window`` exactly, all older ones taken for seen."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._floor = 0
        self._seen: set[int] = set()

    def accept(self, number: int) -> bool:
        """Note a number down; False if it was seen before."""
        if number <= self._floor or number in self._seen:
            return False
        self._seen.add(number)
        if len(self._seen) > self._window:
            self._floor = min(self._seen)
            self._seen.remove(self._floor)
        return True


@dataclass
class Child:
    """A node that takes a topic from us, and when it last said so."""

    peer: Peer
    heard: int


@dataclass
class Tree:
    """A node's place in the tree of a topic.

    Attached: ``parent`` is set, ``path`` leads from it up to the root. Otherwise the node is the root, or
    looks for a parent: then ``asked`` is the address that it asked last.
    """

    topic: bytes
    subscribed: bool = False
    hosting: bool = False
    home: str = ""
    parent: Peer | None = None
    path: tuple[str, ...] = ()
    children: dict[int, Child] = field(default_factory=dict)
    asked: str = ""
    tries: int = 0
    silent: set[int] = field(default_factory=set)
    behalf: tuple[str, ...] = ()
    shown: tuple[str | None, tuple[str, ...]] = (None, ())
    _numbers: OrderedDict[Peer, Numbers] = field(default_factory=OrderedDict)

    @property
    def idle(self) -> bool:
        """Whether nobody needs this node in the tree."""
        return not self.subscribed and not self.hosting and not self.children

    def place(self) -> tuple[str | None, tuple[str, ...]]:
        """Addresses of parent and children."""
        children = tuple(sorted(child.peer.address for child in self.children.values()))
        return (self.parent.address if self.parent else None, children)

    def attach(self, parent: Peer, path: tuple[str, ...]) -> None:
        """Hang below a parent, above which is ``path``."""
        self.parent = parent
        self.path = (parent.address, *path)
        self.asked = ""
        self.tries = 0
        self.silent.clear()

    def detach(self) -> None:
        """Be without a parent."""
        self.parent = None
        self.path = ()
        self.asked = ""
        self.tries = 0
        self.silent.clear()

    def accept(self, root: Peer, number: int, window: int) -> bool:
        """Note a multicast down; False if it was seen before."""
        numbers = self._numbers.setdefault(root, Numbers(window))
        while len(self._numbers) > _ROOTS_MAX:
            self._numbers.popitem(last=False)
        return numbers.accept(number)

    def check(self, me: str) -> None:
        """Raise OverlayBug unless the place is a possible one."""
        if (self.parent is None) != (self.path == ()) or (
            self.parent and self.path[0] != self.parent.address
        ):
            raise OverlayBug("path and parent differ")
        if self.hosting and self.parent is not None:
            raise OverlayBug("a home has a parent")
        if self.parent is not None and self.parent.id in self.children:
            raise OverlayBug(f"{self.parent.address} is parent and child")
        if me in self.path:
            raise OverlayBug(f"{me} is above itself")
        if self.idle:
            raise OverlayBug("a tree that nobody needs is kept")


def path_mark(path: tuple[str, ...]) -> int:
    """A checksum of a path, 32 bits."""
    return int.from_bytes(key_of("\n".join(path).encode())[:4], "big")
