"""``elf bench durability``: what it costs that nothing is lost.

Three figures. The stream task of an agent (``lab.bench.task_side``) over a file, on one core, as in a fleet:
lines to the archive, panes sealed as time goes on, cuts and snapshots to the state file; once waiting for the
disk, once with every sync left out, in turns. And a fleet of real agents with many jobs, whose
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
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, BinaryIO, ClassVar, Final

import msgspec
from typer import Option

from lab.bench.control_fleet import FIRST_US, SECOND_US, ControlFleet, on_fleet, written
from lab.bench.ingest import QUERIES, generated, warm
from lab.bench.measure import Task
from lab.bench.metered import read
from lab.bench.options import Agents, Fragments, Jobs, WindowSeconds
from lab.bench.runner import Bench, Figure, Report, Scratch, median, ratio
from lab.bench.sides import ask
from lab.bench.task_side import run_lane

SLOW_MS: Final = 5.0
SETTLE_SECS: Final = 3.0
BACKLOG_US: Final = FIRST_US + 60 * SECOND_US
BLOCK_LINES: Final = 10_000
PROBES: Final = 50


@dataclass(frozen=True)
class Found:
    """What one run of a side found: the stream task's ``seconds``, the fsyncs a second of each agent of a
    fleet, or how an agent deals with a backlog."""

    seconds: float = 0.0
    rates: Sequence[float] = ()
    first_s: float = 0.0
    lines_per_s: float = 0.0


@dataclass(frozen=True)
class Durability(Bench[str, Found]):
    """A stream task on and off, a fleet, and an agent that starts before a log that it has not read."""

    rows: Annotated[int, Option("--rows", min=1000, help="Clicks for the stream task.")] = 1_000_000
    repeat: Annotated[int, Option("--repeat", min=1, help="Runs of each side; medians.")] = 5
    agents: Agents = 3
    jobs: Jobs = 100
    fragments: Fragments = 10
    window: WindowSeconds = 5
    seconds: Annotated[float, Option("--seconds", min=1, help="How long fsyncs are counted.")] = 20.0
    backlog_mib: Annotated[int, Option("--backlog", min=1, help="MiB before a starting agent.")] = 1024

    once: ClassVar = ("fleet", "backlog")

    def sides(self, scratch: Scratch) -> Mapping[str, Callable[[], Found]]:
        """The stream task on and off; a fleet and an agent, once. Raises ``ElfError`` when they don't do what
        is asked of them."""
        folder = scratch.folder
        path = generated("json", self.rows, folder)
        warm(path)
        on = Task(
            str(path), "json", QUERIES["json"], answer=str(folder / "answer"), archive=True, durable=True
        )
        off = msgspec.structs.replace(on, durable=False)
        return {
            "on": lambda: Found(ask(run_lane, on).seconds),
            "off": lambda: Found(ask(run_lane, off).seconds),
            "fleet": lambda: on_fleet(folder / "fleet", self.agents, self._fsyncs),
            "backlog": lambda: on_fleet(folder / "late", 1, self._backlog),
        }

    def report(self, runs: Mapping[str, Sequence[Found]]) -> Report:
        """Medians of the stream task."""
        task = {name: median(runs[name], "seconds") for name in ("on", "off")}
        (fleet,), (late,) = runs["fleet"], runs["backlog"]
        took_ms, most = _fsync_ms(), max(fleet.rates)
        rates = {name: self.rows / seconds for name, seconds in task.items()}
        jobs = f"{self.jobs} jobs of {self.fragments} fragments on {self.agents} agents"
        return Report(
            {
                "agents": self.agents,
                "jobs": self.jobs,
                "events_per_s": {name: round(rate) for name, rate in rates.items()},
                "ratio": ratio(rates["on"], rates["off"]),
                "fsyncs_per_s": [round(rate, 1) for rate in fleet.rates],
                "fsync_ms": round(took_ms, 3),
                "share_waiting": round(most * took_ms / 1e3, 4),
                "share_waiting_at_5_ms": round(most * SLOW_MS / 1e3, 4),
                "backlog_first_window_s": round(late.first_s, 2),
                "backlog_lines_per_s": round(late.lines_per_s),
            },
            [
                Figure("a stream task with durability", rates["on"], "events/s", {"without": rates["off"]}),
                Figure(f"{jobs}: how often an agent waits for its disk, at most", most, "a second"),
                Figure(f"restart before {self.backlog_mib} MiB: first window", late.first_s, "s"),
                Figure(f"restart before {self.backlog_mib} MiB: all of it", late.lines_per_s, "lines/s"),
            ],
        )

    async def _fsyncs(self, fleet: ControlFleet) -> Found:
        """A second, of each agent."""
        await fleet.start()
        async with fleet.client() as client:
            for number in range(self.jobs):
                least = number % self.fragments
                query = (
                    f"SELECT store, COUNT(*) AS n{number} FROM clicks WHERE user >= {least} GROUP BY store"
                )
                await client.sql(f"CREATE JOB job_{number} AS {query} WINDOWING {self.window} SECONDS")
        async with written(fleet, 5, 0.05):
            await asyncio.sleep(SETTLE_SECS)
            before, began = await read(fleet.running), time.monotonic()
            await asyncio.sleep(self.seconds)
            after, took = await read(fleet.running), time.monotonic() - began
        return Found(
            rates=[late.since(early).fsyncs / took for early, late in zip(before, after, strict=True)]
        )

    async def _backlog(self, fleet: ControlFleet) -> Found:
        """Seconds from an agent's start to the first window of what was written while it was away; lines a
        second until the last one."""
        await fleet.start()
        (agent,), (place,) = fleet.running, fleet.places
        async with fleet.client() as client:
            await client.sql(
                "CREATE JOB late AS SELECT store, COUNT(*) AS n FROM clicks GROUP BY store "
                "WINDOWING 10 SECONDS"
            )
        await asyncio.sleep(SETTLE_SECS)
        fleet.signal(agent, signal.SIGTERM)
        await fleet.gone(agent)
        blocks = await asyncio.to_thread(_append, place.clicks, self.backlog_mib << 20)
        restarted = await fleet.restart(agent)
        first = last = 0.0
        async with fleet.client() as client:
            async for window in client.subscribe("late"):
                if window.start is not None and window.start.timestamp() * 1e6 >= BACKLOG_US:
                    last = time.time()
                    first = first or last
                    if window.start.timestamp() * 1e6 >= BACKLOG_US + (blocks - 3) * 10 * SECOND_US:
                        break
        began = restarted.began
        return Found(first_s=first - began, lines_per_s=blocks * BLOCK_LINES / (last - began))


def _fsync_ms() -> float:
    """What a small write and its sync take here: the median."""
    took = []
    with tempfile.NamedTemporaryFile(buffering=0) as file:
        for _ in range(PROBES):
            file.write(bytes(4096))
            began = time.perf_counter()
            os.fsync(file.fileno())
            took.append(1e3 * (time.perf_counter() - began))
    return statistics.median(took)


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
