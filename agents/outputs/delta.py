"""A table of Delta Lake: ``delta:/srv/lake/pages``, ``delta+s3://bucket/lake/pages``.

A result of the job is one commit of the table: all rows of its windows, in place of those that were there of
them. A commit also says how far the table is with this output, as Delta has it for whoever writes in steps
(``txn`` in its log): the number of the result in its job, by which the results of an output are in order
(protocol 7.8). What is not above that number is there already, or is older than what is there, so it changes
nothing: it comes again, or comes of an agent that does not know yet that it is the master no more. The
generation of the output is said in the same way, so an output that is made anew begins anew, and the one
before it changes nothing any more. Of two agents that commit at once one is told to look again.

The table is made when the first rows come, and gets more columns when the job gets more. It is of the output
that has made it. Times are in UTC.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

import msgspec
import pyarrow as pa
import pyarrow.types as pat

from agents.outputs.files import sync_path
from agents.outputs.parcels import Parcel
from elf.client.values import cell, plain
from elf.client.windows import WINDOW_COLUMNS
from elf.errors import UserError
from elf.job.output import OutputSpec

if TYPE_CHECKING:  # it is an extra
    from deltalake import CommitProperties, DeltaTable

TRIES: Final = 8
"""So often a commit looks again, when others change the table meanwhile."""
SECRET_CHARS: Final = 4
"""A value of a secret that is shorter than that is none: ``true``, say."""
_UNFIT: Final = re.compile(r"[ ,;{}()\n\t=]")
"""What no name of a column has, for Spark."""
_NOISE: Final = re.compile(r"\x1b\[[0-9;]*m|↳|\n +0: .*", re.DOTALL)
"""In what the library says: colours, and its stack."""
_TIME: Final = pa.timestamp("us", tz="UTC")
_json: Final = msgspec.json.Encoder(decimal_format="number").encode


class Delta:
    """Of one output. ``secret``: storage options of delta-rs for S3, as a JSON object. Without it the
    library goes by the environment of the agent."""

    def __init__(self, output: OutputSpec, secret: str) -> None:
        try:
            import deltalake  # noqa: F401
        except ImportError:
            raise UserError("Delta Lake needs a package here: pip install 'elf-stream[delta]'") from None
        url = urlsplit(output.target)
        self._folder = None if url.netloc else Path(unquote(url.path))
        self._where = output.target.partition("+")[2] if self._folder is None else str(self._folder)
        self._options = _options(secret)
        self._output = output

    def put(self, parcels: Sequence[Parcel]) -> None:
        if not any(parcel.window.table.num_rows or parcel.window.revision for parcel in parcels):
            return  # nothing was there of them
        with self._saying():
            if not any(self._put(parcels) for _ in range(TRIES)):
                raise UserError(f"others change the table at {self._where} all the time")

    def close(self) -> None:
        """Nothing is open between two calls."""

    @contextmanager
    def _saying(self) -> Iterator[None]:
        """What the library says against it, in a line, unless something secret is in it."""
        try:
            yield
        except UserError:
            raise
        except Exception as error:
            text = " ".join(_NOISE.sub(" ", str(error)).split())
            if not text or any(one in text for one in self._options.values() if len(one) >= SECRET_CHARS):
                raise
            raise UserError(text) from None

    def _put(self, parcels: Sequence[Parcel]) -> bool:
        """Whether it is there now. If not, another writer was faster."""
        from deltalake import write_deltalake
        from deltalake.exceptions import CommitFailedError

        rows = _rows([parcel.window.table for parcel in parcels])
        table = self._opened()
        if table is None:
            return not rows.num_columns or self._create(rows.schema)
        if self._has(table, parcels[0].number):
            return True
        _check(table, rows.schema)
        try:
            write_deltalake(
                table,
                rows if rows.num_columns else _NOTHING,
                mode="overwrite",
                predicate=_predicate(parcels),
                schema_mode="merge",
                commit_properties=self._said(parcels),
            )
        except CommitFailedError:
            return False
        if self._folder is not None:
            _sync(self._folder, table.version())
        return True

    def _opened(self) -> DeltaTable | None:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
        try:
            return DeltaTable(self._where, storage_options=self._options or None)
        except TableNotFoundError:
            return None

    def _create(self, schema: pa.Schema) -> bool:
        """An empty table. False: look at what is there now."""
        from deltalake import CommitProperties, DeltaTable, Transaction
        from deltalake.exceptions import DeltaError

        try:
            DeltaTable.create(
                self._where,
                schema,
                mode="error",
                description=f"windows of a job, by output {self._output.name} of elf",
                storage_options=self._options or None,
                commit_properties=CommitProperties(
                    app_transactions=[Transaction(self._claim, self._output.generation)]
                ),
            )
        except DeltaError:
            if self._opened() is None:
                raise
        return False

    @property
    def _claim(self) -> str:
        """The application whose version is the generation of the output."""
        return f"elf.{self._output.app.hex()}"

    @property
    def _steps(self) -> str:
        """The application whose version is the number of the last result."""
        return f"elf.{self._output.uid}"

    def _has(self, table: DeltaTable, number: int) -> bool:
        """Whether the result of that number changes nothing there any more. Raises ``UserError``."""
        generation = table.transaction_version(self._claim)
        if generation is None:
            raise UserError(f"the table at {self._where} is not of this output; each needs its own")
        last = table.transaction_version(self._steps)
        return generation > self._output.generation or (last is not None and last >= number)

    def _said(self, parcels: Sequence[Parcel]) -> CommitProperties:
        """What a commit has beside rows; its windows, with what they cover, are in the table's history."""
        from deltalake import CommitProperties, Transaction

        windows = [{**parcel.facts, "status": plain(parcel.window.status)} for parcel in parcels]
        return CommitProperties(
            custom_metadata={"elf": _json(windows).decode()},
            app_transactions=[
                Transaction(self._claim, self._output.generation),
                Transaction(self._steps, parcels[0].number),
            ],
        )


