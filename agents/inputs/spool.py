"""What an agent receives, on its disk until a checkpoint has passed it.

Files wait for an agent; a sender does not know of its crashes. So what is received is appended to a *spool*,
made durable, and only then acknowledged; ``Spooled`` reads it as other inputs read files. Invariants
(protocol 11.7, protocol 11.8, protocol 11.9):

- What was acknowledged is in the spool, whole, or a checkpoint has passed it: nothing is read, and no future
  of ``take`` is done, before its bytes are synced; nothing is removed that ``covered`` has not passed.
- A byte's offset counts from the spool's first day on, and never comes again: a position means the same bytes
  for ever. A spool that was deleted goes on where the last checkpoint was.
- What has a key is taken once. The keys of the last ``keys_max`` things are at the head of each segment, so
  they survive what they belong to, and a sender that repeats what a crash has left open is told that it is
  here.
- All segments together have ``bytes_max`` bytes at most, and one record ``record_bytes_max``: it fits when
  all before it is read, whatever the last segment has. What does not fit is not taken, and the receiver
  says so in the words of its protocol; only what cannot wait (UDP) is lost, and its loss is a record of the
  spool too.

A *segment* is a file, named by its first offset, and has that name when its head is on the disk; it is a row
of records. A record that a crash has torn is at the end of the last one, is no record by its checksum, and
was never acknowledged: the next start cuts it off. What is no record and is no such end is damage. It stays,
so that it is a gap where it is read; the records behind it are read, and a new segment follows.
A write that fails leaves nothing behind that is known, so the spool takes nothing more (``failure``), and the
agent begins anew, as it does wherever a disk refuses.
"""

from __future__ import annotations

import contextlib
import os
import re
import struct
import threading
import time
import zlib
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import msgspec

from elf.errors import InputError

LINES: Final = 0
KEYS: Final = 1
LOSS: Final = 2
Kind = Literal[0, 1, 2]
"""Of a record. Its contents are lines, each with its newline; keys; or how many messages, of how many bytes
(0: nobody knows), were lost."""

KEYS_MAX: Final = 16_384
SEGMENTS: Final = 8
"""A segment is closed at this part of ``bytes_max``."""
LINGER_S: Final = 0.05
"""So long what nobody waits for may wait for company on its way to the disk."""
PENDING_BYTES_MAX: Final = 8 << 20
"""On its way to the disk; beyond that nothing is taken until some of it has arrived."""

_HEAD: Final = struct.Struct("<IIBHH")
_NAME: Final = re.compile(r"(\d{20})\.spool")
_CHECKED: Final = 4
"""Bytes of the checksum, which covers all that follows it."""
_LOOKS: Final = re.compile(rb"(?s)(?=.{8}[\x00-\x02].[\x00-\x0f].[\x00-\x0f])")
"""Where the head of a record may be: its kind, and the sizes of a short origin and key."""
_SOUGHT: Final = 4
"""Records behind damage are looked for until so many times its bytes were summed up."""


@dataclass(frozen=True, eq=False)
class Record:
    """``offset``: of its first byte; ``lines_at``: where its contents begin; ``end``: behind its last
    byte."""

    offset: int
    kind: Kind
    origin: str
    key: bytes
    data: memoryview
    lines_at: int
    end: int


def record(kind: Kind, origin: str, key: bytes, data: bytes) -> bytes:
    """As it is written."""
    named = origin.encode()
    rest = _HEAD.pack(0, len(data), kind, len(named), len(key))[_CHECKED:]
    body = b"".join((rest, named, key, data))
    return zlib.crc32(body).to_bytes(_CHECKED, "little") + body


def size_of(head: bytes) -> int:
    """Of the record that begins so; 0: that cannot be told yet."""
    if len(head) < _HEAD.size:
        return 0
    _, data, _, origin, key = _HEAD.unpack_from(head)
    return _HEAD.size + int(origin) + int(key) + int(data)


def records(data: bytes | memoryview, offset: int) -> Iterator[Record]:
    """The whole records at the beginning of these bytes, which lie at ``offset``; nothing from the first one
    on that is none."""
    view, at = memoryview(data), 0
    while at + _HEAD.size <= len(view):
        crc, count, kind, origin, key = _HEAD.unpack_from(view, at)
        key_at = at + _HEAD.size + origin
        lines_at = key_at + key
        end = lines_at + count
        if end > len(view) or zlib.crc32(view[at + _CHECKED : end]) != crc or kind not in (LINES, KEYS, LOSS):
            return
        name = bytes(view[at + _HEAD.size : key_at]).decode("utf-8", "replace")
        data_view = view[lines_at:end]
        key_bytes = bytes(view[key_at:lines_at])
        yield Record(offset + at, kind, name, key_bytes, data_view, offset + lines_at, offset + end)
        at = end


