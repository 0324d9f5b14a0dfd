"""The committed panes of a flow, as a node knows them: at the flow's root (``elf.job.rollup.root``) and in
the copy of a reader on another node (``elf.job.rollup.mirrors``). Masters assemble windows of either, and
cannot tell which.

Who is *expected* in a pane is what the stream log says: the roster of the flow's stream in event time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import pairwise

from elf.job.effects import Coverage, Named
from elf.job.log.streamlog import Member
from elf.job.rollup.history import History, Segment
from elf.job.rollup.roster import Roster
from elf.job.spec import START_OF_TIME, Flow

PRUNE_MS = 60_000
"""How often it is looked at what can be forgotten."""


class Panes:
    """See the module's docstring. ``segments`` are those of an earlier life."""

    def __init__(self, flow: Flow, segments: Sequence[Segment] = ()) -> None:
        self.flow = flow
        self._history = History(segments)
        self._first: int | None = None
        self._roster = Roster(flow.fragment.pane_us)
        self._named: Named | None = None
        self._marks: deque[tuple[int, int]] = deque()

    @property
    def stored_as(self) -> str:
        """The name under which the store has these panes."""
        return self.flow.uid

    @property
    def first_pane(self) -> int | None:
        """Panes from this one on are (to be) here; None until that is decided."""
        return self._first

    def set_roster(self, members: tuple[Member, ...], version: int) -> None:
        self._roster = Roster(self.flow.fragment.pane_us, members, version)
        self._named = None

    def durable_to(self) -> int:
        """Panes below this one are committed and durable here."""
        if self._history:
            return self._history.end
        return START_OF_TIME if self._first is None else self._first

    def begins_at(self) -> int:
        """The first pane that whoever begins to read now finds whole."""
        return self.durable_to()

    def kept_from(self) -> int:
        """Panes from this one on are still here."""
        if self._history:
            return self._history.start
        return START_OF_TIME if self._first is None else self._first

    def segments(self) -> tuple[Segment, ...]:
        return tuple(self._history)

    def coverage(self, start: int, end: int) -> tuple[Coverage, ...]:
        """The committed panes of a range, as a master needs them; what is not here any more, or never was, is
        lost."""
        found: list[Coverage] = []
        at = self._first if self._first is not None and start <= START_OF_TIME else start
        uid = self.stored_as
        for segment in self._history.within(start, end):
            begin, stop = max(segment.start, start), min(segment.end, end)
            if at < begin:
                found.append(Coverage(uid, at, begin, 0, self.expected(at), 0, lost=True))
            for first, last in pairwise((begin, *self._roster.edges(begin, stop), stop)):
                expected = self.expected(first) | segment.members
                found.append(
                    Coverage(uid, first, last, segment.revision, expected, segment.members, segment.lost)
                )
            at = stop
        return tuple(found)

    # -- the roster ------------------------------------------------------------------------------------------

    def expected(self, pane: int) -> int:
        """The roster of a pane, as a contribution set."""
        return self._roster.expected(pane)

    def member(self, number: int) -> Member | None:
        return self._roster.member(number)

    def named(self) -> Named:
        """Who its members are."""
        if self._named is None or self._named.flow != self.stored_as:
            agents = {m.number: (m.agent_id, m.name) for m in self._roster.members}
            self._named = Named(self.stored_as, agents)
        return self._named

    def revise_ms(self, default_ms: int) -> int:
        """How long after its commit a pane may be revised: for late rows at least as long as its job says."""
        late_us = self.flow.fragment.revise_us
        return default_ms if late_us is None else max(default_ms, late_us // 1000)

    # -- what can be forgotten -------------------------------------------------------------------------------

    def settled_to(self, now_ms: int, revise_ms: int) -> int | None:
        """Panes below this one were committed so long ago that no revision of them can come; asked about once
        every ``PRUNE_MS``, otherwise None.
        """
        if self._marks and now_ms - self._marks[-1][0] < PRUNE_MS:
            return None
        self._marks.append((now_ms, self.durable_to()))
        if now_ms - self._marks[0][0] <= self.revise_ms(revise_ms) + PRUNE_MS:
            return None
        return self._marks.popleft()[1]

    def forget(self, below: int) -> None:
        """Panes below this one are not kept any more."""
        if self._history:
            self._history.forget(below)

    def check(self) -> None:
        """Raise ``ElfBug`` when an invariant is broken."""
        self._history.check()


def disjoint(rows: Sequence[tuple[int, int, int, bytes]]) -> list[tuple[int, int, int, bytes]]:
    """Stored commits (start, end, revision, members): for each pane its highest revision, and of these the
    last ones without a hole. What lies before a hole is left over from a pruning.
    """
    found: list[tuple[int, int, int, bytes]] = []
    for new in sorted(rows, key=lambda row: row[2]):
        kept = []
        for old in found:
            for a, b in ((old[0], min(old[1], new[0])), (max(old[0], new[1]), old[1])):
                if a < b:
                    kept.append((a, b, old[2], old[3]))
        found = [*kept, new]
    found.sort()
    for place in range(len(found) - 1, 0, -1):
        if found[place - 1][1] != found[place][0]:
            return found[place:]
    return found
