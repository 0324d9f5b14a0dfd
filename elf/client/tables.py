"""A file as a table to join: CSV, JSON, Parquet or SQLite to columns of the types that ELF-QL has.

Types are found in all rows, not in the first ones. In a CSV a number is one that would be written again as it
stands there, so that ``007`` and ``+33 1`` stay texts. Dates are timestamps, decimals doubles, and what has
parts (lists, structures) is JSON text.
"""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa

from elf.batch import encode
from elf.errors import UserError

FILE_BYTES_MAX: Final = 64 << 20
SENT_BYTES_MAX: Final = 16 << 20
"""Of a table as it goes to the agent, which takes what the query needs of it (``elf.ql.tables``)."""

_CONFINED: Final[dict[str, str | bool | int | float | list[str]]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
    "allow_persistent_secrets": False,
    "temp_directory": "",
}
"""DuckDB reads the file that was named, and nothing else."""
_CSV: Final = "read_csv({}, header = true, all_varchar = true, sample_size = -1)"
_JSON: Final = "read_json({}, sample_size = -1)"
_PARQUET: Final = "read_parquet({})"
_READERS: Final = {
    ".csv": _CSV,
    ".tsv": _CSV,
    ".json": _JSON,
    ".jsonl": _JSON,
    ".ndjson": _JSON,
    ".parquet": _PARQUET,
}
_SQLITE: Final = (".db", ".sqlite", ".sqlite3")
_INTEGERS: Final = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"}
_TEXTS: Final = {"VARCHAR", "UUID", "TIME", "INTERVAL", "UBIGINT", "HUGEINT", "UHUGEINT", "JSON"}
_PARTS: Final = ("STRUCT", "MAP", "UNION")

_ALL: Final = "coalesce(bool_and({1}) FILTER (WHERE {0} IS NOT NULL), false)"
_WHOLE: Final = "-?(0|[1-9][0-9]*)"
_NUMBER: Final = f"{_WHOLE}([.][0-9]+)?([eE][-+]?[0-9]+)?"
_FOUND: Final = (
    ("BIGINT", f"try_cast({{0}} AS BIGINT) IS NOT NULL AND regexp_full_match({{0}}, '{_WHOLE}')"),
    ("DOUBLE", f"try_cast({{0}} AS DOUBLE) IS NOT NULL AND regexp_full_match({{0}}, '{_NUMBER}')"),
    ("BOOLEAN", "lower({0}) IN ('true', 'false')"),
    ("TIMESTAMP", "try_cast({0} AS TIMESTAMP) IS NOT NULL"),
)
"""The types of a text, the first that all of a column are of."""


def read_table(name: str) -> bytes:
    """The table in a file, as a statement that joins it sends it.

    Args:
        name (str): the path of a CSV, TSV, JSON, Parquet or SQLite file, at most 64 MiB. In a SQLite file
            that has several tables: ``shop.db:products``.

    Returns:
        bytes: an Arrow table (``elf.batch.decode``), at most 16 MiB, compressed. Its columns are int64,
        double, bool, timestamp[us] and string.

    Raises:
        UserError: for a file that cannot be read, is no table, is too large, or has a column of a type that
            ELF-QL does not have.

    Example:
        >>> from elf.batch import decode
        >>> path = Path(folder) / "teams.csv"
        >>> size = path.write_text("path,team,since\\n/cart,sales,2026-01-01\\n")
        >>> decode(read_table(str(path))).to_pylist()
        [{'path': '/cart', 'team': 'sales', 'since': datetime.datetime(2026, 1, 1, 0, 0)}]
    """
    path, table = _place(name)
    try:
        size = path.stat().st_size
    except OSError as error:
        raise UserError(f"{name} cannot be read: {(error.strerror or str(error)).lower()}") from None
    if size > FILE_BYTES_MAX:
        raise UserError(
            f"{name} has {size >> 20} MiB; a file that is joined has {FILE_BYTES_MAX >> 20} at most"
        )
    path = path.absolute()
    with duckdb.connect(":memory:", config=_CONFINED) as con:
        con.execute("SET GLOBAL allowed_paths = $1", [[str(path)]])
        for setting in ("TimeZone = 'UTC'", "enable_external_access = false", "lock_configuration = true"):
            con.execute(f"SET GLOBAL {setting}")
        try:
            found = _sqlite(con, name, path, table) if path.suffix.lower() in _SQLITE else _file(con, path)
        except (duckdb.Error, sqlite3.Error) as error:
            raise UserError(f"{name} cannot be read as a table: {str(error).splitlines()[0]}") from None
    data = encode(found.combine_chunks().replace_schema_metadata(None), small=True)
    if len(data) > SENT_BYTES_MAX:
        raise UserError(
            f"{name} comes to {len(data) >> 20} MiB, compressed; at most {SENT_BYTES_MAX >> 20} is sent"
        )
    return data


