"""Who lives, as far as we know: records of peers heard, probes under way, and the remembered dead.

Rules: only a message from a peer itself makes it live; a lower incarnation than the known one is ignored; one
that has *left* stays gone, one taken for *crashed* lives again as soon as it is heard. The dead are
remembered and asked now and then, since after a partition heals nobody else would. What we are told about
others is hearsay: worth a question, no more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from overlay.context import Context
from overlay.effects import PeerDown, PeerUp
from overlay.errors import OverlayBug
from overlay.ids import Peer
from overlay.messages import Ping


class Sighting(Enum):
    """What a message tells about its sender."""

    STALE = "of an earlier incarnation, or has left: ignore it"
    KNOWN = "was live"
    NEW = "was unknown or dead, is live now"
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
    """A question that waits for its answer. Only a leaf set answers a ``leaf`` probe, anything at all the
    others."""

    peer: Peer
    leaf: bool
    tries: int
    since: int


class Liveness:
    """Records by node id."""

    def __init__(self, context: Context, ask_leaf: Callable[[Peer], None]) -> None:
        self._context = context
        self._ask_leaf = ask_leaf
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
        self._answered(node)
        self._enter(peer)
        return Sighting.NEW

    def believes(self, peer: Peer) -> bool:
        """Whether hearsay about a peer may be used. News about a known one is followed up with a question,
        when it's time."""
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

    def probe(self, peer: Peer, leaf: bool = False, tries_done: int = 0) -> None:
        """Ask a peer for a sign of life, or for its leaf set. A question that is already open is not asked
        twice."""
        node = peer.id
        open_probe = self._probes.get(node)
        if open_probe is not None and (open_probe.leaf or not leaf):
            return
        since = self._context.now
        if open_probe is not None:
            tries_done, since = max(tries_done, open_probe.tries - 1), open_probe.since
        tries = min(tries_done, self._context.config.probe_tries - 1) + 1
        self._probes[node] = Probe(peer, leaf, tries, since)
        self._ask(self._probes[node])

    def probing(self, node: int) -> bool:
        return node in self._probes

    def asking_leaf(self, node: int) -> bool:
        """Whether we wait for the leaf set of that node."""
        probe = self._probes.get(node)
        return probe is not None and probe.leaf

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
        config = self._context.config
        quiet_since = self._heard.get(node, probe.since)
        if probe.tries >= config.probe_tries and self._context.now - quiet_since >= config.dead_ms:
            self._drop_probe(node)
            return probe.peer
        probe.tries += 1
        self._ask(probe)
        return None

    # -- the dead --------------------------------------------------------------------------------------------

    def bury(self, peer: Peer, reason: Literal["left", "crashed"]) -> bool:
        """The peer is gone. False if that is nothing new, or is about an earlier incarnation."""
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

    def recent_dead(self, within_ms: int) -> tuple[Peer, ...]:
        """Peers that crashed lately."""
        since = self._context.now - within_ms
        return tuple(g.peer for g in self.dead.values() if g.reason == "crashed" and g.since >= since)

    def forget(self, needed: Collection[int]) -> None:
        """Drop records that have grown old and that nobody needs."""
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
            if ("probe", node) not in self._context.agenda:
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
        if probe.leaf:
            probe.tries = 0  # it lives; its leaf set may just be lost or late
        else:
            self._drop_probe(node)

    def _drop_probe(self, node: int) -> None:
        if self._probes.pop(node, None) is not None:
            self._context.agenda.cancel(("probe", node))

    def _ask(self, probe: Probe) -> None:
        if probe.leaf:
            self._ask_leaf(probe.peer)
        else:
            self._context.send(probe.peer, Ping(self._context.me))
        self._context.agenda.set(("probe", probe.peer.id), self._context.now + self._context.config.probe_ms)

    def _ask_dead(self, grave: Grave) -> None:
        grave.asked = self._context.now
        self._context.send(grave.peer, Ping(self._context.me))
