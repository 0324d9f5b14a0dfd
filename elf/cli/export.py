"""``elf offline export``: all windows that a job's group keeps, in a file, portion by portion."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from elf.batch import NO_CAST
from elf.cli.ask import ask
from elf.cli.printing import CsvPrinter, JsonPrinter, say
from elf.cli.results import check_suffix, part_of
from elf.client import connect
from elf.errors import UserError


def export_windows(
    address: str, cluster: str, job: str, since: str, until: str, out: Path, *, all_revisions: bool
) -> int:
    """Write them; the file is there when all of them are in it."""
    check_suffix(out)
    counts = {"rows": 0}

    async def export(rows: Rows) -> None:
        async with (
            connect(address, cluster=cluster) as client,
            contextlib.aclosing(client.past(job, since, until, all_revisions=all_revisions)) as portions,
        ):
            async for portion in portions:
                counts["rows"] += portion.num_rows
                rows.write(portion)

    with _whole(out) as rows:
        ask(export(rows))
        if not counts["rows"]:
            raise UserError(
                f"no window of job {job} that is kept has a row in that time; {out} is not written"
            )
    say(f"{counts['rows']:,} rows of job {job} are in {out}")
    return 0


class Rows(Protocol):
    """Writes rows of one job after others."""

    def write(self, table: pa.Table) -> None: ...

    def close(self) -> None: ...


@contextmanager
def _whole(path: Path) -> Iterator[Rows]:
    """What is written in the block; the file has its name when all of that is on disk."""
    with part_of(path) as part:
        rows: Rows = _Parquet(part) if path.suffix.lower() == ".parquet" else _Text(part, path.suffix.lower())
        try:
            yield rows
        except BaseException:
            with suppress(OSError, pa.ArrowException):
                rows.close()
            raise
        rows.close()


class _Text:
    """CSV, or JSON with an object a line."""

    def __init__(self, path: Path, suffix: str) -> None:
        self._file = path.open("w", encoding="utf-8", newline="")
        json = suffix == ".json"
        self._printer = (
            JsonPrinter(self._file, status=False) if json else CsvPrinter(self._file, status=False)
        )
        self._names: list[str] = []
        self._csv = not json

    def write(self, table: pa.Table) -> None:
        if self._csv and self._names not in ([], table.column_names):
            raise UserError(_CHANGED)
        self._names = table.column_names
        self._printer.table(table)

    def close(self) -> None:
        self._file.close()


_CHANGED = (
    "the job's columns change in that time, with another version of it: export the time before and after by "
    "themselves, with --from and --to"
)


class _Parquet:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer: object = None
        self._schema: pa.Schema | None = None

    def write(self, table: pa.Table) -> None:
        import pyarrow.parquet as pq

        if self._schema is None:
            self._schema = pa.schema([_written(field) for field in table.schema])
            self._writer = pq.ParquetWriter(self._path, self._schema, compression="zstd")
        if table.column_names != self._schema.names:
            raise UserError(_CHANGED)
        try:
            table = table.cast(self._schema)
        except NO_CAST:
            raise UserError(_CHANGED) from None
        self._writer.write_table(table)  # type: ignore[attr-defined]

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()  # type: ignore[attr-defined]
            self._writer = None


def _written(field: pa.Field) -> pa.Field:
    """Columns of which no value has come have a type too."""
    return field.with_type(pa.string()) if pa.types.is_null(field.type) else field
