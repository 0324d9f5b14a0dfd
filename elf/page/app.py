"""The routes of the page. See ``elf.page``.

| request | what it gives |
|---|---|
| ``GET /``, ``GET /page/FILE`` | the page |
| ``GET /api/v1/session`` | who asks, what they may, which agent answers |
| ``GET /api/v1/fleet`` | all agents, as ``elf top`` sees them |
| ``GET /api/v1/jobs/NAME/tree`` | the reduction trees of a job |
| ``GET /api/v1/jobs/NAME/past?since=TIME`` | its last windows |
| ``GET /api/v1/words`` | keywords and functions of ELF-QL |
| ``GET /api/v1/panels``, ``POST`` | the panels, and their queries with filters |
| ``POST /api/v1/sql`` | what a statement comes to |
| ``POST /api/v1/watch`` | what statements say, as server-sent events |
| ``POST /api/v1/jobs/NAME/compare`` | its windows against Spark, where there is Spark |
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path
from typing import Final, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from elf.client.client import Client
from elf.client.windows import Window, split
from elf.errors import ElfError, UserError
from elf.page import asked, panels, words
from elf.page.answers import encode, result_of, window_of
from elf.page.events import HEADERS, EventStreams
from elf.page.visitors import Host, Visitor
from overlay.ids import RING, node_id

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The Content-Security-Policy of a server with the page: what runs is a file of ours, and it speaks to us."""
BODY_BYTES_MAX: Final = 256 << 10
BODY_SECS: Final = 10.0
PAST_MAX: Final = 200
"""Windows of the past that are given at once, the last ones."""
PAST_ROWS_MAX: Final = 50_000
"""Rows of all of them; older windows are left out beyond that."""
_STATIC: Final = Path(__file__).with_name("static")
_PREFIX: Final = "/page/"
_KINDS: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
_SCHEME: Final = "bearer "
_HOW: Final = "a token is wanted: Authorization: Bearer …"

T = TypeVar("T", bound=msgspec.Struct)
Answer = Callable[[Request, Visitor], Awaitable[Response]]


