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

from agents.receiving.intake import ENDS, Intake, line
from agents.receiving.listening import Bounds, Listener, some
from agents.receiving.unpacking import TooLarge
from agents.serving import bound
from elf.addresses import split_address
from elf.errors import UserError

DATAGRAM_BYTES_MAX: Final = 1 << 16
DATAGRAMS_AT_ONCE: Final = 256
BUFFER_BYTES: Final = 8 << 20
"""What the kernel is asked to keep of UDP until it is read."""
_RXQ_OVFL: Final = 40
"""``SO_RXQ_OVFL`` of Linux: with each message comes how many were dropped before it."""
LENGTH_DIGITS: Final = 9
HEADER_BYTES_MAX: Final = 8 << 10
"""What may stand in front of a line besides."""

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
        try:
            async with asyncio.TaskGroup() as group:
                if "tcp" in self._transports:
                    group.create_task(self._tcp.serve())
                if "udp" in self._transports:
                    group.create_task(self._serve_udp())
        except* UserError as refused:
            raise UserError("; ".join(str(one) for one in refused.exceptions)) from None

    # -- TCP -------------------------------------------------------------------------------------------------

    async def _talk(self, reader: asyncio.StreamReader, _: asyncio.StreamWriter, address: str) -> None:
        data = await some(reader, begun=False)
        framing = (_Counted if data[:1].isdigit() else _Lines)(self._max)
        while data:
            try:
                pieces = framing.take(data)
            except ValueError as error:
                self._intake.refuse("framing", address, str(error))
                return
            await self._take(address, pieces)
            data = await some(reader, begun=framing.begun)
        await self._take(address, framing.rest())

    async def _take(self, address: str, pieces: list[_Piece]) -> None:
        """Returns when they have room, or never will."""
        lines = b"".join(text if is_cut or self._whole else HEADER.sub(b"", text) for text, is_cut in pieces)
        try:
            while lines and not self._intake.offer(address, lines):
                await self._intake.room()
        except TooLarge:
            self._intake.lose(address, lines.count(b"\n"), len(lines))

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
            self._intake.spool.say_lost()

    def _receive(self, sock: socket.socket) -> None:
        """What has come, up to a bound: the loop has other things to do."""
        came: dict[str, list[bytes]] = {}
        with contextlib.suppress(BlockingIOError):
            for _ in range(DATAGRAMS_AT_ONCE):
                data, ancillary, _, peer = sock.recvmsg(DATAGRAM_BYTES_MAX, socket.CMSG_SPACE(4))
                came.setdefault(peer[0], []).append(
                    line(data if self._whole else HEADER.sub(b"", data.rstrip(ENDS)))
                )
                self._count_dropped(ancillary)
        for address, lines in came.items():
            block = b"".join(lines)
            with contextlib.suppress(TooLarge):
                if self._intake.offer(address, block):
                    continue
            self._intake.lose(address, len(lines), len(block))

    def _count_dropped(self, ancillary: Sequence[tuple[int, int, bytes]]) -> None:
        for level, kind, data in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, _RXQ_OVFL):
                total = int.from_bytes(data[:4], "little")
                if new := (total - self._dropped) % (1 << 32):
                    self._intake.lose("kernel", new, 0)
                self._dropped = total


_Piece = tuple[bytes, bool]
"""One or several messages, each with its newline; or the beginning of one that is too long to be a line,
which has no more than that to say (True)."""


class _Lines:
    """Messages that end with a newline, as blocks of whole ones."""

    def __init__(self, most: int) -> None:
        self._cut_at = most + HEADER_BYTES_MAX
        self._rest = bytearray()
        self._over = False

    @property
    def begun(self) -> bool:
        return bool(self._rest) or self._over

    def take(self, data: bytes) -> list[_Piece]:
        found: list[_Piece] = []
        if self._over:
            _, newline, data = data.partition(b"\n")
            self._over = not newline
        end = data.rfind(b"\n") + 1
        if end:
            found.append((bytes(self._rest) + data[:end], False))
            self._rest.clear()
        self._rest += data[end:]
        if len(self._rest) > self._cut_at:
            found.append((bytes(self._rest[: self._cut_at]) + b"\n", True))
            self._rest.clear()
            self._over = True
        return found

    def rest(self) -> list[_Piece]:
        """The last message needs no newline when the connection ends."""
        return [(bytes(self._rest) + b"\n", False)] if self._rest else []


class _Counted:
    """Messages with their length in front."""

    def __init__(self, most: int) -> None:
        self._cut_at = most + HEADER_BYTES_MAX
        self._data = bytearray()
        self._left = 0
        """Bytes of a message that is too long, which are passed over."""

    @property
    def begun(self) -> bool:
        return bool(self._data) or self._left > 0

    def take(self, data: bytes) -> list[_Piece]:
        """Raises ``ValueError`` where there is no length."""
        self._data += data
        found: list[_Piece] = []
        at = min(self._left, len(self._data))
        self._left -= at
        while (size := self._size(at)) is not None:
            begin = self._data.index(b" ", at) + 1
            kept = min(size, self._cut_at)
            if len(self._data) < begin + kept:
                break
            found.append((line(bytes(self._data[begin : begin + kept])), kept < size))
            at = min(begin + size, len(self._data))
            self._left = begin + size - at
        del self._data[:at]
        return found

    def _size(self, at: int) -> int | None:
        """The length that stands there; None: it is not whole yet."""
        digits, blank, _ = bytes(self._data[at : at + LENGTH_DIGITS + 1]).partition(b" ")
        if (digits and not digits.isdigit()) or (blank and not digits) or len(digits) > LENGTH_DIGITS:
            raise ValueError("each message begins with its length here, as the first one did")
        return int(digits) if blank else None

    def rest(self) -> list[_Piece]:
        """A piece of a message is none."""
        return []
