"""How far a node trusts its own observations: one that is slow or cut off waits longer before it calls others
dead.

After Lifeguard (Dadgar, Phillips, Currey 2018): if a node's own ticks are late, or its probes mostly fail
wherever they go, the fault is probably its own. The exception: it still hears many other peers; then many
have died at once.

Late answers prove that silence means little, whichever side is slow. Where half of the last answers took a
second, on an overloaded machine, a peer is not dead because it has not answered for half a second. Asking
again and again, or declaring it dead, would add to the load: 64 nodes that joined at once and took 40 ms a
message sent 2,800 messages each, declared each other dead 3,400 times, and half of them were not ready after
40 s.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from overlay.context import Context

_HALF_LIFE_MS = 5_000
_OUTCOMES_KEPT = 8
_OUTCOMES_TELLING = 4
_FRESH_MS = 10_000
_TRIPS_KEPT = 15
_TRIPS_A_WAIT = 3
"""A node waits for an answer for at least this many usual round trips."""
_HEARD_A_FAILURE = 3
"""Peers heard for each silent one: with so many, the silent ones are dead and we are well."""


class Health:
    """The factor by which a node stretches its timeouts: up to ``stretch_max`` for its own faults, up to
    ``overload_max`` for answers that come late."""

    def __init__(self, context: Context, heard_lately: Callable[[], int]) -> None:
        """``heard_lately``: how many peers have spoken in the last ``suspect_ms``."""
        self._context = context
        self._heard_lately = heard_lately
        self._late_ms = 0.0
        self._late_at = 0
        self._outcomes: dict[int, tuple[int, bool]] = {}
        self._trips: dict[int, tuple[int, int]] = {}

    def ticked(self, late_ms: int) -> None:
        """A deadline of ours was served this late. The worst delay counts, by half after 5 s."""
        if late_ms > self._lateness():
            self._late_ms, self._late_at = float(late_ms), self._context.now

    def probed(self, node: int, answered: bool) -> None:
        """A probe to a peer that we had heard before was answered, or was not. Only the last probe of each
        peer counts."""
        self._outcomes.pop(node, None)
        self._outcomes[node] = (self._context.now, answered)
        if len(self._outcomes) > _OUTCOMES_KEPT:
            del self._outcomes[next(iter(self._outcomes))]

    def excused(self, node: int) -> None:
        """Others find the peer silent too: its silence says nothing about us."""
        self._outcomes.pop(node, None)

    def measured(self, node: int, rtt_ms: int) -> None:
        """A peer's answer took so long. Only the last one of each peer counts, so a single slow peer changes
        nothing."""
        self._trips.pop(node, None)
        self._trips[node] = (self._context.now, rtt_ms)
        if len(self._trips) > _TRIPS_KEPT:
            del self._trips[next(iter(self._trips))]

    @property
    def stretch(self) -> float:
        """1 if this node is healthy; the more, the less its own timeouts prove."""
        config = self._context.config
        slow = self._lateness() / config.suspect_ms
        own = min(1 + slow + self._deaf(), config.stretch_max)
        return max(own, min(_TRIPS_A_WAIT * (self.usual_ms or 0) / config.probe_ms, config.overload_max))

    @property
    def usual_ms(self) -> int | None:
        """The (lower) median of the last round trips; None where none is known."""
        since = self._context.now - _FRESH_MS
        fresh = sorted(rtt_ms for at, rtt_ms in self._trips.values() if at >= since)
        return fresh[(len(fresh) - 1) // 2] if fresh else None

    @property
    def blind(self) -> bool:
        """Whether no answer has ever come: nothing is known of how long one takes."""
        return not self._trips

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
