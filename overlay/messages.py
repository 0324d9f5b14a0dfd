"""The messages between overlay nodes.

Every message is a frozen struct of plain values (integers of at most 64 bits, text, bytes, tuples,
:class:`Peer`), which msgspec writes and checks from the annotations alone (see ``fields``). Keys and topics
are 16 bytes. ``sender`` is always the node that put the message on the wire, not its originator; hearing the
message proves that the sender lives.

``stamp`` is the asker's clock when it asked, and comes back in the answer. The asker learns the round trip
and, if the answer says ``neighbour``, that the answerer took it for its ring neighbour at some moment after
the stamp (see ``lease``). ``NO_STAMP`` where there is none.

Costs are for b = 4, a leaf set of 24 and addresses of about 15 bytes: a peer is about 20 bytes, a leaf set
480, a row 300. An envelope on the wire adds about 80. The messages of trees are in ``treemessages``.
"""

from __future__ import annotations

from typing import Final

from overlay.fields import Number, Several, Text, Value
from overlay.ids import ID_BITS, KEY_BYTES, Peer
from overlay.treemessages import (
    Handover,
    Heard,
    Lost,
    Multicast,
    Refresh,
    Refreshed,
    Refused,
    Repair,
    Subscribe,
    Subscribed,
    Unsubscribe,
)

NO_STAMP: Final = -1

# -- joining and the ring ------------------------------------------------------------------------------------


class JoinRequest(Value, frozen=True):
    """Joiner to a contact, then hop by hop towards the joiner's own id; every hop adds the peers that it
    knows.

    Once a join (again every ``join_retry_ms``), about log16 N hops of at most 60 peers, 1500 bytes. ``token``
    asks for a :class:`HopAck`; 0 asks for none.
    """

    sender: Peer
    token: Number
    joiner: Peer
    hops: Number
    peers: Several[Peer]


class JoinReply(Value, frozen=True):
    """The node closest to the joiner, to the joiner: its leaf set, and the peers that the request collected.

    Once a join, about 2 KB.
    """

    sender: Peer
    leaves: Several[Peer]
    peers: Several[Peer]


class LeafProbe(Value, frozen=True):
    """To a (would-be) leaf-set member: here is my leaf set (clockwise from me), show me yours; I declared
    these dead lately.

    Sent to every candidate at a join, to all members after a ring neighbour's death or return, and to the
    member silent longest every ``leaf_exchange_ms``. About 600 bytes. Unanswered it is repeated and at last
    makes the peer dead.
    """

    sender: Peer
    leaves: Several[Peer]
    failed: Several[Peer]
    stamp: Number


class LeafReply(Value, frozen=True):
    """Answer to a :class:`LeafProbe`, of the same content, with its stamp. About 600 bytes.

    To a ring neighbour it grants a lease and tells what was ``delivered``, like a :class:`Pong`.
    """

    sender: Peer
    leaves: Several[Peer]
    failed: Several[Peer]
    stamp: Number
    neighbour: bool
    delivered: Several[RouteName] = ()


class RowRequest(Value, frozen=True):
    """To a table entry: here is my row, show me yours.

    Sent by a new node to all that it knows when it is ready (that is how others learn of it), to a live entry
    of a row that lost a member, and every ``row_exchange_ms`` to the entry silent longest or to a near node.
    ``place`` is the sender's locality label. At most 400 bytes.
    """

    sender: Peer
    row: Number
    peers: Several[Peer]
    stamp: Number
    place: Text


class RowReply(Value, frozen=True):
    """Answer to a :class:`RowRequest`: the same row of the sender, and the stamp. At most 400 bytes."""

    sender: Peer
    row: Number
    peers: Several[Peer]
    stamp: Number
    place: Text


class Leave(Value, frozen=True):
    """A node that leaves on purpose, to all it knows: forget me at once; ``leaves`` may fill the gap. Once,
    400 bytes."""

    sender: Peer
    leaves: Several[Peer]


# -- liveness ------------------------------------------------------------------------------------------------


