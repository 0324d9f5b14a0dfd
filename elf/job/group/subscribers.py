"""Who reads a job's windows at its job group, and what they are told.

A subscription is a lease, which its reader renews. Each revision of a window is published once, when it is
committed, with its number. A reader asks for the numbers that it has missed (``elf.wire.heard``), and one
that comes back later for all after the last one that it had.

**Early results** of jobs with ``EMIT CHANGES`` (protocol 7.7) are made only while the job has a reader.
Periodically each agent sends the state of its open panes, cumulative and whole, directly to the root of the
flow, which passes it on to the masters of the jobs that read it. A master replaces the former state by each,
so lost, doubled or overtaken messages do no harm. Panes that an agent has sealed meanwhile are kept from the
message before, until they are committed. From these and the committed panes the master makes the incomplete
windows, at most once a period and only while there is a reader: they are published, marked with a number,
never committed and never stored.
"""

from __future__ import annotations

from elf.fields import replace
from elf.job.contributions import Piece, bitmap
from elf.job.effects import Coverage, Effect, MakeEarly, ReadWindows, Send
from elf.job.events import EarlyMade
from elf.job.group.master import Master
from elf.job.group.versions import Version
from elf.job.messages.groups import JobFailed, SubscribeJob
from elf.job.messages.rollup import EarlyState
from elf.job.spec import END_OF_TIME, START_OF_TIME
from elf.windows import Landmark
from elf.wire.base import Answer
from elf.wire.clients import WindowResult

LEASE_MS = 10_000
"""A subscriber that does not renew for so long is forgotten."""
PANES_MAX = 100_000
"""Open panes of a flow, at most."""
READERS_MAX = 4_096
ORPHAN_MS = 30_000
"""A one-shot SELECT's job without a reader for so long is dropped."""


class Subscribers:
    """The subscribers to the windows of one master. ``published``: the number of the last ones."""

    def __init__(self, master: Master, now_ms: int, published: int) -> None:
        self._master = master
        self._until_ms: dict[str, int] = {}
        self._read_ms = now_ms
        self._published = published
        self._early = EarlyResults()

    def __bool__(self) -> bool:
        return bool(self._until_ms)

    @property
    def published(self) -> int:
        """The number of the last windows that were published."""
        return self._published

    def add(self, request: SubscribeJob, now_ms: int) -> list[Effect]:
        if len(self._until_ms) >= READERS_MAX and request.origin not in self._until_ms:
            return [Send(request.origin, Answer(id=request.id, error="too many read it already"))]
        self._until_ms[request.origin] = now_ms + LEASE_MS
        self._read_ms = now_ms
        found: list[Effect] = [Send(request.origin, Answer(id=request.id))]
        if request.after is not None and request.after < self._published:
            found.append(ReadWindows(self._master.spec, request, after=request.after))
        return found

    def expire(self, now_ms: int) -> None:
        self._until_ms = {to: until for to, until in self._until_ms.items() if until > now_ms}

    def orphaned(self, now_ms: int) -> bool:
        """Whether it is a one-shot job that had no reader for long."""
        one_shot = not self._master.spec.replicated
        return one_shot and not self and now_ms - self._read_ms > ORPHAN_MS

    # -- what they are told ----------------------------------------------------------------------------------

    def publish(self, result: WindowResult) -> list[Effect]:
        """Windows are committed: publish them."""
        self._published = max(self._published, result.number)
        return self._tell(self.marked(result))

    def marked(self, result: WindowResult) -> WindowResult:
        """A result as it goes out."""
        changes = self._master.spec.plan.fragment.changes_us is not None
        return replace(result, changes=True) if changes else result

    def failed(self, text: str) -> list[Effect]:
        return self._tell(JobFailed(job=self._master.spec.uid, text=text))

    def _tell(self, message: WindowResult | JobFailed) -> list[Effect]:
        return [Send(to, message) for to in self._until_ms]

    # -- early results ---------------------------------------------------------------------------------------

    def take_early(self, state: EarlyState) -> None:
        """A member's open panes."""
        self._early.take(state)

    def early_due_ms(self) -> int | None:
        return self._early.due_ms(self._master.current) if self else None

    def make_early(self, now_ms: int) -> list[Effect]:
        return list(self._early.make(self._master.current, now_ms)) if self else []

    def early_made(self, event: EarlyMade, now_ms: int) -> list[Effect]:
        """Publish early windows, unless some of them are committed meanwhile."""
        self._early.made()
        result, done = event.result, self._master.assembled_us()
        found = self.make_early(now_ms)
        if result is None or (done is not None and done > result.first_us):
            return found
        return [*self._tell(self.marked(result)), *found]


