"""Event times from text, whole columns at once: what nearly every record has (RFC 3339 in UTC, like
``2026-01-01T00:00:00.123Z``) is read eight bytes at a time, everything else as the format's SQL reads it.

A text of that shape is normalised to 27 bytes (six digits behind the point), which are four little-endian
words. XOR with the shape leaves digits as 0 to 9 and separators as 0; one multiplication turns pairs of
digits into numbers. ``Dialect.time_us`` is the definition: what is not plainly right here is left to it.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Int64s = npt.NDArray[np.int64]
UInt64s = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]

_SHAPE: Final = b"0000-00-00T00:00:00.000000Z\0\0\0\0\0"
_SHORTEST: Final = len("0000-00-00T00:00:00Z")
_LONGEST: Final = len("0000-00-00T00:00:00.000000Z")
_BLOCK_ROWS: Final = 4096
"""So many are read in one go: what is computed on the way stays in the processor's cache."""
_WORDS: Final[UInt64s] = np.frombuffer(_SHAPE, dtype="<u8").astype(np.uint64)
_SEPARATORS: Final[UInt64s] = np.frombuffer(
    bytes(0 if byte == ord("0") else 0xFF for byte in _SHAPE), dtype="<u8"
).astype(np.uint64)
_TO_TEN: Final = np.uint64(0x7676767676767676)
_HIGH_BITS: Final = np.uint64(0x8080808080808080)
_FIRST_YEAR: Final = 1000
_MONTHS: Final[Int64s] = (
    np.arange("1000-01", "3000-02", dtype="datetime64[M]").astype("datetime64[D]").astype(np.int64)
)
"""The day (since the epoch) on which each month begins."""


def read_times(texts: pa.StringArray) -> tuple[Int64s, Mask]:
    """(µs since the epoch, which rows were read); the other rows' numbers mean nothing."""
    us = np.zeros(len(texts), dtype=np.int64)
    done = np.zeros(len(texts), dtype=np.bool_)
    if not len(texts) or texts.buffers()[2] is None:
        return us, done
    offsets = np.frombuffer(texts.buffers()[1], dtype=np.int32)[texts.offset : texts.offset + len(texts) + 1]
    data = np.frombuffer(texts.buffers()[2], dtype=np.uint8)
    lengths = np.diff(offsets)
    if texts.null_count:
        lengths = np.where(texts.is_valid().to_numpy(zero_copy_only=False), lengths, 0)
    for length in np.flatnonzero(np.bincount(lengths)):
        if length == _SHORTEST or _SHORTEST + 1 < length <= _LONGEST:
            found = np.flatnonzero(lengths == length)
            for start in range(0, len(found), _BLOCK_ROWS):
                rows = found[start : start + _BLOCK_ROWS]
                us[rows], done[rows] = _read(_normal(data, offsets[rows], int(length)))
    return us, done


def _normal(data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int32], length: int) -> UInt64s:
    """The texts at these places, one row of four words each, in the shape of ``_SHAPE``."""
    first, last = int(starts[0]), int(starts[-1]) + length
    if last - first == len(starts) * length:
        texts = data[first:last].reshape(len(starts), length)
    else:
        texts = data[starts[:, None] + np.arange(length, dtype=np.int32)]
    rows = np.empty((len(starts), len(_SHAPE)), dtype=np.uint8)
    rows[:, : length - 1] = texts[:, :-1]
    rows[:, length - 1 :] = np.frombuffer(_SHAPE, dtype=np.uint8)[length - 1 :]
    rows[:, _LONGEST - 1] = texts[:, -1]
    return rows.view("<u8")


def _read(words: UInt64s) -> tuple[Int64s, Mask]:
    columns = [words[:, number] ^ _WORDS[number] for number in range(len(_WORDS))]
    wrong = np.zeros(len(words), dtype=np.uint64)
    for column, separators in zip(columns, _SEPARATORS, strict=True):
        wrong |= (column & separators) | (((column & ~_HIGH_BITS) + _TO_TEN | column) & _HIGH_BITS)
    date, clock, second, rest = (column * np.uint64(10) + (column >> np.uint64(8)) for column in columns)
    year = _pair(date, 0) * 100 + _pair(date, 2)
    month, day = _pair(date, 5), _pair(clock, 0)
    hour, minute, seconds = _pair(clock, 3), _pair(clock, 6), _pair(second, 1)
    good = (wrong == 0) & (year >= _FIRST_YEAR) & (year < 3000) & (month >= 1) & (month <= 12)
    good &= (day >= 1) & (hour < 24) & (minute < 60) & (seconds < 60)
    at = np.where(good, (year - _FIRST_YEAR) * 12 + month - 1, 0)
    days = _MONTHS[at] + day - 1
    good &= days < _MONTHS[at + 1]
    micros = (_pair(second, 4) * 100 + _pair(second, 6)) * 100 + _pair(rest, 0)
    return (((days * 24 + hour) * 60 + minute) * 60 + seconds) * 1_000_000 + micros, good


def _pair(column: UInt64s, byte: int) -> Int64s:
    """The number that the two digits at a byte make."""
    return ((column >> np.uint64(8 * byte)) & np.uint64(0xFF)).view(np.int64)
