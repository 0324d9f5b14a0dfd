"""Bytes to lines, a chunk at a time, without a Python object a line.

The newlines give the offsets of an Arrow string array in which every second value is a line and the ones
between are line ends; taking every second one is a copy at memory speed. Validity is checked for the chunk
as a whole (a UTF-8 sequence cannot span a newline); only a chunk that is not clean is looked at line by
line.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from agents.inputs.values import INVALID_UTF8, NUL_BYTE, REJECT_KEPT_BYTES, Int64s, Reject, Source, too_long

_NEWLINE: Final = 10
_RETURN: Final = 13
_BLOCK_BYTES: Final = 1 << 17
BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, eq=False)
class Lines:
    """What some bytes came to: see ``Chunk``."""

    lines: pa.StringArray
    offsets: Int64s
    rejects: tuple[Reject, ...]


def split(
    source: Source, data: bytes | bytearray, offset: int, max_line_bytes: int, end: int | None = None
) -> Lines:
    """The lines of ``data[:end]``, which lies at ``offset`` of the source. It ends with a newline, or its
    last line has none. ``data`` may be changed afterwards."""
    size = len(data) if end is None else end
    if not size:
        return Lines(pa.array([], pa.string()), np.zeros(0, dtype=np.int64), ())
    starts, ends = _bounds(data, size, offset)
    reasons = _reasons(data, size, starts, ends, max_line_bytes)
    rejects: tuple[Reject, ...] = ()
    if reasons:
        rejects = tuple(
            _reject(source, data, offset, int(starts[row]), int(ends[row]), reasons[row])
            for row in sorted(reasons)
        )
        keep = np.ones(len(starts), dtype=np.bool_)
        keep[list(reasons)] = False
        starts, ends = starts[keep], ends[keep]
    return Lines(_strings(data, starts, ends), starts + offset, rejects)


def _bounds(data: bytes | bytearray, size: int, offset: int) -> tuple[Int64s, Int64s]:
    """First byte and end of every line, without line ends and without a byte order mark at the start of the
    file."""
    buffer = np.frombuffer(data, dtype=np.uint8, count=size)
    newlines = _places(buffer, _NEWLINE)
    ended = len(newlines)
    if buffer[-1] != _NEWLINE:
        newlines = np.append(newlines, size)
    starts = np.empty(len(newlines), dtype=np.int64)
    starts[0] = 0
    starts[1:] = newlines[:-1] + 1
    ends = newlines
    if data.find(b"\r", 0, size) >= 0:
        before = buffer[np.maximum(ends - 1, 0)]
        returns = (before == _RETURN) & (ends > starts)
        returns[ended:] = False
        ends = ends - returns
    if offset == 0 and data.startswith(BYTE_ORDER_MARK, 0, size):
        starts[0] = len(BYTE_ORDER_MARK)
    return starts, ends


def _places(buffer: npt.NDArray[np.uint8], byte: int) -> Int64s:
    """Where a byte is; a block at a time, so that what is compared stays in the processor's cache."""
    found = [
        np.flatnonzero(buffer[start : start + _BLOCK_BYTES] == byte) + start
        for start in range(0, len(buffer), _BLOCK_BYTES)
    ]
    return np.concatenate(found).astype(np.int64, copy=False)


def _strings(data: bytes | bytearray, starts: Int64s, ends: Int64s) -> pa.StringArray:
    """The lines as Arrow strings of their own: known to be valid UTF-8."""
    count = len(starts)
    if not count:
        return pa.array([], pa.string())
    edges = np.empty(2 * count, dtype=np.int32)
    edges[0::2] = starts
    edges[1::2] = ends
    both = pa.StringArray.from_buffers(2 * count - 1, pa.py_buffer(edges), pa.py_buffer(data))
    return both.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int64)))


def _reasons(
    data: bytes | bytearray, size: int, starts: Int64s, ends: Int64s, max_line_bytes: int
) -> dict[int, str]:
    """The lines that are none, by number, and why."""
    found: dict[int, str] = {}
    buffer = np.frombuffer(data, dtype=np.uint8, count=size)
    if not _is_utf8(data, 0, size):
        for row in _lines_with(buffer >= 0x80, starts):
            if not _is_utf8(data, int(starts[row]), int(ends[row])):
                found[int(row)] = INVALID_UTF8
    if data.find(b"\0", 0, size) >= 0:
        for row in _lines_with(buffer == 0, starts):
            found[int(row)] = NUL_BYTE
    for row in np.flatnonzero(ends - starts > max_line_bytes):
        found[int(row)] = too_long(max_line_bytes)
    return found


def _lines_with(mask: npt.NDArray[np.bool_], starts: Int64s) -> Int64s:
    """Numbers of the lines that hold a byte of the mask."""
    at = np.flatnonzero(mask)
    rows = np.unique(np.searchsorted(starts, at, side="right") - 1)
    return rows[rows >= 0]


def _is_utf8(data: bytes | bytearray, start: int, end: int) -> bool:
    offsets = pa.py_buffer(np.array([start, end], dtype=np.int32))
    try:
        pa.Array.from_buffers(pa.binary(), 1, [None, offsets, pa.py_buffer(data)]).cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def _reject(
    source: Source, data: bytes | bytearray, offset: int, start: int, end: int, reason: str
) -> Reject:
    kept = bytes(data[start : min(end, start + REJECT_KEPT_BYTES)])
    return Reject(source.id, source.path, offset + start, reason, kept, end - start)
