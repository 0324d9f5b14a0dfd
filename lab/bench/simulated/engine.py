"""DuckDB's statements for all simulated agents: prepared once, run by each, and charged to each as if it had
prepared them itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Any, Final

import pyarrow as pa

from agents.formats import get_format
from agents.tasks.extracted import Extracted
from agents.tasks.finishing import finisher_of
from agents.tasks.streams import StreamEngine
from elf.job.ports import FinisherPort, MapperPort, Wanted
from elf.ql.plan import Fragment, Plan

FORMAT: Final = get_format("json")
EVENT_TIME: Final = "ts"


class Prepared:
    """What was prepared, by what it is made of, with its cost. ``charge`` takes milliseconds."""

    def __init__(self, charge: Callable[[float], None]) -> None:
        self.engine = StreamEngine(FORMAT, EVENT_TIME)
        self._charge = charge
        self._made: dict[Hashable, tuple[Any, float]] = {}

    def of(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """``make`` prepares too; it is measured with the step in which it is made first."""
        known = self._made.get(key)
        if known is None:
            began = time.thread_time_ns()
            made = make()
            self._made[key] = made, (time.thread_time_ns() - began) / 1e6
            return made
        self._charge(known[1])
        return known[0]

    def extractor(self, wanted: Wanted) -> Any:
        def make() -> object:
            found = self.engine.extractor(wanted)
            found.prepare()
            return found

        return self.of(wanted, make)

    def mapper(self, fragment: Fragment) -> Any:
        def make() -> MapperPort:
            found = self.engine.mapper(fragment)
            found.prepare()
            return found

        return self.of((fragment.map_sql, fragment.columns), make)

    def finisher(self, plan: Plan) -> FinisherPort:
        """A job has one master: it is prepared for that alone, and prepares itself."""
        return finisher_of(plan)


class SharedExtractor:
    """One agent's: it has prepared, or not yet."""

    def __init__(self, prepared: Prepared, wanted: Wanted) -> None:
        self._prepared, self._wanted = prepared, wanted
        self._port: Any = None

    def prepare(self) -> None:
        if self._port is None and self._wanted.columns:
            self._port = self._prepared.extractor(self._wanted)

    def extract(self, lines: pa.StringArray) -> Extracted:
        self.prepare()
        port = self._port or self._prepared.extractor(self._wanted)
        found: Extracted = port.extract(lines)
        return found

    def close(self) -> None:
        """The others need it."""


class SharedMapper(MapperPort):
    """Likewise."""

    def __init__(self, prepared: Prepared, fragment: Fragment) -> None:
        self._prepared, self._fragment = prepared, fragment
        self._port: Any = None

    def prepare(self) -> None:
        if self._port is None:
            self._port = self._prepared.mapper(self._fragment)

    def run(self, rows: pa.Table) -> pa.Table:
        self.prepare()
        return self._port.run(rows)

    def close(self) -> None:
        """The others need it."""


class SharedEngine:
    """Of one agent's stream task."""

    def __init__(self, prepared: Prepared) -> None:
        self._prepared = prepared

    def extractor(self, wanted: Wanted) -> SharedExtractor:
        return SharedExtractor(self._prepared, wanted)

    def mapper(self, fragment: Fragment) -> MapperPort:
        return SharedMapper(self._prepared, fragment)
