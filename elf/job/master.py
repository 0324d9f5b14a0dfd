"""The master of a job, at the job's home: its life, and windows out of committed panes (PROTOCOL 5 and 6).

    preparing --everybody answered, or the limit is up--> active --DROP--> dropped
    preparing --DROP--> dropped

PREPARE is the job's entry in the stream log: every member installs the flow and says its ``live_from``. P,
the first pane that windows are made of, is chosen here, once, after every ``live_from``, and stored before
anybody hears of it. Then the root commits panes and the master assembles each window whose panes are all
committed; a revision of a pane makes a new revision of the windows that hold it. What is assembled is decided
by what the store holds, so a crash between two steps is made good by doing them again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from elf import windows
from elf.errors import ElfBug
from elf.job.contributions import numbers
from elf.job.effects import CommitPanes, CommitWindows, Effect, SaveJob
from elf.job.history import Segment
from elf.job.root import Root
from elf.job.spec import END_OF_TIME, START_OF_TIME, JobSpec
from elf.job.streamlog import Member

JobState = Literal["preparing", "active", "dropped"]
JobEvent = Literal["prepared", "drop"]

TRANSITIONS: Final[Mapping[tuple[JobState, JobEvent], JobState]] = {
    ("preparing", "prepared"): "active",
    ("preparing", "drop"): "dropped",
    ("active", "drop"): "dropped",
}
"""The life of a job. Anything else is a bug."""


class Master:
    """One job at its home. ``first_pane`` and ``assembled_us`` (end of what is assembled) come from the store
    after a restart.
    """

    def __init__(
        self,
        spec: JobSpec,
        root: Root,
        now_ms: int,
        *,
        state: JobState = "preparing",
        first_pane: int | None = None,
        assembled_us: int | None = None,
        prepare_ms: int = 3_000,
    ) -> None:
        self.spec = spec
        self.root = root
        self.state: JobState = state
        self.first_pane = first_pane
        self.finished = False
        self.waiting_since_ms: int | None = None
        self._prepare_ms = prepare_ms
        self._assembled_us = assembled_us
        self._assembling = False
        self._revised: list[tuple[int, int]] = []
        if first_pane is not None:
            root.begin(first_pane, now_ms)

    def _move(self, event: JobEvent) -> None:
        after = TRANSITIONS.get((self.state, event))
        if after is None:
            raise ElfBug(f"job {self.spec.name}: {event} while {self.state}")
        self.state = after

    # -- its life --------------------------------------------------------------------------------------------

    def prepare(self, members: tuple[Member, ...], now_ms: int) -> list[Effect]:
        """Try to leave ``preparing``: choose P when all members have answered or the limit is up and somebody
        has.
        """
        if self.state != "preparing" or self.waiting_since_ms is None:
            return []
        answered = self.root.live_from()
        waited = now_ms - self.waiting_since_ms >= self._prepare_ms
        if not answered or (not waited and any(m.number not in answered for m in members)):
            return []
        self._move("prepared")
        self.first_pane = max(answered.values())
        self.root.begin(self.first_pane, now_ms)
        return [SaveJob(self.spec, self.state, self.first_pane)]

    def drop(self) -> list[Effect]:
        if self.state == "dropped":
            return []
        self._move("drop")
        return [SaveJob(self.spec, self.state, self.first_pane)]

    # -- panes and windows -----------------------------------------------------------------------------------

    def propose(self, now_ms: int) -> list[Effect]:
        """Pane commits that the root can make now."""
        return list(self.root.propose(now_ms)) if self.state == "active" else []

    def panes_committed(self, done: CommitPanes, now_ms: int) -> tuple[Segment, list[Effect]]:
        segment = self.root.committed(done, now_ms)
        if done.revision:
            self._revised.append((segment.start, segment.end))
        return segment, self.assemble()

    def recover(self) -> list[Effect]:
        """After a restart: revisions of panes that a crash may have kept from their windows, and what is
        complete.
        """
        self._revised.extend((s.start, s.end) for s in self.root.segments() if s.revision)
        return self.assemble()

    def assemble(self) -> list[Effect]:
        """Commit windows that are complete and not assembled, or revised. One range in flight at a time."""
        if self.state != "active" or self._assembling or self.first_pane is None:
            return []
        span = self._complete_span() or self._revised_span()
        if span is None:
            return []
        self._assembling = True
        return [self._commit(*span)]

    def _complete_span(self) -> tuple[int, int] | None:
        window = self.spec.plan.window
        committed = self.root.durable_to()
        if window is None:
            return (0, 0) if committed >= END_OF_TIME and self._assembled_us is None else None
        pane_us = self.spec.plan.fragment.pane_us
        if self._assembled_us is None:
            start = self.first_pane if self.first_pane is not None else START_OF_TIME
            self._assembled_us = (
                _us(start, pane_us)
                if start <= START_OF_TIME
                else windows.first_window(start * pane_us, window.slide_us)
            )
        if committed <= START_OF_TIME:
            return None
        if committed >= END_OF_TIME:
            last = END_OF_TIME
        else:
            last = windows.complete_windows(committed * pane_us, window.size_us, window.slide_us)
        return (self._assembled_us, last) if last > self._assembled_us else None

    def _revised_span(self) -> tuple[int, int] | None:
        window = self.spec.plan.window
        while self._revised:
            start, end = self._revised.pop(0)
            if window is None:
                return 0, 0
            pane_us = self.spec.plan.fragment.pane_us
            first, last = windows.touched_windows(
                _us(start, pane_us), _us(end, pane_us), window.size_us, window.slide_us
            )
            first = max(first, self._first_window_us())
            last = min(last, self._assembled_us if self._assembled_us is not None else first)
            if first < last:
                return first, last
        return None

    def _first_window_us(self) -> int:
        window, pane = self.spec.plan.window, self.first_pane
        if window is None or pane is None or pane <= START_OF_TIME:
            return START_OF_TIME
        return windows.first_window(pane * self.spec.plan.fragment.pane_us, window.slide_us)

    def _commit(self, first_us: int, last_us: int) -> CommitWindows:
        window = self.spec.plan.window
        pane_us = self.spec.plan.fragment.pane_us
        if window is None:
            coverage = self.root.coverage(START_OF_TIME, END_OF_TIME)
        else:
            end = (
                END_OF_TIME
                if last_us >= END_OF_TIME
                else (last_us - window.slide_us + window.size_us) // pane_us
            )
            start = START_OF_TIME if first_us <= START_OF_TIME else first_us // pane_us
            coverage = self.root.coverage(start, end)
        everybody = 0
        for part in coverage:
            everybody |= part.expected
        names = tuple((number, self.root.name_of(number)) for number in numbers(everybody))
        final = self.root.durable_to() >= END_OF_TIME
        return CommitWindows(self.spec, first_us, last_us, coverage, names, final)

    def assembled_us(self) -> int | None:
        """Windows that start before this are committed; None when none is."""
        return self._assembled_us

    def windows_committed(self, done: CommitWindows) -> list[Effect]:
        """A range of windows is durable; the next one may follow."""
        self._assembling = False
        if self.spec.plan.window is None:
            self._assembled_us = END_OF_TIME
        else:
            self._assembled_us = max(
                done.last_us, self._assembled_us if self._assembled_us is not None else done.last_us
            )
        self.finished = done.final and self._assembled_us >= END_OF_TIME
        return self.assemble()


def _us(pane: int, pane_us: int) -> int:
    """The event time at which a pane starts, bounded like panes are."""
    return max(START_OF_TIME, min(END_OF_TIME, pane * pane_us))
