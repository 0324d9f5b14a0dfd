"""``LIMIT k APPROXIMATE``: every sender of a tree leaves out all but its best groups, and each result row
says by how much it may be too low (the paper's top-k, with a bound).

A table of groups has, for each pane, a *cut*: no group that it lacks had more than that. The cut stands in
the counters, where it adds up when tables are merged. Each row has a *credit*: the cut less what the row
itself may lack. Credits add up like any state, and a row that is missing in a table has none from it; so what
a merged row may lack is always ``cut - credit``. A sender that leaves rows out raises the cut, and all
credits, by the most that one of those rows may have.

Values that are left out are never negative: negative ones are always kept. So a true value lies between the
stated one and that plus its bound.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elf.aggregates import State
from elf.job.assembly.rows import Int64s
from elf.job.counters import counters
from elf.ql.plan import CREDIT, Plan, Top

CUT = "cut"
CUT_STATE = State(CUT, "sum", True)
_EXACT = 2.0**53

Floats = npt.NDArray[np.float64]


def keep_best(groups: pa.Table, counted: pa.Table | None, top: Top) -> tuple[pa.Table, pa.Table | None]:
    """The best groups of each pane, and the counters with the cuts. Without a credit nothing was cut
    before."""
    if not groups.num_rows:
        return groups, counted
    panes = groups["_pane"].to_numpy()
    counted = with_cuts(counted, panes)
    values, credit = _floats(groups, top.state), _floats(groups, CREDIT)
    cut = counted[CUT].to_numpy()
    numbers = counted["_pane"].to_numpy()
    place = places(numbers, panes)
    order = np.lexsort((-values, panes))
    starts = np.searchsorted(panes[order], panes[order])
    rank = np.empty(len(panes), np.int64)
    rank[order] = np.arange(len(panes)) - starts
    kept = (rank < top.rows) | (values < 0)
    most = np.zeros(len(cut))
    np.maximum.at(most, place[~kept], _up(values + (cut[place] - credit))[~kept])
    raised = np.maximum(cut, most)
    credit = credit + (raised - cut)[place]
    if CREDIT in groups.column_names:
        groups = groups.drop_columns([CREDIT])
    groups = groups.append_column(CREDIT, pa.array(credit)).filter(pa.array(kept))
    return groups, counted.set_column(counted.schema.get_field_index(CUT), CUT, pa.array(raised))


def with_cuts(counted: pa.Table | None, panes: Int64s) -> pa.Table:
    """A table of counters with a row for each of these panes and a cut in each row."""
    known = np.empty(0, np.int64) if counted is None else counted["_pane"].to_numpy()
    missing = np.setdiff1d(panes, known)
    parts = [one if CUT in one.column_names else _uncut(one) for one in ([counted] if counted else [])]
    if len(missing):
        parts.append(_uncut(counters(missing)))
    return pa.concat_tables(parts, promote_options="default")  # the panes that are gone are named in few


def places(numbers: Int64s, panes: Int64s) -> Int64s:
    """Where each pane of one table of counters is in another one."""
    by_number = np.argsort(numbers, kind="stable")
    found: Int64s = by_number[np.searchsorted(numbers[by_number], panes)]
    return found


def _uncut(counted: pa.Table) -> pa.Table:
    return counted.append_column(CUT, pa.array(np.zeros(counted.num_rows)))


def with_cut(counted: pa.Table | None) -> pa.Table | None:
    """A table of counters of uncut panes, in the form of those of cut panes."""
    return counted if counted is None or CUT in counted.column_names else _uncut(counted)


def _floats(table: pa.Table, name: str) -> Floats:
    if name not in table.column_names:
        return np.zeros(table.num_rows)
    found: Floats = np.nan_to_num(table[name].cast(pa.float64()).fill_null(0.0).to_numpy())
    return found


def _up(values: Floats) -> Floats:
    """Not less than the exact value: whole numbers are exact up to 2**53, others are rounded up."""
    exact = (np.abs(values) < _EXACT) & (values == np.floor(values))
    raised: Floats = np.where(exact, values, np.nextafter(values * (1 + 2.0**-48), np.inf))
    return raised


def with_bounds(rows: pa.Table, counted: pa.Table | None, plan: Plan) -> pa.Table:
    """Result rows whose last column is their credit, with their error bound in its place."""
    if plan.fragment.keep is None or not rows.num_rows or counted is None:
        return rows
    cuts = _floats(counted, CUT)  # nothing was cut where a pane only names its gaps
    if plan.windows:
        bounds = [rows[name].cast(pa.timestamp("us")).cast(pa.int64()).to_pylist() for name in _BOUNDS]
        panes, pane_us = counted["_pane"].to_numpy(), plan.fragment.pane_us
        spans = list(zip(*bounds, strict=True))
        whole = {
            (a, b): math.fsum(cuts[(panes >= a // pane_us) & (panes < b // pane_us)]) for a, b in set(spans)
        }
        total = np.array([whole[span] for span in spans])
    else:
        total = np.full(rows.num_rows, math.fsum(cuts))
    place = rows.num_columns - 1
    lacking = np.maximum(total - _floats(rows, rows.column_names[place]), 0.0)
    exact = (total < _EXACT) & (total == np.floor(total)) & (lacking == np.floor(lacking))
    lacking = np.where(exact, lacking, lacking + total * 2.0**-40)
    return rows.set_column(place, rows.column_names[place], pa.array(lacking))


_BOUNDS = ("window_start", "window_end")
