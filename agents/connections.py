"""Who may hold a connection of an agent's HTTP server, for how long, and what is not answered on it.

Whoever reaches the port may open connections, and nobody may keep others from ``PROBES``. Rules:

- A request has ``WAIT_SECS`` to come whole, from the beginning of its connection or from the answer before
  it; an answer has as long to be taken. Then the connection is cut. A TLS handshake has as long before that,
  and is a connection like any other: which address it is from is known before it begins.
- The connections of all, and those of one address, are bounded. One more takes the place of the one that has
  kept us waiting for longest: of its own address if that has too many, else of the address that has most.
- So many are answered at once that a quarter of either bound is left; what is left is for ``PROBES``.
- So many answers a second an address has, and all have twice as many: each is made on the loop that hears the
  fleet.
- A request has no body (but where lines are received, ``agents.receiving``, and where the page asks,
  ``elf.page``), and a ``Host`` that is the agent's: a browser can be led here under another name (DNS
  rebinding), but says which. Who sends none is no browser.

What is refused has one line that says why, and is counted by its reason.
"""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from elf.addresses import is_wildcard, split_address

PROBES: Final = ("/health", "/ready")
WAIT_SECS: Final = 10.0
MISDIRECTED: Final = "the Host of this request is no name of this agent's; http.hosts adds names"
BODY: Final = "a request has no body here"
BUSY: Final = "too many others are answered; try again in a moment"
OFTEN: Final = "too many requests a second; try again in a moment"
CLOSE: Final = {"connection": "close"}


@dataclass(frozen=True)
class Bounds:
    """``connections``: of all together; ``an_address``: of one, which has so many ``answers`` a second;
    ``wait_secs``: see the module."""

    connections: int = 200
    an_address: int = 64
    wait_secs: float = WAIT_SECS
    answers: int = 50
    has_body: Callable[[str], bool] = lambda path: False
    """Whether a request to a path may have one; whoever answers it bounds that, and how long it may take."""


def names_of(*addresses: str, also: Iterable[str] = ()) -> frozenset[str]:
    """The hosts of these addresses, and other names, as ``Host`` has them."""
    hosts = [split_address(address)[0] for address in addresses]
    return frozenset(map(_bare, [*(host for host in hosts if not is_wildcard(host)), *also]))


def _bare(host: str) -> str:
    return host.strip("[]").rstrip(".").lower()


