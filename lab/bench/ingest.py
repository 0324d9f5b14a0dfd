"""``elf bench ingest``: one agent's way of a row, on one core, against DuckDB reading the same file.

elf's side is the stream task of a real agent (``lab.bench.task_side``): chunks of whole lines, extraction,
map, buffer tree, seal. DuckDB's side (``lab.bench.duckdb_side``) is one batch query over its own file reader
that gives the same groups. The file is read once before so that both find it in the page cache. The two
answers are compared, value by value.

With ``--jobs``, ``--cores``, ``--archive``, ``--chunk`` or ``--without-native`` a third side is measured in
the same turns: the stream task with one job, on one core, in large chunks read natively, without an archive.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import msgspec
import numpy as np
import pyarrow as pa
from typer import Option

from elf.batch import decode
from elf.cli.pictures import check_plot
from elf.errors import ElfError, InputError
from lab.bench.duckdb_side import NGINX, run_duckdb
from lab.bench.measure import CHUNK_MIB, Run, Task
from lab.bench.options import Fragments, Plot, Repeat
from lab.bench.plots import draw_bars
from lab.bench.runner import Bench, Figure, Report, Scratch, median
from lab.bench.sides import ask
from lab.bench.task_side import run_lane
from lab.cli.generate import GenerateOptions, write


class BenchFormat(StrEnum):
    """``elf bench ingest --format``"""

    JSON = "json"
    COMBINED = "combined"
    COMMON = "common"
    NGINX = "nginx"
    LOGFMT = "logfmt"


PLAIN: Final = "one job, one core"
_PAGES: Final = "SELECT cs_uri_stem, COUNT(*) AS hits FROM x GROUP BY cs_uri_stem WINDOWING 30 SECONDS"
QUERIES: Final = {
    "json": "SELECT product, SUM(clicks_count) AS c FROM x WHERE store = 'video_games' GROUP BY product "
    "ORDER BY c DESC LIMIT 10 WINDOWING 30 SECONDS",
    "combined": _PAGES,
    "common": _PAGES,
    "nginx": "SELECT cs_uri_stem, COUNT(*) AS hits, MAX(request_time) AS slowest FROM x GROUP BY cs_uri_stem "
    "WINDOWING 30 SECONDS",
    "logfmt": "SELECT path, COUNT(*) AS hits, SUM(bytes) AS bytes FROM x GROUP BY path WINDOWING 30 SECONDS",
}
"""By format, the query where none is given."""
_LINE: Final = re.compile(
    r'\S+ - \S+ \[(.*?)\] "([A-Z]+) (/[^ "]*) HTTP/[0-9.]+" (\d+) (\d+) "[^"]*" "([^"]*)"'
)
"""Nearly all generated lines of access logs."""
START: Final = "2026-01-01"


@dataclass(frozen=True)
class Ran:
    """A run, and its answer: partial aggregates of all panes."""

    run: Run
    answer: pa.Table


@dataclass(frozen=True)
class Ingest(Bench[str, Ran]):
    """A file, or a generated one."""

    path: Annotated[
        Path | None, Option("--input", metavar="FILE", help="A log file; one is generated if absent.")
    ] = None
    query: Annotated[
        str | None, Option("--query", metavar="SQL", help="The query; one for generated logs if absent.")
    ] = None
    rows: Annotated[int, Option("--rows", min=1, help="Lines, where they are generated.")] = 1_000_000
    format: Annotated[BenchFormat, Option("--format", help="The file's format.")] = BenchFormat.JSON
    repeat: Repeat = 3
    jobs: Annotated[int, Option("--jobs", min=1, help="So many jobs on the stream.")] = 1
    distinct: Fragments = 1
    cores: Annotated[int, Option("--cores", min=1, max=2, help="2: read and map beside each other.")] = 1
    archive: Annotated[bool, Option("--archive", help="Archive every line, too.")] = False
    chunk: Annotated[int, Option("--chunk", min=1, help="MiB that are read at a time.")] = CHUNK_MIB
    without_native: Annotated[
        bool, Option("--without-native", help="As if the native reader had not been built.")
    ] = False
    plot: Plot = None

    def __post_init__(self) -> None:
        """Raises ``UserError``."""
        if self.plot is not None:
            check_plot(self.plot)

    def sides(self, scratch: Scratch) -> Mapping[str, Callable[[], Ran]]:
        """The stream task, DuckDB, and the stream task with one job where the task asks for more."""
        path = self.path or generated(self.format, self.rows, scratch.folder)
        warm(path)
        text = NGINX if self.format == "nginx" else self.format.value
        plain = Task(str(path.resolve()), text, self.query or QUERIES[self.format])
        task = msgspec.structs.replace(
            plain,
            jobs=self.jobs,
            distinct=self.distinct,
            cores=self.cores,
            archive=self.archive,
            chunk_bytes=self.chunk << 20,
            native=not self.without_native,
        )
        tasks = {"elf": (run_lane, task), "DuckDB": (run_duckdb, plain)}
        if task != plain:
            tasks[PLAIN] = (run_lane, plain)
        answer = scratch.folder / "answer"
        return {name: partial(_run, side, one, answer) for name, (side, one) in tasks.items()}

    def report(self, runs: Mapping[str, Sequence[Ran]]) -> Report:
        """elf's speed beside the others'. Raises ``ElfError`` when an answer is not DuckDB's."""
        for ran in runs["elf"]:
            compare(ran.answer, runs["DuckDB"][0].answer)
        of = runs["elf"][0].run
        measured = {name: figures([ran.run for ran in found], of) for name, found in runs.items()}
        rates = {name: side["events_per_s"] for name, side in measured.items()}
        elf, *others = rates
        if self.plot is not None:
            name = self.path.name if self.path else f"generated, {self.format}"
            draw_bars(rates, "events/s", f"Ingest of {of.events:,} events, {name}", self.plot)
        what = " ".join([self.format, *self._more()])
        beside = {name: rates[name] for name in others}
        return Report(
            report(measured, of, self.repeat),
            [Figure(f"ingest: {what} lines → filter → group → tree", rates[elf], "events/s", beside)],
            [f"elf runs at {rates[elf] / rate:.2f} × {name}" for name, rate in beside.items()],
        )

    def _more(self) -> list[str]:
        """What the stream task does beyond one job."""
        jobs = f"({self.jobs} jobs of {self.distinct} fragments)"
        said = {
            jobs: self.jobs > 1,
            f"(on {self.cores} cores)": self.cores > 1,
            "(with the archive)": self.archive,
            f"(in chunks of {self.chunk} MiB)": self.chunk != CHUNK_MIB,
            "(without the native reader)": self.without_native,
        }
        return [text for text, so in said.items() if so]


