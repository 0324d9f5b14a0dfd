"""How far a node trusts its own senses: one that is slow or cut off waits longer before it calls others dead.

After Lifeguard (Dadgar, Phillips, Currey 2018): a late tick of its own, or probes that mostly fail whomever
they go to, say more about the prober than about the probed. Unless it still hears many others: then many have
died at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from overlay.context import Context

_HALF_LIFE_MS = 5_000
_OUTCOMES_KEPT = 8
_OUTCOMES_TELLING = 4
_FRESH_MS = 10_000
_HEARD_A_FAILURE = 3
"""Peers heard for each that is silent: with so many, the silent are dead and we are well."""


class Health:
    """The factor by which a node stretches its timeouts, from 1 to ``stretch_max``."""

    def __init__(self, context: Context, heard_lately: Callable[[], int]) -> None:
        """``heard_lately``: how many peers have spoken in the last ``suspect_ms``."""
        self._context = context
        self._heard_lately = heard_lately
        self._late_ms = 0.0
        self._late_at = 0
        self._outcomes: dict[int, tuple[int, bool]] = {}

    def ticked(self, late_ms: int) -> None:
        """A deadline of ours was served so late. The worst counts, half of it after 5 s."""
        if late_ms > self._lateness():
            self._late_ms, self._late_at = float(late_ms), self._context.now

    def probed(self, node: int, answered: bool) -> None:
        """A probe to a peer that we had heard before was answered, or was not. Only the last one a peer
        counts."""
        self._outcomes.pop(node, None)
        self._outcomes[node] = (self._context.now, answered)
        if len(self._outcomes) > _OUTCOMES_KEPT:
            del self._outcomes[next(iter(self._outcomes))]

    def excused(self, node: int) -> None:
        """Others find it silent too: its silence says nothing about us."""
        self._outcomes.pop(node, None)

    @property
    def stretch(self) -> float:
        """1 in health; the more, the less our own timeouts prove."""
        slow = self._lateness() / self._context.config.suspect_ms
        return min(1 + slow + self._deaf(), self._context.config.stretch_max)

    def _lateness(self) -> float:
        if not self._late_ms:
            return 0.0
        late_ms = self._late_ms * math.pow(0.5, (self._context.now - self._late_at) / _HALF_LIFE_MS)
        if late_ms < self._context.config.suspect_ms / 10:
            self._late_ms = late_ms = 0.0
        return late_ms

    def _deaf(self) -> float:
        since = self._context.now - _FRESH_MS
        fresh = [answered for at, answered in self._outcomes.values() if at >= since]
        failed = len(fresh) - sum(fresh)
        if failed < _OUTCOMES_TELLING or failed * 4 < len(fresh) * 3:
            return 0.0
        return 1.0 if self._heard_lately() < _HEARD_A_FAILURE * failed else 0.0
