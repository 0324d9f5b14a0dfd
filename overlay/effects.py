"""What goes into the overlay (events) and what comes out (effects). Only the driver performs effects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from overlay.ids import Peer
from overlay.messages import Message


class Rng(Protocol):
    """The random numbers that the overlay needs; ``random.Random`` provides them."""

    def random(self) -> float: ...

    def randrange(self, start: int, /) -> int: ...


@dataclass(frozen=True, slots=True)
class Received:
    """Event: a message has arrived."""

    message: Message


@dataclass(frozen=True, slots=True)
class Tick:
    """Event: the deadline that the overlay named has passed."""


Event = Received | Tick


@dataclass(frozen=True, slots=True)
class Send:
    """Effect: put the message on the wire to an address. It may be lost; the overlay repeats what must
    arrive."""

    to: str
    message: Message


@dataclass(frozen=True, slots=True)
class Delivered:
    """Effect: a routed payload ends here, at the live node closest to its key. ``origin`` is an address."""

    key: bytes
    payload: bytes
    origin: str
    hops: int


@dataclass(frozen=True, slots=True)
class Multicasted:
    """Effect: a payload from the root of a topic that this node subscribes to: each once, in the root's
    order."""

    topic: bytes
    payload: bytes


@dataclass(frozen=True, slots=True)
class Missed:
    """Effect: the multicasts ``first`` to ``last`` of a root of a topic that this node subscribes to are
    lost.

    They will not come any more. A late subscriber hears this about what the tree no longer keeps.
    """

    topic: bytes
    root: Peer
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Ready:
    """Effect, once a start: the node is part of the ring and answers for its keys."""


@dataclass(frozen=True, slots=True)
class JoinFailed:
    """Effect: no ring found through these contacts in ``join_timeout_ms``. ``start`` may be called again."""

    contacts: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class PeerUp:
    """Effect: a peer has been heard for the first time, for the first time in this incarnation, or again
    after its death."""

    peer: Peer


@dataclass(frozen=True, slots=True)
class PeerDown:
    """Effect: a peer that was up has left, or is taken for dead (or has been replaced by a higher
    incarnation)."""

    peer: Peer
    reason: Literal["left", "crashed"]


@dataclass(frozen=True, slots=True)
class TreeChanged:
    """Effect: this node's place in a topic's tree has changed: addresses of parent (None: root, or orphan)
    and children."""

    topic: bytes
    parent: str | None
    children: tuple[str, ...]


Effect = Send | Delivered | Multicasted | Missed | Ready | JoinFailed | PeerUp | PeerDown | TreeChanged
