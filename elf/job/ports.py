"""What the worker needs from outside, as protocols: a chunk of lines, and the engine that extracts and maps
(DuckDB in an agent, something lighter in a simulator)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elf.cbt import SpillStore
from elf.errors import ElfError
from elf.ql.lookups import lookups_in
from elf.ql.plan import Condition, Fragment
from elf.schema import Column, ColumnType, alike, is_origin, unify

Int64s = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

WHERES_MAX: Final = 16
"""With more conditions than that, reading all rows is cheaper than choosing."""


class SourceLike(Protocol):
    """A file as one input: ``id`` names it for ever (file id and truncate generation); ``log`` is the path of
    the log that it is, or that rotation has made it of."""

    @property
    def id(self) -> str: ...
    @property
    def log(self) -> str: ...


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


@dataclass(frozen=True)
class Wanted:
    """What the flows of a stream want of its lines: ``columns``, of the rows for which at least one of the
    conditions ``where_sqls`` (over ``rows AS r``) is true; of all rows where there are none."""

    columns: tuple[Column, ...] = ()
    where_sqls: tuple[str, ...] = ()
    conditions: tuple[tuple[Condition, ...], ...] = field(default=(), compare=False)
    """The same conditions, where none of them needs SQL: of each all parts are true."""
    origins: tuple[str, ...] = field(default=(), compare=False)
    """Columns that the lines do not have (``elf.schema.is_origin``)."""

    @classmethod
    def of(cls, fragments: Iterable[Fragment]) -> Wanted:
        """What all of these want. A column is read as the widest type that it has for any of them
        (``elf.job.worker.fitting``). A condition was written for its own fragment's types: where two
        fragments have different types for a column, or two columns differ only by case, all rows are wanted;
        also where a condition may be one of the rows' origin, or looks something up.
        """
        columns: dict[str, Column] = {}
        wheres: dict[str, tuple[Condition, ...]] = {}
        origins: dict[str, None] = {}
        agreed = True
        for fragment in fragments:
            agreed = agreed and all(columns.get(column.name, column) == column for column in fragment.columns)
            for column in fragment.columns:
                if is_origin(column.name):
                    origins[column.name] = None
                    continue
                kinds = columns.get(column.name, column).type, column.type
                kind: ColumnType = "timestamp" if "timestamp" in kinds else unify(*kinds)
                columns[column.name] = Column(column.name, kind)
            simple = fragment.direct.where if fragment.direct else ()
            wheres[fragment.where_sql] = wheres.get(fragment.where_sql) or simple
        agreed = agreed and not any(name in where for where in wheres for name in origins)
        agreed = agreed and not lookups_in(*wheres)
        chooses = agreed and alike(columns) is None and "" not in wheres and len(wheres) <= WHERES_MAX
        conditions = tuple(wheres.values()) if chooses and all(wheres.values()) else ()
        wanted = tuple(wheres) if chooses else ()
        return cls(tuple(columns.values()), wanted, conditions, tuple(origins))


class ExtractedLike(Protocol):
    """``table``: ``_ts`` (int64 µs, nullable), then the wanted columns, a row for each accepted line, in
    order. ``beyond``: lines with more fields than their format. ``wanted``: which rows any flow wants, None
    for all; the columns of other rows mean nothing."""

    @property
    def table(self) -> pa.Table: ...
    @property
    def accepted(self) -> Int64s: ...
    @property
    def rejected(self) -> Int64s: ...
    @property
    def uncast(self) -> int: ...
    @property
    def beyond(self) -> int: ...
    @property
    def wanted(self) -> Mask | None: ...


class ExtractorPort(Protocol):
    """Lines to columns. ``prepare``: see ``MapperPort``."""

    def prepare(self) -> None: ...
    def extract(self, lines: pa.StringArray) -> ExtractedLike: ...
    def close(self) -> None: ...


class MapFailed(ElfError):
    """A user's function has failed on so many ``rows``, which are lost; ``offset``: where the line begins on
    which it fails, if one was found; ``panes``: those of rows that had waited for the map, and are counted
    there already."""

    def __init__(self, text: str, rows: int, offset: int | None) -> None:
        super().__init__(text)
        self.rows = rows
        self.offset = offset
        self.panes: Int64s = np.zeros(0, np.int64)


class MapperPort(Protocol):
    """A fragment's map. With a function, rows have ``_offset`` too, and ``run`` may raise ``MapFailed``;
    ``prepare`` too, where the function may not run at all. It does what the first ``run`` would do first, and
    is called when nothing else waits."""

    def prepare(self) -> None: ...
    def run(self, rows: pa.Table) -> pa.Table: ...
    def close(self) -> None: ...

    def try_out(self, rows: pa.Table) -> None:
        """See rows of this agent, before the flow answers for any. Raises ``MapFailed``."""
        self.run(rows)

    def merged(self, groups: pa.Table) -> pa.Table:
        """The same partial aggregates, in fewer rows where states of aggregates of people's own can be
        merged (``elf.paos``). It never fails: what is not merged is as good."""
        return groups


class FinisherPort(Protocol):
    """Runs a job's final fragment over merged groups, and over those of joined jobs. ``join`` makes panes of
    joined rows from the panes of both streams (``elf.ql.plan.StreamJoin``). ``stage`` makes the groups of
    larger windows from the groups of smaller ones (``elf.ql.plan.Stage``). ``side`` does both for a joined
    job."""

    failure: str = ""
    """Why values that it has made since ``begin`` are NULL (an aggregate of somebody's own has failed), or
    windows have no rows (their graph is too large). Empty: none."""
    failed: frozenset[tuple[int, int]] | None = frozenset()
    """The windows (µs) with such a failure, larger ones may be made of them; None: it is not known which."""

    def begin(self) -> None:
        """Forget how it has failed."""
        self.failure, self.failed = "", frozenset()

    def fail(self, why: str, windows: frozenset[tuple[int, int]] | None) -> None:
        """Remember the first reason, and all windows."""
        self.failure = self.failure or why
        self.failed = None if windows is None or self.failed is None else self.failed | windows

    def run(self, groups: pa.Table, *beside: pa.Table) -> pa.Table: ...
    def join(self, groups: pa.Table) -> pa.Table: ...
    def stage(self, place: int, groups: pa.Table) -> pa.Table: ...
    def side(self, number: int) -> FinisherPort: ...
    def close(self) -> None: ...


class Spill(msgspec.Struct, frozen=True):
    """How much a tree may hold in memory, and where it puts the rest: a store for each flow, by its uid."""

    tree_bytes_max: int
    store: Callable[[str], SpillStore]


class Engine(Protocol):
    """Makes extractors and mappers for one stream."""

    def extractor(self, wanted: Wanted) -> ExtractorPort: ...
    def mapper(self, fragment: Fragment) -> MapperPort: ...
