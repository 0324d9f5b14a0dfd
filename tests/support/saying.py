"""What commits of windows say, window by window."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agents.committing.spans import Span, by_span, micros
from elf.batch import decode
from elf.wire.clients import WindowResult


def words(
    result: WindowResult, said: Mapping[Span, tuple[int, object]], revised: bool
) -> Iterator[tuple[Span, dict[str, Any], list[dict[str, Any]]]]:
    """(window, status, rows) of each. ``said``: revision of what was said of windows before; only what is
    ``revised`` says more of these, with a higher one."""
    parts = by_span(decode(result.payload))
    for status in decode(result.status).to_pylist():
        span = (micros(status["window_start"]), micros(status["window_end"]))
        if span in said:
            assert revised
            assert said[span][0] < status["revision"]
        yield span, status, parts.pop(span).to_pylist() if span in parts else []
    assert not parts, "windows without a status"
