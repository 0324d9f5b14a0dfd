"""The roster of a flow: which members of its stream are *expected* in which panes (protocol 2.3).

Members come and go in event time, so between two turns a set holds for all panes. It is made once a roster,
when it is first asked for: a root looks at it with every piece that comes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import cached_property

from elf.job.contributions import bitmap
from elf.job.log.streamlog import FOREVER_US, Member
from elf.job.spec import END_OF_TIME, START_OF_TIME


class Roster:
    """``members`` of a stream as the log's entry ``version`` left them, for panes of ``pane_us``."""

    def __init__(self, pane_us: int, members: tuple[Member, ...] = (), version: int = 0) -> None:
        self.members = members
        self.version = version
        self._pane_us = pane_us

    def member(self, number: int) -> Member | None:
        return self._by_number.get(number)

    def expected(self, pane: int) -> int:
        """Those of this pane, as a contribution set."""
        edges, sets = self._spans
        at = bisect_right(edges, pane)
        return sets[at - 1] if at else 0

    def edges(self, start: int, end: int) -> Sequence[int]:
        """The panes inside ``(start, end)`` at which somebody comes or goes."""
        edges, _ = self._spans
        return edges[bisect_right(edges, start) : bisect_left(edges, end)]

    @cached_property
    def all(self) -> int:
        """Whoever is or was on it."""
        return bitmap(self._by_number)

    @cached_property
    def staying(self) -> int:
        """Those who have not left."""
        return bitmap(m.number for m in self.members if m.until_us == FOREVER_US)

    @cached_property
    def _by_number(self) -> dict[int, Member]:
        return {m.number: m for m in self.members}

    @cached_property
    def _spans(self) -> tuple[list[int], list[int]]:
        """Where the set changes, ascending, and what it is from there on."""
        turns: dict[int, int] = {}  # who comes or goes there
        for m in self.members:
            since, until = self._pane_of(m.since_us), self._pane_of(m.until_us)
            if since < until:
                for edge in (since, until):
                    turns[edge] = turns.get(edge, 0) ^ 1 << m.number
        edges, sets, members = sorted(turns), [], 0
        for edge in edges:
            members ^= turns[edge]
            sets.append(members)
        return edges, sets

    def _pane_of(self, us: int) -> int:
        if abs(us) >= END_OF_TIME or not self._pane_us:
            return END_OF_TIME if us > 0 else START_OF_TIME
        return -(-us // self._pane_us)
