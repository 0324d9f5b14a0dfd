"""What one agent has archived of a stream: the rows of some event times, from rolls that wait to be shipped
and from files that are.

Rolls are read first: a roll that is shipped meanwhile is in the files that are listed after it. So each row
comes at least once, and may come twice; ``(source, position)`` tells. A roll is read as far as whole frames
go: what is durable is among them. Of files, row groups without such times are passed over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from agents.archive.contents import Contents, contents
from agents.archive.partitions import HOUR_US, ArchiveError, Target
from agents.archive.pieces import file_of
from agents.tasks.archive import frames_of

COLUMNS: Final = ("line", "ts", "source", "log", "position")
_TS: Final = pa.timestamp("us", tz="UTC")
_PREFIX: Final = b"elf."


@dataclass(frozen=True, eq=False)
class ArchivedRows:
    """``table``: ``COLUMNS``, ``ts`` in int64 µs; ``facts``: what was written down about the file."""

    table: pa.Table
    facts: Mapping[str, str]


@dataclass(frozen=True)
class Archived:
    """``rolls``: the folder of the stream's rolls; ``target``: ``archive.path``; ``agent``: the agent's
    id."""

    rolls: Path
    target: str
    stream: str
    agent: str

    def rows(self, from_us: int, to_us: int) -> Iterator[ArchivedRows]:
        """Rows with ``from_us`` ≤ event time < ``to_us``. Raises ``ArchiveError``, ``OSError`` and
        ``pa.ArrowException`` for what cannot be read."""
        for roll in sorted(self.rolls.glob("*.roll")):
            with suppress(FileNotFoundError):  # it was shipped since
                yield from _of_roll(roll, from_us, to_us)
        target, shipped = Target(self.target), self._shipped(from_us, to_us)
        folder = target.stream_folder(self.stream)
        for one in shipped.files:
            with target.fs.open_input_file(f"{folder}/{one.path}") as file:
                yield from _of_parquet(file, from_us, to_us)
        for path, why in shipped.damaged.items():
            raise ArchiveError(f"{path}: {why}")

    def gone(self, from_us: int, to_us: int) -> int:
        """How many rows of these hours were deleted, as the archive may not grow for ever."""
        gone = self._shipped(from_us, to_us).gone.get(self.agent, ())
        return sum(max(0, one.rows) for one in gone)

    def _shipped(self, from_us: int, to_us: int) -> Contents:
        return contents(Target(self.target), self.stream, from_us, to_us, agent=self.agent)


def _of_roll(path: Path, from_us: int, to_us: int) -> Iterator[ArchivedRows]:
    pieces: dict[int, list[pa.Buffer]] = {}
    hours = range(from_us // HOUR_US, (to_us - 1) // HOUR_US + 1)
    for hour, data in frames_of(path):
        if hour is None:
            table = pa.ipc.open_stream(data).read_all()
            yield _chosen(table, table.schema.metadata, from_us, to_us)
        elif hour in hours:
            pieces.setdefault(hour, []).append(data)
    for some in pieces.values():
        whole = b"".join(bytes(part) for part in file_of(some))
        yield from _of_parquet(pa.BufferReader(whole), from_us, to_us)


def _of_parquet(file: pa.NativeFile, from_us: int, to_us: int) -> Iterator[ArchivedRows]:
    import pyarrow.parquet as pq

    read = pq.ParquetFile(file, page_checksum_verification=True)
    place = read.schema_arrow.get_field_index("ts")
    for group in range(read.num_row_groups):
        bounds = read.metadata.row_group(group).column(place).statistics
        if bounds is not None and bounds.has_min_max:
            least, most = (_us(value) for value in (bounds.min, bounds.max))
            if most < from_us or least >= to_us:
                continue
        table = read.read_row_group(group, columns=list(COLUMNS), use_threads=False)
        yield _chosen(table, read.schema_arrow.metadata, from_us, to_us)


def _us(value: object) -> int:
    return int(pa.scalar(value, _TS).cast(pa.int64()).as_py())


def _chosen(
    table: pa.Table, metadata: Mapping[bytes, bytes] | None, from_us: int, to_us: int
) -> ArchivedRows:
    us = table["ts"].cast(_TS).cast(pa.int64())
    table = table.select(list(COLUMNS)).set_column(1, "ts", us)
    inside = pc.and_(pc.greater_equal(us, from_us), pc.less(us, to_us))
    facts = {
        key.removeprefix(_PREFIX).decode(): value.decode()
        for key, value in (metadata or {}).items()
        if key.startswith(_PREFIX)
    }
    return ArchivedRows(table.filter(inside), facts)
