"""Frames of four kinds: random bytes, damaged real ones, well-typed random ones, and real ones of which a
field is changed and which are sealed anew, as a careful enemy would.
"""

from __future__ import annotations

import contextlib
import random
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

import msgspec

from agents import codec
from elf.errors import ElfBug
from elf.wire.frames import MAGIC, WIRE_VERSION, Envelope, FrameRefused
from lab.bench.fuzz.values import Known, Maker

Kind = Literal["bytes", "damaged", "typed", "changed"]
KINDS: Final[tuple[Kind, ...]] = ("bytes", "damaged", "typed", "changed")
TRIES_MAX: Final = 10_000
ORDERS: Final = frozenset(
    f"job.{name}"
    for name in (
        "DropJob",
        "DropJobEntry",
        "EndVersion",
        "EndFlow",
        "ReconfigureJob",
        "HandOverJob",
        "MoveJobGroup",
        "LeaveStream",
    )
)
"""Messages that end or change what is there, as they say: who may say them is not the decoder's to know."""
KEPT: Final = 2_000
"""Real frames that are changed."""
_encode: Final = msgspec.msgpack.Encoder().encode


def sealed(tag: str, body: bytes, cluster: str, sender: str, payload: bytes = b"") -> list[bytes]:
    """Frames with right checksums."""
    words = "\0".join((cluster, sender, tag)).encode()
    envelope = Envelope(
        MAGIC,
        WIRE_VERSION,
        cluster,
        sender,
        tag,
        zlib.crc32(words, zlib.crc32(body)),
        len(payload),
        zlib.crc32(payload),
        body,
    )
    return [_encode(envelope), *([payload] if payload else [])]


def resealed(frames: Sequence[bytes], cluster: str, sender: str) -> list[bytes]:
    """The same message of another cluster."""
    envelope = msgspec.msgpack.decode(frames[0], type=Envelope)
    return sealed(envelope.tag, envelope.body, cluster, sender, b"".join(frames[1:]))


def message_of(cls: type[codec.Message], rng: random.Random) -> codec.Message:
    """A message of that type whose values make sense to the codec."""
    tag = next(tag for tag, known in codec.CODEC.types.items() if known is cls)
    frames = Frames(rng, "", lambda: "", Known())
    for _ in range(TRIES_MAX):
        with contextlib.suppress(FrameRefused):
            return codec.decode(frames.typed(tag), cluster="", max_bytes=1 << 30).message
    raise ElfBug(f"no {tag} of {TRIES_MAX} makes sense")


class Frames:
    """Makes them. ``strangers``: who says that it sends them; ``real``: frames of the fleet itself."""

    def __init__(self, rng: random.Random, cluster: str, strangers: Callable[[], str], known: Known) -> None:
        self.rng = rng
        self.real: deque[list[bytes]] = deque(maxlen=KEPT)
        self.maker = Maker(rng, known)
        self._cluster = cluster
        self._strangers = strangers
        self._types = dict(sorted(codec.CODEC.types.items()))
        self._tags = tuple(self._types)
        self.harmless = tuple(tag for tag in self._tags if tag not in ORDERS)

    def made(self, kind: Kind) -> list[bytes]:
        """A frame of this kind; the first real ones have to come before those that need one."""
        if kind == "bytes" or (kind in ("damaged", "changed") and not self.real):
            return [
                self.rng.randbytes(self.rng.randrange(200)) for _ in range(self.rng.choice((1, 1, 1, 2, 3)))
            ]
        if kind == "damaged":
            return self._damaged()
        if kind == "changed":
            return self._changed()
        return self.typed(self.rng.choice(self.harmless if self.maker.share else self._tags))

    def typed(self, tag: str) -> list[bytes]:
        """A well-typed message of that tag."""
        body = _encode(self.maker.of(self._types[tag]))
        return sealed(tag, body, self._cluster, self._strangers())

    def _damaged(self) -> list[bytes]:
        frames = list(self.rng.choice(self.real))
        which = self.rng.randrange(len(frames))
        frames[which] = damaged(self.rng, frames[which])
        return frames

    def _changed(self) -> list[bytes]:
        """A real message with some fields of the same types and other values."""
        rng = self.rng
        frames = rng.choice(self.real)
        envelope = msgspec.msgpack.decode(frames[0], type=Envelope)
        fields: list[Any] = msgspec.msgpack.decode(envelope.body)
        other: list[Any] = self.maker.of(self._types[envelope.tag])
        for place in rng.sample(range(len(fields)), min(len(fields), rng.choice((1, 1, 1, 2)))):
            if place < len(other):
                fields[place] = _mixed(rng, fields[place], other[place])
        payload = frames[1] if len(frames) > 1 else b""
        if payload and rng.random() < 0.3:
            payload = rng.randbytes(len(payload))
        return sealed(envelope.tag, _encode(fields), self._cluster, self._strangers(), payload)


def damaged(rng: random.Random, data: bytes) -> bytes:
    """The same with some bytes changed, cut off, or put in between."""
    frame = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        at = rng.randrange(len(frame) or 1)
        match rng.randrange(3):
            case 0 if frame:
                frame[at] ^= rng.randrange(1, 256)
            case 1:
                del frame[at:]
            case _:
                frame[at:at] = rng.randbytes(rng.randrange(1, 9))
    return bytes(frame)


def _mixed(rng: random.Random, real: Any, other: Any) -> Any:
    """One of both, or deep inside one of both."""
    if isinstance(real, list) and isinstance(other, list) and real and rng.random() < 0.6:
        at = rng.randrange(len(real))
        return [*real[:at], _mixed(rng, real[at], rng.choice(other) if other else None), *real[at + 1 :]]
    return other
