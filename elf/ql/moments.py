"""Moments as people say them on a command line: a time, or so long ago."""

from __future__ import annotations

import re
from typing import Final

from elf.ql.timestamps import FIRST_US, read_timestamp

HOW: Final = "'-6 hours', 10m, 2d, today, yesterday, 2026-01-31 or 2026-01-31T12:00 (UTC)"
"""Examples, for who has said it otherwise."""

_SECOND_US: Final = 1_000_000
_DAY_US: Final = 86_400 * _SECOND_US
_UNITS: Final = {
    word: us
    for words, us in (
        ("ms millisecond milliseconds", 1_000),
        ("s sec secs second seconds", _SECOND_US),
        ("m min mins minute minutes", 60 * _SECOND_US),
        ("h hour hours", 3_600 * _SECOND_US),
        ("d day days", _DAY_US),
        ("w week weeks", 7 * _DAY_US),
    )
    for word in words.split()
}
_AGO: Final = re.compile(r"-?\s*(\d{1,9}(?:\.\d{1,6})?)\s*([a-z]+)(?:\s+ago)?")


def moment_us(text: str, now_us: int) -> int | None:
    """A moment in µs since the epoch.

    Args:
        text (str): ``-6 hours``, ``6 hours ago``, ``10m``, ``now``, ``today``, ``yesterday`` (their
            midnights in UTC), or a time as ``elf.ql.timestamps`` reads it; dates are their midnight.
        now_us (int): the present, in µs since the epoch.

    Returns:
        int | None: None where the text is no such thing.

    Example:
        >>> moment_us("-2 hours", 7_200_000_000), moment_us("1970-01-02", 0), moment_us("soon", 0)
        (0, 86400000000, None)
    """
    said = text.strip().lower()
    match said:
        case "now":
            return now_us
        case "today":
            return now_us - now_us % _DAY_US
        case "yesterday":
            return now_us - now_us % _DAY_US - _DAY_US
    ago = _AGO.fullmatch(said)
    if ago is not None and ago[2] in _UNITS:
        return max(FIRST_US, now_us - round(float(ago[1]) * _UNITS[ago[2]]))
    return read_timestamp(text)
