"""Handshakes of ZeroMQ's connections, as its monitor tells of them, and the answer to who may connect (ZAP,
RFC 27).

Rules: both are read on the loop, so many in one turn of it. Nothing waits for them but libzmq's handshake.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Final, Literal

import zmq

from elf.security.principals import Admit
from elf.transport.reader import Reader

ZAP_ADDRESS: Final = "inproc://zeromq.zap.01"
ZAP_DOMAIN: Final = b"elf"
_NOW: Final = int(zmq.NOBLOCK)
_CURVE: Final = b"CURVE"
_EVENT: Final = struct.Struct("=HI")
_FAILED: Final = int(zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_AUTH)
AT_LISTENER: Final = _FAILED | int(zmq.EVENT_ACCEPTED | zmq.EVENT_ACCEPT_FAILED | zmq.EVENT_DISCONNECTED)
AT_DIALER: Final = _FAILED | int(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
"""Not failures of the protocol: libzmq 4.3.5 tells of them between an error and its ``errno``, takes a
message that cannot be decrypted for one that cannot be taken yet, and aborts the process when the connection
ends (``!_io_error``). Such a connection is one that has ended and of which nothing else was told."""

Refused = Callable[[str, bytes], None]
"""Told the address of who came with a key that is not admitted, and the CURVE key."""
Failure = Literal["key", "mechanism", "protocol", "timeout", "broken"]
"""Why a handshake failed. ``key``: the listener does not admit that key. ``mechanism``: one side wants keys,
the other has none. ``protocol``: what was said was none of it, or for another listener's key. ``timeout``: it
was not finished in time. ``broken``: the connection ended meanwhile."""


class Zap:
    """Answers libzmq in one context. ``admit`` decides by the CURVE public key, and is the name under which
    each message of that connection comes: the key in hexadecimal, as its ``User-Id``. ``refused`` is told of
    keys that it does not admit."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        context: zmq.Context[zmq.Socket[bytes]],
        admit: Admit,
        refused: Refused,
    ) -> None:
        socket = context.socket(zmq.REP)
        socket.setsockopt(zmq.LINGER, 0)
        socket.bind(ZAP_ADDRESS)
        self._admit = admit
        self._refused = refused
        self._reader = Reader(loop, socket, self._take)

    def _take(self, socket: zmq.Socket[bytes]) -> bool:
        try:
            asked = socket.recv_multipart(_NOW)
        except zmq.ZMQError:
            return False
        version, request, _domain, address, _identity, mechanism, *credentials = asked
        user, status, text = b"", b"400", b"this key is not admitted"
        if mechanism == _CURVE and credentials:
            if self._admit(credentials[0]) is not None:
                user, status, text = credentials[0].hex().encode(), b"200", b""
            else:
                self._refused(address.decode(errors="replace"), credentials[0])
        socket.send_multipart([version, request, status, text, user, b""], _NOW)
        return True

    def close(self) -> None:
        self._reader.close()


class Monitor:
    """Tells of the events of one socket. ``tell``: the event, its value (a descriptor, or an error)."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        context: zmq.Context[zmq.Socket[bytes]],
        of: zmq.Socket[bytes],
        events: int,
        tell: Callable[[int, int], None],
    ) -> None:
        self._of = of
        self._tell = tell
        address = f"inproc://monitor.{id(self)}"
        of.monitor(address, events)
        socket = context.socket(zmq.PAIR)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVHWM, 0)  # libzmq's own thread would wait for room
        socket.connect(address)
        self._reader = Reader(loop, socket, self._take)

    def _take(self, socket: zmq.Socket[bytes]) -> bool:
        try:
            event, *_ = socket.recv_multipart(_NOW)
        except zmq.ZMQError:
            return False
        self._tell(*_EVENT.unpack(event))
        return True

    def close(self) -> None:
        """Before the socket that it is of."""
        self._of.monitor(None, 0)
        self._reader.close()


def failure(event: int, value: int) -> Failure | None:
    """Why a handshake failed; None for an event of another kind."""
    if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
        return "key"
    if event == zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL:
        return "timeout" if value == zmq.ETIMEDOUT else "broken"
    return None


class Handshakes:
    """How those of one dialer end, which makes one connection after the other: ``told`` of each event of its
    monitor; the first word about a connection counts."""

    def __init__(self, ended: Callable[[Failure | None], None]) -> None:
        """``ended``: with why it failed, None: it did not."""
        self._ended = ended
        self._is_known = False

    def told(self, event: int, value: int) -> None:
        why = failure(event, value)
        if event == zmq.EVENT_DISCONNECTED:
            if not self._is_known:
                self._ended("protocol")
            self._is_known = False
        else:
            self._is_known = True
            self._ended(why)
