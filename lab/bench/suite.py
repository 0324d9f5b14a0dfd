"""``elf bench all``: every bench, each by its own command, and the page that their figures make.

The sizes are those with which all of it takes about half an hour on two cores. A bench that fails has its
message in the page, and the others go on.
"""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import psutil
from typer import Option

from elf import __version__
from elf.cli.processes import ROOT, Processes, ended
from elf.errors import UserError
from lab.bench.runner import HEADS, Bench, Figure, Report, Scratch
from lab.bench.sides import clocked

INGEST_SMALL: Final = "--rows 20000 --repeat 1"
FULL: Final[Mapping[str, Sequence[str]]] = {
    "ingest": (
        "",
        "--format combined",
        "--jobs 100 --distinct 10",
        "--cores 2 --rows 2000000",
        "--archive",
    ),
    "cbt": ("", "--keys unique --distinct 4000000 --repeat 1"),
    "sliding": ("",),
    "windows": ("",),
    "graph": ("--repeat 1",),
    "sharing": ("", "--short 60 --long 600"),
    "topk": ("", "--agents 64", "--agents 64 --skew 0.5"),
    "history": ("--agents 4",),
    "plan": ("",),
    "samples": ("",),
    "offline": ("--repeat 1", "--format json --repeat 1"),
    "queue": ("--repeat 1",),
    "peers": ("--repeat 1", "--query combined --repeat 1", "--query sliding --repeat 1"),
    "idle": ("",),
    "guest": ("",),
    "within": ("",),
    "page": ("",),
    "tables": ("--change-secs 10",),
    "campaign": ("--agents 32",),
    "control": ("--agents 16 --rounds 8",),
    "security": ("--agents 16 --rounds 8 --repeat 1",),
    "fuzz": (
        "--frames 100000",
        "--keys none --frames 400000 --known 0.2",
        "--keys reader --frames 400000 --known 0.2",
    ),
    "native": ("--lines 1000000",),
    "jobs": ("--window 10 --windows 3",),
    "failover": ("--agents 16 --strikes 6", "--agents 16 --strikes 6 --detect fast"),
    "copies": ("",),
    "wan": ("",),
    "outputs": ("--kills 20",),
    "offload": ("",),
    "since": ("",),
    "stages": ("",),
    "durability": ("",),
    "differential": ("--queries 300",),
    "rotation": ("--quick",),
    "inputs": ("",),
}
"""By bench, the options of each command."""
QUICK: Final[Mapping[str, Sequence[str]]] = {
    "ingest": (INGEST_SMALL, f"--format combined {INGEST_SMALL}"),
    "cbt": ("--distinct 1000 --rows 20000 --repeat 1",),
    "sliding": ("--rows 3000 --products 50 --slide 50 --repeat 1",),
    "windows": ("--rows 3000 --products 50 --repeat 1",),
    "graph": ("--edges 2000 --vertices 300 --repeat 1",),
    "sharing": ("--rows 3000 --products 50 --short 60 --long 600 --repeat 1",),
    "topk": ("--rows 2000 --keys 500 --panes 2",),
    "history": ("--agents 2 --hours 1 --rate 1 --windows 2",),
    "plan": ("--jobs 24 --distinct 4 --repeat 1",),
    "samples": ("--rows 20000 --visitors 2000 --pages 50",),
    "offline": ("--rows 2000 --repeat 1",),
    "queue": ("--rows 4000 --days 1 --production-days 1 --repeat 1",),
    "peers": ("--rows 1000 --repeat 1",),
    "idle": ("--seconds 1",),
    "guest": ("--seconds 1 --repeat 2 --settle 0 --jobs 2 --rate 100",),
    "within": ("--only planner --only 'word count' --agents 1 --rate 100 --seconds 5 --repeat 1",),
    "page": ("--seconds 1 --subscribers 3 --no-browser",),
    "tables": ("--agents 2 --users 50 --readers 2 --reads 5 --rate 0 --change-secs 0.5",),
    "campaign": ("--agents 3 --hosts 1 --window 1 --windows 2 --no-spark",),
    "control": ("--agents 3 --rounds 1",),
    "security": ("--agents 2 --rounds 1 --rows 1000 --repeat 1",),
    "fuzz": ("--frames 400",),
    "native": ("--lines 3000",),
    "jobs": ("--jobs 6 --distinct 2 --window 1 --windows 3",),
    "failover": ("--agents 3 --strikes 2 --window-ms 500 --detect fast",),
    "copies": ("--agents 4 --window-secs 4 --rate 50 --secs 2",),
    "wan": ("--seconds 20 --agents 1 --rate 50",),
    "outputs": ("--agents 3 --kills 1 --window-ms 500",),
    "offload": ("--rate 200 --us 50 --seconds 2 --roll-secs 1",),
    "since": ("--agents 3 --minutes 3 --repeat 1",),
    "stages": ("--agents 4 --trees 2 --groups 200 --products 20 --windows 1",),
    "durability": (
        "--rows 20000 --repeat 1 --agents 1 --jobs 2 --distinct 2 --window 1 --seconds 3 --backlog 8",
    ),
    "differential": ("--queries 2",),
    "rotation": ("--only compress/alive/100 --writer python",),
    "inputs": ("--seconds 4 --rate 50 --only http",),
}
"""The same, as small as they can be."""
PAPER: Final = """\
## The paper's figures

The figures of the ELF paper's evaluation (its section 4) come from one command of their own:

    elf bench paper --out figures
    elf bench paper --out figures --figure 10a,11 --agents-max 16 --simulated-max 1280
    elf bench paper --quick --json

`--out` is a folder for `index.html` (one page that needs no network), `paper.json` and the pictures, which
need matplotlib (`pip install elf-stream[bench]`). The page begins with where elf loses, to an engine beside
it or to what the paper reported; then comes what was not measured, and why; then each figure with the
paper's words beside ours, its commands, its seed, the machine, and what its points spread over. Figures that
the folder has already stay until they are measured again. With `--json` the last line of standard output is
one object that has each figure under its number: `10a`, `10b`, `10c`, `11`, `12a`, `12b`, `12c`, `13a`,
`13b`, `13c` and `4.1`. `--quick` runs each figure as small as it can be, which shows that it runs and
measures nothing; it takes some five minutes on two cores.

Every figure is made of other benches' answers, so each of its points can be measured again by its command.
Flink and Spark Structured Streaming stand beside elf where `elf bench peers --install flink spark` has
installed them (`--envs` says where), Google's hash maps where g++ and libsparsehash-dev are, rsyslog as the
shipper where it is (`apt-get install rsyslog`): what is missing is named. Real agents are 4, 16 and 64 at
most (`--agents-max`), simulated ones 64 to 10,240 (`--simulated-max`; 1,280 where jobs are at work): whole
nodes on virtual time, whose CPU is measured and charged. All of it takes hours, most of them for the
simulated fleets and for 300 s windows in other engines.
"""
"""What the page says of the bench that has a page of its own."""


