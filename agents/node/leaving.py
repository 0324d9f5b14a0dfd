"""How an agent leaves its cluster (``elf leave``).

It seals all that is open, hands over what it has sealed, has the log say from when on it is gone, hands over
its seats among the keepers, and leaves the ring. While it is *bound* it may not: what only it has would be
gone. A job that is just being created may bind it when it has begun to leave; the log, which decides which of
the two came first, lets nobody go then, so it stays, and who asked is told why.
"""

from __future__ import annotations

from collections.abc import Sequence

import overlay as ring
from agents.node.keeping import Keeping, Step
from elf.job import messages as say
from elf.job.commands import SealOpen
from elf.job.effects import Send, Stop, Work
from elf.job.log.membership import Identity
from elf.job.log.streamlog import StreamLog
from elf.job.rollup.uplink import Uplink


class Leaving:
    """Of the agent ``me``, with these streams."""

    def __init__(
        self,
        me: Identity,
        streams: Sequence[str],
        log: StreamLog,
        overlay: ring.Overlay,
        keeping: Keeping,
        uplink: Uplink,
    ) -> None:
        self._me = me
        self._streams = frozenset(streams)
        self._log = log
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
        if why := self._bound():
            return self._stay(why)
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
        if why := self._bound():
            return self._stay(why)
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

    def _bound(self) -> str:
        """Why this agent may not leave: the root of a key range is on one agent alone. Empty if it may."""
        alone = self._log.alone_at(self._me.address)
        jobs = sorted({spec.name for flow in alone for spec in self._log.readers(flow.uid)})
        if not jobs:
            return ""
        return (
            f"{self._me.name} keeps key ranges of {', '.join(jobs)} (TREES), which no other agent has: DROP "
            "JOB first; or stop the agent and start it again, which loses nothing"
        )

    def _stay(self, why: str) -> list[Step]:
        told: list[Step] = [Send(to, say.Failed(request=n, text=why)) for to, n in self._clients]
        self.under_way, self._untils, self._clients = False, {}, []
        self._keeping.membership.stay()
        return told
