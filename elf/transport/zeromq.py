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
and never decide who may talk to whom: its ``Security`` does, by the key that CURVE knows of a connection, at
the handshake and for each message; without one anybody may.

What a stranger can make libzmq hold: of a frame it takes as much as is announced, up to ``MAXMSGSIZE``,
before it knows who sends it. So a long frame travels in *parts* of ``PART_BYTES``, the last one shorter
(perhaps empty), and nothing longer is taken; ``elf.transport.gate`` limits how many may do so at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import Final

import zmq

from elf.addresses import CLIENT_PREFIX, AddressError, split_address
from elf.errors import ElfBug, UserError
from elf.security.principals import Security
from elf.transport.base import Counters, Dropped, Inbox, Limits, Received, Take, size_of
from elf.transport.handshakes import AT_DIALER, ZAP_DOMAIN, Failure, Handshakes, Monitor, Refused
from elf.transport.listener import Listener
from elf.transport.reader import Reader

_NOW: Final = int(zmq.NOBLOCK)
_NOW_MORE: Final = int(zmq.NOBLOCK | zmq.SNDMORE)
"""Flags as integers: to join two of the enum's costs as much as a send."""
_EVENTS: Final = int(zmq.EVENTS)
_READABLE: Final = int(zmq.POLLIN)
_MORE: Final = int(zmq.RCVMORE)

FRAMES_MAX: Final = 2
"""Frames of a message: envelope and payload."""

BIG_FRAME_BYTES: Final = 64 << 10
"""Frames from this size on are handed to ZeroMQ without a copy."""

PART_BYTES: Final = 256 << 10
"""A frame of so many bytes or more travels in several parts."""
_PART_BYTES_MAX: Final = PART_BYTES + 256
"""With what CURVE adds."""
LOOK_SECS: Final = 1.0
"""Between two looks for messages that do not end."""
BROKEN_MAX: Final = 4
"""Handshakes that break off one after the other: that is no accident."""

REBIND_SECS: Final = 0.002
"""Between two tries to listen again: libzmq closes a socket at its own time."""
REBINDS_MAX: Final = 500

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

Told = Callable[[str, Failure | None], None]
"""Told an address with which a dialer has shaken hands, or why it has not."""

_CONTEXTS: Final[set[zmq.Context[zmq.Socket[bytes]]]] = set()
"""Of parties that are not closed: where one is forgotten, garbage collection may come to its context when the
sockets are not closed yet, and would wait for them for ever."""


