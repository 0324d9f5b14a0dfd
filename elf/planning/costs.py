"""What flows and jobs cost: what is learned of those that run (``JobCosts``), and what a job that does not
run yet would cost an agent.

**Learned** is, by flow: of an agent, what a pane takes there on the mean (``MemberCost``: rows, CPU, groups
and their bytes, what goes up and over borders); of a root, what a commit takes (``RootCost``). By job: how
long panes wait for what (``Delays``). A job group keeps it in its record (protocol 5.16,
``elf.job.costs``), so that a planner has it where agents have just begun again. All planners read these, and
none reckons its own.

**Would cost**: lines come as fast for a new job as for flows over the same stream. A row of it costs what a
row of the flow costs that is most like it: one with the same groups, or else the same number of keys, or else
any. So do a pane's groups, their bytes on the way up, and the memory that they take while the pane is open. A
flow that runs already, and is read, costs nothing more. Costs are linear in rows and in panes: CPU of a map
and a tree by row, of a snapshot by pane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from elf.fields import Address, Count, FlowUid, JobUid, Mean, Millis, Trees, Word
from elf.planning.latency import Costs, Moments

GROUP_BYTES: Final = 70
"""Of a group in an open pane, at most (``elf bench cbt``)."""
ALIKE: Final = ("any job over the stream", "a job with as many keys", "a job with the same groups")
"""How much what tells a cost is like what is asked for."""
PANES_MIN: Final = 3
"""Of fewer panes nothing is learned where something is known, and no delay at all."""
NEAR: Final = 1.25
"""Costs that differ by less than so many times are the same."""


class MemberCost(msgspec.Struct, frozen=True, array_like=True):
    """What a flow takes of an agent, on the mean over ``panes``. Of a pane: ``rows`` on time and ``late``
    ones, CPU of map and tree, and of the snapshot (µs); groups out of the map (``mapped``); groups of the
    snapshot and their ``bytes``; ``messages`` and bytes to the parent, bytes to other regions
    (``crossed``)."""

    panes: Count
    rows: Mean = 0.0
    late: Mean = 0.0
    map_us: Mean = 0.0
    seal_us: Mean = 0.0
    mapped: Mean = 0.0
    groups: Mean = 0.0
    bytes: Mean = 0.0
    messages: Mean = 0.0
    sent: Mean = 0.0
    crossed: Mean = 0.0

    @property
    def read(self) -> float:
        """Rows, late ones too."""
        return self.rows + self.late

    @property
    def row_us(self) -> float:
        """CPU of a row in map and tree."""
        return self.map_us / self.read if self.read else 0.0

    @property
    def selectivity(self) -> float:
        """Groups that the map makes of a row."""
        return self.mapped / self.read if self.read else 0.0


class RootCost(msgspec.Struct, frozen=True, array_like=True):
    """What a flow takes of its root, on the mean over ``commits``. Of a commit: its ``panes``, with their
    rows, groups and bytes, and CPU (µs)."""

    commits: Count
    panes: Mean = 0.0
    rows: Mean = 0.0
    groups: Mean = 0.0
    bytes: Mean = 0.0
    commit_us: Mean = 0.0


class FlowCost(msgspec.Struct, frozen=True, array_like=True):
    """What is known of a flow: of some of its agents, by address, and of its root."""

    flow: FlowUid
    members: tuple[tuple[Address, MemberCost], ...] = ()
    root: RootCost | None = None


class Delays(msgspec.Struct, frozen=True, array_like=True):
    """What panes of a job wait for, in ms: each phase (``elf.planning.phases``) and a ``sync`` with mean and
    variance; a ``hop`` of ``depth`` to the root; CPU of root and master (``window``: None where windows are
    made with their panes, which takes ``made`` then). With the settings of then, ``poll_ms`` and ``trees``
    (``elf.planning.solve``). ``queued`` and ``agreed`` (None: not known), as the model has them."""

    phases: tuple[tuple[Word, Mean, Mean], ...]
    sync: tuple[Mean, Mean]
    hop: Mean
    depth: Count
    draft: Mean
    window: Mean | None
    poll_ms: Count
    trees: Trees
    made: Mean = 0.0
    queued: tuple[Mean, Mean] = (0.0, 0.0)
    agreed: tuple[Mean, Mean] | None = None

    @property
    def costs(self) -> Costs:
        """As the model has them."""
        return Costs(
            sync=Moments(*self.sync),
            hop=Moments(self.hop),
            depth=self.depth,
            draft=self.draft,
            made=self.made,
            window=self.window,
            queued=Moments(*self.queued),
            agreed=None if self.agreed is None else Moments(*self.agreed),
        )

    @property
    def measured(self) -> dict[str, Moments]:
        """By phase."""
        return {name: Moments(mean, variance) for name, mean, variance in self.phases}


class JobCosts(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """What is known of a job, by flow and in all; as a record of its job group what was learned of it by
    ``at_ms``. ``delays``: None where too few panes were stamped."""

    job: JobUid
    at_ms: Millis
    flows: tuple[FlowCost, ...]
    delays: Delays | None = None


def is_news(new: JobCosts, known: JobCosts | None) -> bool:
    """Whether what was learned differs from what is known by enough to be kept."""
    if known is None or (known.delays is None) != (new.delays is None):
        return True
    before, now = ({one.flow: _told(one) for one in of.flows} for of in (known, new))
    if before.keys() != now.keys():
        return True
    if new.delays is not None and known.delays is not None:
        now[""], before[""] = _waits(new.delays), _waits(known.delays)
    return any(not _near(a, b) for one in now for a, b in zip(now[one], before[one], strict=True))


def _told(flow: FlowCost) -> tuple[float, ...]:
    """The figures of a flow that plans rest on."""
    each = [cost for _, cost in flow.members]
    root = flow.root or RootCost(0)
    means = (sum(of) / max(len(each), 1) for of in ([c.rows for c in each], [c.bytes for c in each]))
    return (*means, sum(c.map_us for c in each) / max(sum(c.read for c in each), 1.0), root.groups)


def _waits(delays: Delays) -> tuple[float, ...]:
    return (sum(mean for _, mean, _ in delays.phases), delays.sync[0])


def _near(a: float, b: float) -> bool:
    return max(a, b) <= NEAR * min(a, b) or max(a, b) < 1e-3


# -- what does not run yet -----------------------------------------------------------------------------------


class Wanted(NamedTuple):
    """What a flow would compute: ``keys`` of its groups, as they are written, and its pane's length."""

    keys: tuple[str, ...]
    pane_us: int
    lateness_us: int


class Running(NamedTuple):
    """A flow that runs on an agent, and what it takes of it."""

    jobs: tuple[str, ...]
    keys: tuple[str, ...]
    pane_us: int
    cost: MemberCost

    @property
    def tells(self) -> bool:
        """Whether enough was done to tell anything."""
        return bool(self.cost.rows and self.cost.panes and self.pane_us)


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
    most = max(known, key=lambda one: (_alike(wanted, one), one.cost.rows * one.cost.panes))
    alike, cost = _alike(wanted, most), most.cost
    lines_per_sec = cost.rows / (most.pane_us / 1e6)
    groups = cost.groups
    if alike < len(ALIKE) - 1:
        groups = min(groups * wanted.pane_us / most.pane_us, lines_per_sec * wanted.pane_us / 1e6)
    pane_s, a_group = wanted.pane_us / 1e6, cost.bytes / max(cost.groups, 1e-9)
    open_panes = 2 + wanted.lateness_us // wanted.pane_us
    return Cost(
        lines_per_sec,
        (lines_per_sec * cost.row_us + cost.seal_us / pane_s) / 1e6,
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
