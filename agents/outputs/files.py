"""A file a window, in a folder of the host at which the job's master is (or of all hosts, where it is
shared): JSON lines, CSV or Parquet.

A file has its window and its rank in its name, and appears whole: it is written under another name and
renamed. Of several for one window the one of the highest rank stays. A first result without rows makes no
file. A folder is of one output, which a file in it says (``OWNER``).
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from agents.outputs.parcels import Parcel
from elf.client.values import cell, json_rows
from elf.errors import UserError
from elf.job.output import OutputSpec

OWNER: Final = ".elf-output"
"""The file that says whose folder it is."""
_RANKED: Final = re.compile(r"\A(?P<span>[^.]+)\.o(\d+)g(\d+)v(\d+)r(\d+)\.(?P<suffix>\w+)\Z")


class Files:
    """Of one output."""

    def __init__(self, output: OutputSpec, _secret: str) -> None:
        self._folder = Path(unquote(urlsplit(output.target).path))
        self._owner = output.app.hex()
        self._suffix, self._write = _FORMATS[output.option("format", "json")]
        self._ours = False

    def put(self, parcels: Sequence[Parcel]) -> None:
        if not self._ours:
            self._take()
        for parcel in parcels:
            if parcel.window.table.num_rows or parcel.window.revision:
                self._put(parcel)
        _sync(self._folder)

    def close(self) -> None:
        """Nothing is open between two calls."""

    def _take(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        file = self._folder / OWNER
        with suppress(FileExistsError), file.open("x") as out:
            out.write(self._owner)
        if file.read_text() != self._owner:
            raise UserError(f"{self._folder} has files of another output; each needs a folder of its own")
        self._ours = True

    def _put(self, parcel: Parcel) -> None:
        span = "_".join(_stamp(at) for at in parcel.span) if parcel.window.start is not None else "all"
        output, generation, version, revision = parcel.rank
        name = f"{span}.o{output}g{generation}v{version}r{revision}.{self._suffix}"
        made = self._folder / f".{name}.tmp"
        with made.open("wb") as out:
            self._write(parcel.window.table, out)
            out.flush()
            os.fsync(out.fileno())
        made.rename(self._folder / name)
        ranked = sorted(self._of(span))
        for _, older in ranked[:-1]:
            older.unlink(missing_ok=True)

    def _of(self, span: str) -> list[tuple[tuple[int, ...], Path]]:
        """The files of a window, with their ranks."""
        found = ((file, _RANKED.match(file.name)) for file in self._folder.glob(f"{span}.o*"))
        return [
            (tuple(map(int, match.groups()[1:5])), file)
            for file, match in found
            if match is not None and match["span"] == span
        ]


def _stamp(moment: datetime | None) -> str:
    """As part of a file's name."""
    assert moment is not None
    moment = moment.astimezone(UTC)
    return moment.strftime("%Y%m%dT%H%M%S") + (f"_{moment.microsecond:06}Z" if moment.microsecond else "Z")


def _sync(folder: Path) -> None:
    """Names in a folder are durable."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _json(table: pa.Table, out: io.BufferedIOBase) -> None:
    out.writelines(f"{row}\n".encode() for row in json_rows(table))


def _csv(table: pa.Table, out: io.BufferedIOBase) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.column_names)
    writer.writerows([cell(value) for value in row.values()] for row in table.to_pylist())
    out.write(text.getvalue().encode())


def _parquet(table: pa.Table, out: io.BufferedIOBase) -> None:
    pq.write_table(table, out)


_FORMATS: Final[Mapping[str, tuple[str, Callable[[pa.Table, io.BufferedIOBase], None]]]] = {
    "json": ("jsonl", _json),
    "csv": ("csv", _csv),
    "parquet": ("parquet", _parquet),
}
