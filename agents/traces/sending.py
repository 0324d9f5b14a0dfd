"""Spans on their way to a collector: OTLP over HTTP, in JSON, some at a time, by a thread of its own.

Nobody waits for it. Beyond ``WAITING_MAX`` spans, and where the collector takes none, spans are dropped and
counted (``elf_spans_dropped_total``), and the log says so once a minute.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from agents.logs import Seldom, get_logger
from agents.outputs.webhook import Poster
from agents.traces.spans import Span
from elf import __version__
from elf.errors import UserError

PAUSE_SECS: Final = 1.0
"""For which spans gather."""
AT_ONCE: Final = 512
WAITING_MAX: Final = 4_096
SAID_SECS: Final = 60.0

_json: Final = msgspec.json.Encoder().encode


class Sender:
    """To the collector at ``target``, ``http://`` or ``https://``. ``dropped`` is told of how many."""

    def __init__(self, target: str, agent: str, dropped: Callable[[int], None]) -> None:
        self._url = urlsplit(target)
        self._agent = agent
        self._dropped = dropped
        self._log = get_logger().bind(agent=agent)
        self._seldom = Seldom(SAID_SECS)
        self._waiting: list[Span] = []
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)
        self._thread.start()

    def put(self, span: Span) -> None:
        """From any thread; at once."""
        with self._lock:
            full = len(self._waiting) >= WAITING_MAX
            if not full:
                self._waiting.append(span)
        if full:
            self._dropped(1)

    def close(self) -> None:
        """What has not gone is dropped."""
        self._over.set()
        self._thread.join(PAUSE_SECS)

    def _run(self) -> None:
        poster = Poster(self._url)
        while not self._over.wait(PAUSE_SECS):
            while some := self._taken():
                try:
                    poster.post(_json(request(self._agent, some)), {})
                except (UserError, OSError) as error:
                    self._dropped(len(some))
                    if self._seldom.now("traces", time.monotonic()):
                        self._log.warning("traces are dropped", reason=str(error))
                    poster.close()
                    poster = Poster(self._url)
                    break
        poster.close()

    def _taken(self) -> list[Span]:
        with self._lock:
            some, self._waiting = self._waiting[:AT_ONCE], self._waiting[AT_ONCE:]
        return some


def request(agent: str, spans: Sequence[Span]) -> dict[str, Any]:
    """The body of a request (OTLP/HTTP, JSON)."""
    resource = [_fact("service.name", "elf"), _fact("service.instance.id", agent)]
    scope = {"name": "elf", "version": __version__}
    told = [_span(one) for one in spans]
    return {
        "resourceSpans": [
            {"resource": {"attributes": resource}, "scopeSpans": [{"scope": scope, "spans": told}]}
        ]
    }


def _span(one: Span) -> dict[str, Any]:
    return {
        "traceId": one.trace.hex(),
        "spanId": one.id.hex(),
        "parentSpanId": one.parent.hex(),
        "name": one.name,
        "kind": 1,
        "startTimeUnixNano": str(one.begin_us * 1_000),
        "endTimeUnixNano": str(one.end_us * 1_000),
        "attributes": [_fact(name, value) for name, value in one.facts],
        "events": [{"timeUnixNano": str(at * 1_000), "name": name} for at, name in one.moments],
    }


def _fact(name: str, value: str | int) -> dict[str, Any]:
    kind = {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}
    return {"key": name, "value": kind}
