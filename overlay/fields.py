"""What values that travel are made of, and what strangers may put into them.

A value is written as an array of its fields, in their order and without their names. A field may be
appended if it has a default: who does not know it yet ignores it, and who misses it takes the default. The
bounds hold where bytes are decoded, not for values that are made in the process: numbers have 64 bits, texts
and lists are as long as any overlay could mean. Which values make sense is said by ``well_formed`` of the
messages.
"""

from __future__ import annotations

from typing import Annotated, TypeVar

from msgspec import Meta, Struct

T = TypeVar("T")


class Value(Struct, frozen=True, array_like=True, gc=False):
    """Base of all messages, and of what is in them. None can contain itself: looks for garbage need not see
    them."""


Number = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Text = Annotated[str, Meta(max_length=1_024)]
Several = Annotated[tuple[T, ...], Meta(max_length=4_096)]
"""Peers, topics, records or groups in one message."""
