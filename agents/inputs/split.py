"""Bytes to lines, a chunk at a time, without a Python object a line.

The newlines give the offsets of an Arrow string array in which every second value is a line and the ones
between are line ends; taking every second one is a copy at memory speed. Validity is checked for the chunk
as a whole (a UTF-8 sequence cannot span a newline); only a chunk that is not clean is looked at line by
line. One pass over the bytes finds newlines, returns and NULs together. A clean chunk is split natively
(``elf.native``), where that part is there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from agents.inputs.values import INVALID_UTF8, NUL_BYTE, REJECT_KEPT_BYTES, Int64s, Reject, Source, too_long
from elf import native

Uint8s = npt.NDArray[np.uint8]

_NEWLINE: Final = 10
_RETURN: Final = 13
_BLOCK_BYTES: Final = 1 << 17
"""So much is compared in one go: it stays in the processor's cache. A multiple of 64."""
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
    buffer = np.frombuffer(data, dtype=np.uint8, count=size)
    first = len(BYTE_ORDER_MARK) if _is_marked(buffer, offset) else 0
    if (library := native.library()) is not None and first < size and _is_utf8(data, 0, size):
        found = native.split(buffer, first, max_line_bytes, library)
        if found is not None:
            return Lines(found[0], found[1] + offset, ())
    controls = _controls(buffer)
    letters = buffer[controls]
    starts, ends = _bounds(buffer, offset, controls[letters == _NEWLINE], bool((letters == _RETURN).any()))
    nuls = controls[letters == 0]
    if len(nuls):
        starts, nuls = _without_holes(buffer, starts, ends, nuls)
    reasons = _reasons(data, buffer, starts, ends, max_line_bytes, nuls)
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


def _controls(buffer: Uint8s) -> Int64s:
    """Places of the bytes up to 13: newlines, returns, NULs, and what else is among them (tabs, mostly).

    A bit a byte, then the 64-bit words that are not 0, then their lowest bit until none is left: about one
    operation a line, where ``np.flatnonzero`` takes one a byte.
    """
    words = np.zeros(-(-len(buffer) // 64), dtype=np.uint64)
    bits = words.view(np.uint8)
    for start in range(0, len(buffer), _BLOCK_BYTES):
        packed = np.packbits(buffer[start : start + _BLOCK_BYTES] <= _RETURN, bitorder="little")
        bits[start // 8 : start // 8 + len(packed)] = packed
    at = np.flatnonzero(words).astype(np.int64, copy=False)
    left = words[at]
    found = [np.zeros(0, dtype=np.int64)]
    while len(at):
        lowest = left & (~left + np.uint64(1))
        found.append(at * 64 + np.frexp(lowest.astype(np.float64))[1] - 1)
        left = left ^ lowest
        at, left = at[left != 0], left[left != 0]
    places = np.concatenate(found)
    places.sort(kind="stable")
    return places


def _bounds(buffer: Uint8s, offset: int, newlines: Int64s, returns: bool) -> tuple[Int64s, Int64s]:
    """First byte and end of every line, without line ends and without a byte order mark at the start of the
    file. ``returns``: whether there are any."""
    ended = len(newlines)
    if buffer[-1] != _NEWLINE:
        newlines = np.append(newlines, len(buffer))
    starts = np.empty(len(newlines), dtype=np.int64)
    starts[0] = 0
    starts[1:] = newlines[:-1] + 1
    ends = newlines
    if returns:
        before = buffer[np.maximum(ends - 1, 0)]
        cut = (before == _RETURN) & (ends > starts)
        cut[ended:] = False
        ends = ends - cut
    if _is_marked(buffer, offset):
        starts[0] = len(BYTE_ORDER_MARK)
    return starts, ends


def _is_marked(buffer: Uint8s, offset: int) -> bool:
    """Whether a file begins here, with a byte order mark."""
    return offset == 0 and buffer[: len(BYTE_ORDER_MARK)].tobytes() == BYTE_ORDER_MARK


def _without_holes(buffer: Uint8s, starts: Int64s, ends: Int64s, nuls: Int64s) -> tuple[Int64s, Int64s]:
    """Lines begin behind the NULs in front of them: the hole that is left where a file is cut under a writer
    that goes on at its old place. What there is of NULs elsewhere."""
    starts = starts.copy()
    for row in np.flatnonzero((ends > starts) & (buffer[np.minimum(starts, len(buffer) - 1)] == 0)):
        first, end = int(starts[row]), int(ends[row])
        line = buffer[first:end] != 0
        hole = int(np.argmax(line)) if line.any() else end - first
        nuls = nuls[(nuls < first) | (nuls >= first + hole)]
        starts[row] += hole
    return starts, nuls


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
    data: bytes | bytearray, buffer: Uint8s, starts: Int64s, ends: Int64s, max_line_bytes: int, nuls: Int64s
) -> dict[int, str]:
    """The lines that are none, by number, and why. ``nuls``: where there are NULs."""
    found: dict[int, str] = {}
    if not _is_utf8(data, 0, len(buffer)):
        for row in _lines_with(np.flatnonzero(buffer >= 0x80), starts):
            if not _is_utf8(data, int(starts[row]), int(ends[row])):
                found[int(row)] = INVALID_UTF8
    for row in _lines_with(nuls, starts):
        found[int(row)] = NUL_BYTE
    for row in np.flatnonzero(ends - starts > max_line_bytes):
        found[int(row)] = too_long(max_line_bytes)
    return found


def _lines_with(places: Int64s, starts: Int64s) -> Int64s:
    """Numbers of the lines that hold the bytes at these places."""
    rows = np.unique(np.searchsorted(starts, places, side="right") - 1)
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
