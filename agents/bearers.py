"""Who may read an agent's facts over HTTP where other machines can: who shows a person's token, over TLS.

Rules: whether an agent lives and is ready is told to anybody. What is wrong with a token is a 401, what its
owner may not do a 403, and nothing else of the agent is in the answer.
"""

from __future__ import annotations

from asyncio import constants
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send

from agents.connections import PROBES
from elf.errors import ElfError

Look = Callable[[str], str]
"""Why the owner of a token may not read; empty: it may. Raises ``ElfError`` where it is none."""
HANDSHAKE_SECS: Final = 10.0
_SCHEME: Final = b"bearer "


@dataclass(frozen=True)
class Tls:
    """The files of a certificate and its secret key (PEM)."""

    certificate: str
    key: str

    def options(self) -> dict[str, Any]:
        """For uvicorn. Who has connected has ten seconds for the handshake, and not asyncio's sixty."""
        constants.SSL_HANDSHAKE_TIMEOUT = HANDSHAKE_SECS
        return {"ssl_certfile": self.certificate, "ssl_keyfile": self.key}


class Bearers:
    """An application, for those alone whom ``look`` lets through."""

    def __init__(self, app: ASGIApp, look: Look) -> None:
        self._app = app
        self._look = look

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in PROBES:
            status, why = self._refused(scope)
            if status:
                await _answer(send, status, why)
                return
        await self._app(scope, receive, send)

    def _refused(self, scope: Scope) -> tuple[int, str]:
        """The status of a request that is refused, and why; 0: it is not."""
        shown = [value for name, value in scope["headers"] if name == b"authorization"]
        if len(shown) != 1 or not shown[0].lower().startswith(_SCHEME):
            return 401, "a token is wanted: Authorization: Bearer … (elf keys bearer makes one)"
        try:
            why = self._look(shown[0][len(_SCHEME) :].decode("latin-1").strip())
        except ElfError as error:
            return 401, str(error)
        return (403, why) if why else (0, "")


async def _answer(send: Send, status: int, why: str) -> None:
    body = msgspec.json.encode({"error": why})
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
