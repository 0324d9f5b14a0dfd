"""The engine of one stream: its format, its event time, and the DuckDB statements of its stream task.

Which column holds the event time is configured, or fixed by the format, or found in the first lines that show
one; then it stays (it is part of the stream's cut), so that a restart cannot read the same lines in another
way.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from agents.formats import Format
from elf.functions.function import Done, Failed, UserFunction
from elf.functions.sandbox import Limits, Sandboxes
from elf.job.ports import MapperPort, Wanted
from elf.ql.plan import Fragment, Function

if TYPE_CHECKING:  # DuckDB takes 16 MB, and 25 when it runs: it is imported at the first line or job
    from agents.tasks.engine import Extracted, Extractor

LOOKED_AT = 200
"""Lines that are looked at at a time for an event time."""


Call = Callable[[pa.RecordBatch], Done | Failed]
"""A user's function over a batch."""


class Running(Protocol):
    """Where users' functions run."""

    def running(self, function: Function, version: int = 1) -> AbstractContextManager[Call]:
        """A function, which ends with the block."""


@dataclass(frozen=True)
class FunctionsAt:
    """Where users' functions run, and where batches that they fail on are kept."""

    sandboxes: Sandboxes
    log: Callable[[str], None]
    failed_folder: Path | None = None
    limits: Limits = field(default_factory=Limits)

    def of(self, function: Function, version: int = 1) -> UserFunction:
        """A function in a process of its own, until it is closed."""
        where = self.failed_folder
        return UserFunction(self.sandboxes, function, self.limits, self.log, where, version=version)

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
        if fragment.function is not None:
            from agents.tasks.mapping import FunctionMapper

            at = self._functions or FunctionsAt(Sandboxes(), lambda _: None)
            return FunctionMapper(fragment, at.of(fragment.function))
        from agents.tasks.engine import Mapper

        return Mapper.of(fragment)


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
            from agents.tasks.engine import Extractor

            self.close()
            self._event_time = self._engine.event_time
            self._extractor = Extractor(self._engine.format, self._event_time, self._wanted)
        return self._extractor

    def close(self) -> None:
        if self._extractor is not None:
            self._extractor.close()
            self._extractor = None
