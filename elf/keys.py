"""The 64-bit hash of a group's key: orders the buffer trees and cuts key ranges, the same on every agent.

Definition. Each value has a hash: the first half of mmh3 x64_128 over its bytes, the seed being its kind:

====================================  ====  =================================================
value                                 seed  bytes
====================================  ====  =================================================
NULL (of any type)                    0     none
integer, date, time, timestamp        1     8, little endian, two's complement (Arrow's count)
double                                2     8, little endian IEEE 754; -0.0 as 0.0, one NaN
text, binary                          3     the bytes (UTF-8)
boolean                               4     1
decimal                               5     16, little endian, two's complement, unscaled
====================================  ====  =================================================

The hash of a key of one column is that of its value. Further columns are mixed in from left to right:
``h = fmix64(h * 0x9E3779B97F4A7C15 + next)`` modulo 2**64, fmix64 being murmur3's. Without columns it is 0.

``hash_keys`` does it for columns, in C where the native part is there (``elf.native``), else in numpy. It
must never depend on how rows are batched, on chunks, or on the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import mmh3
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from elf import native

UInt64s = npt.NDArray[np.uint64]
Offsets = npt.NDArray[np.int32] | npt.NDArray[np.int64]
KeyHash = Callable[[Sequence[pa.Array | pa.ChunkedArray]], UInt64s]

NULL, INTEGER, DOUBLE, BYTES, BOOLEAN, DECIMAL = range(6)
"""The seeds."""

GOLDEN: Final = 0x9E3779B97F4A7C15
_C1: Final = np.uint64(0x87C37B91114253D5)
_C2: Final = np.uint64(0x4CF5AD432745937F)

_LOW_MASKS: Final = np.array([(1 << 8 * min(size, 8)) - 1 for size in range(16)], dtype=np.uint64)
_HIGH_MASKS: Final = np.array([(1 << 8 * max(size - 8, 0)) - 1 for size in range(16)], dtype=np.uint64)
"""Of a value's last 0 to 15 bytes: those that are its own, of the first eight and of the next."""

_TEXTS: Final = frozenset(
    {pa.string(), pa.binary(), pa.large_string(), pa.large_binary(), pa.string_view(), pa.binary_view()}
)

_SLICE_ROWS: Final = 1 << 13
"""Rows hashed at a time: their temporaries stay in the second-level cache."""

_LONG_BYTES: Final = 192
"""From this length on a call of the library a value is cheaper than numpy's calls a block."""


def hash_keys(columns: Sequence[pa.Array | pa.ChunkedArray]) -> UInt64s:
    """The hash of each row of some key columns of equal length. Raises ``TypeError`` for nested types."""
    if not columns:
        return np.zeros(0, dtype=np.uint64)
    mixed = _hash_column(columns[0])
    for column in columns[1:]:
        _mix(mixed, _hash_column(column))
    return mixed


def _mix(mixed: UInt64s, hashes: UInt64s) -> None:
    """Mix the hashes of one more column in."""
    library = native.library()
    if library is not None:
        native.hash_mix(library, mixed, hashes)
        return
    mixed *= np.uint64(GOLDEN)
    mixed += hashes
    _fmix(mixed)


def _hash_column(column: pa.Array | pa.ChunkedArray) -> UInt64s:
    if isinstance(column, pa.ChunkedArray):
        if column.num_chunks == 1:
            return _hash_array(column.chunk(0))
        return np.concatenate([np.zeros(0, np.uint64), *(_hash_array(chunk) for chunk in column.chunks)])
    return _hash_array(column)


def _hash_array(array: pa.Array) -> UInt64s:
    """One value hash a row."""
    kind = array.type
    hashes: UInt64s
    if pa.types.is_dictionary(kind):
        codes = array.indices.fill_null(0).to_numpy(zero_copy_only=False)
        if not len(array.dictionary):
            return np.zeros(len(array), dtype=np.uint64)
        hashes = _hash_array(array.dictionary)[codes]
    elif pa.types.is_null(kind):
        hashes = np.zeros(len(array), dtype=np.uint64)
    elif pa.types.is_boolean(kind):
        both = np.array([_hash_bytes(b"\0", BOOLEAN), _hash_bytes(b"\1", BOOLEAN)], dtype=np.uint64)
        hashes = both[array.fill_null(False).to_numpy(zero_copy_only=False).astype(np.int8)]
    elif pa.types.is_floating(kind):
        values = array.fill_null(0.0).to_numpy(zero_copy_only=False).astype(np.float64) + 0.0
        values[np.isnan(values)] = np.nan
        hashes = _hash_words(values.view(np.uint64).reshape(-1, 1), DOUBLE)
    elif _is_text(kind):
        hashes = _hash_texts(array)
    elif pa.types.is_decimal128(kind):
        hashes = _hash_decimals(array)
    elif pa.types.is_primitive(kind):
        hashes = _hash_words(_integers(array).reshape(-1, 1), INTEGER)
    else:
        raise TypeError(f"a key column cannot be {kind}")
    if array.null_count:
        hashes[array.is_null().to_numpy(zero_copy_only=False)] = np.uint64(_hash_bytes(b"", NULL))
    return hashes


