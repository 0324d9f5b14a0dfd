"""What overlay nodes say to each other.

Every message is a frozen dataclass of plain values (integers of at most 64 bits, text, bytes, tuples,
:class:`Peer`), so that any codec can write and check it from its annotations alone. Keys and topics are 16
bytes. ``sender`` is always the node that put the message on the wire, not the one that first thought of it;
hearing it proves that the sender lives.

Costs are for b = 4, a leaf set of 16 and addresses of about 20 bytes: a peer is about 25 bytes, a leaf set
400, a row 400. What is said in trees is in ``treemessages``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from overlay.ids import KEY_BYTES, Peer
from overlay.treemessages import (
    Anycast,
    AnycastAck,
    AnycastEnd,
    Handover,
    Head,
    Heard,
    Lost,
    Multicast,
    Refresh,
    Refreshed,
    Refused,
    Repair,
    Subscribe,
    Subscribed,
    TopicMark,
    TopicPath,
    Unsubscribe,
)

__all__ = [
    "MESSAGES",
    "Anycast",
    "AnycastAck",
    "AnycastEnd",
    "Handover",
    "Head",
    "Heard",
    "Heartbeat",
    "HopAck",
    "JoinReply",
    "JoinRequest",
    "LeafProbe",
    "LeafReply",
    "Leave",
    "Lost",
    "Message",
    "Multicast",
    "Ping",
    "Pong",
    "Refresh",
    "Refreshed",
    "Refused",
    "Repair",
    "Route",
    "RowReply",
    "RowRequest",
    "Subscribe",
    "Subscribed",
    "TopicMark",
    "TopicPath",
    "Unsubscribe",
    "well_formed",
]

# -- joining and the ring ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """Joiner to a contact, then hop by hop towards the joiner's own id; every hop adds the peers that it
    knows.

    Once a join (again every ``join_retry_ms``), about log16 N hops of at most 60 peers, 1500 bytes. ``token``
    asks for a :class:`HopAck`; 0 asks for none.
    """

    sender: Peer
    token: int
    joiner: Peer
    hops: int
    peers: tuple[Peer, ...]


@dataclass(frozen=True, slots=True)
class JoinReply:
    """The node closest to the joiner, to the joiner: its leaf set, and the peers that the request collected.

    Once a join, about 2 KB.
    """

    sender: Peer
    leaves: tuple[Peer, ...]
    peers: tuple[Peer, ...]


@dataclass(frozen=True, slots=True)
class LeafProbe:
    """To a (would-be) leaf-set member: here is my leaf set (clockwise from me), show me yours; these I
    buried lately.

    Sent to every candidate at a join, to all members after a death, and to the member silent longest every
    ``leaf_exchange_ms``. At most 500 bytes. Unanswered it is repeated and in the end makes the peer dead.
    """

    sender: Peer
    leaves: tuple[Peer, ...]
    failed: tuple[Peer, ...]


@dataclass(frozen=True, slots=True)
class LeafReply:
    """Answer to a :class:`LeafProbe`, of the same content. At most 500 bytes."""

    sender: Peer
    leaves: tuple[Peer, ...]
    failed: tuple[Peer, ...]


@dataclass(frozen=True, slots=True)
class RowRequest:
    """To a table entry: here is my row, show me yours.

    Sent by a new node to all that it knows when it is ready (that is how others learn of it), to a live entry
    of a row that lost a member, and to the entry silent longest every ``row_exchange_ms``. At most 400 bytes.
    """

    sender: Peer
    row: int
    peers: tuple[Peer, ...]


@dataclass(frozen=True, slots=True)
class RowReply:
    """Answer to a :class:`RowRequest`: the same row of the sender. At most 400 bytes."""

    sender: Peer
    row: int
    peers: tuple[Peer, ...]


@dataclass(frozen=True, slots=True)
class Leave:
    """A node that goes on purpose, to all it knows: forget me at once; ``leaves`` may fill the gap. Once, 400
    bytes."""

    sender: Peer
    leaves: tuple[Peer, ...]


# -- liveness ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """To the two ring neighbours, whenever nothing else was said to them for ``heartbeat_ms``. 30 bytes."""

    sender: Peer


@dataclass(frozen=True, slots=True)
class Ping:
    """To a suspect, or to a remembered dead peer: are you there? 30 bytes."""

    sender: Peer


@dataclass(frozen=True, slots=True)
class Pong:
    """Answer to a :class:`Ping`. 30 bytes."""

    sender: Peer


# -- routing -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Route:
    """A payload on its way to the live node closest to ``key``, hop by hop, each acknowledged.

    ``origin`` and ``number`` name the message for ever, so that a repeated one is delivered once. ``hops``
    counts the hops made before this one. Costs the payload and about 80 bytes a hop.
    """

    sender: Peer
    token: int
    key: bytes
    origin: Peer
    number: int
    hops: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class HopAck:
    """Answer to one hop of a :class:`Route` or :class:`JoinRequest`: I have it, ``token`` may be forgotten.
    35 bytes."""

    sender: Peer
    token: int


Message = (
    JoinRequest
    | JoinReply
    | LeafProbe
    | LeafReply
    | RowRequest
    | RowReply
    | Leave
    | Heartbeat
    | Ping
    | Pong
    | Route
    | HopAck
    | Subscribe
    | Subscribed
    | Refused
    | Unsubscribe
    | Refresh
    | Refreshed
    | Handover
    | Multicast
    | Repair
    | Lost
    | Heard
    | Anycast
    | AnycastAck
    | AnycastEnd
)

MESSAGES: Final[tuple[type[Message], ...]] = (
    JoinRequest,
    JoinReply,
    LeafProbe,
    LeafReply,
    RowRequest,
    RowReply,
    Leave,
    Heartbeat,
    Ping,
    Pong,
    Route,
    HopAck,
    Subscribe,
    Subscribed,
    Refused,
    Unsubscribe,
    Refresh,
    Refreshed,
    Handover,
    Multicast,
    Repair,
    Lost,
    Heard,
    Anycast,
    AnycastAck,
    AnycastEnd,
)


def well_formed(message: Message) -> bool:
    """Whether keys and topics have the length of a key; in what is decoded from a wire they may not."""
    match message:
        case Route():
            return len(message.key) == KEY_BYTES
        case Subscribe() | Subscribed() | Refused() | Handover() | Multicast() | Repair() | Lost() | Heard():
            return len(message.topic) == KEY_BYTES
        case Unsubscribe():
            return all(len(topic) == KEY_BYTES for topic in message.topics)
        case Refresh():
            return all(len(mark.topic) == KEY_BYTES for mark in message.topics)
        case Refreshed():
            return all(len(item.topic) == KEY_BYTES for item in message.paths) and all(
                len(topic) == KEY_BYTES for topic in message.unknown
            )
        case _:
            return True
