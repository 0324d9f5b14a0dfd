"""``elf bench rotation``: runs the matrix, or random cells, several at a time, and prints what came of it."""

from __future__ import annotations

import asyncio
import math
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import msgspec
from typer import Option

from elf.cli.compare import check_spark
from elf.cli.processes import Processes, ended
from elf.errors import UserError
from lab.bench.rotation.cells import COMPARED, QUICK, RANDOM, Cell, cells, drawn
from lab.bench.rotation.neighbours import program
from lab.bench.rotation.side import Result, Task, place
from lab.bench.rotation.writers import found
from lab.bench.runner import Bench, Figure, Report, Scratch
from lab.bench.sides import clocked


class RotationWriter(StrEnum):
    """``elf bench rotation --writer``"""

    NGINX = "nginx"
    PYTHON = "python"


class RotationReader(StrEnum):
    """``elf bench rotation --reader``"""

    ELF = "elf"
    RSYSLOG = "rsyslog"
    SYSLOG_NG = "syslog-ng"


SIDES: Final = "lab.bench.sides"
SIDE: Final = ("lab.bench.rotation.side", "run")
ELSEWHERE: Final = Path("/dev/shm")
CELL_SECS: Final = 600.0
POLL_SECS: Final = 0.05
COUNTED: Final = (
    "wrote", "in_windows", "in_gaps", "raced", "lost", "doubled", "foreign", "gaps", "false_gaps", "unsure",
)  # fmt: skip
"""Of each verdict, by name."""
COLUMNS: Final = ("alive", "restarted", "over 1", "over 2", "over 3", "gone")


@dataclass(frozen=True)
class RotationBench(Bench[str, tuple[dict[str, Result], float]]):
    """The matrix of cells, or random ones."""

    only: Annotated[
        list[str] | None, Option("--only", metavar="NAME", help="Cells whose names begin so.")
    ] = None
    random: Annotated[int, Option("--random", min=0, help="So many random cells instead of the matrix.")] = 0
    seed: Annotated[int, Option("--seed", min=0, help="The same seed, the same random cells.")] = 1
    parallel: Annotated[int, Option("--parallel", min=1, help="So many cells at a time.")] = 4
    quick: Annotated[bool, Option("--quick", help="A handful of cells.")] = False
    keep: Annotated[
        Path | None, Option("--keep", metavar="DIR", help="Work in DIR and leave all of it there.")
    ] = None
    writer: Annotated[
        RotationWriter, Option("--writer", help="nginx with logrotate, or the same in Python.")
    ] = RotationWriter.NGINX
    reader: Annotated[
        RotationReader, Option("--reader", help="Who follows the log: elf, or another instead of it.")
    ] = RotationReader.ELF

    def cells(self) -> list[Cell]:
        """Those that are asked for. Raises ``UserError`` when there are none."""
        return [msgspec.structs.replace(cell, writer=self.writer.value) for cell in choose(self)]

    def sides(self, scratch: Scratch) -> Mapping[str, Callable[[], tuple[dict[str, Result], float]]]:
        """All cells. Raises ``UserError`` when a tool is missing."""
        chosen = self.cells()
        if self.writer == "nginx":
            found("nginx", "nginx")
            found("logrotate", "logrotate")
        if self.reader != "elf":
            program(self.reader.value)
        folder = self.keep or Path(tempfile.mkdtemp(prefix="elf-rotation-"))
        folder.mkdir(parents=True, exist_ok=True)

        def run() -> tuple[dict[str, Result], float]:
            with ended() as processes, clocked() as clock:
                results = asyncio.run(_Runner(processes, folder.absolute(), self).run(chosen))
            if not any(folder.iterdir()):
                folder.rmdir()
            return results, round(clock.seconds, 1)

        return {self.reader.value: run}

    def report(self, runs: Mapping[str, Sequence[tuple[dict[str, Result], float]]]) -> Report:
        """A problem when a cell of elf's has failed."""
        ((results, seconds),) = runs[self.reader.value]
        sums = told(results)
        failing = [name for name, one in results.items() if failures(one)]
        kind = f"random cells (seed {self.seed})" if self.random else "cells of rotated logs"
        matrix = table(self.cells(), results)
        return Report(
            {
                "cells": len(results),
                "failed": len(failing),
                "left_out": sum(bool(one.left_out) for one in results.values()),
                **sums,
                "failing": failing,
                "seed": self.seed,
                "seconds": seconds,
            },
            [
                Figure(f"{kind} that have failed", len(failing), f"of {len(results)}"),
                *(
                    Figure(f"{kind}: rows that were {name}", sums[name], f"of {sums['wrote']}")
                    for name in ("lost", "doubled")
                ),
            ],
            [matrix] if matrix else [],
            {
                "results": [
                    {"cell": name, **msgspec.to_builtins(one), "failures": failures(one)}
                    for name, one in results.items()
                ]
            },
            [f"{len(failing)} cells have failed"] if failing and self.reader == "elf" else [],
        )


