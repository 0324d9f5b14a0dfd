"""What is written beside agents, and the jobs that read it: people who write words."""

from __future__ import annotations

import asyncio
import heapq
import random
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import BinaryIO, Final

from elf.errors import ElfError

EPOCH: Final = b"1970-01-01T00:00:00.000Z"
TICK_SECS: Final = 0.02
LINES: Final = 8_192
"""Different lines, which are written in turns."""
WORDS: Final = 2_000
PEOPLE: Final = 500


@dataclass(frozen=True)
class Workload:
    """A query that counts, of SCALLA's kinds. ``windowing``: in ELF-QL; ``size_ms``, ``slide_ms``: the same
    for Spark; of sessions the gap, and 0."""

    keys: str
    windowing: str
    size_ms: int
    slide_ms: int

    def query(self, stream: str) -> str:
        select = f"SELECT {self.keys}, COUNT(*) AS n FROM {stream} GROUP BY {self.keys}"
        return f"{select} WINDOWING {self.windowing} LATENESS 0 SECONDS"


WORKLOADS: Final = {
    "sessions": Workload("person", "SESSION 1 SECONDS MAX 10 SECONDS", 1_000, 0),
    "word count": Workload("word", "1 SECONDS", 1_000, 1_000),
    "windowed word count": Workload("word", "10 SECONDS SLIDE 1 SECONDS", 10_000, 1_000),
}


class Lines:
    """The same ones for each seed: word and person by Zipf's law, and a text."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        weights = [1 / rank for rank in range(1, WORDS + 1)]
        words = rng.choices(range(WORDS), weights, k=LINES)
        texts = [" ".join(f"w{n}" for n in rng.choices(range(WORDS), weights, k=8)) for _ in range(256)]
        self._lines = [
            b'{"ts": "%s", "person": "p%d", "word": "w%d", "text": "%s"}\n'
            % (EPOCH, rng.randrange(PEOPLE), word, rng.choice(texts).encode())
            for word in words
        ]
        self._at = 0

    def take(self, us: int, count: int) -> bytes:
        """The next ones, with this time."""
        parts = []
        while count:
            part = self._lines[self._at : self._at + count]
            self._at = (self._at + len(part)) % LINES
            count -= len(part)
            parts += part
        moment = datetime.fromtimestamp(us / 1e6, UTC).isoformat(timespec="milliseconds")
        return b"".join(parts).replace(EPOCH, moment.replace("+00:00", "Z").encode())


class Writer(ABC):
    """Writes lines as long as a block goes on."""

    @asynccontextmanager
    async def on(self) -> AsyncIterator[None]:
        writing = asyncio.create_task(self._write())
        try:
            yield
            if writing.done():
                writing.result()
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)

    @abstractmethod
    async def _write(self) -> None:
        """Until it is cancelled."""


class Load(Writer):
    """Lines beside agents, with the time of the clock: ``rate`` a second, of all together. ``written``: how
    many."""

    def __init__(self, files: Sequence[BinaryIO], rate: float, seed: int = 1) -> None:
        self._files, self.rate = files, rate
        self.lines = Lines(seed)
        self.written = 0

    async def _write(self) -> None:
        due, at, turn = 0.0, time.monotonic(), 0
        while True:
            await asyncio.sleep(TICK_SECS)
            now = time.monotonic()
            due, at = due + self.rate * (now - at), now
            count, due = int(due), due - int(due)
            each, more = divmod(count, len(self._files))
            us = _now_us()
            for place in range(len(self._files)):
                file = self._files[(place + turn) % len(self._files)]
                _put(file, self.lines.take(us, each + (place < more)))
            self.written += count
            turn += 1


class Random(Writer):
    """Lines at random moments, with the time of the clock: of each file so many a second, as a Poisson
    process."""

    def __init__(self, files: Sequence[tuple[BinaryIO, float]], seed: int = 1) -> None:
        self._files = files
        self._lines, self._rng = Lines(seed), random.Random(seed)

    async def _write(self) -> None:
        now = time.monotonic()
        due = [(now + self._rng.expovariate(rate), place) for place, (_, rate) in enumerate(self._files)]
        heapq.heapify(due)
        while True:
            at, place = due[0]
            await asyncio.sleep(max(0.0, at - time.monotonic()))
            file, rate = self._files[place]
            _put(file, self._lines.take(_now_us(), 1))
            heapq.heapreplace(due, (at + self._rng.expovariate(rate), place))


def _now_us() -> int:
    """As exact as lines have it."""
    return time.time_ns() // 1_000_000 * 1_000


def _put(file: BinaryIO, lines: bytes) -> None:
    if lines and file.write(lines) != len(lines):
        raise ElfError(f"{file.name} does not take a batch of lines")
