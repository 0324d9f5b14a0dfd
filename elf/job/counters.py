"""The counters: how many rows a pane had, and how many were late, rejected or otherwise not counted in it.

They are a table with one row a pane, merged up the tree like any aggregate. Counts that belong to no pane (a
rejected line has no event time; a late row's pane is gone) stand at the pane that was open when they were
met. Before any pane was open they stand at ``START_OF_TIME``, until they are reported with the first pane
that is opened. A worker adds up its own as numbers (``PaneCounters``), in a tenth of the time that small
tables take.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elf.aggregates import State
from elf.job.gaps import Gap, gaps_of, with_gaps
from elf.job.spec import END_OF_TIME, START_OF_TIME

COUNTER_COLUMNS: Final = (
    *("rows_in", "late", "rejected", "uncast", "future", "unrostered", "shed", "leapt"),
    *("archived", "sampled"),
)
"""``archived``: how many of ``rows_in`` were read from archives (``elf.job.past``); ``sampled``: how many of
them were left out over a budget, others stand for them (``elf.job.sampling``)."""
COUNTER_STATES: Final = tuple(State(name, "sum", True) for name in COUNTER_COLUMNS)
UNREDUCED: Final = State("unreduced", "sum", True)
"""One more state of committed panes: whether the flow's reduce function has failed on this one."""
COUNTER_SCHEMA: Final = pa.schema([("_pane", pa.int64()), *((name, pa.int64()) for name in COUNTER_COLUMNS)])

Int64s = npt.NDArray[np.int64]

_WAITING_MAX: Final = 64
GAP_PANES_MAX: Final = 1 << 16
"""How many panes one gap is marked in, the last ones. Earlier panes are long sealed."""


def counters(panes: Int64s, **counts: int | Int64s) -> pa.Table:
    """A table of counters of these panes; a count not named is 0, a single number stands for the first pane
    only."""
    return _table(panes, _matrix(panes, counts))


def with_the_first(tables: Sequence[pa.Table]) -> list[pa.Table]:
    """Counters of several agents. What was met before any pane was open stands at the first pane that one of
    them has opened; it is left out if there is none."""
    opened = [panes[panes > START_OF_TIME] for table in tables if len(panes := table["_pane"].to_numpy())]
    first = min((int(panes.min()) for panes in opened if len(panes)), default=None)
    found = []
    for table in tables:
        panes = table["_pane"].to_numpy()
        if first is None:
            table = table.filter(pa.array(panes > START_OF_TIME))
        elif (panes == START_OF_TIME).any():
            place = table.schema.get_field_index("_pane")
            panes = np.where(panes == START_OF_TIME, first, panes)
            table = table.set_column(place, "_pane", pa.array(panes))
        found.append(table)
    return found


def completed(table: pa.Table) -> pa.Table:
    """A table of counters of an older agent, or of an earlier life, with 0 for what was not counted then."""
    there = table.column_names
    for name in COUNTER_COLUMNS:
        if name not in there:
            table = table.append_column(name, pa.array(np.zeros(table.num_rows, dtype=np.int64)))
    return table