class Door:
    """Of one server: the protocol of its connections (``connection``), and what stands before its
    application."""

    def __init__(
        self,
        app: ASGIApp,
        names: frozenset[str],
        bounds: Bounds,
        refused: Callable[[str], None],
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """``names``: hosts that the agent answers to, beside those that are this machine's own (loopback, and
        the address at which a connection arrives). ``refused`` is told the reason of each refusal."""
        self._app = app
        self._tls = tls
        self._names = names
        self._bounds = bounds
        self.refused = refused
        self.stir: Callable[[], None] = lambda: None
        """Is called when somebody comes."""
        self._connections: dict[_Connection | _Shaking, None] = {}
        self._answered: Counter[str] = Counter()
        self._asked: Counter[str] = Counter()
        """By address, in this second."""

    # -- connections -----------------------------------------------------------------------------------------

    def connection(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> _Connection | _Shaking:
        """A new one, as uvicorn asks for it."""
        self.stir()
        made = _Connection(self, config, server_state, app_state, _loop)
        return made if self._tls is None else _Shaking(self, self._tls, self._bounds.wait_secs, made)

    def enter(self, new: _Connection | _Shaking) -> None:
        """It is there: if it is one too many, another goes, or it does."""
        self._connections[new] = None
        self.stir()
        has = Counter(one.address for one in self._connections)
        own = has[new.address] > self._bounds.an_address
        if not own and len(self._connections) <= self._bounds.connections:
            return
        waits = (
            one
            for one in self._connections
            if one is not new and one.keeps_waiting and (not own or one.address == new.address)
        )
        self.cut(min(waits, key=lambda one: (-has[one.address], one.since), default=new), "full")

    def cut(self, one: _Connection | _Shaking, reason: str) -> None:
        """End it, whatever is on its way."""
        self.refused(reason)
        self.leave(one)
        one.transport.abort()

    def leave(self, one: _Connection | _Shaking) -> bool:
        """It is gone; whether it was there."""
        return self._connections.pop(one, self) is None

    def close(self) -> None:
        """End all handshakes of TLS."""
        for one in [one for one in self._connections if isinstance(one, _Shaking)]:
            self.leave(one)
            one.transport.abort()

    @property
    def quiet(self) -> bool:
        """Whether there is nothing to ``sweep``."""
        return not self._connections and not self._asked

    def sweep(self, now: float) -> None:
        """Cut those that have kept us waiting for too long; once a second."""
        self._asked.clear()
        late = now - self._bounds.wait_secs
        for one in [one for one in self._connections if one.keeps_waiting and one.since < late]:
            self.cut(one, "slow")

    # -- requests --------------------------------------------------------------------------------------------

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or say why not."""
        address = scope["client"][0] if scope["client"] else ""
        refusal = self._refusal(scope, address)
        if refusal is not None:
            status, why, text = refusal
            self.refused(why)
            await error(text, status, CLOSE)(scope, receive, send)
            return
        counted = scope["path"] not in PROBES
        self._answered[address] += counted
        try:
            await self._app(scope, receive, send)
        finally:
            self._answered[address] -= counted
            if not self._answered[address]:
                del self._answered[address]

    def _refusal(self, scope: Scope, address: str) -> tuple[int, str, str] | None:
        headers = dict[bytes, bytes](scope["headers"])
        if not self._is_ours(headers.get(b"host", b"").decode("latin-1"), scope):
            return 421, "host", MISDIRECTED
        has_body = headers.get(b"content-length", b"0").strip(b"0") or b"transfer-encoding" in headers
        if has_body and not self._bounds.has_body(scope["path"]):
            return 413, "body", BODY
        if scope["path"] in PROBES:
            return None
        self._asked[address] += 1
        most = self._bounds.answers
        if self._asked[address] > most or self._asked.total() > 2 * most:
            return 429, "often", OFTEN
        full = self._answered.total() >= _most(self._bounds.connections)
        full |= self._answered[address] >= _most(self._bounds.an_address)
        return (503, "busy", BUSY) if full else None

    def _is_ours(self, host: str, scope: Scope) -> bool:
        if not host:
            return True
        name = _bare(host if host.endswith("]") else host.rpartition(":")[0] or host)
        arrived = scope["server"][0] if scope["server"] else ""
        if name == "localhost" or name in self._names or name == arrived:
            return True
        try:
            return ipaddress.ip_address(name).is_loopback
        except ValueError:
            return False


def error(text: str, status: int, headers: Mapping[str, str]) -> Response:
    """The answer to a request that is refused."""
    return Response(msgspec.json.encode({"error": text}), status, headers, "application/json")


def _most(bound: int) -> int:
    """How many are answered at once where there may be so many connections."""
    return max(bound * 3 // 4, 1)


class _Connection(H11Protocol):
    """Uvicorn's, which knows since when it waits for its other side."""

    def __init__(
        self,
        door: Door,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        loop: asyncio.AbstractEventLoop | None,
    ) -> None:
        super().__init__(config, server_state, app_state, loop)
        self._door = door
        self.address = ""
        self.since = 0.0

    @property
    def keeps_waiting(self) -> bool:
        """For a request, or until what was sent is taken."""
        return self.cycle is None or self.cycle.response_complete or self.flow.write_paused

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        self.since = self.loop.time()
        self._door.enter(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._door.leave(self)
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        self.since = self.loop.time()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        self._door.refused("http")
        super().send_400_response(msg)

    def pause_writing(self) -> None:
        self.since = self.loop.time()
        super().pause_writing()


class _Shaking(asyncio.Protocol):
    """Until TLS has shaken hands: then the connection ``behind`` has it, and what came right after."""

    keeps_waiting = True

    def __init__(self, door: Door, tls: ssl.SSLContext, wait_secs: float, behind: _Connection) -> None:
        self._door = door
        self._tls = tls
        self._wait_secs = wait_secs
        self._behind = behind
        self._came: list[bytes] = []
        self._shaking: asyncio.Task[None] | None = None
        self.address = ""
        self.since = 0.0
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        transport.pause_reading()  # before a byte has come that is for TLS
        loop = asyncio.get_running_loop()
        self.transport, self.since = transport, loop.time()
        peer = transport.get_extra_info("peername")
        self.address = peer[0] if peer else ""
        self._door.enter(self)
        self._shaking = loop.create_task(self._shake())

    async def _shake(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            transport = await loop.start_tls(
                self.transport, self, self._tls, server_side=True, ssl_handshake_timeout=self._wait_secs
            )
        except OSError:
            transport = None
        is_cut = not self._door.leave(self)
        if transport is None or transport.is_closing():
            if not is_cut:
                self._door.refused("tls")
            return
        transport.set_protocol(self._behind)
        self._behind.connection_made(transport)
        for data in self._came:
            self._behind.data_received(data)

    def data_received(self, data: bytes) -> None:
        self._came.append(data)
