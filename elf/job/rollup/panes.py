"""The committed panes of a flow, as a node knows them: at the flow's root (``elf.job.rollup.root``), and in
the copy of a reader on another node (``elf.job.rollup.mirrors``). Masters assemble windows from either, and
cannot tell them apart.

``History`` has the panes from the first to the last, without holes, each with its revision and members
(protocol 5.9). A revision adds members to panes that are there and never takes one away. At a reader, panes
that the root had dropped before the reader had them are *lost*: they are there, with no members.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise

import msgspec

from elf.errors import ElfBug
from elf.fields import replace
from elf.job.catalog.members import Member
from elf.job.contributions import PartName
from elf.job.effects import Coverage, Named
from elf.job.openparts import in_part, in_whole
from elf.job.rollup.presence import Roster
from elf.job.spec import START_OF_TIME, Flow

KNOWN_MAX = 64
"""Commits that are remembered as the first whose root's log had come so far."""
PRUNE_MS = 60_000
"""How often the root looks for panes that can be forgotten."""


class Segment(msgspec.Struct, frozen=True):
    """Committed panes ``[start, end)``: revision, the members in it, and the ``parts`` of late rows and of
    panes that were open (``elf.job.openparts``). ``at_ms``: when. ``lost``: see the module's docstring."""

    start: int
    end: int
    revision: int
    members: int
    at_ms: int
    lost: bool = False
    parts: frozenset[PartName] = frozenset()

    @property
    def in_part(self) -> int:
        """Members of which open parts are in it, in place of their main snapshots."""
        return in_part(self.parts) if self.parts else 0

    def mark_of(self, member: int) -> int:
        """The number of the source offsets from which another agent has run the member's work, as named among
        the parts; 0: the member's rows are its own (``elf.job.reexecution``)."""
        return next((-offsets for number, offsets in self.parts if number == member and offsets < 0), 0)


