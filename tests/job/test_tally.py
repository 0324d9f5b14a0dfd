"""Tallies add up as any aggregate does."""

from __future__ import annotations

import numpy as np

from elf.aggregates import merge_tables
from elf.job.tally import TALLY_SCHEMA, TALLY_STATES, merged, tally


def test_merged_is_what_merge_tables_makes() -> None:
    rng = np.random.default_rng(1)
    for count in (1, 2, 7):
        tallies = []
        for _ in range(count):
            panes = np.unique(rng.integers(-3, 9, size=rng.integers(1, 6)))
            rows = rng.integers(0, 1 << 40, size=len(panes))
            tallies.append(tally(panes, rows_in=rows, late=int(rng.integers(0, 5)), shed=rows[::-1].copy()))
        whole = merged(tallies)
        assert whole.schema == TALLY_SCHEMA
        expected = merge_tables(tallies, ("_pane",), TALLY_STATES).sort_by("_pane")
        assert whole.to_pylist() == expected.to_pylist()
