"""Random values of a type that msgspec decodes, as plain values that encode to it: lists, numbers, texts.

Each part is within the bounds that the type names (``elf.fields``), often at their edges. Rules between
fields are not known here, so some of what is made is refused all the same.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import inspect

from elf.ql.definition import Definition, TapDefinition
from elf.schema import Column, Schema

_SCHEMA: Final = Schema((Column("n", "bigint"), Column("ts", "timestamp")), "ts")
QUERIES: Final[dict[type, tuple[object, ...]]] = {
    Definition: tuple(
        Definition(f"SELECT n % {n} AS k, SUM(n) FROM x GROUP BY k WINDOWING {n} SECONDS", (("x", _SCHEMA),))
        for n in (2, 3)
    ),
    TapDefinition: (TapDefinition("t", "x", _SCHEMA, where="n > 1", columns=("n",)),),
}
"""Nearly no query that is made up of parts has a plan: some of these, as they are, or with other parts."""
USUAL: Final = 0.75
"""So many numbers are small ones: a message with several is refused if any of them makes no sense."""
DEPTH_MAX: Final = 6
"""Deeper than that, what may be empty is."""
_INT64: Final = (-(1 << 63), (1 << 63) - 1)
_KEY_BYTES: Final = 16
_KEYS: Final = frozenset({"key", "topic", "group", "topics", "unknown", "spare", "climb"})
"""Fields of the overlay that are keys, or tuples of keys: their type does not say so."""
_WORDS: Final = (
    *("", "a", "text", "sum", "count", "map", "send", "included", "final", "wait", "active", "clicks"),
    *(
        "web-1:7071",
        "client:00ff",
        "\u00e9\u4e16 \U0001f600",
        "'; DROP TABLE x; --",
        "x" * 200,
        "../..",
        "{}",
    ),
)


@dataclass(frozen=True)
class Known:
    """What values may name beside what is made up: texts, keys and payloads of a fleet that is there."""

    texts: Sequence[str] = ()
    keys: Sequence[bytes] = ()
    payloads: Sequence[bytes] = ()


@dataclass
class Maker:
    """Makes values. ``share`` of the names are ``known`` ones."""

    rng: random.Random
    known: Known = field(default_factory=Known)
    share: float = 0.0

    def of(self, cls: type) -> Any:
        """A value of a class, as what it is encoded to."""
        return self.value(info_of(cls), "", 0)

    def value(self, kind: inspect.Type, name: str, depth: int) -> Any:
        """A value of a type, for a field of that name."""
        rng = self.rng
        match kind:
            case inspect.BoolType():
                return rng.random() < 0.5
            case inspect.NoneType():
                return None
            case inspect.IntType():
                return self._int(kind)
            case inspect.FloatType():
                return rng.choice((0.0, -0.0, 1.5, -1e300, 1e-300, float("inf"), float("nan"), rng.random()))
            case inspect.StrType():
                return self._text(kind)
            case inspect.BytesType():
                return self._bytes(kind, name)
            case inspect.LiteralType():
                return rng.choice(list(kind.values))
            case inspect.UnionType():
                return self.value(rng.choice(kind.types), name, depth)
            case inspect.VarTupleType() | inspect.ListType():
                return [self.value(kind.item_type, name, depth + 1) for _ in range(self._many(kind, depth))]
            case inspect.TupleType():
                return [self.value(one, name, depth + 1) for one in kind.item_types]
            case inspect.DictType():
                pairs = range(rng.randrange(3))
                return {
                    self.value(kind.key_type, name, depth + 1): self.value(kind.value_type, name, depth + 1)
                    for _ in pairs
                }
            case inspect.StructType() | inspect.DataclassType() | inspect.NamedTupleType():
                return self._fields(kind, depth)
            case _:
                return rng.choice((None, 7, "x", [1, {"a": None}]))

    def _fields(
        self, kind: inspect.StructType | inspect.DataclassType | inspect.NamedTupleType, depth: int
    ) -> Any:
        if kind.cls in QUERIES and self.rng.random() < USUAL:
            return msgspec.msgpack.decode(msgspec.msgpack.encode(self.rng.choice(QUERIES[kind.cls])))
        made = {
            one.encode_name: [0, 1] if one.name == "range" else self.value(one.type, one.name, depth + 1)
            for one in kind.fields
            if one.required or depth < DEPTH_MAX
        }
        if isinstance(kind, inspect.NamedTupleType):
            return list(made.values())
        if not isinstance(kind, inspect.StructType):
            return made
        if kind.array_like:
            return [*([] if kind.tag is None else [kind.tag]), *made.values()]
        return made if kind.tag_field is None else {kind.tag_field: kind.tag, **made}

    def _many(self, kind: inspect.VarTupleType | inspect.ListType, depth: int) -> int:
        least, most = kind.min_length or 0, kind.max_length or 3
        wanted = 0 if depth >= DEPTH_MAX else self.rng.choice((0, 0, 1, 1, 2, 3))
        return max(least, min(wanted, most))

    def _int(self, kind: inspect.IntType) -> int:
        least = int(max(_or(kind.ge, _INT64[0]), _or(kind.gt, _INT64[0] - 1) + 1))
        most = int(min(_or(kind.le, _INT64[1]), _or(kind.lt, _INT64[1] + 1) - 1))
        rng = self.rng
        if rng.random() < USUAL:
            return max(least, min(rng.choice((0, 1, 1, 2, rng.randrange(1, 100))), most))
        return rng.choice((least, most, max(least, min(-1, most)), rng.randint(least, most)))

    def _text(self, kind: inspect.StrType) -> str:
        rng, most = self.rng, kind.max_length
        known = self.known.texts
        for _ in range(8):
            if known and rng.random() < self.share:
                text = rng.choice(known)
            else:
                text = self._made_up() if kind.pattern is not None else rng.choice(_WORDS)
            if fits(text, kind.pattern) and (most is None or len(text) <= most):
                return text
        return next(text for text in _shapes(rng) if fits(text, kind.pattern))

    def _made_up(self) -> str:
        return self.rng.choice((*_shapes(self.rng), *_WORDS))

    def _bytes(self, kind: inspect.BytesType, name: str) -> bytes:
        rng, known = self.rng, self.known
        if name in _KEYS or kind.min_length == _KEY_BYTES:
            real = known.keys and rng.random() < self.share
            return rng.choice(known.keys) if real else rng.randbytes(_KEY_BYTES)
        if known.payloads and rng.random() < 0.5:
            data = rng.choice(known.payloads)
        else:
            data = rng.randbytes(rng.choice((0, 0, 1, 8, 16, 40)))
        data += rng.randbytes(max(0, (kind.min_length or 0) - len(data)))
        return data if kind.max_length is None else data[: kind.max_length]


def _or(bound: int | None, other: int) -> int:
    return other if bound is None else bound


@lru_cache(maxsize=1024)
def info_of(cls: type) -> inspect.Type:
    """What msgspec knows of a type."""
    return inspect.type_info(cls)


@lru_cache(maxsize=1 << 14)
def fits(text: str, pattern: str | None) -> bool:
    """Whether a text is as a type wants it."""
    return pattern is None or re.search(pattern, text) is not None


def _shapes(rng: random.Random) -> tuple[str, ...]:
    """A text of each shape that ``elf.fields`` has a pattern for."""
    digits = f"{rng.getrandbits(128):032x}"
    job, agent = f"{digits}.{rng.randrange(1, 9)}", f"{digits[:8]}-{digits[8:12]}"
    places = (job, f"{job}#{rng.randrange(1, 64)}", f"{job}#1!{agent}", f"{job}#2!{agent}!{agent}")
    words = ("included", "final", "leapt", "answered", "send", "wait", "map", "reduce", "active", "paused")
    address = f"10.9.{rng.randrange(256)}.{rng.randrange(256)}:7071"
    return (digits[:24], *places, agent, "", address, rng.choice(words), "send", "map", "active")
