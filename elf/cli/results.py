"""A result as a file: whole under its name, or not there at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TextIO

import pyarrow as pa

from elf.cli.printing import CsvPrinter, JsonPrinter
from elf.errors import UserError

SUFFIXES: Final = (".parquet", ".csv", ".json")


def check_suffix(path: Path) -> None:
    """Raise ``UserError`` where the name says no form, or nothing can be written there: before the work."""
    if path.suffix.lower() not in SUFFIXES:
        raise UserError(f"--out {path}: its name says the form of the rows: {', '.join(SUFFIXES)}")
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        why = "it is a folder" if path.is_dir() else f"{path.parent} is no folder that can be written"
        raise UserError(f"cannot write {path}: {why}")


@contextmanager
def part_of(path: Path) -> Iterator[Path]:
    """The file to write instead. What was there is replaced at the end, when all is on disk.

    Raises ``UserError`` when it cannot be written; then what was there before still is.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield part
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(path)
    except (OSError, pa.ArrowException) as error:
        number = getattr(error, "errno", None)
        why = (os.strerror(number) if number else str(error).splitlines()[0]).lower()
        raise UserError(f"cannot write {path}: {why}; nothing of the result is there") from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def write_result(table: pa.Table, path: Path) -> None:
    """Write the rows as the name's suffix says; see ``part_of``."""
    with part_of(path) as part:
        if path.suffix.lower() == ".parquet":
            import pyarrow.parquet as pq

            pq.write_table(table, part, compression="zstd")
        else:
            with part.open("w", encoding="utf-8", newline="") as file:
                _write_text(table, file, path.suffix.lower())


def _write_text(table: pa.Table, file: TextIO, suffix: str) -> None:
    if suffix == ".json":
        JsonPrinter(file, status=False).table(table)
        return
    rows = CsvPrinter(file, status=False)
    rows.table(table)
