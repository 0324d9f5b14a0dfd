"""What a client asks through: a connection to an agent, or to the one in whose process it is."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from elf.errors import ElfError
from elf.wire.clients import Execute, Published, Reply

if TYPE_CHECKING:
    from elf.security.folder import Keys

ANSWER_SECS: Final = 60.0
"""How long a statement or call may stay without any answer."""

KEEP_ALIVE_SECS: Final = 2.0
"""An open request is kept alive this often: an agent ends what it hears nothing of."""


class Asking(Protocol):
    """Requests out, replies and results back. Every wait has a limit; whatever fails is one ``ElfError`` with
    one clear text, what the agent refuses a ``UserError``."""

    address: str
    """Of the agent that answers."""

    @property
    def keys(self) -> Keys | None:
        """Of a fleet, with which it came; None: it came without."""

    async def open(self) -> None:
        """Reach an agent. Idempotent."""

    async def close(self) -> None:
        """Cancel what is open and let go of the agent. Idempotent."""

    async def ask(self, verb: str, argument: str, limit_secs: float) -> Reply:
        """The answer to a call (``elf.wire.clients.Call``)."""

    def anywhere(self, message: Execute) -> AsyncGenerator[Reply | Published]:
        """The replies to a statement, and its results, each once."""


async def answer_of(replies: AsyncGenerator[Reply | Published], ended: str) -> Reply:
    """The reply that is the last one; ``ended``: what is said where there is none."""
    async with contextlib.aclosing(replies):
        async for reply in replies:
            if isinstance(reply, Reply) and reply.done:
                return reply
    raise ElfError(ended)


def object_of(reply: Reply) -> dict[str, object]:
    """The JSON object of a reply; its text under ``text`` when there is none."""
    if not reply.body:
        return {"text": reply.text} if reply.text else {}
    try:
        return msgspec.json.decode(reply.body, type=dict[str, object])
    except msgspec.MsgspecError as error:
        raise ElfError(f"the agent's answer is not a JSON object: {error}") from None
