"""States as bytes: each row of some columns as one binary value, and back.

A value begins with what has a fixed size: each number, boolean and time in its own bytes (little endian), and
for each text, binary or list the number of its bytes (32 bits); then come the bytes of these. A list of texts
is two columns: the lengths, and the texts in a row. Equal states are equal bytes, so they are one cell. There
is no loop over rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elf.batch import ARROW_TYPES

NAMED: Final = dict[str, pa.DataType](ARROW_TYPES.items())
"""The types that an aggregate may name."""
STATE_BYTES_MAX: Final = 64 << 10
"""Of one state."""
COLUMNS_MAX: Final = 64
"""Of a state."""
Bytes = npt.NDArray[np.uint8]
Int64s = npt.NDArray[np.int64]
_LENGTH: Final = 4


class NoState(ValueError):
    """These columns are no states, or these bytes are none."""


def state_type(told: Any) -> pa.DataType:
    """The Arrow type of a column of a state, which is told by its name in ELF-QL or as it is. Raises
    ``NoState``."""
    kind: Any = NAMED.get(told) if isinstance(told, str) else told
    if not isinstance(kind, pa.DataType):
        raise NoState(f"{told!r} is no type: write {', '.join(NAMED)}, or an Arrow type")
    kind = _plain(kind)
    inner = kind.value_type if pa.types.is_list(kind) else kind
    if not (_width(inner) or _is_bytes(inner)):
        raise NoState(
            f"a column of a state is of numbers, times, texts, binaries or lists of them, not {told}"
        )
    return kind


def _plain(kind: pa.DataType) -> pa.DataType:
    """With offsets of 32 bits."""
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_plain(kind.value_type))
    return kind


def _width(kind: pa.DataType) -> int:
    """Bytes of a value of a fixed size; 0 for others."""
    if pa.types.is_boolean(kind):
        return 1
    numbers = (pa.types.is_integer, pa.types.is_floating, pa.types.is_timestamp)
    return int(kind.bit_width) // 8 if any(is_a(kind) for is_a in numbers) else 0


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


@dataclass(frozen=True)
class _Runs:
    """Of each row a run of bytes: where it ends, and all of them."""

    lengths: Int64s
    data: Bytes


def encode(columns: Sequence[pa.Array], rows: int) -> pa.BinaryArray:
    """A value for each row. The columns are of types of ``state_type``, and not NULL. Raises ``NoState`` for
    a state that is too large."""
    fixed: list[Bytes] = []
    runs: list[_Runs] = []
    for column in columns:
        if _width(column.type):
            fixed.append(_fixed(column))
        else:
            own = _runs(column)
            fixed += [_bytes_of(one.lengths.astype("<i4"), _LENGTH) for one in own]
            runs += own
    head = np.concatenate(fixed, axis=1) if fixed else np.zeros((rows, 0), np.uint8)
    lengths = np.full(rows, head.shape[1], np.int64)
    for one in runs:
        lengths += one.lengths
    if rows and int(lengths.max()) > STATE_BYTES_MAX:
        raise NoState(f"a state of {int(lengths.max()):,} bytes: at most {STATE_BYTES_MAX:,} may be")
    if int(lengths.sum()) >= 1 << 31:
        raise NoState("the states of one call come to more than 2 GiB")
    edges = np.append(0, np.cumsum(lengths))
    data = np.empty(int(edges[-1]), np.uint8)
    data[edges[:-1, None] + np.arange(head.shape[1])] = head
    at = edges[:-1] + head.shape[1]
    for one in runs:
        data[_places(at, one.lengths)] = one.data
        at = at + one.lengths
    offsets = pa.py_buffer(edges.astype(np.int32))
    return pa.Array.from_buffers(pa.binary(), rows, [None, offsets, pa.py_buffer(data)])


def decode(states: pa.Array, kinds: Sequence[pa.DataType]) -> list[pa.Array]:
    """The columns that ``encode`` was given. Raises ``NoState`` for any other bytes."""
    rows = len(states)
    if states.null_count:
        raise NoState("a state is missing")
    edges = np.frombuffer(states.buffers()[1], np.int32)[states.offset : states.offset + rows + 1]
    ends: Int64s = edges.astype(np.int64) if rows else np.zeros(1, np.int64)
    data = np.frombuffer(states.buffers()[2] or b"", np.uint8)
    widths = [width for kind in kinds for width in _head_of(kind)]
    head, at = ends[:-1] + sum(widths), ends[:-1]
    if (head > ends[1:]).any():
        raise NoState("a state is too short")
    parts: list[Bytes] = []
    for width in widths:
        parts.append(data[at[:, None] + np.arange(width)].reshape(rows, width))
        at = at + width
    found: list[pa.Array] = []
    for kind in kinds:
        own, parts = parts[: len(_head_of(kind))], parts[len(_head_of(kind)) :]
        if _width(kind):
            found.append(_of_fixed(own[0], kind))
            continue
        runs = []
        for lengths in (_int32s(one) for one in own):
            if (lengths < 0).any() or (at + lengths > ends[1:]).any():
                raise NoState("a state is too short")
            runs.append(_Runs(lengths, data[_places(at, lengths)]))
            at = at + lengths
        found.append(_of_runs(runs, kind))
    if (at != ends[1:]).any():
        raise NoState("a state is too long")
    return found


def _head_of(kind: pa.DataType) -> tuple[int, ...]:
    """The widths of its parts that have a fixed size."""
    if _width(kind):
        return (_width(kind),)
    of_texts = pa.types.is_list(kind) and _is_bytes(kind.value_type)
    return (_LENGTH, _LENGTH) if of_texts else (_LENGTH,)


def _places(at: Int64s, lengths: Int64s) -> Int64s:
    """Of each byte of the runs, one after the other, the place where it is, its run beginning ``at``."""
    before = np.append(0, np.cumsum(lengths))
    places: Int64s = np.repeat(at - before[:-1], lengths) + np.arange(int(before[-1]))
    return places


def _bytes_of(values: npt.NDArray[Any], width: int) -> Bytes:
    found: Bytes = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), width)
    return found


def _int32s(column: Bytes) -> Int64s:
    return np.ascontiguousarray(column).reshape(-1).view("<i4").astype(np.int64)


def _fixed(column: pa.Array) -> Bytes:
    if pa.types.is_boolean(column.type):
        flags: Bytes = column.to_numpy(zero_copy_only=False).astype(np.uint8).reshape(-1, 1)
        return flags
    kind = column.type
    plain = column.view(pa.int64()) if pa.types.is_timestamp(kind) else column
    values = plain.to_numpy(zero_copy_only=False)
    if pa.types.is_floating(kind):
        values = values + values.dtype.type(0)  # one zero
    return _bytes_of(values, _width(kind))


def _of_fixed(column: Bytes, kind: pa.DataType) -> pa.Array:
    if pa.types.is_boolean(kind):
        return pa.array(column.reshape(-1) != 0)
    data = np.ascontiguousarray(column)
    return pa.Array.from_buffers(kind, len(column), [None, pa.py_buffer(data)])


def _runs(column: pa.Array) -> list[_Runs]:
    """The runs of bytes of a text, a binary or a list."""
    if _is_bytes(column.type):
        return [_run(column)]
    flat = column.flatten()
    if flat.null_count:
        raise NoState("a list of a state has a NULL in it")
    edges: Int64s = column.offsets.to_numpy().astype(np.int64)
    counts: Int64s = np.diff(edges).astype(np.int64)
    if width := _width(flat.type):
        return [_Runs(counts * width, _fixed(flat).reshape(-1))]
    inner = _run(flat)
    ends = np.append(0, np.cumsum(inner.lengths))
    first = edges - edges[0]
    lengths = _bytes_of(inner.lengths.astype("<i4"), _LENGTH).reshape(-1)
    return [_Runs(counts * _LENGTH, lengths), _Runs(np.diff(ends[first]).astype(np.int64), inner.data)]


def _run(column: pa.Array) -> _Runs:
    rows = len(column)
    if not rows:
        return _Runs(np.zeros(0, np.int64), np.zeros(0, np.uint8))
    edges = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + rows + 1]
    data = np.frombuffer(column.buffers()[2] or b"", np.uint8)[edges[0] : edges[-1]]
    lengths: Int64s = np.diff(edges).astype(np.int64)
    return _Runs(lengths, data)


def _of_runs(runs: Sequence[_Runs], kind: pa.DataType) -> pa.Array:
    first = runs[0]
    if _is_bytes(kind):
        return _valid(_text(first, kind))
    inner = kind.value_type
    width = _LENGTH if len(runs) > 1 else _width(inner)
    if (first.lengths % width).any():
        raise NoState("a list of a state ends within a value")
    edges = np.append(0, np.cumsum(first.lengths // width)).astype(np.int32)
    if len(runs) == 1:
        values = _of_fixed(first.data.reshape(-1, width), inner)
        return pa.ListArray.from_arrays(pa.array(edges), values)
    lengths = _int32s(first.data)
    ends = np.append(0, np.cumsum(lengths))
    if (lengths < 0).any() or (np.diff(ends[edges]) != runs[1].lengths).any():
        raise NoState("the texts of a state are not as long as it says")
    return pa.ListArray.from_arrays(pa.array(edges), _valid(_text(_Runs(lengths, runs[1].data), inner)))


def _text(run: _Runs, kind: pa.DataType) -> pa.Array:
    edges = np.append(0, np.cumsum(run.lengths)).astype(np.int32)
    buffers = [None, pa.py_buffer(edges), pa.py_buffer(np.ascontiguousarray(run.data))]
    return pa.Array.from_buffers(kind, len(run.lengths), buffers)


def _valid(texts: pa.Array) -> pa.Array:
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid as error:
        raise NoState(f"a text of a state is none: {error}") from None
    return texts
