"""Which files go when there is more in the archive than may be: the oldest, by the hours of their rows.

It only decides. Three limits hold at once: the age of an hour, the bytes of all streams of the agent, and the
room that is left on the disk for everybody else, the web server above all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeVar

from agents.archive.manifest import File
from agents.archive.partitions import HOUR_US

DAY_US: Final = 24 * HOUR_US
FREE_BYTES_MIN: Final = 1 << 30
FREE_SHARE_MIN: Final = 0.05
"""Without a limit of the user's so much of a disk stays free: the greater of both."""

Why = Literal["days", "bytes", "room"]
"""Older than ``archive.days``; beyond ``archive.bytes``; beyond ``archive.free_bytes``."""
Owner = TypeVar("Owner")


@dataclass(frozen=True)
class Limits:
    """None: there is none; of ``free_bytes``: as the disk is large."""

    days: float | None = None
    bytes: int | None = None
    free_bytes: int | None = None

    def floor(self, disk_bytes: int) -> int:
        """What stays free on a disk of this size."""
        if self.free_bytes is not None:
            return self.free_bytes
        return max(FREE_BYTES_MIN, int(FREE_SHARE_MIN * disk_bytes))


@dataclass(frozen=True)
class Room:
    """On the disk of an archive, in bytes."""

    free: int
    disk: int


def excess(
    files: Iterable[tuple[Owner, File]], limits: Limits, now_us: int, room: Room | None
) -> list[tuple[Owner, File, Why]]:
    """What goes, and why, the oldest first. ``room``: None where it is not known (an object store)."""
    oldest_first = sorted(files, key=lambda item: (_end_us(item[1]), item[1].path))
    missing = 0 if room is None else limits.floor(room.disk) - room.free
    too_much = sum(file.bytes for _, file in oldest_first) - (limits.bytes or 0) if limits.bytes else 0
    found: list[tuple[Owner, File, Why]] = []
    for owner, file in oldest_first:
        why = _why(limits, _end_us(file), now_us, too_much, missing)
        if why is None:
            break
        found.append((owner, file, why))
        too_much -= file.bytes
        missing -= file.bytes
    return found


def _why(limits: Limits, end_us: int, now_us: int, too_much: int, missing: int) -> Why | None:
    if limits.days is not None and end_us < now_us - limits.days * DAY_US:
        return "days"
    if too_much > 0:
        return "bytes"
    return "room" if missing > 0 else None


def _end_us(file: File) -> int:
    """When its hour was over; of rows without event time, when it was made."""
    return file.made_ms * 1000 if file.hour is None else (file.hour + 1) * HOUR_US


def hours_of(files: Sequence[File]) -> tuple[int | None, int | None]:
    """The first and the last hour of these."""
    hours = [file.hour for file in files if file.hour is not None]
    return min(hours, default=None), max(hours, default=None)
