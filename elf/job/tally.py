"""The tally: how many rows a pane had, and how many were late, rejected or otherwise not counted in it.

A table with a row a pane, merged up the tree like any aggregate. Counts that belong to no pane of their own
(a rejected line has no event time; a late row's pane is gone) stand at the pane that was open when they were
met.
"""

from __future__ import annotations

from collections.abc import Sequence
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


def merged(tallies: Sequence[pa.Table]) -> pa.Table:
    """One row a pane, by pane: what ``merge_tables`` makes of tallies, in a tenth of its time when they are
    small. Only for tallies of our own: counts that a peer invents could overflow."""
    columns = [np.concatenate([one[name].to_numpy() for one in tallies]) for name in TALLY_SCHEMA.names]
    panes, place = np.unique(columns[0], return_inverse=True)
    counts = {}
    for name, values in zip(TALLY_COLUMNS, columns[1:], strict=True):
        counts[name] = np.zeros(len(panes), dtype=np.int64)
        if values.any():
            np.add.at(counts[name], place, values)
    return tally(panes, **counts)
