"""What a LIMIT will leave out of a window, before the final fragment sees it."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa

from elf.job.lanes import Coder
from elf.job.rows import Int64s
from elf.ql.plan import Plan


def first_rows(table: pa.Table, windows: Int64s, plan: Plan) -> pa.Table:
    """At least the first ``top.rows`` rows of each window, and all that tie with the last of them.
    ``windows`` is ascending: which window a row is of.
    """
    top = plan.top
    if top is None or table.num_rows <= top.rows:
        return table
    state = next(state for state in plan.fragment.states if state.name == top.state)
    coder, column = Coder(state, 1), table[top.state]
    coder.admit(column)
    arrays = coder.encode(column)
    rank = coder.rank(arrays)
    if rank is None:
        return table
    valid = np.ones(len(windows), np.bool_) if state.identity_zero else arrays[0] != 0
    rank = rank if top.descending else ~rank
    wanted = np.zeros(len(windows), np.bool_)
    edges = [0, *(np.flatnonzero(np.diff(windows)) + 1).tolist(), len(windows)]
    for begin, end in itertools.pairwise(edges):
        known = np.flatnonzero(valid[begin:end])
        rows = slice(begin, end)
        if len(known) <= top.rows:
            wanted[rows] = True
            continue
        ranks = rank[rows]
        bound = np.partition(ranks[known], -top.rows)[-top.rows]
        wanted[rows] = valid[rows] & (ranks >= bound)
        if top.nulls_first:
            wanted[rows] |= ~valid[rows]
    return table if wanted.all() else table.filter(pa.array(wanted))
