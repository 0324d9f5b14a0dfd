"""Combining rows of equal keys: the merge step of the buffer tree, in numpy.

Rows come with the order of their hashes. Rows of one key have one hash, so they are neighbours in that order,
unless another key has the same hash. Only then the slower exact grouping of ``elf.aggregates`` separates the
keys. Only rows that are kept are copied. There is no Python loop over rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elf import native
from elf.aggregates import State, merge_tables, ordered, restore
from elf.cbt.gather import Bools, Indexes, take, take_column, take_firsts
from elf.keys import UInt64s

HASH = "h"

_REDUCE = {"min": np.minimum, "max": np.maximum}


def combine_equal(
    table: pa.Table, order: Indexes, hashes: UInt64s, keys: Sequence[str], states: Sequence[State]
) -> pa.Table:
    """One row a key, by hash, which becomes the first column.

    ``table`` has one chunk a column, keys then states; ``hashes`` are those of its rows in their ``order``,
    in which they ascend. Raises ``SumOverflow``.
    """
    library = native.library()
    if library is not None:
        begin = native.starts_of(library, [table[key].combine_chunks() for key in keys], order, hashes)
        if begin is not None:
            return _combined(table, order, hashes, begin, keys, states)
    first = np.ones(len(hashes), dtype=np.bool_)
    np.not_equal(hashes[1:], hashes[:-1], out=first[1:])
    if first.all():
        return take(table, order).add_column(0, HASH, pa.array(hashes))
    starts = np.flatnonzero(first)
    columns = [pa.chunked_array([hashes.take(starts)])]
    for key in keys:
        kept = take_firsts(table[key], order, first)
        if kept is None:
            return _combine_collided(
                take(table, order).add_column(0, HASH, pa.array(hashes)), keys, states, first
            )
        columns.append(kept)
    columns += [_reduce(table[state.name], order, starts, state) for state in states]
    return pa.table(columns, names=[HASH, *keys, *(state.name for state in states)])


def _combined(
    table: pa.Table,
    order: Indexes,
    hashes: UInt64s,
    starts: Indexes,
    keys: Sequence[str],
    states: Sequence[State],
) -> pa.Table:
    """The same where it is known where each key begins."""
    if len(starts) == len(order):
        return take(table, order).add_column(0, HASH, pa.array(hashes))
    rows = order.take(starts)
    columns = [pa.chunked_array([hashes.take(starts)])]
    columns += [take_column(table[key], rows) for key in keys]
    columns += [_reduce(table[state.name], order, starts, state) for state in states]
    return pa.table(columns, names=[HASH, *keys, *(state.name for state in states)])


def _combine_collided(
    table: pa.Table, keys: Sequence[str], states: Sequence[State], first: Bools
) -> pa.Table:
    """The same when different keys share a hash: rows of repeated hashes are grouped by hash and key."""
    shared = ~first
    shared[:-1] |= shared[1:]
    name = table.column_names[0]
    grouped = merge_tables([table.filter(pa.array(shared))], [name, *keys], states)
    whole = pa.concat_tables([table.filter(pa.array(~shared)), grouped]).combine_chunks()
    order = np.argsort(whole[name].to_numpy(), kind="stable")
    return whole.take(pa.array(order))


def _reduce(column: pa.ChunkedArray, order: Indexes, starts: Indexes, state: State) -> pa.ChunkedArray:
    """Merge each segment ``[starts[i], starts[i + 1])`` of a state column in this order."""
    if state.by is not None:
        segment = np.zeros(len(order), dtype=np.int64)
        segment[starts[1:]] = 1
        taken = take_column(column, order).combine_chunks()
        return pa.chunked_array([state.by(np.cumsum(segment), taken)])
    numbers = _numbers(column, state) if column.null_count == 0 else None
    if numbers is None:
        return _reduce_by_grouping(take_column(column, order), starts, state)
    library = native.library()
    if library is not None and numbers.dtype == np.int64:
        reduced = native.merged(library, numbers.view(np.int64), state.merge, order, starts)
    elif state.merge != "sum":
        reduced = _REDUCE[state.merge].reduceat(numbers.take(order), starts)
    elif numbers.dtype != np.int64:
        reduced = np.add.reduceat(numbers.take(order), starts)
    else:
        reduced = _sums(numbers.view(np.int64), order, starts)
    merged = pa.chunked_array([pa.array(reduced)])
    if state.merge != "sum" and not pa.types.is_floating(column.type):
        return merged.cast(pa.int64()).view(column.type) if merged.type != column.type else merged
    return restore(merged, state, column.type)


def _sums(numbers: npt.NDArray[np.int64], order: Indexes, starts: Indexes) -> npt.NDArray[np.int64]:
    """Sums of segments. Where all rows have the same number, as raw rows to be counted do, it is that number
    times their rows; else the differences of running sums."""
    if numbers.min() == numbers.max():
        sizes: npt.NDArray[np.int64] = np.diff(starts, append=len(order))
        sizes *= numbers[0]
        return sizes
    running = np.cumsum(numbers.take(order))
    sums: npt.NDArray[np.int64] = np.diff(running[np.append(starts[1:], len(order)) - 1], prepend=0)
    return sums


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
