"""What every transport promises, its limits, its counters, and the bounded inbox that they share.

The promises: ``send`` never blocks and never raises for what a peer or the network does; frames of one
message arrive together or not at all; messages between two parties arrive in the order in which they were
sent, though some may be missing; everything that this side drops is counted. A transport belongs to one event
loop and is not for other threads.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

from elf.addresses import CLIENT_PREFIX
from elf.errors import ElfError
from elf.security.principals import Principal

IN_A_ROW_MAX: Final = 64
"""Messages that ``receive`` hands out before it lets others run."""

CLIENTS_MAX: Final = 256
"""Messages of clients that wait for ``receive``: what they ask for takes longer than what agents say."""

Dropped = Literal["full", "unroutable", "size", "closed"]
"""Why a message was not sent. A metric label, so the set is closed."""


Received = tuple[str, list[bytes], Principal | None]
"""Return address, frames, and whose connection it came over; None: nobody knows, or has to."""
Take = Callable[[Sequence[Received]], None]
"""Takes messages that have come, in their order: at least one, and ``IN_A_ROW_MAX`` at most."""


class Closed(ElfError):
    """The transport was closed; nothing can be received any more."""


@dataclass(frozen=True)
class Limits:
    """What a transport may hold. Beyond it messages are dropped and counted, or the sender is held back."""

    message_bytes_max: int = 64 << 20
    """The largest message (all its frames) that is sent or taken."""
    inbox_messages_max: int = 4096
    inbox_bytes_max: int = 128 << 20
    """Messages that wait for ``receive``; always at least one, however big."""
    peer_messages_max: int = 1000
    """Messages that wait for one peer (ZeroMQ: its high-water mark, on either side of the wire)."""
    peer_bytes_max: int = 128 << 20
    """Bytes of big frames that wait for one peer."""
    peers_max: int = 1000
    """Connections that are kept open to peers; beyond it the one idle for longest is closed."""
    idle_secs: float = 60.0
    """A connection without sends for so long is closed (and opened again by the next send)."""


@dataclass
class Counters:
    """What a transport has done so far. Messages, not frames; bytes of their frames."""

    sent: int = 0
    sent_bytes: int = 0
    received: int = 0
    received_bytes: int = 0
    dropped: Counter[Dropped] = field(default_factory=Counter)
    """Messages that ``send`` did not take, by reason."""
    refused: Counter[str] = field(default_factory=Counter)
    """Messages from the network that were too big (``size``), had too many frames (``malformed``), or came
    over the connection of a key that is admitted no more (``revoked``)."""
    handshakes: Counter[str] = field(default_factory=Counter)
    """Connections to the listener that came to nothing, by reason: ``elf.transport.handshakes.Failure``,
    ``flood`` and ``endless`` (``elf.transport.gate``), ``left`` (it ended before a message),
    ``descriptors`` (the process has no more of them)."""


class Transport(Protocol):
    """Sends to addresses, receives from anybody."""

    @property
    def address(self) -> str:
        """What others reach me at (``host:port``); for a party without a listener ``client:…``, only good for
        logs.
        """

    @property
    def counters(self) -> Counters: ...

    def send(self, to: str, frames: list[bytes]) -> bool:
        """Take a message for ``to``: an agent's ``host:port`` or a return address. Never blocks.

        False: dropped and counted (queue full, unroutable, too big, closed). True promises nothing about
        arrival.
        """

    async def receive(self) -> Received:
        """The next message. The return address is good for ``send``. One caller at a time.

        Raises ``Closed`` after ``close`` (what had arrived by then is still delivered).
        """

    def hand_to(self, take: Take) -> None:
        """From now on ``take`` gets all that comes, in the turn of the loop in which it comes, and nobody
        calls ``receive``."""

    async def close(self) -> None:
        """Stop receiving, give what was sent a moment to leave, let go of everything. Idempotent."""


def size_of(frames: list[bytes]) -> int:
    return sum(map(len, frames))


class Inbox:
    """Messages that have arrived, bounded by number and bytes, for one receiver. Agents' and clients' wait
    apart, and are handed out in turns: whatever clients ask for, agents hear each other."""

    def __init__(self, limits: Limits, counters: Counters) -> None:
        self._limits = limits
        self._counters = counters
        self._agents: deque[tuple[str, list[bytes], Principal | None, int]] = deque()
        self._clients: deque[tuple[str, list[bytes], Principal | None, int]] = deque()
        self._was_client = False
        self._bytes = 0
        self._closed = False
        self._in_a_row = 0
        self._waiter: asyncio.Future[None] | None = None
        self._take: Take | None = None
        self._coming = False
        """Whether what waits is handed out soon."""

    @property
    def full(self) -> bool:
        """True when nothing more may be put: at least one message is always taken."""
        return self._holds(1)

    @property
    def low(self) -> bool:
        """True when it has emptied enough for held-back sockets to go on."""
        return not self._holds(2, more=1)

    def _holds(self, part: int, more: int = 0) -> bool:
        """Whether it holds such a part of what it may hold, or ``more``."""
        limits, clients = self._limits, len(self._clients)
        messages = len(self._agents) + clients
        return (
            messages * part >= limits.inbox_messages_max + more
            or self._bytes * part >= limits.inbox_bytes_max + more
            or clients * part >= CLIENTS_MAX + more
        )

    def put(self, origin: str, frames: list[bytes], who: Principal | None) -> None:
        """The caller has looked at ``full``."""
        size = size_of(frames)
        waiting = self._clients if origin.startswith(CLIENT_PREFIX) else self._agents
        waiting.append((origin, frames, who, size))
        self._bytes += size
        self._wake()

    async def get(self) -> Received:
        self._in_a_row += 1
        if self._in_a_row >= IN_A_ROW_MAX:
            self._in_a_row = 0
            await asyncio.sleep(0)  # a busy inbox must not starve the loop's timers
        while not self._agents and not self._clients:
            if self._closed:
                raise Closed("the transport was closed")
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self._next()

    def _next(self) -> Received:
        self._was_client = bool(self._clients) and not (self._was_client and self._agents)
        origin, frames, who, size = (self._clients if self._was_client else self._agents).popleft()
        self._bytes -= size
        self._counters.received += 1
        self._counters.received_bytes += size
        return origin, frames, who

    def hand_to(self, take: Take) -> None:
        """``take`` gets what is handed out."""
        self._take = take
        self.hand_out_soon()

    def hand_out(self) -> None:
        """Give what waits to whom it is to be given to, if that is known; a busy inbox lets others run in
        between."""
        self._coming = False
        waiting = len(self._agents) + len(self._clients)
        if self._take is None or not waiting:
            return
        if waiting > IN_A_ROW_MAX:
            self.hand_out_soon()
        self._take([self._next() for _ in range(min(waiting, IN_A_ROW_MAX))])

    def hand_out_soon(self) -> None:
        """In the next turn of the loop."""
        if self._take is not None and not self._coming:
            self._coming = True
            asyncio.get_running_loop().call_soon(self.hand_out)

    def close(self) -> None:
        self._closed, self._take = True, None
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
