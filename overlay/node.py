"""One node of the overlay: events in, effects out. Composes ring, routing, trees and life cycle; holds none
of their logic."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import assert_never

from overlay.config import OverlayConfig
from overlay.context import Context, Timer
from overlay.effects import Effect, Event, Received, Rng
from overlay.errors import OverlayBug
from overlay.forwarding import Forwarding
from overlay.ids import Peer, node_id, to_int
from overlay.joining import Joining, State, Step
from overlay.messages import (
    Heartbeat,
    HopAck,
    JoinReply,
    JoinRequest,
    LeafProbe,
    LeafReply,
    Leave,
    Message,
    Ping,
    Pong,
    ProbeReport,
    ProbeRequest,
    Route,
    RowReply,
    RowRequest,
    well_formed,
)
from overlay.pastry import Pastry
from overlay.regions import Regions, Way
from overlay.scribe import Scribe
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

_EVENTS_KEPT = 32
_RUNNING = (State.JOINING, State.READY)


class Overlay:
    """A node of the Pastry ring and of Scribe trees, without clock, sockets or random generator of its own.

    Every call takes ``now_ms`` (integer milliseconds of any monotonic clock) and returns effects, to be
    performed in order. ``deadline()`` is the time at which the node wants a ``Tick``, if nothing else happens
    before. Keys and topics are 16 bytes; ValueError for anything else.
    """

    def __init__(self, me: Peer, config: OverlayConfig, rng: Rng, place: str = "") -> None:
        """``place``: where the node stands, ``region/rack``; among peers equally far it prefers its own."""
        self._context = Context(me, config, rng, place)
        self._joining = Joining(self._context)
        self._pastry = Pastry(self._context)
        self._forwarding = Forwarding(self._context, self._pastry)
        self._scribe = Scribe(self._context, self._pastry)
        self._events: deque[tuple[int, str, str]] = deque(maxlen=_EVENTS_KEPT)
        self._malformed = 0
        self._leaf_changes = 0

    # -- life ------------------------------------------------------------------------------------------------

    def start(self, contacts: Sequence[str], now_ms: int) -> list[Effect]:
        """Join the ring of any of these addresses; without one (our own does not count) form a ring alone,
        ready at once.

        May be called again after JoinFailed. OverlayError if called again at any other time.
        """
        self._at(now_ms)
        if self._joining.state is State.FAILED:
            self._pastry.abandon()
            self._scribe.resume()
        self._joining.start(contacts)
        self._pastry.schedule()
        self._scribe.maintenance.schedule()
        if self.ready:
            self._open()
        return self._take()

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """A message has come, or the deadline has passed."""
        self._at(now_ms)
        if self._joining.state not in _RUNNING:
            return []
        if isinstance(event, Received):
            self._receive(event.message)
        else:
            self._tick()
        self._spread()
        return self._take()

    def deadline(self) -> int | None:
        """When the node wants its next Tick, in ms; None before start and after the end."""
        if self._joining.state not in _RUNNING:
            return None
        return self._context.timers.next()

    def leave(self, now_ms: int) -> list[Effect]:
        """Leave: tell all that may know us, then be silent for ever. A second call does nothing."""
        self._at(now_ms)
        if self._joining.state is State.LEFT:
            return []
        if self._joining.state in _RUNNING:
            self._scribe.links.leave()
            self._pastry.leave(self._scribe.neighbours())
        farewell = self._take()
        self._joining.step(Step.LEAVE)
        self._context.timers.clear()
        return farewell

    # -- keys and topics -------------------------------------------------------------------------------------

    def route(self, key: bytes, payload: bytes, now_ms: int) -> list[Effect]:
        """Send a payload to the live node closest to the key (perhaps ourselves), which gets Delivered. Held
        until ready."""
        self._at(now_ms)
        to_int(key)
        self._forwarding.route(key, payload)
        return self._take()

    def subscribe(self, topic: bytes, now_ms: int, host: str | None = None) -> list[Effect]:
        """Take part in a topic, whose root is ``host``, or without one the node closest to it."""
        self._at(now_ms)
        self._scribe.subscribe(topic, host)
        return self._take()

    def unsubscribe(self, topic: bytes, now_ms: int) -> list[Effect]:
        """Stop taking part."""
        self._at(now_ms)
        self._scribe.unsubscribe(topic)
        return self._take()

    def host(self, topic: bytes, now_ms: int) -> list[Effect]:
        """Be the topic's host: its root, wherever on the ring it is. Others name us as ``host`` when they
        subscribe."""
        self._at(now_ms)
        self._scribe.host(topic)
        return self._take()

    def unhost(self, topic: bytes, now_ms: int, host: str = "") -> list[Effect]:
        """Stop being its host; ``host`` is, if any."""
        self._at(now_ms)
        self._scribe.unhost(topic, host)
        return self._take()

    def rehost(self, topic: bytes, host: str, now_ms: int) -> list[Effect]:
        """If we are in the topic's tree: its host is another node now. The application of every node of the
        tree must say so, as it knows the newest host; the tree itself says what it heard first."""
        self._at(now_ms)
        self._scribe.rehost(topic, host)
        return self._take()

    def multicast(self, topic: bytes, payload: bytes, now_ms: int) -> list[Effect]:
        """Send a payload to all subscribers, ourselves included if we are one. NotRoot unless
        ``is_root(topic)``."""
        self._at(now_ms)
        self._scribe.multicast(topic, payload)
        return self._take()

    def seek(self, addresses: Iterable[str], now_ms: int) -> list[Effect]:
        """An application that keeps a list of who should be in the ring passes it here: of those that would
        be leaves of ours, and are not, one is called. After a partition of more than ``dead_forget_ms``
        nobody remembers the other side, and the ring would stay in two parts."""
        self._at(now_ms)
        if self.ready:
            self._pastry.seek(addresses)
        return self._take()

    def know_places(self, places: Mapping[str, str]) -> None:
        """An application that keeps a list of who stands where (``region/rack``, by address) passes it here:
        where it names two regions or more, trees with a host cross a border once (``overlay.regions``). Nodes
        move to their new places with their next refreshes."""
        self._scribe.regions.know(places)

    def know_ways(self, ways: Mapping[bytes, Way]) -> None:
        """The ways of all topics whose trees go over other regions (``overlay.regions.Way``); as above."""
        self._scribe.regions.go(ways)

    # -- questions -------------------------------------------------------------------------------------------

    @property
    def me(self) -> Peer:
        return self._context.me

    @property
    def ready(self) -> bool:
        return self._joining.state is State.READY

    @property
    def state(self) -> State:
        return self._joining.state

    @property
    def dropped(self) -> int:
        """Messages dropped for good: malformed ones, and routed ones beyond the bounds of the config."""
        return self._malformed + self._forwarding.dropped

    def rtt_ms(self, address: str) -> float | None:
        """The smoothed round trip to an address; None if it was not measured lately."""
        return self._pastry.proximity.rtt_ms(node_id(address))

    def place_of(self, address: str) -> str:
        """Where a peer says that it stands, ``region/rack``; "" if it never told us."""
        return self._pastry.proximity.place(node_id(address))

    @property
    def regions(self) -> Regions:
        """Who stands where, as ``know_places`` was told."""
        return self._scribe.regions

    def neighbourhood(self) -> tuple[Peer, ...]:
        """The nearest live peers by round trip, nearest first."""
        return self._pastry.neighbourhood()

    def acts_for(self, key: bytes, now_ms: int) -> bool:
        """Whether a key that came now would be delivered here: we are ready, closest, and hold the leases of
        both ring neighbours. Never true at two live nodes that can reach each other."""
        self._at(now_ms)
        leased = self.ready and self._pastry.neighbours.leases.held()
        return leased and self.next_hop(key).id == self._context.id

    def peers(self) -> tuple[Peer, ...]:
        """The live peers that we watch (leaf set, routing table, tree neighbours), by address.

        In a ring of at most ``leaf_set_size`` other nodes these are all nodes.
        """
        needed = self._needed()
        live = self._pastry.liveness.live.values()
        return tuple(sorted((peer for peer in live if peer.id in needed), key=lambda peer: peer.address))

    @property
    def sees_all(self) -> bool:
        """Whether ``peers`` are all other nodes of the ring, for certain."""
        return not self._pastry.leaves.full

    def leaf_set(self) -> tuple[Peer, ...]:
        """The leaf set, clockwise from us."""
        return tuple(self._pastry.leaves)

    def next_hop(self, key: bytes) -> Peer:
        """The node to which we would pass a key; ourselves if it ends here."""
        return self._pastry.next_hop(to_int(key))

    def topics(self) -> tuple[bytes, ...]:
        """The topics in whose trees we are: subscribed, hosted, or forwarded for others."""
        return self._scribe.topics()

    def is_root(self, topic: bytes) -> bool:
        """Whether a multicast of the topic starts here, as far as we know.

        It asks for no lease, unlike :meth:`acts_for`, and two nodes may say yes for a moment: multicasts are
        numbered by their root, so two of them confuse nobody, while a root that paused for a lease would be
        silent at each join beside it. Ask ``acts_for`` before deciding something that only one may decide.
        """
        return self._scribe.is_root(topic)

    def parent(self, topic: bytes) -> str | None:
        """Address of our parent in the topic's tree."""
        tree = self._scribe.tree(topic)
        return tree.parent.address if tree is not None and tree.parent is not None else None

    def children(self, topic: bytes) -> tuple[str, ...]:
        """Addresses of our children in the topic's tree, sorted."""
        tree = self._scribe.tree(topic)
        return tree.place()[1] if tree is not None else ()

    def path(self, topic: bytes) -> tuple[str, ...]:
        """Addresses above us in the topic's tree, parent first, root last, as last heard; its length is our
        depth."""
        tree = self._scribe.tree(topic)
        return tree.path if tree is not None else ()

    def check(self) -> None:
        """Raise OverlayBug, with the last events, if an invariant of a running node is broken."""
        if self._joining.state not in _RUNNING:
            return
        try:
            self._pastry.check()
            self._scribe.check()
        except OverlayBug as bug:
            raise OverlayBug(f"{self.me}: {bug}; last events: {list(self._events)}") from bug

    # -- the parts -------------------------------------------------------------------------------------------

    def _at(self, now_ms: int) -> None:
        self._context.now = max(self._context.now, now_ms)

    def _take(self) -> list[Effect]:
        self._scribe.links.show()
        effects = self._context.take()
        return [] if self._joining.state is State.LEFT else effects

    def _open(self) -> None:
        self._pastry.introduce()
        self._forwarding.open()
        self._scribe.open()

    def _needed(self) -> set[int]:
        return self._pastry.needed() | {peer.id for peer in self._scribe.neighbours()}

    def _receive(self, message: Message) -> None:
        sender = message.sender
        self._events.append((self._context.now, type(message).__name__, sender.address))
        if not well_formed(message):
            self._malformed += 1
            return
        if sender.address == self.me.address or isinstance(message, Leave):
            if isinstance(message, Leave) and sender.address != self.me.address:
                self._pastry.left(message)
            return
        known = self._pastry.liveness.live.get(sender.id)
        kind = type(message)
        if not self._pastry.hear(sender, joining=kind is JoinRequest, showing=kind is LeafProbe):
            return
        if known != sender:
            self._spread_gone()
            self._scribe.links.returned(sender.address)
        self._dispatch(message)

    def _dispatch(self, message: Message) -> None:
        match message:
            case Heartbeat():
                self._pastry.neighbours.heartbeat(message)
            case Ping():
                self._pastry.neighbours.ping(message)
            case Pong():
                self._forwarding.delivered_before(message.delivered)
                self._pastry.neighbours.pong(message)
            case ProbeRequest():
                self._pastry.neighbours.indirect_probes.asked(message)
            case ProbeReport():
                self._pastry.liveness.reported(message)
            case LeafProbe():
                self._pastry.leaf_probe(message)
            case LeafReply():
                self._forwarding.delivered_before(message.delivered)
                self._pastry.leaf_reply(message)
            case RowRequest():
                self._pastry.row_request(message)
            case RowReply():
                self._pastry.row_reply(message)
            case JoinRequest():
                self._pastry.superseded(message.joiner)
                self._forwarding.receive(message)
            case JoinReply():
                self._joining.reply(message, self._pastry)
            case Route():
                self._forwarding.receive(message)
            case HopAck():
                self._forwarding.acknowledged(message)
            case Subscribe():
                self._scribe.links.subscribe_message(message)
            case Subscribed():
                self._scribe.links.subscribed_message(message)
            case Refused():
                self._scribe.links.refused_message(message)
            case Unsubscribe():
                self._scribe.links.unsubscribe_message(message.topics, message.sender)
            case Refresh():
                self._scribe.maintenance.refresh_message(message)
            case Refreshed():
                self._scribe.maintenance.refreshed_message(message)
            case Handover():
                self._scribe.links.handover_message(message)
            case Multicast():
                self._scribe.multicast_message(message)
            case Repair():
                self._scribe.repair_message(message)
            case Lost():
                self._scribe.lost_message(message)
            case Heard():
                self._scribe.heard_message(message)
            case Leave():
                raise OverlayBug("a farewell is handled before its sender is heard")
            case _:
                assert_never(message)

    def _tick(self) -> None:
        now = self._context.now
        while (due := self._context.timers.pop_due(now)) is not None:
            timer, at_ms = due
            self._events.append((now, "due", timer[0]))
            late_ms = now - at_ms
            self._pastry.neighbours.ticked(late_ms)
            self._run(timer, late=late_ms > self._context.config.probe_ms)
            self._spread_gone()

    def _run(self, timer: Timer, late: bool) -> None:
        kind, of = timer
        if isinstance(of, bytes):
            self._scribe.due(kind, of)
            return
        match kind:
            case "beat":
                self._pastry.neighbours.beat(self._scribe.maintenance.owed(), late)
            case "probe":
                self._pastry.probe_due(of, late)
            case "indirect probe":
                self._pastry.neighbours.indirect_probes.due(of, late)
            case "lease":
                self._pastry.neighbours.leases.settle()
            case "tune":
                self._pastry.tune_due()
            case "hop":
                self._forwarding.hop_due(of)
            case "refresh":
                self._scribe.maintenance.due(late)
            case "leaf":
                self._pastry.leaf_due(self._joining.contacts)
            case "row":
                self._pastry.row_due()
            case "dead":
                self._pastry.dead_due(self._needed())
            case "news":
                self._pastry.news_due()
            case "join":
                self._joining.retry_due(self._pastry)
            case "give-up":
                self._joining.give_up_due()
            case _:
                raise OverlayBug(f"nobody set the deadline {kind}")

    def _spread_gone(self) -> None:
        """Let routing and trees know which peers are gone."""
        while gone := self._pastry.take_gone():
            for peer in gone:
                self._forwarding.gone(peer)
                self._scribe.links.gone(peer)

    def _spread(self) -> None:
        """What one event leads to elsewhere in the node."""
        self._spread_gone()
        if self._joining.settle(self._pastry):
            self._open()
        if self._leaf_changes != self._pastry.leaves.changes:
            self._leaf_changes = self._pastry.leaves.changes
            self._pastry.neighbours.leases.settle()
            self._pastry.neighbours.leaves_changed()
            self._forwarding.reconsider()
            self._scribe.settle()
        elif self._forwarding.waiting and self._pastry.neighbours.leases.held():
            self._forwarding.reconsider()
