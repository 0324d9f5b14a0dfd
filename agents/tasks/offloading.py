"""Flows of a stream task whose rows helpers read and map (``elf.job.offload``): which rounds there are, what
is asked for, and what becomes of the answers.

A round ends where rolls are closed and shipped, and seals what a live flow had sealed when the last of them
was closed: a *mark*. Who does not answer for ``PATIENCE_MS``, or says that it cannot, is not asked again for
``REST_MS``: meanwhile the flow reads its past here (``agents.tasks.past``), and goes on with live lines.

``agents.tasks.helping`` is the other side.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from agents.tasks.past import Archived, Pasts
from elf.aggregates import normalise
from elf.batch import WRONG, decode
from elf.errors import ElfError
from elf.fields import replace
from elf.job.checkpoint import StreamCheckpoint
from elf.job.commands import Command, GoOver, Replay
from elf.job.messages.helping import RowsMapped, RowsNotMapped
from elf.job.offload import RowsWanted, why_not
from elf.job.past import END_OF_TIME, Past
from elf.job.spec import START_OF_TIME, Flow
from elf.job.worker.flowstate import FlowState
from elf.job.worker.stream import StreamWorker
from elf.ql.plan import Fragment

PATIENCE_MS: Final = 60_000
AGAIN_MS: Final = 5_000
"""What is not answered is asked for again, since messages get lost."""
REST_MS: Final = 60_000
_MARKS_MAX: Final = 4_096


@dataclass(frozen=True)
class Times:
    """See the module's docstring."""

    patience_ms: int = PATIENCE_MS
    again_ms: int = AGAIN_MS
    rest_ms: int = REST_MS


@dataclass
class _Asked:
    """What was asked of a helper: the flow was at ``before``."""

    wanted: RowsWanted
    before: Past
    since_ms: int
    sent_ms: int


@dataclass
class _Mark:
    """What was archived up to ``position`` had come when the watermark was ``sealing_us``."""

    position: int
    sealing_us: int
    at_ms: int


