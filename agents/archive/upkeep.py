"""Keeps house in an agent's archive: what is too old or too much goes, small files become larger ones.

A *pass* runs beside everything else, on the thread that ships. It begins with what frees room, does so much
of the rest as is soon done, and comes again.

A run of files of an hour is merged when the hour is over and the merged file is at least half as large again
as the largest of them, or they are many. So a row is copied a few times at most, however slowly its hour
fills.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import psutil

from agents.archive.manifest import File
from agents.archive.partitions import HOUR_US, ArchiveError
from agents.archive.retention import Limits, Room, Why, excess, hours_of
from agents.archive.shelf import Indexing, Shelf, wall_clock_ms

MERGED_BYTES_MAX: Final = 256 << 20
"""Of a merged file; one of half of that is left as it is."""
RUN_MAX: Final = 16
"""So many files are merged, whatever their sizes."""
COPIED_BYTES: Final = 512 << 20
"""A pass that has copied so much leaves the rest for the next one."""
MERGE_AFTER_US: Final = HOUR_US // 6
"""An hour that has been over for so long hardly gets any more rows."""


@dataclass(frozen=True)
class LetGo:
    """What a pass has let go of a stream, for people."""

    stream: str
    why: Why
    files: int
    rows: int
    bytes: int
    from_hour: int | None
    to_hour: int | None


class Upkeep:
    """Of all shelves of an agent, which share their limits. ``indexing``: by stream, what looks at chosen
    columns."""

    def __init__(
        self,
        shelves: Sequence[Shelf],
        limits: Limits,
        *,
        grace_ms: int,
        indexing: Mapping[str, Indexing] | None = None,
        now_ms: Callable[[], int] = wall_clock_ms,
        room: Callable[[Shelf], Room | None] | None = None,
    ) -> None:
        self.shelves = tuple(shelves)
        self._limits = limits
        self._grace_ms = grace_ms
        self._indexing = dict(indexing or {})
        self._now_ms = now_ms
        self._room = room or room_of

    def run(self) -> list[LetGo]:
        """A pass, also where a shelf cannot be looked at. Raises ``ArchiveError``; the next one goes on."""
        now_ms = self._now_ms()
        shelves, failed = list[Shelf](), None
        for shelf in self.shelves:
            try:
                if shelf.is_there:
                    shelf.look()
                    shelf.sweep(now_ms - self._grace_ms)
                    shelves.append(shelf)
            except ArchiveError as error:  # the disk of the others must not become full for that
                failed = error
        found = self._retain(shelves, now_ms)
        copied = 0
        for shelf in shelves if self._has_room(shelves) else ():
            for run in runs(shelf.files(), now_ms * 1000, indexed=shelf.stream in self._indexing):
                if copied < COPIED_BYTES and shelf.merge(run, self._indexing.get(shelf.stream)) is not None:
                    copied += sum(file.bytes for file in run)
        if failed is not None:
            raise failed
        return found

    def _has_room(self, shelves: Sequence[Shelf]) -> bool:
        """To have files twice for a while."""
        room = self._room(shelves[0]) if shelves else None
        return room is None or room.free - 2 * COPIED_BYTES > self._limits.floor(room.disk)

    def _retain(self, shelves: Sequence[Shelf], now_ms: int) -> list[LetGo]:
        if not shelves:
            return []
        room = self._room(shelves[0])
        if room is not None and room.free < self._limits.floor(room.disk):
            for shelf in shelves:  # what nobody is shown any more is the first to go
                shelf.sweep(now_ms + 1)
            room = self._room(shelves[0])
        files = ((shelf, file) for shelf in shelves for file in shelf.files() if not shelf.is_spared(file))
        going = excess(files, self._limits, now_ms * 1000, room)
        found = []
        for shelf in shelves:
            for why in dict.fromkeys(why for owner, _, why in going if owner is shelf):
                these = [file for owner, file, reason in going if owner is shelf and reason == why]
                if shelf.let_go(these, at_once=why == "room"):
                    found.append(_told(shelf.stream, why, these))
            if any(one.why == "room" for one in found):
                shelf.sweep(1)
        return found


def _told(stream: str, why: Why, files: Sequence[File]) -> LetGo:
    rows, size = sum(file.rows for file in files), sum(file.bytes for file in files)
    return LetGo(stream, why, len(files), rows, size, *hours_of(files))


def room_of(shelf: Shelf) -> Room | None:
    """On the disk of a shelf; None where it is no disk of this machine."""
    if not shelf.target.local:
        return None
    disk = psutil.disk_usage(shelf.target.root)
    return Room(disk.free, disk.total)


def runs(files: Sequence[File], now_us: int, *, indexed: bool) -> Iterator[list[File]]:
    """What is to be merged, the oldest hours first; with ``indexed`` also single files, of which the chosen
    columns are to be looked at."""

    def place(file: File) -> tuple[str, str]:
        return file.unit, file.life

    over = [file for file in files if not file.by and _is_over(file, now_us)]
    for _, unit in groupby(sorted(over, key=lambda file: (*place(file), file.first)), key=place):
        run: list[File] = []
        for file in unit:
            is_large = 2 * file.bytes > MERGED_BYTES_MAX
            if is_large or sum(one.bytes for one in run) + file.bytes > MERGED_BYTES_MAX:
                yield from _worth(run, indexed=indexed)
                run = []
            if is_large:
                yield from _worth([file], indexed=indexed)
            else:
                run.append(file)
        yield from _worth(run, indexed=indexed)


def _worth(run: list[File], *, indexed: bool) -> Iterator[list[File]]:
    sizes = [file.bytes for file in run]
    if len(run) > 1 and (len(run) >= RUN_MAX or 2 * sum(sizes) >= 3 * max(sizes)):
        yield run
    elif indexed:
        yield from ([file] for file in run if not file.is_indexed)


def _is_over(file: File, now_us: int) -> bool:
    end_us = file.made_ms * 1000 if file.hour is None else (file.hour + 1) * HOUR_US
    return end_us + MERGE_AFTER_US <= now_us
