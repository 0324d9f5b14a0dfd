"""Partial aggregation objects (PAOs): what an aggregate remembers, and how memories merge.

A PAO is a row of key columns and state columns (paper, section 2.2). Here is how such rows merge; what the
states of each aggregate are is described once, in ``elf.paos.builtin`` (columns) and ``elf.ql.cells`` (more
rows).

Rules:

- merging is commutative and associative, NULL is no value, and over no rows at all a state is its identity (0
  for counts, else NULL), so that the answer does not depend on how rows were split;
- integer sums are exact: DuckDB's HUGEINT travels as decimal128(38, 0); a sum beyond its type raises
  ``SumOverflow``, it never wraps. Float sums are doubles;
- doubles are ordered as in DuckDB and Spark: NaN equals NaN and is the greatest. -0.0 and 0.0 are both 0.0;
- no Python loop over rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from elf.errors import ElfError
from elf.grouping import grouped
from elf.keys import hash_keys

MergeOp = Literal["sum", "min", "max", "own"]
"""``own``: as ``State.by`` says."""
By = Callable[[npt.NDArray[np.int64], pa.Array], pa.Array]
"""The group of each row (from 0, without gaps) and its state → the state of each group."""


class SumOverflow(ElfError):
    """A merged sum does not fit its type: 38 digits, or 63 bits of a count. No honest stream gets there."""


@dataclass(frozen=True)
class State:
    """One state column of the partial aggregates, and how two values of it merge (NULL is no value)."""

    name: str
    merge: MergeOp
    identity_zero: bool = False
    """True for counts: over no rows at all it is 0; otherwise it is NULL."""
    by: By | None = field(default=None, compare=False)
    """How states of an aggregate of one's own merge (``elf.cbt.finals``)."""


SUM_TYPE: Final = pa.decimal128(38, 0)
"""What integer sums are kept in (2**63 rows of 2**63 fit)."""
_AS_THEY_ARE: Final = frozenset({pa.int64(), pa.string(), pa.bool_(), pa.timestamp("us"), SUM_TYPE})
"""Types of which equal values have equal bits, as nearly all keys and most states have."""
SMALL_BYTES: Final = 1 << 20
"""Rows of so few bytes are made one chunk before they are grouped: sixteen take twice as long."""


def merge_tables(tables: Sequence[pa.Table], keys: Sequence[str], states: Sequence[State]) -> pa.Table:
    """Merge partial aggregates: a row for each distinct key, columns ``keys`` then states, in no fixed order.

    With no keys there is one row, or none when there were no rows. Exact; raises ``SumOverflow``. Other
    columns are dropped.
    """
    names = [*keys, *(state.name for state in states)]
    whole = _together([table.select(names) for table in tables], keys, states)
    if whole.num_rows == 0 or (len(tables) == 1 and whole.num_rows == 1):
        return whole
    if (counted := _counted(whole, keys, states)) is not None:
        return counted
    columns = {state.name: ordered(whole[state.name], state.merge) for state in states}
    for key in keys:
        columns[key] = whole[key]
    source = pa.table({name: columns[name] for name in names})
    if not states:
        return grouped(source, keys)
    if any(state.by is not None for state in states):
        return _merged_by(source, whole, keys, states)
    plain = [state for state in states if not may_overflow(state, source[state.name])]
    for state in states:
        if state not in plain:
            index = source.schema.get_field_index(state.name)
            source = source.set_column(index, state.name, widen(source[state.name]))
    found = grouped(source, keys, {state.name: (state.name, state.merge) for state in states})
    merged = [
        restore(column, state, whole.schema.field(state.name).type)
        for state, column in zip(states, found.columns[len(keys) :], strict=True)
    ]
    return pa.table([*found.columns[: len(keys)], *merged], names=names)


