"""How a job is to be run so that its windows are committed within what it promises (WITHIN; SCALLA, VLDB
2015, section 3.1): the settings of elf's own that change a latency, and what that costs.

| setting | changes | costs |
|---|---|---|
| ``poll_ms``, between an agent's first looks for the line that ends a pane | ``wait`` | CPU of each look |
| ``trees``, m of TREES: each root merges a part | ``draft`` | windows are a commit of their own |

Others change nothing here, and are not asked for: agents gather lines only until a pane is due; a sealed pane
has its checkpoint at once; a root waits for all members, however long a combiner on the way waits for more
than one of them; and the length of panes only moves work from one end of a window to the other.

A phase is what was measured of the same fleet, and what the model (``elf.planning.latency``) makes of the
difference between the settings of then and those: lines that come in bursts and cores that are busy stay as
they are. Where nothing was measured it is the model's. The least m that carries the rate is chosen, then the
longest ``poll_ms`` that keeps the promise with something to spare.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np

from elf.fields import replace
from elf.planning.decision import Decision
from elf.planning.latency import (
    NONE,
    POLL_S,
    Costs,
    Member,
    Moments,
    looked,
    normal_quantile,
    phases_of_pane,
    total,
)

POLLS_MS: Final = (50, 20, 10, 5, 2)
TREES: Final = (1, 2, 4, 8, 16)
LOOK_MS: Final = 0.15
"""CPU of a look at a stream's files, with what the reader's thread takes to wake up."""
LOOKS_SHARE: Final = 0.05
"""Of a core, that an agent spends on looks at most, over all time."""
DRAFT_MS: Final = 0.8
"""CPU of a commit, however few groups it has (``elf.windows.sharing.PANE_US``)."""
BUSY_MAX: Final = 0.7
"""Of its time, that a root may merge."""
SPARE: Final = 0.9
"""Of what is promised: a setting is taken that keeps this, if there is one."""
RATES: Final = tuple(2.0 ** (half / 2) for half in range(-16, 17))
"""Of the present rate: where the promise is still kept is looked for among these."""
DEFAULTS: Final = Costs(sync=Moments(4.0, 9.0), hop=Moments(0.5, 0.1), depth=1, draft=2.0)
"""Of a fleet of which nothing is known: fast disks and a quiet network, so that what is refused on their
ground no fleet keeps."""
DEFAULT_MEMBER: Final = Member(1_000.0, 2.0)


class Setting(msgspec.Struct, frozen=True):
    poll_ms: int = round(1000 * POLL_S)
    trees: int = 1


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a job before it runs, in ms. ``costs``: with the settings ``now``, as they were when
    ``measured`` was (by phase; empty: nothing was). ``trees``: those that may be chosen among; ``pane_ms``:
    of its panes; ``beside``: its windows are committed on their own, as it reads a flow of another job."""

    members: Sequence[Member]
    costs: Costs
    pane_ms: float
    trees: Sequence[int] = (1,)
    now: Setting = Setting()
    measured: Mapping[str, Moments] = {}
    beside: bool = False


class Solved(Decision, frozen=True):
    """The ``setting`` to run with, and what the model says of it, in ms. ``reached``: what is promised (a
    quantile, or the mean) comes to; ``keeps``: that is within it, and roots have the time. ``region``: for
    what part of the present rate, and for how many times that, the promise is kept with these settings; None:
    not for the present one."""

    setting: Setting
    phases: dict[str, Moments]
    total: Moments
    reached: float
    keeps: bool
    region: tuple[float, float] | None


def solve(known: Known, within_ms: float, percent: float | None) -> Solved:
    """``percent``: of the windows that are to come within ``within_ms``; None: their mean is to."""
    found = [(setting, phases_with(known, setting)) for setting in _settings(known)]
    reached = [_reached(phases.values(), percent) for _, phases in found]
    for limit in (SPARE * within_ms, within_ms):
        place = next((at for at, ms in enumerate(reached) if ms <= limit), None)
        if place is not None:
            break
    keeps = place is not None and _is_carried(known, found[place][0].trees)
    at = int(np.argmin(reached)) if place is None else place
    setting, phases = found[at]
    region = _region(known, setting, within_ms, percent) if keeps else None
    return Solved(
        reasons=_reasons(known, setting, phases, reached[at], region),
        setting=setting,
        phases=phases,
        total=total(phases.values()),
        reached=reached[at],
        keeps=keeps,
        region=region,
    )


def phases_with(known: Known, setting: Setting) -> dict[str, Moments]:
    """What the phases of a pane come to with these settings."""
    model = phases_of_pane(known.members, _costs(known, setting), setting.poll_ms / 1000)
    if not known.measured:
        return model
    then = phases_of_pane(known.members, known.costs, known.now.poll_ms / 1000)
    return {
        name: one + _beyond(known.measured.get(name, NONE), then[name])
        if name == "wait"
        else _instead(known.measured.get(name, NONE), then[name], one)
        for name, one in model.items()
    }


