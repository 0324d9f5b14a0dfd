"""When a root tells its agents what groups it needs (``elf.job.thresholds``).

A new threshold is told when the one that they have would not do about as well, and again after ``RENEWED``
commits for agents that have just come. After panes that it was unsure of, a root asks for all groups of the
next ones; the oftener that happens, the longer (``RESTED`` panes at most).
"""

from __future__ import annotations

from typing import Final

from elf.job.snapshots import Threshold

RENEWED: Final = 64
RESTED: Final = 64
TOLD: Final = 4
CALM: Final = 16
"""After so many commits without being unsure it is as if it had never been."""


class Asking:
    """Of one flow: what its agents have been told."""

    def __init__(self) -> None:
        self._told: Threshold | None = None
        self.last: tuple[Threshold, ...] = ()
        """Those by which agents may still leave something out."""
        self._age = 0
        self._rest = self._resting = 0

    def committed(self, threshold: Threshold | None) -> Threshold | None:
        """Panes are committed, by which this (None: nothing) would do for the next: what to tell, if it is
        news."""
        if self._resting:
            self._resting -= 1
            return None
        self._age += 1
        self._rest = 0 if self._age >= CALM else self._rest
        told = self._told
        if threshold is None or (told is not None and told.serves(threshold) and self._age % RENEWED):
            return None
        self._told = threshold
        self.last = (*self.last[1 - TOLD :], threshold)
        return threshold

    def unsure(self) -> bool:
        """It was not enough: whether to tell them so."""
        self._age, self._resting, self._rest = 0, self._rest, min(RESTED, 2 * self._rest + 1)
        told, self._told = self._told, None
        return told is not None
