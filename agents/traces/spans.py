"""What passes an agent's loop, as spans and stamps (``agents.traces``).

Rules: nothing here is waited for, and nothing raises for a message that is odd; no row's data is in a span.
Memory is bounded: of panes that never come to an end the oldest are forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final, TypeVar

import msgspec

from agents.traces.stamps import Stamps
from elf.job.effects import CommitPanes, CommitWindows, Send
from elf.job.events import Arrived, Worked
from elf.job.group.port import Applied, Draft, Drafted
from elf.job.messages.rollup import Slice
from elf.job.openparts import is_open
from elf.job.snapshots import Sealed
from elf.job.spec import Flow
from elf.job.stamps import RootStamp, SealStamp, StampStatus, WindowStamp, is_stamped
from elf.job.worker.stream import StreamWorker
from elf.ql.plan import Fragment

OLD_US: Final = 60_000_000
"""A pane that should have been sealed so long ago is of old lines."""
MARKS_MAX: Final = 1_024
MOMENTS_MAX: Final = 128
"""Slices of a span that are named."""

K = TypeVar("K")
V = TypeVar("V")
Fact = tuple[str, str | int]


class Span(msgspec.Struct, frozen=True):
    """One step, in µs since the epoch; ``moments``: what happened within it, and when."""

    trace: bytes
    id: bytes
    parent: bytes
    name: str
    begin_us: int
    end_us: int
    facts: tuple[Fact, ...] = ()
    moments: tuple[tuple[int, str], ...] = ()


class _Mark(msgspec.Struct):
    """How far a pane is here: when the first of it came, the draft began and the last step ended; the first
    and the last slice (0: none), and slices that have come since the draft began."""

    begun_us: int
    draft_us: int
    step_us: int
    first_us: int = 0
    last_us: int = 0
    moments: list[tuple[int, str]] = msgspec.field(default_factory=list)


def trace_of(flow: str, pane: int) -> bytes:
    """16 bytes: the id of a pane's trace."""
    return blake2b(f"{flow}/{pane}".encode(), digest_size=16).digest()


def lateness_of(workers: Mapping[str, StreamWorker], fragment: Fragment) -> int:
    """How long after its end a pane is sealed at the earliest, in µs. ``workers``: by stream, of an agent."""
    worker = workers.get(fragment.stream)
    return (fragment.lateness_us if worker is None else worker.lateness_us(fragment)) or 0


