"""The CPU time of work: that of its thread, and of the users' functions for which the thread has waited."""

from __future__ import annotations

import threading
import time


class _Called(threading.local):
    us = 0


_called = _Called()


def cpu_us() -> int:
    """Of this thread so far, in µs; differences of it say what work took."""
    return time.thread_time_ns() // 1_000 + _called.us


def add_called(us: int) -> None:
    """A sandbox has taken so much for this thread."""
    _called.us += us
