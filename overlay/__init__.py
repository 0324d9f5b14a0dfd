"""The overlay of elf: a Pastry ring and Scribe trees, as a pure state machine.

The reader is expected to have read the Pastry paper once.

**Ids.** A node's id is the first 128 bits of SHA-1 of its advertised address (``ids``); keys and topics are
16 bytes that the application hashed. Ids are read in base 16. A key belongs to the live node numerically
closest to it.

**Ring.** Each node keeps a *leaf set* (``leafset``: the 12 nodes next to it on each side) and a *routing
table* (``routing``: for each digit position a node for each other digit). ``pastry`` keeps both correct. A
key inside the span of the leaf set goes straight to the closest leaf; any other to a node that shares one
digit more with it. So a route takes about log16 N hops and ends at the closest node. A node enters a leaf set
only by speaking for itself. What others say of it (hearsay) leads at most to a question, or to an entry in an
empty table cell, where a wrong entry costs only a timeout.

**Joining** (``joining``). A request is routed from any contact to the node closest to the joiner, collecting
table rows on its way. That node shows its leaf set. The joiner asks every leaf for its own, and any nearer
nodes that these name, until nothing new comes. Then all its leaves know it, and it is ready. The order of
joins does not matter.

**Living and dying** (``liveness``, ``neighbours``). A node speaks to one ring neighbour and the other in
turn, to each once a second; parents and children in trees hear from each other as often, or, where a node has
more than 64 parents, every four seconds at least (``turns``), and are missed that much later; any message is
a sign of life. 1.4 s of silence make a suspect. It is probed, the second time through three others as well
(``IndirectProbes``), among them its other ring neighbour: the way between two may be all that is broken. Any
word of it, heard by anybody, refutes the suspicion. Otherwise it is dead 3.2 s after its last word, or 2.7 s
if both ring neighbours heard nothing: within 3 s of the crash, while one that stalls for 2 s lives. A node
that is slow or cut off itself waits longer (``health``). The leaf set of the dead is told, and each member
looks for itself. A peer that *left* is gone; one that *crashed* is remembered and asked now and then, so that
a healed partition or a founder restarted alone finds back into one ring. A start at the same address has a
higher *incarnation*, which replaces the lower one at once.

**One master a key** (``lease``). A node delivers only while both ring neighbours have lately taken it for
their neighbour. The grants are sent with heartbeats and expire before another node may take over, by the
clock of the holder. So a node that wakes from sleep does not act, and a new node waits one round trip for its
grants.

**Nearness** (``proximity``). Every answer is a measured round trip. Rivals for a table cell are
measured, and the clearly nearer one holds it; where the clock sees no difference the labels of region and
rack decide. The nearest of all peers, the neighbourhood set, are asked for their rows, since near nodes know
near nodes.

**Routing** (``forwarding``). Each hop is acknowledged. A silent hop is routed around, except the closest
leaf, which alone may deliver: it is asked again until it answers or is dead. So a message is delivered at the
closest live node, when that holds its leases.

**Trees** (``scribe``: ``treelinks``, ``maintenance``, ``multicasts``). A JOIN goes hop by hop
towards the topic and leaves a children table at each forwarder. The closest node is the root, or, when the
topic has a *host* elsewhere, an inner node whose parent is the host. Nobody has more than ``fanout_max``
children: a full node sends an asker on to one of them, in its own rack or region if it can, and when there is
room again grandchildren come up. A child refreshes its tree links every second; if its parent dies it joins
anew, if its parent leaves it is handed to the parent above (a root's children to the node that will be root).

**Multicasts** go down and are numbered by their root, from 1 in each incarnation. Each subscriber gets each
number once and in that root's order (``Multicasted``), or is told that it is lost (``Missed``): nothing is
lost silently, and between two roots there is no order. A node keeps the last ``kept_max`` of a topic
(``history``). A node that misses one notices it by the next one, or by the checksum that refreshes compare,
and asks its parent. A node that knows more than its parent tells it, so all hear what a dying root told one
child. A new node gets what is kept, after a ``Missed`` for what was before. At most a window is under way to
a child (``Flight``); a slow child repairs the rest later, and costs its parent nothing.

**Raft groups** (``raft``, a package of its own). Up to five nodes keep a small log of what a root or a master
must never forget.

**Use** (``node``). Everything is a call of :class:`Overlay` with the time in ms, and returns effects::

    overlay = Overlay(Peer("10.0.0.7:7400", incarnation=3), OverlayConfig(), random.Random(), "eu/r1")
    perform(overlay.start(["10.0.0.1:7400"], now_ms))
    perform(overlay.handle(Received(message), now_ms))
    if overlay.deadline() <= now_ms: perform(overlay.handle(Tick(), now_ms))

**Never here**: sockets, threads, clocks, a random generator of its own, or anything else of elf.
"""

from overlay.config import OverlayConfig
from overlay.effects import (
    Delivered,
    Effect,
    Event,
    JoinFailed,
    Missed,
    Multicasted,
    PeerDown,
    PeerUp,
    Ready,
    Received,
    Rng,
    Send,
    Tick,
    TreeChanged,
)
from overlay.errors import NotRoot, OverlayBug, OverlayError
from overlay.ids import Peer, key_of, node_id
from overlay.joining import State
from overlay.node import Overlay

__all__ = [
    "Delivered",
    "Effect",
    "Event",
    "JoinFailed",
    "Missed",
    "Multicasted",
    "NotRoot",
    "Overlay",
    "OverlayBug",
    "OverlayConfig",
    "OverlayError",
    "Peer",
    "PeerDown",
    "PeerUp",
    "Ready",
    "Received",
    "Rng",
    "Send",
    "State",
    "Tick",
    "TreeChanged",
    "key_of",
    "node_id",
]
