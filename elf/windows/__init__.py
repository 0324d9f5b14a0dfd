"""Panes and windows: integer arithmetic on event time, in microseconds since the epoch (UTC).

``kinds``: which pane a row is in, which panes are complete, and what windows there are. ``calendar``: which
windows of a job end when, and what they need. ``merging``: how larger pieces are built from smaller ones with
the fewest merges. ``sharing``: whether reading the panes of another job is cheaper than making own ones.

A window is an interval ``[start, end)`` and a whole number of panes. It is complete when everything below its
end is committed, so windows are counted by their ends.
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
