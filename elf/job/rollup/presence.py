"""Which members of a flow are expected in a pane, and which of them are there, as its root hears of them.

``Roster`` is what the catalog log says: who is *expected* in which panes (protocol 2.3). Members come and go
in event time, so one set holds for all panes between two changes. Each set is computed once for a roster, on
first use.

``Presence`` is what members say: what each said last, which are taken for dead, and which have been silent
for too long to be awaited. What depends on time is computed again when the first silence may have become too
long.

A root asks both with every message and every piece, so their answers are contribution sets.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from elf.job.catalog.members import FOREVER_US, Member
from elf.job.contributions import bitmap
from elf.job.messages.rollup import FlowProgress
from elf.job.spec import END_OF_TIME, START_OF_TIME

LATER_MS_MAX = 10_000
"""A member that announces its next message for later than this is not believed."""


class Roster:
    """``members`` of a stream as the log's entry ``version`` left them, for panes of ``pane_us``."""

    def __init__(self, pane_us: int, members: tuple[Member, ...] = (), version: int = 0) -> None:
        self.members = members
        self.version = version
        self._pane_us = pane_us

    def member(self, number: int) -> Member | None:
        return self._by_number.get(number)

    def expected(self, pane: int) -> int:
        """The members of this pane, as a contribution set."""
        edges, sets = self._spans
        at = bisect_right(edges, pane)
        return sets[at - 1] if at else 0

    def edges(self, start: int, end: int) -> Sequence[int]:
        """The panes inside ``(start, end)`` at which a member comes or goes."""
        edges, _ = self._spans
        return edges[bisect_right(edges, start) : bisect_left(edges, end)]

    @cached_property
    def all(self) -> int:
        """All that are or were on the roster."""
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
        """The panes at which the set changes, ascending, and the set from there on."""
        turns: dict[int, int] = {}  # pane → members that come or go there
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


@dataclass
class Told:
    """What a member last said of a flow, and when each of its counts last grew (None: not since)."""

    progress: FlowProgress
    at_ms: int
    rows_ms: int | None = None
    late_ms: int | None = None
    future_ms: int | None = None
    moved_ms: int = 0
    """When it last said that it has sealed more."""

    def hear(self, progress: FlowProgress, now_ms: int) -> None:
        before = self.progress
        self.rows_ms = now_ms if progress.rows > before.rows else self.rows_ms
        self.late_ms = now_ms if progress.late > before.late else self.late_ms
        self.future_ms = now_ms if progress.future > before.future else self.future_ms
        self.moved_ms = now_ms if progress.sealed > before.sealed else self.moved_ms
        self.progress, self.at_ms = progress, now_ms


class Presence:
    """``grace_ms``: a member that is silent for longer is not awaited."""

    def __init__(self, grace_ms: int) -> None:
        self._grace_ms = grace_ms
        self._told: dict[int, Told] = {}
        self.latest = START_OF_TIME
        """No ``live_from`` is above it."""
        self._silent = 0
        self._sure_ms = 0
        """Until then no other member can have been silent for too long."""
        self.heard = 0
        """Members that have said anything, as a contribution set."""
        self.dead = 0
        """Members that the overlay takes for dead, and that were not heard since."""
        self.later_ms = 0
        """The most that a next message may come later than after a second."""

    def __getitem__(self, member: int) -> Told:
        return self._told[member]

    def __iter__(self) -> Iterator[int]:
        return iter(self._told)

    def get(self, member: int) -> Told | None:
        return self._told.get(member)

    def hear(self, member: int, progress: FlowProgress, now_ms: int) -> bool:
        """Take a member's message. Returns whether its standing changed: it is there again, or it begins with
        another pane."""
        bit, known = 1 << member, self._told.get(member)
        reexecution = (self.dead | self._silent) & bit
        self.dead &= ~bit
        self._silent &= ~bit
        self.latest = max(self.latest, progress.live_from)
        self.later_ms = max(self.later_ms, min(progress.later_ms, LATER_MS_MAX))
        if known is None:
            self._told[member] = Told(progress, now_ms, moved_ms=now_ms)
            self.heard |= bit
            return True
        other = known.progress.live_from != progress.live_from
        known.hear(progress, now_ms)
        return other or bool(reexecution)

    def lose(self, members: Iterable[int]) -> None:
        """The overlay takes these members for dead."""
        self.dead |= bitmap(members)

    def there(self, now_ms: int) -> int:
        """Members that speak, and are not taken for dead."""
        if now_ms > self._sure_ms:
            least = now_ms - self._grace_ms
            self._silent = bitmap(n for n, told in self._told.items() if told.at_ms < least)
            rest = (told.at_ms for told in self._told.values() if told.at_ms >= least)
            self._sure_ms = min(rest, default=now_ms) + self._grace_ms
        return self.heard & ~self.dead & ~self._silent

    def is_silent(self, member: int, silent_ms: int, began_ms: int | None, now_ms: int) -> bool:
        """Whether a member is taken for dead, or is unheard."""
        return bool(self.dead >> member & 1) or self.is_unheard(member, silent_ms, began_ms, now_ms)

    def is_unheard(self, member: int, silent_ms: int, began_ms: int | None, now_ms: int) -> bool:
        """Whether a member was not heard for this long (never: since ``began_ms``) and for the time that its
        next message may take."""
        told = self._told.get(member)
        since_ms = began_ms if told is None else told.at_ms
        return since_ms is not None and now_ms - since_ms > silent_ms + self.later_ms

    def in_their_past(self, pane: int, now_ms: int) -> int:
        """Members that are there, say that they still read their archives for this pane, and get on."""
        least = now_ms - self._grace_ms
        reading = ((n, told) for n, told in self._told.items() if told.progress.past)
        behind = (n for n, told in reading if told.progress.sealed <= pane and told.moved_ms >= least)
        return bitmap(behind) & self.there(now_ms)

    def begun(self, pane: int) -> int:
        """Members that say that they answer for this pane."""
        if pane >= self.latest:
            return self.heard
        return bitmap(n for n, told in self._told.items() if told.progress.live_from <= pane)

    def beginnings(self, start: int, end: int) -> set[int]:
        """The panes inside ``(start, end)`` with which a member begins."""
        if start >= self.latest:
            return set()
        found = {told.progress.live_from for told in self._told.values()}
        return {pane for pane in found if start < pane < end}
