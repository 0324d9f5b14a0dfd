"""What an agent shows over HTTP: health, readiness, metrics, and facts about jobs, members and streams as
JSON.

It runs inside the agent's own event loop, serves only what ``AgentStatus`` gives it, and changes nothing:
there is no request that does. With a ``host`` it has the page too (``elf.page``), which asks as whoever is at
it. Rules: who may hold a connection and what is refused is said in
``agents.connections``; an error of ours is a 500 and a log line, and stops nothing; ``stop`` ends open
streams. No page of another origin may read an answer, or take it for anything but what it is. Signals are the
agent's business, not the server's.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from agents.bearers import Bearers, Look, Tls
from agents.connections import Bounds, Door, names_of
from agents.metrics import CONTENT_TYPE
from agents.serving import POLICY, Served, bound
from elf.errors import ElfError, UserError
from elf.page.events import HEADERS, KEEP_ALIVE_SECS, Event, EventStreams

if TYPE_CHECKING:
    from elf.page.visitors import Host

Fact = Mapping[str, object]
PAGE_ANSWERS: Final = 200
"""A second, to one address: a page that opens asks twenty times, and a browser may open several at once."""

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

    async def rows(
        self, table: str, equals: Sequence[tuple[str, str]], *, anywhere: bool, creator: str = ""
    ) -> Fact | None:
        """The rows of a table that have these values; None when there is no such table. ``creator``: whose,
        where several have one of that name. Raises ``UserError``."""

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
        host: Host | None = None,
        keep_alive_secs: float = KEEP_ALIVE_SECS,
    ) -> None:
        """``listen``: ``host:port``; port 0: any free one (``port`` says which after ``start``). ``names``,
        ``bounds``, ``refused``: see ``agents.connections``; ``look``, ``tls``: see ``agents.bearers``;
        ``host``: whom the page lets in (``elf.page``); None: there is no page."""
        self._facts = facts
        self._events = EventStreams(keep_alive_secs)
        app = self._app()
        shown: ASGIApp = Bearers(app, look) if look else app
        policy = POLICY
        if host is not None:
            from elf.page.app import POLICY as PAGE_POLICY  # what it asks through is a client
            from elf.page.app import Page

            page, policy = Page(host, self._events), PAGE_POLICY
            shown = page.before(shown)
            bounds = replace(bounds, has_body=page.has_body, answers=max(bounds.answers, PAGE_ANSWERS))
        secret = None if tls is None else tls.context()
        self._door = Door(shown, names | names_of(listen), bounds, refused, secret)
        self._server = Served(listen, self._door, "http.listen", policy)
        self.port = 0
        self.address = listen

    async def start(self) -> None:
        """Returns when it serves. Raises ``UserError`` when it cannot listen there."""
        await self._server.start()
        self.port, self.address = self._server.port, self._server.address

    async def stop(self) -> None:
        """End streams, finish what is being answered, close. Idempotent."""
        self._events.stop()
        await self._server.stop()
        await self._events.settle()

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
            Route("/api/v1/tables/{name}", self._rows),
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

    async def _rows(self, request: Request) -> Response:
        """``?COLUMN=VALUE&…``, ``&as_of=any`` and ``&creator=NAME``."""
        name, asked = request.path_params["name"], request.query_params.multi_items()
        equals = [one for one in asked if one[0] not in ("as_of", "creator")]
        as_of = {value for column, value in asked if column == "as_of"}
        if len(dict(equals)) != len(equals) or as_of - {"any"}:
            raise HTTPException(400, "a column is given once, and as_of is 'any' or not there")
        creator = request.query_params.get("creator", "")
        try:
            rows = await self._facts.rows(name, equals, anywhere=bool(as_of), creator=creator)
        except ElfError as refused:
            raise HTTPException(400, str(refused)) from None
        if rows is None:
            raise HTTPException(404, f"there is no table {name}")
        return _answer(rows)

    async def _windows(self, request: Request) -> Response:
        name = request.path_params["name"]
        windows = await self._facts.windows(name)
        if windows is None:
            raise HTTPException(404, f"there is no job {name}")
        return StreamingResponse(self._events.of(_told(windows)), headers=HEADERS)


async def _told(windows: AsyncIterator[Fact]) -> AsyncGenerator[Event]:
    """An event for each window, and ``end`` when the job has no more."""
    try:
        async for window in windows:
            yield "window", window
        yield "end", {}
    finally:
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
