"""``elf bench peers``: elf, DuckDB and the other engines that are installed, on the same job and one core.

All processes are pinned to one core, and each is asked to run the job over two files: generated clicks, and
their first half. The figure is the steady rate, events of the second half over the time that they add:
start-up, planning and first compilations cancel out. There are files of several lengths. Before the clock
counts each side runs them, from the shortest on, until the second half keeps it busy for ``BUSY_SECONDS``.
It is measured with that length, so that the quick are not measured too shortly, nor the slow for hours.
The sides take turns, medians count. Every answer is compared with DuckDB's, which has the whole file at once.
elf is there twice: it also archives every line, as no other engine does.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import IO, Annotated, Final

import psutil
from typer import Option

from elf.cli.pictures import check_plot
from elf.cli.processes import environment
from elf.errors import ElfError, UserError
from lab.bench.options import Plot, Repeat
from lab.bench.peers.engines import (
    ARCHIVING,
    ELF,
    ENVS,
    ORACLE,
    PEERS,
    Engine,
    chosen,
    how_to_install,
    install,
    lacks_java,
    missing,
    needs_java,
)
from lab.bench.peers.serve import Job, Rows
from lab.bench.plots import draw_bars
from lab.bench.runner import Bench, Figure, Report, Scratch, ratio
from lab.bench.sides import resident_bytes
from lab.bench.sliding import DISORDER_MS, TOP_ROWS, generate


class BenchQuery(StrEnum):
    """``elf bench peers --query``"""

    INGEST = "ingest"
    COMBINED = "combined"
    SLIDING = "sliding"


PRODUCTS: Final = 200_000
PER_HOUR: Final = 2_000_000
ROWS_MIN: Final = 1_000
PARTS: Final = (64, 16, 4, 1)
"""The files have these parts of all events."""
BUSY_SECONDS: Final = 1.5
SECONDS_MIN: Final = 0.05
"""Less is no measurement: the kernel counts processor time in hundredths of a second."""


@dataclass(frozen=True)
class Query:
    """A job, what it counts, and how many events there are for those that are quick."""

    counts: str
    job: Job
    rows: int

    @property
    def title(self) -> str:
        """What it counts, in which windows."""
        every = "" if self.job.tumbles else f" every {self.job.slide_ms // 1000} s"
        return f"{self.counts}, windows of {self.job.size_ms // 1000} s{every}"

    def sized(self, seconds: int) -> Query:
        """The same with windows of so many seconds, as often as before where they slide."""
        size = seconds * 1000
        slide = size if self.job.tumbles else self.job.slide_ms
        return replace(self, job=replace(self.job, size_ms=size, slide_ms=slide))


QUERIES: Final[Mapping[str, Query]] = {
    "ingest": Query(
        "clicks of one store by product",
        Job(30_000, 30_000, "video_games", TOP_ROWS, DISORDER_MS),
        4_000_000,
    ),
    "combined": Query(
        "hits of an access log by page",
        Job(30_000, 30_000, None, TOP_ROWS, DISORDER_MS, "combined"),
        4_000_000,
    ),
    "sliding": Query(
        "clicks by product",
        Job(300_000, 5_000, None, TOP_ROWS, DISORDER_MS),
        1_600_000,
    ),
}


@dataclass(frozen=True)
class Input:
    """A file of so many events, and one of the first half of them."""

    events: int
    whole: Path
    half: Path


@dataclass(frozen=True)
class Reply:
    """One run; CPU and memory are those of the engine's process and all below it."""

    seconds: float
    cpu_seconds: float
    peak_rss_bytes: int
    answer: Rows


@dataclass(frozen=True)
class Round:
    """A run over a half file and one over the whole one, which has so many ``events`` more. ``wrong``: what
    is wrong with an answer; ``failed``: why there is no run."""

    version: str
    half: Reply
    whole: Reply
    events: int = 0
    wrong: str | None = None
    failed: str | None = None

    @property
    def busy_seconds(self) -> float:
        return self.whole.cpu_seconds - self.half.cpu_seconds


