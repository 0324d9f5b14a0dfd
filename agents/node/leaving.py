"""How an agent leaves its cluster (``elf leave``).

It seals all that is open, hands over what it has sealed, has the log say from when on it is gone, hands over
its seats in all groups, and leaves the ring.
"""

from __future__ import annotations

from collections.abc import Sequence

import overlay as ring
from agents.node.keeping import Keeping, Step
from elf.job import messages as say
from elf.job.commands import SealOpen
from elf.job.effects import Send, Stop, Work
from elf.job.log.membership import Identity
from elf.job.rollup.uplink import Uplink


class Leaving:
    """Of the agent ``me``, with these streams."""

    def __init__(
        self,
        me: Identity,
        streams: Sequence[str],
        overlay: ring.Overlay,
        keeping: Keeping,
        uplink: Uplink,
    ) -> None:
        self._me = me
        self._streams = frozenset(streams)
        self._overlay = overlay
        self._keeping = keeping
        self._uplink = uplink
        self._untils: dict[str, int] = {}
        self._clients: list[tuple[str, int]] = []
        self.under_way = False

    def asked(self, client: str, request: int) -> list[Step]:
        """By a client, who is told how it ends."""
        self._clients.append((client, request))
        return self.begin()

    def begin(self) -> list[Step]:
        self.under_way = True
        return [Work(stream, SealOpen()) for stream in sorted(self._streams)]

    def sealed(self, stream: str, until_us: int) -> None:
        """All of a stream is: this agent has nothing of it from that time on."""
        if self.under_way:
            self._untils[stream] = until_us

    def tick(self, now_ms: int) -> list[Step]:
        """Go when nothing is owed and the log knows."""
        if not self.under_way:
            return []
        owes = any(self._uplink.owes(flow.uid) for flow in self._uplink.flows())
        if self._untils.keys() != self._streams or owes:
            return []
        keeping, membership = self._keeping, self._keeping.membership
        if not membership.left():
            return list(membership.leave(self._untils, now_ms, keeping.neighbours()))
        if not keeping.gone() and not keeping.late(now_ms):
            return list(keeping.go(now_ms))
        text = f"{self._me.name} has left"
        if not keeping.gone():
            text += "; no majority of the stream log's keepers has let it go: they will replace it in time"
        told = [Send(to, say.Reply(request=n, text=text)) for to, n in self._clients]
        self._clients = []
        return [*told, *self._overlay.leave(now_ms), Stop("left the cluster", 0)]
