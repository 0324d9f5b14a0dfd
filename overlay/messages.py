"""What overlay nodes say to each other.

Every message is a frozen dataclass of plain values (integers of at most 64 bits, text, bytes, tuples,
:class:`Peer`), so that any codec can write and check it from its annotations alone. Keys and topics are 16
bytes. ``sender`` is always the node that put the message on the wire, not the one that first thought of it;
hearing it proves that the sender lives.

Costs are for b = 4, a leaf set of 16 and addresses of about 20 bytes: a peer is about 25 bytes, a leaf set
400, a row 400.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from overlay.ids import KEY_BYTES, Peer

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


# -- trees ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Subscribe:
    """A node without a parent, to its next hop towards the topic, or (``direct``) a rendezvous to the topic's
    home: JOIN.

    ``path`` names the nodes below the sender on whose behalf it asks, so that loops are refused; ``home`` is
    empty when the topic has none that the sender knows. Sent on subscribing and after the loss of a parent,
    repeated until answered. About 100 bytes.
    """

    sender: Peer
    topic: bytes
    home: str
    direct: bool
    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Subscribed:
    """Answer to a :class:`Subscribe`: you are my child; above me is ``path``, up to the root. About 100
    bytes."""

    sender: Peer
    topic: bytes
    home: str
    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Refused:
    """Answer to a :class:`Subscribe`: not under me (``reason``: it would close a loop, or I am not the home).
    60 bytes."""

    sender: Peer
    topic: bytes
    reason: str


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """Child to (former) parent: nothing below me needs these topics from you any more. 20 bytes a topic,
    once."""

    sender: Peer
    topics: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class TopicMark:
    """A topic that the child still wants, and a checksum of the path that it believes to lie above it."""

    topic: bytes
    mark: int


@dataclass(frozen=True, slots=True)
class Refresh:
    """Child to each of its parents every ``tree_refresh_ms``, for all topics together. 30 bytes and 22 a
    topic."""

    sender: Peer
    topics: tuple[TopicMark, ...]


@dataclass(frozen=True, slots=True)
class TopicPath:
    """The path above a child in a topic, as its parent knows it now, and the topic's home (empty: none)."""

    topic: bytes
    home: str
    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Refreshed:
    """Answer to a :class:`Refresh`: paths that have changed, and topics in which the child is no child of
    mine.

    30 bytes in peace. It doubles as the parent's heartbeat.
    """

    sender: Peer
    paths: tuple[TopicPath, ...]
    unknown: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Multicast:
    """Root to its children, and every node to its own: a payload for all subscribers of a topic.

    ``number`` counts the root's multicasts in the topic from 1; with the root's incarnation it names the
    message, so that doubles are dropped and gaps can be seen. Costs the payload and about 80 bytes for each
    child.
    """

    sender: Peer
    topic: bytes
    root: Peer
    number: int
    payload: bytes


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
    | Multicast
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
    Multicast,
)


def well_formed(message: Message) -> bool:
    """Whether keys and topics have the length of a key; in what is decoded from a wire they may not."""
    match message:
        case Route():
            return len(message.key) == KEY_BYTES
        case Subscribe() | Subscribed() | Refused() | Multicast():
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