def _beyond(measured: Moments, model: Moments) -> Moments:
    """What was measured that the model does not know of. It is above nothing: the model of waits is the time
    after which they are over."""
    return Moments(max(0.0, measured.mean - model.mean), max(0.0, measured.variance - model.variance))


def _instead(measured: Moments, then: Moments, model: Moments) -> Moments:
    """What was measured, with other settings than then."""
    return Moments(
        max(0.0, measured.mean + model.mean - then.mean),
        max(0.0, measured.variance + model.variance - then.variance),
    )


def _costs(known: Known, setting: Setting) -> Costs:
    costs, now = known.costs, known.now
    draft = DRAFT_MS + max(0.0, costs.draft - DRAFT_MS) * now.trees / setting.trees
    if setting.trees == 1 and not known.beside:
        return replace(costs, draft=draft, made=costs.made + (costs.window or 0.0), window=None)
    window = costs.window
    if window is None:  # the master puts together what the roots have made
        window = costs.made or DRAFT_MS + max(0.0, costs.draft - DRAFT_MS) * now.trees
    return replace(costs, draft=draft, made=0.0, window=window)


def _settings(known: Known) -> list[Setting]:
    """Those that may be taken, the cheapest first: the least m, then the longest time between looks."""
    carries = [m for m in sorted(known.trees) if _is_carried(known, m)]
    polls = [poll for poll in POLLS_MS if _looks_share(known, poll) <= LOOKS_SHARE] or [POLLS_MS[0]]
    return [Setting(poll, m) for m in carries or [max(known.trees)] for poll in polls]


def _is_carried(known: Known, trees: int) -> bool:
    costs = _costs(known, Setting(trees=trees))
    return max(costs.draft + costs.made, costs.window or 0.0) <= BUSY_MAX * known.pane_ms


def _looks_share(known: Known, poll_ms: int) -> float:
    """Of a core, of the agent that looks most."""
    rate = min((one.lines_s for one in known.members if one.lines_s > 0), default=0.0)
    return min(looked(rate, poll_ms / 1000), known.pane_ms / poll_ms) * LOOK_MS / known.pane_ms


def _reached(phases: Iterable[Moments], percent: float | None) -> float:
    whole = total(phases)
    return whole.mean if percent is None else normal_quantile(whole, percent / 100)


def _region(
    known: Known, setting: Setting, within_ms: float, percent: float | None
) -> tuple[float, float] | None:
    """The rates around the present one for which the promise is kept."""

    def keeps(times: float) -> bool:
        members = [Member(times * one.lines_s, max(1.0, times) * one.cpu_ms) for one in known.members]
        draft = DRAFT_MS + max(0.0, known.costs.draft - DRAFT_MS) * max(1.0, times)
        there = replace(known, members=members, costs=replace(known.costs, draft=draft))
        if not _is_carried(there, setting.trees):
            return False
        more = phases_of_pane(members, _costs(there, setting), setting.poll_ms / 1000)
        phases = (_instead(here[name], now[name], one) for name, one in more.items())
        return _reached(phases, percent) <= within_ms

    here = phases_with(known, setting)
    now = phases_of_pane(known.members, _costs(known, setting), setting.poll_ms / 1000)
    one = RATES.index(1.0)
    if not keeps(1.0):
        return None
    low = next((at for at in range(one, -1, -1) if not keeps(RATES[at])), -1) + 1
    high = next((at for at in range(one, len(RATES)) if not keeps(RATES[at])), len(RATES)) - 1
    return RATES[low], RATES[high]


def _reasons(
    known: Known,
    setting: Setting,
    phases: Mapping[str, Moments],
    reached: float,
    region: tuple[float, float] | None,
) -> tuple[str, ...]:
    longest = max(phases, key=lambda name: phases[name].mean)
    costs = _costs(known, setting)
    busy = (costs.draft + costs.made) / known.pane_ms
    found = [
        f"by the model {reached:,.0f} ms, with looks {setting.poll_ms} ms apart and {setting.trees} "
        f"{'tree' if setting.trees == 1 else 'trees'}",
        f"the longest phase is {longest}, {phases[longest].mean:,.0f} ms",
    ]
    if not known.measured:
        found.append("nothing was measured of its streams yet: it is reckoned with the costs of a fast fleet")
    if busy > BUSY_MAX:
        found.append(f"a root would merge for {busy:.0%} of the time: that is not carried")
    if region is not None:
        low, high = (f"{times:.3g}" for times in region)
        found.append(f"it is kept for rates from {low} to {high} times the present one")
    return tuple(found)
