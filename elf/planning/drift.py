"""Whether the settings that a promise was worked out with still fit, by what its windows have taken.

Looks for what ends a pane that are closer together make windows earlier by as much, and no more: so a promise
that is broken by less than that is kept by the longest pause that is short enough, and one that is broken by
more stays as it is, since nothing would be won. Where there is much room the pause is as long as keeps
within ``ROOM`` of it. Between the two lies the hysteresis. When that is asked ``elf.planning.pacing`` says.
"""

from __future__ import annotations

from typing import Final

from elf.planning.solve import POLLS_MS

ROOM: Final = 0.7


def pause_of(poll_ms: int, reached_ms: float, within_ms: float, *, kept: bool) -> int:
    """How far apart looks are to be from now on. ``reached_ms``: what is promised has come to, with looks
    ``poll_ms`` apart."""
    if kept:
        able = [one for one in POLLS_MS if one > poll_ms and reached_ms + (one - poll_ms) <= ROOM * within_ms]
    else:
        able = [one for one in POLLS_MS if one < poll_ms and reached_ms - (poll_ms - one) <= within_ms]
    return max(able, default=poll_ms)
