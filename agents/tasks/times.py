"""Event times from text, whole columns at once: what nearly every record has (RFC 3339 in UTC, like
``2026-01-01T00:00:00.123Z`` or with ``+00:00``, or an integer of seconds, ms or µs) is read eight bytes at a
time, everything else as the format's SQL reads it.

A text of that shape is normalised to 27 bytes (six digits behind the point), which are four little-endian
words. XOR with the shape leaves digits as 0 to 9 and separators as 0; one multiplication turns pairs of
digits into numbers. ``Dialect.time_us`` is the definition: what is not plainly right here is left to it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
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
_UTC: Final = b"+00:00"
_MORE: Final = len(_UTC) - len("Z")
_BLOCK_ROWS: Final = 16384
"""So many are read in one go: what is computed on the way stays in the processor's cache."""
_WORDS: Final[UInt64s] = np.frombuffer(_SHAPE, dtype="<u8").astype(np.uint64)
_SEPARATORS: Final[UInt64s] = np.frombuffer(
    bytes(0 if byte == ord("0") else 0xFF for byte in _SHAPE), dtype="<u8"
).astype(np.uint64)
_END_SHIFT: Final = np.uint64(8 * ((_LONGEST - 1) % 8))
_DIGITS_LEAST: Final = 9
_DIGITS_MOST: Final = 16
_UNITS: Final = ((11, 1_000_000), (14, 1_000), (_DIGITS_MOST, 1))
"""Up to so many digits, in µs."""
_ZEROS: Final = np.uint64(0x3030303030303030)
_FOLDS: Final = tuple(
    (np.uint64(bits), np.uint64(base), np.uint64(mask))
    for bits, base, mask in (
        (8, 10, 0x00FF00FF00FF00FF),
        (16, 100, 0x0000FFFF0000FFFF),
        (32, 10_000, 0x00000000FFFFFFFF),
    )
)
"""Neighbours become one number: of two digits, of four, of eight."""
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
        read = _reader(int(length))
        if read is not None:
            found = lengths == length
            rows = None if found.all() else np.flatnonzero(found)
            for start in range(0, len(texts) if rows is None else len(rows), _BLOCK_ROWS):
                block = slice(start, start + _BLOCK_ROWS)
                at = block if rows is None else rows[block]
                us[at], done[at] = read(_Texts(data, offsets[:-1][at], int(length)))
    return us, done


def _reader(length: int) -> Callable[[_Texts], tuple[Int64s, Mask]] | None:
    """What reads the usual texts of a length."""
    if _DIGITS_LEAST <= length <= _DIGITS_MOST:
        return _read_number
    if length == _SHORTEST or _SHORTEST + 1 < length <= _LONGEST:
        return _read_date
    if length == _SHORTEST + _MORE or _LONGEST < length <= _LONGEST + _MORE:
        return _read_date_with_offset
    return None


class _Texts:
    """Texts of one length, side by side."""

    def __init__(self, data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int32], length: int) -> None:
        self.length = length
        self._count = len(starts)
        self._bytes = np.zeros(self._count * length + len(_SHAPE), dtype=np.uint8)
        first, last = int(starts[0]), int(starts[-1]) + length
        if last - first == self._count * length:
            self._bytes[: last - first] = data[first:last]
        else:
            places = starts[:, None] + np.arange(length, dtype=np.int32)
            self._bytes[: self._count * length] = data[places].ravel()

    def words(self, at: int) -> UInt64s:
        """Eight bytes of each, the first one at this place (which may reach into the next text)."""
        return np.ndarray(self._count, "<u8", self._bytes, offset=at, strides=(self.length,))

    def bytes(self, at: int) -> UInt64s:
        """One byte of each."""
        return self._bytes[at : self._count * self.length : self.length].astype(np.uint64)


# -- numbers -------------------------------------------------------------------------------------------------


def _read_number(texts: _Texts) -> tuple[Int64s, Mask]:
    """Digits only, the first one not 0: by their number it is seconds, ms or µs (``Dialect.time_us``)."""
    length = texts.length
    low, good = _eight_digits(texts.words(length - 8))
    gap = np.uint64(8 * (_DIGITS_MOST - length))
    zeros = _ZEROS & ((np.uint64(1) << gap) - np.uint64(1))
    high, fine = _eight_digits((texts.words(0) << gap) | zeros)
    good &= fine & (texts.bytes(0) != ord("0"))
    unit = next(unit for longest, unit in _UNITS if length <= longest)
    return (high * 100_000_000 + low) * unit, good


