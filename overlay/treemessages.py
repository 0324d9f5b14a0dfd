"""The messages of trees between overlay nodes: plain values, as in ``messages``, which lists them all.

Costs are for addresses of about 20 bytes.
"""

from __future__ import annotations

from overlay.fields import Number, Several, Text, Value
from overlay.ids import Peer

# -- tree links ----------------------------------------------------------------------------------------------


class Head(Value, frozen=True):
    """Up to which number the multicasts of a root are settled with the sender: released, or lost."""

    root: Peer
    number: Number


class Subscribe(Value, frozen=True):
    """A node without a parent, to its next hop towards the topic, or (``direct``) a rendezvous to the topic's
    host, or (``pushed``) to the node to which a full or a leaving parent sent it: JOIN.

    ``path`` names the nodes below the sender on whose behalf it asks, so that loops are refused; ``host`` is
    empty when the topic has none that the sender knows; ``place`` is the sender's locality label. Sent on
    subscribing and after the loss of a parent, repeated until answered. About 100 bytes.
    """

    sender: Peer
    topic: bytes
    host: Text
    direct: bool
    pushed: bool
    path: Several[Text]
    place: Text = ""


class Subscribed(Value, frozen=True):
    """Answer to a :class:`Subscribe`: you are my child; above me is ``path``, up to the root, and so much is
    settled here. About 100 bytes, and 30 a root."""

    sender: Peer
    topic: bytes
    host: Text
    path: Several[Text]
    heads: Several[Head]


class Refused(Value, frozen=True):
    """Answer to a :class:`Subscribe`: not under me (``reason``: it would close a loop, I am not the host, or
    I am full: then ask ``instead``, a child of mine, if that is not empty). 80 bytes."""

    sender: Peer
    topic: bytes
    reason: Text
    instead: Text


class Unsubscribe(Value, frozen=True):
    """Child to (former) parent: nothing below me needs these topics from you any more. 20 bytes a topic,
    once."""

    sender: Peer
    topics: Several[bytes]


class TopicMark(Value, frozen=True):
    """A topic that the child still wants, a checksum of the path that it believes to lie above it and of
    what it has heard, and how many children it has there itself."""

    topic: bytes
    mark: Number
    below: Number = 0


class Refresh(Value, frozen=True):
    """Child to each of its parents every ``tree_refresh_ms``, for all topics together; with many parents once
    in ``every`` such periods. ``round`` is that of the last answer: all that the parent sent before it has
    come or is lost. 30 bytes and 23 a topic."""

    sender: Peer
    round: Number
    topics: Several[TopicMark]
    every: Number = 1


class TopicPath(Value, frozen=True):
    """The path above a child in a topic, as its parent knows it now, the topic's host (empty: none), and what
    is settled there."""

    topic: bytes
    host: Text
    path: Several[Text]
    heads: Several[Head]


class Refreshed(Value, frozen=True):
    """Answer to a :class:`Refresh`, and to all children when the path above changes: topics in which our
    marks differ, and those in which the child is no child of mine. ``round`` counts these answers.

    ``spare``: topics in which I have room for one of the child's children; ``climb``: those in which my
    parent has room for the child (see ``rebalancing``). 30 bytes in peace. It doubles as the parent's
    heartbeat.
    """

    sender: Peer
    round: Number
    paths: Several[TopicPath]
    unknown: Several[bytes]
    spare: Several[bytes] = ()
    climb: Several[bytes] = ()


class Handover(Value, frozen=True):
    """A node that leaves, to its children and its parent (a root: to the node that will be root):
    ``children`` are ``parent``'s now.

    Once, for each topic in which the leaving node has children; 50 bytes and 25 a child, to each of them. If
    it is lost the child finds a parent by routing, as after a crash, only at once.
    """

    sender: Peer
    topic: bytes
    parent: Peer
    children: Several[Peer]


# -- multicast -----------------------------------------------------------------------------------------------


class Multicast(Value, frozen=True):
    """Root to its children, and every node to its own: a payload for all subscribers of a topic. Also the
    answer to a :class:`Repair`, and, from a child, what its parent lacks.

    ``number`` counts the root's multicasts in the topic from 1; with the root's incarnation it names the
    message, so that doubles are dropped and gaps can be seen. Costs the payload and about 80 bytes for each
    child.
    """

    sender: Peer
    topic: bytes
    root: Peer
    number: Number
    payload: bytes


class Repair(Value, frozen=True):
    """Child to parent: send me these numbers again, at most ``repair_batch``. When the child sees that they
    are missing, repeated until they come or are lost. 70 bytes."""

    sender: Peer
    topic: bytes
    root: Peer
    first: Number
    last: Number


class Lost(Value, frozen=True):
    """Answer to a :class:`Repair`, beside the multicasts that can be had: these numbers can't. 70 bytes."""

    sender: Peer
    topic: bytes
    root: Peer
    first: Number
    last: Number


class Heard(Value, frozen=True):
    """Child to parent, every quarter of a window: your multicasts up to this one have come, send on. 60 bytes
    for every ``window_messages`` / 4 multicasts or ``window_bytes`` / 4 of payload."""

    sender: Peer
    topic: bytes
    root: Peer
    number: Number
