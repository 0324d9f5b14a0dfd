"""A world of real overlay nodes on virtual time, from one seed: a heap of (time, sequence, event).

Messages take the time that a latency model says, and may be lost, doubled, cut off by a partition, or wait
for a node that is stalled. Nodes crash, restart and leave when the script says so. Two runs with equal seeds
and calls make the same history, and the same ``fingerprint``. All chance comes from the ``rng`` that the
caller passes.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from sortedcontainers import SortedDict

from lab.overlay.virtual import VirtualWorld
from overlay.config import OverlayConfig
from overlay.effects import Delivered, Effect, JoinFailed, Multicasted, Ready, Received, Rng, Send, Tick
from overlay.errors import OverlayError
from overlay.ids import Peer, node_id
from overlay.messages import Message
from overlay.node import Overlay

Latency = Callable[[str, str, Rng], int]
"""Milliseconds that a message takes from one address to another."""


Weigh = Callable[[Message], int]
"""Bytes of a message on the wire."""


def constant(ms: int) -> Latency:
    """The same everywhere."""
    return lambda _source, _target, _rng: ms


def plane(width_ms: int) -> Latency:
    """Addresses are points on a square that a message crosses in ``width_ms``; a tenth of jitter on top."""

    def latency(source: str, target: str, rng: Rng) -> int:
        (left, low), (right, high) = point(source), point(target)
        apart = math.hypot(left - right, low - high)
        return max(1, round(width_ms * apart * (1 + 0.1 * rng.random())))

    return latency


def matrix(place_of: Callable[[str], str], ms: Mapping[tuple[str, str], int]) -> Latency:
    """By the places (regions, racks) of both ends, named once in either order; a tenth of jitter on top."""

    def latency(source: str, target: str, rng: Rng) -> int:
        ends = place_of(source), place_of(target)
        apart = ms[ends] if ends in ms else ms[ends[1], ends[0]]
        return max(1, round(apart * (1 + 0.1 * rng.random())))

    return latency


@lru_cache(maxsize=1 << 16)
def point(address: str) -> tuple[float, float]:
    spot = node_id("place of " + address)
    return (spot & 0xFFFF) / 0x10000, (spot >> 16 & 0xFFFF) / 0x10000


@dataclass
class Inhabitant:
    """A node of the world, and what has come out of it."""

    overlay: Overlay
    alive: bool = True
    stalled_until: int = 0
    wake: int | None = None
    ready_at: int | None = None
    effects: list[Effect] = field(default_factory=list)


@dataclass(frozen=True)
class Delivery:
    """A routed payload that ended at ``at``."""

    at: str
    time: int
    effect: Delivered


_Event = tuple[Overlay, Message | None]
"""For whom, and what has come; None: its deadline, perhaps."""


class Simulator(VirtualWorld[_Event]):
    """The world. ``now`` is virtual milliseconds; with ``check`` every node checks itself after each of its
    events."""

    def __init__(
        self,
        rng: Rng,
        config: OverlayConfig | None = None,
        latency: Latency | None = None,
        *,
        loss: float = 0.0,
        doubling: float = 0.0,
        service_ms: int = 0,
        weigh: Weigh | None = None,
        place_of: Callable[[str], str] = lambda _: "",
        check: bool = False,
    ) -> None:
        super().__init__()
        self.rng = rng
        self.loss = loss
        self.doubling = doubling
        self.service_ms = service_ms
        """What a node takes for each message: meanwhile others wait. A machine of 2 cores with 64 nodes that
        take 1 ms each is 32."""
        self.nodes: dict[str, Inhabitant] = {}
        self.ring: SortedDict[int, Overlay] = SortedDict()
        """The running nodes by id."""
        self.messages: Counter[str] = Counter()
        self.bytes = 0
        """What all messages weighed, while there is a ``weigh``."""
        self.weigh = weigh
        self._cut: set[tuple[str, str]] = set()
        self.on_delivery: Callable[[str, Delivered], None] | None = None
        """Called at each delivery, with the address where it is."""
        self.deliveries: list[Delivery] = []
        self.multicasts: Counter[tuple[str, bytes, bytes]] = Counter()
        """How often (address, topic, payload) has come out."""
        self._config = config or OverlayConfig()
        self._latency = latency or constant(1)
        self._place_of = place_of
        self._check = check
        self._trace = hashlib.sha1(usedforsecurity=False)

    # -- the script ------------------------------------------------------------------------------------------

    def add(self, address: str, contacts: Sequence[str] = ()) -> Overlay:
        """Start a node; at a known address it is a restart, with the next incarnation."""
        before = self.nodes.get(address)
        if before is not None and before.alive:
            raise OverlayError(f"{address} is running")
        incarnation = before.overlay.me.incarnation + 1 if before else 1
        overlay = Overlay(Peer(address, incarnation), self._config, self.rng, self._place_of(address))
        self.nodes[address] = Inhabitant(overlay)
        self.ring[overlay.me.id] = overlay
        self.perform(address, overlay.start(contacts, self.now))
        return overlay

    def crash(self, address: str) -> None:
        """The node stops between two instructions."""
        self._end(address)

    def leave(self, address: str) -> None:
        """The node goes on purpose."""
        self.perform(address, self.nodes[address].overlay.leave(self.now))
        self._end(address)

    def stall(self, address: str, for_ms: int) -> None:
        """The node does nothing for a while; what comes in waits."""
        self.nodes[address].stalled_until = self.now + for_ms

    def cut(self, source: str, target: str) -> None:
        """Messages from one node to another are lost, those the other way are not."""
        self._cut.add((source, target))

    def heal(self) -> None:
        """The partition is over, and no way is cut."""
        super().heal()
        self._cut.clear()

    def perform(self, address: str, effects: list[Effect]) -> None:
        """Do what a node at that address asks for, in order."""
        node = self.nodes[address]
        for effect in effects:
            if isinstance(effect, Send):
                self._send(address, effect)
                continue
            node.effects.append(effect)
            if isinstance(effect, Delivered):
                self.deliveries.append(Delivery(address, self.now, effect))
                if self.on_delivery is not None:
                    self.on_delivery(address, effect)
            elif isinstance(effect, Multicasted):
                self.multicasts[address, effect.topic, effect.payload] += 1
            elif isinstance(effect, Ready):
                node.ready_at = self.now
            elif isinstance(effect, JoinFailed):
                node.ready_at = None
        self._set_alarm(node)
        if self._check:
            node.overlay.check()

    def running(self) -> list[Overlay]:
        """The nodes that are up."""
        return [node.overlay for node in self.nodes.values() if node.alive]

    def all_ready(self) -> bool:
        """Whether every running node is ready."""
        return all(overlay.ready for overlay in self.running())

    @property
    def fingerprint(self) -> str:
        """A digest of all events so far: who did what when."""
        return self._trace.hexdigest()[:16]

    # -- the parts -------------------------------------------------------------------------------------------

    def _end(self, address: str) -> None:
        node = self.nodes[address]
        node.alive = False
        self.ring.pop(node.overlay.me.id, None)

    def _send(self, source: str, effect: Send) -> None:
        self.messages[type(effect.message).__name__] += 1
        if self.weigh is not None:
            self.bytes += self.weigh(effect.message)
        if self._parted(source, effect.to) or (self._cut and (source, effect.to) in self._cut):
            return
        if self.loss and self.rng.random() < self.loss:
            return
        copies = 2 if self.doubling and self.rng.random() < self.doubling else 1
        target = self.nodes.get(effect.to)
        if target is None:
            return
        for _ in range(copies):
            at = self.now + self._latency(source, effect.to, self.rng)
            self._push(at, (target.overlay, effect.message))

    def _set_alarm(self, node: Inhabitant) -> None:
        deadline = node.overlay.deadline()
        if deadline is not None and (node.wake is None or deadline < node.wake or node.wake <= self.now):
            node.wake = max(deadline, self.now)
            self._push(node.wake, (node.overlay, None))

    def _happen(self, event: _Event) -> None:
        overlay, message = event
        address = overlay.me.address
        node = self.nodes[address]
        if message is None and node.overlay is overlay and node.wake == self.now:
            node.wake = None
        if not node.alive:
            return
        if node.stalled_until > self.now:
            self._push(node.stalled_until, event)
            return
        if message is not None:
            self._note(message.sender.address, address, type(message).__name__)
            node.stalled_until = self.now + self.service_ms
            # a message to the address reaches whoever lives there now
            self.perform(address, node.overlay.handle(Received(message), self.now))
        elif node.overlay is overlay:
            deadline = overlay.deadline()
            if deadline is not None and deadline <= self.now:
                self._note(address, address, "Tick")
                self.perform(address, overlay.handle(Tick(), self.now))
            else:
                self._set_alarm(node)

    def _note(self, source: str, target: str, what: str) -> None:
        self._trace.update(f"{self.now} {source} {target} {what}\n".encode())