def _eight_digits(words: UInt64s) -> tuple[Int64s, Mask]:
    """(the numbers that eight digits make, whether they are digits)."""
    column = words ^ _ZEROS
    good = ((((column & ~_HIGH_BITS) + _TO_TEN) | column) & _HIGH_BITS) == 0
    for bits, base, mask in _FOLDS:
        column = (column * base + (column >> bits)) & mask
    return column.view(np.int64), good


# -- dates ---------------------------------------------------------------------------------------------------


def _normal(texts: _Texts, length: int, ends: UInt64s) -> list[UInt64s]:
    """The first bytes of the texts, so many, in the shape of ``_SHAPE``: its four words, one of each text.
    ``ends``: their last byte."""
    there, fill = _kept(length)
    words = [(texts.words(8 * n) & there[n]) | fill[n] for n in range(len(_WORDS))]
    # The last byte belongs to the end of the shape, behind the digits that are not there.
    words[-1] |= ends << _END_SHIFT
    return words


@cache
def _kept(length: int) -> tuple[UInt64s, UInt64s]:
    """By word: the bits of a text of this length that stand where they do in the shape, and the others."""
    here = np.arange(len(_SHAPE)) < length - 1
    there = np.where(here, 0xFF, 0).astype(np.uint8).view("<u8").astype(np.uint64)
    fill = np.where(here, 0, np.frombuffer(_SHAPE, dtype=np.uint8)).astype(np.uint8)
    fill[_LONGEST - 1] = 0
    return there, fill.view("<u8").astype(np.uint64)


def _read_date(texts: _Texts) -> tuple[Int64s, Mask]:
    """With Z at the end."""
    return _date(_normal(texts, texts.length, texts.bytes(texts.length - 1)))


def _read_date_with_offset(texts: _Texts) -> tuple[Int64s, Mask]:
    """With +00:00 at the end, as Python writes it; other offsets are left."""
    length = texts.length - _MORE
    utc = np.ones(len(texts.bytes(0)), dtype=np.bool_)
    for at, byte in enumerate(_UTC, length - 1):
        utc &= texts.bytes(at) == byte
    return _date(_normal(texts, length, np.where(utc, np.uint64(ord("Z")), np.uint64(0))))


def _date(words: list[UInt64s]) -> tuple[Int64s, Mask]:
    """Logs are nearly in order, so neighbours mostly share their minute: it is read once for all of them."""
    changed = words[0][1:] != words[0][:-1]
    changed |= words[1][1:] != words[1][:-1]
    heads = np.append(0, np.flatnonzero(changed) + 1)
    minutes, known = _minutes([word[heads] for word in words])
    micros, good = _seconds(words)
    if len(heads) == 1:
        return micros + minutes, good & known
    runs = np.diff(np.append(heads, len(micros)))
    return micros + np.repeat(minutes, runs), good & np.repeat(known, runs)


def _minutes(words: list[UInt64s]) -> tuple[Int64s, Mask]:
    """What the first two words say."""
    (date, clock), good = _digits(words, 0)
    year = _pair(date, 0) * 100 + _pair(date, 2)
    month, day, hour, minute = _pair(date, 5), _pair(clock, 0), _pair(clock, 3), _pair(clock, 6)
    good &= (year >= _FIRST_YEAR) & (year < 3000) & (month >= 1) & (month <= 12)
    good &= (day >= 1) & (hour < 24) & (minute < 60)
    at = np.where(good, (year - _FIRST_YEAR) * 12 + month - 1, 0)
    days = _MONTHS[at] + day - 1
    good &= days < _MONTHS[at + 1]
    return ((days * 24 + hour) * 60 + minute) * 60_000_000, good


def _seconds(words: list[UInt64s]) -> tuple[Int64s, Mask]:
    """What the last two words say."""
    (second, rest), good = _digits(words, 2)
    seconds = _pair(second, 1)
    good &= seconds < 60
    micros = (_pair(second, 4) * 100 + _pair(second, 6)) * 100 + _pair(rest, 0)
    return seconds * 1_000_000 + micros, good


def _digits(words: list[UInt64s], first: int) -> tuple[list[UInt64s], Mask]:
    """(pairs of digits as numbers, whether all is where it should be) of two words of each row."""
    wrong = np.zeros(len(words[first]), dtype=np.uint64)
    pairs = []
    for number in (first, first + 1):
        column = words[number] ^ _WORDS[number]
        wrong |= column & _SEPARATORS[number]
        wrong |= ((column & ~_HIGH_BITS) + _TO_TEN | column) & _HIGH_BITS
        pairs.append(column * np.uint64(10) + (column >> np.uint64(8)))
    return pairs, wrong == 0


def _pair(column: UInt64s, byte: int) -> Int64s:
    """The number that the two digits at a byte make."""
    return ((column >> np.uint64(8 * byte)) & np.uint64(0xFF)).view(np.int64)
