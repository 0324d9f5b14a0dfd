"""The messages that agents send, and what makes frames of them (``elf.wire.frames``).

They are those in the ``MESSAGES`` of ``elf.job``, ``overlay.messages`` and ``overlay.raft``, structs that
msgspec writes as arrays of their fields. An agent must never decode into anything else. What is read is
bounded by the fields' types (``elf.fields``, ``overlay.fields``); which values of the overlay make sense is
the overlay's to say (``well_formed``).
"""

from __future__ import annotations

from typing import Any, Final

from elf.job import messages as job_messages
from elf.job import probes as probe_messages
from elf.job import stamps as stamp_messages
from elf.job import work as work_messages
from elf.job.program import messages as program_messages
from elf.wire import base, clients
from elf.wire.base import FAMILY
from elf.wire.frames import Codec, Form, form_of_struct
from overlay import messages as overlay_messages
from overlay import raft

Message = base.Message | overlay_messages.Message | raft.Message
"""A message of ours."""


def _form(cls: type[Message]) -> Form[Message]:
    form = form_of_struct(cls)
    well_formed: Any
    if cls in overlay_messages.MESSAGES:
        well_formed = overlay_messages.well_formed
    elif cls in raft.MESSAGES:
        well_formed = raft.well_formed
    else:
        return form

    def checked(data: bytes) -> Message:
        message = form.read(data)
        if not well_formed(message):
            raise ValueError("keys or numbers that make no sense")
        return message

    return Form(form.write, checked)


CODEC: Final[Codec[Message]] = Codec(
    {
        FAMILY: job_messages.MESSAGES,
        "program": program_messages.MESSAGES,
        "work": (*work_messages.MESSAGES, *stamp_messages.MESSAGES),
        "probes": probe_messages.MESSAGES,
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