def _merged_by(source: pa.Table, whole: pa.Table, keys: Sequence[str], states: Sequence[State]) -> pa.Table:
    """The same where some states merge in ways of their own: by the number of each row's group."""
    rows = whole.select(list(keys)).append_column("row", pa.array(np.arange(whole.num_rows)))
    found = grouped(rows, keys, {"row_list": ("row", "list")})
    lists = found["row_list"].combine_chunks()
    order, sizes = lists.flatten(), np.diff(lists.offsets.to_numpy())
    ids = np.repeat(np.arange(len(sizes)), sizes)
    numbered = source.take(order).append_column("group", pa.array(ids))
    merged = {}
    for state in states:
        if state.by is not None:
            merged[state.name] = state.by(ids, whole[state.name].take(order).combine_chunks())
            continue
        one = numbered.select(["group", state.name])
        merged[state.name] = merge_tables([one], ["group"], [state]).sort_by("group")[state.name]
    return pa.table({**{key: found[key] for key in keys}, **merged})


def _counted(whole: pa.Table, keys: Sequence[str], states: Sequence[State]) -> pa.Table | None:
    """Counts by one number, as small counters are, added up as a matrix: a tenth of what grouping takes. None
    of all others, and where a sum might overflow."""
    columns = [column for column in whole.columns if column.type == pa.int64() and column.num_chunks == 1]
    sums = bool(states) and all(state.merge == "sum" and state.identity_zero for state in states)
    if not sums or len(keys) != 1 or len(columns) < whole.num_columns:
        return None
    if any(column.null_count for column in columns):
        return None
    key, *counts = (column.chunk(0).to_numpy() for column in columns)
    matrix = np.stack(counts, axis=1)
    if max(int(matrix.max()), -int(matrix.min())) * len(key) >= 1 << 63:
        return None
    found, place = np.unique(key, return_inverse=True)
    summed = np.zeros((len(found), len(counts)), dtype=np.int64)
    np.add.at(summed, place, matrix)
    return pa.Table.from_arrays([pa.array(found), *map(pa.array, summed.T.copy())], schema=whole.schema)


def _together(tables: Sequence[pa.Table], keys: Sequence[str], states: Sequence[State]) -> pa.Table:
    """All rows, normalised. Pieces of a pane are many, small and alike: what is done to each costs more than
    their rows do."""
    first = tables[0].schema
    if any(table.schema != first for table in tables):
        return pa.concat_tables(
            [normalise(table, keys, states) for table in tables], promote_options="permissive"
        )
    whole = normalise(pa.concat_tables(tables), keys, states)
    return whole.combine_chunks() if whole.get_total_buffer_size() <= SMALL_BYTES else whole


def identity_row(schema: pa.Schema, states: Sequence[State]) -> pa.Table:
    """The state columns over no rows at all, one row: counts 0, the others NULL of ``schema``'s types."""
    zero = {state.name: 0 if state.identity_zero else None for state in states}
    return pa.table({name: pa.array([value], schema.field(name).type) for name, value in zero.items()})


def normalise(table: pa.Table, keys: Sequence[str], states: Sequence[State]) -> pa.Table:
    """The same rows in the types that merging works with: canonical keys, sums of integers as decimals."""
    summed = {state.name for state in states if state.merge == "sum" and not state.identity_zero}
    for index, name in enumerate(table.column_names):
        column = table.column(index)
        fresh = column
        if column.type in _AS_THEY_ARE and name not in summed:
            continue
        if name in keys:
            fresh = canonical_key(column)
        elif name in summed and pa.types.is_integer(column.type):
            fresh = column.cast(SUM_TYPE)
        elif pa.types.is_floating(column.type):
            fresh = canonical_key(column)
        if fresh is not column:
            table = table.set_column(index, name, fresh)
    return table


