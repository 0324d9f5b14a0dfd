"""The tally: how many rows a pane had, and how many were late, rejected or otherwise not counted in it.

A table with a row a pane, merged up the tree like any aggregate. Counts that belong to no pane of their own
(a rejected line has no event time; a late row's pane is gone) stand at the pane that was open when they were
met.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elf.aggregates import State

TALLY_COLUMNS: Final = ("rows_in", "late", "rejected", "uncast", "future", "unrostered", "shed")
TALLY_STATES: Final = tuple(State(name, "sum", True) for name in TALLY_COLUMNS)
TALLY_SCHEMA: Final = pa.schema([("_pane", pa.int64()), *((name, pa.int64()) for name in TALLY_COLUMNS)])


def tally(panes: npt.NDArray[np.int64], **counts: int | npt.NDArray[np.int64]) -> pa.Table:
    """A tally of these panes; a count not named is 0, a single number stands for the first pane only."""
    columns = [pa.array(panes, pa.int64())]
    for name in TALLY_COLUMNS:
        values = np.zeros(len(panes), dtype=np.int64)
        given = counts.get(name, 0)
        if isinstance(given, int):
            if len(values):
                values[0] = given
        else:
            values = given
        columns.append(pa.array(values, pa.int64()))
    return pa.Table.from_arrays(columns, schema=TALLY_SCHEMA)
