"""``--from`` and ``--to``: the event times that are asked for."""

from __future__ import annotations

import time

from elf.errors import UserError


def span_of(begin: str | None, end: str | None) -> tuple[int, int] | None:
    """The event times of ``--from`` and ``--to``; None: all there are. Raises ``UserError``."""
    from agents.tasks.engine import EVENT_FIRST_US, EVENT_LAST_US

    if begin is None and end is None:
        return None
    now_us = time.time_ns() // 1_000
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
