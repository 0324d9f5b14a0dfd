"""``elf bench outputs``: masters are killed while windows go to a real PostgreSQL; is everything there?

Some real agents on loopback; beside each a log that grows all the time, whether its agent lives or not. One
job counts the lines of each log a window, and has an output to a table, from its beginning. Again and again
the job's master is killed with SIGKILL, at any moment, and started again once the next master has brought
windows to the table; the next kill waits until windows miss nobody, and enough agents keep the job. Late rows
revise windows, so in the end each window must have every line. Then each window in the table is compared with
what was written: one that is not there is *missing*, one with other rows *different*.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

from typer import Option

from elf.cli.processes import Agent
from elf.client.results import facts_of
from elf.errors import ElfError
from lab.bench.control_fleet import ControlFleet, on_fleet, until
from lab.bench.failover import JOB, LINES_PER_S, Detect, Ledger, write_lines
from lab.bench.outputs.postgres import PASSWORD, running
from lab.bench.runner import Bench, Figure, Report, Scratch, percentiles

TABLE: Final = "alive"
WAIT_SECS: Final = 90.0
"""For whatever the agents are to do: beyond it the bench gives up."""
ENOUGH: Final = 3
"""Agents that keep the log and the job, before one is killed."""
NEW_WINDOWS: Final = 2
"""That miss nobody must have come to the table after a restart, before the next kill."""
CALM: Final = """SELECT count(*) FROM elf_windows
WHERE window_start > to_timestamp(%s) AND status->'missing' = '[]'"""
COUNTS: Final = f"SELECT extract(epoch FROM window_start) * 1000, agent, n FROM {TABLE}"
WINDOWS: Final = "SELECT extract(epoch FROM window_start) * 1000 FROM elf_windows"


@dataclass(frozen=True)
class Brought:
    """What came of it. ``revised``: windows whose last revision is not the first; ``took``: ms from each kill
    to the next window in the table."""

    windows: int
    missing: int
    different: int
    revised: int
    took: list[float]
    shown: Mapping[str, object]


@dataclass(frozen=True)
class Outputs(Bench[str, Brought]):
    """One fleet whose masters are killed, and every window in the table compared."""

    agents: Annotated[int, Option("--agents", min=3, help="How many agents.")] = 5
    kills: Annotated[int, Option("--kills", min=1, help="How often the master is killed.")] = 200
    window_ms: Annotated[int, Option("--window-ms", min=100, help="Length of a window.")] = 1000
    detect: Annotated[Detect, Option("--detect", help="The agents' cluster.detect.")] = Detect.FAST
    seed: Annotated[int, Option("--seed", help="When agents are killed.")] = 1

    def sides(self, scratch: Scratch) -> Mapping[str, Callable[[], Brought]]:
        """One fleet and one server. Raises ``UserError`` where there is no PostgreSQL."""
        server = scratch.enter_context(running(scratch.folder))
        secrets = scratch.folder / "secrets"
        secrets.mkdir()
        (secrets / "pg").write_text(f"for: {server.url}\n{PASSWORD}")
        return {"elf": partial(self._fleet, scratch.folder, server.url, secrets)}

    def _fleet(self, folder: Path, url: str, secrets: Path) -> Brought:
        settings = {"outputs": {"allow": [url], "secrets": str(secrets)}}
        more = {f"web-{number:03}": settings for number in range(self.agents)}
        return on_fleet(
            folder / "fleet",
            self.agents,
            lambda fleet: Killing(fleet, self, url).run(self.kills),
            detect=self.detect.value,
            more=more,
        )

    def report(self, runs: Mapping[str, Sequence[Brought]]) -> Report:
        """A problem when a window is missing or different."""
        (brought,) = runs["elf"]
        judged = {"windows": brought.windows, "missing": brought.missing, "different": brought.different}
        took = percentiles(brought.took)
        said = (
            f"of {brought.windows} windows {brought.missing} are missing in PostgreSQL, "
            f"{brought.different} are different"
        )
        what = f"{self.agents} agents, {self.kills} masters killed: windows missing, different in PostgreSQL"
        return Report(
            {**asdict(self), **judged, "revised": brought.revised, "next_window_ms": took},
            [
                Figure(what, (brought.missing, brought.different), f"of {brought.windows}"),
                Figure(
                    "from a kill to the next window in PostgreSQL (p50, p99)",
                    (took["p50"], took["p99"]),
                    "ms",
                ),
            ],
            notes=[f"output: {dict(brought.shown)}"],
            problems=[said] if brought.missing or brought.different else [],
        )


class Killing:
    """One fleet whose masters are killed."""

    def __init__(self, fleet: ControlFleet, bench: Outputs, url: str) -> None:
        import psycopg

        self.fleet = fleet
        self.ledger = Ledger(bench.window_ms)
        self._url = url
        self._rng = random.Random(bench.seed)
        self._base: psycopg.Connection[Any] = psycopg.connect(url, password=PASSWORD, autocommit=True)

    async def run(self, kills: int) -> Brought:
        await self.fleet.start()
        began = time.time()
        written = write_lines(self.fleet, self.ledger, len(self.fleet.places) / LINES_PER_S)
        writing = asyncio.create_task(written)
        try:
            await self.fleet.heard("lines read", since=began)  # of which agents know the columns
            await self._create()
            await self._sign(lambda: len(self._windows()) >= NEW_WINDOWS, "windows in PostgreSQL")
            took = [await self._kill() for _ in range(kills)]
            writing.cancel()
            return await self._judged(took)
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
            self._base.close()

    async def _create(self) -> None:
        query = "SELECT agent, COUNT(*) AS n FROM clicks GROUP BY agent"
        windowing = f"WINDOWING {self.ledger.window_ms} MILLISECONDS LATENESS 0 SECONDS"
        async with self.fleet.client() as client:
            await client.sql(f"CREATE JOB {JOB} AS {query} {windowing}")
            options = f"WITH (secret = 'pg', table = '{TABLE}') FROM BEGINNING"
            await client.sql(f"CREATE OUTPUT base FROM JOB {JOB} TO '{self._url}' {options}")

    async def _kill(self) -> float:
        """Kill the master, wait for windows of the next one, start the first one again; ms until the first of
        those windows."""
        master = await self._master()
        await asyncio.sleep(self._rng.random() * 1.5 * self.ledger.window_ms / 1e3)
        known = max(self._windows())
        at = self.fleet.signal(master, signal.SIGKILL)
        await self.fleet.gone(master)
        await self._sign(lambda: max(self._windows()) > known, f"a window after {master.name} was killed")
        took = 1e3 * (time.time() - at)
        await self.fleet.restart(master)
        since = time.time_ns() // 1_000_000
        await self._sign(lambda: self._calm(since), "windows that miss nobody")
        return took

    def _calm(self, since_ms: int) -> bool:
        """Whether windows from then on miss nobody: who was started again takes part."""
        found = self._base.execute(CALM, (since_ms / 1e3,)).fetchone()
        return found is not None and found[0] >= NEW_WINDOWS

    async def _master(self) -> Agent:
        """The job's master, as soon as it may die."""
        deadline = time.monotonic() + WAIT_SECS
        while time.monotonic() < deadline:
            try:
                async with self.fleet.client() as client:
                    members = await _rows(client, "SHOW MEMBERS")
                    facts = facts_of(await client.sql(f"DESCRIBE {JOB}"))
            except ElfError:  # its master has just moved, say
                facts, members = {}, []
            kept = min(sum(bool(one["log"]) for one in members), len(facts.get("kept by", "").split(", ")))
            found = [one for one in self.fleet.running if one.address in facts.get("master", "")]
            if kept >= ENOUGH and found:
                return found[0]
            await asyncio.sleep(0.1)
        raise ElfError(f"the log and {JOB} are not kept by {ENOUGH} agents after {WAIT_SECS:g} s")

    # -- what is in the table --------------------------------------------------------------------------------

    def _windows(self) -> list[int]:
        """The windows that are there, by their start in ms."""
        there = self._base.execute("SELECT to_regclass('elf_windows')").fetchone()
        return [] if there == (None,) else [int(start) for (start,) in self._base.execute(WINDOWS)]

    def _lacking(self) -> tuple[list[int], list[int]]:
        """Windows that are missing, and those that are different, up to the last line."""
        there, counts = set(self._windows()), dict[int, dict[str, int]]()
        for start, agent, n in self._base.execute(COUNTS):
            counts.setdefault(int(start), {})[agent] = n
        wanted = range(min(there), max(self.ledger.written), self.ledger.window_ms)
        missing = [start for start in wanted if start not in there]
        different = [s for s in wanted if s in there and counts.get(s, {}) != self.ledger.written.get(s, {})]
        return missing, different

    async def _judged(self, took: list[float]) -> Brought:
        """As soon as nothing is lacking any more, or after a while."""
        end_us = (max(self.ledger.written) + 60_000) * 1_000  # a last line, far behind: all windows end
        self.fleet.write(end_us, 1)
        deadline = time.monotonic() + WAIT_SECS
        while any(self._lacking()) and time.monotonic() < deadline:
            await asyncio.sleep(0.2)
        missing, different = self._lacking()
        async with self.fleet.client() as client:
            (shown,) = await _rows(client, "SHOW OUTPUTS")
        revised = self._base.execute("SELECT count(*) FROM elf_windows WHERE revision > 0").fetchone()
        windows = len(range(min(self._windows()), max(self.ledger.written), self.ledger.window_ms))
        return Brought(
            windows, len(missing), len(different), 0 if revised is None else revised[0], took, shown
        )

    async def _sign(self, done: Callable[[], bool], of: str) -> None:
        """Wait for it. Raises ``ElfError`` that says how the output and the job are, as the fleet tells."""
        try:
            await until(done, lambda: of, WAIT_SECS, 0.02)
        except ElfError as error:
            told = dict.fromkeys(("SHOW OUTPUTS", "SHOW JOBS", "SHOW MEMBERS", f"DESCRIBE {JOB}"), "")
            for statement in told:
                told[statement] = await self._said(statement)
            raise ElfError(f"{error}; {told}") from None

    async def _said(self, statement: str) -> str:
        try:
            async with self.fleet.client() as client:
                return str(await _rows(client, statement))
        except ElfError as error:
            return str(error)


async def _rows(client: Any, statement: str) -> list[dict[str, object]]:
    table = (await client.sql(statement)).table
    return table.to_pylist() if table is not None else []
