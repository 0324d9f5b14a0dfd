"""Combining rows of equal keys that lie side by side: the merge step of the buffer tree, in numpy.

Works on a table sorted by hash (column 0), with key columns and state columns after it. Rows of one key
have one hash, so that they are neighbours, unless another key has the same hash; then, and only then, the
slower exact grouping of ``elf.aggregates`` sorts out who is who. No Python loop over rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from elf.aggregates import State, merge_tables, ordered, restore

Indexes = npt.NDArray[np.int64]

_FEW = 4
"""If no more than one row in so many is to be compared, those rows are copied, not all compared."""

_REDUCE = {"sum": np.add, "min": np.minimum, "max": np.maximum}


def combine_equal(table: pa.Table, keys: Sequence[str], states: Sequence[State]) -> pa.Table:
    """One row a key, order kept. ``table`` has one chunk a column and is sorted by its first column, the
    hash."""
    hashes = table.column(0).to_numpy()
    repeats = np.flatnonzero(hashes[1:] == hashes[:-1]) + 1
    if not len(repeats):
        return table
    if not _all_same_key(table.select(keys), repeats):
        return _combine_collided(table, keys, states, repeats)
    first = np.ones(len(hashes), dtype=np.bool_)
    first[repeats] = False
    starts = np.flatnonzero(first)
    kept = table.select([table.column_names[0], *keys]).take(pa.array(starts))
    for state in states:
        kept = kept.append_column(state.name, _reduce(table[state.name], starts, state))
    return kept


def _all_same_key(keys: pa.Table, rows: Indexes) -> bool:
    """Does each of ``rows`` have the key of the row before it?"""
    if len(rows) * _FEW < keys.num_rows:
        here, before = keys.take(pa.array(rows)), keys.take(pa.array(rows - 1))
        return all(_equal(*pair).all() for pair in zip(here.columns, before.columns, strict=True))
    return all(_equal(column.slice(1), column.slice(0, keys.num_rows - 1))[rows - 1].all() for column in keys)


def _equal(mine: pa.ChunkedArray, other: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Value by value; NULL equals NULL and NaN equals NaN."""
    if pa.types.is_null(mine.type):
        return np.ones(len(mine), dtype=np.bool_)
    if pa.types.is_floating(mine.type):
        mine, other = ordered(mine, "min"), ordered(other, "min")
    same = pc.equal(mine, other)
    if mine.null_count or other.null_count:
        same = pc.or_(pc.fill_null(same, False), pc.and_(mine.is_null(), other.is_null()))
    return np.asarray(same.to_numpy())


def _combine_collided(
    table: pa.Table, keys: Sequence[str], states: Sequence[State], repeats: Indexes
) -> pa.Table:
    """The same when different keys share a hash: rows of repeated hashes are grouped by hash and key."""
    shared = np.zeros(table.num_rows, dtype=np.bool_)
    shared[repeats] = True
    shared[repeats - 1] = True
    name = table.column_names[0]
    grouped = merge_tables([table.filter(pa.array(shared))], [name, *keys], states)
    whole = pa.concat_tables([table.filter(pa.array(~shared)), grouped]).combine_chunks()
    order = np.argsort(whole[name].to_numpy(), kind="stable")
    return whole.take(pa.array(order))


def _reduce(column: pa.ChunkedArray, starts: Indexes, state: State) -> pa.ChunkedArray:
    """Merge each segment ``[starts[i], starts[i + 1])`` of a state column."""
    numbers = _numbers(column, state) if column.null_count == 0 else None
    if numbers is None:
        return _reduce_by_grouping(column, starts, state)
    merged = pa.chunked_array([pa.array(_REDUCE[state.merge].reduceat(numbers, starts))])
    if state.merge != "sum" and not pa.types.is_floating(column.type):
        return merged.cast(pa.int64()).view(column.type) if merged.type != column.type else merged
    return restore(merged, state, column.type)


def _numbers(column: pa.ChunkedArray, state: State) -> npt.NDArray[np.generic] | None:
    """The column as numbers that numpy merges exactly, or None where it can't."""
    kind = column.type
    if state.merge != "sum":
        if pa.types.is_floating(kind) or pa.types.is_int64(kind):
            return np.asarray(ordered(column, state.merge).to_numpy())
        return None
    if pa.types.is_float64(kind):
        return np.asarray(column.to_numpy())
    if pa.types.is_decimal128(kind) and kind.scale == 0:
        try:
            column = column.cast(pa.int64())
        except pa.ArrowInvalid:
            return None
    if not pa.types.is_int64(column.type):
        return None
    values = np.asarray(column.to_numpy())
    largest = max(int(values.max()), -int(values.min()))
    return values if largest * len(values) < 1 << 63 else None


def _reduce_by_grouping(column: pa.ChunkedArray, starts: Indexes, state: State) -> pa.ChunkedArray:
    """The same through Arrow's grouping, for any type, with NULLs."""
    segment = np.zeros(len(column), dtype=np.int64)
    segment[starts[1:]] = 1
    numbered = pa.table({"segment": np.cumsum(segment), state.name: column})
    merged = merge_tables([numbered], ["segment"], [state])
    return merged.take(pa.array(np.argsort(merged["segment"].to_numpy())))[state.name]
