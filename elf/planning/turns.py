"""Whose turn it is where flows of a stream promise different things: (chunk, flow) *tasks* by their deadlines
(SCALLA, VLDB 2015, section 4, where a task is the paper's tuple).

A task is the rows of one chunk that one flow has yet to map. The one with the earliest deadline is next, with
others of its flow for as long as a turn takes: a statement costs milliseconds, however few its rows. A flow
has no turn before that is worth it, unless a pane of it is to be sealed, a deadline is near, or nothing else
is to be done.

Where not all tasks can be done in time, Algorithm 2 says which are *cut short* (``elf.planning.deadlines``):
the dearest of those up to the first deadline that is missed, those of flows that give way before others. Of
such a task one row in ``WEIGHT_MAX`` is mapped, and stands for the others. Who has not agreed to that
(``UNCUT``) is never chosen. Where such tasks alone take too long the dearest of them is late: others are in
time without it, and it comes a second later (``LATE_MS``).

What a row of a map takes (CPU) is learned from those that were mapped together. So is what share of its time
a stream maps rows while some wait (``pace``): its parsing, its checkpoints and whoever else has the core take
the rest of it.
"""

from __future__ import annotations

import math
from bisect import insort
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from typing import Final, Generic, TypeVar

import msgspec

from elf.planning.budgets import WEIGHT_MAX
from elf.planning.deadlines import Task, Tasks

TURN_MIN_MS: Final = 10.0
TURN_MS: Final = 20.0
TURN_MAX_MS: Final = 100.0
"""A turn takes so much CPU, so who is in a hurry waits for no more. It is long where nobody will be for some
time, and short where somebody is: a statement by itself takes as much as 3 ms of its rows, and more."""
TURN_LATER_MS: Final = 30.0
"""So long a turn may be with what is due later than its first."""
TURN_NEAR_MS: Final = 40.0
"""But what is to be sealed very soon is one statement."""
LATE_MS: Final = 1_000.0
NEAR_MS: Final = 150.0
"""A deadline that is nearer is reason enough for a turn."""
WORTH: Final = 0.05
"""Of the time that is left until it is due: what waits gathers until it takes so long."""
PART_ROWS_MIN: Final = 64
UNKNOWN_ROWS: Final = 512
"""So many rows are a turn where nobody knows what they take."""
LEARNED_ROWS: Final = 128
LEARNED_MS: Final = 10.0
"""Of fewer rows, mapped together in less, what they take by themselves is not known."""
AHEAD_MS: Final = 2_000.0
"""Rows wait for the end of their pane so long at most."""
REST: Final = 0.25
REST_MIN_MS: Final = 40.0
REST_MAX_MS: Final = 1_000.0
"""Of a promise that part is left for what comes after the flow, but for so long at least and at most; at
least half of a promise is the flow's, where nothing else was measured."""
RESTS_MOST: Final = 0.7
"""More of a promise is not left, whatever was measured."""
UNPROMISED_MS: Final = 10_000.0
"""Who promises nothing waits for others so long at most, as far as their rows may be left out."""
GRAINS: Final = 10
"""Of what is promised: so many deadlines are told from each other."""
DEARER: Final = 2.0
"""Rows of a flow take more than those of another if it is so many times as much; the later ones are cut short
otherwise."""
UNCUT, CUT_LAST, CUT_FIRST = 0, 1, 2
"""Ranks of tasks: those that are done whole, and those that are cut short before others."""
PACE: Final = 0.9
PACE_MIN: Final = 0.02
PACE_MS: Final = 2_000.0
"""The pace is that of so long, or so, when rows waited; ``PACE`` before any has."""
_KEPT: Final = 0.9
_FALLS: Final = 0.998


class Bound(msgspec.Struct, frozen=True):
    """What the readers of a flow have agreed to: within how many ms its windows are to be there (None: they
    promise nothing), its rank, and for whose promise its rows are left out."""

    within_ms: float | None = None
    rank: int = UNCUT
    whose: str = ""
    rest_ms: float = 0.0
    """What was measured of what comes after the flow (``elf.planning.rests``)."""

    @property
    def waits_ms(self) -> float:
        return UNPROMISED_MS if self.within_ms is None else self.within_ms

    def due_ms(self, now_ms: float, ends_ms: float) -> float:
        """The deadline of rows that were read now, of a pane that is due then."""
        grain = max(self.waits_ms / GRAINS, 1.0)
        due = min(max(now_ms, ends_ms), now_ms + AHEAD_MS) + self.waits_ms
        usual = min(max(REST * self.waits_ms, REST_MIN_MS), REST_MAX_MS, self.waits_ms / 2)
        return due // grain * grain - max(usual, min(self.rest_ms, RESTS_MOST * self.waits_ms))

    def is_near(self, now_ms: float, ends_ms: float) -> bool:
        """Whether a pane that was due then has just ended, and is to be sealed very soon."""
        near_ms = now_ms + NEAR_MS
        return now_ms - NEAR_MS < ends_ms and self.waits_ms > 0 and self.due_ms(ends_ms, ends_ms) < near_ms


