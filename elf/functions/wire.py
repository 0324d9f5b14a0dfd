"""What passes between an agent and a sandbox process, and how: frames over a socket pair.

A frame is two lengths (big-endian, 32 bits), a msgpack value of one of the types below, and a payload (Arrow
IPC, or a job's message). Both ends are on one machine, so there is no checksum; the agent trusts nothing that
it hears all the same: a frame that is none, or is larger than it may be, ends the sandbox.
"""

from __future__ import annotations

import math
import socket
import struct
import time
from typing import Annotated, Final

import msgspec
import pyarrow as pa

from elf.batch import decode
from elf.errors import PeerError
from elf.job.program.calls import CALLBACK_SENDS_MAX, App, Event, JobEffect, Loaded, Place, Value, Word
from elf.job.program.spec import Tap

HEADER_BYTES_MAX: Final = 64 << 20
PATH_MAX: Final = 64
TIMEOUT_MS_MAX: Final = 60_000
"""Of a query."""
Effects = Annotated[tuple[JobEffect, ...], msgspec.Meta(max_length=CALLBACK_SENDS_MAX)]
_LENGTHS: Final = struct.Struct(">II")
AT_ONCE_BYTES: Final = 64 << 10
"""So much is written, or read, by one system call."""
READ_BYTES_MAX: Final = 1 << 20
"""Of a large frame, by one."""


class LoadFunction(msgspec.Struct, frozen=True, tag=True):
    """Agent: run this text and keep its function ``kind``. Answered with ``Done`` or ``Raised``."""

    text: str
    filename: str
    kind: str


class LoadJob(msgspec.Struct, frozen=True, tag=True):
    """Agent: run this text, make the job of its subclass of ``Job``, and call its ``start``; the payload is
    the state that it had. ``trees``: how many it has, 0 where that is not known yet. ``Ready``."""

    text: str
    filename: str
    name: str
    creator: str
    place: Place
    taps: tuple[Tap, ...] = ()
    trees: int = 0


class CallFunction(msgspec.Struct, frozen=True, tag=True):
    """Agent: call the function with the batch in the payload. ``Done`` has its result as payload."""

    rows_max: int
    bytes_max: int


class CallJob(msgspec.Struct, frozen=True, tag=True):
    """Agent: something happened to the job; ``Acted``."""

    event: Event
    place: Place


class Replied(msgspec.Struct, frozen=True, tag=True):
    """Agent, while a callback waits for it: the reply to its query, or why there is none."""

    number: int
    value: bytes
    error: str


class Done(msgspec.Struct, frozen=True, tag=True):
    """Sandbox: it went well."""


class Ready(msgspec.Struct, frozen=True, tag=True):
    """Sandbox: the job is there, and has asked for this."""

    loaded: Loaded


class Acted(msgspec.Struct, frozen=True, tag=True):
    """Sandbox: the callback has returned, and these effects are to be performed in order. ``kept``: the
    payload is the job's state."""

    effects: Effects
    kept: bool = False


class Asks(msgspec.Struct, frozen=True, tag=True):
    """Sandbox, in the middle of a callback: a query, which is to be ``Replied``."""

    number: int
    app: App
    app_name: Word
    value: Value
    path: Annotated[tuple[Word, ...], msgspec.Meta(max_length=PATH_MAX)]
    timeout_ms: Annotated[int, msgspec.Meta(ge=0, le=TIMEOUT_MS_MAX)]


class Raised(msgspec.Struct, frozen=True, tag=True):
    """Sandbox: the user's code has failed. ``line`` of the user's file (0: none of it); ``effects`` are what
    it had asked for before, and ``kept`` as in ``Acted``."""

    kind: Word
    text: Word
    line: int
    source: Word = ""
    effects: Effects = ()
    kept: bool = False


ToSandbox = LoadFunction | LoadJob | CallFunction | CallJob | Replied
FromSandbox = Done | Ready | Acted | Asks | Raised

