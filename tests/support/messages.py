"""Values of the types that messages are made of."""

from __future__ import annotations

import random
import typing

import msgspec

from overlay import Peer

PLAIN = (int, str, bytes, bool)


def plain(kind: object) -> bool:
    """Whether a codec without knowledge of ours can carry the type."""
    if kind in PLAIN:
        return True
    if typing.get_origin(kind) is tuple:
        item, dots = typing.get_args(kind)
        return dots is Ellipsis and plain(item)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return all(plain(hint) for hint in typing.get_type_hints(kind).values())
    return False


def example(kind: object) -> object:
    """Any value of a plain type, with something in every tuple."""
    if kind in PLAIN:
        return {int: 2**63 - 1, str: "größe", bytes: b"\x00\xff" * 8, bool: True}[kind]
    if typing.get_origin(kind) is tuple:
        return (example(typing.get_args(kind)[0]),) * 2
    assert isinstance(kind, type)
    return kind(**{name: example(hint) for name, hint in typing.get_type_hints(kind).items()})


def random_value(rng: random.Random, kind: object) -> object:
    if kind is Peer:
        return Peer(rng.choice(["me", *(f"p{n}" for n in range(9))]), rng.randrange(3))
    if kind is int:
        return rng.choice([-1, 0, 1, 2, rng.randrange(1 << 32), 2**63 - 1])
    if kind is str:
        return rng.choice(["", "me", "p1", "p2"])
    if kind is bytes:
        return bytes([rng.randrange(3)]) * 16
    if kind is bool:
        return rng.random() < 0.5
    if typing.get_origin(kind) is tuple:
        return tuple(random_value(rng, typing.get_args(kind)[0]) for _ in range(rng.randrange(4)))
    assert isinstance(kind, type)
    return kind(**{name: random_value(rng, hint) for name, hint in typing.get_type_hints(kind).items()})
