"""Whether windows are made of the panes of a flow that runs already, though these are shorter than the job's
own would be: the cost model (Enorm, sections 3.3 and 5.1.1: partial windows are shared where that takes less
CPU).

A flow of its own maps each row once more, at all agents, and sends its groups up; a shared one gives the
master more panes to merge. Costs are CPU time of all agents together for an hour of event time, from the
counts of the running flow. The cost of own panes is a lower bound: a longer pane has no fewer groups than a
shorter one, in a stream task or at a root. The cost of sharing is an upper bound: as if its root and the
master were never on one node. What both ways have in common (longer windows from shorter ones, stacks, final
fragments) is in neither. So where sharing is chosen it is certainly cheaper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from elf.fields import Length, Text
from elf.windows.kinds import HOUR_US, Cumulative, Kind, Sliding, span
from elf.windows.merging import plan_merges

ROW_US: Final = 0.05
"""CPU of a row in the stream task of its agent for one more flow, many rows at a time (0.05 to 0.08). This
and the next three are from ``elf bench sharing``, with ``--rows 1000000`` and ``3000000`` and both lengths of
its page, on the machine of the figures under other load: for own panes the least that was measured, for
sharing the most, without single outliers."""
SENT_US: Final = 0.4
"""CPU of a group of an agent's pane: in its tree, sealed, committed at the root (0.4 to 0.6)."""
MERGED_US: Final = 0.6
"""CPU of a group of a committed pane: handed to another node, kept there, merged into a window (to 0.6)."""
PANE_US: Final = 800.0
"""CPU of a committed pane itself, however few groups it has (580 to 790)."""
WAITING_US: Final = 0.5
"""CPU of a row where few come at a time, at least: they wait for a statement of 0.6 ms, which gets less than
1,200 at once (``elf.job.worker.assigning``). A flow with shorter panes has fewer of them in one, so its
measured time a row is no lower bound, but the smaller of both is."""
HELD_MAX: Final = 1_000_000
"""Groups of shorter panes that a master may hold at once (``held``)."""


@dataclass(frozen=True)
class Measured:
    """A running flow, or several whose panes meet (of key ranges, of streams): rows an hour of event time;
    groups of a pane, ``sent`` by all agents together and ``merged`` at the roots.
    """

    pane_us: int
    rows: float
    sent: float
    merged: float
    map_us: float = 0.0
    """CPU of a row in its map; 0: not known."""


@dataclass(frozen=True)
class Choice:
    """The panes of a job that could have read a flow with shorter ones. ``own_us``: the length of its own."""

    own_us: Length
    pane_us: Length
    why: Text
    shared_ms: float | None = None
    """CPU time for an hour of event time, at most; None: nothing was measured. ``own_ms``: at least."""
    own_ms: float | None = None

    @property
    def is_shared(self) -> bool:
        return self.pane_us != self.own_us


def shared_ms(measured: Measured, kinds: Sequence[Kind]) -> float:
    """An upper bound on the cost of making these windows from a flow's panes, beyond that from own ones."""
    pane_us = measured.pane_us
    tiles = plan_merges([kind.unit_us // pane_us for kind in kinds])
    used = sum(t.pieces.get(1, 0) * HOUR_US / (t.length * pane_us) for t in tiles)
    return (PANE_US * HOUR_US / pane_us + MERGED_US * measured.merged * used) / 1_000


def own_ms(measured: Measured, own_us: int) -> float:
    """A lower bound on the cost of a flow with panes of ``own_us``."""
    groups = max(measured.sent, measured.merged) * HOUR_US / own_us
    row = max(ROW_US, min(measured.map_us, WAITING_US))
    return (row * measured.rows + SENT_US * groups) / 1_000


def held(measured: Measured, kinds: Sequence[Kind]) -> float:
    """Groups of the flow's panes in the longest window: what a master holds when that is over, or when it
    begins again after a crash."""
    lengths = (kind.size_us if isinstance(kind, Sliding | Cumulative) else kind.unit_us for kind in kinds)
    return measured.merged * max(lengths) / measured.pane_us


def choose(kinds: Sequence[Kind], own_us: int, flows: Sequence[Measured], unknown: Sequence[str]) -> Choice:
    """``flows``: those that could be shared, of which there may be none; ``unknown``: why nothing is known of
    others."""
    if not flows:
        return Choice(own_us, own_us, f"own panes of {span(own_us)}: {'; '.join(unknown)}")
    fits = [one for one in flows if held(one, kinds) <= HELD_MAX]
    flow = min(fits or flows, key=lambda one: (shared_ms(one, kinds), one.pane_us))
    cost, own, pane_us = shared_ms(flow, kinds), own_ms(flow, own_us), flow.pane_us
    told = f"sharing takes at most {cost:,.1f} ms of CPU an hour, own panes at least {own:,.1f} ms"
    if not fits:
        told = f"a master would have {held(flow, kinds):,.0f} of its groups at once, and {HELD_MAX:,} at most"
    if not fits or cost >= own:
        why = f"own panes of {span(own_us)}, not those of {span(pane_us)} that a flow has: {told}"
        return Choice(own_us, own_us, why, cost, own)
    why = f"panes of {span(pane_us)} of a flow that runs, not own ones of {span(own_us)}: {told}"
    return Choice(own_us, pane_us, why, cost, own)
