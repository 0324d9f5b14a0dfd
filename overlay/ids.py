"""Ids on the ring: 128-bit numbers, their digits and distances.

Node ids are SHA-1 of the advertised address, keys are 16 bytes that the application hashed (ELF section 2.3,
Pastry section 2). On the wire and in the API a key is ``bytes``; inside the overlay ids and keys are plain
integers, because routing is arithmetic on them.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from overlay.fields import Number, Text, Value

ID_BITS: Final = 128
KEY_BYTES: Final = ID_BITS // 8
_ADDRESS: Final = re.compile(r"[^\x00-\x20\x7f]{1,255}").fullmatch
RING: Final = 1 << ID_BITS
_MASK: Final = RING - 1
_HALF: Final = RING // 2


def key_of(data: bytes) -> bytes:
    """The key of any bytes: the first 128 bits of their SHA-1."""
    return hashlib.sha1(data, usedforsecurity=False).digest()[:KEY_BYTES]


@lru_cache(maxsize=1 << 16)
def node_id(address: str) -> int:
    """The place of an address on the ring."""
    return int.from_bytes(key_of(address.encode()), "big")


def to_int(key: bytes) -> int:
    """A key as a number. Raises ValueError unless it has 16 bytes."""
    if len(key) != KEY_BYTES:
        raise ValueError(f"a key has {KEY_BYTES} bytes, not {len(key)}")
    return int.from_bytes(key, "big")


def to_key(number: int) -> bytes:
    """The opposite of :func:`to_int`."""
    return number.to_bytes(KEY_BYTES, "big")


def clockwise(start: int, end: int) -> int:
    """Steps from ``start`` up to ``end``, going round the ring in the direction of growing ids."""
    return (end - start) & _MASK


def distance(one: int, other: int) -> int:
    """Steps between two ids the short way round."""
    way = (one - other) & _MASK
    return way if way <= _HALF else RING - way


def closeness(key: int, node: int) -> tuple[int, int]:
    """Sort key of nodes by numerical closeness to ``key``; two at equal distance are ordered by id, the same
    everywhere."""
    return distance(key, node), node


def digit(number: int, row: int, bits: int) -> int:
    """The digit at position ``row`` (0 is the most significant) of an id read in base 2**bits."""
    return (number >> (ID_BITS - (row + 1) * bits)) & ((1 << bits) - 1)


def shared_digits(one: int, other: int, bits: int) -> int:
    """How many leading digits two ids have in common."""
    return (ID_BITS - (one ^ other).bit_length()) // bits


class _Placed:
    """Holds what :class:`Peer` derives from its fields, out of sight of the codec."""

    __slots__ = ("id",)
    if TYPE_CHECKING:  # at run time it would be taken for a field
        id: int
        """Place on the ring: SHA-1 of the address, first 128 bits."""


_place: Final = _Placed.__dict__["id"].__set__
"""Fills the slot: a frozen struct cannot."""


class Peer(_Placed, Value, frozen=True):
    """A node as others name it: where it is reached, and how often it has been started there.

    A higher incarnation at the same address replaces the lower one at once; whatever still comes from the
    lower one is ignored.
    """

    address: Text
    incarnation: Number

    def __post_init__(self) -> None:
        if not _ADDRESS(self.address):
            raise ValueError("a node without an address that one could write down")
        _place(self, node_id(self.address))
