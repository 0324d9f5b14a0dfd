"""What a LIMIT will leave out of a window, before the final fragment sees it, and how early that can be left
out (``strategy``)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from elf.aggregates import State
from elf.fields import replace
from elf.job.assembly.numeric import Coder
from elf.job.assembly.rows import Int64s
from elf.ql.plan import Plan, Top, cut_of


def serves(have: Top | None, need: Top | None) -> bool:
    """Whether panes with this cut (None: uncut) have all the rows that are needed."""
    if have is None:
        return True
    return need is not None and replace(have, rows=need.rows) == need and have.rows >= need.rows


def widest(cuts: Sequence[Top | None]) -> Top | None:
    """The cut that serves all of these."""
    first = cuts[0]
    if first is None or any(cut is None or replace(cut, rows=first.rows) != first for cut in cuts):
        return None
    return replace(first, rows=max(cut.rows for cut in cuts if cut is not None))


def cut_panes(table: pa.Table, top: Top, states: Sequence[State]) -> pa.Table:
    """At least the first rows of each pane, and all that tie with the last of them."""
    panes = table["_pane"].to_numpy()
    order = np.argsort(panes, kind="stable")
    return first_rows(table.take(pa.array(order)).combine_chunks(), panes[order], top, states)


def strategy(plan: Plan) -> tuple[str, str]:
    """(How the first rows of a window are found, and why so)."""
    if plan.limit is None:
        return "none", "there is no LIMIT, so all groups are wanted"
    if plan.fragment.stage is not None:
        return "later stages at the roots", "the master gets what these make of their groups, and no groups"
    if plan.top is None:
        return "all keys", (
            "every group goes to the master, since the rows are not in the order of one COUNT, SUM, MIN or "
            "MAX that each group has as one value (or a condition comes before the LIMIT)"
        )
    if plan.fragment.keep is not None:
        return "approximate", (
            f"every agent and inner node sends the best {plan.fragment.keep.rows} groups of a pane; "
            "error_bound says by how much a row's value may be too low"
        )
    if plan.join is not None:
        return "all keys", "rows meet at the master: only there are groups of them"
    if plan.more:
        return "all keys", "a group may have rows in several streams: only the master has its sum"
    if cut_of(plan) is None:
        return "all keys", (
            "a window is several panes: a group that is small in each of them may be large in the window, so "
            "roots leave nothing out (the master leaves out what the LIMIT does before it finishes rows)"
        )
    if plan.fragment.first is not None:
        return "thresholds", (
            f"a window is one pane and its commit is the last word (STRAGGLERS LEAP): agents send the groups "
            f"that may be among the first {plan.top.rows}, by what these were a pane before, and all of them "
            "when the root is not sure that this was enough; exact"
        )
    return "cut at the roots", (
        f"a window is one pane and a root has complete sums, so it sends masters on other nodes its first "
        f"{plan.top.rows} rows and all that tie with the last; exact"
    )


def not_thresholds(plan: Plan) -> str:
    """For a LIMIT whose groups all go up: why agents leave none out (``elf.job.thresholds``). Empty where
    they could not."""
    alone = plan.join is None and not plan.more and plan.fragment.keep is None
    if plan.top is None or not alone or plan.fragment.first is not None:
        return ""
    if cut_of(plan) is None:
        return "not used: what is left out of one pane may matter in a window of several"
    state = next(state for state in plan.fragment.states if state.name == plan.top.state)
    if state.merge != "sum" or not plan.top.descending or plan.top.nulls_first:
        return "not used: they are for ORDER BY COUNT(…) DESC and SUM(…) DESC"
    if plan.fragment.leap:
        return "not used: of early results and functions that reduce groups all groups are needed"
    return (
        "not used: agents that are late revise a window, which needs all groups of all agents; with "
        "STRAGGLERS LEAP a window is not revised, and agents send what may be among its first rows"
    )


def first_rows(table: pa.Table, windows: Int64s, top: Top | None, states: Sequence[State]) -> pa.Table:
    """At least the first ``top.rows`` rows of each window, and all that tie with the last of them.
    ``windows`` is ascending: the window of each row."""
    if top is None or table.num_rows <= top.rows:
        return table
    state = next(state for state in states if state.name == top.state)
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
