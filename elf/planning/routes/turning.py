"""Whether a plan is so much better than what jobs do today that they turn to it.

Links and rows are measured, so each plan is a little different from the one before, and each change of a
tree costs bytes. A plan is taken where it mends something: a link that is fuller than ``FULL`` becomes
emptier by ``EMPTIER``, or what is under way for longer than ``SLOW_S`` on the mean comes sooner by
``SOONER``. Between that and the reverse lies the hysteresis.

Panes are held for as long as they may be: longer batches have fewer bytes a second. They are held shorter
only where a batch would be under way for longer than ``SOON_S``, since a window is not complete before its
last batch is there; and never shorter than the planner's interval, below which links are too full.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from elf.planning.decision import Decision
from elf.planning.routes.model import Job, Problem, Tree
from elf.planning.routes.trees import near

FULL: Final = 0.9
EMPTIER: Final = 0.9
SLOW_S: Final = 0.1
SOONER: Final = 0.8
SOON_S: Final = 0.25
_ROUNDING: Final = 1e-6
"""Of intervals: a solver's last digits."""


class Standing(msgspec.Struct, frozen=True):
    """How a job sends: ``vias``: by region, the one over which it sends, the target itself being the direct
    way; ``interval_s``: how long heads hold panes."""

    vias: Mapping[str, str]
    interval_s: float


class Comparison(Decision, frozen=True):
    """``turns``: whether the plan is to be taken. Of today and of the plan: how full the fullest link is, and
    how long batches are under way on the mean of the jobs, by weight."""

    turns: bool
    fullest: tuple[float, float]
    batch_s: tuple[float, float]


def panes_to_hold(under_way_s: Mapping[int, float], pane_s: float, interval_s: float) -> int:
    """How many panes are held. ``under_way_s``: for each number that may be, how long a batch of them is."""
    able = [n for n in sorted(under_way_s) if n * pane_s >= interval_s - _ROUNDING] or [max(under_way_s)]
    return max((n for n in able if under_way_s[n] <= SOON_S), default=able[0])


def sooner(
    problem: Problem, jobs: Sequence[Job], trees: Sequence[Tree], often: Sequence[float]
) -> list[Tree]:
    """The same trees, where some sources go another way, if batches come a good deal sooner so and no link
    becomes fuller than ``FULL``. Where intervals cannot be shorter than they are, as a pane is not divided,
    all trees that links carry are alike to the planner: a slow direct path is as good as a fast detour."""
    found = list(trees)
    for place, (job, one) in enumerate(zip(jobs, often, strict=True)):
        better = True
        while better:
            now_s = problem.batch_s(job, found[place], one)
            able = [
                (problem.batch_s(job, tree, one), tree)
                for tree in near(job, found[place], len(problem.regions))
            ]
            able = [at for at in able if at[0] <= SOONER * now_s and now_s - at[0] >= SLOW_S]
            fit = (tree for _, tree in sorted(able) if _fits(problem, jobs, found, often, (place, tree)))
            tree = next(fit, None)
            better = tree is not None
            found[place] = found[place] if tree is None else tree
    return found


def _fits(
    problem: Problem,
    jobs: Sequence[Job],
    trees: Sequence[Tree],
    often: Sequence[float],
    change: tuple[int, Tree],
) -> bool:
    """Whether a job may have another tree."""
    place, tree = change
    changed = [*trees[:place], tree, *trees[place + 1 :]]
    return _fullest(problem, jobs, changed, often) <= max(FULL, _fullest(problem, jobs, trees, often))


def compared(problem: Problem, today: Mapping[str, Standing], plan: Mapping[str, Standing]) -> Comparison:
    """By job; those that are in both count."""
    jobs = [job for job in problem.jobs if job.demand.name in today and job.demand.name in plan]
    fullest, under_way = [], []
    for standings in (today, plan):
        trees = [problem.tree(job, standings[job.demand.name].vias) for job in jobs]
        often = [1 / standings[job.demand.name].interval_s for job in jobs]
        fullest.append(_fullest(problem, jobs, trees, often))
        under_way.append(_under_way_s(problem, jobs, trees, often))
    emptier = fullest[0] > FULL and fullest[1] <= EMPTIER * fullest[0]
    sooner = (
        fullest[1] <= max(1.0, fullest[0]) and under_way[0] > SLOW_S and under_way[1] <= SOONER * under_way[0]
    )
    full, slow = list(map(_share, fullest)), list(map(_seconds, under_way))
    said = (
        f"the fullest link has {full[0]} of its rate today and {full[1]} by the plan",
        f"a batch is under way {slow[0]} on the mean today and {slow[1]} by the plan",
        "the plan is taken" if emptier or sooner else _kept(),
    )
    return Comparison(
        reasons=said,
        turns=emptier or sooner,
        fullest=(fullest[0], fullest[1]),
        batch_s=(under_way[0], under_way[1]),
    )


def _kept() -> str:
    return (
        f"that is no reason to change: a link that is fuller than {FULL:.0%} would have to become emptier "
        f"by {1 - EMPTIER:.0%}, or what is under way for more than {SLOW_S:g} s to come {1 - SOONER:.0%} "
        "sooner"
    )


def _fullest(problem: Problem, jobs: Sequence[Job], trees: Sequence[Tree], often: Sequence[float]) -> float:
    """Of all links, the greatest part of its rate that is taken."""
    loads = problem.loads_of(jobs, trees, often)
    return max((_over(load, float(problem.capacity[pair])) for pair, load in loads.items()), default=0.0)


def _over(load: float, rate: float) -> float:
    return load / rate if rate else (float("inf") if load else 0.0)


def _under_way_s(
    problem: Problem, jobs: Sequence[Job], trees: Sequence[Tree], often: Sequence[float]
) -> float:
    weights = sum(job.demand.weight for job in jobs)
    times = zip(jobs, trees, often, strict=True)
    all_s = sum(job.demand.weight * problem.batch_s(job, tree, one) for job, tree, one in times)
    return all_s / weights if weights else 0.0


def _share(part: float) -> str:
    return "more than all" if part == float("inf") else f"{part:.0%}"


def _seconds(time_s: float) -> str:
    return "for ever" if time_s == float("inf") else f"{time_s:.2g} s"