def _place(name: str) -> tuple[Path, str]:
    """The file, and the table in it where one is named."""
    path = Path(name)
    if path.suffix.lower() in (*_READERS, *_SQLITE) or path.with_suffix("").suffix.lower() in (
        ".csv",
        ".json",
    ):
        return path, ""
    file, colon, table = name.rpartition(":")
    if colon and Path(file).suffix.lower() in _SQLITE:
        return Path(file), table
    raise UserError(f"{name} is no table: a file that is joined is called {', '.join((*_READERS, *_SQLITE))}")


def _file(con: duckdb.DuckDBPyConnection, path: Path) -> pa.Table:
    suffix = next(part for part in reversed(path.suffixes) if part.lower() in _READERS).lower()
    quoted = "'" + str(path).replace("'", "''") + "'"
    con.execute(f"CREATE TEMP TABLE given AS SELECT * FROM {_READERS[suffix].format(quoted)}")
    return _typed(con, texts=suffix in (".csv", ".tsv"))


def _typed(con: duckdb.DuckDBPyConnection, *, texts: bool) -> pa.Table:
    items = []
    for name, kind in con.execute("SELECT column_name, column_type FROM (DESCRIBE given)").fetchall():
        column = '"' + name.replace('"', '""') + '"'
        items.append(f"{_cast(con, column, str(kind), texts=texts)} AS {column}")
    return con.sql(f"SELECT {', '.join(items)} FROM given").to_arrow_table()


def _cast(con: duckdb.DuckDBPyConnection, column: str, kind: str, *, texts: bool) -> str:
    if texts:
        tests = ", ".join(_ALL.format(column, test.format(column)) for _, test in _FOUND)
        (passed,) = con.execute(f"SELECT {tests} FROM given").fetchall()
        to = next((kind for (kind, _), good in zip(_FOUND, passed, strict=True) if good), "VARCHAR")
        return f"CAST({column} AS {to})"
    if kind.endswith("]") or kind.startswith(_PARTS):
        return f"CAST(to_json({column}) AS VARCHAR)"
    if kind in _INTEGERS:
        return f"CAST({column} AS BIGINT)"
    if kind.startswith("DECIMAL") or kind in ("FLOAT", "DOUBLE"):
        return f"CAST({column} AS DOUBLE)"
    if kind == "DATE" or kind.startswith("TIMESTAMP"):
        return f"CAST({column} AS TIMESTAMP)"
    if kind == "BOOLEAN":
        return column
    if kind in _TEXTS or kind.startswith("ENUM"):
        return f"CAST({column} AS VARCHAR)"
    raise UserError(f"column {column} is {kind}, which ELF-QL has no type for; leave it out of the file")


def _sqlite(con: duckdb.DuckDBPyConnection, name: str, path: Path, table: str) -> pa.Table:
    """SQLite has a type a value: integers and reals are numbers where all of a column are, the rest texts."""
    with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as file:
        tables = [
            str(row[0])
            for row in file.execute("SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')")
        ]
        if not table and len(tables) != 1:
            known = ", ".join(tables) or "none"
            raise UserError(f"say which table of {name}: '{name}:products'; tables: {known}")
        if table and table not in tables:
            raise UserError(f"{path} has no table {table}; tables: {', '.join(tables) or 'none'}")
        quoted = (table or tables[0]).replace('"', '""')
        found = file.execute(f'SELECT * FROM "{quoted}"')
        names, rows = [about[0] for about in found.description], found.fetchall()
    columns = {column: _column([row[place] for row in rows]) for place, column in enumerate(names)}
    con.register("given", pa.table(columns))
    return _typed(con, texts=False)


def _column(values: list[object]) -> pa.Array:
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int}:
        return pa.array(values, pa.int64())
    if kinds <= {int, float}:
        return pa.array(values, pa.float64())
    if bytes in kinds:
        raise UserError("a column has bytes, which ELF-QL has no type for; make a view without it")
    return pa.array([None if value is None else str(value) for value in values], pa.string())
