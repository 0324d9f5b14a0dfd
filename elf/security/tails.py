"""A voter's signature on what it tells of the catalog log, which others hand on (protocol 12.8).

A tail is signed once, by the leader, as the bytes that travel, and verified once by each follower: some
0.1 ms each, whatever number of entries it has. It is for one cluster. That it may come twice or late does no
harm: a follower takes each entry once, in its order.
"""

from __future__ import annotations

from typing import Final

from elf.security.keys import verifies

_TAG: Final = b"elf log tail 1\0"


def signable(cluster: str, tail: bytes) -> bytes:
    """The bytes that are signed."""
    return _TAG + cluster.encode() + b"\0" + tail


def is_signed(cluster: str, tail: bytes, keys: tuple[bytes, ...], signature: bytes) -> bool:
    """Whether the owner of one of these keys has signed it."""
    data = signable(cluster, tail)
    return any(verifies(key, data, signature) for key in keys)