NOTHING: Final = Reply(0.0, 0.0, 0, [])
Answers = dict[Path, Rows]
"""DuckDB's, by file."""


class Side:
    """A running engine. It may fail once: then it says no more (elf and DuckDB may not)."""

    def __init__(self, engine: Engine, process: subprocess.Popen[str], errors: IO[str]) -> None:
        self.engine = engine
        self._process, self._errors = process, errors
        self._version, self._failed = "", ""
        self._input: Input | None = None

    def warm(self, job: Job, inputs: Sequence[Input], right: Answers) -> None:
        """Say the job, and run it over files until one is long enough. DuckDB runs it over all of them, and
        is ``right``."""
        with self._dropping_out():
            self._version = str(self._ask(asdict(job)))
            if self.engine == ORACLE:
                right.update(
                    (path, self._run(path).answer) for one in inputs for path in (one.half, one.whole)
                )
            for self._input in inputs:
                if self._both(self._input, right).busy_seconds >= BUSY_SECONDS:
                    break

    def round(self, right: Answers) -> Round:
        """Both files of the length that was chosen, once."""
        if not self._failed and self._input is not None:
            with self._dropping_out():
                return self._both(self._input, right)
        return Round(self._version, NOTHING, NOTHING, failed=self._failed)

    def _both(self, given: Input, right: Answers) -> Round:
        half, whole = self._run(given.half), self._run(given.whole)
        wrong = [differ(half.answer, right[given.half]), differ(whole.answer, right[given.whole])]
        more = given.events - given.events // 2
        return Round(self._version, half, whole, more, next(filter(None, wrong), None))

    def _run(self, path: Path) -> Reply:
        """See ``lab.bench.peers.serve``; while the engine waits its CPU is read."""
        self._ask(str(path))
        before = sum(map(cpu_seconds, family(self._process.pid)))
        seconds = float(str(self._ask("run")))
        spent = sum(map(cpu_seconds, family(self._process.pid))) - before
        peak = sum(map(peak_bytes, family(self._process.pid)))
        answer: Rows = [(start, product, clicks) for start, product, clicks in self._ask("answer")]  # type: ignore[attr-defined]
        return Reply(seconds, spent, peak, answer)

    def _ask(self, what: object) -> object:
        """One line out, one in. Raises ``ElfError`` when the engine has ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps(what), file=self._process.stdin, flush=True)
        if (line := self._process.stdout.readline()).endswith("\n"):
            return json.loads(line)
        self._errors.seek(0)
        said = self._errors.read().strip().splitlines()
        raise ElfError(said[-1] if said else f"status {self._process.wait()}")

    @contextlib.contextmanager
    def _dropping_out(self) -> Iterator[None]:
        try:
            yield
        except ElfError as error:
            self._failed = f"{self.engine.title} failed: {error}"
            if self.engine in (ELF, ARCHIVING, ORACLE):
                raise ElfError(self._failed) from None


def family(pid: int) -> list[psutil.Process]:
    """A process and all below it."""
    first = psutil.Process(pid)
    return [first, *first.children(recursive=True)]


def cpu_seconds(one: psutil.Process) -> float:
    """Also of those of its children that have ended; 0 if it has gone itself."""
    with contextlib.suppress(psutil.NoSuchProcess):
        spent = one.cpu_times()
        return float(spent.user + spent.system + spent.children_user + spent.children_system)
    return 0.0


def peak_bytes(one: psutil.Process) -> int:
    """What it had in memory at most; 0 if it has gone."""
    with contextlib.suppress(OSError):
        return resident_bytes(pid=one.pid)
    return 0


@dataclass(frozen=True)
class Figures:
    """Medians of the rounds, but the highest memory; over so many ``events``. ``spread``: the least and the
    greatest rate a core of all rounds. A rate is None where the runs were too short to tell."""

    version: str
    events: int
    events_per_s: float | None
    events_per_core_s: float | None
    spread: tuple[float, float] | None
    peak_rss_bytes: int
    wrong: str | None


@dataclass(frozen=True)
class Peers(Bench[str, Round]):
    """elf, DuckDB and those engines that are wanted, or installed."""

    query: Annotated[BenchQuery, Option("--query", help="The job.")] = BenchQuery.INGEST
    rows: Annotated[
        int | None,
        Option("--rows", min=1, help="Events of the longest file (4000000, sliding 1600000)."),
    ] = None
    repeat: Repeat = 3
    engines: Annotated[
        list[str] | None, Option("--engines", metavar="NAME...", help="These, not all that are installed.")
    ] = None
    envs: Annotated[Path, Option("--envs", metavar="DIR", help="Where their environments are.")] = ENVS
    plot: Plot = None
    window: Annotated[
        int | None, Option("--window", min=1, help="Seconds of a window (30; sliding 300, every 5).")
    ] = None
    install: Annotated[
        list[str] | None,
        Option("--install", metavar="NAME...", help="Make environments for these, and measure nothing."),
    ] = None
    peers: Sequence[Engine] = PEERS

    def __post_init__(self) -> None:
        """Raises ``UserError``."""
        if self.install:
            return
        if self.plot is not None:
            check_plot(self.plot)
        able, absent = self._known()
        if absent and self.engines is not None:
            raise UserError(how_to_install(absent, self._envs))
        if lacks_java() and (stuck := [peer for peer in able if peer.needs_java]):
            raise UserError(needs_java(stuck))
        if not self._task.job.tumbles and (self.window or 0) * 1000 % self._task.job.slide_ms:
            raise UserError(f"--window {self.window}: windows that slide every 5 s are multiples of that")
        if self._events < ROWS_MIN:
            raise UserError(f"--rows {self._events} is too few to measure: at least {ROWS_MIN}")

    def perform(self, *, as_json: bool) -> int:
        """Also makes environments. Raises ``UserError``."""
        if self.install:
            return install(self.install, self._envs, self.peers)
        return super().perform(as_json=as_json)

    @property
    def _envs(self) -> Path:
        return self.envs.expanduser().absolute()

    @property
    def _task(self) -> Query:
        task = QUERIES[self.query]
        return task if self.window is None else task.sized(self.window)

    @property
    def _events(self) -> int:
        return QUERIES[self.query].rows if self.rows is None else self.rows

    def _known(self) -> tuple[list[Engine], list[Engine]]:
        """The engines that are installed, and those that are not."""
        wanted = chosen(self.engines, self.peers)
        absent = missing(wanted, self._envs)
        return [peer for peer in wanted if peer not in absent], absent

    def sides(self, scratch: Scratch) -> Mapping[str, Callable[[], Round]]:
        """All engines, warm, on one core."""
        job, right = self._task.job, Answers()
        inputs = inputs_in(scratch.folder, self._events, job.format)
        scratch.enter_context(one_core())
        sides = [
            scratch.enter_context(started(engine, self._envs, scratch.folder / engine.name))
            for engine in (ORACLE, ELF, ARCHIVING, *self._known()[0])
        ]
        for side in sides:
            side.warm(job, inputs, right)
        oracle, *others = sides
        order = (*others[:2], oracle, *others[2:])
        return {side.engine.name: lambda side=side: side.round(right) for side in order}  # type: ignore[misc]

    def report(self, runs: Mapping[str, Sequence[Round]]) -> Report:
        """Rates beside elf's. Problems: engines that failed, or whose answer differs."""
        titles = {engine.name: engine.title for engine in (ELF, ARCHIVING, ORACLE, *self.peers)}
        task, absent = self._task, self._known()[1]
        failed = [run.failed for rounds in runs.values() for run in rounds[-1:] if run.failed]
        found = {name: figures(rounds) for name, rounds in runs.items() if not rounds[-1].failed}
        if self.plot is not None:
            rates = {titles[name]: row.events_per_core_s or 0 for name, row in found.items()}
            draw_bars(rates, "events/s of one core", task.title, self.plot)
        rates = {name: row.events_per_core_s for name, row in found.items() if row.events_per_core_s}
        ours = [(name, rates.pop(name, None)) for name in (ELF.name, ARCHIVING.name)]
        what = f"{task.title}, top {task.job.top}: events a core-second"
        also = {ELF.name: "", ARCHIVING.name: ", and all lines archived"}
        beside = {f"{titles[name]} {found[name].version}": rate for name, rate in rates.items()}
        return Report(
            {
                "query": self.query,
                "events": self._events,
                "window_s": task.job.size_ms // 1000,
                "slide_s": task.job.slide_ms // 1000,
                "log_events_per_s": round(PER_HOUR / 3600, 2),
                "repeat": self.repeat,
                "sides": [_facts(name, row, found[ELF.name]) for name, row in found.items()],
                "missing": [engine.name for engine in absent],
            },
            [Figure(f"{what}{also[name]}", rate, "events/s", beside) for name, rate in ours if rate],
            [how_to_install(absent, self._envs)] if absent else [],
            problems=[*failed, *(f"{titles[name]}: {row.wrong}" for name, row in found.items() if row.wrong)],
        )


