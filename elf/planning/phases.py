"""Where the latency of a job's windows is: measured panes, phase by phase, and what would help most.

    window's end, and LATENESS ─ wait ─ seal ─ tree ─ draft ─ commit ─ window ─▶ the window is committed

A pane is told by the way that took longest: the member that sealed it last, and the flow that was committed
last. So the phases of a pane add up to its latency.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import numpy as np

from elf.planning.decision import Decision

ABOUT: Final[Mapping[str, str]] = {
    "wait": "until the last agent works on rows that seal the pane",
    "seal": "that work, the snapshot, and its checkpoint",
    "tree": "up the tree, and the root's wait for others",
    "draft": "the pane is merged, and windows with it",
    "commit": "a majority of the job group has it, and it is applied",
    "window": "the master makes and commits windows of their own",
}
"""The phases, in order."""
HELP: Final[Mapping[str, str]] = {
    "wait": (
        "an agent knows that a pane is over when each of its files has a line beyond it and LATENESS, or was "
        "silent for idle_timeout_secs of its stream: a shorter one helps where a file falls silent"
    ),
    "seal": (
        "EXPLAIN ANALYZE says whether map, tree or seal takes CPU; where none does, it is the disk's sync at "
        "the checkpoint"
    ),
    "tree": (
        "the root waits for the last of its members: EXPLAIN ANALYZE names the slowest, STRAGGLERS LEAP goes "
        "on without it; clocks that differ count here too (SHOW MEMBERS has the skew)"
    ),
    "draft": (
        "TREES divides the groups among several roots; with LIMIT and STRAGGLERS LEAP agents send fewer"
    ),
    "commit": (
        "what waits is the sync of a majority's disks and the way to them: a faster disk for the data "
        "folder, and agents near to each other"
    ),
    "window": (
        "windows of few panes are made with the pane; a window of many panes, a join or a final function "
        "takes this time at the master"
    ),
}
"""What would make a phase shorter."""


class Pane(msgspec.Struct, frozen=True):
    """``times_us``: when it was due, work on its last rows began, it was sealed, the draft of its commit
    began and was made, it was committed, and so was its window. ``last``: the agent that sealed it last."""

    pane: int
    last: str
    times_us: tuple[int, ...]


class Phase(msgspec.Struct, frozen=True):
    """In ms; ``p50`` and ``p99`` by nearest rank."""

    mean: float
    variance: float
    p50: float
    p99: float


class Phases(Decision, frozen=True):
    """``dominant``: the phase with the greatest mean, empty where there is no pane. ``skewed``: panes of
    which a step ended before it began, by clocks of two agents; it counts as 0. ``last``: how often each
    agent was."""

    panes: int
    total: Phase
    phases: dict[str, Phase]
    dominant: str
    skewed: int
    last: dict[str, int]


def phases_of(panes: Sequence[Pane]) -> Phases:
    """Of panes that were measured."""
    names = tuple(ABOUT)
    if not panes:
        none = Phase(0.0, 0.0, 0.0, 0.0)
        why = "no stamped pane is complete yet"
        return Phases(
            reasons=(why,),
            panes=0,
            total=none,
            phases=dict.fromkeys(names, none),
            dominant="",
            skewed=0,
            last={},
        )
    times = np.array([one.times_us for one in panes], np.int64)
    forward = np.maximum.accumulate(times, axis=1)
    took_ms = np.diff(forward, axis=1) / 1e3
    phases = {name: phase_of(took_ms[:, place]) for place, name in enumerate(names)}
    total = phase_of(took_ms.sum(axis=1))
    dominant = max(names, key=lambda name: phases[name].mean)
    last = dict(Counter(one.last for one in panes).most_common())
    return Phases(
        reasons=_reasons(dominant, phases, total, last, len(panes)),
        panes=len(panes),
        total=total,
        phases=phases,
        dominant=dominant,
        skewed=int((forward != times).any(axis=1).sum()),
        last=last,
    )


def phase_of(ms: np.ndarray) -> Phase:
    """Of its lengths, at least one."""
    ordered = np.sort(ms)

    def rank(percent: int) -> float:
        return float(ordered[-(-percent * len(ordered) // 100) - 1])

    return Phase(float(ms.mean()), float(ms.var()), rank(50), rank(99))


def _reasons(
    dominant: str, phases: Mapping[str, Phase], total: Phase, last: Mapping[str, int], panes: int
) -> tuple[str, ...]:
    share = phases[dominant].mean / total.mean if total.mean else 0.0
    found = [f"{dominant} is {share:.0%} of the mean: {ABOUT[dominant]}", HELP[dominant]]
    agent, times = next(iter(last.items()))
    if len(last) > 1 and panes >= 4 and 2 * times > panes:
        found.append(f"{agent} was the last to seal {times} of {panes} panes")
    return tuple(found)
