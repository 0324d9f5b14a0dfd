"""What the page asks with a body, and what several statements say in one stream.

A browser opens six connections to a server at most, so all that a page watches comes over one. A statement
that fails ends alone. A reader that falls behind holds the statements back: then their client says that it is
too slow.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping
from typing import Annotated, Final

import msgspec

from elf.client.client import Client
from elf.client.previews import Costs, Previewed, beside, preview_of
from elf.client.results import Result
from elf.client.windows import Window
from elf.errors import ElfError, UserError
from elf.page.answers import costs_of, pair_of, result_of, window_of
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
    (of a statement that ends), ``pair`` and ``costs`` (of ALTER JOB … PREVIEW), ``error``, ``end``."""
    queue: asyncio.Queue[Event | BaseException | None] = asyncio.Queue(WAITING_MAX)

    async def watch(name: str, text: str) -> None:
        try:
            async with contextlib.aclosing(client.execute(text)) as answers:
                async for answer in answers:
                    if isinstance(answer, Result) and (preview := preview_of(answer)) is not None:
                        async with contextlib.aclosing(beside(client, preview, answers)) as told:
                            async for one in told:
                                await queue.put(_named(name, one))
                        break
                    await queue.put(_named(name, answer))
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


def _named(name: str, one: Window | Result | Previewed | Costs) -> Event:
    """What a statement says, as an event."""
    match one:
        case Window():
            return "window", {"id": name, **window_of(one)}
        case Previewed():
            return "pair", {"id": name, **pair_of(one)}
        case Costs():
            return "costs", {"id": name, **costs_of(one)}
        case Result(waiting=True):
            return "said", {"id": name, "text": one.text}
        case Result():
            return "result", {"id": name, **result_of(one)}