@dataclass(frozen=True)
class Ran:
    """One command: what it found, or why it failed; how long it took; the JSON object that it ended with."""

    command: str
    figures: Sequence[Figure]
    seconds: float
    failed: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Suite(Bench[str, Ran]):
    """A command each."""

    only: Annotated[
        list[str] | None, Option("--only", metavar="NAME", help="These benches only; repeat it.")
    ] = None
    quick: Annotated[
        bool, Option("--quick", help="As small as they can be: to try them, not to measure.")
    ] = False
    markdown: Annotated[
        Path | None, Option("--markdown", metavar="FILE", help="Write the table there: docs/benchmarks.md.")
    ] = None

    def __post_init__(self) -> None:
        """Raises ``UserError``."""
        for name in self.only or ():
            if name not in FULL:
                raise UserError(f"--only {name}: there are {', '.join(FULL)}")
        if self.markdown is not None and not self.markdown.absolute().parent.is_dir():
            raise UserError(f"--markdown {self.markdown}: there is no such folder")

    def sides(self, scratch: Scratch) -> Mapping[str, Callable[[], Ran]]:
        """A command each."""
        sizes = QUICK if self.quick else FULL
        commands = [
            f"elf bench {name} {words}".strip() for name in self.only or sizes for words in sizes[name]
        ]
        processes, log = scratch.enter_context(ended()), scratch.folder / "errors"
        return {command: partial(run, command, processes, log) for command in commands}

    def report(self, runs: Mapping[str, Sequence[Ran]]) -> Report:
        """All figures. Problems: commands that failed."""
        ran, where = [one for (one,) in runs.values()], machine()
        if self.markdown is not None:
            self.markdown.write_text(page(where, ran), encoding="utf-8")
        figures = [figure for one in ran for figure in one.figures]
        return Report(where, figures, problems=[one.failed for one in ran if one.failed])


