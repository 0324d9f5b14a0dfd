"""Columns of Arrow for the functions that group rows (``rows.c``): their buffers as ``struct elf_values`` has
them, and what these functions give back as arrays.

Rows are told by number (int64), hashes are uint64. Where a function gives None, numpy and Arrow do it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elf.errors import ElfBug
from elf.native import binding

Int64s = npt.NDArray[np.int64]
UInt64s = npt.NDArray[np.uint64]

OTHER_WAY: Final = -2
"""As in ``native.h``: the rows are for somebody else."""
_NOTHING: Final = np.zeros(16, np.uint8)
"""Where the bytes of a column are that has none."""
HOW: Final = {"sum": 0, "min": 1, "max": 2}
"""As ``rows.c`` has them."""


def width_of(kind: pa.DataType) -> int | None:
    """Bytes of each value, 0 of texts; None of a type that is not so simple."""
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return 0
    if pa.types.is_decimal128(kind):
        return 16
    if pa.types.is_primitive(kind) and kind.bit_width % 8 == 0:
        return int(kind.bit_width // 8)
    return None


def values_of(column: pa.Array) -> binding.Values | None:
    """The buffers of a column, which must outlive what is returned; None of another type."""
    width = width_of(column.type)
    if width is None:
        return None
    buffers, rows, first = column.buffers(), len(column), column.offset
    data, found = buffers[-1], binding.Values(rows=rows, width=width, values=_NOTHING.ctypes.data)
    if width:
        if data is not None:
            found.values, found.size = data.address + first * width, data.size - first * width
    else:
        if data is not None:
            found.values, found.size = data.address, data.size
        if buffers[1] is None or buffers[1].size < 4 * (first + rows + 1):
            return None
        found.offsets = buffers[1].address + 4 * first
    if column.null_count and buffers[0] is not None:
        found.valid, found.first = buffers[0].address, first
    return found


def starts_of(
    library: ctypes.CDLL, keys: Sequence[pa.Array], order: Int64s, hashes: UInt64s
) -> Int64s | None:
    """Where each key begins in the order of hashes; None where keys share a hash, or have other types."""
    columns = [values_of(key) for key in keys]
    given = [column for column in columns if column is not None]
    if len(given) < len(columns):
        return None
    starts = np.empty(len(order), dtype=np.int64)
    found = library.elf_starts(
        (binding.Values * len(given))(*given),
        len(given),
        order.ctypes.data,
        hashes.ctypes.data,
        len(order),
        starts.ctypes.data,
    )
    return None if found == OTHER_WAY else starts[: _sound(found)]


def taken(library: ctypes.CDLL, column: pa.Array, rows: Int64s) -> pa.Array | None:
    """Some rows of a column; None of another type, and where rows are taken so often that their texts have
    more bytes than the column."""
    given = values_of(column)
    if given is None:
        return None
    count = len(rows)
    room = count * given.width if given.width else _text_bytes(column)
    values = np.empty(room, dtype=np.uint8)
    offsets = None if given.width else np.empty(count + 1, dtype=np.int32)
    valid = np.zeros((count + 7) // 8, dtype=np.uint8) if given.valid else None
    written = library.elf_take(
        ctypes.byref(given), rows.ctypes.data, count, values.ctypes.data, room, _at(offsets), _at(valid)
    )
    if written == OTHER_WAY:
        return None
    buffers = [None if valid is None else pa.py_buffer(valid)]
    if offsets is not None:
        buffers.append(pa.py_buffer(offsets))
    return pa.Array.from_buffers(column.type, count, [*buffers, pa.py_buffer(values[: _sound(written)])])


def merged(library: ctypes.CDLL, numbers: Int64s, how: str, order: Int64s, starts: Int64s) -> Int64s | None:
    """The numbers of each key as one; None where a sum does not fit."""
    found = np.empty(len(starts), dtype=np.int64)
    numbers = np.ascontiguousarray(numbers)
    done = library.elf_merge(
        numbers.ctypes.data,
        len(numbers),
        HOW[how],
        order.ctypes.data,
        len(order),
        starts.ctypes.data,
        len(starts),
        found.ctypes.data,
    )
    return None if done == OTHER_WAY else found[: _sound(done)]


def _text_bytes(column: pa.Array) -> int:
    edges = np.frombuffer(column.buffers()[1], np.int32, column.offset + len(column) + 1)
    return int(edges[-1]) - int(edges[column.offset])


def _at(array: npt.NDArray[np.generic] | None) -> int | None:
    return None if array is None else array.ctypes.data


def _sound(found: int) -> int:
    if found < 0:
        raise ElfBug("the native part was given columns that are unsound")
    return found