def _options(secret: str) -> dict[str, str]:
    """Raises ``UserError``."""
    with suppress(ValueError):
        found = json.loads(secret) if secret else {}
        if isinstance(found, dict) and all(isinstance(value, str) for value in found.values()):
            return found
    raise UserError('the secret is no JSON object of texts, such as {"AWS_REGION": "eu-central-1", …}')


def _predicate(parcels: Sequence[Parcel]) -> str | None:
    """Which rows are those of these windows; None: all."""
    said = []
    for parcel in parcels:
        start, end = parcel.span
        if start is None or end is None:
            return None
        said.append(f"(window_start = {_literal(start)} AND window_end = {_literal(end)})")
    while len(said) > 1:  # a long chain would be too deep for who reads it
        pairs = zip(said[::2], said[1::2], strict=False)
        said = [f"({one} OR {other})" for one, other in pairs] + said[len(said) // 2 * 2 :]
    return said[0]


def _literal(moment: datetime) -> str:
    return f"'{moment:%Y-%m-%dT%H:%M:%S.%f}Z'"


def _check(table: DeltaTable, schema: pa.Schema) -> None:
    """That the columns have the types of those that are there: nothing is cast, so nothing is lost."""
    from deltalake import Schema

    there = {field.name: field.type for field in table.schema().fields}
    for field in Schema.from_arrow(schema).fields:
        if field.type != there.get(field.name, field.type):
            raise UserError(
                f"column {field.name} is {_told(field.type)} now, and {_told(there[field.name])} in the table"
            )


def _told(kind: object) -> str:
    return str(getattr(kind, "type", kind))


def _rows(tables: Sequence[pa.Table]) -> pa.Table:
    """The rows of all of them, as the table has them."""
    found = [_fitting(table) for table in tables if table.num_columns]
    return pa.concat_tables(found, promote_options="default") if found else pa.table({})


def _fitting(table: pa.Table) -> pa.Table:
    names: list[str] = []
    for name in table.column_names:
        fit = _UNFIT.sub("_", name)
        names.append(fit if fit not in names else f"{fit}_{len(names)}")
    return pa.table([*map(_column, table.columns)], names)


def _column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = _type(column.type)
    if kind is not None:
        return column.cast(kind)
    return pa.chunked_array([[None if one is None else cell(one) for one in column.to_pylist()]], pa.string())


def _type(kind: pa.DataType) -> pa.DataType | None:
    """The type that Delta has for it; None: there is none, so it is text."""
    if pat.is_timestamp(kind):
        return _TIME
    if pat.is_unsigned_integer(kind):
        return pa.int64() if kind != pa.uint64() else pa.decimal128(20, 0)
    if pat.is_dictionary(kind):
        return _type(kind.value_type)
    if pat.is_null(kind):
        return pa.string()
    if pat.is_list(kind) or pat.is_large_list(kind):
        inner = _type(kind.value_type)
        return None if inner is None else pa.list_(inner)
    if pat.is_struct(kind):
        inner = [(field.name, _type(field.type)) for field in kind]
        return None if any(one is None for _, one in inner) else pa.struct(inner)
    simple = pat.is_boolean(kind) or pat.is_integer(kind) or pat.is_floating(kind) or pat.is_date32(kind)
    texts = pat.is_string(kind) or pat.is_large_string(kind) or pat.is_binary(kind)
    return kind if simple or texts or pat.is_decimal128(kind) else None


_NOTHING: Final = pa.schema([(name, _TIME) for name in WINDOW_COLUMNS]).empty_table()
"""Of a result without rows."""


def _sync(folder: Path, version: int) -> None:
    """What this commit has written stays, even if the host loses its power."""
    log = folder / "_delta_log"
    commit = log / f"{version:020}.json"
    added = (json.loads(line).get("add") for line in commit.read_text().splitlines())
    files = [folder / unquote(one["path"]) for one in added if one is not None]
    for path in (*files, folder, commit, log):
        sync_path(path)
