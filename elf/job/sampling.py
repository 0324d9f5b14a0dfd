"""Rows that are left out over a budget, and how others stand for them (protocol 3.9).

An agent that may not take more than its owner lends it has a flow at a *weight* w, a power of two: of its
rows one in w is mapped, and stands for w. Which ones says a hash of where their lines lie, so no message
agrees on anything, and rows that are in at a weight are in at each smaller one. Sums of what was mapped are
multiplied by the weight before they come to the groups of a pane: then they add up as ever, at any weight
before and after. What is multiplied is whole, or a power of two: nothing is rounded.

What a pane says. All its rows are in ``rows_in``; ``sampled`` of them were not mapped. Whose budget that was,
on which agent, and at which weight is a ``Gap`` with a weight: so it is in the checkpoint, in the snapshot,
in each commit that has the snapshot, and in each window over it. Rows of a pane whose reading waited for a
budget have weight 1: none of them is left out.

Only what has an estimate is sampled (``why_whole``), as with ``SAMPLE`` (``elf.ql.sampling``): COUNT, SUM and
AVG. A ``map`` function stands behind the choice: it gets the rows that are in, and each row that it makes of
one stands for w. Its batches are whatever was read, so what it makes of a row is that row's alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from elf.aggregates import State, restore

if TYPE_CHECKING:
    from elf.ql.plan import Fragment, Plan

Int64s = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def drawn(source: str, offsets: Int64s, weight: int) -> Mask:
    """Which lines of a source are in at this weight, by where they begin."""
    if weight == 1:
        return np.ones(len(offsets), np.bool_)
    seed = int.from_bytes(blake2b(source.encode(), digest_size=8).digest(), "little")
    mixed = offsets.astype(np.uint64) + np.uint64(seed)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):  # splitmix64
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    return np.asarray((mixed & np.uint64(weight - 1)) == 0)


def weighted(groups: pa.Table, states: Sequence[State], weight: int) -> pa.Table:
    """Partial aggregates of rows of which each stands for so many. Raises ``SumOverflow``."""
    for state in states if weight > 1 else ():
        column = groups[state.name]
        kind = column.type
        if pa.types.is_decimal(kind):
            wide = column.cast(pa.decimal256(kind.precision, kind.scale))
            more = pc.multiply(wide, pa.scalar(Decimal(weight), pa.decimal256(len(str(weight)), 0)))
        else:
            more = pc.multiply(column, pa.scalar(weight, kind))
        place = groups.schema.get_field_index(state.name)
        groups = groups.set_column(place, state.name, restore(more, state, kind))
    return groups


def why_whole(fragment: Fragment) -> str:
    """Why no row of a flow is ever left out, in words that follow its name; empty: rows may be."""
    if fragment.owns or fragment.reduce is not None:
        return "has aggregates of one's own, or a reduce function"
    if fragment.count is not None:
        return "has windows of rows"
    if fragment.cells or fragment.keep is not None:
        return "counts what is distinct, or the most frequent"
    if fragment.late_of:
        return "reads late rows"
    if any(state.merge != "sum" for state in fragment.task_states):
        return "has other aggregates than COUNT, SUM and AVG"
    return ""


def why_plan_whole(plan: Plan) -> str:
    """The same of all that a job reads."""
    if plan.join is not None or plan.session_states is not None:
        return "joins streams or jobs" if plan.join is not None else "has sessions"
    return next((why for one in plan.unranged if (why := why_whole(one))), "")