def run(command: str, processes: Processes, log: Path) -> Ran:
    """Run one command and read its figures; what else it says is in the log."""
    print(command, file=sys.stderr, flush=True)
    words = [*shlex.split(command)[1:], "--json"]
    log.unlink(missing_ok=True)
    with clocked() as clock:
        child = processes.start(command, "elf.cli.main", words, log, talks=True)
        out, _ = child.process.communicate()
    processes.stop([child])
    facts: dict[str, Any] = {}
    if (lines := out.splitlines()) and lines[-1].startswith(b"{"):
        facts = msgspec.json.decode(lines[-1])
    figures = msgspec.convert(facts.get("figures", []), list[Figure])
    if child.process.returncode == 0:
        return Ran(command, figures, clock.seconds, facts=facts)
    said = log.read_text(errors="replace").strip().splitlines() or [f"status {child.process.returncode}"]
    return Ran(command, figures, clock.seconds, f"{command}: {said[-1].strip()}", facts)


def table(ran: Sequence[Ran]) -> Iterator[tuple[str, ...]]:
    """A row a figure, and one for each command that failed."""
    for one in ran:
        yield from ((*figure.cells(), f"`{one.command}`") for figure in one.figures)
        if one.failed:
            yield f"**failed**: {one.failed}", "", "", "", f"`{one.command}`"


def page(where: Mapping[str, str], ran: Sequence[Ran]) -> str:
    """As Markdown."""
    seconds = sum(one.seconds for one in ran)
    lines = [
        "# Benchmarks",
        "",
        "<!-- Made by `elf bench all --markdown docs/benchmarks.md`: do not edit, measure again. -->",
        "",
        "One machine, one commit, one run. A ratio is elf's figure over the baseline's; figures are medians",
        f"unless they say otherwise. All commands took {seconds / 60:.0f} minutes.",
        "",
        *(f"- {name}: {fact}" for name, fact in where.items()),
        "",
        PAPER,
        "## All benches",
        "",
        f"| {' | '.join((*HEADS, 'command'))} |",
        f"|{'---|' * (len(HEADS) + 1)}",
    ]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in table(ran)]
    return "\n".join(lines) + "\n"


def machine() -> dict[str, str]:
    """Where and when, and of which elf."""
    gib = psutil.virtual_memory().total / (1 << 30)
    return {
        "machine": f"{len(os.sched_getaffinity(0))} cores ({_processor()}), {gib:.0f} GiB",
        "system": f"Linux {platform.release()}, Python {platform.python_version()}",
        "elf": f"{__version__}, {_commit()}",
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


def _commit() -> str:
    """The commit that this code is of, and whether it was changed since."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty=, changed", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "no commit"
    return f"commit {done.stdout.strip()}"
