"""How many windows a master makes at a time where their range has no end: those of a finite input, all of
which are complete at once. A portion bounds what is held, and is published before the next one is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from agents.committing.panetables import opened_groups, opened_tallies
from elf.job.contributions import Piece
from elf.job.effects import CommitWindows
from elf.job.spec import END_OF_TIME, START_OF_TIME
from elf.windows import Sliding
from elf.windows.kinds import Int64s

PORTION_ROWS: Final = 1 << 17
"""Rows of a portion and of its status, about; as many as its panes have, where that is more."""


def has_portions(effect: CommitWindows) -> bool:
    """Whether windows are made some at a time: their number is not bounded, and one is like another."""
    plan = effect.spec.plan
    plain = not (plan.stages or plan.join or plan.beside or plan.final)
    endless = effect.last_us >= END_OF_TIME and effect.revised is None and effect.skipped_to is None
    return plain and endless and bool(plan.windows) and all(isinstance(k, Sliding) for k in plan.windows)


def portion(effect: CommitWindows, pieces: Sequence[Piece]) -> CommitWindows:
    """The first of the windows, that are about so many rows; all of them where that is what is left.

    ``pieces``: the panes that they are made of. Sliding windows may have a row of a pane as often as there
    are windows that hold it, and each has no more rows than there are groups: the smaller of both counts.
    """
    groups, tallies = opened_groups(pieces), opened_tallies(pieces)
    rows = _panes(groups)
    panes, inverse = np.unique(np.concatenate([rows, _panes(tallies)]), return_inverse=True)
    if not len(panes):
        return effect
    weights = 1 + np.bincount(inverse[: len(rows)], minlength=len(panes))
    firsts, stops, weights, each = _held(effect, panes, weights)
    aim = max(PORTION_ROWS, len(rows))
    if not len(firsts) or float((weights * ((stops - firsts) // each)).sum()) <= aim:
        return effect
    largest = 1 + _groups_max(effect, groups, len(rows))
    by_rows = _reached(firsts, stops, weights / each, aim)
    by_windows = _reached(firsts, _apart(firsts, stops, each), largest / each, aim)
    last = effect.calendar.last_end(max(by_rows, by_windows, int(firsts.min())))
    if last >= int(stops.max() - each.min()):
        return effect
    return replace(effect, last_us=last, final=False, portion=True)


def _panes(tables: Sequence[pa.Table]) -> Int64s:
    columns = [table["_pane"].to_numpy() for table in tables]
    return np.concatenate([np.empty(0, np.int64), *columns]).astype(np.int64)


def _held(effect: CommitWindows, panes: Int64s, weights: Int64s) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Of each pane and kind: when the first window ends that holds the pane and is to be made, a step after
    the last one does, the pane's weight, and the step."""
    starts = panes * effect.calendar.pane_us
    found = []
    for kind in effect.calendar.kinds:
        if isinstance(kind, Sliding):
            first, stop = kind.ends_by(starts) + kind.step_us, kind.last_end(starts) + kind.step_us
            if effect.first_us > START_OF_TIME:
                first = np.maximum(first, kind.ends_by(effect.first_us) + kind.step_us)
            found.append(np.stack([first, stop, weights, np.full(len(panes), kind.step_us)]))
    first, stop, weights, each = np.concatenate(found, axis=1)
    wanted = stop > first
    return first[wanted], stop[wanted], weights[wanted], each[wanted]


def _apart(firsts: Int64s, stops: Int64s, each: Int64s) -> Int64s:
    """Where each stretch ends so that no window of a step is in two of them."""
    order = np.lexsort((firsts, each))
    after = np.concatenate([firsts[order][1:], [END_OF_TIME]])
    after[np.concatenate([np.diff(each[order]) != 0, [True]])] = END_OF_TIME
    found = stops.copy()
    found[order] = np.minimum(stops[order], after)
    return found


def _reached(firsts: Int64s, stops: Int64s, rates: np.ndarray, aim: int) -> int:
    """The time by which stretches that bring so much a µs have brought ``aim``."""
    times = np.concatenate([firsts, stops])
    change = np.concatenate([rates, -rates])
    order = np.argsort(times, kind="stable")
    times, rate = times[order], np.cumsum(change[order])
    brought = np.concatenate([[0.0], np.cumsum(rate[:-1] * np.diff(times))])
    at = int(np.searchsorted(brought, aim))
    if at >= len(times):
        return int(times[-1])
    more = (aim - brought[at - 1]) / rate[at - 1] if at else 0.0
    return int(times[at - 1] + more) if at else int(times[0])


def _groups_max(effect: CommitWindows, groups: Sequence[pa.Table], rows: int) -> int:
    """The most rows that a window can have."""
    plan = effect.spec.plan
    keys = list(plan.made.keys)
    if not keys:
        return 1
    tables = [table.select(keys) for table in groups if table.num_rows]
    distinct = (
        pa.concat_tables(tables, promote_options="permissive").group_by(keys).aggregate([]).num_rows
        if tables
        else 0
    )
    return min(rows, distinct, plan.top.rows if plan.top is not None else distinct)
