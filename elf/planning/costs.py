"""What a job would cost an agent, told from flows that run there over the same stream.

Lines come as fast for it as for them. A row of it costs what a row of the flow costs that is most like it:
one with the same groups, or else the same number of keys, or else any. So do a pane's groups, their bytes on
the way up, and the memory that they take while the pane is open. A flow that runs already, and is read, costs
nothing more.

Costs are linear in rows and in panes: CPU of a map and a tree by row, of a snapshot by pane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

GROUP_BYTES: Final = 70
"""Of a group in an open pane, at most (``elf bench cbt``)."""
ALIKE: Final = ("any job over the stream", "a job with as many keys", "a job with the same groups")
"""How much what tells a cost is like what is asked for."""


class Wanted(NamedTuple):
    """What a flow would compute: ``keys`` of its groups, as they are written, and its pane's length."""

    keys: tuple[str, ...]
    pane_us: int
    lateness_us: int


class Running(NamedTuple):
    """What a flow has done so far on an agent: times in \u00b5s of CPU."""

    jobs: tuple[str, ...]
    keys: tuple[str, ...]
    pane_us: int
    rows: int
    map_us: int
    seal_us: int
    snapshots: int
    groups: int
    bytes: int

    @property
    def tells(self) -> bool:
        """Whether enough was done to tell anything."""
        return bool(self.rows and self.snapshots and self.pane_us)


class Cost(NamedTuple):
    """Of one agent: shares of a core, by the second, bytes. ``like``: the jobs of the flow that told it, and
    ``alike`` how much that is like it."""

    lines_per_sec: float
    cpu_share: float
    up_bytes_per_sec: float
    memory_bytes: float
    like: tuple[str, ...]
    alike: str


def cost_of(wanted: Wanted, running: Sequence[Running]) -> Cost | None:
    """None: no flow tells."""
    known = [one for one in running if one.tells]
    if not known or not wanted.pane_us:
        return None
    alike, most = max(((_alike(wanted, one), one) for one in known), key=lambda of: (of[0], of[1].rows))
    panes = most.snapshots
    lines_per_sec = most.rows / (panes * most.pane_us / 1e6)
    groups = most.groups / panes
    if alike < len(ALIKE) - 1:
        groups = min(groups * wanted.pane_us / most.pane_us, lines_per_sec * wanted.pane_us / 1e6)
    pane_s, a_group = wanted.pane_us / 1e6, most.bytes / max(most.groups, 1)
    cpu_us = lines_per_sec * most.map_us / most.rows + most.seal_us / panes / pane_s
    open_panes = 2 + wanted.lateness_us // wanted.pane_us
    return Cost(
        lines_per_sec,
        cpu_us / 1e6,
        groups * a_group / pane_s,
        groups * GROUP_BYTES * open_panes,
        most.jobs,
        ALIKE[alike],
    )


def total(costs: Sequence[Cost]) -> Cost | None:
    """Of several streams; what told it is that of the first."""
    if not costs:
        return None
    return Cost(
        sum(one.lines_per_sec for one in costs),
        sum(one.cpu_share for one in costs),
        sum(one.up_bytes_per_sec for one in costs),
        sum(one.memory_bytes for one in costs),
        costs[0].like,
        costs[0].alike,
    )


def _alike(wanted: Wanted, one: Running) -> int:
    """The place of it in ``ALIKE``."""
    if one.keys == wanted.keys:
        return 2
    return int(len(one.keys) == len(wanted.keys))
