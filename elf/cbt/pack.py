"""Columns in few bytes: how the tree keeps its runs.

Each column is coded by what suits it. Whole numbers (and lengths, dates, the halves of decimals) are kept as
distances from their least, in as many bytes as the greatest needs: none at all where all are the same. Texts
are lengths and one heap of bytes. The rest is compressed by zstd: its entropy coder turns 12 random letters
into 9 bytes, where lz4, which only finds repetition, leaves 12. Names, types and hashes are not kept.

Unpacking trusts no input: any bytes give columns of the requested types and length, or a ``ValueError``.
"""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elf.batch import decode, encode
from elf.errors import PeerError

_COMPACTED = pa.Codec("zstd", compression_level=1)
_PASSING = pa.Codec("zstd", compression_level=-1)
"""Repetition only, no entropy coder: on random letters a tenth of the time, both ways, and a third more
bytes. Either codec reads both."""

_SMALL = 48
"""Fewer bytes are not worth compressing."""

_HEAP_MAX = 1 << 31
_WIDTHS = (0, 1, 2, 4, 8)

_SIGNED: dict[int, type[np.integer]] = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}
_UNSIGNED: dict[int, type[np.integer]] = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.integer]


class _Squeezed(msgspec.Struct, array_like=True):
    """``size`` bytes, compressed if ``data`` is shorter."""

    size: int
    data: bytes


class _Ints(msgspec.Struct, array_like=True):
    """Numbers as ``base`` plus unsigned ones of ``width`` bytes, modulo 2**64."""

    base: int
    width: int
    data: _Squeezed


class _Column(msgspec.Struct, array_like=True):
    """``valid``: a bitmap, or nothing where no value is NULL."""

    valid: _Squeezed
    ints: list[_Ints]
    heap: _Squeezed


class _Run(msgspec.Struct, array_like=True):
    rows: int
    columns: list[_Column]


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(_Run)
_NOTHING = _Squeezed(0, b"")


def pack(table: pa.Table, *, passing: bool = False) -> bytes:
    """The columns of a table, of one chunk each, without their names and types.

    ``passing``: in less time and more bytes, for what is soon read again.
    """
    codec = _PASSING if passing else _COMPACTED
    columns = [_pack(pa.array([], c.type) if not c.num_chunks else c.chunk(0), codec) for c in table.columns]
    return _ENCODER.encode(_Run(table.num_rows, columns))


def unpack(data: bytes | memoryview, schema: pa.Schema) -> pa.Table:
    """The table that was packed. Raises ``ValueError`` if the bytes are no columns of these types.

    Whether texts are UTF-8 and decimals have no more than 38 digits is left to ``Table.validate(full=True)``.
    """
    try:
        run = _DECODER.decode(data)
        if len(run.columns) != len(schema) or not 0 <= run.rows < _HEAP_MAX:
            raise ValueError(f"{len(run.columns)} columns of {run.rows} rows")
        arrays = [_unpack(c, kind, run.rows) for c, kind in zip(run.columns, schema.types, strict=True)]
        return pa.Table.from_arrays(arrays, schema=schema)
    except (msgspec.MsgspecError, pa.ArrowException, PeerError, OverflowError, OSError, MemoryError) as error:
        raise ValueError(f"not packed columns: {error}") from error


def _pack(array: pa.Array, codec: pa.Codec) -> _Column:
    kind = array.type
    valid = _NOTHING
    if pa.types.is_null(kind):
        return _Column(valid, [], _NOTHING)
    if array.null_count:
        bits = array.is_valid().to_numpy(zero_copy_only=False)
        valid = _squeeze(np.packbits(bits, bitorder="little"), codec)
    if _is_text(kind):
        _, starts, heap = array.buffers()
        edges = np.frombuffer(starts, np.int32, count=array.offset + len(array) + 1)[array.offset :]
        whole = np.frombuffer(heap, np.uint8) if heap is not None else np.zeros(0, np.uint8)
        return _Column(
            valid, [_pack_ints(np.diff(edges), codec)], _squeeze(whole[edges[0] : edges[-1]], codec)
        )
    if pa.types.is_boolean(kind):
        return _Column(valid, [_pack_ints(array.cast(pa.uint8()).fill_null(0).to_numpy(), codec)], _NOTHING)
    words = _words_of(kind)
    if words is None:
        return _Column(
            _NOTHING, [], _squeeze(np.frombuffer(encode(pa.table([array], ["x"])), np.uint8), codec)
        )
    count = 2 if words is np.int64 and kind.bit_width == 128 else 1
    stop = (array.offset + len(array)) * count
    values = np.frombuffer(array.buffers()[1], words, count=stop)[array.offset * count :]
    if count == 1:
        return _Column(valid, [_pack_ints(values, codec)], _NOTHING)
    low, high = values[::2], values[1::2]
    parts = [low] if np.array_equal(high, low >> np.int64(63)) else [low, high]
    return _Column(valid, [_pack_ints(part, codec) for part in parts], _NOTHING)


