"""The hash of a key as ``elf.keys`` defines it, a row at a time."""

from __future__ import annotations

import struct
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Final

import mmh3

from elf.keys import BOOLEAN, BYTES, DECIMAL, DOUBLE, GOLDEN, INTEGER, NULL

Value = None | bool | int | float | str | bytes | date | Decimal

_MASK: Final = (1 << 64) - 1


def hash_key_reference(values: tuple[Value, ...]) -> int:
    """The hash of one key, slowly. Decimals must have the scale that their column has."""
    if not values:
        return 0
    mixed = _hash_value(values[0])
    for value in values[1:]:
        mixed = _fmix_int((mixed * GOLDEN + _hash_value(value)) & _MASK)
    return mixed


def _hash_value(value: Value) -> int:
    seed, data = _canonical(value)
    return int(mmh3.hash64(data, seed, signed=False)[0])


def _canonical(value: Value) -> tuple[int, bytes]:
    match value:
        case None:
            return NULL, b""
        case bool():
            return BOOLEAN, bytes([value])
        case int():
            return INTEGER, (value & _MASK).to_bytes(8, "little")
        case float():
            return DOUBLE, struct.pack("<d", float("nan") if value != value else value + 0.0)
        case str():
            return BYTES, value.encode()
        case bytes():
            return BYTES, value
        case datetime():
            zoned = value if value.tzinfo else value.replace(tzinfo=UTC)
            return _canonical((zoned - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1))
        case date():
            return _canonical((value - date(1970, 1, 1)).days)
        case Decimal():
            sign, digits, _ = value.as_tuple()
            unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
            return DECIMAL, unscaled.to_bytes(16, "little", signed=True)


def _fmix_int(h: int) -> int:
    h ^= h >> 33
    h = h * 0xFF51AFD7ED558CCD & _MASK
    h ^= h >> 33
    h = h * 0xC4CEB9FE1A85EC53 & _MASK
    return h ^ h >> 33
