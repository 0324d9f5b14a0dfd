"""Frames between parties of one process: a network of inboxes. ``elf run`` and tests use it.

Rules: frames are handed over, never copied; a full inbox refuses (the sender counts it). It never reads a
clock and has no threads.
"""

from __future__ import annotations

from elf.addresses import CLIENT_PREFIX
from elf.errors import UserError
from elf.transport.base import Counters, Dropped, Inbox, Limits, Received, Take, size_of


class MemoryNetwork:
    """Who is reachable at which address."""

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._parties: dict[str, MemoryTransport] = {}
        self._clients = 0

    def listen(self, address: str, limits: Limits | None = None) -> MemoryTransport:
        """A party that others reach at ``address``. Raises ``UserError`` when somebody is there."""
        if address in self._parties:
            raise UserError(f"cannot listen on {address}: the address is in use")
        return self._add(address, limits)

    def dial(self) -> MemoryTransport:
        """A client: it can send, and answers reach it at its return address."""
        self._clients += 1
        return self._add(f"{CLIENT_PREFIX}{self._clients:08x}")

    def _add(self, address: str, limits: Limits | None = None) -> MemoryTransport:
        party = MemoryTransport(self, address, limits or self._limits)
        self._parties[address] = party
        return party

    def _carry(self, origin: str, to: str, frames: list[bytes]) -> Dropped | None:
        """Hand over to ``to``; the reason when that cannot be."""
        party = self._parties.get(to)
        if party is None:
            return "unroutable"
        return None if party._deliver(origin, frames) else "full"

    def _remove(self, address: str) -> None:
        self._parties.pop(address, None)


class MemoryTransport:
    """One party of a ``MemoryNetwork``; see ``Transport`` for what its methods promise."""

    def __init__(self, network: MemoryNetwork, address: str, limits: Limits) -> None:
        self._network = network
        self._address = address
        self._limits = limits
        self._counters = Counters()
        self._inbox = Inbox(limits, self._counters)
        self._open = True

    @property
    def address(self) -> str:
        return self._address

    @property
    def counters(self) -> Counters:
        return self._counters

    def send(self, to: str, frames: list[bytes]) -> bool:
        size = size_of(frames)
        reason: Dropped | None
        if not self._open:
            reason = "closed"
        elif size > self._limits.message_bytes_max:
            reason = "size"
        else:
            reason = self._network._carry(self._address, to, frames)
        if reason is not None:
            self._counters.dropped[reason] += 1
            return False
        self._counters.sent += 1
        self._counters.sent_bytes += size
        return True

    async def receive(self) -> Received:
        return await self._inbox.get()

    def hand_to(self, take: Take) -> None:
        self._inbox.hand_to(take)

    async def close(self) -> None:
        if self._open:
            self._open = False
            self._network._remove(self._address)
            self._inbox.close()

    def _deliver(self, origin: str, frames: list[bytes]) -> bool:
        if self._inbox.full:
            return False
        self._inbox.put(origin, frames, None)
        self._inbox.hand_out_soon()
        return True