def _run(side: Callable[[Task], Run], task: Task, answer: Path) -> Ran:
    run = ask(side, msgspec.structs.replace(task, answer=str(answer)))
    return Ran(run, decode(answer.read_bytes()))


def generated(format: str, rows: int, folder: Path) -> Path:
    """A log of that format: clicks as JSON lines, or an access log, in the form of the format."""
    path = str(folder / "log")
    if format == "json":
        write(GenerateOptions("clicks", path, rows, 1, None, None, 1000.0, START, 0.5, 0))
    else:
        write(GenerateOptions("access", path, rows, 1, None, None, 1000.0, START, 0, 0))
    if format in ("nginx", "logfmt"):
        found = map(_LINE.fullmatch, Path(path).read_text(encoding="utf-8").splitlines())
        written = _timed if format == "nginx" else _keyed
        usual = enumerate(line for line in found if line is not None)
        Path(path).write_text("".join(written(line, number) for number, line in usual), encoding="utf-8")
    return Path(path)


def _timed(line: re.Match[str], number: int) -> str:
    """With a time taken behind it."""
    return f"{line[0]} {number % 977 / 1000:.3f}\n"


def _keyed(line: re.Match[str], number: int) -> str:
    """As keys and values."""
    date, method, target, status, size, agent = line.groups()
    at = dt.datetime.strptime(date, "%d/%b/%Y:%H:%M:%S %z").astimezone(dt.UTC)
    return (
        f"time={at:%Y-%m-%dT%H:%M:%SZ} level=info method={method} path={target} status={status} bytes={size} "
        f'agent="{agent}" duration={number % 977 / 1000:.3f}\n'
    )


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


def figures(runs: Sequence[Run], of: Run) -> dict[str, float]:
    """Of one side: medians, but the highest memory; events and bytes are those of ``of``."""
    seconds = median(runs, "seconds")
    return {
        "events_per_s": round(of.events / seconds),
        "bytes_per_s": round(of.bytes / seconds),
        "cores": round(median(runs, "cores"), 3),
        "peak_rss_bytes": max(run.peak_rss_bytes for run in runs),
        "seconds": round(seconds, 4),
    }


def report(measured: Mapping[str, Mapping[str, float]], run: Run, repeat: int) -> dict[str, object]:
    """elf's figures at the top, DuckDB's under its name, and elf's speed over DuckDB's; where it was
    measured, the stream task's with one job on one core, and elf's speed over that."""
    elf, duckdb, plain = measured["elf"], measured["DuckDB"], measured.get(PLAIN)
    found: dict[str, object] = {
        **elf,
        "events": run.events,
        "bytes": run.bytes,
        "groups": run.groups,
        "repeat": repeat,
    }
    found |= {"ratio": _ratio(elf, duckdb), "duckdb": duckdb}
    return found | ({"against_plain": _ratio(elf, plain), "plain": plain} if plain is not None else {})


def _ratio(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    return round(one["events_per_s"] / other["events_per_s"], 4)


def warm(path: Path) -> None:
    """Read a file into the page cache. Raises ``InputError``."""
    try:
        with path.open("rb") as file:
            while file.read(1 << 22):
                pass
    except OSError as error:
        raise InputError(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from None
