"""Whoever stands at an agent's listening socket: who they are, and how much of them it takes."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import sys
from collections.abc import Iterator
from typing import Final

import zmq

from elf.security.principals import Principal, Security
from elf.transport.base import Counters
from elf.transport.gate import Gate
from elf.transport.handshakes import AT_LISTENER, Monitor, Refused, Zap, failure

CONNECTIONS_MAX: Final = 8_192
"""To a listener; at most half of the descriptors that the process may have."""
_DESCRIPTOR: Final = "__fd"
"""What libzmq calls the descriptor that a message was read from (``ZMQ_SRCFD``)."""
_BYTES_RECEIVED: Final = slice(128, 136)
"""Of Linux's ``struct tcp_info``."""


class Listener:
    """What stands before a listening socket: who may connect, who has, and how many at once. ``port``: its
    own, once it is bound."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        context: zmq.Context[zmq.Socket[bytes]],
        router: zmq.Socket[bytes],
        counters: Counters,
        security: Security | None,
        refused: Refused,
    ) -> None:
        self.port = 0
        self._failed = False
        """Whether the connection that ends next has failed, which was told already."""
        self._admit = security.admit if security is not None else None
        self._counts = counters.handshakes
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = CONNECTIONS_MAX if descriptors < 0 else min(CONNECTIONS_MAX, descriptors // 2)
        self._gate = Gate(self._host_of, self._shut, self._counts, most)
        self._zap = Zap(loop, context, security.admit, refused) if security is not None else None
        self._monitor = Monitor(loop, context, router, AT_LISTENER, self._told)

    @property
    def strangers(self) -> int:
        return self._gate.strangers

    def known(self, identity: zmq.Frame) -> Principal | None:
        """Whose message it is, of which this is the first frame; None: of nobody who may be here, or
        anybody's where there are no keys."""
        try:
            fd = int(identity.get(_DESCRIPTOR))
        except zmq.ZMQError:
            fd = -1  # of ZMTP 2 or older, which has no properties
        if self._admit is None:
            self._gate.spoke(fd)
            return None
        who = self._admit(bytes.fromhex(str(identity.get("User-Id"))))
        if who is None:
            self._shut(fd)
        else:
            self._gate.spoke(fd, f"{who.kind} {who.name}" if who.kind in ("person", "token") else "")
        return who

    def look(self, bytes_max: int) -> None:
        self._gate.look(_came, bytes_max)

    def unbound(self) -> None:
        """Everybody is gone, and libzmq tells of none of them."""
        self._gate.all_gone()

    def _told(self, event: int, value: int) -> None:
        if event == zmq.EVENT_ACCEPTED:
            self._gate.accepted(value)
        elif event == zmq.EVENT_DISCONNECTED:
            if self._gate.gone(value) and not self._failed:
                self._counts["left"] += 1
            self._failed = False
        elif event == zmq.EVENT_ACCEPT_FAILED:
            self._counts["descriptors"] += 1
        elif (why := failure(event, value)) is not None:
            self._counts[why] += 1
            self._failed = True

    def _host_of(self, fd: int) -> str | None:
        """Who is at the other end of a connection to our port."""
        try:
            with _borrowed(fd) as its:
                return str(its.getpeername()[0]) if its.getsockname()[1] == self.port else None
        except (OSError, IndexError):
            return None

    def _shut(self, fd: int) -> None:
        """End a connection: libzmq finds it ended, and lets go of it. Nothing else can have taken its
        descriptor meanwhile but another connection to us, which its owner makes anew."""
        if self._host_of(fd) is not None:
            with contextlib.suppress(OSError), _borrowed(fd) as its:  # it may have ended by itself
                its.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._monitor.close()
        if self._zap is not None:
            self._zap.close()


def _came(fd: int) -> int | None:
    """Bytes that have come over a TCP connection; None where the system does not tell."""
    option, told = getattr(socket, "TCP_INFO", None), b""
    if option is not None:
        with contextlib.suppress(OSError), _borrowed(fd) as its:
            told = its.getsockopt(socket.IPPROTO_TCP, option, _BYTES_RECEIVED.stop)
    return int.from_bytes(told[_BYTES_RECEIVED], sys.byteorder) if len(told) == _BYTES_RECEIVED.stop else None


@contextlib.contextmanager
def _borrowed(fd: int) -> Iterator[socket.socket]:
    """A connection of libzmq's, to look at or to shut."""
    its = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, fd)
    try:
        yield its
    finally:
        its.detach()
