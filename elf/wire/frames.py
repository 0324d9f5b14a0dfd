"""Messages to frames and back: one versioned envelope, and Arrow payloads as a frame of their own.

A message travels as one or two frames. The first is the *envelope*, a msgpack array (``Envelope`` below) that
holds the message's fields as another, in their order and without their names. When the message has a
non-empty ``payload`` (Arrow IPC, compressed already), that is the second frame, as it is: it is never copied
into the envelope. A crc32 each covers the envelope's contents and the payload.

Rules: pure (no socket, no clock); any bytes at all give a message or a ``FrameRefused`` (a ``PeerError``),
nothing else; a frame is judged by its own bytes only, so that a bad one harms no other. A ``Codec`` must
never decode into anything but the types that it was made of: a client's are those that it says and hears, an
agent's are in ``agents.codec``. The checksum finds accidents, not enemies: who may talk to whom is the
transport's to say.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Literal, TypeVar

import msgspec

from elf.errors import ElfBug, PeerError
from elf.wire.base import FAMILY
from elf.wire.clients import Failed

M = TypeVar("M", bound=msgspec.Struct)
"""A message."""

MAGIC: Final = "elf"
WIRE_VERSION: Final = 9
_NAME_CHARS_MAX: Final = 64
FRAMES_MAX: Final = 2
"""The most frames that a message may have: envelope and payload."""

Reason = Literal[
    "size", "malformed", "version", "cluster", "checksum", "tag", "fields", "kind", "sender", "slow"
]
"""Why a frame was refused: a metric label, so the set is closed. ``kind``: such a key may not send such a
message. ``sender``: an agent says something for another one. ``slow``: the plans of what it brings take too
long."""

Frame = bytes | memoryview


class FrameRefused(PeerError):
    """Frames that are no message. ``reason`` is short and from a closed set; the text is for the log."""

    def __init__(self, reason: Reason, text: str) -> None:
        self.reason: Reason = reason
        super().__init__(f"{reason}: {text}")


class OtherCluster(FrameRefused):
    """A message that is whole, but of another cluster's: ``cluster`` is its name, ``sender`` as in
    ``Decoded``, and ``told`` whether it does nothing else than to say so."""

    def __init__(self, envelope: Envelope, ours: str) -> None:
        self.cluster = envelope.cluster[:_NAME_CHARS_MAX]
        self.sender = envelope.sender
        self.told = envelope.tag == _tag(FAMILY, Failed)
        super().__init__("cluster", f"from cluster {self.cluster!r}, not {ours!r}")


@dataclass(frozen=True)
class Decoded(Generic[M]):
    """A message and the address that its sender says it can be reached at."""

    sender: str
    message: M


class _Preamble(msgspec.Struct, frozen=True, array_like=True):
    """What every wire version begins with, so that another version can be told from garbage."""

    magic: str
    version: int


class Envelope(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The first frame. ``checksum`` covers cluster, sender, tag and body; ``payload_bytes`` is 0 without a
    second frame.
    """

    magic: str
    version: int
    cluster: str
    sender: str
    tag: str
    checksum: int
    payload_bytes: int
    payload_checksum: int
    body: bytes