@dataclass
class Offloading:
    """Of one stream task, and all its own."""

    worker: StreamWorker
    archive: Archived
    pasts: Pasts
    times: Times = field(default_factory=Times)
    event_time: Callable[[], str | None] = lambda: None
    """The field of lines with their event time, when it is known."""

    def __post_init__(self) -> None:
        self._flows: frozenset[str] | None = None
        """None: nobody has told yet. Until then what has gone over waits."""
        self._marks: deque[_Mark] = deque(maxlen=_MARKS_MAX)
        self._asked: dict[str, _Asked] = {}
        self._resting: dict[str, int] = {}
        self._number = 0
        self.failed: dict[str, str] = {}
        """Why helpers have not mapped rows of flows, for people."""
        self.pasts.elsewhere = self._is_elsewhere

    def set(self, flows: tuple[str, ...]) -> None:
        """From now on helpers map the rows of these."""
        self._flows = frozenset(flows)
        for known in (self._asked, self._resting, self.failed):
            for uid in known.keys() - self._flows:
                del known[uid]

    def _is_elsewhere(self, state: FlowState) -> bool:
        uid = state.flow.uid
        return state.is_over and (self._flows is None or (uid in self._flows and uid not in self._resting))

    @property
    def is_behind(self) -> bool:
        """Whether flows read their past that have gone over: not all that was read is in their panes."""
        return any(state.is_over for state in list(self.worker.states().values()))

    def mark(self, now_ms: int) -> None:
        """All that was archived is in closed rolls."""
        self._marks.append(_Mark(self.archive.position, self.worker.sealing_us, now_ms))

    # -- turn by turn ----------------------------------------------------------------------------------------

    def turn(
        self, now_ms: int, waits: Callable[[str], bool] = lambda uid: False
    ) -> tuple[list[Command], tuple[RowsWanted, ...]]:
        """What the stream task is to do now, and what helpers are to be asked for. ``waits``: as in
        ``Pasts.ask``."""
        if not self._flows or self.archive.about is None:
            return [], ()
        self._resting = {uid: until for uid, until in self._resting.items() if until > now_ms}
        if self.archive.shipped == self.archive.position:
            self.mark(now_ms)
        states = self.worker.states()
        ours = {uid: states[uid] for uid in sorted(self._flows & states.keys()) if uid not in self._resting}
        live = [uid for uid, state in ours.items() if state.past is None and self._may_go(state)]
        if live:
            return [GoOver(tuple(live))], ()
        commands, wanted = list[Command](), list[RowsWanted]()
        for uid, state in ours.items():
            if not state.is_over or waits(uid):
                continue
            found = self._next(state, now_ms)
            if isinstance(found, Replay):
                commands.append(found)
            elif found is not None:
                wanted.append(found)
        self._forget_marks()
        return commands, tuple(wanted)

    def _may_go(self, state: FlowState) -> bool:
        return not (state.suspended or why_not(state.flow.fragment))

    def _next(self, state: FlowState, now_ms: int) -> Replay | RowsWanted | None:
        uid, past = state.flow.uid, state.past
        assert past is not None
        asked = self._asked.get(uid)
        if asked is not None and asked.before == past and asked.wanted.stand == state.stand():
            if now_ms - asked.since_ms >= self.times.patience_ms:
                self._give_up(uid, self.failed.get(uid, "it has not answered"), now_ms)
            elif now_ms - asked.sent_ms >= self.times.again_ms:
                asked.sent_ms = now_ms
                return asked.wanted
            return None
        self._asked.pop(uid, None)
        found = self._round(state.flow, past, now_ms)
        if found is None:
            return None
        now, mark_ms = found
        if now.position >= now.until:  # nothing came, but the watermark went on
            return Replay(uid, (), replace(now, floor=END_OF_TIME), now_ms)
        self._number += 1
        wanted = self._wanted(state, now, mark_ms)
        self._asked[uid] = _Asked(wanted, past, now_ms, now_ms)
        return wanted

    def _round(self, flow: Flow, past: Past, now_ms: int) -> tuple[Past, int] | None:
        """The round that the flow is in, or the next one, and when it ended."""
        shipped = self.archive.shipped
        there = [mark for mark in self._marks if past.position <= mark.position <= shipped]
        if past.position < past.until <= shipped:
            ended = [mark.at_ms for mark in there if mark.position >= past.until]
            return past, ended[0] if ended else now_ms
        if not there:
            return None
        mark = there[-1]
        ceiling = max(past.ceiling, self.worker.sealable_at(flow, mark.sealing_us))
        if (mark.position, ceiling) == (past.until, past.ceiling):
            return None
        return replace(past, until=mark.position, ceiling=ceiling), mark.at_ms

    def _wanted(self, state: FlowState, now: Past, mark_ms: int) -> RowsWanted:
        settings, about = self.worker.settings, self.archive.about
        assert about is not None
        return RowsWanted(
            flow=state.flow.uid,
            number=self._number,
            past=replace(now, floor=START_OF_TIME),
            stand=state.stand(),
            archive=about,
            since_us=settings.since_us,
            until_us=None if settings.future_us is None else 1_000 * mark_ms + settings.future_us,
            lateness_us=settings.lateness_us,
            name=settings.name,
            labels=settings.labels,
            event_time=self.event_time() or "",
        )

    def _forget_marks(self) -> None:
        """Those that no round will end with."""
        over = [state.past for state in self.worker.states().values() if state.is_over]
        least = min((past.position for past in over if past is not None), default=END_OF_TIME)
        while len(self._marks) > 1 and self._marks[1].position <= min(least, self.archive.shipped):
            self._marks.popleft()

    # -- answers ---------------------------------------------------------------------------------------------

    def take(self, answer: RowsMapped | RowsNotMapped, now_ms: int) -> Replay | None:
        """What the worker is to do with an answer; None: it is of no question that stands (protocol 13.8)."""
        uid, asked = answer.flow, self._asked.get(answer.flow)
        state = self.worker.states().get(uid)
        if asked is None or state is None or asked.wanted.number != answer.number:
            return None
        if state.past != asked.before or state.stand() != asked.wanted.stand or not self._is_elsewhere(state):
            return None
        if isinstance(answer, RowsMapped) and (answer.asked, answer.stand) != (
            asked.wanted.past,
            asked.wanted.stand,
        ):
            return None
        if isinstance(answer, RowsNotMapped) and answer.again:
            self.failed[uid] = answer.why
            return None
        del self._asked[uid]
        if isinstance(answer, RowsNotMapped):
            self._give_up(uid, answer.why, now_ms)
            return None
        now, past = asked.wanted.past, answer.past
        if why := _unfit(state.flow.fragment, answer, now):
            self._give_up(uid, why, now_ms)
            return None
        self.failed.pop(uid, None)
        whole = past.position == now.until
        after = replace(now, position=past.position, floor=END_OF_TIME if whole else past.floor)
        return Replay(uid, (), after, now_ms, mapped=answer.mapped)

    def _give_up(self, uid: str, why: str, now_ms: int) -> None:
        self._asked.pop(uid, None)
        self._resting[uid] = now_ms + self.times.rest_ms
        self.failed[uid] = why


def _unfit(fragment: Fragment, answer: RowsMapped, now: Past) -> str:
    """Why an answer cannot be taken; empty: it can."""
    if not now.position < answer.past.position <= now.until:
        return "it answers for other rows than it was asked for"
    try:
        if answer.mapped.groups:
            names = ("_pane", *fragment.keys)
            states = [state.name for state in fragment.task_states]
            groups = decode(answer.mapped.groups).select([*names, *states])
            normalise(groups, names, fragment.task_states)
        if answer.mapped.counters:
            decode(answer.mapped.counters).column("_pane")
    except (ElfError, KeyError, *WRONG) as error:
        return f"what it answers is no table of the flow: {error}"
    return ""


def positions_needed(checkpoint: StreamCheckpoint) -> int | None:
    """From which position on a helper has still to read what was archived, as of a checkpoint (None: no
    helper has): retention leaves it (protocol 13.10)."""
    over = (one.past for one in checkpoint.flows if one.flow.fragment.since_us is None)
    return min((past.position for past in over if past is not None), default=None)
