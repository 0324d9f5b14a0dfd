"""The exact first rows of a pane without all of its groups: what agents leave out, and how the root knows
that none of it mattered.

A job that wants ``ORDER BY COUNT(…) DESC LIMIT k`` of windows that are one pane reads flows whose commits are
those first rows (``Fragment.first``). From its last commit, a root tells all agents a *threshold*:

    watched   the keys (hashes) of the first ``WATCHED`` k groups
    least     half of the k-th value, divided by the number of agents

Of a later pane, an agent sends the groups that are watched or have at least so much. It also sends how much
the greatest of the others has, its *cut*, and by which threshold. The root adds up. A group is exact if all
agents watch it or have sent it (*seen* as often as groups were *left* out); any other has at most its sum
plus all cuts. If the k-th of the exact groups is above that bound for all others, those are the first rows
and what they tie with, exactly, in one round. If not, the root is *unsure*: it asks all agents for the whole
pane, and tells another threshold. So two rounds are the worst case, where TPUT (Cao and Wang, 2004) always
takes three. That what was first will soon be again is from Babcock and Olston, Distributed Top-K Monitoring
(2003).

The basis of exactly-once does not change: the whole snapshot is kept, and sent on request. An excerpt is
another form of it, and nothing durable depends on a threshold. A commit is the last word on its panes
(``STRAGGLERS LEAP``), as nothing can be added to the groups that were left out.

A new threshold is told when the agents' present one would not do about as well, and again after ``RENEWED``
commits, for agents that have just come. After panes of which it was unsure, a root asks for all groups of the
next ones: the more often that happens, the longer (``RESTED`` panes at most).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elf.aggregates import State, canonical_key
from elf.errors import ElfError
from elf.job.approximate import CUT, CUT_STATE, places, with_cuts
from elf.job.assembly.rows import Int64s
from elf.job.snapshots import Threshold
from elf.job.tops import cut_panes
from elf.keys import UInt64s, hash_keys
from elf.ql.plan import Fragment, Top

LEFT, LOWEST, HIGHEST, SEEN = "left", "lowest", "highest", "seen"
LEFT_STATES: Final = (CUT_STATE, State(LEFT, "sum", True), State(LOWEST, "min"), State(HIGHEST, "max"))
"""Of a table of counters: the sum of the cuts, how many agents have left groups out, and the lowest and the
highest number of their thresholds."""
SEEN_STATE: Final = State(SEEN, "sum", True)
"""Of a group: how many of these agents have sent it."""
WATCHED: Final = 4
WORTH: Final = 0.75
"""Agents send all groups unless an excerpt has fewer than this share of them."""
_MARGIN: Final = 2.0**-40
"""Cuts are sums of doubles, in any order."""
RENEWED: Final = 64
RESTED: Final = 64
TOLD: Final = 4
CALM: Final = 16
"""After so many commits without being unsure, past ones no longer count."""

Floats = npt.NDArray[np.float64]


class Unsure(ElfError):
    """Groups that were left out may be among the first rows."""


def excerpt(
    groups: pa.Table, counted: pa.Table | None, threshold: Threshold, fragment: Fragment
) -> tuple[pa.Table, pa.Table] | None:
    """(the groups that an agent sends of its panes, the counters with cuts); None if all groups should go."""
    values = _values(groups, _first(fragment))
    kept = (values >= threshold.least) | (values < 0)
    kept |= np.isin(_hashes(groups, fragment), threshold.hashes)
    if kept.sum() >= WORTH * len(kept):
        return None
    panes = groups["_pane"].to_numpy()
    counted = with_cuts(counted, panes)
    numbers = counted["_pane"].to_numpy()
    place = places(numbers, panes)
    cut, left = np.zeros(len(numbers)), np.zeros(len(numbers), np.int64)
    np.maximum.at(cut, place[~kept], values[~kept])
    left[place[~kept]] = 1
    groups = groups.append_column(SEEN, pa.array(left[place])).filter(pa.array(kept))
    return groups, _marked(counted, cut, left, threshold.number)


def seen(groups: pa.Table | None) -> pa.Table | None:
    """Groups of which none were left out, in the form of those of which some were."""
    if groups is None or SEEN in groups.column_names:
        return groups
    return groups.append_column(SEEN, pa.array(np.zeros(groups.num_rows, np.int64)))


def left(counted: pa.Table | None) -> pa.Table | None:
    """The same for their counters."""
    if counted is None or LEFT in counted.column_names:
        return counted
    zeros = np.zeros(counted.num_rows)
    return _marked(counted, zeros, zeros.astype(np.int64), 0)


def _marked(counted: pa.Table, cut: Floats, left: Int64s, number: int) -> pa.Table:
    numbers = pa.array(np.full(len(left), number), mask=left == 0)
    for name, column in ((CUT, pa.array(cut)), (LEFT, pa.array(left)), (LOWEST, numbers), (HIGHEST, numbers)):
        index = counted.schema.get_field_index(name)
        add = counted.append_column if index < 0 else partial(counted.set_column, index)
        counted = add(name, column)
    return counted


def first_rows(
    groups: pa.Table, counted: pa.Table | None, fragment: Fragment, told: Sequence[Threshold] = ()
) -> tuple[pa.Table, pa.Table | None]:
    """(the first rows of each pane and all that tie with the last of them, the counters) as they are
    committed. ``told``: the last thresholds. Raises ``Unsure``."""
    if SEEN in groups.column_names:
        if counted is not None and LEFT in counted.column_names:
            _check(groups, counted, fragment, {one.number: one for one in told})
        groups = groups.drop_columns([SEEN])
    if counted is not None and LEFT in counted.column_names:
        counted = counted.drop_columns([state.name for state in LEFT_STATES])
    return cut_panes(groups, _first(fragment), fragment.states), counted


def _check(groups: pa.Table, counted: pa.Table, fragment: Fragment, told: Mapping[int, Threshold]) -> None:
    top = _first(fragment)
    values, panes, seen_by = _values(groups, top), groups["_pane"].to_numpy(), groups[SEEN].to_numpy()
    hashes = _hashes(groups, fragment)
    columns = ("_pane", CUT, LEFT, LOWEST, HIGHEST)
    for pane, cut, agents, low, high in zip(*(counted[name].to_pylist() for name in columns), strict=True):
        if not agents:
            continue
        here = panes == pane
        exact = here & (seen_by == agents)
        if low == high and low in told:
            exact |= here & np.isin(hashes, told[low].hashes)
        rest = here & ~exact
        most = (max(values[rest].max(), 0.0) if rest.any() else 0.0) + cut
        known = values[exact]
        if len(known) < top.rows or _nth(known, top.rows) <= most * (1 + _MARGIN):
            raise Unsure(f"what was left out of pane {pane} may be among its first {top.rows} rows")


def _nth(values: Floats, rows: int) -> float:
    """The least of so many of the greatest."""
    return float(np.partition(values, -rows)[-rows])


def threshold_of(groups: pa.Table, agents: int, fragment: Fragment) -> Threshold | None:
    """What ``agents`` may leave out from now on, judging by all groups of the last of these panes; None if
    that would not help."""
    top, panes = _first(fragment), groups["_pane"].to_numpy()
    last = groups.filter(pa.array(panes == panes.max())) if len(panes) else groups
    if last.num_rows <= WATCHED * top.rows:
        return None
    values = _values(last, top)
    order = np.argsort(-values, kind="stable")[: WATCHED * top.rows]
    least = float(values[order[top.rows - 1]]) / (2 * max(agents, 1))
    counts = next(state for state in fragment.states if state.name == top.state).identity_zero
    if not float(counts) < least < np.inf:
        return None
    return Threshold(least, _hashes(last, fragment)[order].astype("<u8").tobytes())


def _first(fragment: Fragment) -> Top:
    assert fragment.first is not None
    return fragment.first


def _values(groups: pa.Table, top: Top) -> Floats:
    """The values by which rows are ordered: NULL is 0, and NaN is above all."""
    column = groups[top.state].cast(pa.float64()).fill_null(0.0).to_numpy()
    return np.where(np.isnan(column), np.inf, column)


def _hashes(groups: pa.Table, fragment: Fragment) -> UInt64s:
    return hash_keys([canonical_key(groups[key]) for key in fragment.group_keys])


class Asking:
    """What the agents of one flow have been told."""

    def __init__(self) -> None:
        self._told: Threshold | None = None
        self.last: tuple[Threshold, ...] = ()
        """The thresholds by which agents may still leave something out."""
        self._age = 0
        self._rest = self._resting = 0

    def committed(self, threshold: Threshold | None) -> Threshold | None:
        """Panes are committed, and this threshold (None: nothing) suits the next ones: returns what to tell,
        if it is news."""
        if self._resting:
            self._resting -= 1
            return None
        self._age += 1
        self._rest = 0 if self._age >= CALM else self._rest
        told = self._told
        if threshold is None or (told is not None and told.serves(threshold) and self._age % RENEWED):
            return None
        self._told = threshold
        self.last = (*self.last[1 - TOLD :], threshold)
        return threshold

    def unsure(self) -> bool:
        """The threshold was not enough: returns whether to tell the agents so."""
        self._age, self._resting, self._rest = 0, self._rest, min(RESTED, 2 * self._rest + 1)
        told, self._told = self._told, None
        return told is not None
