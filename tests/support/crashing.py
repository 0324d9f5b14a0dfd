"""A process that ends before any line of some files of its code."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Crash(BaseException):
    """The machine stopped before this line."""


@contextmanager
def crash_at(files: Collection[str | None], step: int | None) -> Iterator[list[int]]:
    """Raises ``Crash`` before the ``step``-th line of these files; yields the count of lines."""
    count = [0]

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename not in files:
            return None
        if event == "line":
            count[0] += 1
            if count[0] == step:
                raise Crash
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield count
    finally:
        sys.settrace(before)
