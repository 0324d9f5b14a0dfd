"""Messages by key: what a master feeds back is cut by the hashes of its keys, so that an agent need only take
what has keys that it has asked for.

An *entry* is the hash of a key and the packed pair of key and message. What is fed back is a list of entries.
Cut into pieces each piece has the entries of an equal range of hashes: who knows its keys knows its pieces.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from hashlib import blake2b
from typing import Annotated, Final

import msgspec

HASH_BYTES: Final = 8
KEYS_MAX: Final = 50_000
"""That a job on one agent may ask for."""
ENTRY_BYTES_MAX: Final = 64 << 10
"""Of a key with its message."""
INLINE_BYTES_MAX: Final = 1 << 20
"""What a tree carries itself."""
PIECE_BYTES: Final = 256 << 10
"""Of a multicast that is too large for a tree; the last piece has the rest."""
CUT_BYTES: Final = 16 << 10
"""What a piece by key has, about; at most as much as any piece."""
PIECES_MAX: Final = 1_024

Hash = Annotated[bytes, msgspec.Meta(min_length=HASH_BYTES, max_length=HASH_BYTES)]
Entries = list[tuple[Hash, bytes]]
_encode: Final = msgspec.msgpack.Encoder().encode
_entries: Final = msgspec.msgpack.Decoder(Entries).decode


def hash_of(key: bytes) -> bytes:
    """Of a packed key."""
    return blake2b(key, digest_size=HASH_BYTES).digest()


def packed(entries: Iterable[tuple[bytes, bytes]]) -> bytes:
    """A list of entries as bytes."""
    return _encode(list(entries))


def cut(entries: list[tuple[bytes, bytes]]) -> list[bytes]:
    """The pieces of what is fed back: one, if it is small. Raises ``ValueError`` where one range has too
    much."""
    whole = packed(entries)
    if len(whole) <= INLINE_BYTES_MAX:
        return [whole]
    count = max(2, min(len(whole) // CUT_BYTES, PIECES_MAX))
    while True:
        pieces: list[list[tuple[bytes, bytes]]] = [[] for _ in range(count)]
        for entry in entries:
            pieces[place_of(entry[0], count)].append(entry)
        found = list(map(packed, pieces))
        if max(map(len, found)) <= PIECE_BYTES:
            return found
        if count == PIECES_MAX:
            raise ValueError("the messages of some keys are too large")
        count = min(2 * count, PIECES_MAX)


def place_of(key: bytes, count: int) -> int:
    """In which of so many pieces a hash is."""
    return int.from_bytes(key, "big") * count >> 8 * HASH_BYTES


def places(asks: Iterable[bytes], count: int) -> frozenset[int]:
    """The pieces in which these hashes are."""
    return frozenset(place_of(key, count) for key in asks)


def chosen(value: bytes, asks: Container[bytes]) -> Iterator[bytes]:
    """The packed pairs in a piece whose keys were asked for. What cannot be read has none."""
    try:
        entries = _entries(value)
    except (ValueError, RecursionError):
        return
    yield from (pair for key, pair in entries if key in asks)


def asks_of(value: bytes) -> frozenset[bytes]:
    """Hashes that stand one after the other."""
    return frozenset(value[at : at + HASH_BYTES] for at in range(0, len(value), HASH_BYTES))
