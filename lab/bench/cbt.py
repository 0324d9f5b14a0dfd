"""``elf bench cbt``: word count in the buffer tree, against other group-bys on the same keys.

The sides (``lab.bench.cbt_side``; ``hashmaps.cpp`` for Google's hash maps, built into a temporary folder
where g++ and libsparsehash-dev are there) make the same keys, chunk by chunk; only inserting and reading out
is timed, and memory is what a process has resident beyond what it had when the first key came. The answers
must agree.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import msgspec
from typer import Option

from elf.cli.pictures import check_plot
from elf.errors import ElfError, UserError
from lab.bench.cbt_side import SIDES, CbtRun, Mapped, Work, run_hash_map
from lab.bench.options import Plot, Repeat
from lab.bench.plots import draw_curves
from lab.bench.runner import Bench, Figure, Report, Scratch, median
from lab.bench.sides import ask


class BenchKeys(StrEnum):
    """``elf bench cbt --keys``"""

    ZIPF = "zipf"
    UNIFORM = "uniform"
    UNIQUE = "unique"


PYTHON_SIDES: Final = tuple(SIDES)
MAP_SIDES: Final = ("sparse_hash_map", "dense_hash_map")
NAMES: Final = (*PYTHON_SIDES, *MAP_SIDES)


@dataclass(frozen=True)
class Cbt(Bench[tuple[int, str], CbtRun]):
    """A piece of work for each number of distinct keys, each counted by all sides."""

    keys: Annotated[BenchKeys, Option("--keys", help="How keys are drawn; unique: each once.")] = (
        BenchKeys.ZIPF
    )
    distinct: Annotated[
        list[int] | None,
        Option("--distinct", min=1, help="Different keys; repeat it for a curve. Default 1000000."),
    ] = None
    rows: Annotated[
        int | None, Option("--rows", min=1, help="Keys counted (20000000; unique: as many as differ).")
    ] = None
    key_length: Annotated[int, Option("--key-length", min=1, max=1024, help="Bytes of a key.")] = 12
    memory_max: Annotated[
        int | None, Option("--memory-max", min=1, metavar="MIB", help="The tree spills past so much.")
    ] = None
    only: Annotated[
        list[str] | None, Option("--only", metavar="SIDE", help="Run these sides only (elf, dict, …).")
    ] = None
    repeat: Repeat = 3
    plot: Plot = None

    def __post_init__(self) -> None:
        """Raises ``UserError``."""
        if self.plot is not None:
            check_plot(self.plot)
        for work in self.works:
            if work.distinct > 64 ** min(self.key_length, 10):
                raise UserError(f"there are no {work.distinct} different keys of {self.key_length} bytes")
        for side in self.only or ():
            if side not in NAMES:
                raise UserError(f"no side {side}: there are {', '.join(NAMES)}")

    @property
    def works(self) -> list[Work]:
        limit = self.memory_max << 20 if self.memory_max else None
        return [
            Work(
                self.keys.value,
                distinct,
                distinct if self.keys == "unique" else self.rows or max(distinct, 20_000_000),
                self.key_length,
                limit,
            )
            for distinct in self.distinct or [1_000_000]
        ]

    def sides(self, scratch: Scratch) -> Mapping[tuple[int, str], Callable[[], CbtRun]]:
        """Each side that can run, for each piece of work, by its number."""
        names = self.only or NAMES
        program = hash_maps(scratch.folder) if set(names).intersection(MAP_SIDES) else None
        return {
            (number, side): partial(run_side, side, work, program)
            for number, work in enumerate(self.works)
            for side in names
            if program is not None or side not in MAP_SIDES
        }

    def report(self, runs: Mapping[tuple[int, str], Sequence[CbtRun]]) -> Report:
        """The figures of each side, medians, peaks the highest. Raises ``ElfError`` where answers differ."""
        for number in range(len(self.works)):
            answers = {
                side: {(run.groups, run.checksum) for run in found}
                for (of, side), found in runs.items()
                if of == number
            }
            if len(set().union(*answers.values())) > 1:
                raise ElfError(f"the answers differ: {answers}")
        rows = [_facts(side, self.works[number], found) for (number, side), found in runs.items()]
        if self.plot is not None:
            draw_curves(rows, self.plot)
        return Report(
            {"repeat": self.repeat, "runs": rows},
            [
                figure
                for number, work in enumerate(self.works)
                if (number, "elf") in runs
                for figure in _compared(
                    work, {side: found for (of, side), found in runs.items() if of == number}
                )
            ],
        )


def _compared(work: Work, runs: Mapping[str, Sequence[CbtRun]]) -> list[Figure]:
    """elf's speed and memory beside those of the other sides."""
    limit = f", at most {work.memory_max_bytes >> 20} MiB" if work.memory_max_bytes else ""
    what = f"tree: {work.rows} {work.keys} keys of {work.key_length} bytes, {work.distinct} distinct{limit}"
    rates = {side: _rate(work, found) for side, found in runs.items()}
    peaks = {side: _bytes_a_key(found) for side, found in runs.items()}
    return [
        Figure(what, rates.pop("elf"), "keys/s", rates),
        Figure(what, peaks.pop("elf"), "bytes a distinct key at the peak", peaks),
    ]


def _rate(work: Work, runs: Sequence[CbtRun]) -> float:
    return work.rows / median(runs, "seconds")


def _bytes_a_key(runs: Sequence[CbtRun]) -> float:
    return max(run.peak_bytes for run in runs) / runs[0].groups


def _facts(side: str, work: Work, runs: Sequence[CbtRun]) -> dict[str, object]:
    return {
        "side": side,
        **dict(msgspec.to_builtins(work)),
        "groups": runs[0].groups,
        "keys_per_s": round(_rate(work, runs)),
        "spread": [round(work.rows / seconds(run.seconds for run in runs)) for seconds in (max, min)],
        "bytes_per_key": round(median(runs, "final_bytes") / runs[0].groups, 2),
        "peak_bytes_per_key": round(_bytes_a_key(runs), 2),
        "stall_ms": round(median(runs, "stall_seconds") * 1000, 2),
        "spilled_bytes": max(run.spilled_bytes for run in runs),
    }


def run_side(side: str, work: Work, program: Path | None) -> CbtRun:
    """One run in a fresh process."""
    if side not in MAP_SIDES:
        return ask(SIDES[side], work)
    return ask(run_hash_map, Mapped(work, str(program), side.split("_", maxsplit=1)[0]))


def hash_maps(folder: Path) -> Path | None:
    """Google's hash maps as a program, or None where they can't be built."""
    left_out = "sparse_hash_map and dense_hash_map are left out"
    compiler = shutil.which("g++")
    if compiler is None:
        print(f"no g++: {left_out}")
        return None
    program, source = folder / "hashmaps", Path(__file__).with_name("hashmaps.cpp")
    command = [compiler, "-O2", "-std=c++17", str(source), "-o", str(program)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        print(f"no libsparsehash-dev: {left_out}")
        return None
    return program
