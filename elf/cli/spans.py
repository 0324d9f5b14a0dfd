"""Times on a command line: ``--from`` and ``--to``, the event times that are asked for, and lengths."""

from __future__ import annotations

import re
import time
from typing import Final

from elf.errors import UserError

DAYS_MAX: Final = 36_500
_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def seconds_of(text: str, option: str = "--expires") -> int:
    """Of an option's value, a length of time. Raises ``UserError``."""
    match = re.fullmatch(r"([1-9][0-9]{0,9})([smhd])", text)
    if match is None or (seconds := int(match[1]) * _UNITS[match[2]]) > DAYS_MAX * 86_400:
        raise UserError(f"{option} {text}: a time such as 90s, 30m, 12h or 365d")
    return seconds


def span_of(begin: str | None, end: str | None, now_us: int | None = None) -> tuple[int, int] | None:
    """The event times of ``--from`` and ``--to``, as they are meant now; None: all there are. Raises
    ``UserError``."""
    from agents.tasks.engine import EVENT_FIRST_US, EVENT_LAST_US

    if begin is None and end is None:
        return None
    now_us = time.time_ns() // 1_000 if now_us is None else now_us
    first = EVENT_FIRST_US if begin is None else _moment("--from", begin, now_us)
    last = EVENT_LAST_US if end is None else _moment("--to", end, now_us)
    if first >= last:
        raise UserError(f"--from {begin or ''} is not before --to {end or ''}: nothing is between them")
    return first, last


def _moment(option: str, text: str, now_us: int) -> int:
    from elf.ql.moments import HOW, moment_us

    found = moment_us(text, now_us)
    if found is None:
        raise UserError(f"{option} {text}: that is no moment; say {HOW}")
    return found
