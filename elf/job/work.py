"""The work that flows and jobs make, and where: counters that every agent keeps, and how EXPLAIN ANALYZE asks
for them.

Each part of an agent counts what it does itself, since its start: the stream task (``FlowState``), the way up
(``Sender``), the root (``FlowRoots``), the master (``JobGroups``). Times are CPU time of the working thread,
in µs; a simulator has none. What several flows share (a map) counts in each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Final

import msgspec

from elf.fields import Address, Count, FlowUid, JobUid, Label, Locality, Millis, Name, Serial, Text
from elf.job.alerts import Group, State
from elf.planning.costs import JobCosts
from elf.wire.base import Message, Request

Counts = Mapping[str, int]
Clock = Callable[[], int]
"""CPU time of the calling thread, in µs."""


BEHIND_MS: Final = (0, 100, 250, 500, 1_000, 2_000, 5_000)
"""For each of these it is counted how many rows would be late if it were LATENESS."""


def no_clock() -> int:
    """A clock for where no time is measured."""
    return 0


class FlowWork(msgspec.Struct, frozen=True, array_like=True):
    """One agent's work for a flow; its parent in the tree.

    Stream task: ``rows`` on time and ``late``, those that would be late if LATENESS were one of ``BEHIND_MS``
    (``behind_0`` …, by the order of lines in their own source), ``groups`` out of the map, ``keys`` and
    ``bytes`` of ``snapshots``, groups of these that were ``left_out`` of what went up. Up: ``messages`` and
    ``sent_bytes`` to the parent, ``merges`` of what children sent; ``crossed_bytes`` to other regions, to
    parent or root. Root: ``commits`` with their keys, panes (empty ones too) and rows; ``unsure``: how often
    all groups were asked for. Now, of its open panes: ``memory_bytes``, of which ``pinned_bytes`` can only be
    there; ``spilled_bytes`` on disk, and ``image_bytes`` of its last checkpoint.
    """

    flow: FlowUid
    parent: Address = ""
    rows: Count = 0
    late: Count = 0
    groups: Count = 0
    map_us: Count = 0
    tree_us: Count = 0
    seal_us: Count = 0
    snapshots: Count = 0
    keys: Count = 0
    bytes: Count = 0
    messages: Count = 0
    sent_bytes: Count = 0
    merges: Count = 0
    merge_us: Count = 0
    commits: Count = 0
    commit_keys: Count = 0
    commit_bytes: Count = 0
    commit_us: Count = 0
    left_out: Count = 0
    unsure: Count = 0
    commit_panes: Count = 0
    commit_rows: Count = 0
    crossed_bytes: Count = 0
    behind_0: Count = 0
    behind_100: Count = 0
    behind_250: Count = 0
    behind_500: Count = 0
    behind_1000: Count = 0
    behind_2000: Count = 0
    behind_5000: Count = 0
    memory_bytes: Count = 0
    pinned_bytes: Count = 0
    spilled_bytes: Count = 0
    image_bytes: Count = 0


class AlertWork(msgspec.Struct, frozen=True, array_like=True):
    """How an alert is after the last window of its job that was judged. ``missing``: the agents that the
    window lacks, or why else it is unknown."""

    state: State
    firing: tuple[Group, ...] = ()
    missing: tuple[Label, ...] = ()


class OutputWork(msgspec.Struct, frozen=True, array_like=True):
    """How far an output has got: the number of the last result that is delivered, how many wait behind it,
    ``windows`` delivered so far; results that were ``lost`` and the last of them, from one number to another;
    and what is against it. ``alert``: how it is, if it is one and a window of its job was judged."""

    output: JobUid
    number: Serial = 0
    waiting: Count = 0
    windows: Count = 0
    lost: Count = 0
    gap: tuple[Serial, Serial] = (0, 0)
    error: Text = ""
    alert: AlertWork | None = None


class PromiseWork(msgspec.Struct, frozen=True, array_like=True):
    """Of the last ``windows`` of a job with a promise (``elf.job.promised``): how many were ``kept`` within
    it; their mean, and what so many of them as are promised took at most (of a promise on average: half)."""

    windows: Count = 0
    kept: Count = 0
    mean_ms: Millis = 0
    quantile_ms: Millis = 0


class LentWork(msgspec.Struct, frozen=True, array_like=True):
    """Over whose budget, on which agent, one row in ``weight`` of a window counts; 1: it was read late."""

    agent: Label
    whose: Text
    weight: Count


class EstimateWork(msgspec.Struct, frozen=True, array_like=True):
    """Of a job's last window: so many of its ``rows`` were ``sampled``, and for whom."""

    rows: Count = 0
    sampled: Count = 0
    budgets: tuple[LentWork, ...] = ()


class JobWork(msgspec.Struct, frozen=True, array_like=True):
    """A master's work for a job: how often it committed windows, result rows, its CPU time, how the job's
    outputs are, what became of its promise, if it has one, what was learned of its ``costs``, if that was
    asked for, and how its last window is over budgets, if it is."""

    job: JobUid
    commits: Count = 0
    rows: Count = 0
    final_us: Count = 0
    outputs: tuple[OutputWork, ...] = ()
    promise: PromiseWork | None = None
    costs: JobCosts | None = None
    estimate: EstimateWork | None = None


class BudgetWork(msgspec.Struct, frozen=True, array_like=True):
    """How a job, or its creator, is with a budget of an agent: ``said`` in words; one row in ``weight``
    counts. Of one core in millionths, and bytes up in a second; ``most``: of both, 0 for no bound."""

    whose: Label
    weight: Count
    cpu_ppm: Count
    up_bytes: Count
    most_cpu_ppm: Count
    most_up_bytes: Count
    said: Text = ""


class LinkWork(msgspec.Struct, frozen=True, array_like=True):
    """What an agent knows of the link to another region and back: bytes of slices ``sent`` there, and
    ``arrived`` from there, since its start; what of these came lately, by period (``elf.job.links``); the
    shortest round trip to an agent there, if one was measured; bytes a second that a probe found the link
    there to carry of late (``elf.job.probes``)."""

    region: Locality
    sent: Count = 0
    arrived: Count = 0
    periods: tuple[tuple[Count, Count], ...] = ()
    rtt_ms: Annotated[float, msgspec.Meta(ge=0)] | None = None
    probed: Annotated[float, msgspec.Meta(gt=0)] | None = None


class InspectWork(Request, frozen=True, kw_only=True):
    """To an agent: its work for these flows and jobs (uids); ``links``: and what it knows of those to other
    regions; ``costs``: and what was learned of the jobs. Answered with ``WorkStatus``."""

    flows: tuple[FlowUid, ...]
    jobs: tuple[JobUid, ...] = ()
    links: bool = False
    costs: bool = False


class WorkStatus(msgspec.Struct, frozen=True, array_like=True):
    """What an agent knows of its own work; flows and jobs that it does not work for are left out."""

    agent: Name
    flows: tuple[FlowWork, ...]
    jobs: tuple[JobWork, ...]
    budgets: tuple[BudgetWork, ...] = ()
    links: tuple[LinkWork, ...] = ()


MESSAGES: tuple[type[Message], ...] = (InspectWork,)


def flow_work(flow: str, parent: str, counts: Iterable[Counts | None]) -> FlowWork | None:
    """An agent's work for a flow, from what its parts counted; None if none of them knows the flow."""
    known = {name: n for one in counts if one is not None for name, n in one.items()}
    return FlowWork(flow, parent, **known) if known else None