@contextlib.contextmanager
def started(engine: Engine, envs: Path, scratch: Path) -> Iterator[Side]:
    """An engine's process; it is gone afterwards."""
    scratch.mkdir()
    with (scratch / "errors").open("w+", errors="replace") as errors:
        process = subprocess.Popen(
            engine.command(envs, scratch),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            encoding="utf-8",
            env=environment(),
            cwd=scratch,
        )
        with process:
            try:
                yield Side(engine, process, errors)
            finally:
                process.terminate()


def inputs_in(folder: Path, events: int, format: str) -> list[Input]:
    """The files, the shortest first; none has less than ``ROWS_MIN``, but all of so few."""
    counts = [events // part for part in PARTS if events // part >= ROWS_MIN or part == 1]
    longest = folder / "clicks"
    generate(longest, events, PRODUCTS, PER_HOUR, format)
    paths = {count: folder / f"clicks-{count}" for all in counts for count in (all, all // 2)}
    for count, path in paths.items():
        with longest.open() as lines, path.open("w") as out:
            out.writelines(islice(lines, count))
    longest.unlink()
    return [Input(count, paths[count], paths[count // 2]) for count in counts]


def figures(rounds: Sequence[Round]) -> Figures:
    """The figures of one side."""
    seconds = statistics.median(one.whole.seconds - one.half.seconds for one in rounds)
    spent = [one.busy_seconds for one in rounds]
    cpu, events = statistics.median(spent), rounds[0].events
    return Figures(
        version=rounds[0].version,
        events=events,
        events_per_s=events / seconds if seconds > SECONDS_MIN else None,
        events_per_core_s=events / cpu if cpu > SECONDS_MIN else None,
        spread=(events / max(spent), events / min(spent)) if min(spent) > SECONDS_MIN else None,
        peak_rss_bytes=max(reply.peak_rss_bytes for one in rounds for reply in (one.half, one.whole)),
        wrong=next(filter(None, (one.wrong for one in rounds)), None),
    )


@contextlib.contextmanager
def one_core() -> Iterator[None]:
    """Pin this thread, and with it the processes that it starts, to one core: JVMs see only that one."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


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


def _facts(name: str, row: Figures, elf: Figures) -> dict[str, object]:
    """For people and for JSON; ``elf_times`` are elf's rates over the side's."""
    return {
        "engine": name,
        "version": row.version,
        "events": row.events,
        "events_per_s": row.events_per_s and round(row.events_per_s),
        "events_per_core_s": row.events_per_core_s and round(row.events_per_core_s),
        "spread": row.spread and [round(rate) for rate in row.spread],
        "elf_times": ratio(elf.events_per_s, row.events_per_s, 3),
        "elf_times_core": ratio(elf.events_per_core_s, row.events_per_core_s, 3),
        "peak_rss_bytes": row.peak_rss_bytes,
        "same_answer": row.wrong is None,
    }
