"""Times of logs whose lines do not say in which zone they are: ``zone:Europe/Berlin FORMAT``.

A time with a zone of its own, and a number, mean what they say. All others are what a clock of the place
shows:

- where the clock is set forward, the hour that it leaves out counts on from before the change: 02:30 is what
  03:30 is;
- where it is set back, the hour that comes twice is the first one.

So does RFC 5545, and so do Java and Python, which know no more of such a line either. The table of offsets is
Python's (``zoneinfo``), written into the SQL of both engines, whose own tables may be of other years. Before
1970 and from 2100 on the offset is that of the first and of the last moment between.
"""

from __future__ import annotations

import ctypes
import datetime as dt
import re
import zoneinfo
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import pyarrow as pa

from agents.formats.access import AccessLog
from agents.formats.dialect import Dialect, Format, Int64s, Mask, Selection
from elf.errors import ConfigError
from elf.fields import replace
from elf.native import Reader
from elf.schema import ZONED, Column, Schema

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+)*")
_FIRST: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_DAYS: Final = (dt.datetime(2100, 1, 1, tzinfo=dt.UTC) - _FIRST).days
_SECOND_US: Final = 1_000_000
_DAY_SECS: Final = 86_400

Offset = tuple[int, int]
"""From which time that a clock shows, in µs since 1970, it is so many µs ahead of UTC."""


class Zoned(Format):
    """A format, in a zone."""

    def __init__(self, zone: str, of: Format) -> None:
        self.zone, self.of = zone, of
        self.name = f"{ZONED}{zone} {of.name}"
        self.offsets = offsets(zone)

    def schema(self, samples: pa.StringArray, timestamp: str | None) -> Schema:
        """See ``Format``."""
        return self.of.schema(samples, timestamp)

    def select(self, dialect: Dialect, columns: Sequence[Column], event_time: str | None) -> Selection:
        """See ``Format``."""
        return self.of.select(replace(dialect, offsets=self.offsets), columns, event_time)

    def reader(
        self, columns: Sequence[Column], event_time: str | None, library: ctypes.CDLL
    ) -> Reader | None:
        """See ``Format``. What reads natively takes UTC where nothing is said, but for access logs, whose
        times say it."""
        return self.of.reader(columns, event_time, library) if isinstance(self.of, AccessLog) else None

    def why_not(self, line: str) -> str:
        """See ``Format``."""
        return self.of.why_not(line)

    def matching(self, lines: pa.StringArray) -> int | None:
        """See ``Format``."""
        return self.of.matching(lines)

    def headings(self, lines: pa.StringArray) -> Mask | None:
        """See ``Format``."""
        return self.of.headings(lines)

    def refused(self, lines: pa.StringArray) -> Int64s:
        """See ``Format``."""
        return self.of.refused(lines)


def check_zone(name: str) -> str:
    """The name, which is one. Raises ``ConfigError``."""
    offsets(name)
    return name


@lru_cache(64)
def offsets(name: str) -> tuple[Offset, ...]:
    """How far the clocks of a zone are ahead of UTC, from when on, in their order. Raises ``ConfigError``."""
    zone = _zone(name)

    def offset(seconds: int) -> int:
        away = (_FIRST + dt.timedelta(seconds=seconds)).astimezone(zone).utcoffset()
        return 0 if away is None else away // dt.timedelta(seconds=1)

    before = offset(0)
    found = [(-(1 << 62), before * _SECOND_US)]
    for day in range(1, _DAYS + 1):
        after = offset(day * _DAY_SECS)
        if after == before:
            continue
        low, high = (day - 1) * _DAY_SECS, day * _DAY_SECS
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if offset(middle) == before else (low, middle)
        found.append(((high + max(before, after)) * _SECOND_US, after * _SECOND_US))
        before = after
    return tuple(found)


def _zone(name: str) -> zoneinfo.ZoneInfo:
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{name} is no time zone, such as Europe/Berlin or UTC")
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigError(
            f"there is no time zone {name} here; names are those of the IANA, such as Europe/Berlin or UTC, "
            "and the table is the system's (package tzdata)"
        ) from None