class ZeroMqTransport:
    """One party on the network; see ``Transport`` for what its methods promise. Make it with ``listen`` or
    ``dial``.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        security: Security | None = None,
        told: Told | None = None,
    ) -> None:
        """Internal: a party without a listener. Needs a running event loop."""
        self._limits = limits or Limits()
        self._security = security
        self._told = told
        self._counters = Counters()
        self._inbox = Inbox(self._limits, self._counters)
        self._loop = asyncio.get_running_loop()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(io_threads=1)
        self._context.set(zmq.MAX_SOCKETS, self._limits.peers_max + 16)
        _CONTEXTS.add(self._context)
        self._router: Reader | None = None
        self._listener: Listener | None = None
        self._endpoint = ""
        self._peers: OrderedDict[str, _Peer] = OrderedDict()
        self._clients: dict[bytes, _Flight] = {}
        self._address = f"{CLIENT_PREFIX}{os.urandom(_NONCE_BYTES).hex()}"
        self._open = True
        self._sweep = self._loop.call_later(self._limits.idle_secs / 2, self._close_idle)

    @classmethod
    async def listen(
        cls,
        listen: str,
        *,
        advertise: str | None = None,
        limits: Limits | None = None,
        security: Security | None = None,
        refused: Refused = lambda address, key: None,
    ) -> ZeroMqTransport:
        """An agent's transport, bound to ``host:port`` (port 0: any free one).

        ``advertise`` is what others reach it at (its port 0: the real one); by default what it is bound to.
        ``security``: None lets anybody in. ``refused`` is told of keys that it does not let in. Raises
        ``UserError`` when it cannot listen there.
        """
        transport = cls(limits, security)
        try:
            transport._bind(listen, advertise or listen, refused)
        except BaseException:
            await transport.close()
            raise
        return transport

    @classmethod
    async def dial(
        cls,
        *,
        limits: Limits | None = None,
        security: Security | None = None,
        told: Told | None = None,
    ) -> ZeroMqTransport:
        """A client's transport: nobody connects to it; answers come back to its return address. ``told``:
        how handshakes end, of which ZeroMQ itself says nothing."""
        return cls(limits, security, told)

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

    @property
    def strangers(self) -> int:
        """Connections to us over which nothing has come yet."""
        return self._listener.strangers if self._listener is not None else 0

    def reach(self, to: str) -> bool:
        """Open a connection to an address, without sending anything yet; False: it is none."""
        return self._open and self._peer(to) is not None

    async def rekey(self, security: Security) -> None:
        """Listen and connect with another server key from now on. libzmq has one for each bind, so the
        listener is bound again: every connection breaks once, is made anew by who has it, and what was on its
        way is lost. Raises ``UserError`` where the port is not free again in time."""
        self._security = security
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()
        if self._router is None or self._listener is None or not self._open:
            return
        router = self._router
        _secure(router.socket, zmq.ROUTER, security)
        with contextlib.suppress(zmq.ZMQError):  # it is unbound, where this is said again
            router.socket.unbind(self._endpoint)
            self._listener.unbound()
        for tries_left in reversed(range(REBINDS_MAX)):
            if not self._open:
                return
            try:
                router.socket.bind(self._endpoint)
            except zmq.ZMQError as error:
                if not tries_left:
                    raise UserError(f"cannot listen on {self._address}: {_bind_failure(error)}") from None
            else:
                break
            await asyncio.sleep(REBIND_SECS)
        router.touch()

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

    async def receive(self) -> Received:
        message = await self._inbox.get()
        if self._inbox.low:
            self._resume()
        return message

    def hand_to(self, take: Take) -> None:
        def taken(messages: Sequence[Received]) -> None:
            try:
                take(messages)
            finally:  # also of what waited, which no reader hands out
                if self._inbox.low:
                    self._resume()

        self._inbox.hand_to(taken)

    def _came(self) -> None:
        """All that could be read was read."""
        self._inbox.hand_out()

    async def close(self) -> None:
        if not self._open:
            return
        self._open = False
        self._sweep.cancel()
        self._inbox.close()
        if self._listener is not None:
            self._listener.close()
        if self._router is not None:
            self._router.close()
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()
        await asyncio.to_thread(self._context.term)
        _CONTEXTS.discard(self._context)

    # -- sockets ---------------------------------------------------------------------------------------------

    def _socket(self, kind: int) -> zmq.Socket[bytes]:
        """A socket with everything that both kinds share."""
        made = self._context.socket(kind)
        made.setsockopt(zmq.LINGER, LINGER_MS)
        made.setsockopt(zmq.SNDHWM, self._limits.peer_messages_max)
        made.setsockopt(zmq.RCVHWM, self._limits.peer_messages_max)
        made.setsockopt(zmq.MAXMSGSIZE, _PART_BYTES_MAX)
        made.setsockopt(zmq.HANDSHAKE_IVL, CONNECT_TIMEOUT_MS)
        made.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
        made.setsockopt(zmq.HEARTBEAT_TIMEOUT, HEARTBEAT_TIMEOUT_MS)
        if self._security is not None:
            _secure(made, kind, self._security)
        return made

    def _bind(self, listen: str, advertise: str, refused: Refused) -> None:
        if not advertise.isascii() or len(advertise) > _ADDRESS_BYTES_MAX:
            raise UserError(f"cannot be reached at {advertise!r}: an address is at most 240 ASCII characters")
        split_address(listen)
        host, wanted = split_address(advertise)
        router = self._socket(zmq.ROUTER)
        router.setsockopt(zmq.ROUTER_MANDATORY, 1)
        router.setsockopt(zmq.ROUTER_HANDOVER, 1)
        router.setsockopt(zmq.IPV6, int("[" in listen))
        self._listener = Listener(self._loop, self._context, router, self._counters, self._security, refused)
        self._look()
        try:
            router.bind(f"tcp://{listen}")
        except zmq.ZMQError as error:
            self._listener.close()
            self._listener = None
            router.close(0)
            raise UserError(f"cannot listen on {listen}: {_bind_failure(error)}") from None
        endpoint: bytes = router.getsockopt(zmq.LAST_ENDPOINT)  # type: ignore[assignment]
        self._endpoint = endpoint.rstrip(b"\0").decode()
        port = self._endpoint.rpartition(":")[2]
        self._listener.port = int(port)
        self._address = advertise if wanted else f"{host}:{port}"
        full = lambda: self._inbox.full  # noqa: E731
        self._router = Reader(self._loop, router, self._read_routed, full, self._came)

    def _look(self) -> None:
        """See that no message is endless. What waits since we read nothing is no fault of its sender."""
        if self._listener is not None and self._open:
            if not self._inbox.full:
                self._listener.look(2 * self._limits.message_bytes_max)
            self._loop.call_later(LOOK_SECS, self._look)

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
        dealer = self._socket(zmq.DEALER)
        identity = os.urandom(_NONCE_BYTES)
        if self._router is None:
            identity = _CLIENT + identity
        else:
            identity = _AGENT + identity + self._address.encode()
            dealer.setsockopt(zmq.RCVHWM, 1)  # nobody reads it
        dealer.setsockopt(zmq.ROUTING_ID, identity)
        dealer.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        dealer.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MS_MAX)
        dealer.setsockopt(zmq.CONNECT_TIMEOUT, CONNECT_TIMEOUT_MS)
        dealer.setsockopt(zmq.IPV6, int("[" in to))
        monitor = self._watched(to, dealer)
        try:
            dealer.connect(f"tcp://{to}")
        except zmq.ZMQError:
            if monitor is not None:
                monitor.close()
            dealer.close(0)
            return None
        reader = None
        if self._router is None:
            take = lambda it: self._read_from(to, it)  # noqa: E731
            reader = Reader(self._loop, dealer, take, lambda: self._inbox.full, self._came)
        return _Peer(dealer, reader, monitor)

    def _watched(self, to: str, dealer: zmq.Socket[bytes]) -> Monitor | None:
        """Has whoever wants to know told how handshakes with an address end."""
        if self._told is None:
            return None
        told, broken = self._told, 0

        def ended(why: Failure | None) -> None:
            nonlocal broken
            broken = broken + 1 if why in ("broken", "timeout") else 0
            if not broken or broken >= BROKEN_MAX:
                told(to, why)

        return Monitor(self._loop, self._context, dealer, AT_DIALER, Handshakes(ended).told)

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

    def _hand_over(self, to: zmq.Socket[bytes], frames: list[bytes], flight: _Flight) -> Dropped | None:
        """Give a message to ZeroMQ, without waiting; the reason when it takes none."""
        if not flight.room(size_of(frames), self._limits.peer_bytes_max):
            return "full"
        parts = frames if max(map(len, frames)) < PART_BYTES else _parts(frames)
        last = len(parts) - 1
        try:
            for index, part in enumerate(parts):
                flags = _NOW_MORE if index < last else _NOW
                if len(part) >= BIG_FRAME_BYTES:
                    flight.add(to.send(part, flags, copy=False, track=True), len(part))
                else:
                    to.send(part, flags)
        except zmq.Again:
            return "full"
        except zmq.ZMQError:
            return "unroutable"
        return None

    # -- receiving -------------------------------------------------------------------------------------------

    def _read_routed(self, router: zmq.Socket[bytes]) -> bool:
        """One message that came to the listener, if there is one, and whose it is."""
        if not _has_some(router):
            return False
        try:
            identity = router.recv(_NOW, copy=False)
        except zmq.ZMQError:
            return False
        frames, why = self._read_frames(router)
        who = self._listener.known(identity) if self._listener is not None else None
        if self._security is not None and who is None:
            self._counters.refused["revoked"] += 1
        elif why:
            self._counters.refused[why] += 1
        else:
            may_listen = who is None or who.kind in ("agent", "local")
            self._inbox.put(_return_address(identity.bytes, may_listen=may_listen), frames, who)
        return True

    def _read_from(self, peer: str, dealer: zmq.Socket[bytes]) -> bool:
        """One message of a peer that we have connected to, if there is one."""
        if not _has_some(dealer):
            return False
        try:
            first = dealer.recv(_NOW)
        except zmq.ZMQError:
            return False
        frames, why = self._read_frames(dealer, first)
        if why:
            self._counters.refused[why] += 1
        else:
            self._inbox.put(peer, frames, None)
        return True

    def _read_frames(self, source: zmq.Socket[bytes], first: bytes | None = None) -> tuple[list[bytes], str]:
        """The rest of a message, and what is wrong with it. Of what is too much the rest is let go."""
        frames: list[bytes] = []
        parts: list[bytes] = []
        size, why, part = 0, "", first
        while part is not None or source.getsockopt(_MORE):
            part = source.recv(_NOW) if part is None else part
            size += len(part)
            if len(frames) >= FRAMES_MAX:
                why = why or "malformed"
            elif size > self._limits.message_bytes_max:
                why = why or "size"
            elif len(part) >= PART_BYTES:
                parts.append(part)
            else:
                frames.append(b"".join([*parts, part]) if parts else part)
                parts = []
            part = None
        return frames, why or ("malformed" if parts else "")

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

    def __init__(self, dealer: zmq.Socket[bytes], reader: Reader | None, monitor: Monitor | None) -> None:
        self.socket = dealer
        self.reader = reader
        self._monitor = monitor
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
        if self._monitor is not None:
            self._monitor.close()
        if self.reader is not None:
            self.reader.close()
        else:
            self.socket.close()


def _has_some(source: zmq.Socket[bytes]) -> bool:
    """Whether a socket has a message: a third of what it takes to be told so by an exception."""
    return bool(int(source.getsockopt(_EVENTS)) & _READABLE)


def _secure(made: zmq.Socket[bytes], kind: int, security: Security) -> None:
    """Give a socket its keys."""
    if kind == zmq.ROUTER:
        if security.server_secret is None:
            raise ElfBug("a listener needs the secret key of the fleet's connections")
        made.setsockopt(zmq.CURVE_SERVER, 1)
        made.setsockopt(zmq.CURVE_SECRETKEY, security.server_secret)
        made.setsockopt(zmq.ZAP_DOMAIN, ZAP_DOMAIN)
        made.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)  # without, whoever comes is let in while nobody answers
    else:
        made.setsockopt(zmq.CURVE_SERVERKEY, security.server)
        made.setsockopt(zmq.CURVE_PUBLICKEY, security.own.public)
        made.setsockopt(zmq.CURVE_SECRETKEY, security.own.secret)


def _parts(frames: list[bytes]) -> list[bytes | memoryview]:
    """What travels for these frames."""
    found: list[bytes | memoryview] = []
    for frame in frames:
        if len(frame) < PART_BYTES:
            found.append(frame)
        else:
            view = memoryview(frame)
            found += [view[at : at + PART_BYTES] for at in range(0, len(frame) + 1, PART_BYTES)]
    return found


def _return_address(identity: bytes, *, may_listen: bool) -> str:
    """Where an answer to the owner of this identity can be sent. ``may_listen``: whether it may be told to an
    address of its own choice."""
    if may_listen and identity.startswith(_AGENT):
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
