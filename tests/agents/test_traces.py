"""Spans that no collector takes are dropped, counted, and hold up nobody."""

from __future__ import annotations

import socket
import threading
import time
from urllib.parse import urlsplit

import pytest

from agents.metrics import Metrics
from agents.outputs.webhook import Poster
from agents.traces import sending
from agents.traces.sending import Sender
from agents.traces.spans import Span
from elf.errors import UserError
from tests.support.receiver import serving

SPAN = Span(b"t" * 16, b"s" * 8, b"", "pane", 1, 2)


def dropped(metrics: Metrics) -> float:
    """By then, or after a while."""
    deadline = time.monotonic() + 20
    while not (found := metrics._spans_dropped.values()[0][1]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def test_what_is_refused_is_counted_and_later_spans_go() -> None:
    metrics = Metrics()
    with serving() as collector:
        collector.answers = [500]
        sender = Sender(collector.url, "web-1", metrics.spans_dropped)
        for _ in range(3):
            sender.put(SPAN)
        assert dropped(metrics) == 3
        sender.put(SPAN)
        deadline = time.monotonic() + 20
        while len(collector.requests) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        sender.close()
        (_, later) = collector.bodies
        assert len(later["resourceSpans"][0]["scopeSpans"][0]["spans"]) == 1
    assert dropped(metrics) == 3


def test_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "WAITING_MAX", 5)
    metrics = Metrics()
    sender = Sender("http://127.0.0.1:1/", "web-1", metrics.spans_dropped)
    for _ in range(7):
        sender.put(SPAN)
    assert dropped(metrics) >= 2
    sender.close()


def test_a_collector_that_babbles_ends_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as place:
        threading.Thread(target=_babbling, args=(place,), daemon=True).start()
        poster = Poster(urlsplit(f"http://127.0.0.1:{place.getsockname()[1]}/"))
        poster.post(b"{}", {})
        with pytest.raises(UserError, match="breaks off"):
            poster.post(b"{}", {})
        poster.close()


def _babbling(place: socket.socket) -> None:
    """One answer, on a connection that stays open, and then none that is of HTTP."""
    first, _ = place.accept()
    with first:
        first.recv(4096)
        first.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        first.recv(4096)
        first.sendall(b"what?\r\n\r\n")
    second, _ = place.accept()
    with second:
        second.recv(4096)
        second.sendall(b"what?\r\n\r\n")