class Packed(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A message inside the payload of another one. ``checksum`` covers tag and body; the body has it all."""

    magic: str
    version: int
    tag: str
    checksum: int
    body: bytes


@dataclass(frozen=True)
class Form(Generic[M]):
    """How the fields of a message are bytes. ``read`` raises ``ValueError`` or ``TypeError`` on anything
    else."""

    write: Callable[[M], bytes]
    read: Callable[[bytes], M]


_encode: Final = msgspec.msgpack.Encoder().encode
_read_envelope: Final = msgspec.msgpack.Decoder(Envelope).decode
_read_packed: Final = msgspec.msgpack.Decoder(Packed).decode
_read_preamble: Final = msgspec.msgpack.Decoder(_Preamble).decode


def form_of_struct(cls: type[M]) -> Form[M]:
    """That of a struct, which msgspec knows by itself."""
    return Form(_encode, msgspec.msgpack.Decoder(cls).decode)


class Codec(Generic[M]):
    """Messages of these types to frames and back. Each family of types has a prefix for their tags, so that
    their names cannot meet; ``form``: that of a type."""

    def __init__(
        self,
        families: Mapping[str, Iterable[type[M]]],
        form: Callable[[type[M]], Form[M]] = form_of_struct,
    ) -> None:
        self.types: Final = {_tag(family, cls): cls for family, types in families.items() for cls in types}
        """Tag on the wire to message type."""
        self._tags: Final[dict[type, str]] = {cls: tag for tag, cls in self.types.items()}
        self._make = form
        self._forms: Final[dict[str, Form[M]]] = {}

    def prepare(self) -> None:
        """Find out how all types are read and written: now, not with the first message of each."""
        for tag in self.types:
            self._form(tag)

    def _form(self, tag: str) -> Form[M]:
        if (form := self._forms.get(tag)) is None:
            form = self._forms[tag] = self._make(self.types[tag])
        return form

    def encode(self, message: M, *, cluster: str, sender: str) -> list[bytes]:
        """The frames of a message (one, or two with a payload). ``sender``: where answers may go to."""
        tag = self._tag_of(message)
        payload = _payload(message) or b""
        body = self._form(tag).write(_with_payload(message, b"") if payload else message)
        envelope = Envelope(
            MAGIC,
            WIRE_VERSION,
            cluster,
            sender,
            tag,
            _checksum(body, cluster, sender, tag),
            len(payload),
            zlib.crc32(payload),
            body,
        )
        return [_encode(envelope), payload] if payload else [_encode(envelope)]

    def decode(self, frames: Sequence[Frame], *, cluster: str, max_bytes: int) -> Decoded[M]:
        """The message of these frames, or ``FrameRefused``. ``max_bytes`` limits all frames together."""
        if not 1 <= len(frames) <= FRAMES_MAX:
            raise FrameRefused("malformed", f"{len(frames)} frames, not 1 or 2")
        size = sum(len(frame) for frame in frames)
        if size > max_bytes:
            raise FrameRefused("size", f"{size} bytes, over the limit of {max_bytes}")
        envelope = _envelope(frames[0])
        if _checksum(envelope.body, envelope.cluster, envelope.sender, envelope.tag) != envelope.checksum:
            raise FrameRefused("checksum", "the envelope is damaged")
        if envelope.cluster != cluster:
            raise OtherCluster(envelope, cluster)
        payload = _second(frames, envelope)
        message = self._body(envelope.tag, envelope.body)
        if payload:
            if _payload(message) != b"":
                raise FrameRefused("fields", f"a payload that {envelope.tag} has no place for")
            message = _with_payload(message, payload)
        return Decoded(envelope.sender, message)

    def pack(self, message: M) -> bytes:
        """A message as the ``payload`` of another (routed, multicast) one; everything inline."""
        tag = self._tag_of(message)
        body = self._form(tag).write(message)
        return _encode(Packed(MAGIC, WIRE_VERSION, tag, _checksum(body, tag), body))

    def unpack(self, data: Frame) -> M:
        """The message that ``pack`` made these bytes of, or ``FrameRefused``."""
        try:
            packed = _read_packed(data)
        except (ValueError, RecursionError):
            raise _unreadable(data) from None
        _check_preamble(packed.magic, packed.version)
        if _checksum(packed.body, packed.tag) != packed.checksum:
            raise FrameRefused("checksum", "the packed message is damaged")
        return self._body(packed.tag, packed.body)

    def _tag_of(self, message: M) -> str:
        tag = self._tags.get(type(message))
        if tag is None:
            raise ElfBug(f"{type(message).__name__} is not a message that may travel")
        return tag

    def _body(self, tag: str, body: bytes) -> M:
        if tag not in self.types:
            raise FrameRefused("tag", f"unknown message {tag[:64]!r}")
        try:
            return self._form(tag).read(body)
        except (ValueError, TypeError, RecursionError) as error:
            raise FrameRefused("fields", f"{tag}: {error}") from None


def _tag(family: str, cls: type) -> str:
    return f"{family}.{cls.__name__}"


def _payload(message: object) -> bytes | None:
    """The payload of a message; None when its type has none."""
    payload: bytes | None = getattr(message, "payload", None)
    return payload


def _with_payload(message: M, payload: bytes) -> M:
    """The same message with another payload; only for types that have one."""
    return msgspec.structs.replace(message, payload=payload)


def _checksum(body: bytes, *words: str) -> int:
    """crc32 of the body and the words that go with it (as UTF-8, NUL between them)."""
    return zlib.crc32("\0".join(words).encode(), zlib.crc32(body))


def _envelope(frame: Frame) -> Envelope:
    try:
        envelope = _read_envelope(frame)
    except (ValueError, RecursionError):
        raise _unreadable(frame) from None
    _check_preamble(envelope.magic, envelope.version)
    return envelope


def _check_preamble(magic: str, version: int) -> None:
    if magic != MAGIC:
        raise FrameRefused("malformed", "not a frame of elf")
    if version != WIRE_VERSION:
        raise FrameRefused("version", f"wire version {version}, this is {WIRE_VERSION}")


def _unreadable(frame: Frame) -> FrameRefused:
    """Why a first frame cannot be read: another version may look quite different behind its preamble."""
    try:
        preamble = _read_preamble(frame)
        _check_preamble(preamble.magic, preamble.version)
    except FrameRefused as refused:
        return refused
    except (ValueError, RecursionError):
        pass
    return FrameRefused("malformed", "not an envelope")


def _second(frames: Sequence[Frame], envelope: Envelope) -> bytes:
    """The payload frame, if there should be one."""
    payload = frames[1] if len(frames) > 1 else b""
    if len(payload) != envelope.payload_bytes or (len(frames) > 1) != (envelope.payload_bytes > 0):
        raise FrameRefused(
            "malformed", f"a payload of {len(payload)} bytes, {envelope.payload_bytes} announced"
        )
    if zlib.crc32(payload) != envelope.payload_checksum:
        raise FrameRefused("checksum", "the payload is damaged")
    return bytes(payload)
