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
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from agents.outputs.parcels import Parcel
from elf.client.values import cell, json_rows
from elf.errors import UserError
from elf.job.output import OutputSpec

OWNER: Final = ".elf-output"
"""The file that says whose folder it is."""
OLD_SECS: Final = 3_600
"""After which nobody writes any more what was to be renamed."""
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
        spans = {
            self._put(parcel) for parcel in parcels if parcel.window.table.num_rows or parcel.window.revision
        }
        self._tidy(spans)
        sync_path(self._folder)

    def close(self) -> None:
        """Nothing is open between two calls."""

    def _take(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        file = self._folder / OWNER
        if not file.exists():
            made = self._made(lambda out: out.write(self._owner.encode()))
            with suppress(FileExistsError):
                os.link(made, file)  # it appears whole
            made.unlink()
        for old in self._folder.glob(".*.tmp"):
            with suppress(FileNotFoundError):
                if time.time() - old.stat().st_mtime > OLD_SECS:
                    old.unlink()
        if file.read_text() != self._owner:
            raise UserError(f"{self._folder} has files of another output; each needs a folder of its own")
        self._ours = True

    def _put(self, parcel: Parcel) -> str:
        """Its window, as files are called."""
        span = "_".join(_stamp(at) for at in parcel.span) if parcel.window.start is not None else "all"
        output, generation, version, revision = parcel.rank
        name = f"{span}.o{output}g{generation}v{version}r{revision}.{self._suffix}"
        self._made(lambda out: self._write(parcel.window.table, out)).rename(self._folder / name)
        return span

    def _made(self, write: Callable[[io.BufferedIOBase], object]) -> Path:
        """A file under a name of its own: another master may be writing the same window in this folder."""
        made = self._folder / f".{uuid4().hex}.tmp"
        with made.open("xb") as out:
            write(out)
            out.flush()
            os.fsync(out.fileno())
        return made

    def _tidy(self, spans: Collection[str]) -> None:
        """Of each of these windows the file of the highest rank stays."""
        ranked: dict[str, list[tuple[tuple[int, ...], Path]]] = {}
        for file in self._folder.iterdir() if spans else ():
            match = _RANKED.match(file.name)
            if match is not None and match["span"] in spans:
                rank = tuple(map(int, match.groups()[1:5]))
                ranked.setdefault(match["span"], []).append((rank, file))
        for some in ranked.values():
            for _, older in sorted(some)[:-1]:
                older.unlink(missing_ok=True)


def _stamp(moment: datetime | None) -> str:
    """As part of a file's name."""
    assert moment is not None
    moment = moment.astimezone(UTC)
    return moment.strftime("%Y%m%dT%H%M%S") + (f"_{moment.microsecond:06}Z" if moment.microsecond else "Z")


def sync_path(path: Path) -> None:
    """A file, or names in a folder, are durable."""
    fd = os.open(path, os.O_RDONLY)
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
