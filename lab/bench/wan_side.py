"""One side of ``elf bench wan``: a fleet of real agents in three regions of this machine, which are joined
by links of a rate and a delay: the kernel holds the rates (``lab.wan.spaces``; then it is run in a process of
``UNSHARE``), or a proxy does (``lab.wan.loopback``). Its last line is what it found, as JSON.

The job's root is in ``us``. What ``eu`` sends there goes over a slow link, and what it sends to ``ap`` does
not.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import permutations
from pathlib import Path
from typing import Final

import msgspec
import yaml

from elf.cli.processes import Child, Processes, ended, environment
from elf.client import Client, Window, connect
from elf.errors import ElfError
from lab.bench.metered import counts
from lab.wan.loopback import Loopback
from lab.wan.spaces import Spaces

REGIONS: Final = ("us", "ap", "eu")
SLOW: Final = ("eu", "us")
FAST_MBIT: Final = 20.0
PAGES: Final = 3_000
WRITE_SECS: Final = 0.1
WINDOW_SECS: Final = 5
WAIT_SECS: Final = 240.0
SETTLE_SECS: Final = 20.0
PORT, HTTP_PORT = 7100, 8100
QUERY: Final = f"SELECT page, COUNT(*) AS n FROM log GROUP BY page WINDOWING {WINDOW_SECS} SECONDS"


@dataclass(frozen=True)
class Wanted:
    """``mode``: ``flat``, ``heads`` or ``act``. ``rate``: rows a second of each agent. ``delay_ms``: of each
    link, one way. ``proxy``: it holds the rates too."""

    mode: str
    seconds: float
    agents: int
    rate: float
    slow_mbit: float
    delay_ms: float
    proxy: bool


@dataclass(frozen=True)
class Found:
    """Of all measured windows: seconds from the end until all agents were in it; how many first words missed
    somebody; bytes on the slow link and on all, with acknowledgements and all else that goes over them; bytes
    of probes; by how many rows windows differ from what was
    written; which ways jobs went."""

    latencies_s: list[float]
    windows: int
    incomplete: int
    slow_bytes: int
    all_bytes: int
    probes_bytes: int
    rows_wrong: int
    route: str


class Fleet:
    """So many agents in each region, each with a log of its own."""

    def __init__(self, spaces: Spaces | Loopback, processes: Processes, folder: Path, wanted: Wanted) -> None:
        self._spaces, self._folder, self._wanted = spaces, folder, wanted
        self._processes = processes
        self.names = [(region, f"{region}{n}", n) for region in REGIONS for n in range(wanted.agents)]
        self.agents: list[Child] = []
        self.written: dict[int, int] = {}
        """Rows by window, by its start in ms."""

    def reached(self, region: str, number: int = 0) -> str:
        return f"{self._spaces.address(region)}:{PORT + number}"

    def _http(self, region: str, number: int) -> str:
        return f"{self._spaces.address(region)}:{HTTP_PORT + number}"

    async def join(self, opened: AsyncExitStack) -> None:
        """The regions, before agents speak to each other."""
        ports = [PORT + n for n in range(self._wanted.agents)]
        await self._spaces.carry(ports, self._regions, opened)

    def _regions(self) -> dict[int, str]:
        """By the process of an agent."""
        started = zip(self.agents, self.names, strict=False)
        return {agent.process.pid: region for agent, (region, _, _) in started}

    def start(self) -> None:
        for region, name, number in self.names:
            (self._folder / name).mkdir()
            path = self._folder / name / "elf.yaml"
            path.write_text(yaml.safe_dump(self._config(region, name, number)), encoding="utf-8")
            command = [sys.executable, "-P", "-m", "agents.main", "--config", str(path)]
            log = self._folder / name / "agent.log"
            whole = self._spaces.inside(region, *command)
            self.agents.append(self._processes.run(name, whole, log, env=environment()))

    def _config(self, region: str, name: str, number: int) -> dict[str, object]:
        mode, listen = self._wanted.mode, f"{self._spaces.listens(region)}:{PORT + number}"
        reached = self.reached(region, number)
        first = (region, number) == (REGIONS[0], 0)
        links = {f"{a}/{b}": f"{self._mbit(a, b)} Mbit/s" for a, b in permutations(REGIONS, 2)}
        cluster: dict[str, object] = {"name": "wan", "bootstrap": [] if first else [self.reached(REGIONS[0])]}
        if mode != "flat":
            cluster |= {"regions": True, "links": links, "routes": "act" if mode == "act" else "off"}
        return {
            "agent": {"name": name, "listen": listen, "advertise": reached, "place": f"{region}/{name}"},
            "cluster": cluster,
            "data_dir": str(self._folder / name / "data"),
            "http": {"listen": self._http(region, number)},
            "security": "open",
            "streams": {"log": {"include": [str(self._folder / name / "*.jsonl")], "format": "json"}},
        }

    def _mbit(self, a: str, b: str) -> float:
        return self._wanted.slow_mbit if (a, b) == SLOW else FAST_MBIT

    def shape(self) -> None:
        for a, b in permutations(REGIONS, 2):
            self._spaces.shape(a, b, self._mbit(a, b))

    async def write(self) -> None:
        """Rows beside every agent, again and again."""
        rng, each = random.Random(1), max(1, round(self._wanted.rate * WRITE_SECS))
        logs = [(self._folder / name / "log.jsonl").open("ab", buffering=0) for _, name, _ in self.names]
        while True:
            at_ms = time.time_ns() // 1_000_000
            ts = datetime.fromtimestamp(at_ms / 1e3, UTC).isoformat(timespec="milliseconds")
            for log in logs:
                pages = [int(PAGES * rng.random() ** 2) for _ in range(each)]
                log.write(b"".join(b'{"ts":"%s","page":"/p/%d"}\n' % (ts.encode(), page) for page in pages))
            start = at_ms - at_ms % (1_000 * WINDOW_SECS)
            self.written[start] = self.written.get(start, 0) + each * len(logs)
            await asyncio.sleep(WRITE_SECS)

    def metric(self, name: str) -> int:
        """Of all agents together."""
        return int(sum(counts(self._http(region, number)).get(name, 0.0) for region, _, number in self.names))

    def carried(self) -> dict[tuple[str, str], int]:
        """Bytes on each link so far."""
        return {pair: self._spaces.sent(*pair) for pair in permutations(REGIONS, 2)}


@asynccontextmanager
async def joined(fleet: Fleet) -> AsyncIterator[Client]:
    """A client of a fleet whose agents have found each other over the links."""

    async def listens() -> bool:
        async with connect(at, cluster="wan", keys="none"):
            return True

    at = fleet.reached(REGIONS[0])
    async with AsyncExitStack() as opened:
        await fleet.join(opened)
        fleet.start()
        await until(listens)
        client = await opened.enter_async_context(connect(at, cluster="wan", keys="none"))
        await until(lambda: _ready(client, len(fleet.names)))
        yield client


async def measured(fleet: Fleet, wanted: Wanted) -> Found:
    async with joined(fleet) as client:
        fleet.shape()
        writing = asyncio.create_task(fleet.write())
        try:
            await until(lambda: _created(client))
            await until(lambda: _moved(client))
            if wanted.mode == "act":
                await until(lambda: _turned(client))
            await asyncio.sleep(SETTLE_SECS)
            return await _windows(client, fleet, wanted)
        finally:
            writing.cancel()


async def _created(client: Client) -> bool:
    await client.sql(f"CREATE JOB busy AS {QUERY}")
    return True


async def _moved(client: Client) -> bool:
    """The root is in the first region."""
    told = await client.sql("DESCRIBE busy")
    facts = {} if told.table is None else {row["fact"]: row["value"] for row in told.table.to_pylist()}
    if facts.get("master", "").startswith(REGIONS[0]):
        return True
    await client.sql(f"ALTER JOB busy MOVE TO '{REGIONS[0]}0'")
    return False


async def _ready(client: Client, agents: int) -> bool:
    told = await client.sql("SHOW MEMBERS")
    return told.table is not None and told.table.num_rows >= agents


async def _turned(client: Client) -> bool:
    told = await client.sql("SHOW DECISIONS")
    return told.table is not None and any(row["changes"] == "route" for row in told.table.to_pylist())


async def _windows(client: Client, fleet: Fleet, wanted: Wanted) -> Found:
    before = fleet.carried()
    probes = fleet.metric("elf_probes_sent_bytes_total")
    first: dict[int, Window] = {}
    last: dict[int, Window] = {}
    whole: dict[int, float] = {}
    until = time.monotonic() + wanted.seconds
    begin_ms = time.time() * 1e3

    async def read() -> None:
        async for window in client.subscribe("busy"):
            if window.start is None or (start := round(window.start.timestamp() * 1e3)) < begin_ms:
                continue
            first.setdefault(start, window)
            last[start] = window
            if not window.status["missing"]:
                whole.setdefault(start, time.time() - start / 1e3 - WINDOW_SECS)

    reading = asyncio.create_task(read())
    await asyncio.sleep(max(0.0, until - time.monotonic()))
    after = fleet.carried()
    await asyncio.sleep(SETTLE_SECS)
    reading.cancel()
    sent = {pair: after[pair] - before[pair] for pair in after}
    counted = {start: sum(last[start].table["n"].to_pylist()) for start in whole}
    routes = (await client.sql("SHOW DECISIONS")).table
    rows = [] if routes is None else routes.to_pylist()
    return Found(
        latencies_s=sorted(whole.values()),
        windows=len(last),
        incomplete=sum(bool(one.status["missing"]) for one in first.values()),
        slow_bytes=sent[SLOW],
        all_bytes=sum(sent.values()),
        probes_bytes=fleet.metric("elf_probes_sent_bytes_total") - probes,
        rows_wrong=sum(abs(n - fleet.written.get(start, 0)) for start, n in counted.items()),
        route=next((row["to"] for row in rows if row["changes"] == "route"), ""),
    )


async def until(what: Callable[[], Coroutine[None, None, bool]]) -> None:
    """Ask again and again. Raises ``ElfError`` when it does not come to that."""
    deadline = time.monotonic() + WAIT_SECS
    while True:
        with suppress(ElfError, OSError):
            if await what():
                return
        if time.monotonic() > deadline:
            raise ElfError("the agents did not come so far in time")
        await asyncio.sleep(0.5)


def _regions(wanted: Wanted) -> Spaces | Loopback:
    return (Loopback if wanted.proxy else Spaces)(REGIONS, wanted.delay_ms / 1000)


def main(args: Sequence[str]) -> None:
    folder, told = args
    wanted = msgspec.json.decode(told, type=Wanted)
    with ended() as processes, _regions(wanted) as spaces:
        fleet = Fleet(spaces, processes, Path(folder), wanted)
        found = asyncio.run(measured(fleet, wanted))
        processes.check(fleet.agents)
    print(json.dumps(asdict(found)), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
