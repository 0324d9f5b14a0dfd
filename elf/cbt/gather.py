"""Gathering rows of columns of one chunk, quickly, into columns of one chunk.

Copying texts one by one costs several times what copying numbers does. So texts that are all equally long, as
ids, digests and dates are, are copied as eight-byte words, one word of all rows at a time. The last word ends
where the text does, so that two words may overlap; the one word of a shorter text ends in zeros.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from elf import native
from elf.aggregates import ordered
from elf.keys import UInt64s, even_values, word_at

Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Indexes = npt.NDArray[np.int64]

_SHORT = 64
"""Bytes of a text up to which copying texts one by one costs more than the bytes do."""


def take(table: pa.Table, rows: Indexes) -> pa.Table:
    """Some rows of a table."""
    return pa.Table.from_arrays([take_column(column, rows) for column in table.columns], schema=table.schema)


def take_column(column: pa.ChunkedArray, rows: Indexes) -> pa.ChunkedArray:
    """Some rows of a column."""
    library = native.library()
    if library is not None and column.num_chunks == 1:
        taken = native.taken(library, column.chunk(0), rows)
        if taken is not None:
            return pa.chunked_array([taken])
    values = _even_values(column)
    if values is not None and len(rows):
        words = [word_at(values, at).take(rows) for at in _places(values)]
        return _texts(words, values.shape[1], column.type)
    if pa.types.is_int64(column.type) and not column.null_count:
        return pa.chunked_array([column.to_numpy().take(rows)])
    return column.take(pa.array(rows))


def take_firsts(column: pa.ChunkedArray, order: Indexes, first: Bools) -> pa.ChunkedArray | None:
    """The rows of a column in this order that are the ``first`` of their group; None if another row differs
    from the one before it. NULL equals NULL and NaN equals NaN."""
    starts = np.flatnonzero(first)
    values = _even_values(column)
    if values is None:
        run = column.take(pa.array(order))
        same = _equal(run.slice(1), run.slice(0, len(run) - 1))
        same |= first[1:]
        return run.take(pa.array(starts)) if same.all() else None
    words = []
    for at in _places(values):
        word = word_at(values, at).take(order)
        same = word[1:] == word[:-1]
        same |= first[1:]
        if not same.all():
            return None
        words.append(word.take(starts))
    return _texts(words, values.shape[1], column.type)


def _equal(mine: pa.ChunkedArray, other: pa.ChunkedArray) -> Bools:
    """Value by value."""
    if pa.types.is_null(mine.type):
        return np.ones(len(mine), dtype=np.bool_)
    if pa.types.is_floating(mine.type):
        mine, other = ordered(mine, "min"), ordered(other, "min")
    same = pc.equal(mine, other)
    if mine.null_count or other.null_count:
        same = pc.or_(pc.fill_null(same, False), pc.and_(mine.is_null(), other.is_null()))
    return np.array(same.to_numpy())


def _even_values(column: pa.ChunkedArray) -> Bytes | None:
    """The bytes of short texts of one length, none NULL, (rows, length); else None."""
    kind = column.type
    if column.null_count or not len(column) or not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        return None
    values = even_values(column.chunk(0))
    return values if values is not None and values.shape[1] <= _SHORT else None


def _places(values: Bytes) -> list[int]:
    """Where in a text its words begin."""
    size = values.shape[1]
    return [0] if size < 8 else [*range(0, size - 8, 8), size - 8]


def _texts(words: list[UInt64s], size: int, kind: pa.DataType) -> pa.ChunkedArray:
    """The texts, one at least, that consist of these words."""
    rows = len(words[0])
    if size < 8:
        heap = np.ascontiguousarray(words[0].view(np.uint8).reshape(-1, 8)[:, :size]).ravel()
    else:
        heap = np.empty(rows * size, np.uint8)
        for at, word in zip(_places(heap.reshape(-1, size)), words, strict=True):
            np.ndarray(rows, "<u8", heap, at, (size,))[:] = word
    edges = np.arange(0, len(heap) + 1, size, dtype=np.int32)
    return pa.chunked_array(
        [pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(edges), pa.py_buffer(heap)])]
    )
