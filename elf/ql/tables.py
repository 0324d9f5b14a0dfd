"""Static tables that are joined to a stream: ``FROM clicks JOIN 'products.csv' AS p ON product = p.id``.

A table goes with the query: the client reads the file, the planner keeps the needed columns, and the fragment
carries them to every agent, which joins them to each chunk's rows (no rows are kept, so the join needs no
state). To all clauses after FROM the rows are just wider: a column of the table at place ``t0`` is
``"t0.price"`` there, in the agents' DuckDB and in Spark alike.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from elf.batch import decode, encode
from elf.errors import PeerError, UserError
from elf.fields import replace
from elf.grouping import grouped
from elf.ipcsize import NotArrow, decoded_bytes
from elf.ql.expressions import Expr, Kind, Ref, Spelled, rewrite
from elf.ql.fuel import BYTES_A_PART, burn
from elf.ql.plan import Table
from elf.ql.render import render
from elf.ql.templates import Engine, name
from elf.schema import Column, ColumnType, Schema

SENT_BYTES_MAX: Final = 256 << 10
"""The most bytes of the contents of a job's tables, compressed, in all its fragments together. They are in
the catalog log, in each agent's store and in the records of the job's last versions."""
TABLE_BYTES_MAX: Final = 128 << 20
"""What the contents of one table may come to: agents hold them while a job that joins it runs."""

TYPES: Final[Mapping[pa.DataType, ColumnType]] = {
    pa.int64(): "bigint",
    pa.float64(): "double",
    pa.string(): "text",
    pa.bool_(): "boolean",
    pa.timestamp("us"): "timestamp",
}
"""What the columns of a table may be."""


class Joined(Struct, frozen=True):
    """A table in FROM. ``name``: what stands before its columns; empty where it is inside a subquery."""

    name: str
    place: str
    table: Table
    left: bool = False
    """LEFT JOIN: rows without a match stay, with NULLs."""
    on: tuple[Expr, ...] = ()
    """Conditions that must all hold."""
    merged: frozenset[str] = frozenset()
    """Columns of USING, in lower case: without a name before them they are those of the left side."""
    streams: tuple[str, ...] = ()
    """Where a stream is joined (``elf.ql.streamjoins``), the names of both; ``table`` then has only
    columns."""
    relation: str = ""
    """What it is called in SQL, if it is a stream."""
    at: int | None = None
    """Its place in the text."""
    rows: tuple[str, str] = ("", "")
    """Where a job is joined (``elf.ql.job_queries``), its rows as SQL, for DuckDB and for Spark."""
    windowed: bool = False
    """Whether rows meet within windows: those of a job."""

    def sql(self, engine: Engine) -> str:
        """What stands after JOIN."""
        if self.windowed:
            return f"(\n{self.rows[engine == 'spark']}\n)"
        return self.relation or self.table.relation

    def find(self, column: str) -> Column | None:
        """As ``elf.schema.Schema.find``."""
        return Schema(self.table.columns).find(column)


def table_of(file: str, data: bytes) -> Table:
    """The table of a file, as a client has read it. It takes fuel for what it comes to, so that many of them
    take no longer than a few. Raises ``UserError``."""
    try:
        burn(min(decoded_bytes(data), TABLE_BYTES_MAX) // BYTES_A_PART)
        contents = decode(data, TABLE_BYTES_MAX)
    except (PeerError, NotArrow) as error:
        raise UserError(f"{file}: what came with the statement is no table: {error}") from None
    if not set(contents.schema.types) <= TYPES.keys():
        raise UserError(f"{file}: a column is of a type that tables do not have; this client is too new")
    columns = tuple(Column(field.name, TYPES[field.type]) for field in contents.schema)
    return Table(columns, data, file=file, rows=contents.num_rows, digest=_digest(data))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def needed(joins: Iterable[Joined], references: Iterable[Ref]) -> tuple[Joined, ...]:
    """The same with the columns that are read, so that equal needs are equal tables."""
    read = {(ref.table, ref.name) for ref in references}
    return tuple(
        replace(joined, table=_narrowed(joined.table, {n for place, n in read if place == joined.place}))
        for joined in joins
    )


def _narrowed(table: Table, names: set[str]) -> Table:
    columns = tuple(column for column in table.columns if column.name in names)
    if not table.data:
        return replace(table, columns=columns)
    contents = (
        decode(table.data, TABLE_BYTES_MAX).select([column.name for column in columns]).combine_chunks()
    )
    data = encode(contents.replace_schema_metadata(None), small=True)
    return replace(table, columns=columns, data=data, digest=_digest(data))


def distinct_of(table: Table, column: Column, kind: Kind) -> tuple[Table, bool]:
    """The different values of a column, and whether NULL is one of them. They are different as ``kind``, as
    which they are compared: if that is double they are doubles, among which 0.0 equals -0.0, NaN itself, and
    2^53 what was 2^53 + 1."""
    narrowed = _narrowed(table, {column.name})
    if kind == "double":
        narrowed = replace(narrowed, columns=(Column(column.name, "double"),))
    if not narrowed.data:
        return narrowed, False
    contents = decode(narrowed.data, TABLE_BYTES_MAX)
    if kind == "double":
        doubles = pc.add(contents[column.name].cast(pa.float64(), safe=False), 0.0)
        doubles = pc.if_else(pc.is_nan(doubles), math.nan, doubles)
        contents = pa.table({column.name: doubles})
    values = grouped(contents, [column.name]).combine_chunks()
    data = encode(values.replace_schema_metadata(None), small=True)
    found = replace(narrowed, data=data, digest=_digest(data), rows=values.num_rows)
    return found, values.column(0).null_count > 0


def source_rows(joins: Sequence[Joined], engine: Engine, rows: str = "rows AS r") -> str:
    """``rows``, with the columns of the tables."""
    if not joins:
        return rows
    items, tables = ["r.*"], [rows]
    for one in joins:
        items += [
            f"{one.place}.{name(column.name, engine)} AS {name(f'{one.place}.{column.name}', engine)}"
            for column in one.table.columns
        ]
        conditions = [f"({render(rewrite(part, _inside), engine)})" for part in one.on]
        if one.windowed:
            conditions += [f"r.{bound} = {one.place}.{bound}" for bound in ("window_start", "window_end")]
        kind = "LEFT JOIN" if one.left else "JOIN"
        tables.append(f"{kind} {one.sql(engine)} AS {one.place} ON {' AND '.join(conditions)}")
    return f"(SELECT {', '.join(items)} FROM {' '.join(tables)}) AS r"


def _inside(part: Expr) -> Expr | None:
    """The names where tables and rows still stand side by side."""
    if not isinstance(part, Ref) or not part.table:
        return None
    return Spelled(
        f"{part.table}.{name(part.name, 'duckdb')}", f"{part.table}.{name(part.name, 'spark')}", part.kind
    )


def changed(joins: Iterable[Joined], change: Callable[[Expr], Expr | None]) -> tuple[Joined, ...]:
    """Joined to other rows."""
    return tuple(replace(one, on=tuple(rewrite(part, change) for part in one.on)) for one in joins)