def length_ms(left_ms: float) -> float:
    """How long a turn may be, so long before somebody will be in a hurry."""
    return min(max(left_ms / 2, TURN_MIN_MS), TURN_MAX_MS)


def differ(bounds: Mapping[str, Bound]) -> bool:
    """Whether flows wait for each other: some promise something, and not all the same."""
    return len({bound.within_ms for bound in bounds.values()}) > 1


@dataclass(eq=False)
class Postponed:
    """A task: so many rows of a flow, of which each stands for ``weight``. ``group``: flows with one map have
    one, and what it takes."""

    flow: str
    group: object
    rows: int
    weight: int
    due_ms: float
    rank: int
    number: int = 0
    """Given by ``Turns``: no other task has it."""
    is_late: bool = False
    """Others are in time without it."""
    task: Task | None = None
    """In the deadline tree."""

    @property
    def order(self) -> tuple[float, int]:
        return self.due_ms, self.number


P = TypeVar("P", bound=Postponed)


class _Cost:
    """What a row takes of flows with one map."""

    def __init__(self) -> None:
        self.row_ms = self._ms = self._rows = 0.0

    def learn(self, rows: int, cpu_ms: float) -> None:
        if rows >= LEARNED_ROWS or cpu_ms >= LEARNED_MS:
            self._ms, self._rows = _KEPT * self._ms + cpu_ms, _KEPT * self._rows + rows
            self.row_ms = self._ms / self._rows
        else:  # one that was too high does not stay where few rows are mapped because of it
            self._ms, self.row_ms = _FALLS * self._ms, _FALLS * self.row_ms


