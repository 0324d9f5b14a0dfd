"""The messages that agents send, and what makes frames of them (``elf.wire.frames``).

They are those in the ``MESSAGES`` of ``elf.job``, which are structs, and those of ``overlay.messages`` and
``overlay.replica``, which are dataclasses (``agents.arrays``). An agent must never decode into anything else.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from agents import arrays
from elf.job import messages as job_messages
from elf.job import work as work_messages
from elf.job.program import messages as program_messages
from elf.wire import vitals as vitals_messages
from elf.wire.base import FAMILY
from elf.wire.frames import Codec, Form, form_of_struct
from overlay import messages as overlay_messages
from overlay import replica

Message = job_messages.Message | overlay_messages.Message | replica.Message
"""A message of ours: a struct of ``elf.job.messages``, or a dataclass of ``overlay.messages`` or
``overlay.replica.messages``."""


def _form(cls: type[Message]) -> Form[Message]:
    if issubclass(cls, msgspec.Struct):
        return form_of_struct(cls)
    read: Any = arrays.reader(cls)
    well_formed: Any = replica.well_formed if cls in replica.MESSAGES else overlay_messages.well_formed

    def checked(data: bytes) -> Message:
        message: Message = read(data)
        if not well_formed(message):
            raise ValueError("keys or numbers that make no sense")
        return message

    return Form(arrays.writer(cls), checked)


CODEC: Final[Codec[Message]] = Codec(
    {
        FAMILY: job_messages.MESSAGES,
        "program": program_messages.MESSAGES,
        "work": work_messages.MESSAGES,
        "vitals": vitals_messages.MESSAGES,
        "overlay": overlay_messages.MESSAGES,
        "group": replica.MESSAGES,
    },
    _form,
)
encode: Final = CODEC.encode
decode: Final = CODEC.decode
pack: Final = CODEC.pack
unpack: Final = CODEC.unpack
