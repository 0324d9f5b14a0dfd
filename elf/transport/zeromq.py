"""Frames between processes, over ZeroMQ.

An agent binds one ROUTER, on which everybody reaches it, and opens one DEALER to each peer that it sends to.
A client has no ROUTER: answers come back over its DEALER, by the identity that the agent's ROUTER knows it
under. A DEALER's identity says who it is: an agent's holds the address that the agent listens on (so that a
return address is an ordinary address), a client's is random. Identities last as long as the DEALER, so a
connection that breaks and comes back is the same party.

Rules: ZeroMQ's own queues (high-water marks) hold small messages; big frames are handed over without a copy
and counted in bytes until they have left. When the inbox is full sockets are not read, ZeroMQ's queues fill,
TCP holds the sender back, and the sender's ``send`` says False. Sockets are plain ones on the loop's
readiness events (a future for each message would cost more than the message). It must never look into frames,
and never decide who may talk to whom: that will be CURVE's, which goes where sockets are made (``_socket``).
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final

import zmq

from elf.addresses import AddressError, split_address
from elf.errors import UserError
from elf.transport.base import CLIENT_PREFIX, Counters, Dropped, Inbox, Limits, size_of

_NOW: Final = int(zmq.NOBLOCK)
_NOW_MORE: Final = int(zmq.NOBLOCK | zmq.SNDMORE)
"""Flags as integers: to join two of the enum's costs as much as a send."""

FRAMES_MAX: Final = 2
"""Frames of a message: envelope and payload."""

BIG_FRAME_BYTES: Final = 64 << 10
"""Frames from this size on are handed to ZeroMQ without a copy."""

READ_IN_A_ROW_MAX: Final = 64
LINGER_MS: Final = 200
RECONNECT_MS: Final = 50
RECONNECT_MS_MAX: Final = 1_000
CONNECT_TIMEOUT_MS: Final = 5_000
HEARTBEAT_MS: Final = 5_000
HEARTBEAT_TIMEOUT_MS: Final = 15_000
STUCK_SECS: Final = 5.0
"""A connection into which nothing more goes for so long is made anew: ZeroMQ gives one up for good, and does
not say so, when bytes come back over it that are none of its protocol."""
_AGENT: Final = b"A"
_CLIENT: Final = b"C"
_NONCE_BYTES: Final = 8
_ADDRESS_BYTES_MAX: Final = 240
"""An identity has at most 255 bytes."""

_Take = Callable[[list[bytes]], None]

_CONTEXTS: Final[set[zmq.Context[zmq.Socket[bytes]]]] = set()
"""Of parties that are not closed: where one is forgotten, garbage collection may come to its context when the
sockets are not closed yet, and would wait for them for ever."""