def found_again(data: bytes, at: int) -> int | None:
    """Where the first whole record begins behind what is none at ``at``."""
    view, left = memoryview(data), _SOUGHT * len(data)
    for look in _LOOKS.finditer(data, at + 1):
        size = size_of(data[look.start() : look.start() + _HEAD.size])
        if size > len(data) - look.start():
            continue
        if any(True for _ in records(view[look.start() : look.start() + size], 0)):
            return look.start()
        left -= size
        if left < 0:
            break
    return None


@dataclass
class Segment:
    """``base`` and ``end``: the offsets of its bytes."""

    path: Path
    base: int
    end: int


@dataclass(frozen=True, eq=False)
class _Pending:
    data: bytes
    done: Future[None]
    key: bytes


class Spool:
    """One per stream. ``begin``: where the last checkpoint stands. ``take`` and ``lost`` belong to one
    thread, ``covered`` and ``segment_at`` to any. Raises ``InputError`` where the folder cannot be used."""

    def __init__(
        self,
        folder: Path,
        *,
        bytes_max: int,
        begin: int = 0,
        keys_max: int = KEYS_MAX,
        linger_s: float = LINGER_S,
    ) -> None:
        self.folder = folder
        self.bytes_max = bytes_max
        self.repeated = 0
        """Of what came with a key that was here."""
        self.failure: OSError | None = None
        self._keys_max = keys_max
        self._linger_s = linger_s
        self._segment_bytes = max(bytes_max // SEGMENTS, 1)
        self.record_bytes_max = bytes_max // 2 - self._segment_bytes
        self._keys: OrderedDict[bytes, Future[None] | None] = OrderedDict()
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._pending: list[_Pending] = []
        self._pending_bytes = 0
        self._hurry = self._closing = False
        self._lost: dict[str, tuple[int, int]] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for above in folder.parents[:2]:
                _sync_folder(above)
            for unnamed in folder.glob("*.new"):
                unnamed.unlink()
            self._segments = _found(folder)
            self._file = self._resume(begin)
        except OSError as error:
            raise InputError(f"the spool {folder} cannot be used: {error.strerror}") from error
        self._durable = self._segments[-1].end
        self._thread = threading.Thread(target=self._write_all, name=f"spool-{folder.name}", daemon=True)
        self._thread.start()

    # -- where it stands -------------------------------------------------------------------------------------

    @property
    def begin(self) -> int:
        """The offset of the first byte that is there."""
        with self._lock:
            return self._segments[0].base

    @property
    def durable(self) -> int:
        """The offset behind the last byte that may be read."""
        return self._durable

    @property
    def waiting(self) -> int:
        """Bytes that were taken and are not durable yet."""
        return self._pending_bytes

    @property
    def last_key(self) -> bytes:
        """Of what was taken last with one; empty: nothing was."""
        with self._lock:
            return next(reversed(self._keys), b"")

    def segment_at(self, offset: int) -> Segment | None:
        """The segment with this byte, or else the first one behind it."""
        with self._lock:
            found = next((one for one in self._segments if offset < one.end), None)
            return None if found is None else Segment(found.path, found.base, found.end)

    # -- taking ----------------------------------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        """Whether something of an ordinary size would be taken now."""
        return self._fits(self.bytes_max // (2 * SEGMENTS))

    def _fits(self, size: int) -> bool:
        with self._lock:
            used = self._durable + self._pending_bytes - self._segments[0].base
            return used + size <= self.bytes_max and self._pending_bytes <= PENDING_BYTES_MAX

    def take(self, origin: str, lines: bytes, key: bytes = b"", *, hurry: bool = True) -> Future[None] | None:
        """Lines of an origin, each with its newline; None: there is no room. The future is done when they are
        durable. ``key``: what names them among all that may be sent again; ``hurry``: somebody waits."""
        if key and (known := self._known(key)) is not None:
            self.repeated += 1
            return known
        data = record(LINES, origin, key, lines)
        if self.failure is not None or not self._fits(len(data)):
            return None
        self.say_lost()
        done = Future[None]()
        if key:
            self._remember(key, done)  # before the other thread has it
        self._enqueue(data, key, done, hurry=hurry)
        return done

    def lost(self, origin: str, messages: int, size: int) -> None:
        """Messages of so many bytes (0: nobody knows) are gone. It is written with what is taken next, or at
        the end."""
        known = self._lost.get(origin, (0, 0))
        self._lost[origin] = known[0] + messages, known[1] + size

    def say_lost(self) -> None:
        """Nothing may be taken any more."""
        for origin, lost in self._lost.items():
            said = record(LOSS, origin, b"", msgspec.msgpack.encode(lost))
            self._enqueue(said, b"", Future[None](), hurry=False)
        self._lost.clear()

    def _enqueue(self, data: bytes, key: bytes, done: Future[None], *, hurry: bool) -> None:
        with self._lock:
            self._pending.append(_Pending(data, done, key))
            self._pending_bytes += len(data)
            self._hurry |= hurry
            self._wake.notify()

    def _known(self, key: bytes) -> Future[None] | None:
        """The future of what came with a key before; None: nothing did."""
        with self._lock:
            if key not in self._keys:
                return None
            if (known := self._keys[key]) is not None:
                return known
        done = Future[None]()
        done.set_result(None)
        return done

    def _remember(self, key: bytes, done: Future[None] | None) -> None:
        """``done`` None: it is durable."""
        with self._lock:
            self._keys[key] = done
            while len(self._keys) > self._keys_max:
                self._keys.popitem(last=False)

    # -- the thread ------------------------------------------------------------------------------------------

    def _write_all(self) -> None:
        while taken := self._gathered():
            try:
                self._write(b"".join(one.data for one in taken))
            except OSError as error:
                self.failure = error
                for one in taken:
                    one.done.set_exception(error)
                continue
            with self._lock:
                self._keys.update((one.key, None) for one in taken if one.key in self._keys)
            for one in taken:
                one.done.set_result(None)

    def _gathered(self) -> list[_Pending]:
        """What is to be written next; nothing when the spool is closed."""
        with self._lock:
            while not self._pending and not self._closing:
                self._wake.wait()
            until = time.monotonic() + self._linger_s
            while not (self._hurry or self._closing) and (left := until - time.monotonic()) > 0:
                self._wake.wait(left)
            count = size = 0
            while count < len(self._pending) and size < self._segment_bytes:
                size += len(self._pending[count].data)
                count += 1
            taken, self._pending = self._pending[:count], self._pending[count:]
            self._hurry &= bool(self._pending)
            return taken

    def _write(self, data: bytes) -> None:
        if self.failure is not None:
            raise self.failure
        last = self._segments[-1]
        if last.end - last.base >= self._segment_bytes:
            last = self._next_segment(last.end)
        _write(self._file, data)
        os.fdatasync(self._file)
        with self._lock:
            last.end += len(data)
            self._durable = last.end
            self._pending_bytes -= len(data)

    # -- segments --------------------------------------------------------------------------------------------

    def _resume(self, begin: int) -> int:
        """Goes on in the last segment, if it is whole and not before ``begin``; the descriptor."""
        if not self._segments:
            return self._open(begin)
        last = self._segments[-1]
        data = last.path.read_bytes()
        if not any(True for _ in records(data[: size_of(data)], 0)) and len(self._segments) > 1:
            self._learn(self._segments[-2].path.read_bytes())  # the head is gone
        whole = self._learn(data)
        rest = data[whole:]
        is_torn = not 0 < size_of(rest) <= len(rest) or not rest.strip(b"\0")
        file = os.open(last.path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
        if is_torn:
            os.ftruncate(file, whole)
            os.fsync(file)
            last.end = last.base + whole
        if is_torn and last.end >= begin:
            return file
        os.close(file)
        return self._open(max(begin, last.end))

    def _learn(self, data: bytes) -> int:
        """The keys of a segment; the bytes up to the end of its last record."""
        whole, at = 0, 0 if data else None
        while at is not None:
            for one in records(memoryview(data)[at:], at):
                whole = one.end
                keys = msgspec.msgpack.decode(one.data, type=list[bytes]) if one.kind == KEYS else [one.key]
                for key in filter(None, keys):
                    self._remember(key, None)
            at = found_again(data, max(whole, at))
        return whole

    def _next_segment(self, base: int) -> Segment:
        before, self._file = self._file, self._open(base)
        os.close(before)
        return self._segments[-1]

    def _open(self, base: int) -> int:
        path = self.folder / f"{base:020d}.spool"
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        unnamed = path.with_suffix(".new")
        file = os.open(unnamed, flags, 0o600)
        with self._lock:
            known = [key for key, done in self._keys.items() if done is None]
        head = record(KEYS, "", b"", msgspec.msgpack.encode(known)) if known else b""
        _write(file, head)
        os.fsync(file)
        unnamed.rename(path)
        _sync_folder(self.folder)
        with self._lock:
            self._segments.append(Segment(path, base, base + len(head)))
        return file

    def covered(self, offset: int) -> None:
        """A durable checkpoint has passed what is before ``offset``: segments that are wholly there go."""
        with self._lock:
            gone = [one for one in self._segments[:-1] if one.end <= offset]
            self._segments = self._segments[len(gone) :]
        for one in gone:
            one.path.unlink(missing_ok=True)

    def close(self) -> None:
        """What was taken is made durable first, and what was lost."""
        self.say_lost()
        with self._lock:
            self._closing = True
            self._wake.notify()
        self._thread.join()
        with contextlib.suppress(OSError):
            os.close(self._file)


def _found(folder: Path) -> list[Segment]:
    named = ((path, _NAME.fullmatch(path.name)) for path in sorted(folder.iterdir()))
    return [Segment(path, int(m[1]), int(m[1]) + path.stat().st_size) for path, m in named if m is not None]


def _write(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