class Page:
    """For one ``host``, which lets people in. ``events``: streams, which the server ends when it stops."""

    def __init__(self, host: Host, events: EventStreams) -> None:
        self._host = host
        self._events = events
        api = {
            ("GET", "/api/v1/session"): self._session,
            ("GET", "/api/v1/fleet"): self._fleet,
            ("GET", "/api/v1/jobs/{name}/tree"): self._tree,
            ("GET", "/api/v1/jobs/{name}/past"): self._past,
            ("GET", "/api/v1/words"): self._words,
            ("GET", "/api/v1/panels"): self._panels,
            ("POST", "/api/v1/panels"): self._composed,
            ("POST", "/api/v1/sql"): self._sql,
            ("POST", "/api/v1/watch"): self._watch,
            ("POST", "/api/v1/jobs/{name}/compare"): self._compare,
        }
        self._routes = [
            Route("/", _index),
            Route(_PREFIX + "{path:path}", _file),
            *(Route(path, self._asked(answer), methods=[method]) for (method, path), answer in api.items()),
        ]
        handlers = {HTTPException: _refuse, UserError: _wrong, ElfError: _lost, Exception: _fail}
        self._app = Starlette(routes=self._routes, exception_handlers=handlers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    def before(self, other: ASGIApp) -> ASGIApp:
        """An application that is the page where it has something, and else the other one."""

        async def either(scope: Scope, receive: Receive, send: Send) -> None:
            is_ours = any(route.path_regex.match(scope["path"]) for route in self._routes)
            await (self._app if is_ours else other)(scope, receive, send)

        return either

    def has_body(self, path: str) -> bool:
        """Whether a request there may have a body."""
        posts = (route for route in self._routes if route.methods and "POST" in route.methods)
        return any(route.path_regex.match(path) for route in posts)

    def _asked(self, answer: Answer) -> Callable[[Request], Awaitable[Response]]:
        """Whose request it is comes first."""

        async def admitted(request: Request) -> Response:
            try:
                visitor = await self._host.visitor(_token(request))
            except UserError as error:
                raise HTTPException(401, str(error), {"www-authenticate": "Bearer"}) from None
            return await answer(request, visitor)

        return admitted

    # -- what is asked ---------------------------------------------------------------------------------------

    async def _session(self, _request: Request, visitor: Visitor) -> Response:
        status = await visitor.client.status()
        told = {
            "name": visitor.name,
            "roles": visitor.roles,
            "may": {
                "tap": visitor.may("tap"),
                "write": visitor.signs and visitor.may("write"),
                "admin": visitor.signs and visitor.may("admin"),
                "compare": self._host.compare is not None,
            },
            "agent": status.get("agent"),
            "address": status.get("address"),
        }
        return _answer(told)

    async def _fleet(self, _request: Request, visitor: Visitor) -> Response:
        fleet = await visitor.client.fleet()
        agents = [{**msgspec.structs.asdict(one), "at": node_id(one.address) / RING} for one in fleet.agents]
        return _answer({"jobs": fleet.jobs, "agents": agents})

    async def _tree(self, request: Request, visitor: Visitor) -> Response:
        return _answer(await visitor.client.tree(request.path_params["name"]))

    async def _past(self, request: Request, visitor: Visitor) -> Response:
        name, since = request.path_params["name"], request.query_params.get("since", "-1 hour")
        return _answer({"windows": await past_of(visitor.client, name, since)})

    async def _words(self, _request: Request, _visitor: Visitor) -> Response:
        return _answer(await asyncio.to_thread(words.words))

    async def _panels(self, _request: Request, _visitor: Visitor) -> Response:
        return _answer({"panels": panels.panels()})

    async def _composed(self, request: Request, _visitor: Visitor) -> Response:
        return _answer({"queries": panels.queries(await _body(request, asked.Composed))})

    async def _sql(self, request: Request, visitor: Visitor) -> Response:
        statement = await _body(request, asked.Statement)
        return _answer(result_of(await visitor.client.sql(statement.sql)))

    async def _watch(self, request: Request, visitor: Visitor) -> Response:
        token, watch = _token(request), await _body(request, asked.Watch)
        events = asked.watched(visitor.client, watch.statements)
        return StreamingResponse(self._events.of(events, lambda: self._host.ended(token)), headers=HEADERS)

    async def _compare(self, request: Request, _visitor: Visitor) -> Response:
        if self._host.compare is None:
            raise HTTPException(
                501, "there is no Spark here: elf ui compares where elf-stream[spark] is installed"
            )
        return _answer(await self._host.compare(request.path_params["name"]))


async def past_of(client: Client, job: str, since: str) -> list[dict[str, object]]:
    """The last windows of a job that start since then, of each its last revision, oldest first."""
    found: dict[tuple[object, object], Window] = {}
    held = 0
    async for result in client.results(job, since):
        for window in split(result):
            key = (window.start, window.end)
            if (before := found.pop(key, None)) is not None:
                held -= before.table.num_rows
            found[key] = window
            held += window.table.num_rows
            while len(found) > PAST_MAX or (held > PAST_ROWS_MAX and len(found) > 1):
                held -= found.pop(next(iter(found))).table.num_rows
        await asyncio.sleep(0)  # others are answered in between
    told = []
    for span in sorted(found, key=lambda span: [(at is not None, at) for at in span]):
        told.append(window_of(found[span]))
        await asyncio.sleep(0)
    return told


# -- requests and answers ------------------------------------------------------------------------------------


def _token(request: Request) -> str:
    """What is shown as a token; empty: nothing is."""
    shown = request.headers.getlist("authorization")
    if not shown:
        return ""
    if len(shown) != 1 or not shown[0].lower().startswith(_SCHEME):
        raise HTTPException(401, _HOW, {"www-authenticate": "Bearer"})
    return shown[0][len(_SCHEME) :].strip()


async def _body(request: Request, kind: type[T]) -> T:
    """The body of a request, which is JSON. Raises ``HTTPException``."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(415, "the body of this request is JSON: content-type: application/json")
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECS):
            async for piece in request.stream():
                body += piece
                if len(body) > BODY_BYTES_MAX:
                    raise HTTPException(413, f"a request has {BODY_BYTES_MAX:,} bytes at most")
    except TimeoutError:
        raise HTTPException(408, f"a request has {BODY_SECS:.0f} s to come whole") from None
    except ClientDisconnect:
        raise HTTPException(400, "the request did not come whole") from None
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise HTTPException(400, f"this request cannot be read: {error}") from None


def _answer(fact: object, status: int = 200) -> Response:
    return Response(encode(fact), status, {"cache-control": "no-store"}, media_type="application/json")


async def _refuse(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    answer = _answer({"error": error.detail}, error.status_code)
    answer.headers.update(error.headers or {})
    return answer


async def _wrong(_request: Request, error: Exception) -> Response:
    """A statement that is wrong, or not the visitor's to say."""
    return _answer({"error": str(error)}, 400)


async def _lost(_request: Request, error: Exception) -> Response:
    """No agent answers."""
    return _answer({"error": str(error)}, 502)


async def _fail(_request: Request, _error: Exception) -> Response:
    """The server logs the error; whoever asked need not see our insides."""
    return _answer({"error": "internal error"}, 500)


# -- files ---------------------------------------------------------------------------------------------------


async def _index(request: Request) -> Response:
    return _shown(request, "index.html")


async def _file(request: Request) -> Response:
    return _shown(request, request.path_params["path"])


def _shown(request: Request, path: str) -> Response:
    """A file of the page, which a browser keeps until it changes."""
    found = _files().get(path)
    if found is None:
        raise HTTPException(404, "there is no such file")
    content, kind, tag = found
    headers = {"etag": tag, "cache-control": "no-cache", "content-type": kind}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers)


@cache
def _files() -> dict[str, tuple[bytes, str, str]]:
    """Content, media type and tag of each file, by its path below ``static``."""
    found = {}
    for path in sorted(_STATIC.rglob("*")):
        if path.is_file() and (kind := _KINDS.get(path.suffix)) is not None:
            content = path.read_bytes()
            tag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
            found[path.relative_to(_STATIC).as_posix()] = content, kind, tag
    return found