def numbered(result: WindowResult, number: int) -> WindowResult:
    """A result whose commit has its number now; 0: it had one before, or needs none."""
    return replace(result, number=number, before=number - 1) if number else result


class EarlyResults:
    """The open panes of one job as its master hears of them."""

    def __init__(self) -> None:
        self._pieces: dict[tuple[str, int], list[Piece]] = {}
        self._ends: dict[tuple[str, int], int] = {}
        self._order: dict[tuple[str, int], tuple[int, int]] = {}
        self._number = 0
        self._made_ms: int | None = None
        self._making = False
        self._fresh = False

    def take(self, state: EarlyState) -> None:
        """An agent sends its open panes."""
        who, order = (state.flow, state.member), (state.incarnation, state.number)
        if order <= self._order.get(who, (0, 0)):
            return
        self._order[who] = order
        older = [piece.clip(piece.start, state.start) for piece in self._pieces.get(who, ())]
        newest = Piece(state.start, END_OF_TIME, 1 << state.member, state.counters, state.payload)
        self._pieces[who] = [*(piece for piece in older if piece.start < piece.end), newest]
        self._ends[who] = state.end
        self._fresh = True

    def due_ms(self, version: Version) -> int | None:
        """When ``make`` has something to do."""
        every_us = version.spec.plan.fragment.changes_us
        if not self._fresh or self._making or every_us is None:
            return None
        return 0 if self._made_ms is None else self._made_ms + every_us // 1000

    def make(self, version: Version, now_ms: int) -> list[MakeEarly]:
        """The open windows, if they are due."""
        at = self.due_ms(version)
        if at is None or now_ms < at:
            return []
        self._fresh, self._made_ms = False, now_ms
        committed = {flow.flow.uid: flow.durable_to() for flow in version.flows}
        calendar = version.calendar()
        end_us = self._end(version) * calendar.pane_us
        last_us = max(
            kind.ends_by(end_us - 1) + kind.step_us
            if isinstance(kind, Landmark)
            else kind.last_end(end_us - 1)
            for kind in calendar.kinds
        )
        base = version.open_windows(last_us)
        pieces: list[Piece] = []
        for who, known in self._pieces.items():
            below = committed.get(who[0], END_OF_TIME)
            self._pieces[who] = [piece.clip(below, piece.end) for piece in known if piece.end > below]
            pieces += self._pieces[who]
        if base is None or not pieces:
            return []
        open_panes = []
        for flow in version.flows:
            at_pane = flow.durable_to()
            heard = bitmap(member for uid, member in self._pieces if uid == flow.flow.uid)
            expected = flow.expected(at_pane) | heard
            open_panes.append(Coverage(flow.stored_as, at_pane, END_OF_TIME, 0, expected, heard))
        self._making = True
        self._number += 1
        whole = replace(base, coverage=(*base.coverage, *open_panes))
        return [MakeEarly(base, whole, tuple(pieces), self._number)]

    def _end(self, version: Version) -> int:
        """The end of the open panes, as far as it is near what is committed: who says that it has open panes
        of another century would have us make all windows till then."""
        committed = max(flow.durable_to() for flow in version.flows)
        end = max(self._ends.values())
        return min(end, committed + PANES_MAX) if committed > START_OF_TIME else end

    def made(self) -> None:
        self._making = False
