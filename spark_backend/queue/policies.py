"""Who gives way: policies of eviction, and the one of selection that belongs to each (section 6.6).

A policy of runs (*job eviction*) chooses the run that gives a container back; a policy of tasks then chooses
which of its tasks does. Two ways to order runs:

- **by priority** (Natjam): production runs before research runs, and only research gives way: the run with
  most containers (MR), with fewest (LR), or at random in proportion to them (PR);
- **by deadline** (Natjam-R): one queue. The latest deadline gives way and the earliest is served (MDF, EDF),
  or the largest laxity gives way and the least is served (MLF, LLF). Other pairs evict a run and resume it at
  once, again and again, and are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from elf.errors import UserError

Draw = Callable[[int], int]
"""Of a positive number n: one of 0 … n - 1 at random, such as ``random.Random(seed).randrange``."""


class RunEviction(StrEnum):
    """Which run gives way.

    Example:
        >>> RunEviction("mr") is RunEviction.MR
        True
    """

    MR = "mr"
    LR = "lr"
    PR = "pr"
    MDF = "mdf"
    MLF = "mlf"


class TaskEviction(StrEnum):
    """Which task of that run gives way: that with the shortest or the longest remaining time, or any.

    Example:
        >>> TaskEviction("srt") is TaskEviction.SRT
        True
    """

    SRT = "srt"
    LRT = "lrt"
    RANDOM = "random"


class Selection(StrEnum):
    """Which run is served first when a container is free: production, then by submission; or the earliest
    deadline, or the least laxity.

    Example:
        >>> Selection("edf") is Selection.EDF
        True
    """

    PRIORITY = "priority"
    EDF = "edf"
    LLF = "llf"


SELECTION_OF: Final[Mapping[RunEviction, Selection]] = {
    RunEviction.MR: Selection.PRIORITY,
    RunEviction.LR: Selection.PRIORITY,
    RunEviction.PR: Selection.PRIORITY,
    RunEviction.MDF: Selection.EDF,
    RunEviction.MLF: Selection.LLF,
}
"""Eviction dictates selection."""


@dataclass(frozen=True)
class Policies:
    """What a queue goes by.

    Attributes:
        runs (RunEviction): which run gives way.
        tasks (TaskEviction): which of its tasks does.
        selection (Selection | None): which run is served first; None: the one that belongs to ``runs``.

    Raises:
        UserError: when the selection would resume what the eviction has just suspended.

    Example:
        >>> Policies(RunEviction.MDF).serving
        <Selection.EDF: 'edf'>
    """

    runs: RunEviction = RunEviction.MR
    tasks: TaskEviction = TaskEviction.SRT
    selection: Selection | None = None

    def __post_init__(self) -> None:
        if self.selection not in (None, SELECTION_OF[self.runs]):
            raise UserError(
                f"{self.runs} with {self.selection} would suspend runs and resume them at once, without end: "
                f"{self.runs} goes with {self.serving}"
            )

    @property
    def serving(self) -> Selection:
        """Which run is served first."""
        return SELECTION_OF[self.runs]

    @property
    def by_deadline(self) -> bool:
        """Whether there is one queue, by deadline or laxity."""
        return self.serving is not Selection.PRIORITY


def victim_run(policy: RunEviction, held: Mapping[str, int], draw: Draw) -> str:
    """Choose the run that gives way, by priority.

    Args:
        policy (RunEviction): MR, LR or PR.
        held (Mapping[str, int]): the containers of each candidate, one or more; not empty.
        draw (Draw): decides ties, and PR.

    Returns:
        str: the victim.

    Raises:
        ValueError: for a policy that goes by deadline.

    Example:
        >>> victim_run(RunEviction.MR, {"a": 3, "b": 8}, lambda n: 0)
        'b'
    """
    names = sorted(held)
    if policy is RunEviction.PR:
        place = draw(sum(held.values()))
        for name in names:
            place -= held[name]
            if place < 0:
                return name
    if policy not in (RunEviction.MR, RunEviction.LR):
        raise ValueError(f"{policy} does not go by containers")
    best = (max if policy is RunEviction.MR else min)(held.values())
    tied = [name for name in names if held[name] == best]
    return tied[draw(len(tied))] if len(tied) > 1 else tied[0]


def victim_tasks(
    policy: TaskEviction, remaining: Mapping[str, float], count: int, draw: Draw
) -> Sequence[str]:
    """Choose the tasks that give way.

    Args:
        policy (TaskEviction): which ones.
        remaining (Mapping[str, float]): how long each candidate still takes; ties go by name.
        count (int): how many; fewer when there are fewer candidates.
        draw (Draw): chooses for RANDOM.

    Returns:
        Sequence[str]: them, the first one first.

    Example:
        >>> victim_tasks(TaskEviction.SRT, {"long": 90, "short": 4}, 1, lambda n: 0)
        ['short']
    """
    names = sorted(remaining, key=lambda name: (remaining[name], name))
    if policy is TaskEviction.LRT:
        names.reverse()
    if policy is TaskEviction.RANDOM:
        return [names.pop(draw(len(names))) for _ in range(min(count, len(names)))]
    return names[:count]
