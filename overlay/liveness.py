"""Which peers live, as far as we know: records of peers heard, probes under way, and the remembered dead.

Rules: only a message from a peer itself makes it live; a lower incarnation than the known one is ignored; one
that has *left* stays gone, one taken for *crashed* lives again as soon as it is heard. The dead are
remembered and asked now and then, since otherwise nobody would ask after a partition heals. What others say
about a peer is hearsay: it leads at most to a question.

A suspect is declared dead when it was probed ``probe_tries`` times and silent for ``dead_ms``. Before that,
others are asked to probe it (``indirectprobes``), since perhaps only the way between us is broken. Its
message to one of them counts as one to us. If its other ring neighbour has heard nothing either, ``sure_ms``
are enough. A peer that may still hold a lease from us is not declared dead.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal

from overlay.context import Context
from overlay.effects import PeerDown, PeerUp
from overlay.errors import OverlayBug
from overlay.health import Health
from overlay.ids import Peer
from overlay.messages import Ping, ProbeReport

_TRIES_AT_LEAST: Final = 2
"""Probes that must stay unanswered even when others testify: one may have been lost."""

_DOUBLINGS_MAX: Final = 4
"""A node that has had no answer yet, from any peer, waits twice as long each time."""


class Evidence(Enum):
    """Why a peer is probed: it says since when the peer was silent."""

    NONE = "it has not answered something; it owes us no word"
    OWED = "a heartbeat or refresh is overdue: silent since its last word, or since it owed another"
    TOLD = "another has buried it: silent for long"


class Sighting(Enum):
    """What a message tells about its sender."""

    STALE = "of an earlier incarnation, or has left, or one too many: ignore it"
    KNOWN = "was live"
    NEW = "was unknown, is live now"
    RETURNED = "was taken for dead, or was another incarnation, is live now"
    RESTARTED = "is live in a higher incarnation than before"


@dataclass
class Grave:
    """A peer that is gone, since when, why, and when we last asked."""

    peer: Peer
    reason: Literal["left", "crashed"]
    since: int
    asked: int


@dataclass
class Probe:
    """A question that waits for its answer. Only a leaf set answers a ``leaf`` probe, any message the others.
    ``quiet_since``: the peer is taken for silent since then; ``sure``: others testify to it."""

    peer: Peer
    leaf: bool
    tries: int
    quiet_since: int
    sure: bool = False
    helped: bool = False


class Liveness:
    """Records by node id. ``ask_leaf`` asks a peer for its leaf set, ``ask_helpers`` asks others to probe
    it."""

    def __init__(
        self, context: Context, ask_leaf: Callable[[Peer], None], ask_helpers: Callable[[Peer], None]
    ) -> None:
        self._context = context
        self._ask_leaf = ask_leaf
        self._ask_helpers = ask_helpers
        self.health = Health(context, self._heard_lately)
        self.live: dict[int, Peer] = {}
        self.dead: dict[int, Grave] = {}
        self._heard: dict[int, int] = {}
        self._probes: dict[int, Probe] = {}

    # -- hearing ---------------------------------------------------------------------------------------------

    def hear(self, peer: Peer) -> Sighting:
        """A message from the peer itself has come."""
        node = peer.id
        known = self.live.get(node)
        if known is not None:
            if peer.incarnation < known.incarnation:
                return Sighting.STALE
            self._heard[node] = self._context.now
            if peer.incarnation == known.incarnation:
                self._answered(node)
                return Sighting.KNOWN
            self._drop_probe(node)
            self._context.emit(PeerDown(known, "crashed"))
            self._enter(peer)
            return Sighting.RESTARTED
        grave = self.dead.get(node)
        if grave is not None:
            if peer.incarnation < grave.peer.incarnation:
                return Sighting.STALE
            if peer.incarnation == grave.peer.incarnation and grave.reason == "left":
                return Sighting.STALE
            del self.dead[node]
        elif len(self.live) >= self._context.config.live_max:
            return Sighting.STALE
        self._answered(node)
        self._enter(peer)
        return Sighting.NEW if grave is None else Sighting.RETURNED

    def believes(self, peer: Peer) -> bool:
        """Whether hearsay about a peer may be used. News about a known one leads to a question, when it is
        time."""
        node = peer.id
        if node == self._context.id:
            return False
        known = self.live.get(node)
        if known is not None:
            if peer.incarnation > known.incarnation:
                self.probe(peer)
            return peer.incarnation == known.incarnation
        grave = self.dead.get(node)
        if grave is None:
            return True
        newer = peer.incarnation > grave.peer.incarnation
        returned = peer.incarnation == grave.peer.incarnation and grave.reason == "crashed"
        if newer or (returned and self._context.now - grave.asked >= self._context.config.dead_retry_ms):
            self._ask_dead(grave)
        return False

    def silence(self, peer: Peer) -> int:
        """Milliseconds since the peer was heard; since the beginning of time if it never was."""
        return self._context.now - self._heard.get(peer.id, 0)

    # -- probing ---------------------------------------------------------------------------------------------

    def probe(
        self, peer: Peer, leaf: bool = False, evidence: Evidence = Evidence.NONE, later_ms: int = 0
    ) -> None:
        """Ask a peer for a sign of life, or for its leaf set. An open question is not asked twice, but what
        is known of the peer's silence is added; ``later_ms`` of the silence prove nothing."""
        node = peer.id
        quiet_since = self._quiet_since(node, evidence) + later_ms
        told = evidence is Evidence.TOLD
        probe = self._probes.get(node)
        if probe is not None:
            probe.quiet_since = min(probe.quiet_since, quiet_since)
            if told:
                self._testified(probe)
            if probe.leaf or not leaf:
                return
            probe.leaf = True
        else:
            probe = self._probes[node] = Probe(peer, leaf, 0, quiet_since, sure=told, helped=told)
        self._ask(probe)

    def reported(self, message: ProbeReport) -> None:
        """Another has probed a suspect for us."""
        node = message.target.id
        if self.live.get(node) != message.target or message.silent_ms < 0:
            return
        spoke_at = self._context.now - message.silent_ms
        if message.alive:
            self._heard[node] = max(self._heard[node], spoke_at)
            self._answered(node)
            return
        probe = self._probes.get(node)
        if message.watched and probe is not None:
            probe.quiet_since = max(probe.quiet_since, spoke_at)
            self._testified(probe)

    def _testified(self, probe: Probe) -> None:
        """Another peer finds it silent too: its silence to us says nothing about us, and needs no further
        probe."""
        node = probe.peer.id
        probe.sure = True
        self.health.excused(node)
        if probe.tries >= _TRIES_AT_LEAST:
            due = max(self._dead_at(probe), self._context.now + 1)
            self._context.timers.set(("probe", node), due)

    def _heard_lately(self) -> int:
        since = self._context.now - self._context.config.suspect_ms
        return sum(at >= since for at in self._heard.values())

    def forgive(self) -> None:
        """We slept: a peer that was silent meanwhile may have spoken."""
        for node in self._heard:
            self._heard[node] = self._context.now

    def probing(self, node: int) -> bool:
        return node in self._probes

    def asked_leaves(self) -> list[Peer]:
        """The peers whose leaf sets we wait for."""
        return [probe.peer for probe in self._probes.values() if probe.leaf]

    @property
    def settled(self) -> bool:
        """Whether every leaf set that was asked for has come."""
        return not any(probe.leaf for probe in self._probes.values())

    def leaf_answered(self, node: int) -> None:
        """The leaf set of that node has come."""
        self._drop_probe(node)

    def unanswered(self, node: int, late: bool) -> Peer | None:
        """A probe's time is up: ask again, or return the peer if it was silent long enough to be dead.

        ``late``: we ourselves have slept past the deadline, so the answer may wait in our own queue; begin
        again.
        """
        probe = self._probes.get(node)
        if probe is None:
            raise OverlayBug("a probe's deadline outlived the probe")
        if late:
            probe.tries = 0
            probe.sure = False
            probe.quiet_since = self._quiet_since(node, Evidence.NONE)
        elif node in self._heard and not probe.sure:
            self.health.probed(node, answered=False)
        needed = _TRIES_AT_LEAST if probe.sure else self._context.config.probe_tries
        if probe.tries >= needed and self._context.now >= self._dead_at(probe):
            self._drop_probe(node)
            return probe.peer
        self._ask(probe)
        return None

    # -- the dead --------------------------------------------------------------------------------------------

    def bury(self, peer: Peer, reason: Literal["left", "crashed"]) -> bool:
        """The peer is gone. False if that is not new, or is about an earlier incarnation."""
        node = peer.id
        known = self.live.get(node)
        grave = self.dead.get(node)
        if known is not None and known.incarnation > peer.incarnation:
            return False
        if known is None and grave is not None and grave.peer.incarnation >= peer.incarnation:
            return False
        self._drop_probe(node)
        self._heard.pop(node, None)
        if known is not None:
            del self.live[node]
            self._context.emit(PeerDown(known, reason))
        self.dead.pop(node, None)
        while len(self.dead) >= self._context.config.dead_max:
            del self.dead[next(iter(self.dead))]
        self.dead[node] = Grave(peer, reason, self._context.now, self._context.now)
        return True

    def ask_one_dead(self) -> None:
        """Ask the crashed peer that was not asked for longest whether it is back."""
        crashed = [grave for grave in self.dead.values() if grave.reason == "crashed"]
        if crashed:
            self._ask_dead(min(crashed, key=lambda grave: grave.asked))

    def ask_dead(self, wanted: Callable[[int], bool]) -> None:
        """One has come back: ask all wanted ones whether they have too, each once in ``probe_ms``."""
        horizon = self._context.now - self._context.config.probe_ms
        for node, grave in self.dead.items():
            if grave.reason == "crashed" and grave.asked <= horizon and wanted(node):
                self._ask_dead(grave)

    def recent_dead(self, within_ms: int) -> tuple[Peer, ...]:
        """Peers that crashed lately."""
        since = self._context.now - within_ms
        return tuple(g.peer for g in self.dead.values() if g.reason == "crashed" and g.since >= since)

    def forget(self, needed: Collection[int]) -> None:
        """Drop old records that are no longer needed."""
        config, now = self._context.config, self._context.now
        for node in [node for node in self.live if node not in needed and node not in self._probes]:
            if now - self._heard[node] >= config.forget_ms:
                del self.live[node], self._heard[node]
        for node in [n for n, grave in self.dead.items() if now - grave.since >= config.dead_forget_ms]:
            del self.dead[node]

    def abandon(self) -> None:
        """Stop asking; the deadlines are gone already."""
        self._probes.clear()

    def check(self) -> None:
        """Raise OverlayBug unless the records agree with each other."""
        if self.live.keys() & self.dead.keys():
            raise OverlayBug("a peer is both live and dead")
        if self.live.keys() != self._heard.keys():
            raise OverlayBug("live peers and the times they were heard differ")
        for node in self._probes:
            if ("probe", node) not in self._context.timers:
                raise OverlayBug("a probe has no deadline")

    # -- the parts -------------------------------------------------------------------------------------------

    def _enter(self, peer: Peer) -> None:
        self.live[peer.id] = peer
        self._heard[peer.id] = self._context.now
        self._context.emit(PeerUp(peer))

    def _answered(self, node: int) -> None:
        probe = self._probes.get(node)
        if probe is None:
            return
        self.health.probed(node, answered=True)
        if probe.leaf:  # it lives; its leaf set may be lost or late
            probe.tries, probe.sure, probe.helped = 0, False, False
            probe.quiet_since = self._context.now
        else:
            self._drop_probe(node)

    def _drop_probe(self, node: int) -> None:
        if self._probes.pop(node, None) is not None:
            self._context.timers.cancel(("probe", node))

    def _quiet_since(self, node: int, evidence: Evidence) -> int:
        config, now = self._context.config, self._context.now
        match evidence:
            case Evidence.OWED:
                return self._heard.get(node, now)
            case Evidence.TOLD:
                return now - config.dead_ms
            case Evidence.NONE:
                return now - (config.dead_ms - config.sure_ms)

    def _dead_at(self, probe: Probe) -> int:
        """When a silent peer may be declared dead: not while it may hold a lease of ours."""
        config = self._context.config
        silence_ms = round((config.sure_ms if probe.sure else config.dead_ms) * self.health.stretch)
        heard = self._heard.get(probe.peer.id, -config.lease_ms)
        return max(probe.quiet_since + silence_ms, heard + config.lease_ms)

    def _ask(self, probe: Probe) -> None:
        """Probe it; the remaining tries share the remaining time."""
        context, config = self._context, self._context.config
        probe.tries += 1
        if probe.leaf:
            self._ask_leaf(probe.peer)
        else:
            context.send(probe.peer, Ping(context.me, context.now))
        if probe.tries >= _TRIES_AT_LEAST and not probe.helped and probe.peer.id in self._heard:
            probe.helped = True
            self._ask_helpers(probe.peer)
        tries_left = max(config.probe_tries - probe.tries, 0) + 1
        share_ms = (self._dead_at(probe) - context.now) // tries_left
        longest_ms = round(config.probe_ms * self.health.stretch)
        wait_ms = min(max(share_ms, config.probe_ms // 2), longest_ms)
        if self.health.blind:
            wait_ms = config.probe_ms << min(probe.tries - 1, _DOUBLINGS_MAX)
        context.timers.set(("probe", probe.peer.id), context.now + wait_ms)

    def _ask_dead(self, grave: Grave) -> None:
        grave.asked = self._context.now
        self._context.send(grave.peer, Ping(self._context.me, self._context.now))
