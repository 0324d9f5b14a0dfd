"""``elf bench cbt``: word count in the buffer tree, against other group-bys on the same keys.

The sides (``elf.bench.cbt_side``; ``hashmaps.cpp`` for Google's hash maps, built into a temporary folder
where g++ and libsparsehash-dev are there) make the same keys, chunk by chunk; only inserting and reading out
is timed, and memory is what a process has resident beyond what it had when the first key came. The answers
must agree.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from elf.bench.cbt_side import SIDES, CbtRun, Keys, Mapped, Work, run_hash_map
from elf.bench.plots import check_plot, draw_curves
from elf.bench.runner import Bench, Figure, Report, Scratch, median
from elf.bench.sides import ask
from elf.errors import ElfError, UserError

PYTHON_SIDES: Final = tuple(SIDES)
MAP_SIDES: Final = ("sparse_hash_map", "dense_hash_map")


@dataclass(frozen=True)
class Cbt(Bench[tuple[int, str], CbtRun]):
    """``works`` are counted by each of these sides (see ``works_of``, ``sides_of``)."""

    works: Sequence[Work]
    names: Sequence[str] = (*PYTHON_SIDES, *MAP_SIDES)
    repeat: int = 3
    plot: Path | None = None

    def __post_init__(self) -> None:
        """Raises ``UserError``."""
        if self.plot is not None:
            check_plot(self.plot)

    def sides(self, scratch: Scratch) -> Mapping[tuple[int, str], Callable[[], CbtRun]]:
        """Each side that can run, for each piece of work, by its number."""
        program = hash_maps(scratch.folder) if set(self.names).intersection(MAP_SIDES) else None
        return {
            (number, side): partial(run_side, side, work, program)
            for number, work in enumerate(self.works)
            for side in self.names
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


def works_of(
    keys: Keys, distinct: list[int], rows: int | None, key_length: int, memory_max_bytes: int | None
) -> list[Work]:
    """One piece of work for each number of distinct keys. Raises ``UserError``."""
    for count in distinct:
        if count < 1 or count > 64 ** min(key_length, 10):
            raise UserError(f"there are no {count} different keys of {key_length} bytes")
    return [
        Work(keys, n, n if keys == "unique" else rows or max(n, 20_000_000), key_length, memory_max_bytes)
        for n in distinct
    ]


def sides_of(only: list[str] | None) -> list[str]:
    """The sides that were asked for, all if none. Raises ``UserError``."""
    known = [*PYTHON_SIDES, *MAP_SIDES]
    for side in only or ():
        if side not in known:
            raise UserError(f"no side {side}: there are {', '.join(known)}")
    return only or known
