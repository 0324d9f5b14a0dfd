"""One figure as it was measured: everything that its picture, its part of the page and its JSON have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from lab.bench.paper.curves import Axes, Beside, losses
from lab.bench.paper.figures import FIGURES, SEED, Asked
from lab.bench.paper.readers import Answers


@dataclass(frozen=True)
class Measured:
    """``seconds``: of each of its commands, those too that it shares with other figures; ``failed``: commands
    that have, with what they said; ``quick``: as small as it can be, to try it."""

    title: str
    paper: str
    axes: Sequence[Axes]
    beside: Sequence[Beside]
    loses: Sequence[str]
    not_measured: Sequence[str]
    commands: Sequence[str]
    spread: str
    seed: int
    machine: Mapping[str, str]
    seconds: Mapping[str, float]
    failed: Sequence[str]
    quick: bool

    def facts(self) -> dict[str, object]:
        """As JSON."""
        return asdict(self)


def measured(
    number: str,
    asked: Asked,
    answers: Answers,
    failed: Sequence[str],
    machine: Mapping[str, str],
    seconds: Mapping[str, float],
    *,
    quick: bool,
) -> Measured:
    """The figure of that number, out of what its commands said."""
    figure = FIGURES[number]
    shown = figure.read(answers)
    return Measured(
        title=figure.title,
        paper=figure.paper,
        axes=shown.axes,
        beside=shown.beside,
        loses=[*shown.loses, *(text for axes in shown.axes for text in losses(axes))],
        not_measured=[*asked.lacking, *shown.lacking, *(f"a command failed: {said}" for said in failed)],
        commands=asked.commands,
        spread=figure.spread,
        seed=SEED,
        machine=machine,
        seconds={command: round(took, 1) for command, took in seconds.items()},
        failed=failed,
        quick=quick,
    )
