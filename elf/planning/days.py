"""A budget of bytes a day (UTC) lasts until midnight: the first half may go at any time; of the rest no more
goes up in a second than would last until then. So what is busy in the morning is not at once held back, and
nobody who would be within the budget anyway is ever."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

DAY_MS: Final = 86_400_000
LEFT_S_MIN: Final = 60.0
"""What is left of a day is not spent in the last second of it."""
FREE: Final = 0.5


def paced(budget: int, taken: int, now_ms: int) -> float | None:
    """How many bytes may go up in a second from now on; None: any number."""
    if not budget or taken < FREE * budget:
        return None
    left_s = max((DAY_MS - now_ms % DAY_MS) / 1000, LEFT_S_MIN)
    return max(budget - taken, 0) / left_s


@dataclass
class Day:
    """What has gone up today, by whose budget that is."""

    number: int = 0
    taken: dict[str, int] = field(default_factory=dict)

    @classmethod
    def restored(cls, image: bytes | None) -> Day:
        """As it was; empty if that cannot be read."""
        try:
            return cls(*msgspec.msgpack.decode(image, type=tuple[int, dict[str, int]])) if image else cls()
        except msgspec.MsgspecError:
            return cls()

    def image(self) -> bytes:
        """For a restart."""
        return msgspec.msgpack.encode((self.number, self.taken))

    def add(self, more: Mapping[str, int], now_ms: int) -> None:
        """So many bytes have gone up since the last time."""
        if now_ms // DAY_MS != self.number:
            self.number, self.taken = now_ms // DAY_MS, {}
        for whose, count in more.items():
            if count:
                self.taken[whose] = self.taken.get(whose, 0) + count

    def of(self, whose: str) -> int:
        return self.taken.get(whose, 0)
