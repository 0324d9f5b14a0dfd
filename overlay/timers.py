"""Deadlines by name: setting one again replaces it. The overlay's only notion of the future."""

from __future__ import annotations

import heapq
from typing import Generic, TypeVar

Name = TypeVar("Name")


class Timers(Generic[Name]):
    """A set of named deadlines, earliest first; equal times keep the order in which they were set.

    A heap with lazy deletion: every operation is O(log n) amortised, since each entry is pushed and popped
    once.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Name]] = []
        self._current: dict[Name, int] = {}
        self._count = 0

    def set(self, name: Name, at_ms: int) -> None:
        """Let ``name`` come due at ``at_ms``, and no longer when it was due before."""
        self._count += 1
        self._current[name] = self._count
        heapq.heappush(self._heap, (at_ms, self._count, name))

    def cancel(self, name: Name) -> None:
        """Forget a deadline, if it is set."""
        self._current.pop(name, None)

    def __contains__(self, name: Name) -> bool:
        return name in self._current

    def clear(self) -> None:
        """Forget all deadlines."""
        self._heap.clear()
        self._current.clear()

    def next(self) -> int | None:
        """The earliest deadline."""
        while self._heap:
            at_ms, count, name = self._heap[0]
            if self._current.get(name) == count:
                return at_ms
            heapq.heappop(self._heap)
        return None

    def pop_due(self, now_ms: int) -> tuple[Name, int] | None:
        """Take the earliest deadline that is not after ``now_ms``: its name and when it was due."""
        at_ms = self.next()
        if at_ms is None or at_ms > now_ms:
            return None
        _, _, name = heapq.heappop(self._heap)
        del self._current[name]
        return name, at_ms
