"""What passes an agent's loop, as spans (``agents.traces``).

Rules: nothing here is waited for, and nothing raises for a message that is odd; no row's data is in a span.
Memory is bounded: of panes that never come to an end the oldest are forgotten.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Final, TypeVar

import msgspec

from elf.job.commands import Install
from elf.job.effects import CommitPanes, CommitWindows, Send, Work
from elf.job.events import Arrived, Worked
from elf.job.group.port import Applied, Commit, Draft, Drafted
from elf.job.messages.rollup import Slice
from elf.job.spec import Flow

OLD_US: Final = 60_000_000
"""A pane that should have been sealed so long ago is of old lines."""
MARKS_MAX: Final = 1_024
FLOWS_MAX: Final = 4_096
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
    """How far a pane is here: when the first of it came, the draft began and the last step ended; and slices
    that have come."""

    begun_us: int
    draft_us: int
    step_us: int
    moments: list[tuple[int, str]] = msgspec.field(default_factory=list)


def trace_of(flow: str, pane: int) -> bytes:
    """16 bytes: the id of a pane's trace."""
    return blake2b(f"{flow}/{pane}".encode(), digest_size=16).digest()


class Tracing:
    """Of one agent; called with each event and each effect of its node. One pane in ``one_in`` is traced; of
    several that go together the last one counts."""

    def __init__(
        self, agent: str, one_in: int, now_us: Callable[[], int], put: Callable[[Span], None]
    ) -> None:
        self._agent = agent
        self._one_in = one_in
        self._now_us = now_us
        self._put = put
        self._flows: dict[str, Flow] = {}
        self._marks: dict[bytes, _Mark] = {}

    def __call__(self, what: object) -> None:
        match what:
            case Work(command=Install(flow=flow)):
                _bounded(self._flows, flow.uid, flow, FLOWS_MAX)
            case Worked(outcome=outcome):
                for sealed in outcome.sealed:
                    self._sealed(sealed.flow, sealed.end - 1)
            case Arrived(sender=sender, message=Slice() as piece):
                self._came(piece.flow, piece.end - 1, sender)
            case Send(message=Slice() as piece):
                self._sent(piece.flow, piece.end - 1)
            case Draft(work=work):
                self._draft(work)
            case Drafted(work=work):
                self._drafted(work)
            case Applied(commit=Commit(done=Drafted() as done)):
                self._applied(done)

    def _traced(self, flow: str, pane: int) -> bytes | None:
        trace = trace_of(flow, pane)
        return trace if int.from_bytes(trace, "big") % self._one_in == 0 else None

    def _mark(self, trace: bytes, now: int) -> _Mark:
        found = self._marks.get(trace)
        return found or _bounded(self._marks, trace, _Mark(now, now, now), MARKS_MAX)

    # -- steps -----------------------------------------------------------------------------------------------

    def _sealed(self, flow: str, pane: int) -> None:
        if (trace := self._traced(flow, pane)) is not None:
            now = self._now_us()
            self._span(trace, "seal", self._due(flow, pane, now, now), now, self._facts(flow, pane))
            self._mark(trace, now)

    def _came(self, flow: str, pane: int, sender: str) -> None:
        if (trace := self._traced(flow, pane)) is not None:
            now = self._now_us()
            moments = self._mark(trace, now).moments
            if len(moments) < MOMENTS_MAX:
                moments.append((now, f"slice of {sender}"))

    def _sent(self, flow: str, pane: int) -> None:
        """Up the tree: of who has merged others' slices into it."""
        trace = self._traced(flow, pane)
        mark = None if trace is None else self._marks.pop(trace, None)
        if trace is not None and mark is not None and mark.moments:
            facts = self._facts(flow, pane)
            self._span(trace, "combine", mark.begun_us, self._now_us(), facts, mark.moments)

    def _draft(self, work: CommitPanes | CommitWindows) -> None:
        if (trace := self._of(work)) is None:
            return
        now = self._now_us()
        if isinstance(work, CommitWindows):
            _bounded(self._marks, _key(work), _Mark(now, now, now), MARKS_MAX)
            return
        flow, pane = work.flow, work.end - 1
        _bounded(self._flows, flow.uid, flow, FLOWS_MAX)
        mark = self._mark(trace, now)
        self._span(trace, "gather", mark.begun_us, now, self._facts(flow.uid, pane), mark.moments)
        mark.draft_us, mark.step_us, mark.moments = now, now, []

    def _drafted(self, work: CommitPanes | CommitWindows) -> None:
        trace = self._of(work)
        mark = None if trace is None else self._marks.get(trace)
        if trace is not None and mark is not None and isinstance(work, CommitPanes):
            now = self._now_us()
            self._span(trace, "draft", mark.step_us, now, self._facts(work.flow.uid, work.end - 1))
            mark.step_us = now

    def _applied(self, done: Drafted) -> None:
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
            begin = self._due(flow, pane, mark.begun_us, now)
            self._put(Span(trace, trace[:8], b"", "pane", begin, now, facts))
        for window in done.windows:
            self._window(trace, window.done, mark.draft_us, now)

    def _window(self, trace: bytes, work: CommitWindows, begin: int, now: int) -> None:
        facts = (("elf.job", work.spec.name), ("elf.agent", self._agent))
        self._span(trace, "window", begin, now, facts)

    # -- what they are about ---------------------------------------------------------------------------------

    def _of(self, work: CommitPanes | CommitWindows) -> bytes | None:
        """The trace of a commit, if it has one: of windows, that of the last pane."""
        if isinstance(work, CommitPanes):
            return self._traced(work.flow.uid, work.end - 1)
        pane_us = work.spec.plan.fragment.pane_us
        if not work.coverage or not pane_us:
            return None
        return self._traced(work.coverage[0].flow, work.last_us // pane_us - 1)

    def _due(self, uid: str, pane: int, begun: int, now: int) -> int:
        """When the pane could be sealed at the earliest."""
        flow = self._flows.get(uid)
        if flow is None or not flow.fragment.pane_us:
            return begun
        due = (pane + 1) * flow.fragment.pane_us + (flow.fragment.lateness_us or 0)
        return due if now - OLD_US < due < now else begun

    def _facts(self, uid: str, pane: int) -> tuple[Fact, ...]:
        flow = self._flows.get(uid)
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
