"""Rows of the tables of jobs as they are stored (``elf.job.tables``), and as windows and people have them.

A row is its values in msgpack, behind the number of its schema; moments are µs, decimals texts. Its window is
beside it, and the number of the commit that it came with. Which schema has which number is the table's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import groupby, product
from typing import Any, Final

import msgspec
import pyarrow as pa

from elf.batch import WRONG, decode, encode
from elf.client.past import joined
from elf.client.windows import WINDOW_COLUMNS
from elf.errors import PeerError
from elf.job.tables import Columns, Scalar, TableKept

SCHEMAS_KEPT: Final = 64
"""Opened, the last ones."""
_US: Final = pa.int64()
_MOMENT: Final = pa.timestamp("us")
_PLAIN: Final = {str: pa.string(), int: _US, bool: pa.bool_()}
"""Types that have values which are stored as they are asked for."""
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder().decode
Span = tuple[int, int]
Row = tuple[bytes, bytes, int, int, int, bytes]
"""Group, key, start and end of the window, the number of its commit, the row."""
_ROWS: Final = pa.schema(
    [
        ("id", pa.binary()), ("key", pa.binary()), ("start", _US), ("end", _US),
        ("number", _US), ("row", pa.binary()),
    ]
)  # fmt: skip


# -- windows to rows -----------------------------------------------------------------------------------------


def windows_of(table: pa.Table) -> list[Span]:
    """Start and end of each row's. Raises what Arrow does, or ``ValueError``, where there are none."""
    us = pa.timestamp("us")
    starts, ends = (table[name].cast(us).cast(_US).to_pylist() for name in WINDOW_COLUMNS)
    if None in starts or None in ends:
        raise ValueError("a window without bounds")
    return list(zip(starts, ends, strict=True))


def rows_of(
    table: pa.Table, kept: TableKept, number_of: Callable[[pa.Schema], int], number: int
) -> list[Row]:
    """Those of the windows of a commit. Raises as ``windows_of`` does."""
    windows = windows_of(table)
    own = table.drop_columns(list(WINDOW_COLUMNS))
    columns = {name: _plain(own[name]) for name in own.column_names}
    schema = number_of(own.schema.remove_metadata())
    values = zip(*columns.values(), strict=True)
    groups = zip(*(columns[name] for name in kept.columns), strict=True)
    keys = zip(*(columns[name] for name in kept.key), strict=True)
    return [
        (_encode(group), _encode(key), *window, number, _encode((schema, *said)))
        for group, key, window, said in zip(groups, keys, windows, values, strict=True)
    ]


def rekeyed(rows: Iterable[Row], columns: Columns, key: Columns) -> list[Row]:
    """By another key, which is some of the columns of their groups."""
    places = [columns.index(name) for name in key]
    groups = ((row, _decode(row[0])) for row in rows)
    return [with_key(row, _encode([group[place] for place in places])) for row, group in groups]


def with_key(row: Row, key: bytes) -> Row:
    """Found by another key."""
    return (row[0], key, *row[2:])


def renumbered(row: Row, numbers: Sequence[int]) -> Row:
    """With the numbers that the schemas have in another table."""
    number, *values = _decode(row[-1])
    return (*row[:-1], _encode((numbers[number], *values)))


def _plain(column: pa.ChunkedArray) -> list[Any]:
    """Its values as they are stored."""
    values: list[Any] = column.cast(_stored_as(column.type)).to_pylist()
    return values


def _stored_as(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return _US
    return pa.string() if pa.types.is_decimal(kind) else kind


# -- rows to answers -----------------------------------------------------------------------------------------


def keys_of(key: Columns, asked: Sequence[Sequence[Scalar]], schema: pa.Schema) -> list[bytes]:
    """All keys of which each column has one of the values ``asked`` of it. Raises what Arrow raises for a
    value of another type."""
    columns: list[Sequence[Any]] = []
    for name, wanted in zip(key, asked, strict=True):
        kind = schema.field(name).type
        if all(_is_stored_as(value, kind) for value in wanted):
            columns.append(wanted)
            continue
        values = (pa.array([value]).cast(kind).cast(_stored_as(kind)) for value in wanted)
        columns.append([value for one in values for value in one.to_pylist()])
    return sorted({_encode(values) for values in product(*columns)})


def _is_stored_as(value: Scalar, kind: pa.DataType) -> bool:
    """Whether it is stored in a column of a type as it is."""
    return _PLAIN.get(type(value)) == kind and (not isinstance(value, int) or abs(value) < 1 << 63)


def as_table(rows: Iterable[Row], schemas: Sequence[pa.Schema]) -> pa.Table:
    """As a window's rows are: its bounds, then its columns."""
    opened = [(row, _decode(row[-1])) for row in rows]
    last = len(schemas) - 1
    if all(values[0] == last for _, values in opened):
        return _of_schema(opened, schemas[last])
    tables = [_of_schema([], schemas[last])]
    for number, some in groupby(opened, lambda one: int(one[1][0])):
        tables.append(_of_schema(list(some), schemas[number]))
    return joined(tables)


def _of_schema(rows: Sequence[tuple[Row, Sequence[Any]]], schema: pa.Schema) -> pa.Table:
    arrays = [pa.array([row[place] for row, _ in rows], _MOMENT) for place in (2, 3)]
    kinds: list[pa.DataType] = schema.types
    for place, kind in enumerate(kinds, 1):
        arrays.append(_as_column([said[place] for _, said in rows], kind))
    return pa.table(arrays, [*WINDOW_COLUMNS, *schema.names])


def _as_column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Values as they are stored, in a column of a type."""
    if pa.types.is_decimal(kind):
        return pa.array(values, pa.string()).cast(kind)
    return pa.array(values, kind)


def keys_and_columns(
    rows: Iterable[Row], columns: Columns, key: Columns, schema: pa.Schema
) -> tuple[list[bytes], pa.Table]:
    """Another key of these rows, which is some of the columns of their groups: encoded, and as a table.
    Nothing else of the rows is opened."""
    places = [columns.index(name) for name in key]
    values = [[group[place] for place in places] for group in (_decode(row[0]) for row in rows)]
    arrays = [
        _as_column([one[place] for one in values], schema.field(name).type) for place, name in enumerate(key)
    ]
    return [_encode(one) for one in values], pa.table(arrays, list(key))


# -- from agent to agent -------------------------------------------------------------------------------------


@lru_cache(SCHEMAS_KEPT)
def schema_of(data: bytes) -> pa.Schema:
    return pa.ipc.read_schema(pa.BufferReader(data))


def packed(rows: Sequence[Row]) -> bytes:
    """Rows as they travel."""
    columns = zip(*rows, strict=True) if rows else ([] for _ in _ROWS)
    arrays = [pa.array(one, of.type) for one, of in zip(columns, _ROWS, strict=True)]
    return encode(pa.table(arrays, _ROWS))


def opened(schemas: Iterable[bytes], rows: bytes) -> list[Row] | None:
    """The opposite; None: of bytes that are none."""
    try:
        for schema in schemas:
            schema_of(schema)
        columns = [column.to_pylist() for column in decode(rows).cast(_ROWS).columns]
    except (PeerError, *WRONG):
        return None
    return list(zip(*columns, strict=True))
