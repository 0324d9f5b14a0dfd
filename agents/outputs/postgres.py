"""A table of PostgreSQL: the rows of a window in place of those that were there of it, in one transaction.

The table has the columns of the job's results, ``window_start`` and ``window_end`` first; it is made when the
first rows come, and gets more columns when the job gets more. Beside it ``elf_windows`` has a row for each
window: its rank (``created`` is the generation of the output, ``generation`` that of the job), how many rows
it has, and its status as JSON, so queries can leave out what is not whole. That row is the lock: of two
agents that bring the same window one waits, and the one whose rank is not higher than what is there changes
nothing.

A table is of one output, which ``elf_tables`` says. Its columns keep the types that they were made with:
where a changed job has another one for a column, the server says so, and the output waits until somebody
changes the table. A NUL in a text, which PostgreSQL takes nowhere, becomes U+FFFD.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

import msgspec
import pyarrow as pa
import pyarrow.types as pat

from agents.outputs.parcels import Parcel
from elf.client.values import plain
from elf.client.windows import WINDOW_COLUMNS
from elf.errors import UserError
from elf.job.output import OutputSpec

if TYPE_CHECKING:  # it is an extra
    from psycopg import Connection, Cursor

TIMEOUT_SECS: Final = 10
STATEMENT_SECS: Final = 60
_SESSION: Final = {
    "statement_timeout": f"{STATEMENT_SECS}s",
    "lock_timeout": f"{STATEMENT_SECS}s",
    "idle_in_transaction_session_timeout": f"{STATEMENT_SECS}s",
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}
"""A master whose host is gone, cable and all, holds its last window's row no longer than that."""
WINDOWS: Final = """
CREATE TABLE IF NOT EXISTS elf_windows (
  "table" text NOT NULL, window_start timestamptz NOT NULL, window_end timestamptz NOT NULL,
  output text NOT NULL, created bigint NOT NULL,
  generation bigint NOT NULL, version bigint NOT NULL, revision bigint NOT NULL,
  rows bigint NOT NULL, status jsonb NOT NULL, PRIMARY KEY ("table", window_start, window_end))"""
TABLES: Final = 'CREATE TABLE IF NOT EXISTS elf_tables ("table" text PRIMARY KEY, output text NOT NULL)'
_CLAIM: Final = """
INSERT INTO elf_tables AS had VALUES (%s, %s)
ON CONFLICT ("table") DO UPDATE SET output = had.output RETURNING output"""
_COLUMNS: Final = (
    "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped"
)
_TAKE: Final = """
INSERT INTO elf_windows AS had VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT ("table", window_start, window_end) DO UPDATE SET
  created = excluded.created, generation = excluded.generation, version = excluded.version,
  revision = excluded.revision, rows = excluded.rows, status = excluded.status
WHERE (had.created, had.generation, had.version, had.revision)
    < (excluded.created, excluded.generation, excluded.version, excluded.revision)
RETURNING 1"""
_LOCK: Final = 0x656C66
"""An advisory lock: two sessions that make the same table at once get in each other's way."""
_json: Final = msgspec.json.Encoder(decimal_format="number").encode


