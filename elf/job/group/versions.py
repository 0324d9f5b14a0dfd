"""One version of a job: its windows out of the committed panes of its flows (protocol 7.1).

    preparing --COMMIT(P)--> committed --its last window is committed--> finished
    preparing --nobody answers, a function raises, PAUSE--> aborted

A window is of one version (protocol 6.3). *By starts*: windows that start before P are the old version's, to
their end. *By ends*, where the new version continues state of the old one (a landmark, sessions): windows
that end by P are the old one's. A window is assembled when every flow has committed all its panes; a revision
of a pane makes a new revision of the windows that hold it. Where streams are joined a window reaches further
than its own bounds (``Plan.reach``): it needs panes before its start and after its end, and the version
begins later by as much. The store's contents decide what is assembled, so after a crash between two steps
they are simply done again.

Panes come from ``elf.job.rollup.panes``: the root of the flow on this node, or a copy of what it commits
elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence

from elf.fields import replace
from elf.job.effects import CommitWindows, Coverage, Effect
from elf.job.rollup.panes import Panes, Segment
from elf.job.spec import END_OF_TIME, START_OF_TIME, JobSpec, VersionRecord
from elf.ql.plan import Plan
from elf.windows import Calendar, Landmark, Session


class Version:
    """One version at its job group. ``assembled_us`` (end of what is assembled) comes from the store after a
    restart. It reads nothing before ``attach``.
    """

    def __init__(self, record: VersionRecord, assembled_us: int | None = None) -> None:
        self.record = record
        self.flows: tuple[Panes, ...] = ()
        self.failed = False
        """A window of the version cannot be finished."""
        self.last = False
        """No window can follow: a finite input, read to its end."""
        self._found: tuple[int | None, ...] = ()
        self._joined: tuple[int, ...] = ()
        """For each flow the entry to which the log of its root must have come before the version counts; 0:
        it need not (``elf.job.units``)."""
        known = [us for us in (assembled_us, record.after_us) if us is not None]  # what is filled ends before
        self._assembled_us = max(known, default=None)
        self._in_flight: CommitWindows | None = None
        self._revised: list[tuple[int, int]] = []
        self._skipped = False

    @property
    def spec(self) -> JobSpec:
        return self.record.spec

    @property
    def number(self) -> int:
        return self.record.spec.version

    @property
    def first_pane(self) -> int | None:
        return self.record.first_pane

    def change(self, **changed: object) -> None:
        """Change the record of the version; it is to be saved."""
        self.record = replace(self.record, **changed)

    # -- its beginning and its end ---------------------------------------------------------------------------

    def attach(
        self, spec: JobSpec, flows: Sequence[Panes], before: Version | None, joined: Sequence[int] = ()
    ) -> None:
        """The catalog log has the version: these are the flows that it reads. A running flow is read from
        where it is; a flow that the version ``before`` reads, from where that version needs it. ``joined``:
        for each flow as in ``elf.job.units.joined_at``. Windows are made again with revisions of panes that
        the flows have, which a crash may have kept from them."""
        self.change(spec=spec)
        self.flows, self._joined = tuple(flows), tuple(joined)
        self._revised += [(s.start, s.end) for flow in flows for s in flow.segments() if s.revision]
        known = {flow.flow.uid for flow in before.flows} if before is not None else set()
        self._found = tuple(
            None if f.first_pane is None or f.flow.uid in known else f.begins_at() for f in flows
        )

    def begun(self) -> int | None:
        """The first pane that the version could have in every flow; None until all of them have begun."""
        if not self.flows:
            return None
        pairs = zip(self.flows, self._found, strict=True)
        firsts = [flow.first_pane if found is None else found for flow, found in pairs]
        pairs_joined = zip(self.flows, self._joined, strict=False)
        firsts += [flow.known_from(at) for flow, at in pairs_joined if at]
        begun = [first for first in firsts if first is not None]
        return self._whole(self._shifted(max(begun), self._before)) if len(begun) == len(firsts) else None

    def waits_for_roots(self) -> list[Panes]:
        """If its flows have begun, those of which it waits for a commit of a root that knows it (protocol
        6.10)."""
        begun = bool(self.flows) and all(flow.first_pane is not None for flow in self.flows)
        pairs = zip(self.flows, self._joined, strict=False)
        return [flow for flow, at in pairs if begun and at and flow.known_from(at) is None]

    def _whole(self, pane: int) -> int:
        """The first pane from this one on that begins a unit of which windows are made."""
        plan = self.spec.plan
        if not plan.stages or abs(pane) >= END_OF_TIME:
            return pane
        panes = plan.grain_us // plan.fragment.pane_us
        return -(-pane // panes) * panes

    def promised_us(self) -> int:
        """Windows that end later are neither committed nor being committed."""
        promised = START_OF_TIME if self._assembled_us is None else self._assembled_us
        if self.first_pane is not None and self.record.after_us is None:
            promised = max(promised, self.calendar().from_us)
        flying = self._in_flight
        return promised if flying is None or flying.revised else max(promised, flying.last_us)

    def owes(self) -> bool:
        """Whether windows are being committed for the first time."""
        return self._in_flight is not None and not self._in_flight.revised

    def ended(self) -> bool:
        """Whether all that the version will make is made."""
        record = self.record
        bound = min(record.cut_us, record.ends_us)
        if bound >= END_OF_TIME or self._in_flight is not None or not self.spec.plan.windows:
            return False
        if self.calendar().last_end(bound) > self._from_us() and not self.failed:
            return False
        return self._skipped or record.cut_us >= record.ends_us

    def release(self) -> None:
        """The version stops reading."""
        self.flows, self._found, self._joined = (), (), ()

    # -- panes and windows -----------------------------------------------------------------------------------

    def committed_to(self) -> int:
        """Panes below this one are committed in every flow."""
        return min((flow.durable_to() for flow in self.flows), default=START_OF_TIME)

    def complete_to(self) -> int:
        """Windows that end with a pane below this one have all they need of every flow."""
        return self._shifted(self.committed_to(), -self._after)

    def reads_from(self) -> int | None:
        """The first pane that the version needs of its flows; None until that is decided. For another job's
        landmark it is known before COMMIT."""
        first, plan = self.first_pane, self.spec.plan
        if first is None and plan.since is not None:
            first = plan.since[0] // plan.fragment.pane_us
        return None if first is None else self._shifted(first, -self._before)

    @property
    def _before(self) -> int:
        return self.spec.plan.reach[0]

    @property
    def _after(self) -> int:
        return self.spec.plan.reach[1]

    def _shifted(self, pane: int, us: int) -> int:
        """The pane that is ``us``, whole panes, later; the ends of time stay what they are."""
        return pane if not us or abs(pane) >= END_OF_TIME else pane + us // self.spec.plan.fragment.pane_us

    def open_windows(self, last_us: int) -> CommitWindows | None:
        """Windows that are not assembled and end by ``last_us``, as far as their panes are committed."""
        if self.record.state != "committed" or self.first_pane is None or not self.flows:
            return None
        first_us = self._from_us()
        return self._commit(first_us, last_us) if first_us < last_us else None

    def assembled_us(self) -> int | None:
        """Windows that end by here are committed; None when none is."""
        return self._assembled_us

    def _from_us(self) -> int:
        return self.calendar().from_us if self._assembled_us is None else self._assembled_us

    def panes_committed(self, segment: Segment) -> list[Effect]:
        """Panes of one of the flows are committed or revised."""
        if segment.revision:
            self._revised.append((segment.start, segment.end))
        return self.assemble()

    def completed(self, panes: Panes) -> CommitWindows | None:
        """Windows that are complete with panes of the version's one flow that are about to be committed
        (``Panes.supposing``), to be committed together with these: in flight from now on."""
        alone = len(self.flows) == 1 and self.flows[0] is panes
        waits = self._in_flight is not None or self._revised or self.failed
        begun = self.record.state == "committed" and self.first_pane is not None
        if not alone or waits or not begun or self.spec.plan.final is not None:
            return None
        span = self._complete_span() if panes.durable_to() < END_OF_TIME else None
        self._in_flight = self._commit(*span) if span is not None else None
        return self._in_flight

    def wanted_from(self, settled: int) -> int:
        """The first pane that the version may yet want, if nothing below ``settled`` can change: windows over
        panes that have changed are yet to be made again."""
        flying = None if self._in_flight is None else self._in_flight.revised
        changed = self._revised if flying is None else [*self._revised, flying]
        settled = min([settled, *(start for start, _ in changed)])
        if not self.spec.plan.windows or self.first_pane is None:
            return START_OF_TIME
        calendar = self.calendar()
        if self._assembled_us is None:
            return min(settled, self._shifted(self.first_pane, -self._before))
        settled_us = _us(self._shifted(settled, -self._after), calendar.pane_us)
        if self.record.state == "finished" and settled_us >= self._assembled_us:
            return settled
        needed = _pane(calendar.needs_from(min(settled_us, self._assembled_us)), calendar.pane_us)
        return self._shifted(needed, -self._before)

    def assemble(self) -> list[Effect]:
        """Commit windows that are complete and not assembled, or revised. One range is in flight at a
        time."""
        there = self.record.state in ("committed", "finished") and self.first_pane is not None
        if not there or self._in_flight is not None or not self.flows:
            return []
        span = None if self.failed else self._complete_span() or self._revised_span()
        self._in_flight = self._skip() if span is None else self._commit(*span)
        return [] if self._in_flight is None else [self._in_flight]

    def calendar(self) -> Calendar:
        """Its windows, from P on."""
        plan, record = self.spec.plan, self.record
        start = START_OF_TIME if record.first_pane is None else record.first_pane
        pane_us = plan.fragment.pane_us
        return Calendar(plan.windows, pane_us, _us(start, pane_us), record.landmarks, record.until_us)

    def _kept(self) -> Calendar:
        """The part of the range whose windows still have all their panes here."""
        calendar = self.calendar()
        kept = max([START_OF_TIME, *(flow.kept_from() for flow in self.flows)])
        kept_us = _us(self._shifted(kept, self._before), calendar.pane_us)
        if kept_us <= calendar.from_us:
            return calendar
        return replace(calendar, from_us=kept_us, landmarks=calendar.landmarks or (calendar.from_us,))

    def _complete_span(self) -> tuple[int, int] | None:
        committed = self.complete_to()
        if not self.spec.plan.windows:
            return (0, 0) if committed >= END_OF_TIME and self._assembled_us is None else None
        calendar = self.calendar()
        self._assembled_us = self._from_us()
        bound = min(_us(committed, calendar.pane_us), self.record.cut_us, self.record.ends_us)
        last = calendar.last_end(bound)
        return (self._assembled_us, last) if last > self._assembled_us else None

    def _revised_span(self) -> tuple[int, int, tuple[int, int]] | None:
        """Windows that end in this range and hold these panes are made again, once all their panes are here:
        an agent that takes a job up may know of windows that are made before its copy of a flow has come to
        them."""
        revised, self._revised = self._revised, []
        committed_us = _us(self.complete_to(), self.spec.plan.fragment.pane_us)
        if not self.spec.plan.windows:
            committed_us = 0 if self.committed_to() >= END_OF_TIME else START_OF_TIME
        for place, (start, end) in enumerate(revised):
            touched = self._touched(start, end)
            if touched is None:
                continue
            first, last = touched
            if last <= committed_us:
                self._revised += revised[place + 1 :]
                return first, last, (start, end)
            self._revised.append((start, end))
        return None

    def _touched(self, start: int, end: int) -> tuple[int, int] | None:
        """The range in which assembled windows end that hold some of these panes."""
        if not self.spec.plan.windows:
            return 0, 0
        calendar = self._kept()
        start_us, end_us = (
            _us(self._shifted(pane, us), calendar.pane_us)
            for pane, us in ((start, -self._after), (end, self._before))
        )
        first = max(start_us, calendar.from_us, self.record.after_us or START_OF_TIME)
        last = calendar.touched_to(first, end_us)
        last = min(last, self._assembled_us if self._assembled_us is not None else first)
        return (first, last) if first < last else None

    def _skip(self) -> CommitWindows | None:
        """Skip what lies across P, when all before it is committed."""
        record, calendar = self.record, self.calendar()
        waits = not self.failed and calendar.last_end(record.cut_us) > self._from_us()
        if self._skipped or waits or record.cut_us >= record.ends_us:
            return None
        whole = [
            Coverage(f.stored_as, START_OF_TIME, END_OF_TIME, 0, f.expected(f.durable_to()), 0, lost=True)
            for f in self.flows
        ]
        base = self._commit(record.cut_us, record.cut_us)
        return replace(base, coverage=tuple(whole), skipped_to=record.ends_us)

    def _commit(self, first_us: int, last_us: int, revised: tuple[int, int] | None = None) -> CommitWindows:
        calendar = self._kept() if revised else self.calendar()
        start, end = START_OF_TIME, END_OF_TIME
        if self.spec.plan.windows:
            start = self._shifted(_pane(calendar.needs_from(first_us), calendar.pane_us), -self._before)
            end = self._shifted(_pane(last_us, calendar.pane_us), self._after)
        coverage = [part for flow in self.flows for part in flow.coverage(start, end)]
        final = self.committed_to() >= END_OF_TIME
        return CommitWindows(
            self.spec,
            first_us,
            last_us,
            tuple(coverage),
            tuple(flow.named() for flow in self.flows),
            final,
            calendar.from_us,
            calendar.landmarks,
            revised,
            calendar.until_us,
        )

    def windows_committed(self, done: CommitWindows) -> list[Effect]:
        """A range of windows is durable; the next one may follow."""
        self._in_flight = None
        self._skipped = self._skipped or done.skipped_to is not None
        if not self.spec.plan.windows:
            self._assembled_us = END_OF_TIME
        else:
            self._assembled_us = max(done.last_us, self._from_us())
        self.last = done.final and self._assembled_us >= END_OF_TIME
        return self.assemble()

    def panes_gone(self, work: CommitWindows) -> None:
        """What was in flight came to nothing: it is to be made again."""
        self._in_flight = None
        self._revised += [work.revised] if work.revised is not None else []

    def window_failed(self) -> None:
        self._in_flight, self.failed = None, True

    def empty(self) -> int:
        """Landmark windows begin again where the last committed one ends; returns that moment."""
        calendar, at_us = self.calendar(), self.promised_us()
        marks = calendar.landmarks or ((calendar.from_us,) if calendar.from_us > START_OF_TIME else ())
        self.change(landmarks=tuple(dict.fromkeys((*marks, at_us))))
        return at_us


def is_kept(old: Plan, new: Plan) -> tuple[bool, str]:
    """Whether a new version must continue the state of the old one's windows (a landmark's, or of sessions),
    and why it cannot; empty when it can."""
    held = [kind for kind in old.windows if isinstance(kind, Landmark | Session)]
    if not held:
        return False, ""
    what = "sessions" if isinstance(held[0], Session) else "landmark windows"
    if old.fragments != new.fragments:
        return True, f"its {what} hold rows that the old query chose and grouped"
    if held != [kind for kind in new.windows if isinstance(kind, Landmark | Session)]:
        return True, f"its {what} would be others"
    return True, ""


def _us(pane: int, pane_us: int) -> int:
    """The event time at which a pane starts, bounded like panes are."""
    return max(START_OF_TIME, min(END_OF_TIME, pane * pane_us))


def _pane(us: int, pane_us: int) -> int:
    return us if abs(us) >= END_OF_TIME else us // pane_us
