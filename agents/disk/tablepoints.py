"""Rows of a table that have one key, as the web tier asks for them (``agents.disk.tablestore``): found by one
statement of SQLite.

How a key is encoded follows from the columns of the table and from their types, which are remembered; what is
found says whether they are still so. Whatever is not as plain as that is read in the other way, which opens
the table first.
"""

from __future__ import annotations

import sqlite3
from collections import OrderedDict
from typing import Final, NamedTuple

from agents.disk.tablerows import Point, Table, point
from agents.disk.tablevalues import as_table, keys_of, schema_of
from elf.batch import NO_CAST, encode
from elf.job.tables import BEHIND, ReadTable, TableKept, TableRows, asked_values

TABLES_MAX: Final = 256


class _Known(NamedTuple):
    """``stored`` and ``schema``: a table, and its only schema, as they are stored."""

    stored: bytes
    schema: bytes
    kept: TableKept


class Points:
    """Of the tables of one store."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, _Known] = OrderedDict()

    def learn(self, table: Table) -> None:
        """It was opened."""
        schemas = table.serialized() if table.whole else ()
        if len(schemas) == 1:
            self._known[table.kept.table] = _Known(table.stored_kept, schemas[0], table.kept)
            if len(self._known) > TABLES_MAX:
                self._known.popitem(last=False)

    def read(self, con: sqlite3.Connection, asked: ReadTable) -> TableRows | str | None:
        """The answer to a question for one key; None: it has to be read in the other way."""
        known = self._known.get(asked.table)
        key = None if known is None else _key(known, asked)
        if known is None or key is None:
            return None
        found = point(con, asked.table, key)
        if found is None or (found.kept, found.schema) != (known.stored, known.schema):
            self._known.pop(asked.table, None)
            return None
        return BEHIND if found.number < asked.least else _answer(known.kept, found)


def _key(known: _Known, asked: ReadTable) -> bytes | None:
    """That which is asked for, if it is one."""
    values = asked_values(known.kept.key, asked.equals)
    if not values or any(len(some) > 1 for some in values):
        return None
    try:
        keys = keys_of(known.kept.key, values, schema_of(known.schema))
    except (*NO_CAST, OverflowError):
        return None
    return keys[0]


def _answer(kept: TableKept, found: Point) -> TableRows:
    return TableRows(
        kept,
        found.number,
        found.newest,
        found.count,
        found.size,
        found.evicted,
        found.unfit,
        encode(as_table(found.rows, [schema_of(found.schema)])),
        found=True,
        rounds=found.rounds,
        told=len(found.rows),
    )