def choose(options: RotationBench) -> list[Cell]:
    """The cells that are asked for. Raises ``UserError`` when there are none."""
    if options.random:
        return [drawn(options.seed, number) for number in range(options.random)]
    every = [cell for cell in cells() if not options.quick or cell.name in QUICK]
    if not options.only:
        return every
    chosen = [cell for cell in every if cell.name.startswith(tuple(options.only))]
    for name in options.only:
        words = name.split("/")
        if words[0] == RANDOM and len(words) > 1:
            seed, _, number = words[1].partition("-")
            if not (seed.isdigit() and number.isdigit()):
                raise UserError(f"--only {name}: a random cell is {RANDOM}/SEED-NUMBER")
            chosen.append(drawn(int(seed), int(number)))
        elif not any(cell.name.startswith(name) for cell in every):
            raise UserError(f"--only {name}: no cell's name begins so; the first is {every[0].name}")
    return chosen


class _Runner:
    """Runs so many cells at a time, each as a process; folders of those that passed go."""

    def __init__(self, processes: Processes, folder: Path, options: RotationBench) -> None:
        self._processes = processes
        self._folder = folder
        self._options = options
        self._compares = _has_spark()
        if not self._compares:
            print("elf compare is not asked of gaps: Spark is not installed here", file=sys.stderr)

    async def run(self, chosen: Sequence[Cell]) -> dict[str, Result]:
        free = asyncio.Semaphore(self._options.parallel)
        return {one.name: one for one in await asyncio.gather(*(self._cell(cell, free) for cell in chosen))}

    async def _cell(self, cell: Cell, free: asyncio.Semaphore) -> Result:
        if cell.elsewhere and not _is_elsewhere(self._folder):
            result = Result(cell.name, 0.0, left_out=f"{ELSEWHERE} is no other file system")
            print(said(cell, result), file=sys.stderr)
            return result
        async with free:
            with place(self._folder, cell.name, ELSEWHERE if cell.elsewhere else None) as (here, logs):
                compare = self._compares and cell.name in COMPARED
                reader = self._options.reader.value
                result = await self._done(Task(cell, str(here), str(logs), compare, reader))
        print(said(cell, result), file=sys.stderr)
        if failures(result):
            print(f"    folder {here}; again: {again(cell)}", file=sys.stderr)
        elif self._options.keep is None:
            shutil.rmtree(here)
        return result

    async def _done(self, task: Task) -> Result:
        """What the cell's process said; if it said nothing, that."""
        name, log, until = task.cell.name, Path(task.folder, "side.log"), time.monotonic() + CELL_SECS
        child = self._processes.start(name, SIDES, SIDE, log, talks=True)
        asks, tells = child.process.stdin, child.process.stdout
        assert asks is not None
        assert tells is not None
        try:
            asks.write(msgspec.json.encode(task))
            asks.close()
            while (status := child.status()) is None and time.monotonic() < until:
                await asyncio.sleep(POLL_SECS)
            if status is None:
                return Result(name, CELL_SECS, error=f"not done after {CELL_SECS:g} s")
            lines = tells.read().splitlines()
        finally:
            self._processes.stop([child])
        if status or not lines:
            return Result(name, math.nan, error=f"its process ended with status {status}: see side.log")
        return msgspec.json.decode(lines[-1], type=Result)