class Heartbeat(Value, frozen=True):
    """To the two ring neighbours in turn, to each every ``heartbeat_ms``. 45 bytes.

    ``echo`` is the last stamp of the receiver, which came ``held_ms`` ago.
    """

    sender: Peer
    stamp: Number
    echo: Number
    held_ms: Number


class Ping(Value, frozen=True):
    """Are you there? To a suspect, a remembered dead peer, a new ring neighbour (for its grant), and a rival
    for a table cell (for its round trip, every ``tune_ms``). 35 bytes."""

    sender: Peer
    stamp: Number


class RouteName(Value, frozen=True):
    """The permanent name of a routed message."""

    origin: Peer
    number: Number


class Pong(Value, frozen=True):
    """Answer to a :class:`Ping`, with its stamp and the sender's locality label. 45 bytes.

    To a ring neighbour it grants a lease, and tells what the sender has ``delivered`` lately of the keys that
    are the neighbour's now (mostly nothing; 45 bytes each), so that a copy still under way is not delivered
    again.
    """

    sender: Peer
    stamp: Number
    neighbour: bool
    place: Text
    delivered: Several[RouteName] = ()


class ProbeRequest(Value, frozen=True):
    """To ``probe_helpers`` peers, among them the suspect's other ring neighbour: ask ``target`` for me, it
    does not answer. 50 bytes, when a first probe stays unanswered."""

    sender: Peer
    target: Peer


class ProbeReport(Value, frozen=True):
    """Answer to a :class:`ProbeRequest`: the target spoke (``alive``), or did not in ``probe_ms``. 55 bytes.

    ``watched``: the target owes me heartbeats, and the last one came ``silent_ms`` ago.
    """

    sender: Peer
    target: Peer
    alive: bool
    watched: bool
    silent_ms: Number


# -- routing -------------------------------------------------------------------------------------------------


class Route(Value, frozen=True):
    """A payload on its way to the live node closest to ``key``, hop by hop, each acknowledged.

    ``origin`` and ``number`` name the message permanently, so that a repeated one is delivered once. ``hops``
    counts the hops made before this one. Costs the payload and about 80 bytes a hop.
    """

    sender: Peer
    token: Number
    key: bytes
    origin: Peer
    number: Number
    hops: Number
    payload: bytes


class HopAck(Value, frozen=True):
    """Answer to one hop of a :class:`Route` or :class:`JoinRequest`: I have it, ``token`` may be forgotten.
    35 bytes."""

    sender: Peer
    token: Number


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
    | ProbeRequest
    | ProbeReport
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
    ProbeRequest,
    ProbeReport,
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
)


INCARNATION_MAX: Final = 1 << 53
PAYLOAD_BYTES_MAX: Final = 16 << 20
"""Of a routed or multicast message: many of them may wait at one node."""


def well_formed(message: Message) -> bool:
    """Whether keys and topics have the length of a key, and numbers and payloads are in their bounds; decoded
    messages may be wrong."""
    if not 0 <= message.sender.incarnation <= INCARNATION_MAX:
        return False
    match message:
        case Route():
            hops = message.hops >= 0 and len(message.payload) <= PAYLOAD_BYTES_MAX
            return hops and len(message.key) == KEY_BYTES
        case JoinRequest():
            return message.hops >= 0 and 0 <= message.joiner.incarnation <= INCARNATION_MAX
        case RowRequest() | RowReply():
            return 0 <= message.row < ID_BITS
        case Multicast() if len(message.payload) > PAYLOAD_BYTES_MAX:
            return False
        case Subscribe() | Subscribed() | Refused() | Handover() | Multicast() | Repair() | Lost() | Heard():
            return len(message.topic) == KEY_BYTES
        case Unsubscribe():
            return all(len(topic) == KEY_BYTES for topic in message.topics)
        case Refresh():
            return all(len(mark.topic) == KEY_BYTES for mark in message.topics)
        case Refreshed():
            return all(len(item.topic) == KEY_BYTES for item in message.paths) and all(
                len(topic) == KEY_BYTES for topic in (*message.unknown, *message.spare, *message.climb)
            )
        case _:
            return True
