"""Statements of readers, answered as tables."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from elf.client import Client, Window
from elf.client.lasting import Lasting
from elf.errors import UserError
from elf.ql.looks import is_look
from elf.ql.statements import Select, Statement, Subscribe, parse
from elf.schema import ColumnType
from elf.security.roles import is_change, role_of_statement

WINDOW_SECS: Final = 120.0
"""A window of a live SELECT is waited for."""
TABLES: Final = pa.schema(
    [
        ("catalog_name", pa.string()),
        ("db_schema_name", pa.string()),
        pa.field("table_name", pa.string(), nullable=False),
        pa.field("table_type", pa.string(), nullable=False),
    ]
)
KINDS: Final = {"jobs": "JOB", "streams": "STREAM"}
"""What a fleet has that is named as tables are: the schema that each is in, and its type."""
_TYPES: Final[dict[ColumnType, pa.DataType]] = {
    "text": pa.string(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", "UTC"),
}


class Answers:
    """Through one ``client``; of a live SELECT so many ``windows``. Belongs to the client's loop."""

    def __init__(self, client: Client, windows: int) -> None:
        self._client = client
        self._lasting = Lasting(client)
        self._windows = windows

    async def table(self, sql: str) -> pa.Table:
        """What a statement comes to. Raises ``UserError``, ``ElfError``."""
        statement = await asyncio.to_thread(read_only, sql)
        await self._lasting.reached()
        if isinstance(statement, Subscribe) or (
            isinstance(statement, Select) and not is_look(statement.query)
        ):
            return await self._next_windows(sql)
        result = await self._client.sql(sql)
        if result.table is not None:
            return result.table
        return pa.table({"text": pa.array(result.text.splitlines(), pa.string())})

    async def tables(
        self, name: str = "", schema: str = "", types: Sequence[str] = (), columns: bool = False
    ) -> pa.Table:
        """Jobs and streams, whose names are like these patterns of SQL (empty: all). ``columns``: with what
        is known of their columns."""
        await self._lasting.reached()
        rows: list[tuple[None, str, str, str]] = []
        for place, kind in KINDS.items():
            table = (await self._client.sql(f"SHOW {place.upper()}")).table
            names = [] if table is None else table[place.removesuffix("s")].to_pylist()
            rows += [(None, place, one, kind) for one in names]
        found = [
            row
            for row in rows
            if _like(name, row[2]) and _like(schema, row[1]) and (not types or row[3] in types)
        ]
        arrays = [pa.array([row[n] for row in found], TABLES.field(n).type) for n in range(len(TABLES))]
        whole = pa.Table.from_arrays(arrays, schema=TABLES)
        if not columns:
            return whole
        schemas = [(await self._schema(one, kind)).serialize().to_pybytes() for _, _, one, kind in found]
        return whole.append_column(
            pa.field("table_schema", pa.binary(), nullable=False), pa.array(schemas, pa.binary())
        )

    async def _schema(self, name: str, kind: str) -> pa.Schema:
        """The columns of a stream; a job's are those of its query, which nobody has asked yet."""
        if kind != KINDS["streams"]:
            return pa.schema([])
        table = (await self._client.sql(f"DESCRIBE STREAM {name}")).table
        rows: list[dict[str, Any]] = (
            [] if table is None or "column" not in table.column_names else table.to_pylist()
        )
        return pa.schema([(row["column"], _TYPES.get(row["type"], pa.string())) for row in rows])

    async def _next_windows(self, sql: str) -> pa.Table:
        tables: list[pa.Table] = []
        async with contextlib.aclosing(self._client.execute(sql, self._windows)) as answers:
            try:
                async with asyncio.timeout(WINDOW_SECS) as until:
                    async for one in answers:
                        if isinstance(one, Window) and not one.early:
                            tables.append(one.table)
                            until.reschedule(asyncio.get_running_loop().time() + WINDOW_SECS)
            except TimeoutError:
                raise UserError(
                    f"no window came within {WINDOW_SECS:.0f} s; past windows of a job are there at once: "
                    "SELECT … FROM JOB name WINDOWS SINCE '-1 hour'"
                ) from None
        with_rows = [table for table in tables if table.num_rows] or tables[:1]
        return pa.concat_tables(with_rows, promote_options="permissive") if with_rows else pa.table({})


def read_only(sql: str) -> Statement:
    """The one statement of a text, which changes nothing. Raises ``UserError``."""
    statements = parse(sql)
    if len(statements) != 1:
        raise UserError(f"one statement at a time, not {len(statements)}")
    (statement,) = statements
    if is_change(role_of_statement(type(statement).__name__)):
        what = " ".join(statement.sql.split(maxsplit=2)[:2]).upper()
        raise UserError(f"{what}: this door only reads; elf sql changes things")
    return statement


def _like(pattern: str, text: str) -> bool:
    """As LIKE has it; an empty pattern is none."""
    parts = {"%": ".*", "_": "."}
    return not pattern or bool(re.fullmatch("".join(parts.get(c, re.escape(c)) for c in pattern), text, re.S))
