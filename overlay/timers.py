"""Deadlines by name: setting one again replaces it. The overlay's only notion of the future.

A deadline may have *slack*: from its time on it is served with whatever else is due, and it is waited for
alone only at the end of the slack. So a node that nobody speaks to wakes up for its heartbeats, and does then
all that may be done by then."""

from __future__ import annotations

import heapq
from typing import Generic, TypeVar

Name = TypeVar("Name")


class Timers(Generic[Name]):
    """A set of named deadlines, earliest first; equal times keep the order in which they were set.

    A heap with lazy deletion: every operation is O(log n) amortised, since each entry is pushed and popped
    once. Those with slack are few, and are looked through.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Name]] = []
        self._current: dict[Name, int] = {}
        self._slack: dict[Name, tuple[int, int]] = {}
        """From when on, and until when, of those that have some."""
        self._count = 0

    def set(self, name: Name, at_ms: int, slack_ms: int = 0) -> None:
        """Let ``name`` come due at ``at_ms``, and no longer when it was due before."""
        self._count += 1
        self._current[name] = self._count
        if slack_ms:
            self._slack[name] = at_ms, at_ms + slack_ms
            return
        self._slack.pop(name, None)
        heapq.heappush(self._heap, (at_ms, self._count, name))

    def cancel(self, name: Name) -> None:
        """Forget a deadline, if it is set."""
        self._current.pop(name, None)
        self._slack.pop(name, None)

    def __contains__(self, name: Name) -> bool:
        return name in self._current

    def has_slack(self, name: Name) -> bool:
        """Whether it is set, with slack."""
        return name in self._slack

    def clear(self) -> None:
        """Forget all deadlines."""
        self._heap.clear()
        self._current.clear()
        self._slack.clear()

    def next(self) -> int | None:
        """The earliest deadline, at the end of its slack."""
        exact = self._exact()
        last = min((until for _, until in self._slack.values()), default=exact)
        return last if exact is None or last is None else min(exact, last)

    def pop_due(self, now_ms: int) -> tuple[Name, int] | None:
        """Take the earliest deadline that is not after ``now_ms``: its name, and when it was due at the
        latest."""
        at_ms = self._exact()
        soft = min(self._slack, key=self._slack.__getitem__, default=None)
        if soft is not None and (at_ms is None or self._slack[soft][0] < at_ms):
            since_ms, until_ms = self._slack[soft]
            if since_ms > now_ms:
                return None
            self.cancel(soft)
            return soft, until_ms
        if at_ms is None or at_ms > now_ms:
            return None
        _, _, name = heapq.heappop(self._heap)
        del self._current[name]
        return name, at_ms

    def _exact(self) -> int | None:
        """The earliest of those without slack."""
        while self._heap:
            at_ms, count, name = self._heap[0]
            if self._current.get(name) == count:
                return at_ms
            heapq.heappop(self._heap)
        return None
