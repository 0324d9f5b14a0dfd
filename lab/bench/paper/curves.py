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
    both = [(point, point.y, theirs[point.x]) for point in own.points if point.x in theirs]
    if found := _worst(axes, both):
        where, point, _, theirs_y = found
        times = f", {shown(_times(axes, point.y, theirs_y))} times" if min(point.y, theirs_y) > 0 else ""
        yield (
            f"{axes.title}: {own.name} is behind {other.name}{where}: "
            f"{shown(point.y)} and {shown(theirs_y)} {axes.unit}{times}"
        )


def _to_paper(axes: Axes, bound: Bound, curves: Sequence[Curve]) -> Iterator[str]:
    for curve in curves:
        ends = [
            (one, (one.low if axes.more_is_better else one.high) or one.y, bound.y) for one in curve.points
        ]
        if found := _worst(axes, ends):
            where, point, end, _ = found
            most = f", worst {shown(end)}" if end != point.y else ""
            yield f"{axes.title}: {curve.name}{where}: {shown(point.y)} {axes.unit}{most}; {bound.name}"


def _worst(
    axes: Axes, compared: Sequence[tuple[Point, float, float]]
) -> tuple[str, Point, float, float] | None:
    """Of points with what is compared with what: where elf's is worse, and the worst of them."""
    worse = [one for one in compared if _times(axes, one[1], one[2]) > 1]
    if not worse:
        return None
    point, own, other = max(worse, key=lambda one: _times(axes, one[1], one[2]))
    count = f" at {len(worse)} of {len(compared)} points, worst" if len(compared) > 1 else ""
    return f"{count} at {shown(point.x)} {axes.x}" if axes.x else "", point, own, other


def _times(axes: Axes, own: float, other: float) -> float:
    """How many times worse the one is than the other."""
    worse, better = (other, own) if axes.more_is_better else (own, other)
    return worse / better if better else float("inf") if worse else 1.0
