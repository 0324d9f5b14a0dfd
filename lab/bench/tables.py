"""``elf bench tables``: how soon a row is found by its key, while lines come and windows go in.

Real agents on loopback, one job of a row a user in windows of two seconds, and its table. Some readers ask
one question after the other, each another agent. Which keys they ask for is drawn as YCSB draws it: all alike
(``uniform``), few often (``zipf``, with the exponent ``--alpha``), or those written last (``latest``). Each
kind asks the leader in SQL, any copy in SQL (``AS OF ANY``), and over HTTP. The readers, the agents and
whoever writes the lines share this machine, so the times are those of a machine that is busy: ``busy`` says
by how much. With ``--change-secs`` there is a second table, whose key changes (``lab.bench.rekeying``).
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
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
TARGET_MS: Final = 5.0
HTTP: Final = {"listen": "127.0.0.1:0", "answers_max": 100_000}
WAYS: Final = ("sql", "any", "http")
Ask = Callable[[int], Awaitable[int]]
"""Asks for a user; returns how many rows there are."""


@dataclass(frozen=True)
class Read:
    """Milliseconds of each read, by kind of keys and way; rows in the table; reads that found none; the share
    of the machine that was busy; CPU time of all agents for a read (ms), beside what they take without
    readers."""

    ms: Mapping[str, Sequence[float]]
    rows: int
    missed: int
    busy: float
    cpu_ms: float
    changed: Changed | None = None


@dataclass(frozen=True)
class Tables(Bench[str, Read]):
    """A table that many read."""

    agents: Agents = 16
    hosts: Hosts = 0
    users: Annotated[int, Option("--users", min=1, help="Rows in the table.")] = 20_000
    readers: Annotated[int, Option("--readers", min=1, help="That ask at a time.")] = 4
    reads: Annotated[int, Option("--reads", min=1, help="Of each reader, of each kind and way.")] = 250
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
            found = await self._measured(fleet, clients, agents, rows, alone)
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
        self,
        fleet: ControlFleet,
        clients: Sequence[Client],
        agents: Sequence[psutil.Process],
        rows: int,
        alone: float,
    ) -> Read:
        """``alone``: seconds of CPU a second that the agents take without readers."""
        found: dict[str, list[float]] = {}
        missed, idle, began, before = 0, psutil.cpu_times().idle, time.monotonic(), _cpu_secs(agents)
        for kind in KEYS:
            for way in WAYS:
                asked = [
                    self._read(
                        number,
                        kind,
                        _asking(way, client, fleet.running[number % len(fleet.running)].http or ""),
                    )
                    for number, client in enumerate(clients)
                ]
                for times, none in await asyncio.gather(*asked):
                    found.setdefault(f"{kind} {way}", []).extend(times)
                    missed += none
        secs, cores = time.monotonic() - began, os.cpu_count() or 1
        busy = 1 - (psutil.cpu_times().idle - idle) / (cores * secs)
        more = max(_cpu_secs(agents) - before - alone * secs, 0.0)
        return Read(found, rows, missed, max(busy, 0.0), 1e3 * more / sum(map(len, found.values())))

    async def _read(self, number: int, kind: str, ask: Ask) -> tuple[list[float], int]:
        """One reader: milliseconds of each read, and how many found no row."""
        found, missed = list[float](), 0
        for user in range(WARM):  # an agent reads its first statement with libraries that it had not needed
            await ask(user)
        rng = np.random.default_rng(number)
        for user in [drawn(kind, rng, self.alpha, self.users, RECENT) for _ in range(self.reads)]:
            began = time.perf_counter()
            missed += not await ask(user)
            found.append(1e3 * (time.perf_counter() - began))
        return found, missed

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


def _asking(way: str, client: Client, address: str) -> Ask:
    """How a reader asks."""
    if way == "http":
        connection = http.client.HTTPConnection(address, timeout=30)

        def fetched(user: int) -> int:
            connection.request("GET", f"/api/v1/tables/seen?user={user}")
            answer = connection.getresponse()
            said = json.loads(answer.read())
            if answer.status != 200:
                raise ElfError(f"{address} says {said}")
            return len(said["rows"])

        async def over_http(user: int) -> int:
            return await asyncio.to_thread(fetched, user)

        return over_http
    as_of = " AS OF ANY" if way == "any" else ""

    async def in_sql(user: int) -> int:
        found = await client.sql(f'SELECT * FROM seen{as_of} WHERE "user" = {user}')
        return 0 if found.table is None else found.table.num_rows

    return in_sql


def _cpu_secs(agents: Sequence[psutil.Process]) -> float:
    times = [one.cpu_times() for one in agents]
    return float(sum(one.user + one.system for one in times))