def _unpack(column: _Column, kind: pa.DataType, rows: int) -> pa.Array:
    if pa.types.is_null(kind):
        return pa.nulls(rows)
    valid = None
    if column.valid.size:
        if column.valid.size != (rows + 7) // 8:
            raise ValueError("a bitmap of another length")
        valid = pa.py_buffer(_expand(column.valid))
    if _is_text(kind):
        return _unpack_text(column, kind, rows, valid)
    if pa.types.is_boolean(kind):
        bits = np.packbits(_only(column, rows, np.uint8).astype(np.bool_), bitorder="little")
        return pa.Array.from_buffers(kind, rows, [valid, pa.py_buffer(bits)])
    words = _words_of(kind)
    if words is None:
        table = decode(bytes(_expand(column.heap))).combine_chunks()
        if table.num_columns != 1 or table.num_rows != rows or table.schema.types != [kind]:
            raise ValueError(f"a column that is not {kind}")
        return table.column(0).chunk(0) if rows else pa.array([], kind)
    if kind.bit_width != 128:
        return pa.Array.from_buffers(kind, rows, [valid, pa.py_buffer(_only(column, rows, words))])
    if not 1 <= len(column.ints) <= 2:
        raise ValueError("a decimal of neither one nor two words")
    values = np.empty((rows, 2), np.int64)
    values[:, 0] = _unpack_ints(column.ints[0], rows, np.int64)
    wide = len(column.ints) == 2
    values[:, 1] = _unpack_ints(column.ints[1], rows, np.int64) if wide else values[:, 0] >> np.int64(63)
    return pa.Array.from_buffers(kind, rows, [valid, pa.py_buffer(values)])


def _unpack_text(column: _Column, kind: pa.DataType, rows: int, valid: pa.Buffer | None) -> pa.Array:
    heap = _expand(column.heap)
    if len(column.ints) == 1 and not column.ints[0].width and 0 < column.ints[0].base * rows == len(heap):
        edges = np.arange(0, len(heap) + 1, column.ints[0].base, dtype=np.int32)
        return pa.Array.from_buffers(kind, rows, [valid, pa.py_buffer(edges), pa.py_buffer(heap)])
    sizes = _only(column, rows, np.int32)
    edges = np.zeros(rows + 1, np.int32)
    np.cumsum(sizes, out=edges[1:])
    if int(sizes.sum(dtype=np.int64)) != len(heap) or (rows and int(sizes.min()) < 0):
        raise ValueError("texts of other lengths than their bytes")
    return pa.Array.from_buffers(kind, rows, [valid, pa.py_buffer(edges), pa.py_buffer(heap)])


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _words_of(kind: pa.DataType) -> type[np.integer] | None:
    """The integers as which values of this type lie in memory; None for types that are not so simple."""
    if pa.types.is_decimal128(kind):
        return np.int64
    if not pa.types.is_primitive(kind) or kind.bit_width not in (8, 16, 32, 64):
        return None
    words = _UNSIGNED if pa.types.is_unsigned_integer(kind) else _SIGNED
    return words[kind.bit_width]


def _pack_ints(values: Numbers, codec: pa.Codec) -> _Ints:
    if not len(values):
        return _Ints(0, 0, _NOTHING)
    low, high = int(values.min()), int(values.max())
    bits = (high - low).bit_length()
    width = next(width for width in _WIDTHS if 8 * width >= bits)
    if not width:
        return _Ints(low, 0, _NOTHING)
    distances = values.astype(np.uint64) - np.uint64(low & (2**64 - 1))
    return _Ints(low, width, _squeeze(distances.astype(f"<u{width}").view(np.uint8), codec))


def _only(column: _Column, rows: int, words: type[np.integer]) -> Numbers:
    if len(column.ints) != 1:
        raise ValueError("a column of several numbers")
    return _unpack_ints(column.ints[0], rows, words)


def _unpack_ints(ints: _Ints, rows: int, words: type[np.integer]) -> Numbers:
    bounds = np.iinfo(words)
    if ints.width not in _WIDTHS or not int(bounds.min) <= ints.base <= int(bounds.max):
        raise ValueError(f"numbers of {ints.width} bytes from {ints.base}")
    if ints.data.size != rows * ints.width:
        raise ValueError("numbers of another length")
    if not ints.width:
        return np.full(rows, ints.base, words)
    distances = _expand(ints.data).view(f"<u{ints.width}").astype(np.uint64)
    distances += np.uint64(ints.base & (2**64 - 1))
    numbers: Numbers = distances.astype(words)
    return numbers


def _squeeze(data: Bytes, codec: pa.Codec) -> _Squeezed:
    if len(data) > _SMALL:
        short = codec.compress(pa.py_buffer(data), asbytes=True)
        if len(short) < len(data):
            return _Squeezed(len(data), short)
    return _Squeezed(len(data), data.tobytes())


def _expand(squeezed: _Squeezed) -> Bytes:
    if squeezed.size == len(squeezed.data):
        return np.frombuffer(squeezed.data, np.uint8)
    if not 0 <= squeezed.size < _HEAP_MAX:
        raise ValueError(f"a heap of {squeezed.size} bytes")
    return np.frombuffer(_COMPACTED.decompress(squeezed.data, squeezed.size), np.uint8)
