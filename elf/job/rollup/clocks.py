"""How far the agents' clocks are apart, as the root of their flows sees it.

Every ``Progress`` carries its sender's clock, which was read one way ago. The difference to our clock is the
skew less that way, so the largest of the last differences is the best one; half of the round trip that the
overlay measures is added. A reported skew is relative to the median of all clocks, our own included: so one
bad clock is reported as one, also when it is ours. A skew is exact to half a round trip of each of the two
clocks, and to the ms in which clocks are read; a warning is only about what is beyond that.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import median
from typing import Final

SAMPLES: Final = 30
HEARD_MAX: Final = 16_384
FORGET_MS: Final = 60_000
"""A clock is no longer reported when it was not heard for this long."""
WARN_EVERY_MS: Final = 60_000
SURE_MS: Final = 10_000
SURE_WORDS: Final = 4
"""There is no warning about a clock that was heard fewer times, or for less time: the first messages may have
waited for us for some seconds, as those sent during a restart on a busy machine. The message that waited
least is the best, so one prompt message is enough; that takes time, not numbers."""
LOOK_EVERY_MS: Final = 1_000
"""How often the median is computed: it takes as many steps as there are clocks, and each of them reports
about every second."""
UNMEASURED_MS: Final = 100.0
"""How long a message may have been under way when nobody has measured the round trip to its sender."""


@dataclass
class _Heard:
    """Differences (theirs less ours, ms); ``half_ms``: half of the round trip, None if nobody measured it."""

    samples: deque[int] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    half_ms: float | None = None
    since_ms: int = 0
    at_ms: int = 0
    warned_ms: int | None = None

    @property
    def offset_ms(self) -> float:
        return max(self.samples) + (self.half_ms or 0.0)

    @property
    def unsure_ms(self) -> float:
        """How far the skew may be wrong."""
        return UNMEASURED_MS if self.half_ms is None else self.half_ms


class Clocks:
    """The clocks of the agents that send us ``Progress``, by address; times are integer ms."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._heard: dict[str, _Heard] = {}
        self._middle = 0.0
        self._middle_unsure_ms = 0.0
        self._middle_ms: int | None = None

    def hear(self, address: str, their_ms: int, now_ms: int, rtt_ms: float | None) -> None:
        if not their_ms or address == self._address:
            return
        if len(self._heard) >= HEARD_MAX and address not in self._heard:
            return
        heard = self._heard.setdefault(address, _Heard(since_ms=now_ms))
        heard.samples.append(their_ms - now_ms)
        heard.half_ms = heard.half_ms if rtt_ms is None else rtt_ms / 2
        heard.at_ms = now_ms

    def skews(self, now_ms: int) -> dict[str, int]:
        """Address → how many ms its clock is ahead of the median; empty while no other clock was heard."""
        self._heard = {a: h for a, h in self._heard.items() if now_ms - h.at_ms <= FORGET_MS}
        if not self._heard:
            return {}
        offsets = {a: h.offset_ms for a, h in self._heard.items()}
        offsets[self._address] = 0.0
        self._middle, self._middle_ms = median(offsets.values()), now_ms
        self._middle_unsure_ms = median([0.0, *(h.unsure_ms for h in self._heard.values())])
        return {address: round(offset - self._middle) for address, offset in offsets.items()}

    def beyond(self, address: str, limit_ms: int, now_ms: int) -> int | None:
        """The skew of a clock that is off by more than the limit, at most once a minute for each; else
        None."""
        heard = self._heard.get(address)
        if heard is None or (heard.warned_ms is not None and now_ms - heard.warned_ms < WARN_EVERY_MS):
            return None
        if now_ms - heard.since_ms < SURE_MS or len(heard.samples) < SURE_WORDS:
            return None
        if self._middle_ms is None or now_ms - self._middle_ms >= LOOK_EVERY_MS:
            self.skews(now_ms)
        skew = round(heard.offset_ms - self._middle)
        ways_ms = heard.unsure_ms + self._middle_unsure_ms  # its own, and that of the clock in the middle
        if abs(skew) <= limit_ms + ways_ms + 1:
            return None
        heard.warned_ms = now_ms
        return skew
