"""Peers that lead our groups or follow us: one beat between two nodes serves all groups that they share.

A *tie* says what one group needs: a leader needs all members, a follower its leader. A node beats every peer
that any tie names, and hears it. Whether the peer lives is judged here, once for all groups. The beat's mark
shows whether it still leads what we think it leads.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from hashlib import blake2b

from overlay.ids import Peer
from overlay.raft.context import Context
from overlay.raft.messages import Beat


class Sighting(Enum):
    """What a message tells about its sender."""

    STALE = "of an earlier incarnation: ignore it"
    KNOWN = "was heard lately"
    RETURNED = "was silent"
    RESTARTED = "is in a higher incarnation: it leads nothing any more"


@dataclass
class Link:
    """One peer. ``led``: groups that we lead and it is in. ``followed``: groups that it leads and we are
    in."""

    incarnation: int
    heard: int
    silent: bool = False
    led: set[bytes] = field(default_factory=set)
    followed: set[bytes] = field(default_factory=set)
    mark_led: int = 0
    mark_followed: int = 0

    @property
    def tied(self) -> bool:
        return bool(self.led or self.followed)


@dataclass(frozen=True)
class Tie:
    """What one group needs of its peers: in ``term`` we lead ``led``, or follow ``leader`` ("": nobody)."""

    term: int = 0
    led: frozenset[str] = frozenset()
    leader: str = ""


_LOOSE = Tie()


class Links:
    """Links by address."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._links: dict[str, Link] = {}
        self._ties: dict[bytes, Tie] = {}

    # -- ties ------------------------------------------------------------------------------------------------

    def tie(self, group: bytes, tie: Tie) -> None:
        """From now on the group needs this."""
        before = self._ties.get(group, _LOOSE)
        if tie == before:
            return
        if tie == _LOOSE:
            self._ties.pop(group, None)
        else:
            self._ties[group] = tie
        self._draw(group, tie)
        self._pull(group, before, tie)

    def led(self, address: str) -> Collection[bytes]:
        """The groups that we lead and the address is in."""
        link = self._links.get(address)
        return sorted(link.led) if link else ()

    def followed(self, address: str) -> Collection[bytes]:
        """The groups in which we follow the address."""
        link = self._links.get(address)
        return sorted(link.followed) if link else ()

    def tied(self) -> int:
        """Peers that we beat."""
        return sum(link.tied for link in self._links.values())

    # -- hearing ---------------------------------------------------------------------------------------------

    def hear(self, peer: Peer, *, beat: bool) -> Sighting:
        """A message from the peer itself has come. Only messages of leaders and followers (``beat``) count as
        a sign of life: a node that no longer leads us may go on asking for votes."""
        link = self._links.get(peer.address)
        if link is None:
            if len(self._links) < self._context.config.links_max:
                self._know(peer.address, Link(peer.incarnation, self._context.now))
            return Sighting.KNOWN
        if peer.incarnation < link.incarnation:
            return Sighting.STALE
        restarted = 0 < link.incarnation < peer.incarnation
        link.incarnation = peer.incarnation
        returned = link.silent and beat
        if beat:
            link.heard, link.silent = self._context.now, False
        if returned and link.tied:
            self._watch(peer.address, link)
        if restarted:
            return Sighting.RESTARTED
        return Sighting.RETURNED if returned else Sighting.KNOWN

    def alive(self, address: str) -> bool:
        """Whether the peer was heard within ``silence_ms`` (or has been tied no longer than that)."""
        link = self._links.get(address)
        return link is not None and not link.silent and self._quiet(link) < self._context.config.silence_ms

    def agrees(self, beat: Beat) -> bool:
        """Whether the sender leads just what we follow it in."""
        link = self._links.get(beat.sender.address)
        return link is not None and link.mark_followed == beat.mark

    def hush(self, address: str) -> bool:
        """Another source says that the peer is gone: it counts as silent from now on. False if it already
        did."""
        link = self._links.get(address)
        if link is None or link.silent:
            return False
        link.silent = True
        self._context.timers.cancel(("link", address))
        return True

    def due(self, address: str) -> bool:
        """The deadline of a peer's beat has come; True if the peer is silent."""
        link = self._links.get(address)
        if link is None or not link.tied:
            return False
        if self._quiet(link) < self._context.config.silence_ms:
            self._watch(address, link)
            return False
        link.silent = True
        return True

    def slept(self) -> None:
        """We ourselves were late: messages of peers may wait in our own queue. Allow one more beat."""
        config = self._context.config
        least = self._context.now - config.silence_ms + config.beat_ms
        for address, link in self._links.items():
            if not link.silent and link.heard < least:
                link.heard = least
                if link.tied:
                    self._watch(address, link)

    # -- beating ---------------------------------------------------------------------------------------------

    def beat(self) -> None:
        """Beat every tied peer, living or not; forget the unneeded ones. Where there is none the next peer
        begins the beat anew."""
        me, now = self._context.me, self._context.now
        for address, link in list(self._links.items()):
            if link.tied:
                self._context.send(address, Beat(me, link.mark_led))
            elif now - link.heard >= self._context.config.forget_ms:
                del self._links[address]
        if self._links:
            self._context.after(("beat", ""), self._context.config.beat_ms)

    # -- the parts -------------------------------------------------------------------------------------------

    def _quiet(self, link: Link) -> int:
        return self._context.now - link.heard

    def _know(self, address: str, link: Link) -> Link:
        self._links[address] = link
        if ("beat", "") not in self._context.timers:
            self._context.after(("beat", ""), self._context.config.beat_ms)
        return link

    def _link(self, address: str) -> Link:
        link = self._links.get(address)
        if link is None:
            link = self._know(address, Link(0, self._context.now))
        if not link.tied:
            if not link.silent:
                link.heard = max(link.heard, self._context.now)
            self._watch(address, link)
        return link

    def _watch(self, address: str, link: Link) -> None:
        self._context.timers.set(("link", address), link.heard + self._context.config.silence_ms)

    def _draw(self, group: bytes, tie: Tie) -> None:
        bit = _mark(group, tie.term)
        for address in sorted(tie.led):
            link = self._link(address)
            link.led.add(group)
            link.mark_led ^= bit
        if tie.leader:
            link = self._link(tie.leader)
            link.followed.add(group)
            link.mark_followed ^= bit

    def _pull(self, group: bytes, tie: Tie, now: Tie) -> None:
        """Remove ties. What is known of peers that the group still needs is kept."""
        bit = _mark(group, tie.term)
        for address in sorted(tie.led):
            link = self._links[address]
            link.mark_led ^= bit
            if address not in now.led:
                link.led.discard(group)
                self._loosen(address, link)
        if tie.leader:
            link = self._links[tie.leader]
            link.mark_followed ^= bit
            if tie.leader != now.leader:
                link.followed.discard(group)
                self._loosen(tie.leader, link)

    def _loosen(self, address: str, link: Link) -> None:
        if not link.tied:
            self._context.timers.cancel(("link", address))
            link.silent = False


@lru_cache(maxsize=1 << 16)
def _mark(group: bytes, term: int) -> int:
    """A number of 63 bits for a group in a term; a peer's mark is the exclusive or of them."""
    digest = blake2b(group + term.to_bytes(8, "big"), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
