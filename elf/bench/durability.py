"""``elf bench durability``: what it costs that nothing is lost.

Three figures. The lane of an agent (``elf.bench.lane_side``) over a file, on one core, as in a fleet: lines
to the archive, panes sealed as time goes on, cuts and snapshots to the state file; once waiting for the disk,
once with every sync left out, in turns. And a fleet of real agents with many jobs, whose
``elf_fsyncs_total`` is read twice: how often a second an agent waits for its disk, what that takes on this
disk, and what it would take if each wait took 5 ms. The waits are on threads: a slow disk delays commits, and
no line is read later for it. Last, an agent that starts before a log of that size which it has not read: when
the first window of it is at a subscriber, and at which rate it reads until the last one is.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

import msgspec
from rich.table import Table

from elf.bench.control_fleet import FIRST_US, SECOND_US, ControlFleet
from elf.bench.ingest import Run, Task, measure_side, warm
from elf.bench.metered import read
from elf.cli.printing import console
from elf.cli.processes import ended
from elf.generator.clicks import Clicks
from elf.generator.feed import write_finite

T = TypeVar("T")
QUERY: Final = (
    "SELECT product, SUM(clicks_count) AS c FROM x WHERE store = 'video_games' GROUP BY product "
    "ORDER BY c DESC LIMIT 10 WINDOWING 30 SECONDS"
)
SLOW_MS: Final = 5.0
SETTLE_SECS: Final = 3.0
BACKLOG_US: Final = FIRST_US + 60 * SECOND_US
BLOCK_LINES: Final = 10_000
PROBES: Final = 50


@dataclass(frozen=True)
class Options:
    """``rows`` of generated clicks for the lane; ``jobs`` in ``fragments`` different ones, with windows of
    ``window`` seconds, on ``agents`` agents for ``seconds``; an agent that starts before so many MiB."""

    rows: int = 1_000_000
    repeat: int = 5
    agents: int = 3
    jobs: int = 100
    fragments: int = 10
    window: int = 5
    seconds: float = 20.0
    backlog_mib: int = 1024


def bench_durability(options: Options, *, as_json: bool) -> int:
    """Measure and print. Raises ``ElfError`` when the fleet does not do what is asked of it."""
    with tempfile.TemporaryDirectory(prefix="elf-bench-") as name:
        folder = Path(name)
        lane = _lane(options, folder)
        took_ms = _fsync_ms(folder)
        rates = _on_fleet(folder / "fleet", options.agents, lambda fleet: _fsyncs(fleet, options))
        size = options.backlog_mib << 20
        first_s, lines_per_s = _on_fleet(folder / "late", 1, lambda fleet: _backlog(fleet, size))
    found = {
        "events_per_s": {name: round(options.rows / seconds) for name, seconds in lane.items()},
        "ratio": round(lane["off"] / lane["on"], 4),
        "fsyncs_per_s": [round(rate, 1) for rate in rates],
        "fsync_ms": round(took_ms, 3),
        "share_waiting": round(max(rates) * took_ms / 1e3, 4),
        "share_waiting_at_5_ms": round(max(rates) * SLOW_MS / 1e3, 4),
        "backlog_first_window_s": round(first_s, 2),
        "backlog_lines_per_s": round(lines_per_s),
    }
    _print(options, found)
    if as_json:
        print(json.dumps({**found, "agents": options.agents, "jobs": options.jobs}))
    return 0


def _on_fleet(folder: Path, agents: int, work: Callable[[ControlFleet], Coroutine[None, None, T]]) -> T:
    folder.mkdir()
    with ended() as processes:
        fleet = ControlFleet(processes, folder, agents)
        try:
            return asyncio.run(work(fleet))
        finally:
            fleet.close()


def _lane(options: Options, folder: Path) -> dict[str, float]:
    """Median seconds of the lane, with and without waiting for the disk."""
    path = folder / "clicks.json"
    with path.open("wb") as out:
        write_finite(
            Clicks(1, 0),
            out,
            rows=options.rows,
            start_us=FIRST_US,
            per_second=1000,
            disorder_us=500_000,
            seed=1,
        )
    warm(path)
    on = Task(str(path), "json", QUERY, answer=str(folder / "answer"), archive=True, durable=True)
    sides = {"on": on, "off": msgspec.structs.replace(on, durable=False)}
    runs: dict[str, list[Run]] = {name: [] for name in sides}
    for _ in range(options.repeat):
        for name, task in sides.items():
            runs[name].append(measure_side("lane_side", task))
    return {name: statistics.median(run.seconds for run in found) for name, found in runs.items()}


def _fsync_ms(folder: Path) -> float:
    """What a small write and its sync take here: the median."""
    took = []
    with (folder / "probe").open("wb", buffering=0) as file:
        for _ in range(PROBES):
            file.write(bytes(4096))
            began = time.perf_counter()
            os.fsync(file.fileno())
            took.append(1e3 * (time.perf_counter() - began))
    return statistics.median(took)


async def _fsyncs(fleet: ControlFleet, options: Options) -> list[float]:
    """A second, of each agent."""
    await fleet.start()
    async with fleet.client() as client:
        for number in range(options.jobs):
            least = number % options.fragments
            query = f"SELECT store, COUNT(*) AS n{number} FROM clicks WHERE user >= {least} GROUP BY store"
            await client.sql(f"CREATE JOB job_{number} AS {query} WINDOWING {options.window} SECONDS")
    writing = asyncio.create_task(_write(fleet))
    try:
        await asyncio.sleep(SETTLE_SECS)
        before, began = await read(fleet.running), time.monotonic()
        await asyncio.sleep(options.seconds)
        after, took = await read(fleet.running), time.monotonic() - began
    finally:
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
    return [late.since(early).fsyncs / took for early, late in zip(before, after, strict=True)]


async def _backlog(fleet: ControlFleet, size: int) -> tuple[float, float]:
    """Seconds from an agent's start to the first window of what was written while it was away; lines a second
    until the last one."""
    await fleet.start()
    (agent,), (place,) = fleet.running, fleet.places
    async with fleet.client() as client:
        await client.sql(
            "CREATE JOB late AS SELECT store, COUNT(*) AS n FROM clicks GROUP BY store WINDOWING 10 SECONDS"
        )
    await asyncio.sleep(SETTLE_SECS)
    fleet.signal(agent, signal.SIGTERM)
    await fleet.gone(agent)
    blocks = await asyncio.to_thread(_append, place.clicks, size)
    restarted = await fleet.restart(agent)
    first = last = 0.0
    async with fleet.client() as client:
        async for window in client.subscribe("late"):
            if window.start is not None and window.start.timestamp() * 1e6 >= BACKLOG_US:
                last = time.time()
                first = first or last
                if window.start.timestamp() * 1e6 >= BACKLOG_US + (blocks - 3) * 10 * SECOND_US:
                    break
    return first - restarted.began, blocks * BLOCK_LINES / (last - restarted.began)


def _append(log: BinaryIO, size: int) -> int:
    """About so many bytes, in blocks of ten seconds of event time each, all lines of a block at its start:
    how many blocks."""
    rows = (
        {"ts": "TS", "product": f"product {n % 50}", "store": f"store {n % 3}", "user": n}
        for n in range(BLOCK_LINES)
    )
    block = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    count = max(4, size // len(block))
    for number in range(count):
        at = datetime.fromtimestamp(BACKLOG_US / 1e6 + 10 * number, UTC)
        log.write(block.replace(b"TS", at.isoformat(timespec="milliseconds").encode()))
    return count


async def _write(fleet: ControlFleet) -> None:
    while True:
        fleet.write(time.time_ns() // 1000, 5)
        await asyncio.sleep(0.05)


def _print(options: Options, found: dict[str, object]) -> None:
    jobs = f"{options.jobs} jobs of {options.fragments} fragments on {options.agents} agents"
    table = Table("durability", "", title=f"{jobs}, windows of {options.window} s")
    for name, value in found.items():
        table.add_row(name.replace("_", " "), json.dumps(value))
    console(sys.stdout).print(table)
