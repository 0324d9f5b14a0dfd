"""Who may read an agent's facts over HTTP where other machines can: who shows a person's token, over TLS.

Rules: whether an agent lives and is ready is told to anybody. What is wrong with a token is a 401, what its
owner may not do a 403, and nothing else of the agent is in the answer. A stream ends with its token.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agents.connections import PROBES, error
from elf.errors import ElfError

Look = Callable[[str], str]
"""Why the owner of a token may not read; empty: it may. Raises ``ElfError`` where it is none."""
_SCHEME: Final = b"bearer "


@dataclass(frozen=True)
class Tls:
    """The files of a certificate and its secret key (PEM)."""

    certificate: str
    key: str

    def context(self) -> ssl.SSLContext:
        """For the server's side."""
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.load_cert_chain(self.certificate, self.key)
        return made


class Bearers:
    """An application, for those alone whom ``look`` lets through."""

    def __init__(self, app: ASGIApp, look: Look) -> None:
        self._app = app
        self._look = look

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in PROBES:
            status, why = self._refused(scope)
            if status:
                headers = {"www-authenticate": "Bearer"} if status == 401 else {}
                await error(why, status, headers)(scope, receive, send)
                return
            send = self._while_it_holds(scope, send)
        await self._app(scope, receive, send)

    def _while_it_holds(self, scope: Scope, send: Send) -> Send:
        """Ends an answer that goes on when its token holds no more, at the next piece of it; whoever makes it
        hears that nobody is there."""
        ended = False

        async def checked(message: Message) -> None:
            nonlocal ended
            if not ended:
                ended = message["type"] == "http.response.body" and self._refused(scope)[0] != 0
                await send({"type": "http.response.body"} if ended else message)

        return checked

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
