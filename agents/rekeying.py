"""A running agent's listening socket gets the fleet's new key when a rotation begins.

All agents listen with one key pair (decision 0021). A rotation (``elf.security.certificates.Rotation``) says
long before which one is next and when it begins. Every agent changes by its own clock, and so do those who
connect to it: nobody has to be told at that moment, and nobody tries the old key after it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from agents.keyring import Keyring
from agents.logs import get_logger
from elf.errors import UserError
from elf.transport.zeromq import ZeroMqTransport

if TYPE_CHECKING:
    from elf.security.certificates import Signed

LOOK_SECS: Final = 60.0
"""Between two looks at the clock: it may be set."""


class Rekeying:
    """Of one transport; its node says what was signed."""

    def __init__(self, keyring: Keyring, transport: ZeroMqTransport, agent: str) -> None:
        self._keyring = keyring
        self._transport = transport
        self._security = keyring.security
        self._loop = asyncio.get_running_loop()
        self._log = get_logger().bind(agent=agent)
        self._next: asyncio.TimerHandle | None = None
        self._changing: asyncio.Task[None] | None = None
        self._look()

    def known(self, signed: Signed) -> None:
        """The catalog log says that this was signed."""
        newest = self._keyring.newest
        self._keyring.take(signed)
        if self._keyring.newest != newest and self._keyring.newest not in self._keyring.pairs():
            self._log.error(
                "this agent has not the fleet's next key: elf keys enrol gives it; then restart it"
            )
        self._look()

    def close(self) -> None:
        for one in (self._next, self._changing):
            if one is not None:
                one.cancel()

    def _look(self) -> None:
        if self._next is not None:
            self._next.cancel()
        try:
            self._keyring.renew()
        except UserError as error:
            self._log.error(f"nobody reaches this agent: {error}; elf keys enrol gives it, then restart it")
        if self._keyring.security is not self._security and self._changing is None:
            self._changing = self._loop.create_task(self._change())
        left = self._keyring.renews_in_secs
        self._next = self._loop.call_later(min(left, LOOK_SECS), self._look) if left is not None else None

    async def _change(self) -> None:
        try:
            while (security := self._keyring.security) is not None and security is not self._security:
                try:
                    await self._transport.rekey(security)
                except UserError as error:
                    self._log.error(f"the fleet has another key, and this agent {error}")
                else:
                    self._security = security
                    self._log.info("the fleet has another key", key=security.server.hex())
        finally:
            self._changing = None