class PaneCounters:
    """What one worker has counted and not yet reported, by pane. A peer could invent counts that overflow;
    these are our own."""

    def __init__(self, table: pa.Table | None = None) -> None:
        self._parts: list[tuple[Int64s, Int64s]] = []
        self._gaps: list[tuple[int, int, Gap]] = []
        """(first pane, end, gap)"""
        if table is not None:
            self.include(table)

    def __bool__(self) -> bool:
        return bool(self._parts or self._gaps)

    def include(self, table: pa.Table) -> None:
        """Add a table of counters, with the gaps that it has."""
        if not table.num_rows:
            return
        whole = completed(table)
        counts = np.stack([whole[name].to_numpy() for name in COUNTER_COLUMNS], axis=1)
        self._parts.append((whole["_pane"].to_numpy(), counts))
        for pane, here in gaps_of([table]).items():
            for gap in here:
                self.mark(pane, pane, gap)

    def mark(self, first: int, last: int, gap: Gap) -> None:
        """The panes from first to last lack rows. Spans of one gap that meet become one: a pane has each gap
        once, however often it is marked."""
        start, end = max(first, last + 1 - GAP_PANES_MAX), last + 1
        apart = []
        for one in self._gaps:
            if one[2] == gap and one[0] <= end and start <= one[1]:
                start, end = min(start, one[0]), max(end, one[1])
            else:
                apart.append(one)
        self._gaps = [*apart, (start, end, gap)]

    def emptied(self) -> PaneCounters:
        """Counters that start from nothing, and have the same gaps."""
        fresh = PaneCounters()
        fresh._gaps = [marked for marked in self._gaps if not marked[2].weight]
        return fresh

    def add(self, panes: Int64s, **counts: int | Int64s) -> None:
        """As for ``counters``."""
        if len(panes):
            self._parts.append((panes, _matrix(panes, counts)))
        if len(self._parts) > _WAITING_MAX:
            self._merge()

    def total(self, name: str) -> int:
        """One count, over all panes."""
        place = COUNTER_COLUMNS.index(name)
        return sum(int(counts[:, place].sum()) for _, counts in self._parts)

    def totals(self) -> dict[str, int]:
        """All counts, over all panes."""
        return {name: self.total(name) for name in COUNTER_COLUMNS}

    def take_below(self, pane: int) -> pa.Table | None:
        """Remove and return what belongs to panes below this one, by pane; None if there is nothing. What was
        met before any pane was open stands at the last of them, unless that is the end of time."""
        if not self:
            return None
        gaps = self._marked(pane)
        if not self._parts:
            return None
        panes, counts = _with_the_first(*self._merge())
        if panes[0] == START_OF_TIME and pane < END_OF_TIME:
            panes = np.array([pane - 1], dtype=np.int64)
        place = int(np.searchsorted(panes, pane))
        self._parts = [(panes[place:], counts[place:])] if place < len(panes) else []
        self._gaps = [(max(first, pane), end, gap) for first, end, gap in self._gaps if end > pane]
        return with_gaps(_table(panes[:place], counts[:place]), gaps) if place else None

    def table(self) -> pa.Table | None:
        """All counters, by pane; None if there is nothing."""
        if not self:
            return None
        gaps = self._marked(END_OF_TIME)
        return with_gaps(_table(*_with_the_first(*self._merge())), gaps)

    def _marked(self, below: int) -> dict[int, set[Gap]]:
        """What panes below this one lack. These panes have counts from now on."""
        found: dict[int, set[Gap]] = {}
        for first, end, gap in self._gaps:
            for pane in range(first, min(end, below)):
                found.setdefault(pane, set()).add(gap)
        self.add(np.array(sorted(found), dtype=np.int64), rows_in=0)
        return found

    def _merge(self) -> tuple[Int64s, Int64s]:
        if len(self._parts) > 1:
            every = np.concatenate([panes for panes, _ in self._parts])
            panes, place = np.unique(every, return_inverse=True)
            counts = np.zeros((len(panes), len(COUNTER_COLUMNS)), dtype=np.int64)
            np.add.at(counts, place, np.concatenate([counts for _, counts in self._parts]))
            self._parts = [(panes, counts)]
        return self._parts[0]


def _with_the_first(panes: Int64s, counts: Int64s) -> tuple[Int64s, Int64s]:
    """What was met before any pane was open, at the first open pane."""
    if len(panes) == 1 or panes[0] > START_OF_TIME:
        return panes, counts
    return panes[1:], np.concatenate([counts[:1] + counts[1:2], counts[2:]])


def _matrix(panes: Int64s, counts: dict[str, int | Int64s]) -> Int64s:
    """One row for each pane, one column for each count."""
    matrix = np.zeros((len(panes), len(COUNTER_COLUMNS)), dtype=np.int64)
    if len(panes):
        for name, given in counts.items():
            matrix[: 1 if isinstance(given, int) else len(panes), COUNTER_COLUMNS.index(name)] = given
    return matrix


def _table(panes: Int64s, counts: Int64s) -> pa.Table:
    rows, whole = len(panes), pa.array(np.concatenate([panes, *counts.T]))  # a third of an array each
    columns = [whole.slice(place * rows, rows) for place in range(len(COUNTER_SCHEMA))]
    return pa.Table.from_arrays(columns, schema=COUNTER_SCHEMA)
