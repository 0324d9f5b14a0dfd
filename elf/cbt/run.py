"""Runs: the contents of the tree's buffers.

A run is a table of one chunk a column: ``h`` (the keys' 64-bit hash), ``k0``, ``k1`` … (key columns) and
``s0``, ``s1`` … (state columns), sorted by ``h``, one row a key. Inside the tree columns have these names, so
that any name is allowed outside. Rows in a buffer have the same columns without ``h``: hashes do not compress
(6 bytes a key even as sorted differences) and are quickly computed again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elf import native
from elf.aggregates import State, normalise
from elf.batch import NO_CAST
from elf.cbt.combine import HASH, combine_equal
from elf.errors import ElfBug
from elf.keys import KeyHash, UInt64s

ROW_BYTES = 16
"""Added to the weight of each row, so that a buffer fills up by rows too, however short they are."""


def weight(table: pa.Table) -> int:
    """How much of a buffer a table fills: its bytes, uncompressed, and something for each row."""
    return int(table.nbytes) + ROW_BYTES * int(table.num_rows)


def order_of(values: UInt64s) -> tuple[npt.NDArray[np.int64], UInt64s]:
    """The order of rows by hash, and their hashes in that order.

    Sorting words is three times faster than sorting indexes, so each word gets its row's number in place of
    its low bits. Where hashes that agree in all other bits then come out of order, indexes are sorted after
    all.
    """
    low = np.uint64((1 << max(1, len(values) - 1).bit_length()) - 1)
    words = values & ~low
    words |= np.arange(len(values), dtype=np.uint64)
    words.sort()
    words &= low
    order = words.view(np.int64)
    ordered = values.take(order)
    if (ordered[1:] < ordered[:-1]).any():
        order = np.argsort(values)
        ordered = values.take(order)
    return order, ordered


def hashes(run: pa.Table) -> UInt64s:
    """The hash column of a run."""
    return np.asarray(run[HASH].to_numpy())


class Layout:
    """Names and types of a tree's columns, and what is done to rows of that shape."""

    def __init__(self, keys: Sequence[str], states: Sequence[State], hash_keys: KeyHash) -> None:
        self.keys = tuple(keys)
        self.states = tuple(states)
        self.names = (*self.keys, *(state.name for state in self.states))
        if len(set(self.names)) != len(self.names):
            raise ValueError(f"key and state columns need different names: {', '.join(self.names)}")
        self.inner_keys = tuple(f"k{i}" for i in range(len(self.keys)))
        self.inner_states = tuple(replace(state, name=f"s{i}") for i, state in enumerate(self.states))
        self._hash_keys = hash_keys
        self.forget_types()

    def forget_types(self) -> None:
        """As before the first rows came."""
        inner = (*self.inner_keys, *(state.name for state in self.inner_states))
        self.schema = pa.schema([(name, pa.null()) for name in inner])

    def inward(self, table: pa.Table) -> pa.Table:
        """Rows from outside under the tree's names and types; raises ``ValueError`` if they don't fit."""
        missing = [name for name in self.names if name not in table.column_names]
        if missing:
            raise ValueError(f"no column {', '.join(missing)}")
        table = normalise(table.select(list(self.names)), self.keys, self.states)
        return self.fit(table.rename_columns(self.schema.names))

    def fit(self, table: pa.Table) -> pa.Table:
        """Cast to the types that the tree has seen first; a column of NULLs only takes its type later. Raises
        ``ValueError``, also where Arrow knows no cast (its "not implemented")."""
        if table.schema.types == self.schema.types:
            return table.cast(self.schema) if table.schema != self.schema else table
        pairs = list(zip(self.schema.types, table.schema.types, strict=True))
        for name, (ours, theirs) in zip(self.names, pairs, strict=True):
            if not _alike(ours, theirs):
                raise ValueError(f"column {name} was {ours} before and is {theirs} now")
        types = [theirs if pa.types.is_null(ours) else ours for ours, theirs in pairs]
        schema = pa.schema(list(zip(self.schema.names, types, strict=True)))
        try:
            fitted = table.cast(schema)
        except NO_CAST as error:
            raise ValueError(f"values that do not fit the types of before: {error}") from error
        self.schema = schema
        return fitted

    def current(self, run: pa.Table) -> pa.Table:
        """A run in today's types (its columns of NULLs only may have got one since), hashes or not."""
        schema = self.schema
        if run.column_names[:1] == [HASH]:
            schema = pa.schema([pa.field(HASH, pa.uint64()), *schema])
        return run if run.schema == schema else run.cast(schema)

    def outward(self, rows: pa.Table) -> pa.Table:
        """A run, or rows without hashes, under the names of outside."""
        return rows.select(self.schema.names).rename_columns(list(self.names))

    def sort(self, rows: Sequence[pa.Table]) -> pa.Table:
        """One run, with its hashes, of rows in any order, with theirs or without. Raises ``SumOverflow``."""
        whole = pa.concat_tables([table.select(self.schema.names) for table in rows]).combine_chunks()
        order, values = order_of(self._hashes_of(rows, whole))
        return combine_equal(whole, order, values, self.inner_keys, self.inner_states)

    def _hashes_of(self, rows: Sequence[pa.Table], whole: pa.Table) -> UInt64s:
        """The hashes of some tables that form one whole; known ones are not computed again."""
        if not any(HASH in table.column_names for table in rows):
            return self.hash_rows(whole)
        return np.concatenate([hashes(t) if HASH in t.column_names else self.hash_rows(t) for t in rows])

    def groups(self, capacity: int) -> native.GroupTable | None:
        """A table for groups in memory, with room for so many at first; None where it has no way of merging
        some column, or is not there."""
        library, types = native.library(), self.schema.types
        if library is None:
            return None
        merges = [*(native.KEY for _ in self.keys), *(state.merge for state in self.states)]
        hows = [native.how_of(merge, kind) for merge, kind in zip(merges, types, strict=True)]
        known = [how for how in hows if how is not None]
        return native.GroupTable(library, types, known, capacity) if len(known) == len(hows) else None

    def add(self, groups: native.GroupTable, rows: pa.Table) -> int:
        """Add rows to such a table; how many it has taken. A count that is NULL is not for it."""
        counts = (state.name for state in self.inner_states if state.identity_zero)
        if any(rows[name].null_count for name in counts):
            return 0
        return groups.add([column.chunk(0) for column in rows.columns], self.hash_rows(rows))

    def hash_rows(self, rows: pa.Table) -> UInt64s:
        """The hash of each row's key; without key columns all rows have one key, of hash 0."""
        if not self.inner_keys:
            return np.zeros(rows.num_rows, dtype=np.uint64)
        return self._hash_keys([rows[name] for name in self.inner_keys])

    def check_run(self, run: pa.Table, low: int, high: int) -> None:
        """Raise ``ElfBug`` unless this is a run, without its hashes, and they are all in ``[low, high)``."""
        if run.schema != self.schema:
            raise ElfBug(f"a run has the columns {run.schema.names}")
        if not run.num_rows:
            raise ElfBug("an empty run was stored")
        values = self.hash_rows(run)
        if (values[1:] < values[:-1]).any():
            raise ElfBug("a run is not sorted by hash")
        if int(values[0]) < low or int(values[-1]) >= high:
            raise ElfBug("a run has hashes outside of its node's range")
        order = np.arange(run.num_rows, dtype=np.int64)
        if combine_equal(run, order, values, self.inner_keys, self.inner_states).num_rows != run.num_rows:
            raise ElfBug("a run has a key twice")


