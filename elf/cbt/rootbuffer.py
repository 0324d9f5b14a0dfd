"""The root's buffer: rows as they came, not compressed (paper, section 2.2).

Where keys repeat, each part is combined by itself before it is put here: most rows then come no further. The
last parts show whether that pays. Runs made here keep their hashes, so hashes are computed once.
"""

from __future__ import annotations

import pyarrow as pa

from elf.aggregates import SumOverflow
from elf.cbt.run import Layout, weight
from elf.errors import ElfBug

PART_ROWS = 1 << 16
_FEW_ROWS = 1 << 13
"""Rows that are combined by themselves: so many fit a cache, and fewer are not worth the calls."""

_REPEATING = 0.5
"""Combined to less than this part, the buffer is kept and not emptied."""

_WORTH_A_TRY = 0.8
"""If combining the whole buffer makes it that small, the next part is combined by itself first."""


class RootBuffer:
    """Tables of rows, with their hashes or without. ``weight_max``: more than that is full."""

    def __init__(self, layout: Layout, weight_max: int) -> None:
        self._layout = layout
        self.weight_max = weight_max
        self.tables: list[pa.Table] = []
        self.weight = 0
        self._repeating = True
        self.stuck = False
        """A merge failed, and everything since then was put here, full or not."""

    def __bool__(self) -> bool:
        return bool(self.tables)

    @property
    def rows(self) -> int:
        return sum(int(table.num_rows) for table in self.tables)

    @property
    def nbytes(self) -> int:
        return sum(int(table.nbytes) for table in self.tables)

    @property
    def full(self) -> bool:
        return self.weight > self.weight_max

    def append(self, rows: pa.Table) -> None:
        """Put rows here, as they are."""
        if rows.num_rows:
            self.tables.append(rows)
            self.weight += weight(rows)

    def combine(self, part: pa.Table) -> None:
        """Add rows, with equal keys combined if the last rows have shown that this pays."""
        if not self._repeating or part.num_rows < _FEW_ROWS:
            self.append(part)
            return
        try:
            run = self._layout.sort([part])
        except SumOverflow:
            self.append(part)
            return
        self._repeating = run.num_rows < part.num_rows * _REPEATING
        self.append(run)

    def replace(self, *runs: pa.Table) -> None:
        """Hold these and nothing else."""
        self.tables, self.weight, self.stuck = [], 0, False
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
        self._repeating = run.num_rows < before * _WORTH_A_TRY
        if run.num_rows < before * _REPEATING and weight(run) <= self.weight_max // 2:
            self.replace(run)
            return None
        return run

    def settle(self) -> None:
        """Make it one run."""
        if self.tables:
            self.replace(self.sort())

    def plain(self) -> list[pa.Table]:
        """What is here, without hashes, in today's types."""
        names = self._layout.schema.names
        return [self._layout.current(table).select(names) for table in self.tables]

    def check(self) -> None:
        """Raise ``ElfBug`` if it miscounts, or is full."""
        if self.weight != sum(weight(table) for table in self.tables):
            raise ElfBug("the root's buffer miscounts its weight")
        if self.full and len(self.tables) > 1 and not self.stuck:
            raise ElfBug("the root's buffer is full")
