"""Rows of a stream as one flow takes them.

A column may have another type for a later query than for an earlier one (whole numbers until the first
fraction came), and the lines are read once for all flows: as the widest type that any of them wants
(``elf.job.ports.Wanted``). Each flow converts to the types that it was planned with, since its panes hold
these. A value that is not of its type is NULL for it, and counted as ``uncast``, like one that no flow could
read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from elf.batch import ARROW_TYPES
from elf.schema import LABELS, Column

_BIGINT_END: Final = 2.0**63
_TEXTS: Final = (
    (pa.types.is_integer, r"^[+-]?[0-9]{1,18}$"),
    (pa.types.is_floating, r"^[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?$"),
    (pa.types.is_boolean, r"^(true|false)$"),
)
"""Texts that are values of a type."""


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """The columns as they are in tables of extracted rows."""
    return pa.schema([pa.field(column.name, ARROW_TYPES[column.type]) for column in columns])


def as_schema(schema: pa.Schema, table: pa.Table) -> pa.Table:
    """The columns of the schema, cast where they differ (asking first is cheaper than a cast for nothing)."""
    if table.schema.equals(schema):
        return table
    chosen = table.select(schema.names)
    return chosen if chosen.schema.equals(schema) else chosen.cast(schema)


def with_origins(
    rows: pa.Table,
    names: Sequence[str],
    agent: str,
    log: str | pa.StringArray,
    labels: Sequence[tuple[str, str]],
) -> pa.Table:
    """The rows of an agent, and these columns of where they come from; a label that the agent has not is
    NULL. ``log``: that of all rows, or of each."""
    values = {f"{LABELS}{name}": value for name, value in labels} | {"_agent": agent, "_source": log}
    for name in names:
        value = values.get(name)
        if not isinstance(value, pa.Array):
            value = pa.repeat(pa.scalar(value, pa.string()), rows.num_rows)
        rows = rows.append_column(name, value)
    return rows


def fitted(rows: pa.Table, schema: pa.Schema) -> tuple[pa.Table, int]:
    """The rows with a flow's columns as in its schema; and how many values became NULL by that."""
    lost = 0
    for field in schema:
        place = rows.schema.get_field_index(field.name)
        if place < 0 or rows.schema.field(place).type == field.type:
            continue
        before = rows.column(place)
        after = _fit(before, field.type)
        lost += after.null_count - before.null_count
        rows = rows.set_column(place, field, after)
    return rows, lost


def _fit(values: pa.ChunkedArray, to: pa.DataType) -> pa.ChunkedArray:
    kind = values.type
    if pa.types.is_floating(kind) and pa.types.is_integer(to):
        inside = pc.less(pc.abs(values), _BIGINT_END)
        fits = pc.and_(inside, pc.equal(pc.floor(values), values))
    elif pa.types.is_string(kind) and not pa.types.is_timestamp(to):
        pattern = next(pattern for is_it, pattern in _TEXTS if is_it(to))
        fits = pc.match_substring_regex(values, pattern)
    elif pa.types.is_string(to) or (pa.types.is_integer(kind) and pa.types.is_floating(to)):
        return values.cast(to, safe=False)
    else:
        return pa.chunked_array([pa.nulls(len(values), to)])
    return pc.if_else(fits, values, pa.scalar(None, kind)).cast(to)