def _alike(ours: pa.DataType, theirs: pa.DataType) -> bool:
    """Whether one type can be cast to the other without becoming another key."""
    if ours == theirs or pa.types.is_null(ours) or pa.types.is_null(theirs):
        return True
    families = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_timestamp)
    return any(family(ours) and family(theirs) for family in families)


def split_at(run: pa.Table, lows: Sequence[int]) -> list[pa.Table]:
    """The parts of a run below the first bound, between the bounds, and from the last one on (some may be
    empty)."""
    cuts = np.searchsorted(hashes(run), np.array(lows, dtype=np.uint64)).tolist()
    edges = [0, *cuts, run.num_rows]
    return [run.slice(start, end - start) for start, end in pairwise(edges)]


def split_evenly(run: pa.Table, weight_max: int) -> list[pa.Table]:
    """Cut a run at changes of hash into parts that weigh at most ``weight_max``, or have a single hash."""
    parts: list[pa.Table] = []
    todo = [run]
    while todo:
        part = todo.pop()
        pieces = _cut(part, -(-weight(part) // weight_max)) if weight(part) > weight_max else [part]
        if len(pieces) == 1:
            parts.append(part)
        else:
            todo.extend(reversed(pieces))
    return parts


def _cut(run: pa.Table, pieces: int) -> list[pa.Table]:
    """About so many pieces of like row counts; fewer where hashes repeat, one if there is a single hash."""
    values = hashes(run)
    rows = len(values)
    targets = values[np.unique(np.arange(1, pieces, dtype=np.int64) * rows // pieces)]
    left = np.searchsorted(values, targets, side="left")
    cuts = np.unique(np.where(left > 0, left, np.searchsorted(values, targets, side="right")))
    edges = [0, *cuts[cuts < rows].tolist(), rows]
    return [run.slice(start, end - start) for start, end in pairwise(edges)]