def again(cell: Cell) -> str:
    """The command that runs this cell alone."""
    name = f"'{cell.name}'" if " " in cell.name else cell.name
    writer = f" --writer {cell.writer}" if cell.writer != "nginx" else ""
    return f"elf bench rotation --only {name}{writer}"


def failures(result: Result) -> list[str]:
    """What is wrong with a cell; nothing: it has passed."""
    return [result.error] * bool(result.error) + (result.verdict.failures if result.verdict else [])


def said(cell: Cell, result: Result) -> str:
    """A cell in a line, and examples of what is wrong in lines below it."""
    wrong, verdict = failures(result), result.verdict
    if result.left_out:
        return f"left out {cell.name}: {result.left_out}"
    facts = [f"FAILED {cell.name}: {', '.join(wrong)}" if wrong else f"ok     {cell.name}"]
    if verdict is not None:
        raced = f" + {verdict.raced} that nobody could read" * bool(verdict.raced)
        lost = f" + {verdict.lost} lost" * bool(verdict.lost)
        what = f"{verdict.in_windows} in windows + {verdict.in_gaps} in gaps{raced}{lost}"
        unsure = f", {verdict.unsure} gaps without a loss" * bool(verdict.unsure)
        facts.append(f"wrote {verdict.wrote} = {what}{unsure}")
    lines = [f"{'; '.join(facts)} ({result.seconds:g} s)"]
    if wrong and verdict is not None:
        lines += [f"    {example}" for example in verdict.examples]
    return "\n".join(lines)


def told(results: dict[str, Result]) -> dict[str, int]:
    """What the judge has counted, of all cells together."""
    verdicts = [one.verdict for one in results.values() if one.verdict is not None]
    return {name: sum(getattr(verdict, name) for verdict in verdicts) for name in COUNTED}


def table(chosen: Sequence[Cell], results: dict[str, Result]) -> str:
    """In Markdown: rotations down, what happened to the agent across; empty for random cells."""
    rest = [cell for cell in chosen if cell.name in results and cell.row != RANDOM]
    if not rest:
        return ""
    columns = [column for column in COLUMNS if any(_column(cell) == column for cell in rest)]
    lines = [["rotation", "rows/s", *columns], ["---"] * (len(columns) + 2)]
    for row, rate in dict.fromkeys((cell.row, cell.rate) for cell in rest):
        marks = {_column(c): _mark(results[c.name]) for c in rest if (c.row, c.rate) == (row, rate)}
        lines.append([row, f"{rate:,}", *(marks.get(column, "") for column in columns)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _column(cell: Cell) -> str:
    """``killed-2`` and ``stopped-2`` are ``over 2`` rotations, in rows of their own."""
    kind, _, rotations = cell.column.partition("-")
    return f"over {rotations}" if rotations else kind


def _mark(result: Result) -> str:
    if result.left_out:
        return "left out"
    wrong = failures(result)
    if wrong or result.verdict is None:
        return "**" + "; ".join(wrong if result.verdict is not None else ["did not run"]) + "**"
    gone, unsure = result.verdict.in_gaps, result.verdict.unsure
    return "ok" + f", {gone} in a gap" * bool(gone) + f", {unsure} without a loss" * bool(unsure)


def _has_spark() -> bool:
    try:
        check_spark()
    except UserError:
        return False
    return True


def _is_elsewhere(folder: Path) -> bool:
    return ELSEWHERE.is_dir() and ELSEWHERE.stat().st_dev != folder.stat().st_dev
