"""Several trees for one job: its keys are cut into equal ranges of their 64-bit hashes, and each range has a
topic, so a tree and a root, of its own (ELF section 2.3: m trees for m key ranges).

Pure arithmetic, the same on every node: nobody has to be told.
"""

from __future__ import annotations

from overlay.ids import key_of

HASH_BITS = 64


def range_topics(name: bytes, ranges: int) -> tuple[bytes, ...]:
    """The topics of a job's key ranges, in the order of the ranges. One range: the topic of the name
    itself."""
    _check(ranges)
    if ranges == 1:
        return (key_of(name),)
    return tuple(key_of(b"%s range %d of %d" % (name, number, ranges)) for number in range(ranges))


def range_starts(ranges: int) -> tuple[int, ...]:
    """The lowest hash of each range; it ends below the next one's. For a binary search over many hashes."""
    _check(ranges)
    return tuple(-(-(number << HASH_BITS) // ranges) for number in range(ranges))


def range_of(hash64: int, ranges: int) -> int:
    """In which range a hash is: ``floor(hash * ranges / 2**64)``. ValueError if it has more than 64 bits."""
    _check(ranges)
    if not 0 <= hash64 < 1 << HASH_BITS:
        raise ValueError(f"a hash has {HASH_BITS} bits and no sign, so {hash64} is none")
    return hash64 * ranges >> HASH_BITS


def topic_of(name: bytes, hash64: int, ranges: int) -> bytes:
    """The topic under which a job collects a key with this hash."""
    return range_topics(name, ranges)[range_of(hash64, ranges)]


def _check(ranges: int) -> None:
    if ranges < 1:
        raise ValueError(f"a job has at least one key range, not {ranges}")
