"""What one agent has archived of one stream, by position: its own rolls, and its own files at the target.

A roll's files are named after its first position, one for each event hour (``agents.tasks.archive``), whether
it is shipped yet or not. Its rows are counted hour by hour, and in a file's order, so that a count means the
same rows before and after it is shipped.

What is lacking is found by counting: a roll has as many rows as there are positions up to the next one. Where
files have fewer, rows between the times that the roll still has are gone; an archive that begins with a later
roll than its first lacks all that was before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from agents.tasks.archive import Archive, ArchiveError
from agents.tasks.partitions import HOUR_US
from agents.tasks.past import Roll, Survey
from agents.tasks.pieces import file_of
from elf.job.past import Records

T = TypeVar("T")

_Open = Callable[[], "pa.NativeFile | pa.Buffer"]
_COLUMNS: Final = ["line", "ts", "log", "position"]


@dataclass(frozen=True)
class _File:
    """Rows of one roll and one hour (since the epoch; None: without event time). ``times``: the first and the
    last event time, in µs; None where nobody has written them down."""

    hour: int | None
    rows: int
    times: tuple[int, int] | None
    open: _Open


@dataclass(frozen=True)
class _Group:
    """A row group of a file."""

    rows: int
    load: Callable[[], pa.Table]


class OwnArchive:
    """See the module's docstring, and ``agents.tasks.past.ArchivedRolls``."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._groups: tuple[tuple[int, int], list[_Group]] | None = None
        """Of the roll that was read last, by its start and since when its rows are wanted."""
        self._loaded: tuple[int, int, pa.Table] | None = None
        """The row group that was read last: start of its roll, number, rows."""
        self._shipped: dict[int, list[tuple[int | None, _Open]]] | None = None
        """The files at the target, by the starts of their rolls; None: to be looked up."""

    @property
    def position(self) -> int:
        return self._archive.position

    def close_roll(self) -> int:
        self._archive.roll()
        return self._archive.position

    def survey(self, start: int, end: int, since_us: int) -> Survey:
        since_hour = since_us // HOUR_US
        self._shipped = None
        starts, first = self._starts(start, end, since_hour)
        if not starts:
            lost = ((since_us, since_us),) if start and start < end else ()  # nobody knows its times
            return Survey((), None, lost)
        wanted: list[Roll] = []
        holes: list[tuple[int, int]] = []
        first_us: int | None = None
        for at, after in pairwise([*starts, end]):
            files = self._files(at)
            times = [file.times for file in files if file.times is not None]
            if not times:
                continue
            least, most = min(one[0] for one in times), max(one[1] for one in times)
            first_us = least if first_us is None else first_us
            if sum(file.rows for file in files) < after - at or at == first > start:
                holes.append((least, most))
            late = [
                file.times[0] for file in files if _is_wanted(file, since_hour) and file.times is not None
            ]
            if late and most >= since_us:
                wanted.append(Roll(at, max(min(late), since_us)))
        covers_us = holes[-1][1] + 1 if holes else first_us
        return Survey(tuple(wanted), covers_us, tuple(holes))

    def _starts(self, start: int, end: int, since_hour: int) -> tuple[list[int], int]:
        """The rolls to be looked at, ascending: from the last one before those with wanted hours; and the
        first roll that is there."""
        found = {roll.start: True for roll in self._archive.closed()}
        for at, files in self._at_target().items():
            wanted = any(hour is not None and hour >= since_hour for hour, _ in files)
            found[at] = found.get(at, False) or wanted
        inside = sorted(at for at in found if start <= at < end)
        first = next((place for place, at in enumerate(inside) if found[at]), len(inside))
        return inside[max(0, first - 1) :], min(inside, default=end)

    def read(
        self, start: int, done: int, rows_max: int, since_us: int
    ) -> tuple[tuple[Records, ...], int, bool]:
        groups = self._groups_of(start, since_us)
        found: list[Records] = []
        at = passed = 0
        for number, group in enumerate(groups):
            skip = max(0, min(done - at, group.rows))
            at += group.rows
            take = min(group.rows - skip, rows_max - passed)
            if take > 0:
                found += _records(self._rows(start, number, group).slice(skip, take), since_us)
                passed += take
        return tuple(found), passed, done + passed >= at

    def _rows(self, start: int, number: int, group: _Group) -> pa.Table:
        if self._loaded is None or self._loaded[:2] != (start, number):
            self._loaded = None  # not two at a time
            self._loaded = start, number, _opened(group.load)
        return self._loaded[2]

    def _groups_of(self, start: int, since_us: int) -> list[_Group]:
        if self._groups is None or self._groups[0] != (start, since_us):
            wanted = [file for file in self._files(start) if _is_wanted(file, since_us // HOUR_US)]
            self._groups = (start, since_us), [one for file in wanted for one in _groups(file)]
        return self._groups[1]

    def _files(self, start: int) -> list[_File]:
        """Those of the roll that begins there, in the order of hours. Raises ``ArchiveError``."""
        for roll in self._archive.closed():
            if roll.start == start:
                with suppress(FileNotFoundError):  # it has just been shipped
                    pieces = self._archive.pieces(roll).items()
                    return sorted(
                        (_file(hour, partial(_joined, parts)) for hour, parts in pieces), key=_by_hour
                    )
        if start not in self._at_target():
            self._shipped = None
        files = self._at_target().get(start)
        if files is None:
            raise ArchiveError(f"the lines from {start:,} on are in the archive no more")
        return sorted((_opened(partial(_file, hour, open_)) for hour, open_ in files), key=_by_hour)

    def _at_target(self) -> dict[int, list[tuple[int | None, _Open]]]:
        if self._shipped is None:
            self._shipped = {}
            for hour, at, open_ in self._archive.shipped():
                self._shipped.setdefault(at, []).append((hour, open_))
        return self._shipped


def _by_hour(file: _File) -> tuple[bool, int]:
    return file.hour is None, file.hour or 0


def _is_wanted(file: _File, since_hour: int) -> bool:
    return file.hour is not None and file.hour >= since_hour


def _opened(load: Callable[[], T]) -> T:
    try:
        return load()
    except (OSError, pa.ArrowException) as error:
        raise ArchiveError(f"archived lines cannot be read: {error}") from error


def _joined(parts: list[pa.Buffer]) -> pa.Buffer:
    return pa.py_buffer(b"".join(file_of(parts)))


def _file(hour: int | None, open_: _Open) -> _File:
    import pyarrow.parquet as pq

    found = pq.ParquetFile(_source(open_)).metadata
    place = found.schema.names.index("ts")
    stats = [found.row_group(number).column(place).statistics for number in range(found.num_row_groups)]
    known = [one for one in stats if one is not None and one.has_min_max]
    times = None
    if known and hour is not None:
        times = min(_us(one.min) for one in known), max(_us(one.max) for one in known)
    return _File(hour, found.num_rows, times, open_)


def _us(moment: object) -> int:
    return int(pa.scalar(moment, pa.timestamp("us", tz="UTC")).value)


def _source(open_: _Open) -> pa.NativeFile:
    found = open_()
    return pa.BufferReader(found) if isinstance(found, pa.Buffer) else found


def _groups(file: _File) -> Iterator[_Group]:
    import pyarrow.parquet as pq

    read = _opened(lambda: pq.ParquetFile(_source(file.open)))
    for number in range(read.num_row_groups):
        rows = read.metadata.row_group(number).num_rows
        yield _Group(rows, partial(read.read_row_group, number, columns=_COLUMNS, use_threads=False))


def _records(rows: pa.Table, since_us: int) -> list[Records]:
    """By their logs."""
    ts = rows["ts"].cast(pa.int64())
    rows = rows.filter(pc.greater_equal(ts, since_us))
    logs = rows["log"].cast(pa.string())
    found = []
    for log in pc.unique(logs).to_pylist():
        chosen = rows.filter(pc.equal(logs, log))
        lines = chosen["line"].combine_chunks()
        lines = lines if isinstance(lines, pa.Array) else pa.concat_arrays(lines.chunks)
        found.append(Records(log, lines, np.asarray(chosen["position"].to_numpy(), dtype=np.int64)))
    return found