class ZeroMqTransport:
    """One party on the network; see ``Transport`` for what its methods promise. Make it with ``listen`` or
    ``dial``.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        """Internal: a party without a listener. Needs a running event loop."""
        self._limits = limits or Limits()
        self._counters = Counters()
        self._inbox = Inbox(self._limits, self._counters)
        self._loop = asyncio.get_running_loop()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(io_threads=1)
        self._context.set(zmq.MAX_SOCKETS, self._limits.peers_max + 16)
        _CONTEXTS.add(self._context)
        self._router: _Reader | None = None
        self._peers: OrderedDict[str, _Peer] = OrderedDict()
        self._clients: dict[bytes, _Flight] = {}
        self._address = f"{CLIENT_PREFIX}{os.urandom(_NONCE_BYTES).hex()}"
        self._open = True
        self._sweep = self._loop.call_later(self._limits.idle_secs / 2, self._close_idle)

    @classmethod
    async def listen(
        cls, listen: str, *, advertise: str | None = None, limits: Limits | None = None
    ) -> ZeroMqTransport:
        """An agent's transport, bound to ``host:port`` (port 0: any free one).

        ``advertise`` is what others reach it at (its port 0: the real one); by default what it is bound to.
        Raises ``UserError`` when it cannot listen there.
        """
        transport = cls(limits)
        try:
            transport._bind(listen, advertise or listen)
        except BaseException:
            await transport.close()
            raise
        return transport

    @classmethod
    async def dial(cls, *, limits: Limits | None = None) -> ZeroMqTransport:
        """A client's transport: nobody connects to it; answers come back to its return address."""
        return cls(limits)

    @property
    def address(self) -> str:
        return self._address

    @property
    def counters(self) -> Counters:
        return self._counters

    @property
    def connections(self) -> int:
        """Connections to peers that are open."""
        return len(self._peers)

    def send(self, to: str, frames: list[bytes]) -> bool:
        size = size_of(frames)
        reason: Dropped | None
        if not self._open:
            reason = "closed"
        elif size > self._limits.message_bytes_max:
            reason = "size"
        elif to.startswith(CLIENT_PREFIX):
            reason = self._send_back(to, frames)
        else:
            reason = self._send_out(to, frames)
        if reason is not None:
            self._counters.dropped[reason] += 1
            return False
        self._counters.sent += 1
        self._counters.sent_bytes += size
        return True

    async def receive(self) -> tuple[str, list[bytes]]:
        message = await self._inbox.get()
        if self._inbox.low:
            self._resume()
        return message

    async def close(self) -> None:
        if not self._open:
            return
        self._open = False
        self._sweep.cancel()
        self._inbox.close()
        if self._router is not None:
            self._router.close()
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()
        await asyncio.to_thread(self._context.term)
        _CONTEXTS.discard(self._context)

    # -- sockets ---------------------------------------------------------------------------------------------

    def _socket(self, kind: int) -> zmq.Socket[bytes]:
        """A socket with everything that both kinds share. (Keys of the cluster go here.)"""
        socket = self._context.socket(kind)
        socket.setsockopt(zmq.LINGER, LINGER_MS)
        socket.setsockopt(zmq.SNDHWM, self._limits.peer_messages_max)
        socket.setsockopt(zmq.RCVHWM, self._limits.peer_messages_max)
        # Somewhat above our own limit, so that what is a little too big is counted and costs no connection.
        socket.setsockopt(zmq.MAXMSGSIZE, 2 * self._limits.message_bytes_max)
        socket.setsockopt(zmq.HANDSHAKE_IVL, CONNECT_TIMEOUT_MS)
        socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, HEARTBEAT_TIMEOUT_MS)
        return socket

    def _bind(self, listen: str, advertise: str) -> None:
        if not advertise.isascii() or len(advertise) > _ADDRESS_BYTES_MAX:
            raise UserError(f"cannot be reached at {advertise!r}: an address is at most 240 ASCII characters")
        split_address(listen)
        host, wanted = split_address(advertise)
        socket = self._socket(zmq.ROUTER)
        socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
        socket.setsockopt(zmq.IPV6, int("[" in listen))
        try:
            socket.bind(f"tcp://{listen}")
        except zmq.ZMQError as error:
            socket.close(0)
            raise UserError(f"cannot listen on {listen}: {_bind_failure(error)}") from None
        endpoint: bytes = socket.getsockopt(zmq.LAST_ENDPOINT)  # type: ignore[assignment]
        port = endpoint.rstrip(b"\0").rpartition(b":")[2].decode()
        self._address = advertise if wanted else f"{host}:{port}"
        self._router = _Reader(self._loop, socket, self._inbox, self._take_routed)

    def _peer(self, to: str) -> _Peer | None:
        """The connection to an address, opened when there is none; None when it is no address."""
        peer = self._peers.get(to)
        if peer is None:
            peer = self._connect(to)
            if peer is None:
                return None
            while len(self._peers) >= self._limits.peers_max:
                self._peers.popitem(last=False)[1].close()
            self._peers[to] = peer
        self._peers.move_to_end(to)
        peer.used_at = self._loop.time()
        return peer

    def _connect(self, to: str) -> _Peer | None:
        try:
            split_address(to)
        except AddressError:
            return None
        socket = self._socket(zmq.DEALER)
        identity = os.urandom(_NONCE_BYTES)
        if self._router is None:
            identity = _CLIENT + identity
        else:
            identity = _AGENT + identity + self._address.encode()
            socket.setsockopt(zmq.RCVHWM, 1)  # nobody reads it
        socket.setsockopt(zmq.ROUTING_ID, identity)
        socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MS_MAX)
        socket.setsockopt(zmq.CONNECT_TIMEOUT, CONNECT_TIMEOUT_MS)
        socket.setsockopt(zmq.IPV6, int("[" in to))
        try:
            socket.connect(f"tcp://{to}")
        except zmq.ZMQError:
            socket.close(0)
            return None
        reader = None
        if self._router is None:
            reader = _Reader(self._loop, socket, self._inbox, lambda frames: self._take(to, frames))
        return _Peer(socket, reader)

    def _close_idle(self) -> None:
        before = self._loop.time() - self._limits.idle_secs
        for address, peer in list(self._peers.items()):
            if peer.used_at > before:
                break  # least recently used first
            if peer.reader is None:  # a client waits for answers, however long they take
                del self._peers[address]
                peer.close()
        for identity in [identity for identity, flight in self._clients.items() if flight.room(0, 0)]:
            del self._clients[identity]
        self._sweep = self._loop.call_later(self._limits.idle_secs / 2, self._close_idle)

    # -- sending ---------------------------------------------------------------------------------------------

    def _send_out(self, to: str, frames: list[bytes]) -> Dropped | None:
        peer = self._peer(to)
        if peer is None:
            return "unroutable"
        reason = self._hand_over(peer.socket, frames, peer.flight)
        if peer.reader is not None:
            peer.reader.touch()
        if peer.stuck(reason is not None, self._loop.time()):
            del self._peers[to]
            peer.close()
        return reason

    def _send_back(self, to: str, frames: list[bytes]) -> Dropped | None:
        if self._router is None:
            return "unroutable"
        try:
            identity = bytes.fromhex(to[len(CLIENT_PREFIX) :])
        except ValueError:
            return "unroutable"
        flight = self._clients.setdefault(identity, _Flight())
        reason = self._hand_over(self._router.socket, [identity, *frames], flight)
        if not flight.bytes:
            del self._clients[identity]
        self._router.touch()
        return reason

    def _hand_over(self, socket: zmq.Socket[bytes], frames: list[bytes], flight: _Flight) -> Dropped | None:
        """Give a message to ZeroMQ, without waiting; the reason when it takes none."""
        if not flight.room(size_of(frames), self._limits.peer_bytes_max):
            return "full"
        last = len(frames) - 1
        try:
            for index, frame in enumerate(frames):
                flags = _NOW_MORE if index < last else _NOW
                if len(frame) >= BIG_FRAME_BYTES:
                    flight.add(socket.send(frame, flags, copy=False, track=True), len(frame))
                else:
                    socket.send(frame, flags)
        except zmq.Again:
            return "full"
        except zmq.ZMQError:
            return "unroutable"
        return None

    # -- receiving -------------------------------------------------------------------------------------------

    def _take_routed(self, frames: list[bytes]) -> None:
        self._take(_return_address(frames[0]), frames[1:])

    def _take(self, origin: str, frames: list[bytes]) -> None:
        if len(frames) > FRAMES_MAX:
            self._counters.refused["malformed"] += 1
        elif size_of(frames) > self._limits.message_bytes_max:
            self._counters.refused["size"] += 1
        else:
            self._inbox.put(origin, frames)

    def _resume(self) -> None:
        if self._router is not None:
            self._router.resume()
        else:
            for peer in self._peers.values():
                if peer.reader is not None:
                    peer.reader.resume()


