"""Which rows are left out so that those that are not are in time, where an agent cannot map all that comes
(SCALLA, VLDB 2015, section 4, for flows of a stream in the place of the paper's rows).

One pass over the lines serves all flows of a stream, so what one takes makes the windows of all late: they
have one deadline, and with one Algorithm 1 says: while it takes longer than there is time, drop the dearest.
What may be left out are rows of flows whose readers all promise something (``WITHIN``) or give way
(``PRIORITY RESEARCH``), down to one in ``WEIGHT_MAX`` (``elf.job.sampling``): of those first that only such
read who give way, and among these of the flow first that takes most for a row.

    in time ── lag ≥ half a promise, and it does not shrink ──▶ behind: it is to catch up in ``CATCH_UP_MS``
       ▲                                                           │ no lag: it is to stay so
       └──────── there is room for more, for ``CALM`` looks ◀──────┘

The stream task tells how long it was at work: so what a second of lines takes is known, of each flow, and of
what all have in common. Flows tell CPU. Where the task does not get a whole core while it is at work,
everything takes longer by as much (``stretch``). A stream that waits is not at work, however late its chunks
are. Nothing is left out in vain: not where a stream catches up by itself, nor where even the highest weights
would not keep it in time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec

from elf.fields import replace
from elf.planning.budgets import WEIGHT_MAX

LOOK_MS: Final = 2_000
"""Between two looks."""
CATCH_UP_MS: Final = 4_000
SHRINKS: Final = 0.25
"""Of the time that goes by: a lag that shrinks by as much is let be."""
STAYS: Final = 0.95
"""Of its time that a stream may take where rows are left out."""
ROOM: Final = 0.9
"""Of its time that it may take with more rows."""
CALM: Final = 3
SETTLES: Final = 2
"""After so many looks what flows take is all taken at their weights: chunks were waiting."""


class Lag(msgspec.Struct, frozen=True):
    """How far behind a stream is, and when that was (ms). Since its start its task was at work for
    ``busy_ms``, of which it had a core, or waited for something else, for ``cpu_ms``; 0: nobody knows."""

    lag_ms: float
    busy_ms: float = 0
    cpu_ms: float = 0
    at_ms: int = 0


class FlowLoad(msgspec.Struct, frozen=True):
    """What a flow has taken since the last look, at its weight of then. ``within_ms``: the tightest promise
    of its readers; None: they promise nothing. ``is_able``: rows may be left out, as all of them have an
    estimate and promise something, or give way. ``gives_way``: all do (PRIORITY RESEARCH), so its rows are
    left out first."""

    uid: str
    cpu_ms: float
    within_ms: float | None = None
    is_able: bool = True
    gives_way: bool = False
    rows: int = 0
    """That it was given, those that were left out too; 0: nobody knows."""

    def with_another(self, other: FlowLoad) -> FlowLoad:
        """Of both, under this one's name: they have one weight."""
        promises = [one.within_ms for one in (self, other) if one.within_ms is not None]
        return FlowLoad(
            self.uid,
            self.cpu_ms + other.cpu_ms,
            min(promises, default=None),
            self.is_able and other.is_able,
            self.gives_way and other.gives_way,
            self.rows + other.rows,
        )


def fitted(
    shared: float,
    whole: Mapping[str, float],
    until: float,
    first: Collection[str] = (),
    most: Mapping[str, int] | None = None,
) -> dict[str, int]:
    """Weights of flows, at which a second of lines takes so long at most. ``whole``: what each takes for all
    rows; ``shared``: what is not sampled; ``first``: flows that give way to the others; ``most``: the highest
    weights that may be."""
    limits = dict.fromkeys(whole, WEIGHT_MAX) if most is None else most
    order = sorted(whole, key=lambda uid: (uid not in first, -whole[uid], uid))
    found = dict.fromkeys(whole, 1)
    takes = shared + sum(whole.values())
    for uid in order:
        while takes > until and found[uid] < limits.get(uid, 1):
            found[uid] *= 2
            takes -= whole[uid] / found[uid]
    for uid in reversed(order):  # the last one may have made room for more of those before
        while found[uid] > 1 and takes + whole[uid] / found[uid] <= until:
            takes += whole[uid] / found[uid]
            found[uid] //= 2
    return found


def _concerned(flows: Sequence[FlowLoad]) -> tuple[list[FlowLoad], list[float]]:
    """Flows whose rows may be left out, and for which promises (ms). Where only such flows promise something
    as are mapped whole, nobody but who gives way loses rows for that."""
    able = [flow for flow in flows if flow.is_able]
    promises = [flow.within_ms for flow in able if flow.within_ms is not None]
    if promises:
        return able, promises
    first = [flow for flow in able if flow.gives_way]
    return first, [flow.within_ms for flow in flows if first and flow.within_ms is not None]


def busy_since(before: Lag, lag: Lag) -> float | None:
    """The share of its time that a stream task was at work; None: nobody knows."""
    took_ms = lag.at_ms - before.at_ms
    return min(1.0, (lag.busy_ms - before.busy_ms) / took_ms) if lag.busy_ms and took_ms > 0 else None


def stretch(before: Lag, lag: Lag, known: float) -> float:
    """How long a second of CPU takes, by what the task had of a core while it was at work, and what was
    ``known`` of that."""
    got_ms, took_ms = lag.cpu_ms - before.cpu_ms, lag.busy_ms - before.busy_ms
    return max(1.0, took_ms / got_ms) if got_ms > 0 and took_ms > 0 else known


