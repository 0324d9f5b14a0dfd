"""``elf bench paper``: all figures, or some; pictures, JSON and a page in a folder.

A command that several figures ask is run once. One that fails is named in its figures, which have what it has
said all the same and the curves of the others, and fails the bench in the end. The folder has each figure as
soon as it is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

from typer import Option

from elf.cli.processes import ended
from lab.bench.paper import folder
from lab.bench.paper.curves import Kind
from lab.bench.paper.figures import FIGURES, Asked, Sizes, numbered
from lab.bench.paper.measured import Measured, measured
from lab.bench.peers.engines import ENVS
from lab.bench.runner import Bench, Figure, Report, Scratch
from lab.bench.suite import Ran, machine, run


@dataclass(frozen=True)
class Paper(Bench[str, Measured]):
    """A figure a side."""

    out: Annotated[
        Path | None, Option("--out", metavar="DIR", help="Add pictures, paper.json and index.html there.")
    ] = None
    quick: Annotated[
        bool, Option("--quick", help="As small as they can be: to try them, not to measure.")
    ] = False
    figure: Annotated[
        list[str] | None, Option("--figure", metavar="N,N…", help="These only: 10a, 11, 4.1, …")
    ] = None
    agents_max: Annotated[int, Option("--agents-max", min=3, help="Real agents, at most.")] = 64
    simulated_max: Annotated[
        int, Option("--simulated-max", min=3, max=12_000, help="Simulated agents, at most.")
    ] = 10_240
    envs: Annotated[
        Path, Option("--envs", metavar="DIR", help="Where environments of elf bench peers are, for 10a.")
    ] = ENVS

    def __post_init__(self) -> None:
        """Raises ``UserError``."""
        numbered(self.figure)
        if self.out is not None:
            folder.check(self.out)

    def sides(self, scratch: Scratch) -> Mapping[str, Callable[[], Measured]]:
        """A figure each, in the paper's order."""
        sizes = Sizes.of(
            quick=self.quick,
            agents_max=self.agents_max,
            simulated_max=self.simulated_max,
            envs=self.envs,
        )
        asked = {number: FIGURES[number].asks(sizes) for number in numbered(self.figure)}
        commands = dict.fromkeys(command for one in asked.values() for command in one.commands)
        where, ran = machine(), self._running(list(commands), scratch)

        def figure(number: str) -> Measured:
            known = {command: ran[command].result() for command in asked[number].commands}
            found = _measured(number, asked[number], known, where, quick=self.quick)
            if self.out is not None:
                folder.add(self.out, {number: found})
            return found

        return {number: partial(figure, number) for number in asked}

    def _running(self, commands: Sequence[str], scratch: Scratch) -> dict[str, Future[Ran]]:
        """The commands, one after the other; a quick look has two at once. When the scratch is closed none
        begins any more, those under way are ended, and then they are waited for."""
        pool = ThreadPoolExecutor(2 if self.quick else 1)
        scratch.callback(pool.shutdown)
        processes = scratch.enter_context(ended())
        scratch.callback(pool.shutdown, wait=False, cancel_futures=True)
        return {
            command: pool.submit(run, command, processes, scratch.folder / f"errors-{number}")
            for number, command in enumerate(commands)
        }

    def report(self, runs: Mapping[str, Sequence[Measured]]) -> Report:
        """What elf loses first. Problems: commands that failed."""
        found = {number: one for number, (one,) in runs.items()}
        loses = [f"elf loses in {number}: {text}" for number, one in found.items() for text in one.loses]
        lacking = [
            f"not measured: {number}: {said}" for number, one in found.items() for said in one.not_measured
        ]
        page_ = [f"the page is {self.out / folder.PAGE}"] if self.out is not None else []
        problems = list(dict.fromkeys(said for one in found.values() for said in one.failed))
        return Report(
            machine(),
            list(_rows(found)),
            [*loses, *lacking, *page_],
            {number: one.facts() for number, one in found.items()},
            problems,
        )


def _measured(
    number: str, asked: Asked, known: Mapping[str, Ran], where: Mapping[str, str], *, quick: bool
) -> Measured:
    ran = list(known.values())
    answers = {one.command: one.facts for one in ran if one.facts}
    failed = [one.failed for one in ran if one.failed]
    seconds = {one.command: one.seconds for one in ran}
    return measured(number, asked, answers, failed, where, seconds, quick=quick)


def _rows(found: Mapping[str, Measured]) -> Iterator[Figure]:
    """The last point of each of elf's curves, beside the other engines' at the same x."""
    for number, one in found.items():
        for axes in one.axes:
            others = [curve for curve in axes.curves if curve.kind == Kind.BESIDE]
            for curve in axes.curves:
                if curve.kind != Kind.BESIDE:
                    last = curve.points[-1]
                    where = f", {last.x:g} {axes.x}" if axes.x else ""
                    beside = {
                        two.name: point.y for two in others for point in two.points if point.x == last.x
                    }
                    yield Figure(f"{number}: {axes.title}, {curve.name}{where}", last.y, axes.unit, beside)
