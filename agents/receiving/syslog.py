"""Syslog: RFC 5424 and 3164 over UDP (RFC 5426), TCP (RFC 6587: counted octets, or a newline behind each
message) and TLS (RFC 5425).

A sender over TCP counts octets or ends messages with a newline, and does so from its first byte on. Nothing
of syslog says that a message has arrived: when there is no room nothing is read, and TCP lets the sender
wait. UDP cannot wait: what does not fit is counted, as is what the kernel has dropped because it was not read
in time.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import ssl
from collections.abc import Sequence
from typing import Final

from agents.receiving.intake import Intake, line
from agents.receiving.listening import Bounds, Listener, some
from agents.serving import bound
from elf.addresses import split_address

DATAGRAM_BYTES_MAX: Final = 1 << 16
DATAGRAMS_AT_ONCE: Final = 256
BUFFER_BYTES: Final = 8 << 20
"""What the kernel is asked to keep of UDP until it is read."""
_RXQ_OVFL: Final = 40
"""``SO_RXQ_OVFL`` of Linux: with each message comes how many were dropped before it."""
_COUNT_DIGITS: Final = 9

HEADER: Final = re.compile(
    rb"""^<\d{1,3}>(?:
      1\ \S+\ \S+\ \S+\ \S+\ \S+\ (?:-|(?:\[(?:[^\]\\"\n]|"(?:[^"\\\n]|\\.)*")*\])+)(?:\ (?:\xef\xbb\xbf)?|$)
    | (?:[A-Z][a-z]{2}\ [\ \d]\d\ \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT\S+)
      \ (?:(?:[^\s:\[]+|[\dA-Fa-f:.]+)\ )?[^\s:\[]+(?:\[[^\]\n]*\])?:\ ?
    )""",
    re.MULTILINE | re.VERBOSE,
)
"""What syslog puts in front of a message: of RFC 5424, or of RFC 3164 as it is written."""


class Syslog:
    """``whole``: lines keep the header. ``transports``: ``udp``, ``tcp``, or both, at one address."""

    def __init__(
        self,
        listen: str,
        intake: Intake,
        *,
        transports: Sequence[str],
        whole: bool,
        max_line_bytes: int,
        bounds: Bounds,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._intake = intake
        self._whole = whole
        self._max = max_line_bytes
        self._transports = transports
        self._tcp = Listener(listen, self._talk, intake, bounds, tls)
        self._listen = listen
        self._dropped = 0
        self.udp_address = ""

    @property
    def address(self) -> str:
        return self._tcp.address

    async def serve(self) -> None:
        """Until it is cancelled. Raises ``UserError`` where it cannot listen."""
        async with asyncio.TaskGroup() as group:
            if "tcp" in self._transports:
                group.create_task(self._tcp.serve())
            if "udp" in self._transports:
                group.create_task(self._serve_udp())

    def _text(self, message: bytes) -> bytes:
        return message if self._whole else HEADER.sub(b"", message, count=1)

    # -- TCP -------------------------------------------------------------------------------------------------

    async def _talk(self, reader: asyncio.StreamReader, _: asyncio.StreamWriter, address: str) -> None:
        first = await some(reader, begun=False)
        counted = first[:1].isdigit()
        framing = _Counted(self._max) if counted else _Lines(self._max)
        data = first
        while data:
            try:
                messages = framing.take(data)
            except ValueError as error:
                self._intake.refuse("framing", address, str(error))
                return
            await self._take(address, messages, counted=counted)
            data = await some(reader, begun=framing.begun)
        if rest := framing.rest():
            await self._take(address, [rest], counted=counted)

    async def _take(self, address: str, messages: list[bytes], *, counted: bool) -> None:
        """Returns when they have room. Those with newlines between come as blocks."""
        if not messages:
            return
        if counted:
            lines = b"".join(line(self._text(message)) for message in messages)
        else:
            lines = b"".join(messages)
            lines = lines if self._whole else HEADER.sub(b"", lines)
        while not self._intake.offer(address, lines):
            await self._intake.room()

    # -- UDP -------------------------------------------------------------------------------------------------

    async def _serve_udp(self) -> None:
        host, _ = split_address(self._listen)
        key = f"streams.{self._intake.stream}.receive.listen"
        sock = bound(self._listen, key, kind=socket.SOCK_DGRAM)
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, _RXQ_OVFL, 1)
        self.udp_address = f"{host}:{sock.getsockname()[1]}"
        self._intake.listens(f"{self.udp_address} (UDP)")
        loop = asyncio.get_running_loop()
        loop.add_reader(sock, self._receive, sock)
        try:
            await asyncio.Event().wait()
        finally:
            loop.remove_reader(sock)
            sock.close()

    def _receive(self, sock: socket.socket) -> None:
        """What has come, up to a bound: the loop has other things to do."""
        came: dict[str, list[bytes]] = {}
        with contextlib.suppress(BlockingIOError):
            for _ in range(DATAGRAMS_AT_ONCE):
                data, ancillary, _, peer = sock.recvmsg(DATAGRAM_BYTES_MAX, socket.CMSG_SPACE(4))
                came.setdefault(peer[0], []).append(line(self._text(data)))
                self._count_dropped(ancillary)
        for address, lines in came.items():
            block = b"".join(lines)
            if not self._intake.offer(address, block):
                self._intake.lose(address, len(lines), len(block))

    def _count_dropped(self, ancillary: Sequence[tuple[int, int, bytes]]) -> None:
        for level, kind, data in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, _RXQ_OVFL):
                total = int.from_bytes(data[:4], "little")
                if new := (total - self._dropped) % (1 << 32):
                    self._intake.lose("kernel", new, 0)
                self._dropped = total


class _Lines:
    """Messages that end with a newline, as blocks of whole ones. Of one that is too long the beginning stays,
    which is one byte too long to be a line."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._rest = b""
        self._over = False

    @property
    def begun(self) -> bool:
        return bool(self._rest) or self._over

    def take(self, data: bytes) -> list[bytes]:
        found = []
        if self._over:
            _, newline, data = data.partition(b"\n")
            if not newline:
                return []
            self._over = False
        data = self._rest + data
        end = data.rfind(b"\n") + 1
        if end:
            found.append(data[:end])
        self._rest = data[end:]
        if len(self._rest) > self._most + 2:
            found.append(self._rest[: self._most + 1] + b"\n")
            self._rest, self._over = b"", True
        return found

    def rest(self) -> bytes:
        """The last message needs no newline when the connection ends."""
        rest, self._rest = self._rest, b""
        return line(rest) if rest else b""


class _Counted:
    """Messages with their length in front."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._data = bytearray()
        self._left = 0
        """Bytes of a message that is too long, which are passed over."""

    @property
    def begun(self) -> bool:
        return bool(self._data) or self._left > 0

    def take(self, data: bytes) -> list[bytes]:
        """Raises ``ValueError`` where there is no length."""
        self._data += data
        found = []
        at = self._passed_over()
        while (blank := self._data.find(b" ", at, at + _COUNT_DIGITS + 1)) >= 0:
            digits = bytes(self._data[at:blank])
            if not digits.isdigit():
                raise ValueError("a message over TCP begins with its length, as the first one did")
            begin, size = blank + 1, int(digits)
            if len(self._data) < begin + min(size, self._most + 1):
                break
            found.append(bytes(self._data[begin : begin + min(size, self._most + 1)]))
            at = min(begin + size, len(self._data))
            if begin + size > len(self._data):
                self._left = begin + size - len(self._data)
                break
        else:
            rest = bytes(self._data[at : at + _COUNT_DIGITS + 1])
            if rest and (not rest.isdigit() or len(rest) > _COUNT_DIGITS):
                raise ValueError("a message over TCP begins with its length, as the first one did")
        del self._data[:at]
        return found

    def _passed_over(self) -> int:
        gone = min(self._left, len(self._data))
        self._left -= gone
        return gone

    def rest(self) -> bytes:
        """A piece of a message is none."""
        return b""
