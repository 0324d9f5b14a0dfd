"""How large an Arrow IPC stream becomes when it is decoded, told from its heads alone.

A stream is messages one after the other: a head (a flatbuffer) and a body. A body's buffers may be
compressed, and each then begins with its real length, which Arrow believes: it takes so much memory before it
looks at a byte. So a stranger's 24 KiB can claim gigabytes. Here the claims are added up first. Columns that
have no buffers (of type null) cost memory too as soon as anybody looks at their values, so each value counts
as one byte beside its buffers.

``elf/native/ipc.c`` does the same for streams that it takes; what is here says what it all means, and why a
stream is refused.

Nothing is decompressed, and nothing is believed about a place: all reads are within the given bytes, or the
stream is refused. Where Arrow would accept an older form (a message without its mark) this does not, so both
see the same messages. Of the format (Apache Arrow, format/Message.fbs) only the fields are read that say how
much there is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from struct import Struct, error
from typing import Final

MARK: Final = b"\xff\xff\xff\xff"
"""How every message of a stream begins; the length of its head follows, in four bytes."""
END: Final = MARK + b"\0\0\0\0"
"""How every stream ends: a message without a head."""

_DICTIONARY, _RECORDS = 2, 3
"""Kinds of messages that have buffers."""
_KNOWN: Final = (1, _DICTIONARY, _RECORDS)
"""These, and the schema."""
_PAIRS_MAX: Final = 1 << 16
"""Columns of a table (with what is nested in them), and their buffers."""

_u16, _u32, _i32, _i64 = (Struct(f"<{kind}").unpack_from for kind in "HIiq")


class NotArrow(Exception):
    """These bytes are no stream of Arrow; the text says why."""


def decoded_bytes(data: bytes) -> int:
    """The bytes of memory that a stream claims for its buffers, and one for each value. Raises
    ``NotArrow``."""
    sized = _native()
    found = sized(data, len(data)) if sized is not None and type(data) is bytes else -1
    return found if found >= 0 else told_bytes(data)


@cache
def _native() -> Callable[[bytes, int], int] | None:
    """Where something is decoded it is needed, and nowhere else."""
    from elf.native.binding import ipc_size

    return ipc_size()


def told_bytes(data: bytes) -> int:
    """The same without the native part."""
    at, found = 0, 0
    try:
        while True:
            if not data.startswith(MARK, at):
                raise NotArrow("a message does not begin as messages do")
            size = _i32(data, at + 4)[0]
            if not size:
                return found
            begin = at + 8
            if size < 0 or begin + size > len(data):
                raise NotArrow("a head is longer than what is there")
            claimed, body = _claimed(data, begin, begin + size)
            found += claimed
            at = begin + size + body
    except (error, IndexError):
        raise NotArrow("a head that cannot be read") from None


def _claimed(data: bytes, begin: int, end: int) -> tuple[int, int]:
    """(bytes that a message claims, length of its body). Its head is at ``[begin, end)``."""
    message = _Table(data, begin, end)
    body = message.number(3)
    if body < 0 or end + body > len(data):
        raise NotArrow("a body is longer than what is there")
    kind = message.byte(1)
    if kind not in _KNOWN:
        raise NotArrow(f"a message of kind {kind}")
    records = message.table(2)
    if kind == _DICTIONARY and records is not None:
        records = records.table(1)
    if kind not in (_DICTIONARY, _RECORDS) or records is None:
        return 0, body
    found = max(records.number(0), 0)
    for values, _ in records.pairs(1):
        if values < 0:
            raise NotArrow("a column of fewer than no values")
        found += values
    packed = records.table(3) is not None
    for offset, length in records.pairs(2):
        if offset < 0 or length < 0 or offset + length > body:
            raise NotArrow("a buffer is outside of its message")
        found += _unpacked(data, end + offset, length) if packed else length
    return found, body


def _unpacked(data: bytes, at: int, length: int) -> int:
    """The length of a buffer that may be compressed."""
    if not length:
        return 0
    claimed: int = _i64(data, at)[0]
    if length < 8 or claimed < -1:
        raise NotArrow("a compressed buffer without its length")
    return length - 8 if claimed == -1 else claimed


class _Table:
    """A table of a flatbuffer: fields by number, which may be absent. Those of a head at ``[begin, end)``;
    ``at``: where the table is (by default, the root's)."""

    def __init__(self, data: bytes, begin: int, end: int, at: int | None = None) -> None:
        self._data, self._begin, self._end = data, begin, end
        self._at = self._follow(begin) if at is None else at
        self._fields = self._inside(self._at - _i32(data, self._at)[0], 4)
        self._size = _u16(data, self._fields)[0]

    def _inside(self, at: int, size: int) -> int:
        if not self._begin <= at <= self._end - size:
            raise NotArrow("a head points outside of itself")
        return at

    def _follow(self, at: int) -> int:
        """Where an offset at this place leads."""
        return self._inside(at + _u32(self._data, self._inside(at, 4))[0], 4)

    def _field(self, number: int, size: int) -> int | None:
        place = 4 + 2 * number
        if place + 2 > self._size:
            return None
        offset = _u16(self._data, self._inside(self._fields + place, 2))[0]
        return self._inside(self._at + offset, size) if offset else None

    def byte(self, number: int) -> int:
        at = self._field(number, 1)
        return 0 if at is None else self._data[at]

    def number(self, number: int) -> int:
        at = self._field(number, 8)
        return 0 if at is None else int(_i64(self._data, at)[0])

    def table(self, number: int) -> _Table | None:
        at = self._field(number, 4)
        return None if at is None else _Table(self._data, self._begin, self._end, self._follow(at))

    def pairs(self, number: int) -> list[tuple[int, int]]:
        """A list of pairs of numbers."""
        at = self._field(number, 4)
        if at is None:
            return []
        start = self._follow(at)
        count = _u32(self._data, start)[0]
        if count > _PAIRS_MAX:
            raise NotArrow(f"{count} columns or buffers")
        self._inside(start + 4, 16 * count)
        numbers = Struct(f"<{2 * count}q").unpack_from(self._data, start + 4)
        return list(zip(numbers[::2], numbers[1::2], strict=True))
