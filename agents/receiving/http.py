"""Lines over HTTP: ``POST /`` with a line a line (NDJSON, or any format of lines), plain or with gzip.

202 says that they are durable, and how many; 503, with ``Retry-After``, that there is no room, and nothing of
the request was taken. Whoever repeats a request with the same ``Idempotency-Key`` has it taken once. A
request has ``BODY_SECS`` to come whole, and all that are on their way may have ``HELD_BYTES_MAX`` together.
What gzip makes of a body is bounded like a body. No web page can post here: what has an ``Origin`` is
refused, and what has no token too, where one is wanted.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import ssl
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from agents.connections import Bounds, Door, names_of
from agents.receiving.intake import Intake
from agents.receiving.unpacking import HERE_BYTES_MAX, TooLarge, gunzipped
from agents.serving import Served

BODY_SECS: Final = 60.0
REST_SECS: Final = 2.0
HELD_BYTES_MAX: Final = 64 << 20
UNPACKED_AT_ONCE: Final = 2
"""On threads."""
BUSY_SECS: Final = "1"
"""After which a sender may come again."""
_HERE_BYTES: Final = 64 << 10
"""What is larger is unpacked on a thread."""


class Refused(Exception):
    """The answer to a request that is not taken."""

    def __init__(self, status: int, reason: str, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.reason = reason


Take = Callable[[Request, bytes, str], Awaitable[Response]]
"""Answers a request that may be made, with its body, unpacked, and where it is from. Raises ``Refused``."""


class HttpReceiver:
    """``paths``: where requests are taken, and by what. ``token``: what they must show (empty: nothing)."""

    def __init__(
        self,
        listen: str,
        intake: Intake,
        paths: dict[str, Take],
        *,
        token: str,
        names: frozenset[str],
        bounds: Bounds,
        body_bytes_max: int,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._intake = intake
        self._paths = paths
        self._token = token
        self._most = body_bytes_max
        self._held = 0
        self._unpacking = asyncio.Semaphore(UNPACKED_AT_ONCE)
        door = Door(self._answer, names | names_of(listen), bounds, intake.refuse, tls)
        self._served = Served(listen, door, f"streams.{intake.stream}.receive.listen")

    @property
    def address(self) -> str:
        return self._served.address

    async def serve(self) -> None:
        """Until it is cancelled. Raises ``UserError`` where it cannot listen."""
        await self._served.start()
        self._intake.listens(self.address)
        try:
            await asyncio.Event().wait()
        finally:
            await self._served.stop()

    # -- requests --------------------------------------------------------------------------------------------

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        ended = False

        async def heard() -> Message:
            nonlocal ended
            message = await receive()
            ended = not message.get("more_body", False)
            return message

        request = Request(scope, heard)
        address = scope["client"][0] if scope["client"] else ""
        try:
            response = await self._response(request, address)
        except Refused as refused:
            self._intake.refuse(refused.reason, address, str(refused))
            if not ended and "expect" not in request.headers:
                await self._pass_over(heard)
            response = answer({"error": str(refused)}, refused.status)
            response.headers["connection"] = "close"
        except ClientDisconnect:
            return
        await response(scope, receive, send)

    async def _pass_over(self, receive: Receive) -> None:
        """The rest of a request, for a moment: who still writes does not read why it is refused."""
        left = 4 * self._most
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REST_SECS):
                while left > 0 and (piece := await receive()).get("more_body", False):
                    left -= len(piece.get("body", b""))

    async def _response(self, request: Request, address: str) -> Response:
        take = self._paths.get(request.url.path)
        if take is None:
            raise Refused(404, "path", f"lines are taken at {', '.join(self._paths)}")
        if request.method != "POST":
            raise Refused(405, "method", "lines are sent with POST")
        self._admit(request)
        held = 0
        try:
            body = bytearray()
            async with asyncio.timeout(BODY_SECS):
                async for piece in request.stream():
                    self._held += len(piece)
                    held += len(piece)
                    if held > self._most:
                        raise _too_large(self._most)
                    if self._held > HELD_BYTES_MAX:
                        raise Refused(503, "busy", "too much is on its way; try again in a moment")
                    body += piece
            return await take(request, await self._unpacked(request, bytes(body)), address)
        except TimeoutError:
            raise Refused(408, "slow", f"a request has {BODY_SECS:.0f} s to come whole") from None
        except TooLarge as error:
            raise Refused(413, "large", str(error)) from None
        finally:
            self._held -= held

    def _admit(self, request: Request) -> None:
        """What is known before the body. Raises ``Refused``."""
        headers = request.headers
        if self._token:
            shown = headers.get("authorization", "")
            if not hmac.compare_digest(shown.encode(), f"Bearer {self._token}".encode()):
                raise Refused(401, "token", "a token is wanted: Authorization: Bearer …")
        elif "origin" in headers:
            raise Refused(403, "origin", "lines are not taken of web pages")
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > self._most:
            raise _too_large(self._most)
        if headers.get("content-encoding", "identity").lower() not in ("identity", "gzip"):
            raise Refused(415, "encoding", "a body is plain, or has Content-Encoding: gzip")

    async def _unpacked(self, request: Request, body: bytes) -> bytes:
        if request.headers.get("content-encoding", "identity").lower() != "gzip":
            return body
        try:
            if len(body) < _HERE_BYTES:
                with contextlib.suppress(TooLarge):
                    return gunzipped(body, min(self._most, HERE_BYTES_MAX))
            async with self._unpacking:
                return await asyncio.to_thread(gunzipped, body, self._most)
        except TooLarge:
            raise _too_large(self._most) from None
        except ValueError as error:
            raise Refused(400, "encoding", f"the body cannot be unpacked: {error}") from None


class Lines:
    """Takes the body of a request as lines."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake

    async def take(self, request: Request, body: bytes, address: str) -> Response:
        """See ``Take``."""
        lines = body if body.endswith(b"\n") or not body else body + b"\n"
        key = request.headers.get("idempotency-key", "").encode()
        if lines and not await self._intake.deliver(address, lines, key):
            return no_room()
        return answer({"lines": lines.count(b"\n")}, 202)


def answer(fact: dict[str, object], status: int) -> Response:
    return Response(msgspec.json.encode(fact), status, media_type="application/json")


def no_room() -> Response:
    """Nothing of a request was taken."""
    response = answer({"error": "there is no room; send it again"}, 503)
    response.headers["retry-after"] = BUSY_SECS
    return response


def _too_large(most: int) -> Refused:
    return Refused(413, "large", f"a request has {most} bytes at most (receive.body_bytes_max), unpacked too")
