"""``elf bench idle``: what an agent takes from its host while nobody writes a line, or few are written.

One real ``elf-agent`` process without a job and without an archive, of which nobody wants anything; then
another one, which archives, with a job: it was asked for the job itself (so it has parsed the statement), is
its job group and its master, and has committed windows of the one line that was written. With ``--rate``
lines are written meanwhile, one at a time as a web server does that has visitors; ``--rate`` may be repeated,
and each further one is a further span of the agent with its job. With ``--shipper`` rsyslog takes the agent's
place and sends the same lines on. CPU is user and system time over the span; PSS is the kernel's proportional
share, RSS is what PSS would be if no other process mapped the same libraries. So this process imports none of
them: run it where no other agent runs."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import psutil
from typer import Option

from elf.cli.processes import ended
from lab.bench import shipper
from lab.bench.oneagent import OneAgent
from lab.bench.runner import Bench, Figure, Report, Scratch

SETTLE_SECS: Final = 5.0
JOB: Final = "CREATE JOB busy AS SELECT page, COUNT(*) AS n FROM log GROUP BY page WINDOWING 5 SECONDS"
UNITS: Final = {
    "cpu_percent": "% of a core",
    "pss_mib": "MiB PSS",
    "writes_per_s": "writes/s",
    "switches_per_s": "context switches/s",
}
APART_SECS: Final = 0.01
"""Lines are written so far apart at least: each alone, until more than one is due."""


@dataclass(frozen=True)
class Idle(Bench[str, dict[str, float]]):
    """An agent without a job, and then with one; a shipper of lines in its place."""

    seconds: Annotated[float, Option("--seconds", min=1, help="How long each time.")] = 30
    rates: Annotated[
        list[float] | None,
        Option("--rate", min=0, help="Lines a second that are written meanwhile; repeat it for a table."),
    ] = None
    shipper: Annotated[bool, Option("--shipper", help="Also: rsyslog in the agent's place.")] = False

    def __post_init__(self) -> None:
        """Raises ``UserError``."""
        if self.shipper:
            shipper.program()

    def sides(self, scratch: Scratch) -> Mapping[str, Callable[[], dict[str, float]]]:
        """An agent that is ready, for each; the last one is gone before the shipper starts."""
        processes = scratch.enter_context(ended())
        agent = Agent(processes, scratch.folder)
        agent.start(archive=False)

        first, *others = self._rates

        def span(process: psutil.Process, rate: float) -> dict[str, float]:
            with written(scratch.folder / "a.log", rate):
                return measured(process, self.seconds)

        def reads(rate: float) -> dict[str, float]:
            return span(agent.process, rate)

        def busy() -> dict[str, float]:
            agent.stop()
            agent.start(archive=True)
            agent.give_job()
            return reads(first)

        def ships() -> dict[str, float]:
            agent.stop()
            with shipper.ships(processes, scratch.folder, "*.log") as child:
                return span(psutil.Process(child.process.pid), first)

        beside = {"shipper": ships} if self.shipper else {}
        return {
            "no_job": partial(reads, first),
            "one_job": busy,
            **{f"one_job_{rate:g}": partial(reads, rate) for rate in others},
            **beside,
        }

    @property
    def _rates(self) -> list[float]:
        return self.rates or [0.0]

    def report(self, runs: Mapping[str, Sequence[dict[str, float]]]) -> Report:
        """All of them."""
        found = {name: run for name, (run,) in runs.items()}
        beside = found.get("shipper")
        first, *others = self._rates
        spans = [("no_job", first), ("one_job", first), *((f"one_job_{rate:g}", rate) for rate in others)]
        return Report(
            {"seconds": self.seconds, "rate": first, **found},
            [
                Figure(
                    f"{_at(rate)}, {'no' if name == 'no_job' else 'one'} job",
                    found[name][fact],
                    unit,
                    {"rsyslog": beside[fact]} if beside and rate == first else {},
                )
                for name, rate in spans
                for fact, unit in UNITS.items()
            ],
        )


def _at(rate: float) -> str:
    return f"an agent that reads {rate:g} lines/s" if rate else "an idle agent"


@contextmanager
def written(log: Path, rate: float) -> Iterator[None]:
    """So many lines a second are appended to a log, with the time of the clock, while the block goes on."""
    over = threading.Event()

    def write() -> None:
        began, done = time.monotonic(), 0
        with log.open("ab", buffering=0) as out:
            while not over.wait(max(APART_SECS, 1 / rate)):
                due = int(rate * (time.monotonic() - began))
                now = datetime.now(UTC).isoformat()
                out.write(b"".join(_line(now, number) for number in range(done, due)))
                done = due

    writer = threading.Thread(target=write)
    if rate:
        writer.start()
    try:
        yield
    finally:
        over.set()
        if rate:
            writer.join()


def _line(now: str, number: int) -> bytes:
    return json.dumps({"ts": now, "page": f"/{number % 50}"}).encode() + b"\n"


def measured(process: psutil.Process, seconds: float) -> dict[str, float]:
    """A process's figures over a span, after a while in which it comes to rest: what it takes of a core and
    of memory, its writes (calls, and what goes to the disk), and the context switches of all its threads."""
    time.sleep(SETTLE_SECS)
    began, before, disk, switched = (
        time.monotonic(),
        process.cpu_times(),
        process.io_counters(),
        _switches(process),
    )
    time.sleep(seconds)
    secs, after, memory = time.monotonic() - began, process.cpu_times(), process.memory_full_info()
    cpu = after.user + after.system - before.user - before.system
    wrote = process.io_counters()
    return {
        "cpu_percent": round(100 * cpu / secs, 2),
        "pss_mib": round(memory.pss / (1 << 20), 1),
        "rss_mib": round(memory.rss / (1 << 20), 1),
        "threads": process.num_threads(),
        "writes_per_s": round((wrote.write_count - disk.write_count) / secs, 2),
        "written_kib_per_s": round((wrote.write_bytes - disk.write_bytes) / 1024 / secs, 1),
        "switches_per_s": round((_switches(process) - switched) / secs, 1),
    }


def _switches(process: psutil.Process) -> int:
    """Of its own will and not, of all threads that there are (the kernel tells a process's of its first)."""
    found = 0
    for status in Path(f"/proc/{process.pid}/task").glob("*/status"):
        with suppress(OSError):  # a thread that has just ended
            for line in status.read_text().splitlines():
                if "ctxt_switches:" in line:
                    found += int(line.split()[1])
    return found


class Agent(OneAgent):
    """An agent that reads the logs of its folder."""

    def start(self, *, archive: bool, http: Mapping[str, object] = {}) -> None:
        """With an empty data folder; it is ready then. ``http``: more settings of that section."""
        folder = self._folder
        log = {"include": [str(folder / "*.log")], "format": "json", "idle_timeout_secs": 1}
        settings = {
            "data_dir": str(folder / f"data-{archive}"),
            "archive": {"enabled": archive},
            "streams": {"log": log},
        }
        self.run("idle", http, settings)

    def give_job(self, job: str = JOB) -> None:
        """Write a line, create the job ``busy``, wait for its first window."""
        line = {"ts": datetime.now(UTC).isoformat(), "page": "/"}
        with (self._folder / "a.log").open("a", encoding="utf-8") as log:
            log.write(json.dumps(line) + "\n")
        self.perform(job)
        self.perform("SUBSCRIBE busy", "--windows", "1")
