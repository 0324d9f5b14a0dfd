"""Why an agent is no part of its fleet yet: for its log, and for whoever asks ``/ready``.

The node says what it waits for, and for whom; what answers there is looked at meanwhile (``probe``). A party
of another cluster hears which one this is, once in a while, and an agent of one is told of by name: else both
would wait for ever, since neither reads what the other says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from agents import codec
from agents.logs import Logger, Seldom
from agents.node.node import Node
from elf.wire.clients import Failed
from elf.wire.frames import OtherCluster

Probe = Callable[[str], Awaitable[str]]
"""Why nobody can be talked to at an address; empty: somebody is there."""

FIRST_S: Final = 3.0
"""From the start to the first word: a fleet that is well has taken the agent in by then."""
RETRY_S: Final = 60.0
"""Between two times that the same reason is said."""
LOOK_S: Final = 5.0
"""Between two looks at those that are waited for."""
LOOKED_AT_MAX: Final = 8
"""Addresses that are looked at, of however many."""
STRANGERS_MAX: Final = 64
"""Parties of other clusters that are remembered."""
SHOWN_CHARS: Final = 300
"""Of what another agent says."""
TELL_RETRY_S: Final = 5.0
"""Between two times that one of them is told."""


class Readiness:
    """See the module's docstring. ``send`` takes an address and frames; without ``probe`` nobody is looked
    at. Belongs to one event loop."""

    def __init__(
        self,
        node: Node,
        cluster: str,
        log: Logger,
        send: Callable[[str, list[bytes]], object],
        probe: Probe | None,
    ) -> None:
        self._node = node
        self._cluster = cluster
        self._log = log
        self._send = send
        self._probe = probe
        self._found: dict[str, str] = {}
        self._others: dict[str, str] = {}
        self._seldom = Seldom(TELL_RETRY_S)

    @property
    def reason(self) -> str:
        """In a line; empty when the agent is ready."""
        waits = self._node.waits()
        return "" if waits is None else "; ".join([waits.text, *self.found()])

    def found(self) -> list[str]:
        """What is known of those that are waited for."""
        waits = self._node.waits()
        addresses = () if waits is None else waits.addresses
        name = self._node.witness.name
        found = {address: self._others.get(address) or self._found.get(address, "") for address in addresses}
        return [
            f"{called} ({address}): {what}" if (called := name(address)) else f"{address}: {what}"
            for address, what in found.items()
            if what
        ]

    async def watch(self) -> None:
        """Say it, when it has been so for some seconds, when it is another, and each minute; until the agent
        is ready, which the driver says."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(FIRST_S)
        said, again = "", 0.0
        while (waits := self._node.waits()) is not None:
            await self._look(waits.addresses)
            reason, now = self.reason, loop.time()
            if reason and (reason != said or now >= again):
                said, again = reason, now + RETRY_S
                self._log.warning("agent is not ready yet", reason=reason)
            await asyncio.sleep(LOOK_S)

    async def _look(self, addresses: tuple[str, ...]) -> None:
        if self._probe is not None:
            looked_at = addresses[:LOOKED_AT_MAX]
            self._found = dict(
                zip(looked_at, await asyncio.gather(*map(self._probe, looked_at)), strict=True)
            )

    def unknown_member(self, refused: OtherCluster, origin: str, *, may_listen: bool = True) -> None:
        """A message of another cluster has come. ``origin``: where an answer goes to if its sender does not
        listen anywhere, or may not."""
        listens = may_listen and ":" in refused.sender and not refused.sender.startswith("client:")
        sender = refused.sender if listens else origin
        if listens:
            self._remember(sender, f"is of cluster {refused.cluster!r}, this one is of {self._cluster!r}")
        if not refused.told:
            self.tell(sender, f"this agent is of cluster {self._cluster!r}")

    def tell(self, to: str, text: str) -> None:
        """Say why what came from there is not heard; once in a while."""
        if self._seldom.now(to, asyncio.get_running_loop().time()):
            word = Failed(request=0, text=text)
            self._send(to, codec.encode(word, cluster=self._cluster, sender=self._node.me.address))

    def heard(self, sender: str, text: str) -> None:
        """An agent says why it does not hear us."""
        shown = "".join(char if char.isprintable() else " " for char in text[:SHOWN_CHARS])
        self._remember(sender, f"says: {shown}")

    def _remember(self, sender: str, what: str) -> None:
        """The last ones; the oldest goes."""
        self._others.pop(sender, None)
        self._others[sender] = what
        if len(self._others) > STRANGERS_MAX:
            del self._others[next(iter(self._others))]
