"""Panes and windows: integer arithmetic on event time, in microseconds since the epoch (UTC).

``kinds``: which pane a row is in, which panes are complete, and what windows there are. ``calendar``: which
windows of a job end when, and what they need. ``merging``: how larger pieces are built from smaller ones with
the fewest merges. ``sharing``: whether panes of another job are worth these.
"""

from elf.windows.calendar import Calendar, Spans
from elf.windows.kinds import (
    Counted,
    Cumulative,
    Int64s,
    Kind,
    Landmark,
    Session,
    Sliding,
    counted,
    highest_before,
    pane_us_of,
    panes_of,
    sealable,
    sums_by_window,
)

__all__ = [
    "Calendar",
    "Counted",
    "Cumulative",
    "Int64s",
    "Kind",
    "Landmark",
    "Session",
    "Sliding",
    "Spans",
    "counted",
    "highest_before",
    "pane_us_of",
    "panes_of",
    "sealable",
    "sums_by_window",
]
