"""What a lane hands over of a flow: snapshots of sealed panes, and open ones early."""

from __future__ import annotations

from dataclasses import dataclass

Span = tuple[int, int]
Name = tuple[int, int, int]
"""Of a snapshot: first pane, end, part."""


@dataclass(frozen=True)
class Sealed:
    """Snapshots of panes ``[start, end)`` of a flow by this agent: encoded tables, ``payload`` empty when all
    are. ``part``: 0, or the number of what late rows add to a pane.
    """

    flow: str
    start: int
    end: int
    tally: bytes
    payload: bytes
    part: int = 0


@dataclass(frozen=True)
class Early:
    """The open panes of a flow, from ``start`` on, as they are now; ``end``: after the last with a row."""

    flow: str
    start: int
    end: int
    tally: bytes
    payload: bytes
