"""Which windows a job has, when each is complete, and which panes it needs.

A ``Calendar`` is the kinds of a job's windows and the event time from which the job answers: windows that
start earlier are skipped (protocol 6.3). Two kinds may have the same window (10 minutes, and the first step
of a cumulative day): it is the same interval, so it occurs once, under the first kind that has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from elf.windows.kinds import FOREVER_US, Int64s, Kind, Landmark, Mask, Session


@dataclass(frozen=True)
class Spans:
    """Windows as intervals, in µs."""

    starts: Int64s
    ends: Int64s

    @classmethod
    def none(cls) -> Spans:
        return cls(np.empty(0, np.int64), np.empty(0, np.int64))

    @classmethod
    def joined(cls, several: Iterable[Spans]) -> Spans:
        """All of them, each once, by start, then end."""
        parts = list(several)
        if not parts:
            return cls.none()
        both = np.stack([np.concatenate([s.starts for s in parts]), np.concatenate([s.ends for s in parts])])
        found = np.unique(both, axis=1)
        return cls(found[0], found[1])

    def where(self, wanted: Mask) -> Spans:
        return Spans(self.starts[wanted], self.ends[wanted])


@dataclass(frozen=True)
class Calendar:
    """``from_us``: windows start here or later (``-FOREVER_US``: of a finite input, all). ``landmarks``:
    where landmark windows begin, ascending (EMPTY adds one); without any, ``from_us``. ``until_us``: windows
    start before that (later ones are the next version's)."""

    kinds: tuple[Kind, ...]
    pane_us: int
    from_us: int = -FOREVER_US
    landmarks: tuple[int, ...] = ()
    until_us: int = FOREVER_US

    @property
    def session(self) -> Session | None:
        """The kind, if it is a session; sessions are alone in a job."""
        return next((kind for kind in self.kinds if isinstance(kind, Session)), None)

    def beginning_at(self, first_us: int) -> Calendar:
        """The same where the first wanted row is in the pane at ``first_us``: landmark windows begin there
        for a finite input, and for a job whose agents had read nothing before it."""
        if self.landmarks or self.from_us > -FOREVER_US:
            return self
        every = [kind.every_us for kind in self.kinds if isinstance(kind, Landmark)]
        return replace(self, landmarks=(first_us // max(every) * max(every),)) if every else self

    def landmark(self, us: int) -> int:
        """The landmark of the stretch that contains ``us``."""
        marks = [mark for mark in self.landmarks or (self.from_us,) if mark <= us]
        return marks[-1] if marks else (self.landmarks or (self.from_us,))[0]

    # -- what ends when --------------------------------------------------------------------------------------

    def last_end(self, by_us: int) -> int:
        """The last end of any window that is not after ``by_us``."""
        if abs(by_us) >= FOREVER_US:
            return by_us
        return max(kind.ends_by(by_us) for kind in self.kinds)

    def needs_from(self, after_us: int) -> int:
        """The first event time, a whole pane, that a window which ends after ``after_us`` may contain."""
        if abs(after_us) >= FOREVER_US:
            return after_us
        found = [
            self.landmark(after_us) if isinstance(kind, Landmark) else kind.first_start(after_us)
            for kind in self.kinds
        ]
        return max(self.from_us, min(found) // self.pane_us * self.pane_us)

    def touched_to(self, start_us: int, end_us: int) -> int:
        """Windows that end after this contain nothing of ``[start_us, end_us)``."""
        if end_us >= FOREVER_US or start_us <= -FOREVER_US:
            return FOREVER_US
        found = [
            FOREVER_US if isinstance(kind, Landmark) else kind.last_end(end_us - 1) for kind in self.kinds
        ]
        return max(found)

    def last_started(self, before_us: int) -> int:
        """The last end of any window that starts before ``before_us``. A landmark has none after it: its
        windows belong to the version that has their end."""
        found = [kind.last_end(before_us - 1) for kind in self.kinds if not isinstance(kind, Landmark)]
        return max([before_us, *found])

    # -- windows as intervals (all kinds but sessions) -------------------------------------------------------

    def ending(self, first_us: int, last_us: int) -> Spans:
        """All windows that end in ``(first_us, last_us]``: a finite range."""
        found = []
        for kind in self.kinds:
            if not isinstance(kind, Session):
                ends = np.arange(kind.ends_by(first_us) + kind.step_us, last_us + 1, kind.step_us)
                found.append(self._spans(kind, ends.astype(np.int64)))
        return Spans.joined(found)

    def holding(self, panes: Int64s, first_us: int, last_us: int) -> Spans:
        """Those of them that contain any of these panes."""
        starts = np.unique(panes) * self.pane_us
        found = []
        for kind in self.kinds:
            if isinstance(kind, Session) or not len(starts):
                continue
            first = np.asarray(kind.ends_by(starts) + kind.step_us)
            last = first if isinstance(kind, Landmark) else np.asarray(kind.last_end(starts))
            first = np.maximum(first, np.concatenate([first[:1], last[:-1] + kind.step_us]))
            counts = np.maximum((last - first) // kind.step_us + 1, 0)
            before = np.cumsum(counts) - counts
            steps = np.arange(counts.sum(), dtype=np.int64) - np.repeat(before, counts)
            ends = np.repeat(first, counts) + steps * kind.step_us
            found.append(self._spans(kind, ends[(ends > first_us) & (ends <= last_us)]))
        return Spans.joined(found)

    def _spans(self, kind: Kind, ends: Int64s) -> Spans:
        spans = Spans(self.starts_of(kind, ends), ends)
        first = max(self.from_us, 1 - FOREVER_US)
        inside = (spans.starts >= first) & (spans.starts < min(self.until_us, FOREVER_US))
        return spans.where(inside & (spans.starts < spans.ends))

    def starts_of(self, kind: Kind, ends: Int64s) -> Int64s:
        """The starts of the windows of a kind that end there."""
        if isinstance(kind, Landmark):
            marks = np.array(self.landmarks or (self.from_us,), np.int64)
            found: Int64s = marks[np.maximum(np.searchsorted(marks, ends, side="left") - 1, 0)]
            return np.where(found < ends, found, ends)
        if isinstance(kind, Session):
            raise TypeError("sessions begin with a row")
        return kind.starts_of(ends)

    def are_of(self, kinds: Sequence[Kind], spans: Spans) -> Mask:
        """Which of these intervals are windows of one of ``kinds``."""
        found = np.zeros(len(spans.ends), np.bool_)
        for kind in kinds:
            if not isinstance(kind, Session):
                found |= kind.are_ends(spans.ends) & (self.starts_of(kind, spans.ends) == spans.starts)
        return found
