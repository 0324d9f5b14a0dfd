"""What goes into the overlay (events) and what comes out (effects). Only the driver performs effects."""

from __future__ import annotations

from typing import Literal, Protocol

from msgspec import Struct

from overlay.ids import Peer
from overlay.messages import Message


class Rng(Protocol):
    """The random numbers that the overlay needs; ``random.Random`` provides them."""

    def random(self) -> float: ...

    def randrange(self, start: int, /) -> int: ...


class Received(Struct, frozen=True):
    """Event: a message has arrived."""

    message: Message


class Tick(Struct, frozen=True):
    """Event: the deadline that the overlay named has passed."""


Event = Received | Tick


class Send(Struct, frozen=True):
    """Effect: put the message on the wire to an address. It may be lost; the overlay repeats what must
    arrive."""

    to: str
    message: Message


class Delivered(Struct, frozen=True):
    """Effect: a routed payload ends here, at the live node closest to its key. ``origin`` is an address."""

    key: bytes
    payload: bytes
    origin: str
    hops: int


class Multicasted(Struct, frozen=True):
    """Effect: a payload from the root of a topic that this node subscribes to: each once, in the root's
    order."""

    topic: bytes
    payload: bytes


class Missed(Struct, frozen=True):
    """Effect: the multicasts ``first`` to ``last`` of a root of a topic that this node subscribes to are
    lost.

    They will not come any more. A late subscriber hears this about what the tree no longer keeps.
    """

    topic: bytes
    root: Peer
    first: int
    last: int


class Ready(Struct, frozen=True):
    """Effect, once a start: the node is part of the ring and answers for its keys."""


class JoinFailed(Struct, frozen=True):
    """Effect: no ring found through these contacts in ``join_timeout_ms``. ``start`` may be called again."""

    contacts: tuple[str, ...]
    reason: str


class PeerUp(Struct, frozen=True):
    """Effect: a peer has been heard for the first time, for the first time in this incarnation, or again
    after its death."""

    peer: Peer


class PeerDown(Struct, frozen=True):
    """Effect: a peer that was up has left, or is taken for dead (or has been replaced by a higher
    incarnation)."""

    peer: Peer
    reason: Literal["left", "crashed"]


class TreeChanged(Struct, frozen=True):
    """Effect: this node's place in a topic's tree has changed: addresses of parent (None: root, or orphan)
    and children."""

    topic: bytes
    parent: str | None
    children: tuple[str, ...]


Effect = Send | Delivered | Multicasted | Missed | Ready | JoinFailed | PeerUp | PeerDown | TreeChanged
