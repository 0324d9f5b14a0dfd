"""Panes and windows: integer arithmetic on event time, in microseconds since the epoch (UTC).

``panes``: which pane a row is in, and which panes are complete. ``kinds``: what windows there are.
``calendar``: which windows of a job end when, and what they need. ``merging``: how larger pieces are built
from smaller ones with the fewest merges. ``sharing``: whether two jobs should share one set of panes.
"""

from elf.windows.calendar import Calendar, Spans
from elf.windows.kinds import Cumulative, Kind, Landmark, Session, Sliding, pane_us_of
from elf.windows.panes import Int64s, highest_before, panes_of, sealable, sums_by_window

__all__ = [
    "Calendar",
    "Cumulative",
    "Int64s",
    "Kind",
    "Landmark",
    "Session",
    "Sliding",
    "Spans",
    "highest_before",
    "pane_us_of",
    "panes_of",
    "sealable",
    "sums_by_window",
]
