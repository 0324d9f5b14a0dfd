"""Who comes and who goes, for the agent's log and for its next start, and what the agent itself still waits
for.

Said is what happens from the moment on at which the agent is ready: it hears of all that was before when it
joins. A neighbour that falls silent is told of by its name in the catalog log. Agents that are not neighbours
on the ring are told of when they join or leave a stream.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import overlay as ring
from agents.node.beginning import PEERS_FACT, as_lines
from elf.job.catalog.log import CatalogLog
from elf.job.catalog.membership import Membership
from elf.job.effects import SaveFact, Seen
from elf.job.messages.log import LogEntry, MemberJoined, MemberLeft

GONE_MAX: Final = 1_024
"""Neighbours that are remembered as gone, to be told of when they are back."""
REMEMBER_MS: Final = 5_000
"""Between two times that the peers to be remembered are written down."""


@dataclass(frozen=True)
class Waits:
    """What an agent waits for until it is ready, in words, and for whom."""

    text: str
    addresses: tuple[str, ...]


class Witness:
    """See the module's docstring."""

    def __init__(self, log: CatalogLog, membership: Membership) -> None:
        self._log = log
        self._membership = membership
        self._contacts: tuple[str, ...] = ()
        self._ready = False
        self._gone: dict[str, None] = {}
        self._saved: frozenset[str] = frozenset()
        self._remember_ms = 0

    def start(self, contacts: tuple[str, ...]) -> None:
        self._contacts = contacts

    def waits(self, on_ring: bool) -> Waits | None:
        """None: for nothing, the agent is ready."""
        me, cluster = self._membership.me.address, self._membership.cluster
        if not on_ring:
            contacts = tuple(address for address in self._contacts if address != me)
            return Waits(f"it looks for its fleet through {', '.join(contacts)}", contacts)
        if cluster is None:
            return Waits("it waits for a neighbour that knows who keeps the catalog log", self._contacts)
        if self._membership.joined():
            return None
        voters = cluster.voters.addresses
        text = (
            f"it waits for the voters of the catalog log ({', '.join(voters)}), most of which must be there"
        )
        return Waits(text, tuple(address for address in voters if address != me))

    # -- others ----------------------------------------------------------------------------------------------

    def peer(self, event: ring.PeerUp | ring.PeerDown) -> list[Seen]:
        """A neighbour is heard, or is gone."""
        address = event.peer.address
        if isinstance(event, ring.PeerUp):
            known = address in self._gone
            self._gone.pop(address, None)
            return [Seen("is back", self.name(address), address)] if known else []
        if not self._ready:
            return []
        if len(self._gone) < GONE_MAX:
            self._gone[address] = None
        what = "has gone" if event.reason == "left" else "is silent: it is taken for dead"
        return [Seen(what, self.name(address), address)]

    def logged(self, entry: LogEntry) -> list[Seen]:
        """The catalog log has grown."""
        if not self._ready or not isinstance(entry, MemberJoined | MemberLeft):
            return []
        members = (one for one in self._log.members(entry.stream) if one.number == entry.number)
        member = next(members, None)
        if member is None or member.agent_id == self._membership.me.agent_id:
            return []
        what = "joins a stream" if isinstance(entry, MemberJoined) else "has left a stream"
        return [Seen(what, member.name, member.address, entry.stream)]

    def look(self, ready: bool) -> None:
        """Whether the agent is ready now, after what it has just heard of."""
        self._ready = ready

    def remember(self, neighbours: Iterable[str], now_ms: int) -> list[SaveFact]:
        """Write down who is there, to find the ring again after a restart."""
        peers = frozenset(neighbours)
        if now_ms < self._remember_ms or not peers or peers == self._saved:
            return []
        self._saved, self._remember_ms = peers, now_ms + REMEMBER_MS
        return [SaveFact(PEERS_FACT, as_lines(peers))]

    def name(self, address: str) -> str:
        """Of the agent that is there; empty: the log knows none."""
        return self._log.name_of(self._log.agent_at(address))
