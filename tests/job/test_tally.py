"""Tallies add up as any aggregate does."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from elf.aggregates import merge_tables
from elf.job.tally import TALLY_SCHEMA, TALLY_STATES, Tallies, tally


def test_tallies_are_what_merge_tables_makes() -> None:
    rng = np.random.default_rng(1)
    for count in (1, 2, 7, 100):
        tables, tallies = [], Tallies()
        for _ in range(count):
            panes = np.unique(rng.integers(-3, 9, size=rng.integers(1, 6)))
            rows = rng.integers(0, 1 << 40, size=len(panes))
            late = int(rng.integers(0, 5))
            tables.append(tally(panes, rows_in=rows, late=late, shed=rows[::-1].copy()))
            tallies.add(panes, rows_in=rows, late=late, shed=rows[::-1].copy())
        whole = tallies.table()
        assert whole is not None
        assert whole.schema == TALLY_SCHEMA
        expected = merge_tables(tables, ("_pane",), TALLY_STATES).sort_by("_pane")
        assert whole.to_pylist() == expected.to_pylist()
        assert Tallies(whole).table() == whole
        assert tallies.total("shed") == sum(expected["shed"].to_pylist())
        below, rest = tallies.take_below(3), tallies.table()
        parts = [part for part in (below, rest) if part is not None]
        assert pa.concat_tables(parts).combine_chunks() == whole
        assert tallies.take_below(-3) is None
