"""Sessions out of panes (protocol 7.6): pieces of a key, stitched by their first and last event time.

A pane is no longer than the gap, so all rows of a group in a pane are one piece, whichever agent had them:
its states hold the first and the last event time, which merge as a minimum and a maximum. Pieces less than
the gap apart are a chain; a chain is cut at multiples of half of the longest session (``elf.windows.kinds``),
which are ends of panes. A session is complete when everything below its end is committed.

Between two calls ``Sessions`` keeps the rows of incomplete sessions, and the first and last event time of
each chain that may continue. All groups are stitched at once; there is no loop over rows.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from elf.aggregates import merge_tables
from elf.errors import ElfBug
from elf.job.assembly.rows import Int64s, KeyIndex
from elf.job.spec import END_OF_TIME, START_OF_TIME
from elf.ql.plan import Plan
from elf.windows import Calendar, Session


class _Chains(msgspec.Struct, frozen=True):
    """Chains that may continue: keys (a row each), first and last event time."""

    keys: pa.Table
    began: Int64s
    last: Int64s


class Sessions:
    """The sessions of one job."""

    def __init__(self, plan: Plan, kind: Session, calendar: Calendar) -> None:
        self.unit = 1
        if plan.session_states is None:
            raise ElfBug("sessions without the states that hold their ends")
        fragment = plan.fragment
        self._plan = plan
        self._kind = kind
        self._groups = fragment.keys[: len(fragment.keys) - len(fragment.cells)]
        self._ends = plan.session_states
        self._rows: pa.Table | None = None
        self._chains: _Chains | None = None

    def take(self, units: pa.Table) -> None:
        """Take panes; those of an incomplete session came before, under the pane of its first row."""
        self._rows = (
            units
            if self._rows is None
            else pa.concat_tables([self._rows, units], promote_options="permissive")
        )

    def windows(self, first_us: int, last_us: int) -> Iterator[pa.Table]:
        rows, chains = self._rows, self._chains
        if rows is None:
            self._chains = None if chains is None else self._alive(chains, last_us)
            return
        index = KeyIndex(self._groups)
        known = index.ids(chains.keys) if chains is not None else np.empty(0, np.int64)
        ids = index.ids(rows)
        panes, piece = _numbered(ids, rows["_pane"].to_numpy())
        firsts, lasts = _ends_of(rows, self._ends, piece, len(panes))
        groups = np.empty(len(panes), np.int64)
        groups[piece] = ids
        if chains is not None:
            groups = np.concatenate([known, groups])
            firsts = np.concatenate([chains.began, firsts])
            lasts = np.concatenate([chains.last, lasts])
        offset = len(groups) - len(panes)
        order = np.lexsort((np.arange(len(groups)) >= offset, firsts, groups))
        began, tail = self._stitch(groups[order], firsts[order], lasts[order])
        self._chains = self._alive(
            _Chains(_taken(index, groups[order][tail]), began[tail], lasts[order][tail]), last_us
        )
        at = np.empty(len(order), np.int64)
        at[order] = np.arange(len(order))
        yield from self._cut(
            rows, piece, firsts[offset:], lasts[offset:], began[at][offset:], ids, first_us, last_us
        )

    def _stitch(self, groups: Int64s, firsts: Int64s, lasts: Int64s) -> tuple[Int64s, Int64s]:
        """For pieces in order of group and time: when the chain of each began, and the last piece of each
        chain that is the last of its group."""
        fresh = np.ones(len(groups), np.bool_)
        fresh[1:] = (groups[1:] != groups[:-1]) | (firsts[1:] - lasts[:-1] >= self._kind.gap_us)
        began = firsts[np.flatnonzero(fresh)][np.cumsum(fresh) - 1]
        final = np.ones(len(groups), np.bool_)
        final[:-1] = groups[1:] != groups[:-1]
        return began, np.flatnonzero(final)

    def _cut(
        self,
        rows: pa.Table,
        piece: Int64s,
        firsts: Int64s,
        lasts: Int64s,
        began: Int64s,
        ids: Int64s,
        first_us: int,
        last_us: int,
    ) -> Iterator[pa.Table]:
        """Hand out the sessions that end in ``(first_us, last_us]``, keep the rows of later ones."""
        half = self._kind.half_us
        cut = np.maximum(firsts // half + 1, began // half + 2) * half
        groups = np.empty(len(firsts), np.int64)
        groups[piece] = ids
        named, session = _numbered(groups, began, cut)
        starts = np.full(len(named), END_OF_TIME, np.int64)
        ends = np.full(len(named), START_OF_TIME, np.int64)
        np.minimum.at(starts, session, firsts)
        np.maximum.at(ends, session, lasts)
        cuts = np.empty(len(named), np.int64)
        cuts[session] = cut
        ends = np.minimum(ends + self._kind.gap_us, cuts)
        of_row = session[piece]
        keys, states = self._plan.fragment.keys, self._plan.fragment.states
        done = (ends > first_us) & (ends <= last_us)
        later = (ends > last_us)[of_row]
        self._rows = None
        if later.any():
            pane_us = self._plan.fragment.pane_us
            kept = rows.filter(pa.array(later))
            kept = kept.set_column(0, "_pane", pa.array(starts[of_row[later]] // pane_us))
            self._rows = merge_tables([kept], ["_pane", *keys], states)
        wanted = done[of_row]
        if wanted.any():
            found = rows.filter(pa.array(wanted)).set_column(0, "_pane", pa.array(of_row[wanted]))
            merged = merge_tables([found], ["_pane", *keys], states)
            numbers = merged["_pane"].to_numpy()
            ordered = np.lexsort((numbers, ends[numbers], starts[numbers]))
            merged, numbers = merged.take(pa.array(ordered)), numbers[ordered]
            bounds = [pa.array(us[numbers], pa.timestamp("us")) for us in (starts, ends)]
            names = ["window_start", "window_end", *merged.column_names[1:]]
            yield pa.table([*bounds, *merged.columns[1:]], names=names)

    def _alive(self, chains: _Chains, now_us: int) -> _Chains | None:
        """The chains that a later row may still belong to."""
        alive = chains.last + self._kind.gap_us > now_us
        if not alive.any():
            return None
        return _Chains(chains.keys.filter(pa.array(alive)), chains.began[alive], chains.last[alive])


def _numbered(*columns: Int64s) -> tuple[Int64s, Int64s]:
    """(one index of each distinct row, the number of each row)."""
    codes = columns[0]
    for column in columns[1:]:
        _, more = np.unique(column, return_inverse=True)
        codes = codes * (int(more.max(initial=0)) + 1) + more
        _, codes = np.unique(codes, return_inverse=True)
    _, first, number = np.unique(codes, return_index=True, return_inverse=True)
    return first, number


def _ends_of(rows: pa.Table, states: tuple[str, str], piece: Int64s, count: int) -> tuple[Int64s, Int64s]:
    """The first and the last event time of each piece, from its ordinary rows; cells have none."""
    firsts = np.full(count, END_OF_TIME, np.int64)
    lasts = np.full(count, START_OF_TIME, np.int64)
    for state, found, merge in zip(states, (firsts, lasts), (np.minimum, np.maximum), strict=True):
        column = rows[state]
        valid = pc.is_valid(column).to_numpy()
        merge.at(found, piece[valid], column.filter(pa.array(valid)).cast(pa.int64()).to_numpy())
    return firsts, lasts


def _taken(index: KeyIndex, ids: Int64s) -> pa.Table:
    if index.keys is None:
        return pa.table({"_": np.zeros(len(ids), np.int8)})
    return index.keys.take(pa.array(ids))
