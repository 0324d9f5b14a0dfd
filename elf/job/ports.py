"""What the worker needs from outside, as protocols: a chunk of lines, and the engine that extracts and maps
(DuckDB in an agent, something lighter in a simulator).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elf.cbt import SpillStore
from elf.ql.plan import Fragment
from elf.schema import Column

Int64s = npt.NDArray[np.int64]


class SourceLike(Protocol):
    """A file as one input: ``id`` names it for ever (file id and truncate generation)."""

    @property
    def id(self) -> str: ...


class ChunkLike(Protocol):
    """Whole lines of one source: bytes ``[start, end)``; ``offsets`` says where each line begins."""

    @property
    def source(self) -> SourceLike: ...
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def lines(self) -> pa.StringArray: ...
    @property
    def offsets(self) -> Int64s: ...
    @property
    def rejects(self) -> Sequence[object]: ...


class ExtractedLike(Protocol):
    """``table``: ``_ts`` (int64 µs, nullable), then the asked columns, a row for each accepted line, in
    order.
    """

    @property
    def table(self) -> pa.Table: ...
    @property
    def accepted(self) -> Int64s: ...
    @property
    def rejected(self) -> Int64s: ...
    @property
    def uncast(self) -> int: ...


class ExtractorPort(Protocol):
    def extract(self, lines: pa.StringArray) -> ExtractedLike: ...
    def close(self) -> None: ...


class MapperPort(Protocol):
    def run(self, rows: pa.Table) -> pa.Table: ...
    def close(self) -> None: ...


class FinisherPort(Protocol):
    """Runs a job's final fragment over merged groups."""

    def run(self, groups: pa.Table) -> pa.Table: ...
    def close(self) -> None: ...


@dataclass(frozen=True)
class Spill:
    """What a tree may hold in memory, and where it puts what is beyond: a store for each flow, by its uid."""

    tree_bytes_max: int
    store: Callable[[str], SpillStore]


class Engine(Protocol):
    """Makes extractors and mappers for one stream."""

    def extractor(self, columns: Sequence[Column]) -> ExtractorPort: ...
    def mapper(self, fragment: Fragment) -> MapperPort: ...
