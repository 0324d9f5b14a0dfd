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
BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, eq=False)
class Lines:
    """What some bytes came to: see ``Chunk``."""

    lines: pa.StringArray
    offsets: Int64s
    rejects: tuple[Reject, ...]


def split(source: Source, data: bytes, offset: int, max_line_bytes: int) -> Lines:
    """The lines of ``data``, which lies at ``offset`` of the source. It ends with a newline, or its last
    line has none."""
    if not data:
        return Lines(pa.array([], pa.string()), np.zeros(0, dtype=np.int64), ())
    starts, ends = _bounds(data, offset)
    reasons = _reasons(data, starts, ends, max_line_bytes)
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


def _bounds(data: bytes, offset: int) -> tuple[Int64s, Int64s]:
    """First byte and end of every line, without line ends and without a byte order mark at the start of the
    file."""
    buffer = np.frombuffer(data, dtype=np.uint8)
    newlines = np.flatnonzero(buffer == _NEWLINE).astype(np.int64, copy=False)
    ended = len(newlines)
    if data[-1] != _NEWLINE:
        newlines = np.append(newlines, len(data))
    starts = np.empty(len(newlines), dtype=np.int64)
    starts[0] = 0
    starts[1:] = newlines[:-1] + 1
    ends = newlines
    if b"\r" in data:
        before = buffer[np.maximum(ends - 1, 0)]
        returns = (before == _RETURN) & (ends > starts)
        returns[ended:] = False
        ends = ends - returns
    if offset == 0 and data.startswith(BYTE_ORDER_MARK):
        starts[0] = len(BYTE_ORDER_MARK)
    return starts, ends


def _strings(data: bytes, starts: Int64s, ends: Int64s) -> pa.StringArray:
    """The lines as Arrow strings: known to be valid UTF-8."""
    count = len(starts)
    if not count:
        return pa.array([], pa.string())
    edges = np.empty(2 * count, dtype=np.int32)
    edges[0::2] = starts
    edges[1::2] = ends
    both = pa.StringArray.from_buffers(2 * count - 1, pa.py_buffer(edges), pa.py_buffer(data))
    return both.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int64)))


def _reasons(data: bytes, starts: Int64s, ends: Int64s, max_line_bytes: int) -> dict[int, str]:
    """The lines that are none, by number, and why."""
    found: dict[int, str] = {}
    if not _is_utf8(data):
        suspects = _lines_with(np.frombuffer(data, dtype=np.uint8) >= 0x80, starts)
        for row in suspects:
            if not _is_utf8(data[starts[row] : ends[row]]):
                found[int(row)] = INVALID_UTF8
    if b"\0" in data:
        for row in _lines_with(np.frombuffer(data, dtype=np.uint8) == 0, starts):
            found[int(row)] = NUL_BYTE
    for row in np.flatnonzero(ends - starts > max_line_bytes):
        found[int(row)] = too_long(max_line_bytes)
    return found


def _lines_with(mask: npt.NDArray[np.bool_], starts: Int64s) -> Int64s:
    """Numbers of the lines that hold a byte of the mask."""
    at = np.flatnonzero(mask)
    rows = np.unique(np.searchsorted(starts, at, side="right") - 1)
    return rows[rows >= 0]


def _is_utf8(data: bytes) -> bool:
    offsets = pa.py_buffer(np.array([0, len(data)], dtype=np.int32))
    try:
        pa.Array.from_buffers(pa.binary(), 1, [None, offsets, pa.py_buffer(data)]).cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def _reject(source: Source, data: bytes, offset: int, start: int, end: int, reason: str) -> Reject:
    kept = data[start : min(end, start + REJECT_KEPT_BYTES)]
    return Reject(source.id, source.path, offset + start, reason, kept, end - start)
