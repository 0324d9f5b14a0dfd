"""Parquet files one behind the other as one file, without decoding what is in them.

A Parquet file is row groups and a footer, a Thrift struct in the compact protocol that says where they begin.
``joined`` copies the row groups as they are, and writes one footer for all, with the places moved. Only what
a place is has to be known for that (``_PLACES``); all else is passed on as it was read, whatever it means.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

MAGIC: Final = b"PAR1"
_END: Final = 8
"""Bytes behind a footer: its length and ``MAGIC``."""
_COPIED: Final = 8 << 20
"""Bytes that are copied at a time."""

_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_ROWS, _GROUPS = 3, 4
"""Fields of FileMetaData."""
_COLUMNS, _GROUP_ROWS, _GROUP_AT, _ORDINAL = 1, 3, 5, 7
"""Of RowGroup."""
_META: Final = 3
"""Of ColumnChunk: its ColumnMetaData."""
_CHUNK_PLACES: Final = (2, 4, 6)
"""Of ColumnChunk: itself, its offset index, its column index."""
_PLACES: Final = (9, 10, 11, 14)
"""Of ColumnMetaData: data pages, index pages, dictionary page, Bloom filter."""

Struct = dict[int, tuple[int, Any]]
"""Field → type and value."""


class NotParquet(ValueError):
    """These bytes are no file of Parquet, or one that is damaged."""


def joined(files: Sequence[pa.NativeFile]) -> Iterator[bytes]:
    """The file, a part after the other, that these (at least one, of equal schemas) make. Raises
    ``NotParquet``, before anything comes of it."""
    read = [_footer(file) for file in files]
    base = 0
    for footer, end in read:
        _move(footer, base)
        base += end
    return _parts(files, read)


def _parts(files: Sequence[pa.NativeFile], read: Sequence[tuple[Struct, int]]) -> Iterator[bytes]:
    for file, (_, end) in zip(files, read, strict=True):
        file.seek(0)
        for at in range(0, end, _COPIED):
            yield file.read(min(_COPIED, end - at))
    whole = read[0][0]
    groups = [group for footer, _ in read for group in footer[_GROUPS][1][1]]
    for number, group in enumerate(groups):
        if _ORDINAL in group:
            group[_ORDINAL] = (_I16, number)
    whole[_ROWS] = (_I64, sum(footer[_ROWS][1] for footer, _ in read))
    whole[_GROUPS] = (_LIST, (_STRUCT, groups))
    data = _written(whole)
    yield data + struct.pack("<I", len(data)) + MAGIC


def facts_of(file: pa.NativeFile) -> bytes:
    """What the footer of a file says of schema and metadata: files for which it is equal can be joined.
    Raises ``NotParquet``."""
    footer, _ = _footer(file)
    return _written({field: item for field, item in footer.items() if field not in (_ROWS, _GROUPS)})


def _footer(file: pa.NativeFile) -> tuple[Struct, int]:
    """And where it begins."""
    size = file.size()
    file.seek(max(0, size - _END))
    tail = file.read(_END)
    if size < 2 * _END or tail[4:] != MAGIC:
        raise NotParquet("it does not end as a file of Parquet does")
    (length,) = struct.unpack("<I", tail[:4])
    begin = size - _END - length
    if begin < len(MAGIC):
        raise NotParquet("its footer is longer than the file")
    file.seek(begin)
    try:
        return _Reader(file.read(length)).struct(), begin
    except (IndexError, struct.error) as error:
        raise NotParquet(f"its footer cannot be read: {error}") from error


def _move(footer: Struct, by: int) -> None:
    """All places that a footer names."""
    for group in footer[_GROUPS][1][1]:
        _add(group, (_GROUP_AT,), by)
        for chunk in group[_COLUMNS][1][1]:
            _add(chunk, _CHUNK_PLACES, by)
            if _META in chunk:
                _add(chunk[_META][1], _PLACES, by)


def _add(fields: Struct, numbers: Sequence[int], by: int) -> None:
    for number in numbers:
        if number in fields and fields[number][1] > 0:  # 0: not said
            fields[number] = (fields[number][0], fields[number][1] + by)


class _Reader:
    """Of Thrift's compact protocol."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def struct(self) -> Struct:
        found: Struct = {}
        number = 0
        while (head := self._byte()) != 0:
            kind = head & 0x0F
            number = number + (head >> 4) if head >> 4 else self._zigzag()
            found[number] = (kind, kind == _TRUE if kind in (_TRUE, _FALSE) else self._value(kind))
        return found

    def _value(self, kind: int) -> Any:
        if kind in (_I16, _I32, _I64):
            return self._zigzag()
        if kind == _BINARY:
            return self._take(self._varint())
        if kind in (_LIST, _SET):
            return self._list()
        if kind == _STRUCT:
            return self.struct()
        if kind in (_TRUE, _FALSE, _BYTE):  # in a list a truth is a byte
            return self._byte()
        if kind == _DOUBLE:
            return self._take(8)
        raise NotParquet(f"its footer has a value of type {kind}, which no footer has")

    def _list(self) -> tuple[int, list[Any]]:
        head = self._byte()
        count = head >> 4 if head >> 4 != 0x0F else self._varint()
        return head & 0x0F, [self._value(head & 0x0F) for _ in range(count)]

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _take(self, count: int) -> bytes:
        self._at += count
        if self._at > len(self._data):
            raise IndexError("it ends too early")
        return self._data[self._at - count : self._at]

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def _zigzag(self) -> int:
        value = self._varint()
        return value >> 1 ^ -(value & 1)


def _written(fields: Struct) -> bytes:
    """The same, back."""
    out = bytearray()
    _put_struct(out, fields)
    return bytes(out)


def _put_struct(out: bytearray, fields: Struct) -> None:
    last = 0
    for number in sorted(fields):
        kind, value = fields[number]
        if kind in (_TRUE, _FALSE):
            kind = _TRUE if value else _FALSE
        step = number - last
        if 0 < step < 16:
            out.append(step << 4 | kind)
        else:
            out.append(kind)
            _put_varint(out, number << 1)
        if kind not in (_TRUE, _FALSE):
            _put(out, kind, value)
        last = number
    out.append(0)


def _put(out: bytearray, kind: int, value: Any) -> None:
    if kind in (_I16, _I32, _I64):
        _put_varint(out, value << 1 if value >= 0 else (-value << 1) - 1)
    elif kind == _BINARY:
        _put_varint(out, len(value))
        out += value
    elif kind in (_LIST, _SET):
        inner, items = value
        out.append(min(len(items), 15) << 4 | inner)
        if len(items) >= 15:
            _put_varint(out, len(items))
        for item in items:
            _put(out, inner, item)
    elif kind == _STRUCT:
        _put_struct(out, value)
    elif kind == _DOUBLE:
        out += value
    else:
        out.append(value)


def _put_varint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