_encode: Final = msgspec.msgpack.Encoder().encode
_to_sandbox: Final = msgspec.msgpack.Decoder(ToSandbox)
_from_sandbox: Final = msgspec.msgpack.Decoder(FromSandbox)


class Broken(Exception):
    """What came is no frame; the sandbox that said it cannot be used any more."""


class Frames:
    """Frames over one socket. ``bytes_max``: the largest payload that is taken."""

    def __init__(self, sock: socket.socket, bytes_max: int) -> None:
        self.sock = sock
        self.bytes_max = bytes_max
        self._rest = b""
        """What has come behind the last frame."""

    @property
    def has_more(self) -> bool:
        """Whether something has: no honest sandbox says two things at once."""
        return bool(self._rest)

    def send(
        self, message: ToSandbox | FromSandbox, payload: bytes | memoryview = b"", secs: float | None = None
    ) -> None:
        """Blocks while the other end does not read, for so long; raises ``OSError`` when it is gone, and
        ``TimeoutError``."""
        head = _encode(message)
        first = _LENGTHS.pack(len(head), len(payload)) + head
        if len(payload) <= AT_ONCE_BYTES:  # one system call, and one time that the other end is woken
            self._put(first + bytes(payload), secs)
        else:
            self._put(first, secs)
            self._put(payload, secs)

    def _put(self, data: bytes | memoryview, secs: float | None) -> None:
        try:
            sent = self.sock.send(data, socket.MSG_DONTWAIT)
        except BlockingIOError:
            sent = 0
        if sent < len(data):
            self.sock.settimeout(secs)
            self.sock.sendall(memoryview(data)[sent:])
            self.sock.settimeout(None)

    def take_by_agent(self, secs: float) -> tuple[FromSandbox, bytes]:
        """What the sandbox said. Raises ``Broken``; ``EOFError`` when it is gone; ``TimeoutError`` when not
        all of it has come in time, however it trickles."""
        head, payload = self._take(time.monotonic() + secs)
        try:
            return _from_sandbox.decode(head), payload
        except (ValueError, RecursionError) as error:
            raise Broken(f"it says something that is no message: {error}") from None

    def take_by_sandbox(self) -> tuple[ToSandbox, bytes]:
        head, payload = self._take(math.inf)
        return _to_sandbox.decode(head), payload

    def _take(self, until: float) -> tuple[bytes, bytes]:
        head_bytes, payload_bytes = _LENGTHS.unpack(self._read(_LENGTHS.size, until))
        if head_bytes > HEADER_BYTES_MAX or payload_bytes > self.bytes_max:
            raise Broken(f"a message of {head_bytes + payload_bytes} bytes")
        return self._read(head_bytes, until), self._read(payload_bytes, until)

    def _read(self, size: int, until: float) -> bytes:
        """So many bytes; what comes behind them is kept."""
        found = bytearray(self._rest)
        while len(found) < size:
            found += self._come(min(max(size - len(found), AT_ONCE_BYTES), READ_BYTES_MAX), until)
        self._rest = bytes(found[size:])
        return bytes(found[:size])

    def _come(self, bytes_max: int, until: float) -> bytes:
        """Whatever comes next."""
        try:
            data = self.sock.recv(bytes_max, 0 if until == math.inf else socket.MSG_DONTWAIT)
        except BlockingIOError:
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError from None
            self.sock.settimeout(left)
            data = self.sock.recv(bytes_max)
            self.sock.settimeout(None)
        if not data:
            raise EOFError
        return data


_PLAIN: Final = pa.ipc.IpcWriteOptions(use_threads=False)


def to_bytes(batch: pa.RecordBatch) -> bytes:
    """A batch as an uncompressed Arrow IPC stream: it does not leave the machine."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=_PLAIN) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())


def from_bytes(data: bytes, bytes_max: int) -> pa.RecordBatch:
    """The batch again, which may take so much; raises ``Broken`` for anything else."""
    try:
        return one_batch(decode(data, bytes_max))
    except PeerError as error:
        raise Broken(f"it returns something that is no batch: {error}") from None


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """All rows of a table as one batch."""
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)
