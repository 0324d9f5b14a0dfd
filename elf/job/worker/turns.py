"""Flows of a stream take turns where they promise different things (protocol 3.12): what a chunk has for them
is mapped when it is due (``elf.planning.turns``), and not in one pass over the lines.

What waits is bounded (``BYTES_MAX``): beyond that, what has waited longest is mapped at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Final

from elf.job.spec import END_OF_TIME, START_OF_TIME, Flow
from elf.job.work import Clock
from elf.job.worker.flowstate import FlowState
from elf.job.worker.postponed import Part, When
from elf.planning.turns import NEAR_MS, TURN_MAX_MS, TURN_MS, TURN_NEAR_MS, Bound, Turns, length_ms

BYTES_MAX: Final = 16 << 20
"""Of rows that wait, of all flows of a stream."""
HOLD: Final = 0.5
"""Of a promise: so long a flow that is done waits for others, so that all have one checkpoint."""
LOOK: Final = 0.2
LOOK_MS: Final = 20.0
"""So long after the end of a pane the line that says so is waited for: of a promise, and at most."""


class TurnTaking:
    """Of one stream. ``clock_us``: by which turns are measured; ``flows``: those that it has, by uid;
    ``sealable``: below which pane of a flow the watermark has passed all."""

    def __init__(
        self, clock_us: Clock, flows: Mapping[str, FlowState], sealable: Callable[[Flow], int]
    ) -> None:
        self._clock_us = clock_us
        self._flows = flows
        self._sealable = sealable
        self.turns = Turns[Part]()
        self._bounds: Mapping[str, Bound] = {}
        """Of flows that take turns; none where all is mapped as it is read."""
        self._left: tuple[int, float] | None = None
        """When the last turn began, and what had been mapped by then (ms of CPU), if there was always more to
        do since."""
        self.is_idle = False
        """Nothing was read when that was last tried."""
        self.when_cut: Callable[[str, Part], None] = lambda uid, part: None
        """Is told of each part that is cut short."""

    def agree(self, bounds: Mapping[str, Bound]) -> None:
        self._bounds = bounds

    def when(self, state: FlowState, now_ms: int, *, is_live: bool) -> When | None:
        """When a flow is to map what is read now; None: now."""
        bound = self._bounds.get(state.flow.uid)
        return None if bound is None or not can_wait(state) else When(bound, now_ms, is_live)

    def has_turn(self, now_ms: float) -> bool:
        """Whether something is to be mapped now."""
        waits = bool(len(self.turns)) and self._first(now_ms, self._sealing()) is not None
        if not waits:
            self._left = None
        return waits

    def _sealing(self) -> set[str]:
        """The flows that have a pane which the watermark has passed."""
        return {
            uid
            for uid, state in self._flows.items()
            if not state.suspended and state.past is None and self._sealable(state.flow) > state.sealed
        }

    def _first(self, now_ms: float, sealing: Collection[str]) -> Part | None:
        if self._is_over(now_ms, sealing):
            return None
        return self.turns.first(now_ms, sealing, self._length_ms(now_ms), idle=self.is_idle)

    def _is_over(self, now_ms: float, sealing: Collection[str]) -> bool:
        """Whether a pane has just ended by the clock: what says so is about to be read, and nothing else is
        begun before."""
        if self.is_idle:
            return False
        ends = (self._ends(state, now_ms) for uid, state in self._flows.items() if uid not in sealing)
        return any(0 < now_ms - ends_ms < min(LOOK_MS, LOOK * bound.waits_ms) for bound, ends_ms in ends)

    def _is_near(self, now_ms: float, sealing: Collection[str]) -> bool:
        """Whether the rows of a pane wait that has just ended, and is to be sealed very soon."""
        ends = (self._ends(self._flows[uid], now_ms) for uid in sealing if len(self.turns.of(uid)))
        return any(bound.is_near(now_ms, ends_ms) for bound, ends_ms in ends)

    def _length_ms(self, now_ms: float) -> float:
        """How long a turn may be, so long before some pane can be sealed."""
        ends = (self._ends(state, now_ms)[1] for state in self._flows.values())
        left_ms = min((end for end in ends if end > now_ms), default=now_ms) - now_ms
        return length_ms(left_ms)

    def limit(self, now_ms: float) -> Callable[[FlowState], int]:
        """Below which pane a flow may be sealed at most: not panes of which rows wait for their turn. Who has
        mapped them waits for others that are due sooner, if there is time, since each time that something is
        sealed is a checkpoint."""
        sealing = self._sealing()
        if self._is_ready(now_ms, sealing):
            return lambda state: state.postponed.first
        return lambda state: START_OF_TIME if state.flow.uid in sealing else END_OF_TIME

    def _is_ready(self, now_ms: float, sealing: Collection[str]) -> bool:
        """Whether a pane is to be sealed now."""
        states = [self._flows[uid] for uid in sealing]
        done = [one for one in states if min(self._sealable(one.flow), one.postponed.first) > one.sealed]
        return bool(done) and not self._holds(done, sealing, now_ms)

    def _holds(self, done: Collection[FlowState], sealing: Collection[str], now_ms: float) -> bool:
        """Whether flows that have mapped the rows of their first open panes may wait for others, which have
        their turn and are due sooner."""
        first = self._first(now_ms, sealing)
        ends = (self._ends(state, now_ms) for state in done)
        until_ms = min(ends_ms + HOLD * bound.waits_ms for bound, ends_ms in ends)
        return first is not None and max(now_ms, first.due_ms) < until_ms

    def _ends(self, state: FlowState, now_ms: float) -> tuple[Bound, float]:
        """When the first open pane of a flow can be sealed, and what was agreed to; who takes no turns has
        no time."""
        bound, pane = self._bounds.get(state.flow.uid), max(state.sealed, state.live_from)
        if bound is None or pane == START_OF_TIME:
            return Bound(0.0), now_ms
        return bound, ((pane + 1) * state.flow.fragment.pane_us + (state.lateness_us or 0)) / 1000

    def late_ms(self, uid: str, end: int, now_ms: float) -> float:
        """How long after their deadline the rows of the last pane before ``end`` are mapped by now; as long
        as the promise at most, since what is from long ago tells nothing."""
        bound, state = self._bounds.get(uid), self._flows.get(uid)
        if bound is None or state is None:
            return 0.0
        ends_ms = (end * state.flow.fragment.pane_us + (state.lateness_us or 0)) / 1000
        return min(max(0.0, now_ms - bound.due_ms(ends_ms, ends_ms)), bound.waits_ms)

    def turn(self, now_ms: int, most: int, *, if_near: bool = False) -> int:
        """Map what is due first, so often at most, until that has taken long enough or something is to be
        sealed; how many rows are left out so that the others are in time. ``if_near``: nothing, unless
        something is to be sealed very soon."""
        sealing = self._sealing()
        is_near = self._is_near(now_ms, sealing)
        if if_near and not is_near:
            return 0
        began, mapped_ms, left_out = self._clock_us(), self.turns.mapped_ms, 0
        if self._left is not None:
            self.turns.paced(mapped_ms - self._left[1], (began - self._left[0]) / 1000)
        took_ms = 0.0
        while most and took_ms < (TURN_MAX_MS if is_near else TURN_MS):
            left_out += self._cut_short(now_ms + took_ms)
            if not self._map(now_ms + took_ms, sealing, is_near):
                break
            most, took_ms = most - 1, (self._clock_us() - began) / 1000
            if self._is_ready(now_ms + took_ms, sealing):
                break
        self._left = began, mapped_ms
        return left_out

    def _cut_short(self, now_ms: float) -> int:
        left_out = 0
        while (part := self.turns.missed(now_ms)) is not None:
            self.when_cut(part.flow, part)
            whose = self._bounds.get(part.flow, Bound()).whose
            left_out += self._flows[part.flow].cut_short(part, whose)
        return left_out

    def _map(self, now_ms: float, sealing: Collection[str], is_near: bool) -> bool:
        if self._is_over(now_ms, sealing):
            return False
        takes_ms, until_ms = self._length_ms(now_ms), math.inf
        if is_near:
            takes_ms, until_ms = TURN_NEAR_MS, now_ms + NEAR_MS
        parts = self.turns.next(now_ms, sealing, takes_ms, idle=self.is_idle, until_ms=until_ms)
        if not parts:
            return False
        state = self._flows[parts[0].flow]
        alone = state.flow.fragment.function is not None  # it is told on which line it fails
        state.map_postponed(parts[:1] if alone else parts)
        return True

    def make_room(self) -> None:
        """Map what has waited longest, where too much waits."""
        waits = sum(part.nbytes for part in self.turns.all())
        while waits > BYTES_MAX and (oldest := self.turns.oldest()) is not None:
            waits -= oldest.nbytes
            self._flows[oldest.flow].map_postponed([oldest])


def can_wait(state: FlowState) -> bool:
    """Whether a flow may have its rows mapped later: it has panes of event time, and takes live lines."""
    fragment = state.flow.fragment
    if not fragment.pane_us or fragment.count is not None or fragment.late_of:
        return False
    return not state.suspended and state.past is None
