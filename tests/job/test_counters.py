"""Counters add up as any aggregate does."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from elf.aggregates import merge_tables
from elf.job.counters import COUNTER_SCHEMA, COUNTER_STATES, PaneCounters, counters


def test_tallies_are_what_merge_tables_makes() -> None:
    rng = np.random.default_rng(1)
    for count in (1, 2, 7, 100):
        tables, counter_tables = [], PaneCounters()
        for _ in range(count):
            panes = np.unique(rng.integers(-3, 9, size=rng.integers(1, 6)))
            rows = rng.integers(0, 1 << 40, size=len(panes))
            late = int(rng.integers(0, 5))
            tables.append(counters(panes, rows_in=rows, late=late, shed=rows[::-1].copy()))
            counter_tables.add(panes, rows_in=rows, late=late, shed=rows[::-1].copy())
        whole = counter_tables.table()
        assert whole is not None
        assert whole.schema == COUNTER_SCHEMA
        expected = merge_tables(tables, ("_pane",), COUNTER_STATES).sort_by("_pane")
        assert whole.to_pylist() == expected.to_pylist()
        assert PaneCounters(whole).table() == whole
        assert counter_tables.total("shed") == sum(expected["shed"].to_pylist())
        below, rest = counter_tables.take_below(3), counter_tables.table()
        parts = [part for part in (below, rest) if part is not None]
        assert pa.concat_tables(parts).combine_chunks() == whole
        assert counter_tables.take_below(-3) is None
