"""What one agent has archived of one stream, by position: its own closed rolls, and its own files at the
target (``agents.archive.shelf``).

Each archived row has its position (``record``), and each row group says which it has and of which times. So
it does not matter in which file a row lies: rolls are shipped, small files are merged, and a place in the
archive stays what it is. Files of a release that did not write positions are not read; what they have is not
covered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Final, Protocol, TypeVar

import pyarrow as pa

from agents.archive.partitions import HOUR_US, ArchiveError
from agents.archive.pieces import file_of
from agents.archive.shelf import Shelf
from agents.tasks import archive
from agents.tasks.past import COLUMNS, Roll, Survey
from elf.job.offload import Archive

T = TypeVar("T")
SAME: Final = (b"elf.format", b"elf.timestamp", b"elf.mask")


class Rolls(Protocol):
    """The archive of one stream, as far as it is asked for (``agents.tasks.archive.Archive``)."""

    shelf: Shelf

    @property
    def life(self) -> str: ...
    @property
    def facts(self) -> Mapping[bytes, bytes]: ...
    @property
    def position(self) -> int: ...
    @property
    def shipped(self) -> int: ...
    def roll(self) -> None: ...
    def closed(self) -> tuple[archive.Roll, ...]: ...
    def pieces(self, roll: archive.Roll) -> dict[int | None, list[pa.Buffer]]: ...


@dataclass(frozen=True)
class _Group:
    """A row group: positions ``[start, end)``, of which it has so many, and the first and last event time."""

    start: int
    end: int
    rows: int
    first_us: int
    last_us: int
    load: Callable[[], pa.Table]


class OwnArchive:
    """See the module's docstring, and ``agents.tasks.past.Archived``."""

    def __init__(self, rolls: Rolls) -> None:
        self._archive = rolls

    @property
    def position(self) -> int:
        return self._archive.position

    @property
    def shipped(self) -> int:
        return self._archive.shipped

    @property
    def about(self) -> Archive | None:
        return Archive(self._archive.life, *(self._archive.facts.get(key, b"").decode() for key in SAME))

    def close_roll(self) -> int:
        self._archive.roll()
        return self._archive.position

    def survey(self, start: int, end: int, since_us: int) -> Survey:
        since_hour, shelf = since_us // HOUR_US, self._archive.shelf
        here, unread = self._here(start, end)
        local = min((group.start for group in here), default=end)
        files = [file for file in shelf.files() if file.life == self._archive.life and file.first < local]
        timed = [file for file in files if file.hour is not None and file.least_us is not None]
        groups = list(here)
        for file in timed:
            if file.hour is not None and file.hour >= since_hour and start < file.end:
                open_ = partial(shelf.target.opened, shelf.full(file.path))
                found = _groups(open_, file.first, file.end) if self._is_readable(open_) else []
                groups += [group for group in found if group.start < local]  # the others are here
                unread += [] if found else [file.greatest_us or since_us]
        unread = [us for us in unread if us >= since_us]
        gone = {h: one.rows for h, one in shelf.gone().items() if h is not None and h >= since_hour}
        gone_to_us = (max(gone) + 1) * HOUR_US if gone else None
        begins = [(file.first, -file.rows, file.least_us or 0) for file in timed]
        begins += [(one.start, -one.rows, one.first_us) for one in here]
        covers = [us + 1 for us in unread] + ([] if gone_to_us is None else [gone_to_us])
        covers_us = max([min(begins)[2], *covers]) if begins else None
        rolls = tuple(_rolls(groups, start, end, since_us))
        closed_to_us = max(unread) + 1 if unread else None
        return Survey(rolls, covers_us, sum(gone.values()), gone_to_us, closed_to_us)

    def _is_readable(self, open_: Callable[[], pa.NativeFile]) -> bool:
        """Whether lines were archived in the format and masks of now. Others are not covered: they would be
        read wrongly, or show what is hidden now."""
        import pyarrow.parquet as pq

        said = _opened(lambda: pq.read_schema(open_())).metadata or {}
        return all(said.get(key, b"") == self._archive.facts.get(key, b"") for key in SAME)

    def _here(self, start: int, end: int) -> tuple[list[_Group], list[int]]:
        """Of the rolls that are not shipped; and the last event time of each part of them that is not to be
        read, as an earlier life of the agent has left it. What is looked at stays readable when they are
        shipped."""
        found, unread = list[_Group](), list[int]()
        for roll in self._archive.closed():
            if roll.start < end and start < roll.end:
                try:
                    pieces = self._archive.pieces(roll)
                except FileNotFoundError:  # it has just been shipped, and so were those before it
                    found, unread = [], []
                    continue
                except OSError as error:
                    raise ArchiveError(f"archived lines cannot be read: {error}") from error
                for hour, parts in pieces.items():
                    if hour is not None:
                        data = pa.py_buffer(_opened(partial(_joined, parts)))
                        open_ = partial(pa.BufferReader, data)
                        groups = _groups(open_, roll.start, roll.end)
                        if self._is_readable(open_):
                            found += groups
                        else:
                            unread += [group.last_us for group in groups]
        return found, unread


def _joined(parts: list[pa.Buffer]) -> bytes:
    return b"".join(file_of(parts))


def _rolls(groups: list[_Group], start: int, end: int, since_us: int) -> Iterator[Roll]:
    """Ranges of positions that begin with a row group each."""
    starts, open_to = {start}, start  # no range begins within a row group, as in files that were sorted
    for group in sorted(groups, key=lambda one: one.start):
        if start < group.start < end and group.start >= open_to:
            starts.add(group.start)
        open_to = max(open_to, group.end)
    for at, after in pairwise([*sorted(starts), end]):
        parts = [one for one in groups if one.start < after and at < one.end and one.last_us >= since_us]
        if parts:
            first_us = max(since_us, min(one.first_us for one in parts))
            yield Roll(at, after, first_us, tuple(one.load for one in parts))


def _groups(open_: Callable[[], pa.NativeFile], first: int, end: int) -> list[_Group]:
    """The row groups of a file with records in ``[first, end)``; none where it has no positions. Raises
    ``ArchiveError``."""
    import pyarrow.parquet as pq

    read = _opened(lambda: pq.ParquetFile(open_()))
    names = read.metadata.schema.names
    if "record" not in names:
        return []
    found = []
    for number in range(read.num_row_groups):
        group = read.metadata.row_group(number)
        times, records = (group.column(names.index(name)).statistics for name in ("ts", "record"))
        if times is None or not times.has_min_max:
            continue
        known = records is not None and records.has_min_max
        at, after = (records.min, records.max + 1) if known else (first, end)
        load = partial(_load, open_, number)
        found.append(_Group(at, after, group.num_rows, times.min_raw, times.max_raw, load))
    return found


def _load(open_: Callable[[], pa.NativeFile], number: int) -> pa.Table:
    import pyarrow.parquet as pq

    def load() -> pa.Table:
        with open_() as file:
            return pq.ParquetFile(file).read_row_group(number, columns=COLUMNS, use_threads=False)

    return _opened(load)


def _opened(load: Callable[[], T]) -> T:
    try:
        return load()
    except (OSError, pa.ArrowException) as error:
        raise ArchiveError(f"archived lines cannot be read: {error}") from error
