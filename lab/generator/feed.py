"""Generated lines into files: a number of them at once, or at a pace, as a server would write them.

Finite output depends on the seed and the options only. Live output carries the wall clock. This is the edge
of the program: the one place of the generator that looks at a clock and touches files.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO, Final, Protocol

import numpy as np

from lab.generator.chance import Chance, Ints

BLOCK_ROWS: Final = 8_192
FLUSH_SECS: Final = 0.05


class Source(Protocol):
    """What writes lines for event times."""

    def lines(self, times_us: Ints) -> list[str]: ...


@dataclass(frozen=True)
class Pace:
    """How fast lines are written, and for how long; ``rows`` and ``seconds`` None: for ever."""

    rate: float
    rows: int | None = None
    seconds: float | None = None


def write_finite(
    source: Source,
    out: BinaryIO,
    *,
    rows: int,
    start_us: int,
    per_second: float,
    disorder_us: int,
    seed: int,
    told: Callable[[int], None] = lambda _: None,
) -> None:
    """``rows`` lines from ``start_us`` on, ``per_second`` of them in a second of event time. ``told`` is
    called again and again with how many are written."""
    delays = Chance(seed + 2)
    for first in range(0, rows, BLOCK_ROWS):
        size = min(BLOCK_ROWS, rows - first)
        steps = np.arange(first, first + size, dtype=np.float64) * (1e6 / per_second)
        times = start_us + steps.astype(np.int64) - delays.delays_us(disorder_us, size)
        out.write(_bytes(source.lines(times)))
        told(first + size)


def write_live(
    source: Source, out: BinaryIO, pace: Pace, *, disorder_us: int, seed: int, stopped: Callable[[], bool]
) -> int:
    """Lines with the time of their writing, at that pace, until ``stopped()``; the number of lines is
    returned.
    """
    delays = Chance(seed + 2)
    started = time.monotonic()
    before_us = time.time_ns() // 1000
    written = 0
    while not stopped():
        elapsed = time.monotonic() - started
        over = pace.seconds is not None and elapsed >= pace.seconds
        due = int(min(elapsed, pace.seconds or elapsed) * pace.rate)
        due = due if pace.rows is None else min(due, pace.rows)
        now_us = time.time_ns() // 1000
        size = min(due - written, BLOCK_ROWS)
        if size > 0:
            times = np.linspace(before_us, now_us, size, endpoint=False).astype(np.int64)
            out.write(_bytes(source.lines(times - delays.delays_us(disorder_us, size))))
            out.flush()
            written += size
        before_us = now_us
        if written == due and (over or written == pace.rows):
            break
        if written == due:
            time.sleep(FLUSH_SECS)
    return written


def _bytes(lines: list[str]) -> bytes:
    """Lines as UTF-8; those that are none on purpose have surrogate escapes."""
    return ("\n".join(lines) + "\n").encode("utf-8", "surrogateescape") if lines else b""
