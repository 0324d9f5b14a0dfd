"""Should two jobs that map alike share one set of panes, though their windows want other panes?

Shared, each row is mapped once, into panes of the gcd of both lengths; apart, each row is mapped twice,
into longer panes. Shorter panes have more partial aggregates in all: a key that comes every second is in 60
panes of a second and in one of a minute. So it is decided by how the number of keys grows with the pane,
which is measured, not guessed (Enorm, section 5.1.1, decides at run time likewise).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

MAP_ROW_US: Final = 1.2
"""Core-µs to parse, filter and group a row (``elf bench ingest``: 0.87 M lines/s)."""
SHARED_PARSE: Final = 0.6
"""Share of that which all flows of a stream have in common anyway (extract)."""
KEY_US: Final = 1.0
"""Core-µs of a partial aggregate at each level: insert, seal, encode, merge, commit."""


@dataclass(frozen=True)
class Measured:
    """What a fleet says of a fragment: rows a second of all agents, distinct keys in panes of ``pane_us``
    and in panes twice as long (each the mean of an agent's sealed panes), agents, and levels up to the
    root.
    """

    rows_per_s: float
    pane_us: int
    keys: float
    keys_of_two: float
    agents: int = 1
    levels: int = 1

    def keys_in(self, pane_us: int) -> float:
        """Distinct keys in a pane of this length: keys grow as a power of time between the two that were
        measured, neither shrinking nor faster than time itself.
        """
        growth = 0.0
        if self.keys > 0 and self.keys_of_two > 0:
            growth = min(1.0, max(0.0, math.log2(self.keys_of_two / self.keys)))
        return float(self.keys * (pane_us / self.pane_us) ** growth)


@dataclass(frozen=True)
class Choice:
    """``pane_us``: of the flow to share, or None to make another; the costs in core-seconds an hour."""

    pane_us: int | None
    shared: float
    apart: float


def choose(known_us: int, wanted_us: int, measured: Measured) -> Choice:
    """A flow has panes of ``known_us``, a new job with the same fragment wants ``wanted_us``.

    When the new job's windows are whole panes of the flow that is there, sharing costs nothing. Else the flow
    would have to be cut into panes of the gcd.
    """
    if known_us == wanted_us or wanted_us % known_us == 0:
        cost = _panes(known_us, measured)
        return Choice(known_us, cost, cost + _panes(wanted_us, measured) + _mapping(measured))
    pane_us = math.gcd(known_us, wanted_us)
    shared = _panes(pane_us, measured)
    apart = _panes(known_us, measured) + _panes(wanted_us, measured) + _mapping(measured)
    return Choice(pane_us if shared <= apart else None, shared, apart)


def _panes(pane_us: int, measured: Measured) -> float:
    """Core-seconds an hour of the panes' partial aggregates, from the agents to the root."""
    an_hour = 3_600_000_000 / pane_us
    return an_hour * measured.keys_in(pane_us) * measured.agents * (1 + measured.levels) * KEY_US / 1e6


def _mapping(measured: Measured) -> float:
    """Core-seconds an hour of mapping every row once more."""
    return 3_600 * measured.rows_per_s * MAP_ROW_US * (1 - SHARED_PARSE) / 1e6
