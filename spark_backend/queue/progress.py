"""How long a task still takes: its rate of progress, exponentially smoothed, as Hadoop's estimator has it.

Estimates are made once a second for all tasks of a run at once and may be stale when they are used (section
6.6, "Releaser").
"""

from __future__ import annotations

import math
from typing import Final

SMOOTHING_MS: Final = 60_000
"""A rate that was seen so long ago weighs 1/e. Hadoop's default."""


class Rate:
    """The smoothed rate of one attempt.

    Example:
        >>> rate = Rate(0, 0.0)
        >>> rate.seen(1_000, 0.25)
        >>> rate.remaining_ms
        3000.0
    """

    def __init__(self, at_ms: int, progress: float) -> None:
        self._at_ms = at_ms
        self._per_ms: float | None = None
        self.progress = progress
        """The last that was seen, 0 to 1."""

    def seen(self, at_ms: int, progress: float) -> None:
        """Take in what a heartbeat says. One that is old, or goes back, says nothing."""
        past_ms = at_ms - self._at_ms
        if past_ms <= 0 or progress < self.progress:
            return
        now = (progress - self.progress) / past_ms
        kept = 0.0 if self._per_ms is None else math.exp(-past_ms / SMOOTHING_MS)
        self._per_ms = kept * (self._per_ms or 0.0) + (1 - kept) * now
        self._at_ms, self.progress = at_ms, progress

    @property
    def per_ms(self) -> float:
        """Progress a millisecond; 0 as long as none was seen."""
        return self._per_ms or 0.0

    @property
    def remaining_ms(self) -> float:
        """How long it still takes; infinite as long as no progress was seen."""
        return (1 - self.progress) / self.per_ms if self.per_ms > 0 else math.inf
