"""The root's buffer: rows as they came, not compressed (paper, section 2.2).

Where keys repeat, rows are combined as they come, and most come no further: in a table in memory where the
native part is there and can merge each column (``elf.native.table``), else each part by itself. The last
parts show whether that pays. Runs made here, and the table, keep their hashes: they are computed once.
"""

from __future__ import annotations

import pyarrow as pa

from elf import native
from elf.aggregates import SumOverflow
from elf.cbt.combine import HASH
from elf.cbt.run import ROW_BYTES, Layout, weight
from elf.errors import ElfBug

PART_ROWS = 1 << 16
_FEW_ROWS = 1 << 13
"""Rows that are combined by themselves: so many fit a cache, and fewer are not worth the calls."""
_FEW_ROWS_MORE = 1 << 9
"""Rows that are worth a call of the table."""

_REPEATING = 0.5
"""Combined to less than this part, the buffer is kept and not emptied."""

_WORTH_A_TRY = 0.8
"""If combining the whole buffer makes it that small, the next part is combined as it comes."""


class RootBuffer:
    """Tables of rows, with their hashes or without, and a table of groups. ``weight_max``: more than that is
    full."""

    def __init__(self, layout: Layout, weight_max: int) -> None:
        self._layout = layout
        self.weight_max = weight_max
        self._tables: list[pa.Table] = []
        self._tables_weight = self._tables_rows = 0
        self._groups: native.GroupTable | None = None
        self._groups_schema = layout.schema
        self._capacity = native.CAPACITY
        self._merged_rows = 0
        """Rows that the groups have taken in, beside one each."""
        self._repeating = True
        self.stuck = False
        """A merge failed, and everything since then was put here, full or not."""
        self._settled: pa.Schema | None = None
        """It is one run of these types, and nothing has come since."""

    def __bool__(self) -> bool:
        return bool(self._tables) or self._groups is not None

    @property
    def tables(self) -> list[pa.Table]:
        """What is here. It shares the memory of the groups: it is used before anything is added."""
        return self._tables if self._groups is None else [*self._tables, self._grouped(self._groups)]

    @property
    def rows(self) -> int:
        groups = 0 if self._groups is None else self._groups.count
        return groups + self._tables_rows

    @property
    def nbytes(self) -> int:
        groups = 0 if self._groups is None else self._groups.nbytes
        return groups + self._tables_weight - ROW_BYTES * self._tables_rows

    @property
    def weight(self) -> int:
        groups = self._groups
        return self._tables_weight + (0 if groups is None else groups.nbytes + ROW_BYTES * groups.count)

    @property
    def full(self) -> bool:
        return self.weight > self.weight_max

    def append(self, rows: pa.Table) -> None:
        """Put rows here, as they are."""
        if rows.num_rows:
            self._settled = None
            self._tables.append(rows)
            self._tables_weight += weight(rows)
            self._tables_rows += rows.num_rows

    def combine(self, part: pa.Table) -> None:
        """Add rows, with equal keys combined if the last rows have shown that this pays."""
        if not self._repeating or part.num_rows < _FEW_ROWS_MORE:
            self.append(part)
            return
        groups = self._groups_of_today()
        if groups is not None:
            self._add(groups, part.combine_chunks())
        elif part.num_rows < _FEW_ROWS:
            self.append(part)
        else:
            self._combine_alone(part)

    def _combine_alone(self, part: pa.Table) -> None:
        try:
            run = self._layout.sort([part])
        except SumOverflow:
            self.append(part)
            return
        self._repeating = run.num_rows < part.num_rows * _REPEATING
        self.append(run)

    # -- groups ----------------------------------------------------------------------------------------------

    def _groups_of_today(self) -> native.GroupTable | None:
        """The groups, in today's types; None where rows of these cannot be merged in a table."""
        if self._groups is not None and self._groups_schema == self._layout.schema:
            return self._groups
        self._put_groups_by()
        self._groups_schema = self._layout.schema
        self._groups = self._layout.groups(self._capacity)
        return self._groups

    def _add(self, groups: native.GroupTable, part: pa.Table) -> None:
        self._settled = None
        before = groups.count
        taken = self._layout.add(groups, part)
        self._capacity = groups.capacity
        self._merged_rows += taken - (groups.count - before)
        self._repeating = groups.count - before < taken * _WORTH_A_TRY
        self.append(part.slice(taken))

    def _grouped(self, groups: native.GroupTable) -> pa.Table:
        schema = pa.schema([pa.field(HASH, pa.uint64()), *self._groups_schema])
        return pa.Table.from_arrays(groups.arrays(), schema=schema)

    def _put_groups_by(self) -> None:
        """The groups are rows like others from now on."""
        groups, self._groups = self._groups, None
        if groups is not None:
            self.append(self._grouped(groups))

    # -- the whole -------------------------------------------------------------------------------------------

    def replace(self, *runs: pa.Table) -> None:
        """Hold these and nothing else."""
        self._tables, self._tables_weight, self._tables_rows, self.stuck = [], 0, 0, False
        self._groups, self._merged_rows = None, 0
        for run in runs:
            self.append(run)

    def sort(self) -> pa.Table:
        """All rows here as one run, with its hashes. They stay here, whatever happens."""
        return self._layout.sort([self._layout.current(table) for table in self.tables])

    def relieve(self) -> pa.Table | None:
        """Make all rows here one run. It is kept if the buffer is half empty then; else it is returned, as it
        must sink (it stays here until it is replaced)."""
        before = self.rows
        run = self.sort()
        self._repeating = run.num_rows < (before + self._merged_rows) * _WORTH_A_TRY
        self.replace(run)
        return None if run.num_rows < before * _REPEATING and self.weight <= self.weight_max // 2 else run

    def settle(self) -> None:
        """Make it one run, if it is not."""
        if self and self._settled is not self._layout.schema:
            self.replace(self.sort())
            self._settled = self._layout.schema

    def loose(self) -> list[pa.Table] | None:
        """The same as it came, to be kept; None where some of it is in the table of groups."""
        return self.plain() if self._groups is None else None

    def plain(self) -> list[pa.Table]:
        """What is here, without hashes, in today's types."""
        names = self._layout.schema.names
        return [self._layout.current(table).select(names) for table in self.tables]

    def check(self) -> None:
        """Raise ``ElfBug`` if it miscounts, or is full."""
        if self._tables_weight != sum(weight(table) for table in self._tables):
            raise ElfBug("the root's buffer miscounts its weight")
        if self._tables_rows != sum(table.num_rows for table in self._tables):
            raise ElfBug("the root's buffer miscounts its rows")
        for table in self.tables:
            table.validate(full=True)
        if self.full and len(self._tables) + (self._groups is not None) > 1 and not self.stuck:
            raise ElfBug("the root's buffer is full")
