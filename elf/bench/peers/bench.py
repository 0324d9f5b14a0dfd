"""``elf bench peers``: elf, DuckDB and the other engines that are installed, on the same job and one core.

All processes are pinned to one core, and each is asked to run the job over the same two files: generated
clicks, and their first half. Both are run once before the clock counts. The figure is the steady rate,
events of the second half over the time that they add: start-up, planning and first compilations cancel out.
The sides take turns, medians count. Every answer is compared with DuckDB's, which has the whole file at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import IO, Final

import msgspec

from elf.bench.bars import draw
from elf.bench.peers.engines import ELF, ORACLE, PEERS, Engine, chosen, how_to_install, lacks_java, missing
from elf.bench.peers.serve import Job, Reply, Rows
from elf.bench.sliding import DISORDER_MS, TOP_ROWS, generate
from elf.cli.pictures import check_plot
from elf.errors import ElfError, UserError

PRODUCTS: Final = 200_000
PER_HOUR: Final = 2_000_000
ROWS_MIN: Final = 1_000
SECONDS_MIN: Final = 0.05
"""Less is no measurement: the kernel counts processor time in hundredths of a second."""


@dataclass(frozen=True)
class Query:
    """A job, and how many events make it a fair measurement in reasonable time."""

    title: str
    job: Job
    rows: int


QUERIES: Final[Mapping[str, Query]] = {
    "ingest": Query(
        "clicks of one store by product, windows of 30 s",
        Job(30_000, 30_000, "video_games", TOP_ROWS, DISORDER_MS),
        1_000_000,
    ),
    "sliding": Query(
        "clicks by product, windows of 300 s every 5 s",
        Job(300_000, 5_000, None, TOP_ROWS, DISORDER_MS),
        400_000,
    ),
}


@dataclass
class Side:
    """A running engine, and what it has said: (half, whole) a round; ``failed``: why it says no more."""

    engine: Engine
    process: subprocess.Popen[str]
    errors: IO[str]
    version: str = ""
    rounds: list[tuple[Reply, Reply]] = field(default_factory=list)
    failed: str | None = None

    def ask(self, what: object) -> str:
        """One line out, one in. Raises ``ElfError`` when the engine has ended."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps(what), file=self.process.stdin, flush=True)
        if (line := self.process.stdout.readline()).endswith("\n"):
            return line
        self.errors.seek(0)
        said = self.errors.read().strip().splitlines()
        raise ElfError(said[-1] if said else f"status {self.process.wait()}")

    def run(self, path: Path) -> Reply:
        return msgspec.json.decode(self.ask(str(path)), type=Reply)


@dataclass(frozen=True)
class Figures:
    """Medians of the rounds, but the highest memory. A rate is None where the runs were too short to tell."""

    name: str
    title: str
    version: str
    events_per_s: float | None
    events_per_core_s: float | None
    peak_rss_bytes: int
    wrong: str | None


