"""``elf bench ingest``: one agent's way of a row, on one thread, against DuckDB reading the same file.

elf's side is the lane of a real agent (``elf.bench.lane_side``): chunks of whole lines, extraction, map,
buffer tree, seal. DuckDB's side (``elf.bench.duckdb_side``) is one batch query over its own file reader that
gives the same groups. Each run is a fresh process, the two take turns, the file is read once before so that
both find it in the page cache, and medians count.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import msgspec

from elf.errors import ElfError, InputError, UserError

Side = Literal["lane_side", "duckdb_side"]
ROOT: Final = Path(__file__).parents[2]
REFUSED: Final = 3
"""Exit status of a side that has a message for the user, on standard error."""


class Run(msgspec.Struct, frozen=True):
    """One run of one side. ``groups`` is the size of its answer: partial aggregates of all panes."""

    seconds: float
    cpu_seconds: float
    peak_rss_bytes: int
    events: int
    bytes: int
    groups: int


class Task(msgspec.Struct, frozen=True):
    """What a side is to do."""

    path: str
    format: str
    query: str


@dataclass(frozen=True)
class Figures:
    """Medians of the runs of one side, but the highest memory."""

    events_per_s: float
    bytes_per_s: float
    cores: float
    peak_rss_bytes: int
    seconds: float


def bench_ingest(path: Path, format: str, query: str, repeat: int, *, as_json: bool) -> int:
    """Measure and print. Raises ``UserError``, and ``ElfError`` when the two answers differ."""
    _warm(path)
    task = Task(str(path.resolve()), format, query)
    runs: dict[Side, list[Run]] = {"lane_side": [], "duckdb_side": []}
    for _ in range(repeat):
        for side, found in runs.items():
            found.append(_measure(side, task))
    ours, theirs = runs["lane_side"], runs["duckdb_side"]
    if ours[0].groups != theirs[0].groups:
        raise ElfError(f"the answers differ: elf has {ours[0].groups} groups, DuckDB {theirs[0].groups}")
    elf, duckdb = figures(ours, ours[0]), figures(theirs, ours[0])
    _print(elf, duckdb, ours[0], repeat)
    if as_json:
        print(json.dumps(report(elf, duckdb, ours[0], repeat)))
    return 0


def figures(runs: list[Run], of: Run) -> Figures:
    """The figures of one side; events and bytes are those of ``of``."""
    seconds = statistics.median(run.seconds for run in runs)
    return Figures(
        events_per_s=of.events / seconds,
        bytes_per_s=of.bytes / seconds,
        cores=statistics.median(run.cpu_seconds / run.seconds for run in runs),
        peak_rss_bytes=max(run.peak_rss_bytes for run in runs),
        seconds=seconds,
    )


def report(elf: Figures, duckdb: Figures, run: Run, repeat: int) -> dict[str, object]:
    """The JSON object: elf's figures at the top, DuckDB's under its name, and elf's speed over DuckDB's."""
    return {
        **_rounded(elf),
        "events": run.events,
        "bytes": run.bytes,
        "groups": run.groups,
        "repeat": repeat,
        "duckdb": _rounded(duckdb),
        "ratio": round(elf.events_per_s / duckdb.events_per_s, 4),
    }


def _rounded(figures: Figures) -> dict[str, object]:
    return {
        "events_per_s": round(figures.events_per_s),
        "bytes_per_s": round(figures.bytes_per_s),
        "cores": round(figures.cores, 3),
        "peak_rss_bytes": figures.peak_rss_bytes,
        "seconds": round(figures.seconds, 4),
    }


def _print(elf: Figures, duckdb: Figures, run: Run, repeat: int) -> None:
    print(f"{run.events:,} events, {run.bytes / 1e6:,.1f} MB, {run.groups:,} groups; medians of {repeat}")
    for name, side in (("elf", elf), ("DuckDB", duckdb)):
        print(
            f"{name:6} {side.events_per_s:12,.0f} events/s {side.bytes_per_s / 1e6:8,.1f} MB/s "
            f"{side.cores:5.2f} cores {side.peak_rss_bytes / 1e6:8,.0f} MB"
        )
    print(f"elf runs at {elf.events_per_s / duckdb.events_per_s:.2f} × DuckDB")


def _warm(path: Path) -> None:
    try:
        with path.open("rb") as file:
            while file.read(1 << 22):
                pass
    except OSError as error:
        raise InputError(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from None


def _measure(side: Side, task: Task) -> Run:
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-P", "-m", f"elf.bench.{side}"],
        input=msgspec.json.encode(task),
        capture_output=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        check=False,
    )
    said = done.stderr.decode(errors="replace").strip()
    if done.returncode == REFUSED:
        raise UserError(said)
    if done.returncode != 0:
        why = said.splitlines()[-1] if said else f"status {done.returncode}"
        raise ElfError(f"elf.bench.{side} failed: {why}")
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=Run)
