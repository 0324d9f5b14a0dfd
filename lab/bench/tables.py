"""``elf bench tables``: how soon a row is found by its key, while lines come and windows go in.

Real agents on loopback, one job of a row a user in windows of two seconds, and its table. Some readers ask
one question after the other, each another agent. Which keys they ask for is drawn as YCSB draws it: all alike
(``uniform``), few often (``zipf``, with the exponent ``--alpha``), or those written last (``latest``). Each
kind asks the leader in SQL, any copy in SQL (``AS OF ANY``), and over HTTP. These readers ask for as much as
the fleet can do; beside them one reader alone asks for any user, and then so many a second are asked for
(``--rate``), whatever becomes of those before them (``lab.bench.tablereaders``). The readers, the agents and
whoever writes the lines share this machine, so the times are those of a machine that is busy: ``busy`` says
by how much, and ``busy_open`` how much while ``--rate`` says when. With ``--change-secs`` there is a second
table, whose key changes (``lab.bench.rekeying``).
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Final

import numpy as np
import psutil
from typer import Option

from elf.client import Client
from elf.errors import ElfError
from lab.bench.control_fleet import FIRST_US, SECOND_US, ControlFleet, on_fleet, written
from lab.bench.options import Agents, Hosts, Repeat
from lab.bench.rekeying import Changed, Rekeying
from lab.bench.runner import Bench, Figure, Report, Scratch, percentiles
from lab.bench.tablereaders import WAYS, Readers, readers
from lab.bench.ycsb import KEYS, drawn

JOB: Final = (
    'CREATE JOB users AS SELECT "user", COUNT(*) AS hits, SUM(clicks) AS clicks, MAX(product) AS product '
    'FROM clicks GROUP BY "user" WINDOWING 2 SECONDS'
)
TABLE: Final = 'CREATE TABLE seen FROM JOB users KEY ("user")'
WRITTEN: Final = 20
"""Lines beside each agent, twice a second, while there are readers."""
RECENT: Final = range(WRITTEN)
"""The users of these lines, which are written again and again."""
WARM: Final = 5
OPEN_SECS: Final = 12.0
"""So long reads come at a rate, in each way."""
TARGET_MS: Final = 5.0
HTTP: Final = {"listen": "127.0.0.1:0", "answers_max": 100_000}


@dataclass(frozen=True)
class Read:
    """Milliseconds of each read, by kind of keys and way; rows in the table; reads that found none; the share
    of the machine that was busy, and how much while reads came at a rate; CPU time for a read (ms) of all
    agents, beside what they take without readers, of whoever reads, and of all agents where one reads."""

    ms: Mapping[str, Sequence[float]]
    rows: int
    missed: int
    busy: float
    cpu_ms: float
    own_ms: float
    one_ms: float
    busy_open: float
    changed: Changed | None = None


@dataclass(frozen=True)
class Tables(Bench[str, Read]):
    """A table that many read."""

    agents: Agents = 16
    hosts: Hosts = 0
    users: Annotated[int, Option("--users", min=1, help="Rows in the table.")] = 20_000
    readers: Annotated[int, Option("--readers", min=1, help="That ask at a time.")] = 4
    reads: Annotated[int, Option("--reads", min=1, help="Of each reader, of each kind and way.")] = 250
    rate: Annotated[float, Option("--rate", min=0, help="Reads a second in an open loop; 0: none.")] = 50
    alpha: Annotated[float, Option("--alpha", min=1.01, help="Of the skewed keys.")] = 1.5
    alone_secs: Annotated[float, Option("--alone-secs", min=0.1, help="Without readers.")] = 5
    change_secs: Annotated[
        float,
        Option("--change-secs", min=0, help="Of each load while a key changes, and while it stays; 0: none."),
    ] = 0
    ring: Annotated[bool, Option("--ring", help="The table whose key changes has a ring.")] = False
    repeat: Repeat = 1

    def sides(self, scratch: Scratch) -> Mapping[str, Callable[[], Read]]:
        """A new fleet for each run."""

        def run() -> Read:
            folder = scratch.folder / f"run-{time.monotonic_ns()}"
            config = {"http": HTTP, "quotas": {"statements_per_sec": 0}}
            more = {f"web-{number:03}": config for number in range(self.agents)}
            return on_fleet(folder, self.agents, self._work, hosts=self.hosts, more=more)

        return {"reads": run}

    async def _work(self, fleet: ControlFleet) -> Read:
        await fleet.start()
        async with AsyncExitStack() as opened:
            clients = [
                await opened.enter_async_context(fleet.client(number % len(fleet.running)))
                for number in range(self.readers)
            ]
            rows = await self._filled(fleet, clients[0])
            await opened.enter_async_context(written(fleet, WRITTEN, 0.5))
            await asyncio.sleep(3)
            agents = [psutil.Process(pid) for pid in sorted({one.pid or 0 for one in fleet.running})]
            before, began = _cpu_secs(agents), time.monotonic()
            await asyncio.sleep(self.alone_secs)
            alone = (_cpu_secs(agents) - before) / (time.monotonic() - began)
            served = [fleet.running[number % len(fleet.running)].http or "" for number in range(self.readers)]
            asking = await readers(clients, served, opened)
            found = await self._measured(asking, agents, rows, alone)
            if self.change_secs:
                load = Rekeying(fleet, clients, self.users, self.change_secs, self.alpha, ring=self.ring)
                found = replace(found, changed=await load.measured(KEYS))
            return found

    async def _filled(self, fleet: ControlFleet, client: Client) -> int:
        """All users have a row; how many there are."""
        await client.sql(JOB)
        await client.sql(TABLE)
        fleet.write(FIRST_US + 4 * SECOND_US, self.users)
        fleet.write(FIRST_US + (60 + self.users // 1_000) * SECOND_US, 1)  # windows end by what is written
        rows = 0
        for _ in range(600):
            shown = (await client.sql("SHOW TABLES")).table
            rows = 0 if shown is None else int(str(shown["rows"][0]))
            if rows >= self.users:
                return rows
            await asyncio.sleep(0.2)
        raise ElfError(f"the table has {rows} rows of {self.users} after two minutes")

    async def _measured(
        self, asking: Readers, agents: Sequence[psutil.Process], rows: int, alone: float
    ) -> Read:
        """``alone``: seconds of CPU a second that the agents take without readers."""
        found: dict[str, list[float]] = {}
        missed, spent = 0, _Spent(agents, alone)
        for kind in KEYS:
            for way in WAYS:
                users = [self._drawn(kind, number) for number in range(self.readers)]
                found[f"{kind} {way}"], none = await asking.closed(way, users, WARM)
                missed += none
        busy, cpu_ms, own_ms = spent.by_read(sum(map(len, found.values())))
        spent = _Spent(agents, alone)
        for way in WAYS:
            found[f"one reader, {way}"], none = await asking.closed(way, [self._drawn("uniform", 0)], 0)
            missed += none
        one_ms = spent.by_read(len(WAYS) * self.reads)[1]
        spent = _Spent(agents, alone)
        for number, way in enumerate(WAYS if self.rate else ()):
            asked = self._drawn("uniform", number, round(self.rate * OPEN_SECS))
            name = f"{self.rate:g} reads a second, {way}"
            found[name], none = await asking.opened(way, asked, self.rate, number)
            missed += none
        busy_open = spent.by_read(1)[0]
        return Read(found, rows, missed, busy, cpu_ms, own_ms, one_ms, busy_open)

    def _drawn(self, kind: str, number: int, many: int | None = None) -> list[int]:
        """Whom a reader asks for."""
        rng = np.random.default_rng(number)
        wanted = range(self.reads if many is None else many)
        return [drawn(kind, rng, self.alpha, self.users, RECENT) for _ in wanted]

    def report(self, runs: Mapping[str, Sequence[Read]]) -> Report:
        """p50 and p99 of each kind of keys and way."""
        (reads,) = runs.values()
        figures = []
        for name in reads[0].ms:
            took = percentiles([ms for run in reads for ms in run.ms[name]])
            figures.append(Figure(f"point read, {name}: p50, p99", (took["p50"], took["p99"]), "ms"))
        changed = [run.changed for run in reads if run.changed is not None]
        figures += [figure for one in changed for figure in _changed(one)]
        slow = [one.what for one in figures if isinstance(one.elf, tuple) and one.elf[1] > TARGET_MS]
        notes = [f"p99 above {TARGET_MS:g} ms: {', '.join(slow)}"] if slow else []
        facts = {
            "agents": self.agents,
            "rows": reads[0].rows,
            "readers": self.readers,
            "reads": sum(len(times) for run in reads for times in run.ms.values()),
            "missed": sum(run.missed for run in reads),
            "busy": round(statistics.median(run.busy for run in reads), 3),
            "agents_cpu_ms_a_read": round(statistics.median(run.cpu_ms for run in reads), 2),
            "readers_cpu_ms_a_read": round(statistics.median(run.own_ms for run in reads), 2),
            "agents_cpu_ms_a_read_of_one_reader": round(statistics.median(run.one_ms for run in reads), 2),
            "busy_open": round(statistics.median(run.busy_open for run in reads), 3),
        }
        details = {"ms": dict(reads[0].ms), "changed": [asdict(one) for one in changed]}
        return Report(facts, figures, notes, details)


def _changed(one: Changed) -> list[Figure]:
    """Of the loads during changes, and of the changes."""
    found: list[Figure] = []
    for what, load in one.loads.items():
        tried, wrote = len(load.changing) + len(load.failed), len(load.writes)
        if tried:
            found.append(
                Figure(f"{what}: reads that succeed, of {tried:,}", 100 * (1 - len(load.failed) / tried), "%")
            )
        if wrote:
            share = 100 * (1 - load.lost / wrote)
            found.append(Figure(f"{what}: writes that succeed, of {wrote:,}", share, "%"))
        if load.changing and load.still:
            still, changing = percentiles(load.still), percentiles(load.changing)
            for of in ("p50", "p99"):
                beside = {"with a key that stays": still[of]}
                found.append(Figure(f"{what}: {of} of reads while it changes", changing[of], "ms", beside))
    found += [Figure(f"another key for {rows:,} rows", secs, "s") for rows, secs in one.took]
    return found


class _Spent:
    """What is taken from now on. ``alone``: seconds of CPU a second that the agents take without readers."""

    def __init__(self, agents: Sequence[psutil.Process], alone: float) -> None:
        self._agents, self._alone = agents, alone
        self._before, self._own, self._began = _cpu_secs(agents), time.process_time(), time.monotonic()
        self._idle = psutil.cpu_times().idle

    def by_read(self, reads: int) -> tuple[float, float, float]:
        """The share of the machine that was busy; milliseconds of CPU by read: of the agents, and ours."""
        secs, cores = time.monotonic() - self._began, os.cpu_count() or 1
        busy = 1 - (psutil.cpu_times().idle - self._idle) / (cores * secs)
        more = max(_cpu_secs(self._agents) - self._before - self._alone * secs, 0.0)
        own = time.process_time() - self._own
        return max(busy, 0.0), 1e3 * more / reads, 1e3 * own / reads


def _cpu_secs(agents: Sequence[psutil.Process]) -> float:
    times = [one.cpu_times() for one in agents]
    return float(sum(one.user + one.system for one in times))
