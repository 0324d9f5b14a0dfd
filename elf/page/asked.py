"""What the page asks with a body, and what several statements say in one stream.

A browser opens six connections to a server at most, so all that a page watches comes over one. A statement
that fails ends alone. A reader that falls behind holds the statements back: then their client says that it is
too slow.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Annotated, Final

import msgspec

from elf.client.client import Client
from elf.client.windows import Window
from elf.errors import ElfError, UserError
from elf.page.answers import result_of, window_of
from elf.page.events import Event

STATEMENTS_MAX: Final = 32
"""That one stream watches."""
WAITING_MAX: Final = 32
"""Events that wait for their reader."""

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=65_536)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]


class Statement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``POST /api/v1/sql``: one that ends."""

    sql: Text


class Watch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``POST /api/v1/watch``: statements by names that their events have."""

    statements: Annotated[dict[Name, Text], msgspec.Meta(min_length=1, max_length=STATEMENTS_MAX)]


class Filter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Only rows for which a column of a panel has this value (``elf.page.panels``)."""

    panel: Name
    column: Name
    value: str | int | float | bool | None


class Composed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``POST /api/v1/panels``: the queries of panels: every so many seconds, over all since they are watched,
    or in windows of ``window_secs``."""

    stream: Name = "access"
    window_secs: Annotated[int, msgspec.Meta(ge=1, le=86_400)] | None = None
    every_secs: Annotated[int, msgspec.Meta(ge=1, le=3_600)] = 2
    filters: Annotated[tuple[Filter, ...], msgspec.Meta(max_length=16)] = ()


async def watched(client: Client, statements: Mapping[str, str]) -> AsyncGenerator[Event]:
    """Events with the name of their statement as ``id``: ``window``, ``said`` (why none comes), ``result``
    (of a statement that ends), ``error``, ``end``."""
    queue: asyncio.Queue[Event | BaseException | None] = asyncio.Queue(WAITING_MAX)

    async def watch(name: str, text: str) -> None:
        try:
            async for answer in client.execute(text):
                if isinstance(answer, Window):
                    await queue.put(("window", {"id": name, **window_of(answer)}))
                elif answer.waiting:
                    await queue.put(("said", {"id": name, "text": answer.text}))
                else:
                    await queue.put(("result", {"id": name, **result_of(answer)}))
            await queue.put(("end", {"id": name}))
        except ElfError as error:
            again = not isinstance(error, UserError)  # an agent that is lost comes back
            await queue.put(("error", {"id": name, "error": str(error), "again": again}))

    async def watch_all() -> None:
        told = await asyncio.gather(*(watch(*one) for one in statements.items()), return_exceptions=True)
        await queue.put(next((one for one in told if one is not None), None))

    watching = asyncio.ensure_future(watch_all())
    try:
        while (event := await queue.get()) is not None:
            if isinstance(event, BaseException):
                raise event
            yield event
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
