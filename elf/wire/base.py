"""What every message is, and what each question and its answer begin with."""

from __future__ import annotations

from typing import Final

import msgspec

from elf.fields import Address, Text, Ticket

FAMILY: Final = "job"
"""Begins the tags of these messages on the wire (``elf.wire.frames``); those of other rooms have others."""


class Message(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Base of all messages; the codec says which one it is."""


class Request(Message, frozen=True, kw_only=True):
    """Base of what wants exactly one ``Answer``; ``id`` is the asker's, ``origin`` its address."""

    id: Ticket
    origin: Address


class Answer(Message, frozen=True, kw_only=True):
    """The answer to a request; ``error`` is empty when it went well. ``body`` is msgpack, as the request
    says.
    """

    id: Ticket
    error: Text = ""
    body: bytes = b""
    payload: bytes = b""
