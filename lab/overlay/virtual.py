"""What simulated worlds share: virtual time as a heap of (time, sequence, event), and partitions."""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

Event = TypeVar("Event")


class VirtualWorld(ABC, Generic[Event]):
    """Events happen in the order of their times, equal times in the order in which they were set. ``now`` is
    virtual milliseconds."""

    def __init__(self) -> None:
        self.now = 0
        self._heap: list[tuple[int, int, Event]] = []
        self._count = 0
        self._sides: dict[str, int] = {}

    # -- time ------------------------------------------------------------------------------------------------

    def run(self, for_ms: int) -> None:
        """Let time pass."""
        end, heap = self.now + for_ms, self._heap
        while heap and heap[0][0] <= end:
            self.now, _, event = heapq.heappop(heap)
            self._happen(event)
        self.now = end

    def run_until(self, condition: Callable[[], bool], limit_ms: int, every_ms: int = 50) -> bool:
        """Let time pass until something holds, looked at every so often; False if it never did."""
        end = self.now + limit_ms
        while not condition():
            if self.now >= end:
                return False
            self.run(min(every_ms, end - self.now))
        return True

    # -- partitions ------------------------------------------------------------------------------------------

    def partition(self, *sides: Iterable[str]) -> None:
        """Messages between nodes of different sides are lost. Nodes on no side are on one of their own."""
        self._sides = {address: number for number, side in enumerate(sides, 1) for address in side}

    def heal(self) -> None:
        """The partition is over."""
        self._sides = {}

    # -- for worlds ------------------------------------------------------------------------------------------

    def _push(self, at: int, event: Event) -> None:
        """Let an event happen at that time."""
        self._count += 1
        heapq.heappush(self._heap, (at, self._count, event))

    def _parted(self, source: str, target: str) -> bool:
        sides = self._sides
        return bool(sides) and sides.get(source, 0) != sides.get(target, 0)

    @abstractmethod
    def _happen(self, event: Event) -> None:
        """An event's time has come."""