class _Flight:
    """Bytes of big frames that were handed to ZeroMQ and have not left yet."""

    def __init__(self) -> None:
        self._frames: deque[tuple[zmq.MessageTracker, int]] = deque()
        self.bytes = 0

    def room(self, size: int, limit: int) -> bool:
        """True when ``size`` more bytes may wait (always, when nothing does)."""
        while self._frames and self._frames[0][0].done:
            self.bytes -= self._frames.popleft()[1]
        return self.bytes == 0 or self.bytes + size <= limit

    def add(self, tracker: zmq.MessageTracker, size: int) -> None:
        self._frames.append((tracker, size))
        self.bytes += size


class _Peer:
    """A connection to an address, and when it was last used."""

    def __init__(self, socket: zmq.Socket[bytes], reader: _Reader | None) -> None:
        self.socket = socket
        self.reader = reader
        self.flight = _Flight()
        self.used_at = 0.0
        self._refuses_since: float | None = None

    def stuck(self, refused: bool, now: float) -> bool:
        """Told of each send: whether it refuses everything for too long. What still flies counts as going."""
        if not refused or self.flight.bytes:
            self._refuses_since = None
        elif self._refuses_since is None:
            self._refuses_since = now
        return self._refuses_since is not None and now - self._refuses_since >= STUCK_SECS

    def close(self) -> None:
        if self.reader is not None:
            self.reader.close()
        else:
            self.socket.close()


