"""``elf bench copies``: what eager copies cost, and what they save (``protocol.copies``).

Two fleets of real agents on loopback, one with lazy copies and one with eager ones, one after the other. A
log grows beside each agent, and one job counts it by page, in long windows. Measured are the CPU of all
agents and the bytes of copies that they send. Then, late in a window, an agent that is neither the job's
master nor read from is killed, and its data folder deleted. What was written beside it in that window and is
not in the window's last revision is lost.
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Annotated, Final

import psutil
from typer import Option

from elf.cli.processes import Agent
from elf.client import Window, connect
from elf.errors import ElfError
from lab.bench.control_fleet import CLUSTER, ControlFleet, on_fleet, until
from lab.bench.metered import counts
from lab.bench.options import Repeat
from lab.bench.runner import Bench, Figure, Report, Scratch

MODES: Final = ("lazy", "eager")
JOB: Final = "pages"
PAGES: Final = 500
WRITE_SECS: Final = 0.1
SHARE: Final = 0.7
"""How far into its window the agent is killed."""
REVISED_SECS: Final = 10.0
"""After a window's first word: by then copies have been asked for, and have come."""
SENT: Final = "elf_copies_sent_bytes_total"


@dataclass(frozen=True)
class Cost:
    """Of one fleet: cores of all agents together, bytes of copies a second; rows written beside the agent
    in the window in which it was killed, and those of them that are lost. ``covered``: the window names it
    so."""

    cores: float
    copied_bytes: float
    written: int
    lost: int
    covered: bool


@dataclass(frozen=True)
class Copies(Bench[str, Cost]):
    """Lazy beside eager copies."""

    agents: Annotated[int, Option("--agents", min=4, help="How many agents.")] = 5
    window_secs: Annotated[int, Option("--window-secs", min=4, help="Length of a window.")] = 60
    rate: Annotated[int, Option("--rate", min=10, help="Lines a second beside each agent.")] = 500
    secs: Annotated[int, Option("--secs", min=2, help="For how long CPU is measured.")] = 30
    seed: Annotated[int, Option("--seed", help="Which pages are asked for.")] = 1
    repeat: Repeat = 1

    def sides(self, scratch: Scratch) -> Mapping[str, Callable[[], Cost]]:
        """A fleet each time."""
        number = iter(range(1 << 30))

        def run(mode: str) -> Cost:
            names = [f"web-{place:03}" for place in range(self.agents)]
            more = {name: {"protocol": {"copies": mode}} for name in names}
            folder = scratch.folder / f"{mode}-{next(number)}"
            return on_fleet(folder, self.agents, lambda fleet: Losing(fleet, self).run(), more=more)

        return {mode: lambda mode=mode: run(mode) for mode in MODES}  # type: ignore[misc]

    def report(self, runs: Mapping[str, Sequence[Cost]]) -> Report:
        """A problem where more rows are in a window than were written."""
        best = {mode: min(one.cores for one in found) for mode, found in runs.items()}
        more = best["eager"] / best["lazy"] - 1
        lost = {mode: max(one.lost for one in found) for mode, found in runs.items()}
        sent = {mode: max(one.copied_bytes for one in found) for mode, found in runs.items()}
        what = f"{self.agents} agents, {self.rate} lines/s each, windows of {self.window_secs} s"
        beside = {"lazy": lost["lazy"], "written in a second": self.rate}
        named = all(one.covered for one in runs["eager"])
        problems = [f"{mode}: {-rows} rows too many" for mode, rows in lost.items() if rows < 0]
        problems += [] if named else ["a window does not say that it has an agent up to its last copy"]
        return Report(
            {**asdict(self), "cores": best, "more_cpu": more, "lost_rows": lost, "copied_bytes_s": sent},
            [
                Figure(f"{what}: rows lost with an agent and its disk", lost["eager"], "rows", beside),
                Figure(f"{what}: CPU of all agents", best["eager"], "cores", {"lazy": best["lazy"]}),
                Figure(f"{what}: copies, at two neighbours", sent["eager"], "B/s", {"lazy": sent["lazy"]}),
            ],
            details={mode: [asdict(one) for one in found] for mode, found in runs.items()},
            problems=problems,
        )