class Overload:
    """Of one stream of an agent. ``weights``: of flows whose rows are left out."""

    def __init__(self) -> None:
        self.weights: dict[str, int] = {}
        self._looked_ms: int | None = None
        self._lag = Lag(0.0)
        self._stretch = 1.0
        """How long a second of CPU takes."""
        self._busy: float | None = None
        """The share of its time that its task was at work."""
        self._shared = 0.0
        """What is not sampled, of a second of lines (ms), when it was behind."""
        self._whole: dict[str, float] = {}
        self._first: set[str] = set()
        """Flows that give way."""
        self._a_row: dict[str, tuple[int, float]] = {}
        """What a row takes of each (ms of CPU), and at which weight that was seen."""
        self._calm = 0
        """Looks since it was behind."""
        self._same = SETTLES
        """Looks since the weights were others."""

    def due(self, now_ms: int) -> bool:
        return self._looked_ms is None or now_ms - self._looked_ms >= LOOK_MS

    def look(self, flows: Sequence[FlowLoad], lag: Lag, now_ms: int) -> dict[str, int]:
        """What flows have taken since the last look, and how far behind the stream is. The weights of those
        whose rows are left out from now on."""
        looked_ms, self._looked_ms = self._looked_ms, now_ms
        if lag.at_ms > self._lag.at_ms:
            self._stretch = stretch(self._lag, lag, self._stretch)
            self._busy = busy_since(self._lag, lag)
        lag_ms = lag.lag_ms
        grew_ms, self._lag = lag_ms - self._lag.lag_ms, lag
        able, promises = _concerned(flows)
        uids = {flow.uid for flow in able} if promises else set()
        self._first = {flow.uid for flow in able if flow.gives_way}
        self.weights = {uid: weight for uid, weight in self.weights.items() if uid in uids}
        if not promises or looked_ms is None or now_ms <= looked_ms:
            return self.weights
        secs = (now_ms - looked_ms) / 1000
        self._same += 1
        self._learn(able)
        able = [replace(flow, cpu_ms=self._stretch * flow.cpu_ms) for flow in able]
        if lag_ms >= min(promises) / 2:
            self._behind(able, secs, lag_ms, grew_ms)
        elif self.weights:
            self._in_time(able, secs)
        return self.weights

    def _learn(self, able: Sequence[FlowLoad]) -> None:
        """What a row takes of CPU, at the lowest weight that was: what a pane takes by itself tells less
        there."""
        uids = {flow.uid for flow in able}
        self._a_row = {uid: one for uid, one in self._a_row.items() if uid in uids}
        for flow in able if self._same > SETTLES else ():
            weight = self.weights.get(flow.uid, 1)
            if flow.rows and weight <= self._a_row.get(flow.uid, (WEIGHT_MAX, 0.0))[0]:
                self._a_row[flow.uid] = weight, flow.cpu_ms * weight / flow.rows

    def _full(self, able: Sequence[FlowLoad]) -> dict[str, float]:
        """What they would have taken for all rows: without what they take by themselves, where that is
        known."""
        return {flow.uid: self._full_of(flow) for flow in able}

    def _full_of(self, flow: FlowLoad) -> float:
        if flow.rows and flow.uid in self._a_row:
            return self._stretch * self._a_row[flow.uid][1] * flow.rows
        return flow.cpu_ms * self.weights.get(flow.uid, 1)

    def _takes(self, able: Sequence[FlowLoad], took_ms: float, secs: float) -> tuple[float, dict[str, float]]:
        """What is not sampled, and each flow for all rows, by the second of so many that took so long."""
        whole = self._full(able)
        sampled = sum(cost / self.weights.get(uid, 1) for uid, cost in whole.items())
        return max(0.0, took_ms - sampled) / secs, {uid: cost / secs for uid, cost in whole.items()}

    def _behind(self, able: Sequence[FlowLoad], secs: float, lag_ms: float, grew_ms: float) -> None:
        """Where nobody knows how long it was at work, that was all the time."""
        self._calm = 0
        if self._same <= SETTLES:
            return
        came = max(0.05 * secs, secs - grew_ms / 1000)
        busy = 1.0 if self._busy is None else self._busy
        self._shared, self._whole = self._takes(able, 1000 * secs * busy, came)
        least = self._shared + sum(cost / WEIGHT_MAX for cost in self._whole.values())
        if grew_ms > -1000 * secs * SHRINKS and least <= 1000 * STAYS:
            wanted = fitted(self._shared, self._whole, 1000 / (1 + lag_ms / CATCH_UP_MS), self._first)
            self._set({uid: max(weight, self.weights.get(uid, 1)) for uid, weight in wanted.items()})

    def _in_time(self, able: Sequence[FlowLoad], secs: float) -> None:
        """At first it takes what it took, when it was behind; later it tells. Where it does not, it takes
        what its flows do."""
        self._calm += 1
        if self._calm == 1:
            wanted = fitted(self._shared, self._whole, 1000 * STAYS, self._first, self.weights)
        elif self._calm > CALM and self._same > SETTLES:
            spent = sum(flow.cpu_ms for flow in able)
            took_ms = spent if self._busy is None else max(spent, 1000 * secs * self._busy)
            shared, whole = self._takes(able, took_ms, secs)
            wanted = fitted(shared, whole, 1000 * ROOM, self._first, self.weights)
        else:
            return
        self._set(wanted)

    def _set(self, weights: Mapping[str, int]) -> None:
        before = self.weights
        self.weights = {uid: weight for uid, weight in weights.items() if weight > 1}
        self._same = self._same if self.weights == before else 0
