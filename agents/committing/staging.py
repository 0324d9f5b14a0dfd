"""Later stages at the root of a key range: what it makes of the groups of each pane (``elf.ql.partitions``).

A pane is a window, so the statement of a stage is over groups with their bounds, as a final fragment is. It
sees whole panes, some at a time. For want of memory it sees a half of them, by the hash of the range keys,
and then the other: what a stage puts together is never in both. What it makes depends on nothing
but their groups: where the order of these matters (sums of doubles) they come in that of their keys. So
another leader of the job group, or this one after a crash, makes the same of the same pieces.

Statements are kept, since preparing one costs more than a small pane does. Flows of one query have one, range
by range, and any thread may want it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from elf.aggregates import normalise, split_by_range
from elf.errors import ElfBug, UserError
from elf.job.assembly.windows import SLICE_ROWS
from elf.ql.plan import Fragment, RangeStage

HALVED_MAX: Final = 8
"""How often a pane is cut in halves at most."""
KEPT: Final = 64
"""Statements that are kept; one of a page of SQL takes some 100 KB."""
Stages = Callable[[Fragment, pa.Table], pa.Table]
"""What a fragment's stage makes of groups of panes with the bounds of these."""


class Statement(Protocol):
    def run(self, groups: pa.Table) -> pa.Table: ...
    def close(self) -> None: ...


class RangeStages:
    """The stages of an agent's roots, as ``Stages``; ``prepare``: a statement over ``groups``."""

    def __init__(self, prepare: Callable[[str], Statement]) -> None:
        self._prepare = prepare
        self._kept: OrderedDict[str, tuple[threading.Lock, Statement]] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, fragment: Fragment, groups: pa.Table) -> pa.Table:
        sql = stage_of(fragment).sql
        with self._lock:
            if sql not in self._kept:
                self._kept[sql] = threading.Lock(), self._prepare(sql)
            self._kept.move_to_end(sql)
            lock, statement = self._kept[sql]
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)  # it closes with the last who runs it
        with lock:
            return statement.run(groups)


def stage_of(fragment: Fragment) -> RangeStage:
    if fragment.stage is None:
        raise ElfBug(f"a flow over {fragment.stream} has no stage")
    return fragment.stage


def staged_panes(fragment: Fragment, groups: pa.Table | None, stages: Stages) -> pa.Table | None:
    """What is committed of panes with these groups, ``_pane`` first; None: nothing."""
    if groups is None:
        return None
    stage = stage_of(fragment)
    windows = _windows(fragment, groups, ordered=stage.ordered)
    parts = (part for some in windows for part in _staged(fragment, some, stages, fragment.range[1]))
    made = [normalise(part, stage.keys, stage.states) for part in parts if part.num_rows]
    return pa.concat_tables(made, promote_options="permissive") if made else None


def _staged(fragment: Fragment, groups: pa.Table, stages: Stages, ranges: int) -> Iterator[pa.Table]:
    """In one piece, or in as many as there is memory for; ``ranges``: of how many equal ones these groups are
    one. Raises ``UserError`` where a small part is too much."""
    try:
        yield stages(fragment, groups)
    except UserError:
        if ranges >= fragment.range[1] << HALVED_MAX:
            raise
        for part in split_by_range(groups, fragment.ranged_by, 2 * ranges):
            if part.num_rows:
                yield from _staged(fragment, part, stages, 2 * ranges)


def _windows(fragment: Fragment, groups: pa.Table, *, ordered: bool) -> Iterator[pa.Table]:
    """The groups as those of windows, some whole panes at a time."""
    names = ("_pane", *fragment.keys) if ordered else ("_pane",)
    panes = groups["_pane"].to_numpy()
    if ordered or (panes[1:] < panes[:-1]).any():
        groups = groups.sort_by([(name, "ascending") for name in names]).combine_chunks()
        panes = groups["_pane"].to_numpy()
    at = 0
    while at < len(panes):
        last = panes[min(at + SLICE_ROWS, len(panes)) - 1]
        end = int(np.searchsorted(panes, last, side="right"))
        part, numbers = groups.slice(at, end - at), panes[at:end]
        if fragment.pane_us:
            starts = numbers * fragment.pane_us
            for place, us in enumerate((starts, starts + fragment.pane_us)):
                name = ("window_start", "window_end")[place]
                part = part.add_column(place, name, pa.array(us, pa.timestamp("us")))
        yield part.drop_columns(["_pane"])
        at = end
