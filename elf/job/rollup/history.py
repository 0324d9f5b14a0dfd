"""What is committed of a flow: panes from the first to the last, without holes, each with its revision and
the members in it (protocol 5.9).

A revision adds members to panes that are there and never takes one away. At a reader, panes that the root had
dropped before the reader had them are *lost*: they are there, with nobody in them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from elf.errors import ElfBug
from elf.job.contributions import PartName


@dataclass(frozen=True)
class Segment:
    """Committed panes ``[start, end)``: revision, the members in it, and the ``parts`` of late rows.
    ``at_ms``: when. ``lost``: see the module's docstring."""

    start: int
    end: int
    revision: int
    members: int
    at_ms: int
    lost: bool = False
    parts: frozenset[PartName] = frozenset()

    def mark_of(self, member: int) -> int:
        """The number of the mark from which another has run the member's work, as named among the parts; 0:
        what is in it of the member is its own (``elf.job.again``)."""
        return next((-mark for number, mark in self.parts if number == member and mark < 0), 0)


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
        """Those that have panes of this range, whole."""
        return [s for s in self._segments if s.start < end and start < s.end]

    def add(self, new: Segment) -> None:
        """Panes after the last, or a revision of panes that are here. Raises ``ElfBug`` if it is neither."""
        if new.revision:
            self._revise(new)
            return
        if self._segments and self.end != new.start:
            raise ElfBug(f"panes committed out of order: {new.start} after {self.end}")
        self._segments.append(new)

    def copy(self, new: Segment) -> list[Segment]:
        """At a reader: take the next commit that came from the root. Panes that were skipped on the way are
        lost; of a revision counts what is new of panes that are here. Returns what it changed here.
        """
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
        """Join neighbours that can no longer change and are alike, so that a long run stays small: those with
        all members that are ``expected`` of their first pane, and those committed before ``final_ms``. Parts
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
        """Forget panes below ``below``, but for the last ones, which say how far it went."""
        found = [replace(s, start=max(s.start, below)) for s in self._segments if s.end > below]
        self._segments = found or self._segments[-1:]

    def check(self) -> None:
        """Raise ``ElfBug`` if panes are missing or here twice."""
        for left, right in pairwise(self._segments):
            if left.end != right.start:
                raise ElfBug(f"a hole or an overlap in the committed panes at {left.end}..{right.start}")
