"""What the fields of messages, of entries of the catalog log and of stored records may hold.

msgspec checks them where bytes are decoded, so nothing behind a decoder asks again whether a name is a name.
Each type here is as wide as the protocol can use it, and no wider than what is done with it later bears: a
member's number is a place in a bitmap, a pane is multiplied by its length and goes into 64 bits, a uid is
taken apart at its marks and read as hexadecimal digits. Rules between fields are the ``__post_init__`` of
their struct: what it raises as ``ValueError`` refuses the bytes, like a field of a wrong type.

They bind bytes, not values that are made in the process. In a class of the core a field has the plain type
for whoever reads it (``Annotated``).
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Final, TypeVar

from msgspec import Meta, Struct, structs

T = TypeVar("T")

MEMBERS_MAX: Final = 1 << 20
"""Members that a stream may ever have had. A contribution set has a bit for each."""
TREES_MAX: Final = 64
"""Key ranges of a query, each with a tree."""
_FAR: Final = 1 << 62
"""Beyond each pane and each moment (``elf.job.spec.END_OF_TIME``); sums of two still fit in 64 bits."""
_SERIAL_MAX: Final = (1 << 53) - 1
_GENERATION: Final = "[0-9]{1,15}"
_JOB: Final = rf"[0-9a-f]{{32}}\.{_GENERATION}"
_GROUP: Final = rf"{_JOB}(#[0-9]{{1,4}})?"
_AGENT: Final = r"[\w.:-]{1,64}"
_PLAIN: Final = r"[^\x00-\x1f\x7f]"

# -- numbers -------------------------------------------------------------------------------------------------

Number = Annotated[int, Meta(ge=0, lt=MEMBERS_MAX)]
"""Of a member of a stream."""
Pane = Annotated[int, Meta(ge=-_FAR, le=_FAR)]
Micros = Annotated[int, Meta(ge=-_FAR, le=_FAR)]
"""A moment of event time."""
Length = Annotated[int, Meta(ge=0, le=1 << 57)]
"""A length of time in µs: a little more than the longest that a query may name."""
Span = Annotated[int, Meta(gt=0, le=1 << 57)]
"""The same, of something that goes by."""
Trees = Annotated[int, Meta(ge=1, le=TREES_MAX)]
Millis = Annotated[int, Meta(ge=0, le=_SERIAL_MAX)]
"""What a clock shows, or a length of time."""
Serial = Annotated[int, Meta(ge=0, le=_SERIAL_MAX)]
"""What is counted up: entries, commits, revisions, versions, generations, terms, starts of an agent."""
Generation = Annotated[int, Meta(ge=0, lt=10**15)]
"""Of a job: the end of its uid."""
Count = Annotated[int, Meta(ge=0, le=_FAR)]
"""Of rows, bytes, µs of CPU."""
Mean = Annotated[float, Meta(ge=0, le=_FAR)]
"""The same, on the mean."""
Ticket = Annotated[int, Meta(ge=-_FAR, le=_FAR)]
"""Of a question: whoever asks knows what it means."""
Place = Annotated[int, Meta(ge=0, le=4_096)]
"""Of a key range, and how many there are."""

# -- names ---------------------------------------------------------------------------------------------------

FlowUid = Annotated[str, Meta(pattern=r"\A[0-9a-f]{24}\Z")]
JobUid = Annotated[str, Meta(pattern=rf"\A{_JOB}\Z")]
GroupUid = Annotated[str, Meta(pattern=rf"\A{_GROUP}\Z")]
"""Of a job, or of the job group of one of its key ranges (``elf.job.spec.group_uid``)."""
Tombstone = Annotated[str, Meta(pattern=rf"\A{_GROUP}(!{_AGENT}){{0,2}}\Z")]
"""Of a job, or of a word about who bootstraps a key range (``elf.job.catalog.bootstrap``)."""
AgentId = Annotated[str, Meta(pattern=rf"\A{_AGENT}\Z")]
Founder = Annotated[str, Meta(pattern=rf"\A({_AGENT})?\Z")]
"""An agent's id, or nobody."""
Address = Annotated[str, Meta(max_length=255, pattern=r"\A[^\x00-\x20\x7f]*\Z")]
"""Where an answer goes; empty: nowhere."""
Name = Annotated[str, Meta(max_length=255, pattern=rf"\A{_PLAIN}*\Z")]
"""Of a stream, a job, an agent, a person."""
Proper = Annotated[str, Meta(min_length=1, max_length=255, pattern=rf"\A{_PLAIN}*\Z")]
"""The same, where there must be one."""
Label = Annotated[str, Meta(max_length=4_096)]
"""Of a column or a file: whatever a log or a file system calls it."""
Labels = Annotated[tuple[tuple[Name, Label], ...], Meta(max_length=64)]
"""Those of an agent, each with its value."""
Locality = Annotated[str, Meta(max_length=255, pattern=rf"\A{_PLAIN}*\Z")]
"""Where an agent stands, as region/rack; empty: it does not say."""
Word = Annotated[str, Meta(max_length=32)]
"""One of a few."""
Text = Annotated[str, Meta(max_length=1 << 18)]
"""For people."""
Statement = Annotated[str, Meta(max_length=1 << 20)]
"""A query, or what is rendered of it."""
Code = Annotated[str, Meta(max_length=1 << 18)]
"""The text of a file with a user's code."""

# -- bytes ---------------------------------------------------------------------------------------------------

Key = Annotated[bytes, Meta(min_length=16, max_length=16)]
"""A place on the ring."""
Members = Annotated[bytes, Meta(max_length=MEMBERS_MAX // 8)]
"""A contribution set (``elf.job.contributions``)."""
Value = Annotated[bytes, Meta(max_length=8 << 20)]
"""What jobs in Python say to each other."""


def span(start: int, end: int) -> None:
    """Raises ``ValueError`` unless panes ``[start, end)`` are some."""
    if start >= end:
        raise ValueError(f"panes {start}..{end} are none")


def replace(value: T, /, **changes: Any) -> T:
    """The same value with other fields: of a struct as of a dataclass (``copy.replace`` of Python 3.13)."""
    if isinstance(value, Struct):
        return structs.replace(value, **changes)
    given: Any = value
    found: T = dataclasses.replace(given, **changes)
    return found