def bench_peers(
    query: str,
    rows: int | None,
    repeat: int,
    engines: Sequence[str] | None,
    envs: Path,
    *,
    as_json: bool,
    plot: Path | None,
    peers: Sequence[Engine] = PEERS,
) -> int:
    """Measure and print. Engines that were not named and are not installed are left out, in one line. Raises
    ``UserError``, and, after printing, ``ElfError`` when an engine failed or its answer differs."""
    if plot is not None:
        check_plot(plot)
    envs = envs.expanduser().absolute()
    wanted = chosen(engines, peers)
    absent = missing(wanted, envs)
    if absent and engines is not None:
        raise UserError(how_to_install(absent, envs))
    able = [peer for peer in wanted if peer not in absent]
    if lacks_java() and (stuck := [peer.title for peer in able if peer.needs_java]):
        raise UserError(f"no java for {', '.join(stuck)}: install Java 17, or set JAVA_HOME")
    task = QUERIES[query]
    events = task.rows if rows is None else rows
    if events < ROWS_MIN:
        raise UserError(f"--rows {events} is too few to measure: at least {ROWS_MIN}")
    print(f"{task.title}, top {task.job.top}: {events:,} events, {PRODUCTS:,} products; one core", flush=True)
    with tempfile.TemporaryDirectory(prefix="elf-bench-") as folder, one_core():
        sides = measure([ELF, ORACLE, *able], task.job, Path(folder), events, repeat, envs)
    found = [figures(side, sides[1], events - events // 2) for side in sides if side.failed is None]
    _print(found, repeat)
    if absent:
        print(how_to_install(absent, envs))
    if plot is not None:
        draw(
            {row.title: row.events_per_core_s or 0 for row in found}, "events/s of one core", task.title, plot
        )
    if as_json:
        print(json.dumps(report(query, events, repeat, found, absent)))
    problems = [f"{side.engine.title} failed: {side.failed}" for side in sides if side.failed is not None]
    problems += [f"{row.title}: {row.wrong}" for row in found if row.wrong]
    if problems:
        raise ElfError("\n     ".join(problems))
    return 0


@contextlib.contextmanager
def one_core() -> Iterator[None]:
    """Pin this thread, and with it the processes that it starts, to one core: JVMs see only that one."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def measure(
    engines: Sequence[Engine], job: Job, folder: Path, events: int, repeat: int, envs: Path
) -> list[Side]:
    """Let the engines take turns. A side that fails drops out; elf and DuckDB may not."""
    whole, half = folder / "clicks.jsonl", folder / "half.jsonl"
    generate(whole, events, PRODUCTS, PER_HOUR)
    with whole.open() as lines, half.open("w") as out:
        out.writelines(islice(lines, events // 2))
    with contextlib.ExitStack() as stack:
        sides = [stack.enter_context(_started(engine, envs, folder / engine.name)) for engine in engines]
        for side in sides:
            with _dropping_out(side):
                side.version = json.loads(side.ask(asdict(job)))["version"]
                side.run(half)
                side.run(whole)
        for _ in range(repeat):
            for side in sides:
                if side.failed is None:
                    with _dropping_out(side):
                        side.rounds.append((side.run(half), side.run(whole)))
    return sides


@contextlib.contextmanager
def _started(engine: Engine, envs: Path, scratch: Path) -> Iterator[Side]:
    scratch.mkdir()
    with (scratch / "errors").open("w+", errors="replace") as errors:
        process = subprocess.Popen(
            engine.command(envs, scratch),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            encoding="utf-8",
            env=engine.environment(),
            cwd=scratch,
        )
        with process:
            try:
                yield Side(engine, process, errors)
            finally:
                process.terminate()


@contextlib.contextmanager
def _dropping_out(side: Side) -> Iterator[None]:
    try:
        yield
    except ElfError as error:
        if side.engine in (ELF, ORACLE):
            raise ElfError(f"{side.engine.title} failed: {error}") from None
        side.failed = str(error)


def figures(side: Side, oracle: Side, events: int) -> Figures:
    """The figures of one side; ``events`` are those that the whole file has more than its half."""
    seconds = statistics.median(whole.seconds - half.seconds for half, whole in side.rounds)
    cpu_seconds = statistics.median(whole.cpu_seconds - half.cpu_seconds for half, whole in side.rounds)
    halves, wholes = oracle.rounds[0]
    wrong = (differ(reply.answer, wholes.answer) for _, reply in side.rounds)
    wrong_half = (differ(reply.answer, halves.answer) for reply, _ in side.rounds)
    return Figures(
        name=side.engine.name,
        title=side.engine.title,
        version=side.version,
        events_per_s=events / seconds if seconds > SECONDS_MIN else None,
        events_per_core_s=events / cpu_seconds if cpu_seconds > SECONDS_MIN else None,
        peak_rss_bytes=max(reply.peak_rss_bytes for pair in side.rounds for reply in pair),
        wrong=next(filter(None, (*wrong, *wrong_half)), None),
    )


def differ(ours: Rows, theirs: Rows) -> str | None:
    """The first difference to DuckDB's answer in words; None if there is none. Rows are in order."""
    if ours == theirs:
        return None
    here, there = set(ours), set(theirs)
    if here == there:
        return f"the answer has {len(ours) - len(theirs)} rows twice"
    first = min(here ^ there)
    moment = datetime.fromtimestamp(first[0] / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    row = f"{moment} {first[1]} {first[2]}"
    which = f"has {row}, DuckDB has not" if first in here else f"has no {row}, DuckDB has"
    return f"the answer is wrong in {len(here - there) + len(there - here)} rows; it {which}"


def report(
    query: str, events: int, repeat: int, found: Sequence[Figures], absent: Sequence[Engine]
) -> dict[str, object]:
    """The JSON object; ``elf_times`` are elf's rates over the side's."""
    return {
        "query": query,
        "events": events,
        "repeat": repeat,
        "sides": [
            {
                "engine": row.name,
                "version": row.version,
                "events_per_s": row.events_per_s and round(row.events_per_s),
                "events_per_core_s": row.events_per_core_s and round(row.events_per_core_s),
                "elf_times": _ratio(found[0].events_per_s, row.events_per_s),
                "elf_times_core": _ratio(found[0].events_per_core_s, row.events_per_core_s),
                "peak_rss_bytes": row.peak_rss_bytes,
                "same_answer": row.wrong is None,
            }
            for row in found
        ],
        "missing": [engine.name for engine in absent],
    }


def _ratio(elf: float | None, other: float | None) -> float | None:
    return round(elf / other, 3) if elf and other else None


def _print(found: Sequence[Figures], repeat: int) -> None:
    print(f"steady rates, medians of {repeat}; elf × is elf's rate over that of the line")
    heads = ("events/s", "elf ×", "a core-second", "elf ×", "MB")
    print(
        f"{'':26} {'':8} {heads[0]:>11} {heads[1]:>7} {heads[2]:>13} {heads[3]:>7} {heads[4]:>6}  same answer"
    )
    for row in found:
        rates = (row.events_per_s, found[0].events_per_s), (row.events_per_core_s, found[0].events_per_core_s)
        (wall, times), (core, core_times) = (
            (_said(own, 0), _said(_ratio(elf, own), 2)) for own, elf in rates
        )
        print(
            f"{row.title:26} {row.version:8} {wall:>11} {times:>7} {core:>13} {core_times:>7} "
            f"{row.peak_rss_bytes / 1e6:6,.0f}  {'NO' if row.wrong else 'yes'}"
        )


def _said(figure: float | None, digits: int) -> str:
    return "too short" if figure is None else f"{figure:,.{digits}f}"
