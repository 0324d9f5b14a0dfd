"""What an agent learns of the links between its region and others: bytes of slices that it sent there, and
that came from there, which it counts anyway.

How much a link carries shows at its far end. Arrivals are counted by periods of ``PERIOD_MS`` of the clock,
so that those of several agents add up, for ``PERIODS`` of them. The most of one is *at least* what the link
carries: all of it, where slices waited to be sent, and less where nobody had more to send. So it is called a
lower bound, and where nothing has come of late nothing is said.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from elf.job.work import LinkWork

PERIOD_MS: Final = 10_000
PERIODS: Final = 30
"""As old may an arrival be, in periods, this one among them."""
REGIONS_MAX: Final = 64
"""Other regions of which anything is kept; the one heard of longest ago is forgotten first."""


class _Region:
    """One other region: bytes since it was first heard of, and what came in which period."""

    __slots__ = ("arrived", "periods", "sent")

    def __init__(self) -> None:
        self.sent = self.arrived = 0
        self.periods: dict[int, int] = {}


class Links:
    """Of one agent, in memory. ``region_of``: the region of an address, other than ours; empty: none that is
    known."""

    def __init__(self, region_of: Callable[[str], str]) -> None:
        self._region_of = region_of
        self._regions: dict[str, _Region] = {}
        """The one heard of last stands last."""

    def sent(self, to: str, size: int) -> None:
        if region := self._region_of(to):
            self._region(region).sent += size

    def arrived(self, sender: str, size: int, now_ms: int) -> None:
        if not (region := self._region_of(sender)):
            return
        one, period = self._region(region), now_ms // PERIOD_MS
        one.arrived += size
        one.periods[period] = one.periods.get(period, 0) + size
        if len(one.periods) > PERIODS:
            one.periods = dict(_recent(one.periods, period))

    def told(
        self, now_ms: int, trips: Mapping[str, float], probed: Mapping[str, float]
    ) -> tuple[LinkWork, ...]:
        """By region. ``trips``: the shortest round trip to each of which one is known, ms; ``probed``: bytes
        a second that probes have found."""
        found = []
        for region in sorted({*self._regions, *trips, *probed}):
            one, trip = self._regions.get(region) or _Region(), trips.get(region)
            recent = _recent(one.periods, now_ms // PERIOD_MS)
            rtt_ms = None if trip is None else round(trip, 3)
            found.append(LinkWork(region, one.sent, one.arrived, recent, rtt_ms, probed.get(region)))
        return tuple(found)

    def arrivals(self) -> dict[str, int]:
        """Bytes that have come since the start, by region."""
        return {region: one.arrived for region, one in self._regions.items()}

    def _region(self, name: str) -> _Region:
        one = self._regions.pop(name, None) or _Region()
        self._regions[name] = one
        if len(self._regions) > REGIONS_MAX:
            del self._regions[next(iter(self._regions))]
        return one


def _recent(periods: dict[int, int], period: int) -> tuple[tuple[int, int], ...]:
    """The last ``PERIODS`` up to this one; a clock that was set back leaves none ahead."""
    return tuple(sorted(one for one in periods.items() if period - PERIODS < one[0] <= period))
