"""The two ring neighbours: heartbeats in turn, their contents, and which peers are watched.

Each heartbeat carries a stamp of our clock, and the neighbour's last stamp: so every one of them is
a sign of life, a measured round trip and a lease at once, and all answers that bring a stamp back are treated
alike here.

Probes on behalf of others (SWIM's ping-req): before somebody buries a suspect, we look too, and tell.

Rules: an indirect probe never makes us suspect the target ourselves; what is remembered is bounded, and one
asker too many is simply not answered: it has asked others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from overlay.context import Context
from overlay.ids import Peer
from overlay.leafset import LeafSet
from overlay.lease import Leases
from overlay.liveness import Evidence, Liveness
from overlay.messages import NO_STAMP, Heartbeat, Ping, Pong, ProbeReport, ProbeRequest, RouteName
from overlay.proximity import Proximity, Tuning
from overlay.routing import RoutingTable

_INDIRECT_PROBES_MAX = 64
_ASKERS_MAX = 8
_ALONE_BEATS = 4
"""A node that watches nobody wakes up so much less often."""
_BEAT = ("beat", 0)


@dataclass
class _IndirectProbe:
    """A target that was probed at ``since`` for these askers."""

    target: Peer
    since: int
    askers: dict[int, Peer] = field(default_factory=dict)


class IndirectProbes:
    """Targets by id, timer ``indirect_probe``. ``watched`` tells whether a peer owes us heartbeats."""

    def __init__(self, context: Context, liveness: Liveness, watched: Callable[[Peer], bool]) -> None:
        self._context = context
        self._liveness = liveness
        self._watched = watched
        self._indirect_probes: dict[int, _IndirectProbe] = {}

    def asked(self, message: ProbeRequest) -> None:
        """Somebody gets no answer from the target."""
        target, me, now = message.target, self._context.me, self._context.now
        indirect_probe = self._indirect_probes.get(target.id)
        if target.id == me.id:
            self._context.send(message.sender, ProbeReport(me, me, True, False, 0))
            return
        if indirect_probe is None:
            if len(self._indirect_probes) >= _INDIRECT_PROBES_MAX:
                return
            indirect_probe = self._indirect_probes[target.id] = _IndirectProbe(target, now)
            self._context.send(target, Ping(me, now))
            self._context.timers.set(("indirect probe", target.id), now + self._context.config.probe_ms)
        if len(indirect_probe.askers) < _ASKERS_MAX:
            indirect_probe.askers[message.sender.id] = message.sender

    def heard(self, peer: Peer) -> None:
        """A peer spoke to us: tell those who asked for it."""
        indirect_probe = self._indirect_probes.get(peer.id)
        if indirect_probe is not None and indirect_probe.target == peer:
            self._report(indirect_probe, ProbeReport(self._context.me, peer, True, False, 0))

    def due(self, node: int, late: bool) -> None:
        """The target has not answered us either. ``late``: we slept, and know nothing."""
        indirect_probe = self._indirect_probes[node]
        if late:
            del self._indirect_probes[node]
            return
        target = indirect_probe.target
        watched = self._liveness.live.get(node) == target and self._watched(target)
        silent_ms = self._liveness.silence(target) if watched else 0
        self._report(indirect_probe, ProbeReport(self._context.me, target, False, watched, silent_ms))

    def abandon(self) -> None:
        """Forget all; the deadlines are gone already."""
        self._indirect_probes.clear()

    def _report(self, indirect_probe: _IndirectProbe, report: ProbeReport) -> None:
        self._context.timers.cancel(("indirect probe", indirect_probe.target.id))
        del self._indirect_probes[indirect_probe.target.id]
        for asker in indirect_probe.askers.values():
            self._context.send(asker, report)


class Neighbours:
    """What a node owes its ring neighbours and knows from them."""

    def __init__(
        self,
        context: Context,
        leaves: LeafSet,
        table: RoutingTable,
        liveness: Liveness,
        proximity: Proximity,
        tuning: Tuning,
    ) -> None:
        self._context = context
        self._leaves = leaves
        self._table = table
        self._liveness = liveness
        self._proximity = proximity
        self._tuning = tuning
        self.indirect_probes = IndirectProbes(context, liveness, self.includes)
        self.leases = Leases(context, leaves, lambda: liveness.health.stretch)
        self._stamps: dict[Peer, tuple[int, int]] = {}
        self._turn = 0
        self.delivered_for: Callable[[Peer], tuple[RouteName, ...]] = lambda _: ()
        """What we delivered lately of the keys that now belong to that peer."""

    def includes(self, peer: Peer) -> bool:
        """Whether it is one of our two ring neighbours: owes us heartbeats, and may get a lease from us."""
        return peer in self._leaves.neighbours()

    def grant(self, peer: Peer) -> tuple[bool, tuple[RouteName, ...]]:
        """Whether we grant a peer that asks a lease, and what we delivered lately of its keys."""
        neighbour = self.includes(peer)
        return neighbour, self.delivered_for(peer) if neighbour else ()

    def heartbeat(self, message: Heartbeat) -> None:
        """A ring neighbour's word: its stamp to be echoed, and ours back."""
        sender = message.sender
        self._stamps[sender] = (message.stamp, self._context.now)
        self.echoed(sender, message.echo, self.leases.known(sender), message.held_ms)

    def ping(self, message: Ping) -> None:
        """A peer wants a sign of life, and a grant if it is our ring neighbour."""
        sender, context = message.sender, self._context
        neighbour, delivered = self.grant(sender)
        context.send(sender, Pong(context.me, message.stamp, neighbour, context.place, delivered))

    def pong(self, message: Pong) -> None:
        """The answer to our ping."""
        self._proximity.placed(message.sender.id, message.place)
        self.echoed(message.sender, message.stamp, message.neighbour)
        if not message.neighbour:
            self.leases.refused(message.sender)

    def echoed(self, sender: Peer, stamp: int, neighbour: bool, held_ms: int = 0) -> None:
        """Our stamp is back: a round trip, and perhaps a grant."""
        rtt_ms = self._proximity.echoed(sender.id, stamp, held_ms)
        if rtt_ms is not None:
            self._liveness.health.measured(sender.id, rtt_ms)
        self._tuning.measured(sender)
        if neighbour:
            self.leases.granted(sender, stamp)

    def ticked(self, late_ms: int) -> None:
        """A deadline is served so late. After a long sleep no silence counts: we did not listen."""
        self._liveness.health.ticked(late_ms)
        if late_ms >= self._context.config.suspect_ms:
            self._liveness.forgive()

    def beat(self, tree_neighbours: Mapping[Peer, int], late: bool) -> None:
        """Speak to one ring neighbour, the next time to the other; and check all watched peers.

        In turn, so that at any time one of them has heard us in the last half period. ``tree_neighbours``:
        how much longer than ring neighbours they may be silent, in ms. ``late``: we slept, so no silence
        means anything yet.
        """
        context = self._context
        neighbours = self._leaves.neighbours()
        if neighbours:
            self._turn += 1
            self._speak(neighbours[self._turn % len(neighbours)])
        watched = {**tree_neighbours, **dict.fromkeys(neighbours, 0)}
        suspect_ms = context.config.suspect_ms * self._liveness.health.stretch
        for peer, later_ms in watched.items():
            if not late and self._liveness.silence(peer) >= suspect_ms + later_ms:
                self._liveness.probe(peer, evidence=Evidence.OWED, later_ms=later_ms)
        if watched:
            context.timers.set(_BEAT, context.every(context.config.beat_ms))
        else:
            context.about(_BEAT, _ALONE_BEATS * context.config.beat_ms)

    def leaves_changed(self) -> None:
        """Somebody may have come to a node that was alone, and is to be spoken to as soon as ever."""
        context = self._context
        if context.timers.has_slack(_BEAT):
            context.timers.set(_BEAT, context.every(context.config.beat_ms))

    def ask_helpers(self, suspect: Peer) -> None:
        """Let others probe a suspect: first those next to it on the ring, who know best, then any peer."""
        leaves = tuple(self._leaves)
        place = next((i for i, peer in enumerate(leaves) if peer.id == suspect.id), None)
        beside = () if place is None else (leaves[place - 1], leaves[(place + 1) % len(leaves)])
        others = [*leaves, *self._table]
        start = self._context.rng.randrange(len(others)) if others else 0
        helpers: dict[int, Peer] = {}
        for peer in (*beside, *others[start:], *others[:start]):
            if len(helpers) == self._context.config.probe_helpers:
                break
            if peer.id != suspect.id and not self._liveness.probing(peer.id):
                helpers[peer.id] = peer
        for peer in helpers.values():
            self._context.send(peer, ProbeRequest(self._context.me, suspect))

    def forget(self) -> None:
        """Drop the stamps of peers that have not spoken for long."""
        horizon = self._context.now - self._context.config.forget_ms
        self._stamps = {peer: stamp for peer, stamp in self._stamps.items() if stamp[1] > horizon}

    def _speak(self, neighbour: Peer) -> None:
        context = self._context
        echo, came_at = self._stamps.get(neighbour, (NO_STAMP, context.now))
        held_ms = context.now - came_at
        context.send(neighbour, Heartbeat(context.me, context.now, echo, held_ms))
