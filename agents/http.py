"""What an agent shows over HTTP: health, readiness, metrics, and facts about jobs, members and streams as
JSON.

It runs inside the agent's own event loop, serves only what ``AgentStatus`` gives it, and changes nothing:
there is no request that does. Rules: who may hold a connection and what is refused is said in
``agents.connections``; an error of ours is a 500 and a log line, and stops nothing; ``stop`` ends open
streams. No page of another origin may read an answer, or take it for anything but what it is. Signals are the
agent's business, not the server's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from typing import Final, Protocol

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from agents.bearers import Bearers, Look, Tls
from agents.connections import Bounds, Door, names_of
from agents.exposition import CONTENT_TYPE
from agents.serving import Served, bound
from elf.errors import UserError

KEEP_ALIVE_SECS: Final = 15.0
"""A silent stream says that it is still there this often; also how long a vanished reader may go unnoticed.
"""

Fact = Mapping[str, object]

_json: Final = msgspec.json.Encoder(decimal_format="number").encode


class NotServing(Exception):
    """The agent stands aside and knows nothing of jobs, members and streams; its text says why."""


class AgentStatus(Protocol):
    """What the server asks the agent. All but ``windows`` answer at once, from memory; those of ``metrics``
    and below may raise ``NotServing``."""

    def trouble(self) -> str:
        """Why nobody should count on the agent: it is on its way out, or stands aside; empty: it is well."""

    def unready(self) -> str:
        """What it waits for until it is part of the fleet and reads its inputs; empty: nothing any more."""

    def warnings(self) -> Sequence[str]:
        """What somebody should look at though the agent does its work; empty: nothing."""

    def gaps(self) -> Sequence[Fact]:
        """What it has found to be gone unread of its logs since it was started, the last hundred."""

    def metrics(self) -> bytes:
        """Prometheus text, 0.0.4."""

    def jobs(self) -> Sequence[Fact]: ...

    def members(self) -> Sequence[Fact]: ...

    def streams(self) -> Sequence[Fact]: ...

    def broadcasts(self, job: str) -> Sequence[Fact] | None:
        """The last notices of a job that came here, oldest first; None when there is no such job."""

    async def windows(self, job: str) -> AsyncIterator[Fact] | None:
        """The results of a job from now on, one window after the other; None when there is no such job."""


class HttpServer:
    """``start`` it, ``stop`` it."""

    def __init__(
        self,
        listen: str,
        facts: AgentStatus,
        *,
        names: frozenset[str] = frozenset(),
        bounds: Bounds = Bounds(),  # noqa: B008 (it is a value)
        refused: Callable[[str], None] = lambda _: None,
        look: Look | None = None,
        tls: Tls | None = None,
        keep_alive_secs: float = KEEP_ALIVE_SECS,
    ) -> None:
        """``listen``: ``host:port``; port 0: any free one (``port`` says which after ``start``). ``names``,
        ``bounds``, ``refused``: see ``agents.connections``; ``look``, ``tls``: see ``agents.bearers``."""
        self._facts = facts
        app = self._app()
        guarded = Bearers(app, look) if look else app
        secret = None if tls is None else tls.context()
        self._door = Door(guarded, names | names_of(listen), bounds, refused, secret)
        self._server = Served(listen, self._door, "http.listen")
        self._keep_alive_secs = keep_alive_secs
        self._stopping = asyncio.Event()
        self._closing: set[asyncio.Future[None]] = set()
        self.port = 0
        self.address = listen

    async def start(self) -> None:
        """Returns when it serves. Raises ``UserError`` when it cannot listen there."""
        await self._server.start()
        self.port, self.address = self._server.port, self._server.address

    async def stop(self) -> None:
        """End streams, finish what is being answered, close. Idempotent."""
        self._stopping.set()
        await self._server.stop()
        await asyncio.gather(*self._closing)

    def _app(self) -> Starlette:
        routes = [
            Route("/health", self._health),
            Route("/ready", self._ready),
            Route("/metrics", self._metrics),
            Route("/api/v1/jobs", self._jobs),
            Route("/api/v1/members", self._members),
            Route("/api/v1/streams", self._streams),
            Route("/api/v1/jobs/{name}/notices", self._broadcasts),
            Route("/api/v1/jobs/{name}/windows", self._windows),
        ]
        handlers = {HTTPException: _refuse, NotServing: _not_now, Exception: _fail}
        return Starlette(routes=routes, exception_handlers=handlers)

    async def _health(self, _request: Request) -> Response:
        trouble = self._facts.trouble()
        if trouble:
            return _answer({"ok": False, "reason": trouble}, 503)
        told = {"warnings": self._facts.warnings(), "gaps": self._facts.gaps()}
        return _answer({"ok": True, **{name: facts for name, facts in told.items() if facts}})

    async def _ready(self, _request: Request) -> Response:
        reason = self._facts.trouble() or self._facts.unready()
        if reason:
            return _answer({"ok": False, "ready": False, "reason": reason}, 503)
        return _answer({"ok": True, "ready": True})

    async def _metrics(self, _request: Request) -> Response:
        return Response(self._facts.metrics(), headers={"content-type": CONTENT_TYPE})

    async def _jobs(self, _request: Request) -> Response:
        return _answer({"jobs": self._facts.jobs()})

    async def _members(self, _request: Request) -> Response:
        return _answer({"members": self._facts.members()})

    async def _streams(self, _request: Request) -> Response:
        return _answer({"streams": self._facts.streams()})

    async def _broadcasts(self, request: Request) -> Response:
        name = request.path_params["name"]
        broadcasts = self._facts.broadcasts(name)
        if broadcasts is None:
            raise HTTPException(404, f"there is no job {name}")
        return _answer({"notices": broadcasts})

    async def _windows(self, request: Request) -> Response:
        name = request.path_params["name"]
        windows = await self._facts.windows(name)
        if windows is None:
            raise HTTPException(404, f"there is no job {name}")
        return StreamingResponse(
            self._events(windows), headers={"content-type": "text/event-stream", "cache-control": "no-store"}
        )

    async def _events(self, windows: AsyncIterator[Fact]) -> AsyncIterator[bytes]:
        """Server-sent events: one for each window, ``end`` when the job has no more, comments in between."""
        stopping = asyncio.ensure_future(self._stopping.wait())
        coming = asyncio.ensure_future(_next(windows))
        try:
            yield b": here they come\n\n"
            while True:
                waiting = {coming, stopping}
                await asyncio.wait(
                    waiting, timeout=self._keep_alive_secs, return_when=asyncio.FIRST_COMPLETED
                )
                if stopping.done():
                    return
                if not coming.done():
                    yield b": still here\n\n"
                    continue
                window = coming.result()
                if window is None:
                    yield b"event: end\ndata: {}\n\n"
                    return
                yield b"event: window\ndata: " + _json(window) + b"\n\n"
                coming = asyncio.ensure_future(_next(windows))
        finally:
            # In a task of its own: a reader that vanishes cancels this one again at every await.
            closing = asyncio.ensure_future(_let_go(windows, stopping, coming))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)


async def _next(windows: AsyncIterator[Fact]) -> Fact | None:
    """The next window; None when there are no more."""
    return await anext(windows, None)


async def _let_go(
    windows: AsyncIterator[Fact], *tasks: asyncio.Future[Fact | None] | asyncio.Task[bool]
) -> None:
    """Nobody reads these windows any more."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    if isinstance(windows, AsyncGenerator):
        await windows.aclose()


def cannot_serve(listen: str) -> str:
    """Why HTTP cannot be served there now; empty when it can."""
    try:
        bound(listen, "http.listen").close()
    except UserError as error:
        return str(error)
    return ""


def _answer(fact: Fact, status: int = 200) -> Response:
    return Response(_json(fact), status, media_type="application/json")


async def _refuse(_request: Request, error: Exception) -> Response:
    """Not found, not allowed."""
    if not isinstance(error, HTTPException):
        raise error
    return _answer({"error": error.detail}, error.status_code)


async def _not_now(_request: Request, error: Exception) -> Response:
    return _answer({"error": str(error)}, 503)


async def _fail(_request: Request, _error: Exception) -> Response:
    """The server logs the error; whoever asked need not see our insides."""
    return _answer({"error": "internal error"}, 500)
