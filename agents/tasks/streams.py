"""The engine of one stream: its format, its event time, and the DuckDB statements of its stream task.

Which column holds the event time is configured, or fixed by the format, or found in the first lines that show
one; then it stays (it is part of the stream's cut), so that a restart cannot read the same lines in another
way.

Under a backlog chunks are parsed on several cores before their turn comes (``Ahead``). Parsing is four fifths
of a row's cost and depends on nothing but its line, so it may be done in any order; what depends on the order
(watermarks, lateness, trees) stays in the stream task, which takes the chunks one by one. A stream task that
wants something else by then, because a flow came or went, parses such a chunk again.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import psutil
import pyarrow as pa

from agents.formats import Format
from agents.inputs.values import Chunk
from elf.functions.allowed import Allowed, anybody
from elf.functions.function import Done, Failed, UserFunction
from elf.functions.sandbox import Limits, Sandboxes
from elf.job.ports import MapperPort, Wanted
from elf.ql.plan import Fragment, Function

if TYPE_CHECKING:  # DuckDB takes 16 MB, and 25 when it runs: it is imported at the first line or job
    from agents.tasks.extracted import Extracted
    from agents.tasks.extracting import Extractor

LOOKED_AT = 200
"""Lines that are looked at at a time for an event time."""


Call = Callable[[pa.RecordBatch], Done | Failed]
"""A user's function over a batch."""

CHUNK_BYTES_LEAST: Final = 256 << 10
"""Smaller chunks are parsed by the stream task itself: a quiet agent needs no second parser."""
Parsed: TypeAlias = "tuple[Wanted, Extracted]"


class Running(Protocol):
    """Where users' functions run."""

    def running(self, function: Function, version: int = 1) -> AbstractContextManager[Call]:
        """A function, which ends with the block."""


@dataclass(frozen=True)
class FunctionsAt:
    """Where users' functions run, if they are ``allowed`` to, and where batches that they fail on are
    kept."""

    sandboxes: Sandboxes
    log: Callable[[str], None]
    failed_folder: Path | None = None
    limits: Limits = field(default_factory=Limits)
    allowed: Allowed = anybody

    def of(self, function: Function, version: int = 1) -> UserFunction:
        """A function in a process of its own, until it is closed."""
        where, allowed = self.failed_folder, self.allowed
        return UserFunction(
            self.sandboxes, function, self.limits, self.log, where, version=version, allowed=allowed
        )

    def running(self, function: Function, version: int = 1) -> closing[UserFunction]:
        """The same, until the block ends."""
        return closing(self.of(function, version))


class StreamEngine:
    """Makes the extractor and the mappers of a stream task. ``event_time``: None until a line has shown
    one."""

    def __init__(
        self,
        format_: Format,
        event_time: str | None,
        functions: FunctionsAt | None = None,
    ) -> None:
        self._functions = functions
        self.format = format_
        self.event_time = event_time
        self.look_at(pa.array([], pa.string()))

    def resume(self, event_time: str | None) -> None:
        """With the event time of the last checkpoint, where it is not known without."""
        self.event_time = self.event_time or event_time

    def look_at(self, lines: pa.StringArray) -> None:
        """Find the event time in these lines, if it is not known yet."""
        for start in range(0, max(len(lines), 1), LOOKED_AT):
            if self.event_time is None:
                self.event_time = self.format.schema(lines[start : start + LOOKED_AT], None).event_time

    def extractor(self, wanted: Wanted) -> StreamExtractor:
        return StreamExtractor(self, wanted)

    def mapper(self, fragment: Fragment) -> MapperPort:
        from agents.tasks.direct import mapper_of

        mapper: MapperPort = mapper_of(fragment)
        at = self._functions or FunctionsAt(Sandboxes(), lambda _: None)
        if fragment.owns:
            from agents.tasks.aggregating import OwnMapper

            mapper = OwnMapper(fragment, mapper, at)
        if fragment.function is not None:
            from agents.tasks.mapping import FunctionMapper

            mapper = FunctionMapper(fragment, at.of(fragment.function), mapper)
        return mapper


class StreamExtractor:
    """An extractor that follows its engine's event time."""

    def __init__(self, engine: StreamEngine, wanted: Wanted) -> None:
        self._engine = engine
        self._wanted = wanted
        self._event_time: str | None = None
        self._extractor: Extractor | None = None

    def extract(self, lines: pa.StringArray) -> Extracted:
        found = self._prepared().extract(lines)
        if self._engine.event_time is None and len(found.accepted):  # however many lines of junk come first
            self._engine.look_at(lines.take(pa.array(found.accepted[:LOOKED_AT])))
            if self._engine.event_time is not None:
                found = self._prepared().extract(lines)
        return found

    def prepare(self) -> None:
        if self._wanted.columns and self._engine.event_time is not None:
            self._prepared()

    def _prepared(self) -> Extractor:
        if self._extractor is None or self._event_time != self._engine.event_time:
            from agents.tasks.extracting import Extractor

            self.close()
            self._event_time = self._engine.event_time
            self._extractor = Extractor(self._engine.format, self._event_time, self._wanted)
        return self._extractor

    def close(self) -> None:
        if self._extractor is not None:
            self._extractor.close()
            self._extractor = None


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
