"""The messages that agents send, and what makes frames of them (``elf.wire.frames``).

They are those in the ``MESSAGES`` of ``elf.job``, which are structs, and those of ``overlay.messages`` and
``overlay.raft``, which are dataclasses. An agent must never decode into anything else.

Dataclasses travel as msgpack arrays, field by field, without their names: msgspec writes a dataclass as a map
with the name of every field, which is most of a heartbeat. So each message type of the overlay (which knows
no codec) has a twin here, an ``array_like`` struct with the same fields, and msgspec itself carries the
values over. As for all such structs: a field may be appended if it has a default, who does not know it yet
ignores it, and who misses it takes the default.

What is read goes through a second twin whose fields are bounded: numbers by 64 bits, texts and lists by what
any overlay could mean. Which values make sense is the overlay's to say (``well_formed``).
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable
from typing import Annotated, Any, Final, TypeVar

import msgspec

from elf.job import messages as job_messages
from elf.job import work as work_messages
from elf.job.program import messages as program_messages
from elf.wire import base, clients
from elf.wire.base import FAMILY
from elf.wire.frames import Codec, Form, form_of_struct
from overlay import messages as overlay_messages
from overlay import raft

T = TypeVar("T")
_TWINS: Final[dict[tuple[type, bool], type[msgspec.Struct]]] = {}
_BOUNDED: Final[dict[Any, Any]] = {
    int: Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)],
    str: Annotated[str, msgspec.Meta(max_length=1_024)],
}
_ITEMS: Final = msgspec.Meta(max_length=4_096)
"""Of peers, topics, records or groups in one message."""


def writer(cls: type) -> Callable[[object], bytes]:
    """What turns a value of a dataclass into msgpack."""
    twin, encode = twin_of(cls), msgspec.msgpack.Encoder().encode
    return lambda value: encode(msgspec.convert(value, twin, from_attributes=True))


def reader(cls: type[T]) -> Callable[[bytes], T]:
    """The opposite of ``writer``. Raises ``ValueError`` or ``TypeError`` on anything else."""
    decode = msgspec.msgpack.Decoder(twin_of(cls, bounded=True)).decode
    msgspec.json.Decoder(cls)  # what msgspec finds out of a class it keeps: now, not with the first message
    return lambda data: msgspec.convert(decode(data), cls, from_attributes=True)


def twin_of(cls: type, *, bounded: bool = False) -> type[msgspec.Struct]:
    """The struct with the fields of a dataclass; ``bounded``: for what strangers say."""
    if (cls, bounded) in _TWINS:
        return _TWINS[cls, bounded]
    hints = typing.get_type_hints(cls)
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for field in dataclasses.fields(cls):
        kind = _kind(hints[field.name], bounded)
        if field.default is dataclasses.MISSING:
            fields.append((field.name, kind))
        else:
            fields.append((field.name, kind, field.default))
    twin = msgspec.defstruct(cls.__name__, fields, array_like=True, frozen=True)
    _TWINS[cls, bounded] = twin
    return twin


def _kind(hint: Any, bounded: bool) -> Any:
    """A field's type, with twins for dataclasses."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    items: Any
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return twin_of(hint, bounded=bounded)
    if origin is tuple:
        items = tuple[tuple(arg if arg is Ellipsis else _kind(arg, bounded) for arg in args)]  # type: ignore[misc]
        return Annotated[items, _ITEMS] if bounded and args[-1] is Ellipsis else items
    if origin in (typing.Union, types.UnionType):
        return typing.Union[tuple(_kind(arg, bounded) for arg in args)]  # noqa: UP007 (made at run time)
    return _BOUNDED.get(hint, hint) if bounded else hint


Message = base.Message | overlay_messages.Message | raft.Message
"""A message of ours: a struct of ``elf.job.messages``, or a dataclass of ``overlay.messages`` or
``overlay.raft.messages``."""


def _form(cls: type[Message]) -> Form[Message]:
    if issubclass(cls, msgspec.Struct):
        return form_of_struct(cls)
    read: Any = reader(cls)
    well_formed: Any = raft.well_formed if cls in raft.MESSAGES else overlay_messages.well_formed

    def checked(data: bytes) -> Message:
        message: Message = read(data)
        if not well_formed(message):
            raise ValueError("keys or numbers that make no sense")
        return message

    return Form(writer(cls), checked)


CODEC: Final[Codec[Message]] = Codec(
    {
        FAMILY: job_messages.MESSAGES,
        "program": program_messages.MESSAGES,
        "work": work_messages.MESSAGES,
        "stats": clients.STATS_MESSAGES,
        "overlay": overlay_messages.MESSAGES,
        "group": raft.MESSAGES,
    },
    _form,
)
encode: Final = CODEC.encode
decode: Final = CODEC.decode
pack: Final = CODEC.pack
unpack: Final = CODEC.unpack