class Tracing:
    """Of one agent; called with each event and each effect of its node. Of several panes that go together the
    last one counts. Spans are given to ``put``, if that is there, of one pane in ``one_in``."""

    def __init__(
        self,
        agent: str,
        flow: Callable[[str], Flow | None],
        lateness: Callable[[Fragment], int],
        now_us: Callable[[], int],
        put: Callable[[Span], None] | None = None,
        one_in: int = 1,
    ) -> None:
        """``flow``: by its uid, as the catalog log has it."""
        self._agent = agent
        self._flow = flow
        self._lateness = lateness
        self._now_us = now_us
        self._put_span = put
        self._one_in = one_in
        self._marks: dict[bytes, _Mark] = {}
        self._stamps = Stamps()
        self._steps: dict[type, Callable[[Any], None]] = {
            Worked: self._worked,
            Arrived: self._arrived,
            Send: self._sends,
            Draft: self._draft,
            Drafted: self._drafted,
            Applied: self._applied,
        }

    def stamped(self, flows: Sequence[str], jobs: Sequence[str]) -> StampStatus:
        return self._stamps.of(self._agent, flows, jobs)

    def __call__(self, what: object) -> None:
        if (step := self._steps.get(type(what))) is not None:
            step(what)

    def _arrived(self, what: Arrived) -> None:
        if isinstance(piece := what.message, Slice):
            self._came(piece.flow, piece.end - 1, what.sender)

    def _sends(self, what: Send) -> None:
        if isinstance(piece := what.message, Slice):
            self._sent(piece.flow, piece.end - 1)

    def _traced(self, flow: str, pane: int) -> bytes | None:
        """The trace of a pane that has spans or stamps."""
        if self._put_span is None and not self._has_stamps(flow, pane):
            return None
        trace = trace_of(flow, pane)
        return trace if self._has_spans(trace) or self._has_stamps(flow, pane) else None

    def _has_spans(self, trace: bytes) -> bool:
        return self._put_span is not None and int.from_bytes(trace, "big") % self._one_in == 0

    def _has_stamps(self, flow: str, pane: int) -> bool:
        known = self._flow(flow)
        return is_stamped(pane, 0 if known is None else known.fragment.pane_us)

    def _put(self, span: Span) -> None:
        if self._put_span is not None and self._has_spans(span.trace):
            self._put_span(span)

    def _mark(self, trace: bytes, now: int) -> _Mark:
        found = self._marks.get(trace)
        return found or _bounded(self._marks, trace, _Mark(now, now, now), MARKS_MAX)

    # -- steps -----------------------------------------------------------------------------------------------

    def _worked(self, what: Worked) -> None:
        for sealed in what.outcome.sealed:
            self._sealed(sealed, what.outcome.took_us)

    def _sealed(self, sealed: Sealed, took_us: int) -> None:
        flow, pane = sealed.flow, sealed.end - 1
        if is_open(sealed.part) or (trace := self._traced(flow, pane)) is None:
            return
        now = self._now_us()
        due = self._due(flow, pane, now)
        self._span(trace, "seal", now if due is None else due, now, self._facts(flow, pane))
        self._mark(trace, now)
        if sealed.part or not self._has_stamps(flow, pane):
            return
        if due is None:
            self._stamps.old(flow)
        else:
            self._stamps.sealed(SealStamp(flow, pane, due, max(due, now - took_us), now))

    def _came(self, flow: str, pane: int, sender: str) -> None:
        if (trace := self._traced(flow, pane)) is not None:
            now = self._now_us()
            mark = self._mark(trace, now)
            mark.first_us, mark.last_us = mark.first_us or now, now
            if self._has_spans(trace) and len(mark.moments) < MOMENTS_MAX:
                mark.moments.append((now, f"slice of {sender}"))

    def _sent(self, flow: str, pane: int) -> None:
        """Up the tree: of who has merged others' slices into it."""
        trace = self._traced(flow, pane)
        mark = None if trace is None else self._marks.pop(trace, None)
        if trace is not None and mark is not None and mark.moments:
            facts = self._facts(flow, pane)
            self._span(trace, "combine", mark.begun_us, self._now_us(), facts, mark.moments)

    def _draft(self, what: Draft) -> None:
        work = what.work
        if (trace := self._of(work)) is None:
            return
        now = self._now_us()
        if isinstance(work, CommitWindows):
            _bounded(self._marks, _key(work), _Mark(now, now, now), MARKS_MAX)
            return
        flow, pane = work.flow.uid, work.end - 1
        mark = self._mark(trace, now)
        self._span(trace, "gather", mark.begun_us, now, self._facts(flow, pane), mark.moments)
        mark.draft_us, mark.step_us, mark.moments = now, now, []

    def _drafted(self, what: Drafted) -> None:
        work = what.work
        trace = self._of(work)
        mark = None if trace is None else self._marks.get(trace)
        if trace is not None and mark is not None and isinstance(work, CommitPanes):
            now = self._now_us()
            self._span(trace, "draft", mark.step_us, now, self._facts(work.flow.uid, work.end - 1))
            mark.step_us = now

    def _applied(self, what: Applied) -> None:
        if what.commit is None or not isinstance(done := what.commit.done, Drafted):
            return
        work, now = done.work, self._now_us()
        if (trace := self._of(work)) is None:
            return
        if isinstance(work, CommitWindows):
            mark = self._marks.pop(_key(work), None)
            self._window(trace, work, now if mark is None else mark.begun_us, now)
            return
        mark = self._marks.pop(trace, None) or _Mark(now, now, now)
        flow, pane = work.flow.uid, work.end - 1
        facts = (*self._facts(flow, pane), ("elf.revision", work.revision))
        self._span(trace, "commit", mark.step_us, now, facts)
        if not work.revision:
            due = self._due(flow, pane, now)
            begin = mark.begun_us if due is None else due
            self._put(Span(trace, trace[:8], b"", "pane", begin, now, facts))
            if self._has_stamps(flow, pane):
                times = (mark.first_us, mark.last_us, mark.draft_us, mark.step_us, now)
                self._stamps.committed(RootStamp(flow, pane, *times))
        for window in done.windows:
            self._window(trace, window.done, mark.draft_us, now)

    def _window(self, trace: bytes, work: CommitWindows, begin: int, now: int) -> None:
        facts = (("elf.job", work.spec.name), ("elf.agent", self._agent))
        self._span(trace, "window", begin, now, facts)
        plain = work.revised is None and work.skipped_to is None and not work.portion
        pane_us = work.spec.plan.fragment.pane_us
        pane = work.last_us // pane_us - 1 if pane_us else 0
        if plain and pane_us and is_stamped(pane, pane_us):
            self._stamps.made(WindowStamp(work.spec.uid, pane, begin, now))

    # -- what they are about ---------------------------------------------------------------------------------

    def _of(self, work: CommitPanes | CommitWindows) -> bytes | None:
        """The trace of a commit, if it has one: of windows, that of the last pane."""
        if isinstance(work, CommitPanes):
            return self._traced(work.flow.uid, work.end - 1)
        pane_us = work.spec.plan.fragment.pane_us
        if not work.coverage or not pane_us:
            return None
        return self._traced(work.coverage[0].flow, work.last_us // pane_us - 1)

    def _due(self, uid: str, pane: int, now: int) -> int | None:
        """When the pane could be sealed at the earliest; None: it is one of old lines, or of none that is
        known."""
        flow = self._flow(uid)
        if flow is None or not flow.fragment.pane_us:
            return None
        due = (pane + 1) * flow.fragment.pane_us + self._lateness(flow.fragment)
        return due if now - OLD_US < due <= now else None

    def _facts(self, uid: str, pane: int) -> tuple[Fact, ...]:
        flow = self._flow(uid)
        stream = () if flow is None else (("elf.stream", flow.fragment.stream),)
        return (("elf.flow", uid), ("elf.pane", pane), ("elf.agent", self._agent), *stream)

    def _span(
        self,
        trace: bytes,
        name: str,
        begin: int,
        end: int,
        facts: tuple[Fact, ...],
        moments: list[tuple[int, str]] | None = None,
    ) -> None:
        """A span below the one of the pane."""
        named = f"{name}/{self._agent}/{begin}/{end}".encode()
        own = blake2b(trace + named, digest_size=8).digest()
        self._put(Span(trace, own, trace[:8], name, begin, end, facts, tuple(moments or ())))


def _key(work: CommitWindows) -> bytes:
    return f"{work.spec.uid}/{work.first_us}/{work.last_us}".encode()


def _bounded(known: dict[K, V], key: K, value: V, most: int) -> V:
    """It is the newest in ``known``."""
    known.pop(key, None)
    known[key] = value
    if len(known) > most:
        del known[next(iter(known))]
    return value