class Losing:
    """One fleet that loses an agent."""

    def __init__(self, fleet: ControlFleet, bench: Copies) -> None:
        self.fleet = fleet
        self._bench = bench
        self._rng = random.Random(bench.seed)
        self._window_ms = 1_000 * bench.window_secs
        self._written: dict[tuple[str, int], int] = {}
        """Rows by agent and start of their window (ms)."""
        self._last: dict[int, Window] = {}
        """Each window's last revision, by its start (ms)."""
        self._dead = ""

    async def run(self) -> Cost:
        """See the module's docstring."""
        await self.fleet.start()
        began = time.time()
        tasks = [asyncio.create_task(self._write())]
        try:
            await self.fleet.heard("lines read", since=began)
            query = "SELECT agent, page, COUNT(*) AS n FROM clicks GROUP BY agent, page"
            windowing = f"WINDOWING {self._bench.window_secs} SECONDS LATENESS 1 SECONDS"
            async with self.fleet.client() as client:
                await client.sql(f"CREATE JOB {JOB} AS {query} {windowing}")
            reader = self.fleet.running[-1]
            tasks.append(asyncio.create_task(self._read(reader)))
            await self._heard_of_one()
            before, at = self._spent(), time.monotonic()
            await asyncio.sleep(self._bench.secs)
            took = time.monotonic() - at
            cores, copied = ((now - was) / took for now, was in zip(self._spent(), before, strict=True))
            return await self._lose(reader, cores, copied)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _lose(self, reader: Agent, cores: float, copied: float) -> Cost:
        """Kill an agent late in a window, and see what the window has of it."""
        master = self._last[max(self._last)].master
        victim = next(one for one in self.fleet.running if one is not reader and one.name != master)
        into = (time.time() * 1e3 / self._window_ms) % 1
        await asyncio.sleep(((SHARE - into) % 1) * self._bench.window_secs)
        start = int(time.time() * 1e3) // self._window_ms * self._window_ms
        self._dead = victim.name
        self.fleet.signal(victim, signal.SIGKILL)
        await self.fleet.gone(victim)
        place = next(place for place in self.fleet.places if place.name == victim.name)
        shutil.rmtree(place.folder / "data")
        limit_secs = 2.0 * self._bench.window_secs + 60
        await until(lambda: start in self._last, lambda: "the window in which it was killed", limit_secs)
        await asyncio.sleep(REVISED_SECS)
        window, written = self._last[start], self._written[victim.name, start]
        rows = zip(window.table["agent"].to_pylist(), window.table["n"].to_pylist(), strict=True)
        there = sum(count for agent, count in rows if agent == victim.name)
        covered = victim.name in (window.status.get("covered") or ())  # type: ignore[operator]
        return Cost(cores, copied, written, written - there, covered)

    async def _write(self) -> None:
        """Lines beside every agent that lives, as they come."""
        due = time.time()
        while True:
            now_ms = int(time.time() * 1e3)
            ts = datetime.fromtimestamp(now_ms / 1e3, UTC).isoformat(timespec="milliseconds")
            lines = round(self._bench.rate * WRITE_SECS)
            for place in self.fleet.places:
                if place.name == self._dead:
                    continue
                rows = (
                    {"ts": ts, "agent": place.name, "page": self._rng.randrange(PAGES)} for _ in range(lines)
                )
                place.clicks.write(b"".join(json.dumps(row).encode() + b"\n" for row in rows))
                key = place.name, now_ms // self._window_ms * self._window_ms
                self._written[key] = self._written.get(key, 0) + lines
            due += WRITE_SECS
            await asyncio.sleep(max(0.0, due - time.time()))

    async def _read(self, agent: Agent) -> None:
        with suppress(ElfError):
            async with connect(agent.address, cluster=CLUSTER) as client:
                async for window in client.subscribe(JOB):
                    if window.start is not None:
                        start = round(window.start.timestamp() * 1e3)
                        known = self._last.get(start)
                        if known is None or window.revision > known.revision:
                            self._last[start] = window

    async def _heard_of_one(self) -> None:
        limit_secs = 2.0 * self._bench.window_secs + 60
        await until(lambda: self._last, lambda: "a window", limit_secs, 0.1)

    def _spent(self) -> tuple[float, float]:
        """Seconds of CPU, and bytes of copies sent, of all agents since their start."""
        pids = [agent.pid for agent in self.fleet.running if agent.pid is not None]
        times = [psutil.Process(pid).cpu_times() for pid in pids]
        copied = sum(counts(agent.http or "").get(SENT, 0.0) for agent in self.fleet.running)
        return sum(one.user + one.system for one in times), copied
