"""``elf bench jobs``: what many jobs cost of which few are different, beside those few alone.

Two fleets of real agents, one after the other: one with a job of each different query, one with all jobs,
each query asked so many times under other names. Jobs of equal fragments share a flow, its tree and its
panes; equal jobs share their windows too. The same lines are written beside both. Measured are the creation
of the jobs (so many statements at once, as from one program) and, once all of them run, so many windows: CPU
time of the agents, their messages and waits for the disk, a window; what an agent has in memory afterwards;
and whose masters are where. At the end all jobs of one query are read: they must say the same, each window
once, and ``lag_ms`` is how long after its end a window was at the reader.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from rich.table import Table

from elf.bench.control_fleet import ControlFleet
from elf.bench.figures import percentiles
from elf.bench.metered import Meter, read, resident_mib
from elf.cli.printing import console
from elf.cli.processes import ended
from elf.client import Client, Window
from elf.errors import ElfError, UserError

READ_WINDOWS: Final = 1
"""Of each of the jobs that are compared."""
TRIES: Final = 5
"""Of a statement that was not answered in time."""


@dataclass(frozen=True)
class Options:
    """``jobs`` of ``distinct`` queries on ``agents`` agents in so many ``hosts`` (0: a process each); windows
    of ``window`` seconds, of which ``windows`` are measured; so many statements ``at_once``; so many
    ``lines`` a second of all agents together: each is a chunk of its own, and costs the same however many
    jobs read it."""

    jobs: int = 1000
    distinct: int = 50
    agents: int = 3
    window: int = 5
    windows: int = 6
    at_once: int = 8
    hosts: int = 0
    lines: float = 15.0


@dataclass(frozen=True)
class Found:
    """One fleet's figures. ``create_loop_s``: CPU of the agents' loops while jobs are created; ``again``:
    statements that had to be said again; ``masters``: how many agents have so many."""

    create_s: float
    create_ms: dict[str, float]
    create_loop_s: float
    again: int
    spent: list[Meter]
    mib: list[float]
    masters: dict[int, int]
    lag_ms: dict[str, float]


def bench_jobs(options: Options, *, as_json: bool) -> int:
    """Measure and print. Raises ``ElfError`` when the fleet does not do what is asked of it, or equal jobs
    differ; ``UserError``."""
    if options.distinct > options.jobs:
        raise UserError(f"{options.distinct} different jobs of {options.jobs}: give --jobs as many or more")
    found = {}
    for name, jobs in (("distinct", options.distinct), ("all", options.jobs)):
        with tempfile.TemporaryDirectory(prefix="elf-bench-") as folder, ended() as processes:
            fleet = ControlFleet(processes, Path(folder), options.agents, hosts=options.hosts)
            try:
                found[name] = asyncio.run(_measure(fleet, jobs, options))
            finally:
                fleet.close()
    said = {name: _figures(one, options) for name, one in found.items()}
    _print(options, said)
    if as_json:
        ratios = {key: _ratio(said, key) for key in ("cpu_s_a_window", "messages_a_window")}
        print(json.dumps({**asdict(options), **said, "ratios": ratios}))
    return 0


async def _measure(fleet: ControlFleet, jobs: int, options: Options) -> Found:
    await fleet.start()
    writing = asyncio.create_task(_write(fleet, options.lines))
    try:
        async with fleet.client() as client:
            before, began = await read(fleet.running), time.perf_counter()
            took, again = await _create(client, jobs, options)
            create_s = time.perf_counter() - began
            created = [a.since(b) for a, b in zip(await read(fleet.running), before, strict=True)]
            await _read_equal(client, jobs, options)  # so all of them have begun
            before, now = await read(fleet.running), time.time()
            await asyncio.sleep(options.windows * options.window - (time.time() - now))
            spent = [a.since(b) for a, b in zip(await read(fleet.running), before, strict=True)]
            mib = resident_mib(fleet.running)
            lags = await _read_equal(client, jobs, options)
            listed = (await client.sql("SHOW JOBS")).table
            if listed is None or listed.num_rows != jobs:
                raise ElfError(f"of {jobs} jobs SHOW JOBS lists {0 if listed is None else listed.num_rows}")
    finally:
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
    loads = Counter(listed["master"].to_pylist())
    masters = dict(sorted(Counter(loads[agent.address] for agent in fleet.running).items()))
    loops = _sum(created, "loop_s")
    return Found(create_s, percentiles(took), loops, again, spent, mib, masters, percentiles(lags))


async def _write(fleet: ControlFleet, lines_per_s: float) -> None:
    while True:
        fleet.write(time.time_ns() // 1000, 1)
        await asyncio.sleep(len(fleet.places) / lines_per_s)


async def _create(client: Client, jobs: int, options: Options) -> tuple[list[float], int]:
    """Create all; (milliseconds that each statement took, statements that had to be said again)."""
    numbers, took, again = iter(range(jobs)), [], 0

    async def create() -> None:
        nonlocal again
        for number in numbers:
            began = time.perf_counter()
            for left in reversed(range(TRIES)):
                try:
                    await client.sql(_statement(number, options))
                    break
                except ElfError as error:
                    if "exists already" in str(error):
                        break  # it was created, and the answer came too late
                    again += 1
                    if not left:
                        raise
            took.append(1e3 * (time.perf_counter() - began))

    await asyncio.gather(*(create() for _ in range(options.at_once)))
    return took, again


def _statement(number: int, options: Options) -> str:
    """The same query for all numbers that are equal modulo ``distinct``."""
    least = number % options.distinct
    query = f"SELECT store, COUNT(*) AS n, SUM(clicks) AS c FROM clicks WHERE user >= {least} GROUP BY store"
    return f"CREATE JOB job_{number} AS {query} WINDOWING {options.window} SECONDS LATENESS 0 SECONDS"


async def _read_equal(client: Client, jobs: int, options: Options) -> list[float]:
    """Read some windows of all jobs of the first query: how long after its end each came, in ms. Raises
    ``ElfError`` when two of one window differ."""
    names = [f"job_{number}" for number in range(0, jobs, options.distinct)]
    heard: dict[object, list[Window]] = {}
    lags: list[float] = []

    async def hear(name: str) -> None:
        async for window in client.subscribe(name, READ_WINDOWS + 1):
            if window.end is not None and not window.revision:
                heard.setdefault(window.end, []).append(window)
                lags.append(1e3 * (time.time() - window.end.timestamp()))

    limit = (READ_WINDOWS + 3) * options.window + 60
    with suppress(TimeoutError):
        async with asyncio.timeout(limit):
            await asyncio.gather(*map(hear, names))
            for end, windows in heard.items():
                if len({str(window.table.to_pydict()) for window in windows}) != 1:
                    raise ElfError(f"equal jobs differ in the window that ends at {end}")
            return lags
    raise ElfError(f"not all of {len(names)} equal jobs have {READ_WINDOWS} windows after {limit} s")


def _figures(found: Found, options: Options) -> dict[str, object]:
    """For people and for JSON. Sums of all agents, but for the disk, whose waits are an agent's own."""
    spent, windows = found.spent, options.windows
    return {
        "create_s": round(found.create_s, 2),
        "create_ms": found.create_ms,
        "create_loop_s": round(found.create_loop_s, 2),
        "created_again": found.again,
        "cpu_s_a_window": round(_sum(spent, "cpu_s") / windows, 3),
        "loop_s_a_window": round(_sum(spent, "loop_s") / windows, 3),
        "threads_s_a_window": round(_sum(spent, "threads_s") / windows, 3),
        "messages_a_window": round(_sum(spent, "messages") / windows),
        "bytes_a_window": round(_sum(spent, "sent_bytes") / windows),
        "window_commits_a_window": round(_sum(spent, "windows") / windows, 1),
        "pane_commits_a_window": round(_sum(spent, "panes") / windows, 1),
        "fsyncs_per_s": round(max(one.fsyncs for one in spent) / (windows * options.window), 1),
        "mib": max(found.mib),
        "masters": found.masters,
        "lag_ms": found.lag_ms,
    }


def _sum(spent: Sequence[Meter], what: str) -> float:
    return float(sum(getattr(one, what) for one in spent))


def _ratio(said: dict[str, dict[str, object]], key: str) -> float | None:
    few, many = said["distinct"][key], said["all"][key]
    return round(float(str(many)) / float(str(few)), 2) if few else None


def _print(options: Options, said: dict[str, dict[str, object]]) -> None:
    few, many = (f"{n} jobs" for n in (options.distinct, options.jobs))
    title = f"{options.agents} agents, windows of {options.window} s"
    table = Table("", few, many, "ratio", title=title)
    for name in said["all"]:
        values = [said[side][name] for side in ("distinct", "all")]
        is_number = all(isinstance(value, int | float) for value in values)
        table.add_row(
            name.replace("_", " "), *map(json.dumps, values), str(_ratio(said, name)) if is_number else ""
        )
    console(sys.stdout).print(table)
