"""A request a window, to a server of whoever asked for it: POST with one JSON object.

The headers are those of Standard Webhooks (https://www.standardwebhooks.com): ``webhook-id`` (also as
``Idempotency-Key``) is the same whenever the same comes again, ``webhook-timestamp`` says when it was sent,
and with a secret ``webhook-signature`` is ``v1,`` and the base64 of the HMAC-SHA256 of ``id.timestamp.body``.
What is answered with 2xx is there; all else comes again. Redirects are not followed: the host allows this
target and no other one.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from threading import Timer
from typing import Final
from urllib.parse import SplitResult, urlsplit

from agents.outputs.parcels import Parcel
from elf import __version__
from elf.errors import UserError
from elf.job.output import OutputSpec

TIMEOUT_SECS: Final = 10.0
"""For a server to say anything at all."""
POST_SECS: Final = 30.0
"""For the whole of a request and its answer, however slowly it goes on."""
SAID_BYTES: Final = 64 << 10
"""Of an answer that are read."""
SAID_CHARS: Final = 500
"""Of one that people get to see."""
SECRET_PREFIX: Final = "whsec_"
"""What stands before a secret that is base64, as others make them."""


class _Plain(HTTPConnection):
    """A connection that any thread may end, whatever it is at."""

    over = False
    _copy: socket.socket | None = None
    """Of the socket below TLS, also while that is being agreed on."""

    def connect(self) -> None:
        super().connect()
        self._copy = self.sock.dup()
        if self.over:
            self.end()
            raise ConnectionAbortedError("it was closed")

    def end(self) -> None:
        self.over = True
        if (copy := self._copy) is not None:
            with suppress(OSError):
                copy.shutdown(socket.SHUT_RDWR)


class _Tls(HTTPSConnection, _Plain):
    """It calls ``_Plain.connect`` before TLS begins."""


class Poster:
    """Requests to one server, over a connection that stays open. One that takes too long ends it for good."""

    def __init__(self, url: SplitResult) -> None:
        kind = _Tls if url.scheme == "https" else _Plain
        self._connection = kind(url.hostname or "", url.port, timeout=TIMEOUT_SECS)
        self._path = (url.path or "/") + (f"?{url.query}" if url.query else "")

    def post(self, body: bytes, headers: Mapping[str, str]) -> bytes:
        """The beginning of the answer. Raises ``UserError`` or ``OSError`` unless it is 2xx."""
        began, end = time.monotonic(), Timer(POST_SECS, self.close)
        end.daemon = True
        end.start()
        try:
            return self._post(body, headers)
        except (UserError, OSError):
            if time.monotonic() - began >= POST_SECS:
                raise UserError(f"the server has not answered in {POST_SECS:g} s") from None
            raise
        finally:
            end.cancel()

    def _post(self, body: bytes, headers: Mapping[str, str]) -> bytes:
        said = {"Content-Type": "application/json", "User-Agent": f"elf/{__version__}", **headers}
        was_open = self._connection.sock is not None
        try:
            status, text = self._tried(body, said)
        except (HTTPException, ConnectionError) as error:
            self._connection.close()
            if was_open and not self._connection.over:  # it had closed what was open since the last request
                return self._post(body, headers)
            raise UserError(f"the server breaks off: {error!r}") from None
        if not 200 <= status < 300:
            raise UserError(f"the server answers {status}: {text.decode(errors='replace')[:SAID_CHARS]}")
        return text

    def _tried(self, body: bytes, headers: Mapping[str, str]) -> tuple[int, bytes]:
        if self._connection.over:
            raise UserError("it was closed")
        try:
            self._connection.request("POST", self._path, body, headers)
            answer = self._connection.getresponse()
            text = answer.read(SAID_BYTES)
            if answer.read(1):
                self._connection.close()  # a long answer is not read to its end
        except OSError:
            self._connection.close()
            raise
        return answer.status, text or answer.reason.encode()

    def close(self) -> None:
        """From any thread: a request that is under way fails."""
        self._connection.end()


class Webhook:
    """Of one output."""

    def __init__(self, output: OutputSpec, secret: str) -> None:
        self._poster = Poster(urlsplit(output.target))
        self._key = _key(secret)

    def put(self, parcels: Sequence[Parcel]) -> None:
        for parcel in parcels:
            self._poster.post(parcel.json, signed(self._key, parcel.key, int(time.time()), parcel.json))

    def close(self) -> None:
        self._poster.close()


def _key(secret: str) -> bytes:
    if not secret.startswith(SECRET_PREFIX):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except ValueError:
        raise UserError(f"the secret begins with {SECRET_PREFIX}, and is no base64 behind it") from None


def signed(secret: bytes, key: str, at: int, body: bytes) -> dict[str, str]:
    """The headers of a request. Without a secret it is not signed."""
    headers = {"Idempotency-Key": key, "webhook-id": key, "webhook-timestamp": str(at)}
    if secret:
        mac = hmac.new(secret, f"{key}.{at}.".encode() + body, hashlib.sha256).digest()
        headers["webhook-signature"] = f"v1,{base64.b64encode(mac).decode()}"
    return headers
