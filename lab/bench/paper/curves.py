"""What a figure shows: curves on axes, what the paper reported, and where elf loses.

Elf loses to an engine beside it where its point is worse than that engine's at the same x, and to the paper
where the worst that was measured (p99 where there is one) is beyond what the paper reports.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from lab.bench.runner import shown


class Kind(StrEnum):
    """Whose a curve is: real agents', a simulation's, or another engine's."""

    ELF = "elf"
    SIMULATED = "simulated"
    BESIDE = "beside"


@dataclass(frozen=True)
class Point:
    """``y`` is a median where there are several; ``low`` and ``high``: from where to where they spread."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Curve:
    """Points in the order of x; one whose axes have no x is a bar."""

    name: str
    kind: Kind
    points: Sequence[Point]


@dataclass(frozen=True)
class Bound:
    """What the paper reports: elf's curves whose names begin with ``of`` are to be at most ``y`` (at least,
    on axes where more is better)."""

    name: str
    y: float
    of: str = ""


@dataclass(frozen=True)
class Axes:
    """One picture. ``x`` empty: bars."""

    title: str
    x: str
    unit: str
    curves: Sequence[Curve]
    bounds: Sequence[Bound] = ()
    more_is_better: bool = False
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True)
class Beside:
    """A row of the table that has the paper's word and ours."""

    what: str
    paper: str
    here: str


@dataclass(frozen=True)
class Shown:
    """A figure. ``loses``: in words, beyond what ``losses`` finds on its axes."""

    axes: Sequence[Axes] = ()
    beside: Sequence[Beside] = ()
    lacking: Sequence[str] = ()
    loses: Sequence[str] = field(default_factory=list)


def losses(axes: Axes) -> Iterator[str]:
    """Where elf loses on these axes: a sentence for each engine beside it, and for each bound."""
    ours = [curve for curve in axes.curves if curve.kind != Kind.BESIDE]
    others = [curve for curve in axes.curves if curve.kind == Kind.BESIDE]
    for own in ours:
        for other in others:
            yield from _to_engine(axes, own, other)
    for bound in axes.bounds:
        yield from _to_paper(axes, bound, [curve for curve in ours if curve.name.startswith(bound.of)])


def _to_engine(axes: Axes, own: Curve, other: Curve) -> Iterator[str]:
    theirs = {point.x: point.y for point in other.points}
    both = [(point, theirs[point.x]) for point in own.points if point.x in theirs]
    worse = [(_times(axes, point.y, y), point, y) for point, y in both if _times(axes, point.y, y) > 1]
    if worse:
        times, point, y = max(worse, key=lambda one: one[0])
        count = f"{len(worse)} of {len(both)} points"
        where = f" at {count}, worst at {shown(point.x)} {axes.x}" if axes.x else ""
        yield (
            f"{axes.title}: {own.name} is behind {other.name}{where}: "
            f"{shown(point.y)} and {shown(y)} {axes.unit}, {shown(times)} times"
        )


def _to_paper(axes: Axes, bound: Bound, curves: Sequence[Curve]) -> Iterator[str]:
    for curve in curves:
        for point in curve.points:
            worst = (point.low if axes.more_is_better else point.high) or point.y
            if _times(axes, worst, bound.y) > 1:
                at = f" at {shown(point.x)} {axes.x}" if axes.x else ""
                yield (
                    f"{axes.title}: {curve.name}{at}: {shown(point.y)} {axes.unit}, worst {shown(worst)}; "
                    f"{bound.name}"
                )


def _times(axes: Axes, own: float, other: float) -> float:
    """How many times worse the one is than the other."""
    worse, better = (other, own) if axes.more_is_better else (own, other)
    return worse / better if better else float("inf") if worse else 1.0
