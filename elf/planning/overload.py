"""Which rows are left out so that those that are not are in time, where an agent cannot map all that comes
(SCALLA, VLDB 2015, section 4, for flows of a stream in the place of the paper's rows).

One pass over the lines serves all flows of a stream, so what one takes makes the windows of all late: they
have one deadline, and with one Algorithm 1 says: while it takes longer than there is time, drop the dearest.
What may be left out are rows of flows whose readers all promise something (``WITHIN``) or give way
(``PRIORITY RESEARCH``), down to one in ``WEIGHT_MAX`` (``elf.job.sampling``): of those first that only such
read who give way, and among these of the flow first that takes most for a row.

Looks are ``LOOK_MS`` apart while the stream is behind. What a row takes of each flow, and a line of all that
they have in common, is known by what was done before: the stream task tells how long it was at work, and
flows tell CPU. Where the task does not get a whole core while it is at work, everything takes longer by as
much. A stream that waits is not at work, however late its chunks are. By how far it has fallen behind since
the last look, and what was done, it is known what comes.

``AIM`` of the tightest promise is what a stream may be behind: with room left to it more may come than can be
done, since that may be a burst; beyond it, so much less that it is there again after ``CATCH_UP_MS``. So in
overload that lasts a stream is behind by nearly as much, and does all that it can; the rest of the promise is
for what comes after its task, and for others on the machine.

Nothing is left out in vain: not where a stream catches up by itself, nor where even the highest weights would
not keep it in time.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec

from elf.planning.budgets import WEIGHT_MAX

LOOK_MS: Final = 250
"""Between two looks, at least."""
AIM: Final = 0.25
"""Of a promise."""
ROOM_MS: Final = 300
"""In which a stream may fall behind to there."""
CATCH_UP_MS: Final = 4_000
STAYS: Final = 0.9
"""Of its time that it may take where it is behind by that: what is known is not exact."""
SHRINKS: Final = 0.25
"""Of the time that goes by: a lag that shrinks by as much is let be."""
FORGETS: Final = 0.9
"""By a look."""
ALIKE: Final = 1.25


class Lag(msgspec.Struct, frozen=True):
    """How far behind a stream is, and when that was (ms). Since its start its task was at work for
    ``busy_ms``, of which it had a core, or waited for something else, for ``cpu_ms``; 0: nobody knows."""

    lag_ms: float
    busy_ms: float = 0
    cpu_ms: float = 0
    at_ms: int = 0


class FlowLoad(msgspec.Struct, frozen=True):
    """What rows of a flow have taken since the last look, at its weight of then. ``within_ms``: the tightest
    promise of its readers; None: they promise nothing. ``is_able``: rows may be left out, as all of them have
    an estimate and promise something, or give way. ``gives_way``: all do (PRIORITY RESEARCH), so its rows are
    left out first."""

    uid: str
    cpu_ms: float
    within_ms: float | None = None
    is_able: bool = True
    gives_way: bool = False
    rows: int = 0
    """That it was given, those that were left out too."""

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


def _grade(cost: float) -> int:
    """Costs within a fourth are alike: which of such flows is the dearest is not to change all the time."""
    return math.floor(math.log(max(cost, 1e-9), ALIKE))


def fitted(
    shared: float, whole: Mapping[str, float], until: float, first: Collection[str] = ()
) -> dict[str, int]:
    """Weights of flows, at which a second of lines takes so long at most. ``whole``: what each takes for all
    rows; ``shared``: what is not sampled; ``first``: flows that give way to the others."""
    order = sorted(whole, key=lambda uid: (uid not in first, -_grade(whole[uid]), uid))
    found = dict.fromkeys(whole, 1)
    takes = shared + sum(whole.values())
    for uid in order:
        while takes > until and found[uid] < WEIGHT_MAX:
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


class Ratio:
    """Of two sums, of which what is long ago counts less and less."""

    def __init__(self) -> None:
        self._above = self._below = 0.0

    def add(self, above: float, below: float) -> None:
        self._above = FORGETS * self._above + above
        self._below = FORGETS * self._below + below

    @property
    def value(self) -> float:
        return self._above / self._below if self._below > 0 else 0.0


class Overload:
    """Of one stream of an agent. ``weights``: of flows whose rows are left out."""

    def __init__(self) -> None:
        self.weights: dict[str, int] = {}
        self._lag = Lag(0.0)
        self._stretch = Ratio()
        """How long a second of CPU takes."""
        self._line = Ratio()
        """What a line takes (ms) of what is not sampled."""
        self._row: dict[str, Ratio] = {}
        """What a row takes (ms of CPU) that is mapped, of each flow."""

    def is_new(self, lag: Lag) -> bool:
        """Whether more is known than at the last look."""
        return lag.at_ms > self._lag.at_ms

    def look(self, flows: Sequence[FlowLoad], lag: Lag) -> dict[str, int]:
        """What flows have taken since the last look that had something new, and how far behind the stream is
        (where nobody knows how long it was at work: all the time, while it is behind). The weights of those
        whose rows are left out from now on."""
        able, promises = _concerned(flows)
        uids = {flow.uid for flow in able} if promises else set()
        self.weights = {uid: weight for uid, weight in self.weights.items() if uid in uids}
        if not self.is_new(lag):
            return self.weights
        before, self._lag = self._lag, lag
        if not before.at_ms:
            return self.weights
        ms, grew_ms = lag.at_ms - before.at_ms, lag.lag_ms - before.lag_ms
        lines = max((flow.rows for flow in flows), default=0)
        self._learn(able, lines, ms if lag.lag_ms else 0.0, before)
        begins = lag.lag_ms > 0 and grew_ms > -SHRINKS * ms
        if lines and promises and (self.weights or begins):
            came = max(0.05, (ms - grew_ms) / 1000)
            self._weigh(able, lines / came, AIM * min(promises))
        elif not lines and not lag.lag_ms:
            self.weights = {}
        return self.weights

    def _learn(self, able: Sequence[FlowLoad], lines: int, guess_ms: float, before: Lag) -> None:
        spent, lag = sum(flow.cpu_ms for flow in able), self._lag
        busy_ms = lag.busy_ms - before.busy_ms if lag.busy_ms else max(spent, guess_ms)
        self._stretch.add(busy_ms, lag.cpu_ms - before.cpu_ms if lag.busy_ms else busy_ms)
        self._line.add(max(0.0, busy_ms - self._longer * spent), lines)
        self._row = {flow.uid: self._row.get(flow.uid) or Ratio() for flow in able}
        for flow in able:
            self._row[flow.uid].add(flow.cpu_ms, flow.rows / self.weights.get(flow.uid, 1))

    @property
    def _longer(self) -> float:
        return max(1.0, self._stretch.value)

    def _weigh(self, able: Sequence[FlowLoad], lines_s: float, aim_ms: float) -> None:
        """``lines_s``: that come by the second; ``aim_ms``: that the stream may be behind."""
        shared, over_ms = self._line.value * lines_s, self._lag.lag_ms - aim_ms
        most = max((flow.rows for flow in able), default=0)
        whole = {
            flow.uid: self._longer * self._row[flow.uid].value * lines_s * flow.rows / max(1, most)
            for flow in able
        }
        least = shared + sum(cost / WEIGHT_MAX for cost in whole.values())
        if least > 1000:
            return
        until = 1 - over_ms / ROOM_MS if over_ms < 0 else 1 / (1 + over_ms / CATCH_UP_MS)
        found = fitted(shared, whole, 1000 * STAYS * until, {flow.uid for flow in able if flow.gives_way})
        self.weights = {uid: weight for uid, weight in found.items() if weight > 1}