def _hash_bytes(value: bytes, seed: int) -> int:
    return int(mmh3.hash64(value, seed, signed=False)[0])


def _is_text(kind: pa.DataType) -> bool:
    return kind in _TEXTS


def _integers(array: pa.Array) -> UInt64s:
    """Arrow's own count of any integer, date, time or timestamp, as 64 bits; 0 where it is NULL."""
    width = array.type.bit_width
    signed = array
    if not pa.types.is_integer(array.type):
        signed = array.view(pa.int64() if width == 64 else pa.int32())
    values = np.asarray(pc.fill_null(signed, 0).to_numpy(zero_copy_only=False))
    bits: UInt64s = values.astype(np.int64).view(np.uint64)
    return bits


def _hash_decimals(array: pa.Array) -> UInt64s:
    words = np.frombuffer(array.buffers()[1], dtype=np.uint64, count=2 * (array.offset + len(array)))
    return _hash_words(words.reshape(-1, 2)[array.offset :], DECIMAL)


def _hash_words(words: UInt64s, seed: int) -> UInt64s:
    """mmh3 of values of one word (8 bytes) or two, (rows, words)."""
    library, rows = native.library(), len(words)
    if library is not None:
        return native.hash_words(library, words, seed)
    hashes = np.empty(rows, dtype=np.uint64)
    for start in range(0, rows, _SLICE_ROWS):
        part = slice(start, min(start + _SLICE_ROWS, rows))
        h1 = np.full(part.stop - start, seed, dtype=np.uint64)
        h2 = h1.copy()
        if words.shape[1] == 2:
            _block(h1, h2, words[part, 0].copy(), words[part, 1].copy())
        else:
            h1 ^= _scramble(words[part, 0].copy(), _C1, 31, _C2)
        hashes[part] = _finish(h1, h2, np.uint64(8 * words.shape[1]))
    return hashes


def _hash_texts(array: pa.Array) -> UInt64s:
    """mmh3 of each value's bytes: slices of rows, 16 bytes of all of them at a time."""
    if pa.types.is_string_view(array.type) or pa.types.is_binary_view(array.type):
        array = array.cast(pa.large_string() if pa.types.is_string_view(array.type) else pa.large_binary())
    offsets, heap = _texts(array)
    library = native.library()
    if library is not None and offsets.dtype == np.int32:
        return native.hash_texts(library, heap, offsets.astype(np.int32, copy=False), BYTES)
    hashes = np.empty(len(array), dtype=np.uint64)
    values = even_values(array)
    if values is not None and values.shape[1] < _LONG_BYTES:
        for start in range(0, len(array), _SLICE_ROWS):
            hashes[start : start + _SLICE_ROWS] = _hash_even(values[start : start + _SLICE_ROWS])
        return hashes
    for start in range(0, len(array), _SLICE_ROWS):
        edges = offsets[start : start + _SLICE_ROWS + 1].astype(np.int64)
        _hash_slice(heap, edges, hashes[start : start + _SLICE_ROWS])
    return hashes


def _texts(array: pa.Array) -> tuple[Offsets, npt.NDArray[np.uint8]]:
    """Where each value begins, with the end of the last; and the bytes."""
    wide = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    _, starts, data = array.buffers()
    if not len(array):
        return np.zeros(1, np.int32), np.zeros(0, np.uint8)
    stop = array.offset + len(array) + 1
    offsets: Offsets
    offsets = np.frombuffer(starts, np.int64, stop) if wide else np.frombuffer(starts, np.int32, stop)
    heap = np.frombuffer(data, dtype=np.uint8) if data is not None else np.zeros(0, dtype=np.uint8)
    return offsets[array.offset :], heap


def even_values(array: pa.Array) -> npt.NDArray[np.uint8] | None:
    """The bytes of texts that are all equally long, (rows, length); None if they are not, or empty."""
    offsets, heap = _texts(array)
    rows, first, end = len(array), int(offsets[0]), int(offsets[-1])
    size = int(offsets[1]) - first if rows else 0
    if not size or end - first != size * rows or (offsets[1:] - offsets[:-1] != size).any():
        return None
    return heap[first:end].reshape(rows, size)


def _hash_even(values: npt.NDArray[np.uint8]) -> UInt64s:
    """The same for values of one length, (rows, bytes): their words lie at even distances."""
    rows, size = values.shape
    h1 = np.full(rows, BYTES, dtype=np.uint64)
    h2 = h1.copy()
    whole, tail = size & ~15, size & 15
    for at in range(0, whole, 16):
        _block(h1, h2, word_at(values, at), word_at(values, at + 8))
    if tail > 8:
        high = word_at(values, size - 8)
        high >>= np.uint64(8 * (16 - tail))
        h2 ^= _scramble(high, _C2, 33, _C1)
    if tail:
        low = word_at(values, whole if tail >= 8 or size < 8 else size - 8)
        if tail < 8 < size:
            low >>= np.uint64(8 * (8 - tail))
        h1 ^= _scramble(low, _C1, 31, _C2)
    return _finish(h1, h2, np.uint64(size))


