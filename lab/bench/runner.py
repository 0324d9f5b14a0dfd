"""The one runner of ``elf bench``.

A ``Bench`` makes its sides and reports what they found. The runner lets the sides take turns, so many times
each, in an order that is reversed every other time, and prints the report: its facts, a row a figure beside
its baselines, remarks, and with ``--json`` one object in the last line. Nothing that takes memory is imported
here, since ``elf bench idle`` compares its own process with an agent's.
"""

from __future__ import annotations

import contextlib
import json
import math
import statistics
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import ClassVar, Final, Generic, TypeVar

from elf.errors import ElfError

K = TypeVar("K", bound=Hashable)
Run = TypeVar("Run")


@dataclass(frozen=True)
class Figure:
    """A row of ``docs/benchmarks.md``: what was measured, in which unit, of elf (or p50 and p99), and what it
    is compared with, by name."""

    what: str
    elf: float | Sequence[float]
    unit: str
    beside: Mapping[str, float] = field(default_factory=dict)

    def cells(self) -> tuple[str, str, str, str]:
        """What, elf, what is beside it, and elf's figure over each of those."""
        elf = self.elf if isinstance(self.elf, Sequence) else [self.elf]
        beside = [f"{name} {shown(value)}" for name, value in self.beside.items()]
        ratios = [shown(ratio(elf[0], value)) for value in self.beside.values()]
        return self.what, f"{', '.join(map(shown, elf))} {self.unit}", ", ".join(beside), ", ".join(ratios)


HEADS: Final = ("what", "elf", "beside it", "ratio")
"""Of the cells of figures."""


@dataclass(frozen=True)
class Report:
    """What a bench found: ``facts`` as people and programs see them, figures for the page, remarks.

    ``details`` are for programs only. ``problems`` make the command fail once everything is printed.
    """

    facts: Mapping[str, object]
    figures: Sequence[Figure] = ()
    notes: Sequence[str] = ()
    details: Mapping[str, object] = field(default_factory=dict)
    problems: Sequence[str] = ()


class Scratch(contextlib.ExitStack):
    """A folder that is gone afterwards, and what is to be closed before that."""

    def __enter__(self) -> Scratch:
        super().__enter__()
        self.folder = Path(self.enter_context(tempfile.TemporaryDirectory(prefix="elf-bench-")))
        return self


class Bench(ABC, Generic[K, Run]):
    """One benchmark. Its fields are the options of its command; sides in ``once`` run once only."""

    repeat: int = 1
    once: ClassVar[Collection[Hashable]] = ()

    @abstractmethod
    def sides(self, scratch: Scratch) -> Mapping[K, Callable[[], Run]]:
        """Make what all sides need; each side by its name, to be called for each run."""

    @abstractmethod
    def report(self, runs: Mapping[K, Sequence[Run]]) -> Report:
        """The figures of all runs. Raises ``ElfError`` when two answers differ that must not."""

    def perform(self, *, as_json: bool) -> int:
        """Measure and print. Raises ``ElfError`` when that cannot be done, or the report has problems."""
        return tell(measure(self), as_json=as_json)


def measure(bench: Bench[K, Run]) -> Report:
    """Run all sides; nothing is printed."""
    with Scratch() as scratch:
        runs = turns(bench.sides(scratch), bench.repeat, bench.once)
    return bench.report(runs)


def turns(
    sides: Mapping[K, Callable[[], Run]], repeat: int, once: Collection[Hashable] = ()
) -> dict[K, list[Run]]:
    """So many runs of each side, one side after the other."""
    runs: dict[K, list[Run]] = {name: [] for name in sides}
    for number in range(repeat):
        for name in reversed(list(sides)) if number % 2 else list(sides):
            if number == 0 or name not in once:
                runs[name].append(sides[name]())
    return runs


def tell(report: Report, *, as_json: bool) -> int:
    """Print it. Raises ``ElfError`` when it has problems."""
    from rich.table import Table

    from elf.cli.printing import console

    out = console(sys.stdout)
    for sides in together(report.facts):
        table = Table("", *sides, show_header="" not in sides)
        for name in next(iter(sides.values())):
            table.add_row(name.replace("_", " "), *(shown(side[name]) for side in sides.values()))
        out.print(table)
    if report.figures:
        table = Table(*HEADS)
        for figure in report.figures:
            table.add_row(*figure.cells())
        out.print(table)
    for note in report.notes:
        print(note)
    if as_json:
        figures = [asdict(figure) for figure in report.figures]
        print(json.dumps({**report.facts, **report.details, "figures": figures}, ensure_ascii=False))
    if report.problems:
        raise ElfError("\n     ".join(report.problems))
    return 0


def together(facts: Mapping[str, object]) -> list[dict[str, Mapping[str, object]]]:
    """The facts as tables, each with a column a side: sides with the same facts stand together."""
    alone: dict[str, object] = {}
    tables: dict[tuple[str, ...], dict[str, Mapping[str, object]]] = {}
    waiting = list(facts.items())
    for name, value in waiting:
        if isinstance(value, list) and value and isinstance(value[0], Mapping):
            waiting += ((str(number), one) for number, one in enumerate(value, 1))
        elif not isinstance(value, Mapping) or not value:
            alone[name] = value
        elif all(isinstance(one, Mapping) for one in value.values()):
            waiting += value.items()
        else:
            tables.setdefault(tuple(value), {})[name] = value
    return [{"": alone}, *tables.values()] if alone else list(tables.values())


def shown(value: object) -> str:
    """A cell of a table: numbers with as many digits as say something."""
    if isinstance(value, bool | Mapping | Sequence) and not isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, int | float):
        if abs(value) >= 1e5:
            return f"{value / 1e6:.3g} M"
        return (
            f"{value:,}"
            if isinstance(value, int)
            else f"{value:,.0f}"
            if abs(value) >= 1e3
            else f"{value:.3g}"
        )
    return "" if value is None else str(value)


def ratio(one: float | None, other: float | None, digits: int = 4) -> float | None:
    """The one over the other; None where one is missing or there is nothing to divide by."""
    return None if one is None or not other else round(one / other, digits)


def median(runs: Iterable[object], name: str) -> float:
    """Of an attribute of several runs."""
    return float(statistics.median(getattr(run, name) for run in runs))


def same(runs: Mapping[K, Sequence[Run]], answer: Callable[[Run], object], what: str) -> None:
    """Raise ``ElfError`` unless all runs have the same answer."""
    if len({answer(run) for found in runs.values() for run in found}) != 1:
        raise ElfError(f"{what} differ")


def percentiles(samples: Sequence[float]) -> dict[str, float]:
    """``p50``, ``p99`` and ``max``, by nearest rank: the least values that half, 99 of 100, all do not
    exceed."""
    ordered = sorted(samples)

    def rank(share: float) -> float:
        return round(ordered[math.ceil(share * len(ordered)) - 1], 2)

    return {"p50": rank(0.5), "p99": rank(0.99), "max": rank(1.0)}