class Turns(Generic[P]):
    """The tasks of one stream."""

    def __init__(self) -> None:
        self._queues: dict[str, dict[int, list[P]]] = {}
        """By flow and weight, in the order of their deadlines."""
        self._rows: Counter[tuple[str, int]] = Counter()
        self._costs: dict[object, _Cost] = {}
        self._tree = Tasks()
        self._by_number: dict[int, P] = {}
        """Those in the tree."""
        self._number = 0
        self.mapped_ms = 0.0
        """CPU in all."""
        self._paced_ms, self._elapsed_ms = PACE * PACE_MS, PACE_MS

    def __len__(self) -> int:
        return sum(len(queue) for queues in self._queues.values() for queue in queues.values())

    def of(self, flow: str) -> Sequence[P]:
        """What waits of a flow."""
        return [one for queue in self._queues.get(flow, {}).values() for one in queue]

    def all(self) -> Iterator[P]:
        for flow in self._queues:
            yield from self.of(flow)

    # -- what waits ------------------------------------------------------------------------------------------

    def offer(self, one: P) -> None:
        """One more task; it may have had a number before."""
        self._number = max(self._number + 1, one.number)
        one.number = one.number or self._number
        queue = self._queues.setdefault(one.flow, {}).setdefault(one.weight, [])
        insort(queue, one, key=lambda other: other.order)
        self._rows[one.flow, one.weight] += one.rows
        if self._is_known(one.group) and one.weight < WEIGHT_MAX and not one.is_late:
            row_ms = self._row_ms(one.group)
            takes_ms = one.rows * row_ms / self.pace
            dear = round(math.log(row_ms, DEARER))
            one.task = Task(takes_ms, one.due_ms, one.number, one.rank, dear)
            self._by_number[one.number] = one
            self._tree.insert(one.task)

    def remove(self, one: P) -> None:
        """It has been done, or is dropped."""
        self._leave(one)
        queues = self._queues[one.flow]
        queues[one.weight].remove(one)
        self._rows[one.flow, one.weight] -= one.rows
        if not queues[one.weight]:
            del queues[one.weight], self._rows[one.flow, one.weight]
        if not queues:
            del self._queues[one.flow]

    def _leave(self, one: P) -> None:
        if one.task is not None:
            self._tree.remove(one.task)
            del self._by_number[one.number]
            one.task = None

    def forget(self, flow: str) -> None:
        """The flow is computed no more."""
        for one in self.of(flow):
            self.remove(one)

    def keep(self, groups: Collection[object]) -> None:
        """What rows take is remembered of these alone."""
        self._costs = {group: cost for group, cost in self._costs.items() if group in groups}

    # -- whose turn it is ------------------------------------------------------------------------------------

    def missed(self, now_ms: float) -> P | None:
        """A task that is to be cut short (the caller removes it, and offers what is left of it), since not
        all can be done in time; None: all can."""
        while (dearest := self._tree.missing(now_ms)) is not None:
            one = self._by_number[dearest.name]
            if dearest.rank != UNCUT:
                return one
            self.remove(one)
            one.due_ms, one.is_late = now_ms + LATE_MS, True
            self.offer(one)
        return None

    def next(
        self,
        now_ms: float,
        sealing: Collection[str] = (),
        takes_ms: float = TURN_MS,
        *,
        idle: bool = False,
        until_ms: float = math.inf,
    ) -> list[P]:
        """What is to be mapped now, of one flow. ``sealing``: flows of which a pane is to be sealed;
        ``takes_ms``: how long the turn may be; ``idle``: nothing else is to be done; ``until_ms``: nothing
        that is due later comes with the first."""
        first = self.first(now_ms, sealing, takes_ms, idle=idle)
        if first is None:
            return []
        if first.weight >= WEIGHT_MAX:  # it takes next to nothing, so it is no reason for a long turn
            until_ms = first.due_ms
        row_ms, found = self._row_ms(first.group), [first]
        took_ms = first.rows * row_ms
        for one in merge(*self._queues[first.flow].values(), key=lambda one: one.order):
            if one is first:
                continue
            most_ms = takes_ms if one.due_ms <= first.due_ms else min(takes_ms, TURN_LATER_MS)
            took_ms += one.rows * row_ms
            if took_ms > most_ms or one.due_ms > until_ms:
                break
            found.append(one)
        return found

    def first(
        self, now_ms: float, sealing: Collection[str] = (), takes_ms: float = TURN_MS, *, idle: bool = False
    ) -> P | None:
        """The first of these."""
        able = (
            queue[0]
            for flow, queues in self._queues.items()
            for queue in queues.values()
            if idle or flow in sealing or self._is_worth(queue[0], now_ms, takes_ms)
        )
        return min(able, key=lambda one: (self._is_known(one.group), *one.order), default=None)

    def _is_worth(self, first: P, now_ms: float, takes_ms: float) -> bool:
        """What is cut short waits until its pane is to be sealed."""
        if first.weight >= WEIGHT_MAX or not self._is_known(first.group):
            return first.weight < WEIGHT_MAX
        waits_ms = self._rows[first.flow, first.weight] * self._row_ms(first.group)
        left_ms = first.due_ms - now_ms
        return left_ms <= NEAR_MS or waits_ms >= min(takes_ms, max(TURN_MS, WORTH * left_ms))

    def _is_known(self, group: object) -> bool:
        """Whether it is known what a row takes; else the first ones are mapped at once."""
        cost = self._costs.get(group)
        return cost is not None and cost.row_ms > 0

    def _row_ms(self, group: object) -> float:
        return self._costs[group].row_ms if self._is_known(group) else TURN_MS / UNKNOWN_ROWS

    def part_rows(self, group: object) -> int:
        """So many rows are the shortest turn."""
        return max(PART_ROWS_MIN, int(TURN_MIN_MS / self._row_ms(group)))

    def oldest(self) -> P | None:
        """What has waited longest."""
        return min(self.all(), key=lambda one: one.number, default=None)

    # -- what it takes ---------------------------------------------------------------------------------------

    @property
    def pace(self) -> float:
        """The share of its time that the stream maps rows while some wait."""
        return max(PACE_MIN, min(1.0, self._paced_ms / self._elapsed_ms))

    def mapped(self, group: object, rows: int, cpu_ms: float) -> None:
        """So many rows were mapped together."""
        self.mapped_ms += cpu_ms
        self._costs.setdefault(group, _Cost()).learn(rows, cpu_ms)

    def paced(self, cpu_ms: float, took_ms: float) -> None:
        """While rows waited that had their turn, so much of so long was mapping."""
        kept = math.exp(-took_ms / PACE_MS)
        self._paced_ms = kept * self._paced_ms + cpu_ms
        self._elapsed_ms = kept * self._elapsed_ms + took_ms