class _Reader:
    """Reads one socket whenever it can be read and the inbox has room.

    ZeroMQ signals *changes* only, and any other call on the socket may use a signal up: so it reads until
    there is nothing, and must be touched after every send.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, socket: zmq.Socket[bytes], inbox: Inbox, take: _Take
    ) -> None:
        self.socket = socket
        self._loop = loop
        self._inbox = inbox
        self._take = take
        self._held_back = False
        self._next: asyncio.Handle | None = None
        self._fd: int = socket.getsockopt(zmq.FD)  # type: ignore[assignment]
        loop.add_reader(self._fd, self._read)
        self.touch()

    def touch(self) -> None:
        """Look at the socket soon."""
        if self._next is None and not self._held_back:
            self._next = self._loop.call_soon(self._read)

    def resume(self) -> None:
        if self._held_back:
            self._held_back = False
            self.touch()

    def close(self) -> None:
        self._loop.remove_reader(self._fd)
        if self._next is not None:
            self._next.cancel()
        self.socket.close()

    def _read(self) -> None:
        if self._next is not None:
            self._next.cancel()
            self._next = None
        for _ in range(READ_IN_A_ROW_MAX):
            if self._inbox.full:
                self._held_back = True
                return
            frames = _read_message(self.socket)
            if frames is None:
                return
            self._take(frames)
        self.touch()


def _read_message(socket: zmq.Socket[bytes]) -> list[bytes] | None:
    """One message, or None when there is none. Frames beyond what any message has are read and let go."""
    try:
        frames = [socket.recv(_NOW)]
    except zmq.ZMQError:
        return None
    while socket.getsockopt(zmq.RCVMORE):
        frame = socket.recv(_NOW)
        if len(frames) <= FRAMES_MAX + 1:
            frames.append(frame)
    return frames


def _return_address(identity: bytes) -> str:
    """Where an answer to the owner of this identity can be sent."""
    if identity.startswith(_AGENT):
        try:
            address = identity[len(_AGENT) + _NONCE_BYTES :].decode("ascii")
        except UnicodeDecodeError:
            address = ""
        if address:
            return address
    return f"{CLIENT_PREFIX}{identity.hex()}"


def cannot_listen(listen: str) -> str:
    """Why an agent cannot listen there now; empty when it can."""
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        socket.setsockopt(zmq.IPV6, int("[" in listen))
        try:
            socket.bind(f"tcp://{listen}")
        except zmq.ZMQError as error:
            return f"cannot listen on {listen}: {_bind_failure(error)}"
    return ""


def _bind_failure(error: zmq.ZMQError) -> str:
    if error.errno == zmq.EADDRINUSE:
        return "the port is in use; choose another (agent.listen) or stop what listens there"
    if error.errno in (errno.EADDRNOTAVAIL, errno.ENODEV):
        return "this machine has no such address"
    return str(error.strerror).lower()
