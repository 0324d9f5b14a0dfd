"""Whether a windowed component of a job is to be *split* (partial results are merged elsewhere) or *combined*
(each row goes into every overlapping window where it is): Enorm's cost model, 5.1.1 and 5.1.2.

A split component can be moved at once, without its state; a combined one waits for its state with each move.
So the cheaper of the two is chosen, among those whose wait is within what the user accepts. It is worth
asking anew once in the longest window, since what it depends on changes slowly.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from elf.planning.decision import Decision

How = Literal["split", "combine"]


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """Within the longest window. The paper's letters: T_p, E, W, PW_p, K_1, #keygroups, MK_p, L."""

    rows: float
    row_cost: float
    """CPU of a row in one window; all costs in one unit."""
    windows: int
    """That overlap."""
    partials: float
    """Partial windows within the longest one."""
    state_cost: float
    """CPU to move one copy of a key group's state."""
    key_groups: int
    moved: float
    """Key groups that are moved for balance."""
    wait_ms: float
    """For a key group that is moved with its state."""


class Cost(msgspec.Struct, frozen=True):
    cpu: float
    wait_ms: float


class Splitting(Decision, frozen=True):
    """``chosen``; None: neither keeps within the limit, so it stays as it is."""

    chosen: How | None
    costs: dict[How, Cost]


def costs_of(it: Measured) -> dict[How, Cost]:
    """Of both. What a split component sends goes out beside the work: it waits for nothing."""
    merged = it.partials * it.state_cost * it.key_groups + it.moved * it.state_cost
    repeated = it.rows * it.windows * it.row_cost
    return {
        "split": Cost(it.rows * it.row_cost + merged, 0.0),
        "combine": Cost(repeated + it.moved * it.state_cost * it.partials, it.moved * it.wait_ms),
    }


def split_or_combine(it: Measured, limit_ms: float) -> Splitting:
    """The one with less CPU of those that wait for ``limit_ms`` at most."""
    costs = costs_of(it)
    within: list[How] = [how for how, cost in costs.items() if cost.wait_ms <= limit_ms]
    chosen = min(within, key=lambda how: costs[how].cpu, default=None)
    said = tuple(f"{how}: CPU {cost.cpu:g}, waits {cost.wait_ms:g} ms" for how, cost in costs.items())
    over = tuple(f"{how} waits longer than {limit_ms:g} ms" for how in costs if how not in within)
    return Splitting(reasons=(*said, *over), chosen=chosen, costs=costs)