class History:
    """Segments side by side, in order of panes."""

    def __init__(self, segments: Sequence[Segment] = ()) -> None:
        self._segments = sorted(segments, key=lambda s: s.start)

    def __bool__(self) -> bool:
        return bool(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    @property
    def start(self) -> int:
        """The first pane; there must be one."""
        return self._segments[0].start

    @property
    def end(self) -> int:
        """After the last pane; there must be one."""
        return self._segments[-1].end

    def within(self, start: int, end: int) -> list[Segment]:
        """The segments with panes of this range, whole."""
        return [s for s in self._segments if s.start < end and start < s.end]

    def add(self, new: Segment) -> None:
        """Panes after the last, or a revision of panes that are here. Raises ``ElfBug`` if it is neither, or
        has a member twice."""
        if new.members & new.in_part:
            raise ElfBug(f"members with main snapshot and open parts in panes {new.start}..{new.end}")
        if new.revision:
            self._revise(new)
            return
        if self._segments and self.end != new.start:
            raise ElfBug(f"panes committed out of order: {new.start} after {self.end}")
        self._segments.append(new)

    def copy(self, new: Segment) -> list[Segment]:
        """At a reader: take the next commit from the root. Panes that were skipped on the way are lost; a
        revision counts only for panes that are here. Returns what changed here."""
        if not new.revision:
            if self._segments and new.start > self.end:
                self._segments.append(Segment(self.end, new.start, 0, 0, new.at_ms, lost=True))
            start = max(new.start, self.end) if self._segments else new.start
            if start >= new.end:
                return []
            self._segments.append(replace(new, start=start))
            return self._segments[-1:]
        changed = [
            replace(new, start=max(new.start, old.start), end=min(new.end, old.end))
            for old in self.within(new.start, new.end)
            if not old.lost and old.revision < new.revision
        ]
        for part in changed:
            self._put(part)
        return changed

    def _revise(self, new: Segment) -> None:
        for old in self.within(new.start, new.end):
            if old.members & ~new.members or old.parts - new.parts or new.revision != old.revision + 1:
                raise ElfBug(
                    f"revision {new.revision} of panes {new.start}.. leaves out some of {old.revision}"
                )
        self._put(new)

    def _put(self, new: Segment) -> None:
        found: list[Segment] = []
        for old in self._segments:
            if old.end <= new.start or new.end <= old.start:
                found.append(old)
                continue
            if old.start < new.start:
                found.append(replace(old, end=new.start))
            if new.end < old.end:
                found.append(replace(old, start=new.end))
        found.append(new)
        self._segments = sorted(found, key=lambda s: s.start)

    def compact(self, expected: Callable[[int], int], final_ms: int) -> None:
        """Join neighbours that are alike and can no longer change, so that a long run stays small: those with
        all members that are ``expected`` in their first pane, and those committed before ``final_ms``. Parts
        are of one pane."""
        found: list[Segment] = []
        for segment in self._segments:
            last = found[-1] if found else None
            whole = not (expected(segment.start) & ~segment.members)
            same = last and replace(last, start=0, end=0, at_ms=0) == replace(
                segment, start=0, end=0, at_ms=0
            )
            if last and same and not last.parts and (whole or segment.at_ms < final_ms):
                found[-1] = replace(last, end=segment.end, at_ms=segment.at_ms)
            else:
                found.append(segment)
        self._segments = found

    def forget(self, below: int) -> None:
        """Forget panes below ``below``, except the last ones, which say how far the flow is."""
        found = [replace(s, start=max(s.start, below)) for s in self._segments if s.end > below]
        self._segments = found or self._segments[-1:]

    def check(self) -> None:
        """Raise ``ElfBug`` if panes are missing or here twice."""
        for left, right in pairwise(self._segments):
            if left.end != right.start:
                raise ElfBug(f"a hole or an overlap in the committed panes at {left.end}..{right.start}")


class Panes:
    """See the module's docstring. ``segments`` are those of an earlier life."""

    def __init__(self, flow: Flow, segments: Sequence[Segment] = ()) -> None:
        self.flow = flow
        self.history = History(segments)
        self._first: int | None = None
        self.roster = Roster(flow.fragment.pane_us)
        self._named: Named | None = None
        self._marks: deque[tuple[int, int]] = deque()
        self._known: deque[tuple[int, int]] = deque(maxlen=KNOWN_MAX)
        self.log_at = 0
        """The entry to which the log of this node had come when units were last agreed on
        (``elf.job.units``)."""

    @property
    def stored_as(self) -> str:
        """The name under which the store has these panes."""
        return self.flow.uid

    @property
    def first_pane(self) -> int | None:
        """Panes from this one on are (or will be) here; None until that is decided."""
        return self._first

    @contextmanager
    def supposing(self, segment: Segment) -> Iterator[None]:
        """Have panes for the time being that are about to be committed."""
        known = self.history
        self.history = History([*known, segment])
        try:
            yield
        finally:
            self.history = known

    def set_roster(self, members: tuple[Member, ...], version: int) -> None:
        self.roster = Roster(self.flow.fragment.pane_us, members, version)
        self._named = None

    def durable_to(self) -> int:
        """Panes below this one are committed and durable here."""
        if self.history:
            return self.history.end
        return START_OF_TIME if self._first is None else self._first

    def begins_at(self) -> int:
        """The first pane that a new reader finds whole. The one reader of a flow that begins in the past
        wants all that is there."""
        return self.durable_to() if self.flow.fragment.since_us is None else self.kept_from()

    def note_known(self, version: int, end: int) -> None:
        """New panes up to this one were committed by a root whose log had come to that entry."""
        if not self._known or version > self._known[-1][0]:
            self._known.append((version, end))

    @property
    def known_at(self) -> int:
        """How far the log of the root of any commit had come, as far as is known."""
        return self._known[-1][0] if self._known else 0

    def known_from(self, version: int) -> int | None:
        """The first pane behind a commit whose root's log had come to that entry; None: there was none yet,
        as far as is known (protocol 6.10)."""
        return next((end for known, end in self._known if known >= version), None)

    def kept_from(self) -> int:
        """Panes from this one on are still here."""
        if self.history:
            return self.history.start
        return START_OF_TIME if self._first is None else self._first

    def segments(self) -> tuple[Segment, ...]:
        return tuple(self.history)

    def coverage(self, start: int, end: int) -> tuple[Coverage, ...]:
        """The committed panes of a range, as a master needs them; panes that are gone, or were never here,
        are lost."""
        found: list[Coverage] = []
        at = self._first if self._first is not None and start <= START_OF_TIME else start
        uid = self.stored_as
        for segment in self.history.within(start, end):
            begin, stop = max(segment.start, start), min(segment.end, end)
            if at < begin:
                found.append(Coverage(uid, at, begin, 0, self.expected(at), 0, lost=True))
            for first, last in pairwise((begin, *self.roster.edges(begin, stop), stop)):
                expected = self.expected(first) | segment.members
                reported = segment.members | (in_whole(segment.parts) if segment.parts else 0)
                has = (segment.revision, expected, reported, segment.lost, segment.parts)
                found.append(Coverage(uid, first, last, *has))
            at = stop
        return tuple(found)

    # -- the roster ------------------------------------------------------------------------------------------

    def expected(self, pane: int) -> int:
        """The roster of a pane, as a contribution set."""
        return self.roster.expected(pane)

    def member(self, number: int) -> Member | None:
        return self.roster.member(number)

    def named(self) -> Named:
        """The members of a set."""
        if self._named is None or self._named.flow != self.stored_as:
            agents = {m.number: (m.agent_id, m.name) for m in self.roster.members}
            self._named = Named(self.stored_as, agents)
        return self._named

    def revise_ms(self, default_ms: int) -> int:
        """How long after its commit a pane may be revised: for late rows at least as long as its job says."""
        late_us = self.flow.fragment.revise_us
        return default_ms if late_us is None else max(default_ms, late_us // 1000)

    # -- what can be forgotten -------------------------------------------------------------------------------

    def settled_to(self, now_ms: int, revise_ms: int) -> int | None:
        """Panes below this one were committed so long ago that no revision of them can come. It is computed
        once every ``PRUNE_MS``, and otherwise None."""
        if self._marks and now_ms - self._marks[-1][0] < PRUNE_MS:
            return None
        self._marks.append((now_ms, self.durable_to()))
        if now_ms - self._marks[0][0] <= self.revise_ms(revise_ms) + PRUNE_MS:
            return None
        return self._marks.popleft()[1]

    def forget(self, below: int) -> None:
        """Panes below this one are not kept any more."""
        if self.history:
            self.history.forget(below)

    def check(self) -> None:
        """Raise ``ElfBug`` when an invariant is broken."""
        self.history.check()


def disjoint(rows: Sequence[tuple[int, int, int, bytes]]) -> list[tuple[int, int, int, bytes]]:
    """From stored commits (start, end, revision, members): each pane's highest revision, and of these the
    last ones without a hole. What lies before a hole is left over from a pruning."""
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
