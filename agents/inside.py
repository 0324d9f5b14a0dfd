"""A client inside the process of an agent: what ``Client`` asks through there (``elf.client.asking``).

No connection says who it is, so whoever opens one says it: as ``who`` it is heard, and nobody else.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncGenerator
from typing import Final

from msgspec.structs import replace

from agents.driver import Driver
from elf.client.asking import ANSWER_SECS, KEEP_ALIVE_SECS, answer_of
from elf.errors import ElfError, UserError
from elf.security.principals import Principal
from elf.wire.clients import Call, Cancel, Execute, Failed, KeepAlive, Published, Reply

STOPPED_SECS: Final = 9.0
"""A reader that took nothing for so long may have been forgotten by the agent."""
WAITING_MAX: Final = 1024
"""Answers that wait for their reader."""

_numbers: Final = itertools.count(1)


class Inside:
    """``who``: see ``Clients.heard``; None: anybody, who may do anything. ``creator``: under which name it
    asks."""

    keys = None

    def __init__(self, driver: Driver, who: Principal | None, creator: str) -> None:
        self._driver = driver
        self._who = who
        self._creator = creator
        self.address = driver.node.me.address

    async def open(self) -> None:
        """There is nothing to open."""

    async def close(self) -> None:
        """Nor to close: each request ends by itself."""

    async def ask(self, verb: str, argument: str, limit_secs: float) -> Reply:
        """See ``elf.client.asking``."""
        call = Call(request=1, verb=verb, argument=argument, creator=self._creator)
        return await answer_of(self._replies(call, limit_secs), f"the agent ended {verb} without an answer")

    def anywhere(self, message: Execute) -> AsyncGenerator[Reply | Published]:
        """See ``elf.client.asking``."""
        return self._replies(replace(message, request=1, creator=self._creator), ANSWER_SECS)

    async def _replies(self, asked: Execute | Call, limit_secs: float) -> AsyncGenerator[Reply | Published]:
        """``limit_secs`` is for the first one."""
        client, loop = f"client:inside-{next(_numbers)}", asyncio.get_running_loop()
        inbox, is_open = self._driver.open_client(client), True
        try:
            self._driver.from_client(client, asked, self._who)
            began = heard = loop.time()
            answered = False
            while True:
                arrived = None
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(max(heard + KEEP_ALIVE_SECS - loop.time(), 0)):
                        arrived = await inbox.get()
                if loop.time() - heard > STOPPED_SECS or inbox.qsize() > WAITING_MAX:
                    raise ElfError("the reader is too slow; ask again")
                if loop.time() - heard >= KEEP_ALIVE_SECS:
                    heard = loop.time()
                    self._driver.from_client(client, KeepAlive(request=1), self._who)
                if arrived is None:
                    if not answered and loop.time() - began > limit_secs:
                        raise ElfError(f"no answer from this agent within {limit_secs:g} s")
                    continue
                answered = True
                if isinstance(arrived, Failed):
                    is_open = False
                    raise UserError(arrived.text)
                if isinstance(arrived, Reply | Published):
                    is_open = not (isinstance(arrived, Reply) and arrived.done)
                    yield arrived
                    if not is_open:
                        return
        finally:
            if is_open:
                self._driver.from_client(client, Cancel(request=1), self._who)
            self._driver.close_client(client)
