"""``elf bench ingest``: one agent's way of a row, on one core, against DuckDB reading the same file.

elf's side is the lane of a real agent (``elf.bench.lane_side``): chunks of whole lines, extraction, map,
buffer tree, seal. DuckDB's side (``elf.bench.duckdb_side``) is one batch query over its own file reader that
gives the same groups. Each run is a fresh process, the two take turns, the file is read once before so that
both find it in the page cache, and medians count. The two answers are compared, value by value.

With ``--jobs``, ``--cores`` or ``--archive`` a third side is measured in the same turns: the lane with one
job, on one core, without an archive.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import msgspec
import numpy as np
import pyarrow as pa

from elf.batch import decode
from elf.bench.bars import draw
from elf.bench.sides import ask
from elf.cli.pictures import check_plot
from elf.errors import ElfError, InputError

Side = Literal["lane_side", "duckdb_side"]
PLAIN: Final = "one job, one core"


class Run(msgspec.Struct, frozen=True):
    """One run of one side. ``groups`` is the size of its answer: partial aggregates of all panes."""

    seconds: float
    cpu_seconds: float
    peak_rss_bytes: int
    events: int
    bytes: int
    groups: int


class Task(msgspec.Struct, frozen=True):
    """What a side is to do. ``answer``: where its partial aggregates go, as ``elf.batch.encode`` writes them.

    The rest is for the lane: how many ``jobs`` run the query, in ``distinct`` fragments; ``cores`` 2: reading
    and splitting on a thread of their own; ``archive``: every line goes to the archive too.
    """

    path: str
    format: str
    query: str
    answer: str = ""
    jobs: int = 1
    distinct: int = 1
    cores: int = 1
    archive: bool = False
    durable: bool | None = None
    """As in a fleet: panes are sealed as time goes on, and cuts and snapshots go to the state file, with
    (False: without) waiting for the disk. None: everything is sealed at the end, in memory."""


@dataclass(frozen=True)
class Figures:
    """Medians of the runs of one side, but the highest memory."""

    events_per_s: float
    bytes_per_s: float
    cores: float
    peak_rss_bytes: int
    seconds: float


def bench_ingest(path: Path, task: Task, repeat: int, *, as_json: bool, plot: Path | None = None) -> int:
    """Measure and print. ``task`` says what the lane does. Raises ``UserError``, and ``ElfError`` when the
    two answers differ."""
    if plot is not None:
        check_plot(plot)
    warm(path)
    task = msgspec.structs.replace(task, path=str(path.resolve()))
    plain = Task(task.path, task.format, task.query)
    sides: dict[str, tuple[Side, Task]] = {"elf": ("lane_side", task), "DuckDB": ("duckdb_side", plain)}
    if task != plain:
        sides[PLAIN] = ("lane_side", plain)
    runs: dict[str, list[Run]] = {name: [] for name in sides}
    with tempfile.TemporaryDirectory() as folder:
        answers = {name: Path(folder, str(number)) for number, name in enumerate(sides)}
        for _ in range(repeat):
            for name, (side, what) in sides.items():
                runs[name].append(
                    measure_side(side, msgspec.structs.replace(what, answer=str(answers[name])))
                )
        compare(*(decode(answers[name].read_bytes()) for name in ("elf", "DuckDB")))
    of = runs["elf"][0]
    measured = {name: figures(found, of) for name, found in runs.items()}
    _print(measured, of, repeat)
    if plot is not None:
        rates = {name: side.events_per_s for name, side in measured.items()}
        draw(rates, "events/s", f"Ingest of {of.events:,} events, {path.name}", plot)
    if as_json:
        print(json.dumps(report(measured, of, repeat)))
    return 0


def compare(ours: pa.Table, theirs: pa.Table) -> None:
    """Raises ``ElfError`` unless the tables hold the same rows, floats to 1 part in 10⁹."""
    if ours.num_rows != theirs.num_rows:
        raise ElfError(f"the answers differ: elf has {ours.num_rows} groups, DuckDB {theirs.num_rows}")
    names = theirs.column_names
    keys = [name for name in names if not pa.types.is_floating(theirs.schema.field(name).type)]
    order = [(name, "ascending") for name in keys]
    ours, theirs = (table.select(names).sort_by(order) for table in (ours, theirs))
    for name in names:
        left, right = ours[name], theirs[name].cast(ours.schema.field(name).type)
        same = left.equals(right)
        if not same and name not in keys:
            same = np.allclose(left.to_numpy(), right.to_numpy(), rtol=1e-9, atol=0, equal_nan=True)
        if not same:
            raise ElfError(f"the answers differ in {name}")


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


def report(measured: dict[str, Figures], run: Run, repeat: int) -> dict[str, object]:
    """The JSON object: elf's figures at the top, DuckDB's under its name, and elf's speed over DuckDB's;
    where it was measured, the lane's with one job on one core, and elf's speed over that."""
    elf, duckdb, plain = measured["elf"], measured["DuckDB"], measured.get(PLAIN)
    found: dict[str, object] = {
        **_rounded(elf),
        "events": run.events,
        "bytes": run.bytes,
        "groups": run.groups,
        "repeat": repeat,
        "duckdb": _rounded(duckdb),
        "ratio": round(elf.events_per_s / duckdb.events_per_s, 4),
    }
    if plain is not None:
        found |= {"plain": _rounded(plain), "against_plain": round(elf.events_per_s / plain.events_per_s, 4)}
    return found


def _rounded(figures: Figures) -> dict[str, object]:
    return {
        "events_per_s": round(figures.events_per_s),
        "bytes_per_s": round(figures.bytes_per_s),
        "cores": round(figures.cores, 3),
        "peak_rss_bytes": figures.peak_rss_bytes,
        "seconds": round(figures.seconds, 4),
    }


def _print(measured: dict[str, Figures], run: Run, repeat: int) -> None:
    print(f"{run.events:,} events, {run.bytes / 1e6:,.1f} MB, {run.groups:,} groups; medians of {repeat}")
    for name, side in measured.items():
        print(
            f"{name:{len(PLAIN)}} {side.events_per_s:12,.0f} events/s {side.bytes_per_s / 1e6:8,.1f} MB/s "
            f"{side.cores:5.2f} cores {side.peak_rss_bytes / 1e6:8,.0f} MB"
        )
    for name, side in list(measured.items())[1:]:
        print(f"elf runs at {measured['elf'].events_per_s / side.events_per_s:.2f} × {name}")


def warm(path: Path) -> None:
    """Read a file into the page cache. Raises ``InputError``."""
    try:
        with path.open("rb") as file:
            while file.read(1 << 22):
                pass
    except OSError as error:
        raise InputError(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from None


def measure_side(side: Side, task: Task) -> Run:
    """One run, in a process of its own. Raises ``UserError``, ``ElfError``."""
    return ask(f"elf.bench.{side}", task, Run)
