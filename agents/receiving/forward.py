"""The forward protocol of Fluentd and Fluent Bit, version 1, over TCP or TLS: messages of msgpack, one by one
(Message), as an array (Forward), or as a block of them (PackedForward, and with gzip
CompressedPackedForward).

A message with a ``chunk`` is acknowledged when its lines are durable. Its sender repeats it until it is, also
after a crash of the agent, and it is taken once. While there is no room nothing is read. With a token both
sides prove by digests that they have it (``shared_key``), before anything else is taken.

msgpack says nowhere how long a message is: ``Boundary`` finds its end, without making anything of it. What
msgspec does not take (text that is no UTF-8) goes into a line as it is, which is rejected like such a line of
a file.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import secrets
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from agents.receiving.intake import Intake, line
from agents.receiving.listening import WAIT_SECS, Bounds, Listener, some
from agents.receiving.records import block, check_count, rendered
from agents.receiving.unpacking import HERE_BYTES_MAX, TooLarge, gunzipped

DEPTH_MAX: Final = 32
ITEMS_MAX: Final = 1 << 20
"""Values in a message, a block of entries being one: each takes time to pass."""
HANDSHAKE_BYTES_MAX: Final = 4 << 10
HELD_BYTES_MAX: Final = 64 << 20
"""Of messages that are not taken yet, of all connections."""
READ_AT_ONCE: Final = 2
"""On threads."""
_EVENT_TIME: Final = 0
"""The type of the extension: seconds and nanoseconds, 32 bits each."""
_HERE_BYTES: Final = 64 << 10
"""A larger message is read on a thread."""
_ARRAY: Final = b"\xdd"
Data = bytes | bytearray | memoryview

# By first byte: (bytes of the head, width of a size in it, what the size counts).
_BYTES, _ITEMS, _PAIRS = range(3)
_SIZED: Final = {
    0xC4: (1, _BYTES), 0xC5: (2, _BYTES), 0xC6: (4, _BYTES), 0xD9: (1, _BYTES), 0xDA: (2, _BYTES),
    0xDB: (4, _BYTES), 0xDC: (2, _ITEMS), 0xDD: (4, _ITEMS), 0xDE: (2, _PAIRS), 0xDF: (4, _PAIRS),
}  # fmt: skip
_FIXED: Final = {
    0xC0: 1, 0xC2: 1, 0xC3: 1, 0xCA: 5, 0xCB: 9, 0xCC: 2, 0xCD: 3, 0xCE: 5, 0xCF: 9, 0xD0: 2, 0xD1: 3,
    0xD2: 5, 0xD3: 9, 0xD4: 3, 0xD5: 4, 0xD6: 6, 0xD7: 10, 0xD8: 18,
}  # fmt: skip
_EXTENSIONS: Final = {0xC7: 1, 0xC8: 2, 0xC9: 4}


class NoMessage(Exception):
    """Bytes that are no message of the protocol."""


class Boundary:
    """Where the value ends that begins the bytes it is given, of which there are more each time."""

    def __init__(self) -> None:
        self._at = 0
        self._left = [1]
        """Values that are missing, of each container around the next one."""
        self._items = 0

    def end(self, data: Data) -> int | None:
        """Behind its last byte; None: it is not whole. Raises ``NoMessage`` and ``TooLarge``."""
        left, at = self._left, self._at
        while left:
            if not left[-1]:
                left.pop()
                continue
            size, items = _head(data, at)
            if size is None or at + size > len(data):
                self._at = at
                return None
            at += size
            left[-1] -= 1
            if items:
                left.append(items)
                self._items += items
                if self._items > ITEMS_MAX:
                    raise TooLarge(f"it has more than {ITEMS_MAX} values beside blocks of entries")
                if len(left) > DEPTH_MAX:
                    raise NoMessage(f"it is nested more than {DEPTH_MAX} deep")
        return at


def _head(data: Data, at: int) -> tuple[int | None, int]:
    """The bytes of the value there, without what it contains, and how many it contains; None: not there
    yet."""
    if at >= len(data):
        return None, 0
    first = data[at]
    if first < 0x80 or first >= 0xE0:
        return 1, 0
    if first < 0x90:
        return 1, 2 * (first & 0x0F)
    if first < 0xA0:
        return 1, first & 0x0F
    if first < 0xC0:
        return 1 + (first & 0x1F), 0
    if first in _FIXED:
        return _FIXED[first], 0
    width, kind = _SIZED.get(first, (_EXTENSIONS.get(first, 0), _BYTES))
    if not width:
        raise NoMessage("it is no msgpack")
    if at + 1 + width > len(data):
        return None, 0
    count = int.from_bytes(data[at + 1 : at + 1 + width], "big")
    if kind == _BYTES:
        return 1 + width + count + (first in _EXTENSIONS), 0
    return 1 + width, count * (1 + (kind == _PAIRS))


class _Moment(int):
    """Nanoseconds, of an EventTime."""


def _extension(code: int, data: memoryview) -> object:
    if code == _EVENT_TIME and len(data) == 8:
        return _Moment(int.from_bytes(data[:4], "big") * 1_000_000_000 + int.from_bytes(data[4:], "big"))
    return bytes(data)


_decode: Final = msgspec.msgpack.Decoder(ext_hook=_extension).decode
_encode: Final = msgspec.msgpack.Encoder().encode


class Forward:
    """``whole``: lines are records as JSON, with their tag. ``shared_key``: empty, none is wanted."""

    def __init__(
        self,
        listen: str,
        intake: Intake,
        *,
        whole: bool,
        shared_key: str,
        bounds: Bounds,
        message_bytes_max: int,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._intake = intake
        self._whole = whole
        self._key = shared_key.encode()
        self._most = message_bytes_max
        self._lines_max = intake.lines_max(message_bytes_max)
        self._held = _Held()
        self._reading = asyncio.Semaphore(READ_AT_ONCE)
        self._tcp = Listener(listen, self._talk, intake, bounds, tls)

    @property
    def address(self) -> str:
        return self._tcp.address

    async def serve(self) -> None:
        """Until it is cancelled. Raises ``UserError`` where it cannot listen."""
        await self._tcp.serve()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: str) -> None:
        messages = _Messages(reader, self._held)
        try:
            if self._key and not await self._shake_hands(messages, writer):
                self._intake.refuse("token", address, "forward: the sender has another shared_key")
                return
            while (data := await messages.next(self._most)) is not None:
                lines, chunk = await self._read(data)
                await self._take(lines, chunk, address)
                if chunk is not None:
                    writer.write(_encode({"ack": chunk}))
                    await writer.drain()
        except TooLarge as error:
            self._intake.refuse("large", address, f"forward: {error}")
        except NoMessage as error:
            self._intake.refuse("malformed", address, f"forward: {error}")
        except Busy as error:
            self._intake.refuse("busy", address, f"forward: {error}")
        finally:
            messages.close()

    async def _take(self, lines: bytes, chunk: object, address: str) -> None:
        if not lines:
            return
        if chunk is None:
            while not self._intake.offer(address, lines):
                await self._intake.room()
        else:
            while not await self._intake.deliver(address, lines, _encode(chunk)):
                await self._intake.room()

    async def _read(self, data: bytes) -> tuple[bytes, object]:
        if len(data) < _HERE_BYTES:
            with contextlib.suppress(TooLarge):
                most = min(self._most, self._lines_max, HERE_BYTES_MAX)
                return read(data, most, most, whole=self._whole)
        async with self._reading:
            return await asyncio.to_thread(read, data, self._most, self._lines_max, whole=self._whole)

    async def _shake_hands(self, messages: _Messages, writer: asyncio.StreamWriter) -> bool:
        """Whether both have the key."""
        nonce = secrets.token_bytes(16)
        writer.write(_encode(["HELO", {"nonce": nonce, "auth": "", "keepalive": True}]))
        async with asyncio.timeout(WAIT_SECS):
            data = await messages.next(HANDSHAKE_BYTES_MAX)
        ping = _opened(data) if data is not None else None
        match ping:
            case ["PING", str(host), str() | bytes() as salt, str(digest), *_]:
                salt = salt.encode() if isinstance(salt, str) else salt
            case _:
                raise NoMessage("a PING is wanted first, as it has a shared_key")
        right = hmac.compare_digest(digest.encode(), _digest(salt, host, nonce, self._key).encode())
        name = socket.gethostname()
        proof = _digest(salt, name, nonce, self._key) if right else ""
        writer.write(_encode(["PONG", right, "" if right else "shared_key mismatch", name, proof]))
        await writer.drain()
        return right


def _digest(salt: bytes, host: str, nonce: bytes, key: bytes) -> str:
    return hashlib.sha512(salt + host.encode() + nonce + key).hexdigest()


class Busy(Exception):
    """All connections hold more than they may together."""


@dataclass
class _Held:
    """By all connections."""

    bytes: int = 0


class _Messages:
    """The messages of a connection, as bytes."""

    def __init__(self, reader: asyncio.StreamReader, held: _Held) -> None:
        self._reader = reader
        self._held = held
        self._data = bytearray()
        self._given = 0
        """The bytes of the last one: it is held until the next is asked for."""

    async def next(self, most: int) -> bytes | None:
        """None at the end. Raises ``NoMessage``, ``TooLarge``, ``Busy`` and ``TimeoutError``."""
        boundary = Boundary()
        self._held.bytes -= self._given
        self._given = 0
        while (end := boundary.end(self._data)) is None:
            if len(self._data) > most:
                raise TooLarge(f"a message has {most} bytes at most here (receive.body_bytes_max)")
            more = await some(self._reader, begun=bool(self._data))
            if not more:
                return None
            self._data += more
            self._held.bytes += len(more)
            if self._held.bytes > HELD_BYTES_MAX:
                raise Busy("too much is on its way; connect again in a moment")
        found = bytes(self._data[:end])
        del self._data[:end]
        self._given = end
        return found

    def close(self) -> None:
        """Holds nothing any more."""
        self._held.bytes -= self._given + len(self._data)
        self._given = 0
        self._data.clear()


def _opened(data: bytes) -> Any:
    try:
        return _decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise NoMessage(str(error)) from None


def read(data: bytes, most: int, lines_max: int, *, whole: bool) -> tuple[bytes, object]:
    """The lines of a message, and the ``chunk`` to acknowledge (None: there is none). ``most``: bytes,
    unpacked too; ``lines_max``: as lines. Raises ``NoMessage`` and ``TooLarge``."""
    tag, entries, options = _parts(data)
    packed = entries
    if options.get("compressed", "text") == "gzip":
        try:
            packed = gunzipped(entries, most)
        except TooLarge:
            raise
        except ValueError as error:
            raise NoMessage(str(error)) from None
    elif options.get("compressed", "text") != "text":
        raise NoMessage(f"compressed with {str(options['compressed'])[:32]}, and gzip alone is read")
    lines = (_line(tag, one, whole=whole) for one in _entries(packed, options.get("size")))
    return block(lines, lines_max), options.get("chunk")


def _parts(data: bytes) -> tuple[str, bytes, dict[str, Any]]:
    """The tag, the entries as one block, and the options."""
    if data == b"\xc0":
        return "", b"", {}  # it is there still
    size, count = _head(data, 0)
    if data[0] & 0xF0 != 0x90 and data[0] not in (0xDC, 0xDD):
        raise NoMessage("a message is an array")
    if not 2 <= count <= 4:
        raise NoMessage(f"a message has two to four parts, and not {count}")
    at, parts = size or 0, []
    for _ in range(count):
        boundary = Boundary()
        end = boundary.end(memoryview(data)[at:])
        if end is None:
            raise NoMessage("it is not whole")
        parts.append(data[at : at + end])
        at += end
    tag = _opened(parts[0])
    first = parts[1][0]
    if first & 0xF0 == 0x90 or first in (0xDC, 0xDD):  # Forward
        block = parts[1][_head(parts[1], 0)[0] or 0 :]
        options = parts[2:]
    elif first & 0xE0 == 0xA0 or first in (0xC4, 0xC5, 0xC6, 0xD9, 0xDA, 0xDB):  # packed
        block = parts[1][len(parts[1]) - _contents(parts[1]) :]
        options = parts[2:]
    elif count > 2:  # Message
        block = b"\x92" + parts[1] + parts[2]
        options = parts[3:]
    else:
        raise NoMessage("it has no entries")
    found = _opened(options[0]) if options else {}
    if not isinstance(tag, str) or not isinstance(found, dict | None):
        raise NoMessage("a message has a tag first, and options last")
    return tag, block, found or {}


def _contents(part: bytes) -> int:
    """Bytes of a text, without its head."""
    first = part[0]
    return first & 0x1F if first & 0xE0 == 0xA0 else len(part) - 1 - _SIZED[first][0]


def _entries(block: bytes, size: object) -> Iterator[Any]:
    """Those of a block, each opened; the bytes of those that cannot be. ``size``: how many the sender says
    there are, which saves looking for where they end."""
    if isinstance(size, int) and size >= 0:
        check_count(size)
        try:
            yield from _decode(_ARRAY + size.to_bytes(4, "big") + block)
            return
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            pass
    at, view = 0, memoryview(block)
    while at < len(block):
        end = Boundary().end(view[at:])
        if end is None:
            raise NoMessage("its entries are not whole")
        one = block[at : at + end]
        at += end
        try:
            yield _decode(one)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            yield one


def _line(tag: str, entry: Any, *, whole: bool) -> bytes:
    """What is no entry becomes a line that is none, and is counted and kept as such: who sends it would send
    all that is with it again and again."""
    match entry:
        case bytes():
            return line(entry)
        case [[int() | float() as time, *_], dict(record)] | [int() | float() as time, dict(record)]:
            try:
                ns = int(time) if isinstance(time, _Moment) else int(time * 1_000_000_000)
                return rendered(record, ns, {"tag": tag}, whole=whole)
            except (TypeError, ValueError, OverflowError):  # keys, or a time, that JSON does not have
                pass
    return line(repr(entry).encode())