def canonical_key(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Equal keys as equal bits: one -0.0, one NaN, no dictionaries, plain strings."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return canonical_key(column.cast(kind.value_type))
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return column.cast(pa.string())
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return column.cast(pa.binary())
    if not pa.types.is_floating(kind):
        return column
    return pa.chunked_array([_canonical_floats(chunk) for chunk in column.chunks], kind)


def _canonical_floats(chunk: pa.Array) -> pa.Array:
    values = float_values(chunk) + 0.0
    values[np.isnan(values)] = np.nan
    return _like(chunk, values)


def float_values(chunk: pa.Array) -> npt.NDArray[np.floating]:
    """The values of a float array, a copy; 0 where it is NULL."""
    return np.array(chunk.fill_null(0.0).to_numpy(zero_copy_only=False))


def _like(chunk: pa.Array, values: npt.NDArray[np.generic]) -> pa.Array:
    """``values`` with the NULLs of ``chunk``."""
    if chunk.null_count == 0:
        return pa.array(values)
    return pa.array(values, mask=chunk.is_null().to_numpy(zero_copy_only=False))


def ordered(column: pa.ChunkedArray, merge: MergeOp) -> pa.ChunkedArray:
    """A column whose Arrow min and max are DuckDB's: doubles as integers in the same order, NaN on top."""
    if merge == "sum" or not pa.types.is_floating(column.type):
        return column
    chunks = []
    for chunk in column.chunks:
        bits = float_values(chunk).astype(np.float64).view(np.int64)
        chunks.append(_like(chunk, bits ^ ((bits >> 63) & np.int64(0x7FFFFFFFFFFFFFFF))))
    return pa.chunked_array(chunks, pa.int64())


def restore(column: pa.ChunkedArray, state: State, kind: pa.DataType) -> pa.ChunkedArray:
    """Back from what was grouped (``ordered``, ``widen``) to the state's own type; raises ``SumOverflow``."""
    if state.merge != "sum" and pa.types.is_floating(kind):
        chunks = []
        for chunk in column.chunks:
            bits = chunk.fill_null(0).to_numpy(zero_copy_only=False)
            bits = bits ^ ((bits >> 63) & np.int64(0x7FFFFFFFFFFFFFFF))
            chunks.append(_like(chunk, bits.view(np.float64)))
        return pa.chunked_array(chunks, pa.float64()).cast(kind)
    if column.type != kind:
        try:
            column = column.cast(kind)
        except pa.ArrowInvalid as error:
            raise SumOverflow(f"the sum {state.name} does not fit {kind}") from error
    return column.fill_null(0) if state.identity_zero and column.null_count else column


def may_overflow(state: State, column: pa.ChunkedArray) -> bool:
    """Could the sum of some of these values leave the type? By a bound: the largest times the rows."""
    kind = column.type
    if state.merge != "sum" or not (pa.types.is_integer(kind) or pa.types.is_decimal128(kind)):
        return False
    if column.num_chunks == 1 and pa.types.is_decimal128(kind):
        chunk = column.chunk(0)
        halves = np.frombuffer(chunk.buffers()[1], np.int64).reshape(-1, 2)
        low, high = halves[chunk.offset : chunk.offset + len(chunk)].T
        if (high == low >> 63).all():  # each fits 64 bits, so that their sum fits 38 digits
            return False
    bounds = pc.min_max(column)
    largest = max(abs(bounds[end].as_py() or 0) for end in ("min", "max"))
    if pa.types.is_integer(kind):
        return bool(largest * len(column) >= 1 << 63)
    return bool(int(largest.scaleb(kind.scale)) * len(column) >= 10**38) if largest else False


def widen(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A type in which the sum of any number of these values is exact."""
    if pa.types.is_integer(column.type):
        return column.cast(pa.decimal128(20, 0)).cast(pa.decimal256(76, 0))
    return column.cast(pa.decimal256(76, column.type.scale))


def split_by_range(groups: pa.Table, keys: Sequence[str], count: int) -> tuple[pa.Table, ...]:
    """The groups in each of ``count`` equal ranges of the 64-bit hash of their keys (``elf.keys``).

    Each range is a flow of its own with the same map (paper, section 2.3; protocol 1.1). Which range a group
    is in depends on the hash of its keys alone, and so is the same on every agent, in every pane, and for all
    rows (``elf.ql.cells``) of the group: the root of a range has complete sums.
    """
    if count == 1:
        return (groups,)
    places = range_places(groups, keys, count)
    return tuple(groups.filter(pa.array(places == np.uint64(place))) for place in range(count))


def range_places(groups: pa.Table, keys: Sequence[str], count: int) -> npt.NDArray[np.uint64]:
    """In which of these ranges each group is."""
    hashes = hash_keys([canonical_key(groups[key]) for key in keys])
    return ((hashes >> np.uint64(32)) * np.uint64(count)) >> np.uint64(32)
