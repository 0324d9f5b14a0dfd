"""The master of a job, at the job's home: its life, and windows out of committed panes (PROTOCOL 5 and 6).

    preparing --everybody answered, or the limit is up--> active --DROP--> dropped
    preparing --DROP--> dropped

PREPARE is the job's entry in the stream log: it names the flows that the job reads, new ones or such as run
already. A new flow begins after every member's ``live_from``; one that runs is read from where it is. P, the
first pane that windows are made of, is after the beginning of each of them, chosen here, once, and stored
before anybody hears of it. Then a window is assembled when every flow has committed all its panes; a revision
of a pane makes a new revision of the windows that hold it. What is assembled is decided by what the store
holds, so a crash between two steps is made good by doing them again.

Panes come from ``elf.job.panes``: the root of the flow on this node, or a copy of what it commits elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal

from elf.errors import ElfBug
from elf.job.contributions import numbers
from elf.job.effects import CommitWindows, Coverage, Effect, Named, SaveJob
from elf.job.history import Segment
from elf.job.panes import Panes
from elf.job.spec import END_OF_TIME, START_OF_TIME, JobSpec
from elf.windows import Calendar

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
    after a restart. It reads nothing before ``attach``.
    """

    def __init__(
        self,
        spec: JobSpec,
        *,
        state: JobState = "preparing",
        first_pane: int | None = None,
        assembled_us: int | None = None,
    ) -> None:
        self.spec = spec
        self.state: JobState = state
        self.first_pane = first_pane
        self.finished = False
        self.flows: tuple[Panes, ...] = ()
        self._found: tuple[int | None, ...] = ()
        self._assembled_us = assembled_us
        self._assembling = False
        self._revised: list[tuple[int, int]] = []

    def _move(self, event: JobEvent) -> None:
        after = TRANSITIONS.get((self.state, event))
        if after is None:
            raise ElfBug(f"job {self.spec.name}: {event} while {self.state}")
        self.state = after

    # -- its life --------------------------------------------------------------------------------------------

    def attach(self, spec: JobSpec, flows: Sequence[Panes]) -> None:
        """The stream log has the job: these are the flows that it reads."""
        self.spec, self.flows = spec, tuple(flows)
        self._found = tuple(None if f.first_pane is None else f.begins_at() for f in flows)

    def detach(self) -> None:
        """Its panes will come from elsewhere: read nothing until ``attach``."""
        self.flows, self._found = (), ()

    def prepare(self) -> list[Effect]:
        """Try to leave ``preparing``: choose P when all flows have begun."""
        if self.state != "preparing" or not self.flows:
            return []
        firsts = [f.first_pane if at is None else at for f, at in zip(self.flows, self._found, strict=True)]
        begun = [first for first in firsts if first is not None]
        if len(begun) < len(firsts):
            return []
        self._move("prepared")
        self.first_pane = max(begun)
        return [SaveJob(self.spec, self.state, self.first_pane)]

    def drop(self) -> list[Effect]:
        if self.state == "dropped":
            return []
        self._move("drop")
        return [SaveJob(self.spec, self.state, self.first_pane)]

    # -- panes and windows -----------------------------------------------------------------------------------

    def committed_to(self) -> int:
        """Panes below this one are committed in every flow."""
        return min((flow.durable_to() for flow in self.flows), default=START_OF_TIME)

    def panes_committed(self, segment: Segment) -> list[Effect]:
        """Panes of one of the flows, or a revision of some."""
        if segment.revision:
            self._revised.append((segment.start, segment.end))
        return self.assemble()

    def recover(self) -> list[Effect]:
        """After a restart: revisions of panes that a crash may have kept from their windows, and what is
        complete.
        """
        for flow in self.flows:
            self._revised.extend((s.start, s.end) for s in flow.segments() if s.revision)
        return self.assemble()

    def wanted_from(self, settled: int) -> int:
        """The first pane that it may want yet, if nothing below ``settled`` can change."""
        if not self.spec.plan.windows or self.first_pane is None:
            return START_OF_TIME
        if self._assembled_us is None:
            return min(settled, self.first_pane)
        calendar = self.calendar()
        found = calendar.needs_from(min(_us(settled, calendar.pane_us), self._assembled_us))
        return _pane(found, calendar.pane_us)

    def assemble(self) -> list[Effect]:
        """Commit windows that are complete and not assembled, or revised. One range in flight at a time."""
        if self.state != "active" or self._assembling or self.first_pane is None or not self.flows:
            return []
        span = self._complete_span() or self._revised_span()
        if span is None:
            return []
        self._assembling = True
        return [self._commit(*span)]

    def calendar(self) -> Calendar:
        """The job's windows, from P on."""
        plan = self.spec.plan
        start = START_OF_TIME if self.first_pane is None else self.first_pane
        return Calendar(plan.windows, plan.fragment.pane_us, _us(start, plan.fragment.pane_us))

    def _kept(self) -> Calendar:
        """The same, of windows all of whose panes are still here."""
        calendar = self.calendar()
        kept = max([START_OF_TIME, *(flow.kept_from() for flow in self.flows)])
        kept_us = _us(kept, calendar.pane_us)
        if kept_us <= calendar.from_us:
            return calendar
        return replace(calendar, from_us=kept_us, landmarks=calendar.landmarks or (calendar.from_us,))

    def _complete_span(self) -> tuple[int, int] | None:
        committed = self.committed_to()
        if not self.spec.plan.windows:
            return (0, 0) if committed >= END_OF_TIME and self._assembled_us is None else None
        calendar = self.calendar()
        if self._assembled_us is None:
            self._assembled_us = calendar.from_us
        last = calendar.last_end(_us(committed, calendar.pane_us))
        return (self._assembled_us, last) if last > self._assembled_us else None

    def _revised_span(self) -> tuple[int, int, tuple[int, int]] | None:
        """Windows that end in this range and hold these panes are made again."""
        while self._revised:
            start, end = self._revised.pop(0)
            if not self.spec.plan.windows:
                return 0, 0, (start, end)
            calendar = self._kept()
            first = max(_us(start, calendar.pane_us), calendar.from_us)
            last = calendar.touched_to(first, _us(end, calendar.pane_us))
            last = min(last, self._assembled_us if self._assembled_us is not None else first)
            if first < last:
                return first, last, (start, end)
        return None

    def _commit(self, first_us: int, last_us: int, revised: tuple[int, int] | None = None) -> CommitWindows:
        calendar = self._kept() if revised else self.calendar()
        start, end = START_OF_TIME, END_OF_TIME
        if self.spec.plan.windows:
            start, end = (
                _pane(calendar.needs_from(first_us), calendar.pane_us),
                _pane(last_us, calendar.pane_us),
            )
        coverage: list[Coverage] = []
        names: list[Named] = []
        for flow in self.flows:
            parts = flow.coverage(start, end)
            coverage.extend(parts)
            everybody = 0
            for part in parts:
                everybody |= part.expected
            members = ((number, flow.member(number)) for number in numbers(everybody))
            names.extend(Named(flow.flow.uid, n, m.agent_id, m.name) for n, m in members if m is not None)
        final = self.committed_to() >= END_OF_TIME
        return CommitWindows(
            self.spec,
            first_us,
            last_us,
            tuple(coverage),
            tuple(names),
            final,
            calendar.from_us,
            calendar.landmarks,
            revised,
        )

    def open_windows(self, last_us: int) -> CommitWindows | None:
        """Windows that are not assembled and end by ``last_us``, as far as their panes are committed."""
        if self.state != "active" or self.first_pane is None or not self.flows:
            return None
        first_us = self.calendar().from_us if self._assembled_us is None else self._assembled_us
        return self._commit(first_us, last_us) if first_us < last_us else None

    def assembled_us(self) -> int | None:
        """Windows that end by here are committed; None when none is."""
        return self._assembled_us

    def windows_committed(self, done: CommitWindows) -> list[Effect]:
        """A range of windows is durable; the next one may follow."""
        self._assembling = False
        if not self.spec.plan.windows:
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


def _pane(us: int, pane_us: int) -> int:
    return us if abs(us) >= END_OF_TIME else us // pane_us