def word_at(values: npt.NDArray[np.uint8], at: int) -> UInt64s:
    """The eight bytes from byte ``at`` on of each value, as numbers, copied; shorter values end in zeros."""
    rows, size = values.shape
    if size >= 8:
        return np.ndarray(rows, "<u8", values, at, (size,)).astype(np.uint64)
    padded = np.zeros(rows * size + 8, dtype=np.uint8)
    padded[:-8] = values.reshape(-1)
    words = np.ndarray(rows, "<u8", padded, 0, (size,)).astype(np.uint64)
    words &= np.uint64((1 << 8 * size) - 1)
    return words


def _hash_slice(heap: npt.NDArray[np.uint8], edges: npt.NDArray[np.int64], out: UInt64s) -> None:
    """Hash the values between consecutive ``edges`` of ``heap`` into ``out``."""
    sizes = np.diff(edges)
    longest = int(sizes.max())
    if longest >= _LONG_BYTES:
        long = sizes >= _LONG_BYTES
        for row in np.flatnonzero(long).tolist():
            value = heap[edges[row] : edges[row + 1]].tobytes()
            out[row] = _hash_bytes(value, BYTES)
        short = np.flatnonzero(~long)
        if len(short):
            lengths = sizes[short]
            packed = _pack(heap, edges[short], lengths)
            part = np.empty(len(short), dtype=np.uint64)
            _hash_slice(packed, np.concatenate([[0], np.cumsum(lengths)]), part)
            out[short] = part
        return
    # Words are read past the end of the last value, so that it needs room behind it.
    padded = np.zeros(int(edges[-1] - edges[0]) + 16, dtype=np.uint8)
    padded[:-16] = heap[edges[0] : edges[-1]]
    words = np.ndarray(len(padded) - 7, dtype="<u8", buffer=padded, strides=(1,))
    out[:] = _hash_short(words, edges[:-1] - edges[0], sizes, longest)


def _pack(
    heap: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint8]:
    """The bytes of some values, one after the other."""
    ends = np.cumsum(sizes)
    index = np.arange(int(ends[-1]), dtype=np.int64) + np.repeat(starts - (ends - sizes), sizes)
    packed: npt.NDArray[np.uint8] = heap[index]
    return packed


def _hash_short(
    words: npt.NDArray[np.uint64], starts: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64], longest: int
) -> UInt64s:
    """``words[i]`` are the 8 bytes from byte ``i`` on."""
    h1 = np.full(len(starts), BYTES, dtype=np.uint64)
    h2 = h1.copy()
    for done in range(0, longest - 15, 16):
        rows = np.flatnonzero(sizes >= done + 16)
        at = starts[rows] + done
        g1, g2 = h1[rows], h2[rows]
        _block(g1, g2, words[at], words[at + 8])
        h1[rows], h2[rows] = g1, g2
    tail = sizes & 15
    at = starts + (sizes - tail) if longest > 15 else starts
    # Of the last 0 to 15 bytes; what lies beyond the value is masked off.
    low = words[at]
    low &= _LOW_MASKS[tail]
    h1 ^= _scramble(low, _C1, 31, _C2)
    if longest > 8:
        high = words[at + 8]
        high &= _HIGH_MASKS[tail]
        h2 ^= _scramble(high, _C2, 33, _C1)
    return _finish(h1, h2, sizes.astype(np.uint64))


def _rotate(words: UInt64s, left: int) -> UInt64s:
    high = words << np.uint64(left)
    high |= words >> np.uint64(64 - left)
    return high


def _scramble(word: UInt64s, first: np.uint64, left: int, second: np.uint64) -> UInt64s:
    """Of one word of input; ``word`` is used up. A word of zero stays zero, as for an absent tail."""
    word *= first
    word = _rotate(word, left)
    word *= second
    return word


def _block(h1: UInt64s, h2: UInt64s, k1: UInt64s, k2: UInt64s) -> None:
    """murmur3's 16-byte block, in place."""
    h1 ^= _scramble(k1, _C1, 31, _C2)
    h1[:] = _rotate(h1, 27)
    h1 += h2
    h1 *= np.uint64(5)
    h1 += np.uint64(0x52DCE729)
    h2 ^= _scramble(k2, _C2, 33, _C1)
    h2[:] = _rotate(h2, 31)
    h2 += h1
    h2 *= np.uint64(5)
    h2 += np.uint64(0x38495AB5)


def _fmix(h: UInt64s) -> None:
    """murmur3's finalizer, in place."""
    h ^= h >> np.uint64(33)
    h *= np.uint64(0xFF51AFD7ED558CCD)
    h ^= h >> np.uint64(33)
    h *= np.uint64(0xC4CEB9FE1A85EC53)
    h ^= h >> np.uint64(33)


def _finish(h1: UInt64s, h2: UInt64s, sizes: UInt64s | np.uint64) -> UInt64s:
    h1 ^= sizes
    h2 ^= sizes
    h1 += h2
    h2 += h1
    _fmix(h1)
    _fmix(h2)
    h1 += h2
    return h1
