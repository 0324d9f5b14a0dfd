"""Extraction ahead of the stream task: under a backlog, chunks are parsed on several cores before their turn
comes.

Parsing is four fifths of a row's cost and depends on nothing but its line, so it may be done in any order;
what depends on the order (watermarks, lateness, trees) stays in the stream task, which takes the chunks one
by one. A stream task that wants something else by then, because a flow came or went, parses such a chunk
again.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final, TypeAlias

import psutil
import pyarrow as pa

from agents.inputs import Chunk
from agents.tasks.streams import StreamEngine, StreamExtractor
from elf.job.ports import Wanted

if TYPE_CHECKING:  # DuckDB, as in agents.tasks.streams
    from agents.tasks.engine import Extracted

CHUNK_BYTES_LEAST: Final = 256 << 10
"""Smaller chunks are parsed by the stream task itself: a quiet agent needs no second parser."""

Parsed: TypeAlias = "tuple[Wanted, Extracted]"


class Ahead:
    """Threads that parse chunks of one stream. ``cores`` (by default those that the process may run on): with
    one, nothing is done ahead."""

    def __init__(self, name: str, engine: StreamEngine, cores: int | None = None) -> None:
        self.cores = min(2, cores or len(psutil.Process().cpu_affinity()))
        self._engine = engine
        self._pool = ThreadPoolExecutor(self.cores, thread_name_prefix=f"parse-{name}")
        self._idle: SimpleQueue[tuple[Wanted, StreamExtractor]] = SimpleQueue()

    def parse(self, chunk: Chunk, wanted: Wanted) -> Future[Parsed] | None:
        """Begin; None where it is better left to the stream task. Which column is the event time is for the
        stream task to find out, in the order of the lines."""
        if self.cores == 1 or self._engine.event_time is None or chunk.end - chunk.start < CHUNK_BYTES_LEAST:
            return None
        return self._pool.submit(self._parse, chunk.lines, wanted)

    def _parse(self, lines: pa.StringArray, wanted: Wanted) -> Parsed:
        extractor = self._extractor(wanted)
        extracted = extractor.extract(lines)
        self._idle.put((wanted, extractor))
        return wanted, extracted

    def _extractor(self, wanted: Wanted) -> StreamExtractor:
        try:
            made_for, extractor = self._idle.get_nowait()
        except Empty:
            return self._engine.extractor(wanted)
        if made_for == wanted:
            return extractor
        extractor.close()
        return self._engine.extractor(wanted)

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
        while not self._idle.empty():
            self._idle.get_nowait()[1].close()