class Postgres:
    """Of one output. The connection stays open."""

    def __init__(self, output: OutputSpec, secret: str) -> None:
        try:
            import psycopg
        except ImportError:
            raise UserError("PostgreSQL needs a package here: pip install 'elf-stream[postgres]'") from None
        from psycopg.sql import Identifier

        self._errors = psycopg.Error
        self._output = output.app.hex()
        self._name = output.option("table", output.name)
        self._table = Identifier(*self._name.split("."))
        self._columns: set[str] = set()
        self._connection: Connection[Any] | None = None
        self._of = output, secret
        with self._saying():
            try:
                self._open(output, secret)
            except BaseException:
                self.close()
                raise

    def _open(self, output: OutputSpec, secret: str) -> None:
        import psycopg

        url = urlsplit(output.target)
        self._connection = psycopg.connect(  # of its parts: what libpq makes of a URL is another matter
            host=url.hostname,
            port=url.port,
            dbname=unquote(url.path[1:]),
            user=unquote(url.username) if url.username else None,
            sslmode=url.query.removeprefix("sslmode=") or None,
            password=secret or None,
            connect_timeout=TIMEOUT_SECS,
            tcp_user_timeout=STATEMENT_SECS * 1_000,
            keepalives_idle=TIMEOUT_SECS,
            application_name=f"elf output {output.name}"[:63],
            autocommit=True,
        )
        for name, value in _SESSION.items():
            self._connection.execute("SELECT set_config(%s, %s, false)", (name, value))
        with self._connection.transaction(), self._connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            cursor.execute(WINDOWS)
            cursor.execute(TABLES)
            if cursor.execute(_CLAIM, (self._name, self._output)).fetchone() != (self._output,):
                raise UserError(f"table {self._name} has windows of another output; each needs its own")
            named = self._table.as_string(self._connection)
            self._columns = {name for (name,) in cursor.execute(_COLUMNS, (named,))}

    @contextmanager
    def _saying(self) -> Iterator[None]:
        """What the server says against it, without where in our statement."""
        try:
            yield
        except self._errors as error:
            raise UserError(str(error).partition("\nLINE")[0]) from None

    def put(self, parcels: Sequence[Parcel]) -> None:
        with self._saying():
            try:
                self._put_all(parcels)
            except self._errors:
                if self._connection is None or not self._connection.broken:
                    raise
                self.close()  # the server had closed it since the last time, say
                self._open(*self._of)
                self._put_all(parcels)

    def _put_all(self, parcels: Sequence[Parcel]) -> None:
        if self._connection is None:
            raise UserError("it was closed")
        columns = {field.name: field.type for parcel in parcels for field in parcel.window.table.schema}
        if new := {name: kind for name, kind in columns.items() if name not in self._columns}:
            self._widen(self._connection, new)
        with self._connection.transaction(), self._connection.cursor() as cursor:
            for parcel in parcels:
                self._put(cursor, parcel)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):  # another thread may be waiting for the server: that ends
                copy = socket.socket(fileno=os.dup(connection.fileno()))
                copy.shutdown(socket.SHUT_RDWR)
                copy.close()
            with suppress(self._errors):
                connection.close()

    def _widen(self, connection: Connection[Any], new: dict[str, pa.DataType]) -> None:
        """Make the table, or give it more columns."""
        from psycopg.sql import SQL, Identifier

        added = [SQL("{} {}").format(Identifier(name), SQL(_type(kind))) for name, kind in new.items()]
        with connection.transaction(), connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            cursor.execute(
                SQL("CREATE TABLE IF NOT EXISTS {} ({})").format(self._table, SQL(", ").join(added))
            )
            more = [SQL("ADD COLUMN IF NOT EXISTS {}").format(one) for one in added]
            cursor.execute(SQL("ALTER TABLE {} {}").format(self._table, SQL(", ").join(more)))
            if set(WINDOW_COLUMNS) <= set(new):
                index = Identifier(f"{self._name.rpartition('.')[2]}_elf_window"[:63])
                made = SQL("CREATE INDEX IF NOT EXISTS {} ON {} (window_start, window_end)")
                cursor.execute(made.format(index, self._table))
        self._columns |= new.keys()

    def _put(self, cursor: Cursor[Any], parcel: Parcel) -> None:
        from psycopg.sql import SQL, Identifier

        table, span = parcel.window.table, parcel.span
        bounds = (span[0] or "-infinity", span[1] or "infinity")
        status = _json(plain(parcel.window.status)).decode()
        took = cursor.execute(
            _TAKE, (self._name, *bounds, self._output, *parcel.rank, table.num_rows, status)
        ).fetchone()
        if took is None:
            return  # what is there is as new
        gone = SQL("DELETE FROM {}").format(self._table)
        if span[0] is None:
            cursor.execute(gone)
        elif self._columns:
            cursor.execute(gone + SQL(" WHERE window_start = %s AND window_end = %s"), span)
        if not table.num_rows:
            return
        names = SQL(", ").join(map(Identifier, table.column_names))
        with cursor.copy(SQL("COPY {} ({}) FROM STDIN").format(self._table, names)) as copy:
            for row in _rows(table):
                copy.write_row(row)


def _type(kind: pa.DataType) -> str:
    """The type of a new column."""
    if pat.is_boolean(kind):
        return "boolean"
    if pat.is_integer(kind):
        return "numeric" if kind == pa.uint64() else "bigint"
    if pat.is_floating(kind):
        return "double precision"
    if pat.is_decimal(kind):
        return "numeric"
    if pat.is_timestamp(kind):
        return "timestamptz"
    if pat.is_date(kind):
        return "date"
    if pat.is_binary(kind) or pat.is_large_binary(kind):
        return "bytea"
    if pat.is_nested(kind):
        return "jsonb"
    return "text"


def _rows(table: pa.Table) -> Iterator[tuple[object, ...]]:
    columns = [list(map(_value, column.to_pylist())) for column in table.columns]
    return zip(*columns, strict=True)


def _value(value: object) -> object:
    if isinstance(value, str):
        return value.replace("\0", "�") if "\0" in value else value
    if isinstance(value, datetime):
        return value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    if isinstance(value, list | dict):
        return _json(plain(value)).decode().replace("\\u0000", "\\ufffd")
    return value
