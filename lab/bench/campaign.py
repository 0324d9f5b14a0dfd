"""``elf bench campaign``: the paper's application (section 4.1) on a fleet of real agents: who posts about
sales most often, a closer look while the job runs, and the same windows by Spark.

Beside each agent come so many posts a second, in one batch, with the time of the clock. A job names the first
five accounts of each window; once some windows are read ``ALTER JOB`` counts places instead, of accounts that
hardly anybody follows, and as many windows are read again. Every window is compared with what was written.
Measured are: how long after its end a window is at the reader (up to a second of it until the last agent has
its next batch), how long until all agents compute by the changed job, the agents' CPU, and what ``elf
compare`` takes, which runs both queries with Spark over what the agents have archived.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path
from typing import Annotated, Final

import msgspec
import numpy as np
from typer import Option

from elf.cli.processes import environment
from elf.client import Window
from elf.errors import ElfError
from lab.bench import options
from lab.bench.control_fleet import CLUSTER, ControlFleet, Place, on_fleet, until
from lab.bench.metered import Meter, read
from lab.bench.runner import Bench, Figure, Report, Scratch, percentiles
from lab.generator.posts import Posts

STREAM: Final = "posts"
JOB: Final = "suspects"
TOP: Final = 5
TICKS: Final = 20
"""A second has so many moments at which batches are written, each of some agents."""
BLOCKS: Final = 32
"""Different batches of posts, which agents have in turns."""
EPOCH: Final = b"1970-01-01T00:00:00.000Z"
WAIT_SECS: Final = 60.0
"""For windows, beyond their own length; then the agents do not keep up."""
FOLLOWERS_MAX: Final = 100
SALES: Final = "text LIKE '%sales%'"
FIRST: Final = f"SELECT user.name AS who, COUNT(*) AS posts FROM {STREAM} WHERE {SALES} GROUP BY user.name"
ZOOMED: Final = (
    f"SELECT user.location AS who, COUNT(*) AS posts FROM {STREAM} "
    f"WHERE {SALES} AND user.followers_count < {FOLLOWERS_MAX} GROUP BY user.location"
)
QUERIES: Final = (FIRST, ZOOMED)


class User(msgspec.Struct):
    """Who has posted."""

    name: str
    location: str
    followers_count: int


class Post(msgspec.Struct):
    """What the queries look at of a post."""

    text: str
    user: User


@dataclass(frozen=True)
class Block:
    """Lines of a batch, all with the time ``EPOCH``, and what each query counts of them."""

    lines: bytes
    counts: tuple[Counter[str], ...]

    @staticmethod
    def of(seed: int, posts: int) -> Block:
        lines = Posts(seed).lines(np.zeros(posts, np.int64))
        sales = [post for line in lines if "sales" in (post := msgspec.json.decode(line, type=Post)).text]
        few = (post.user.location for post in sales if post.user.followers_count < FOLLOWERS_MAX)
        by_query = (Counter(post.user.name for post in sales), Counter(few))
        return Block("".join(f"{line}\n" for line in lines).encode(), by_query)

    def at(self, now_us: int) -> bytes:
        return self.lines.replace(EPOCH, _moment(now_us).encode())


@dataclass
class Seen:
    """What was written by window (its start in µs) and query, and which windows came, how late."""

    window_us: int
    written: dict[int, tuple[Counter[str], ...]] = field(
        default_factory=lambda: defaultdict(lambda: (Counter(), Counter()))
    )
    lag_ms: dict[tuple[int, int], float] = field(default_factory=dict)
    """By version of the job and start of the window, of its first commit."""
    last: dict[tuple[int, int], Window] = field(default_factory=dict)

    def wrote(self, now_us: int, block: Block) -> None:
        for total, counts in zip(self.written[now_us - now_us % self.window_us], block.counts, strict=True):
            total.update(counts)

    def hear(self, window: Window) -> None:
        if window.start is None or window.end is None:
            raise ElfError(f"a window of {JOB} has no bounds")
        key = window.version, round(window.start.timestamp() * 1e6)
        self.lag_ms.setdefault(key, 1e3 * (time.time() - window.end.timestamp()))
        self.last[key] = window

    def of(self, version: int, whole_from_us: int) -> list[tuple[int, int]]:
        """Windows of that version whose rows were all written after a moment."""
        return sorted(key for key in self.last if key[0] == version and key[1] >= whole_from_us)

    def right(self, key: tuple[int, int]) -> bool:
        version, start = key
        table = self.last[key].table
        rows = list(zip(table["who"].to_pylist(), table["posts"].to_pylist(), strict=True))
        counts = self.written[start][version - 1]
        return rows == sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:TOP]


@dataclass(frozen=True)
class Found:
    """Milliseconds; ``cpu_s`` of all agents while windows were read, over ``span_s``; ``wrong`` of
    so many windows that were ``judged``. ``spark_s``: None without Spark; ``compared``: how many of the same
    windows came out how."""

    create_ms: float
    zoom_ms: float
    lag_ms: list[float]
    zoomed_lag_ms: list[float]
    cpu_s: float
    span_s: float
    posts_per_s: float
    judged: int
    wrong: int
    spark_s: float | None
    compared: Mapping[str, int]


@dataclass(frozen=True)
class Campaign(Bench[str, Found]):
    """One fleet; ``hosts`` as in ``elf bench control``."""

    agents: options.Agents = 64
    hosts: options.Hosts = 2
    rate: Annotated[int, Option("--rate", min=1, help="Posts a second, beside each agent.")] = 50
    window: options.WindowSeconds = 5
    windows: Annotated[int, Option("--windows", min=1, help="Read before the closer look, and after.")] = 4
    spark: Annotated[bool, Option("--spark/--no-spark", help="Compare with Spark at the end.")] = True

    def __post_init__(self) -> None:
        """Raises ``UserError`` where Spark cannot run."""
        if self.spark:
            check_spark()

    def sides(self, scratch: Scratch) -> Mapping[str, Callable[[], Found]]:
        """One fleet. Raises ``ElfError`` when it does not keep up."""
        folder = scratch.folder / "fleet"
        names = [f"web-{number:03}" for number in range(self.agents)]
        more = {name: _settings(folder / name) for name in names}
        return {"elf": lambda: on_fleet(folder, self.agents, self._measure, hosts=self.hosts, more=more)}

    def report(self, runs: Mapping[str, Sequence[Found]]) -> Report:
        """A problem when a window was wrong, or Spark's differ."""
        (found,) = runs["elf"]
        lags = {name: percentiles(getattr(found, name)) for name in ("lag_ms", "zoomed_lag_ms")}
        cores = found.cpu_s / found.span_s
        facts = {**asdict(self), **asdict(found), **lags, "cores": round(cores, 3)}
        both = percentiles([*found.lag_ms, *found.zoomed_lag_ms])
        what = f"{self.agents} agents, {self.rate} posts/s each"
        figures = [
            Figure(f"{what}: after its end a window is read (p50, p99)", (both["p50"], both["p99"]), "ms"),
            Figure(f"{what}: a closer look, until the last agent computes it", found.zoom_ms, "ms"),
            Figure(f"{what}: CPU of all agents", round(cores, 3), "cores"),
        ]
        if found.spark_s is not None:
            figures.append(Figure(f"{what}: Spark compares the windows", found.spark_s, "s"))
        problems = [f"{found.wrong} of {found.judged} windows are wrong"] if found.wrong else []
        if differ := found.compared.get("unexplained"):
            problems.append(f"{differ} of Spark's windows differ, and nothing explains it")
        return Report(facts, figures, problems=problems)

    async def _measure(self, fleet: ControlFleet) -> Found:
        await fleet.start()
        seen, blocks = Seen(self.window * 1_000_000), [Block.of(n, self.rate) for n in range(BLOCKS)]
        writing = asyncio.create_task(_write(fleet, blocks, seen))
        try:
            async with fleet.client() as client:
                began = time.time()
                await fleet.heard("lines read", since=began)  # of which agents know the columns
                clock = time.perf_counter()
                await client.sql(f"CREATE JOB {JOB} AS {self._query(FIRST)}")
                create_ms = 1e3 * (time.perf_counter() - clock)
                reading = asyncio.create_task(self._read(fleet, seen))
                try:
                    return await self._look(fleet, seen, writing, reading, create_ms)
                finally:
                    reading.cancel()
                    await asyncio.gather(reading, return_exceptions=True)
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)

    async def _look(
        self,
        fleet: ControlFleet,
        seen: Seen,
        writing: asyncio.Task[None],
        reading: asyncio.Task[None],
        create_ms: float,
    ) -> Found:
        """Windows, the closer look, windows again, Spark."""
        before, began = await read(fleet.running), time.time()
        first = await self._windows(seen, 1, began, (writing, reading))
        fleet.forget()
        altered = time.time()
        async with fleet.client() as client:
            await client.sql(f"ALTER JOB {JOB} AS {self._query(ZOOMED)}")
        computed = await fleet.heard("a flow is computed", since=altered)
        zoom_ms = 1e3 * (max(said.at for said in computed) - altered)
        zoomed = await self._windows(seen, 2, altered, (writing, reading))
        span_s = time.time() - began
        spent = [now.since(then) for now, then in zip(await read(fleet.running), before, strict=True)]
        writing.cancel()
        keys = [*first, *zoomed]
        spark_s, compared = await asyncio.to_thread(self._compare, fleet, keys) if self.spark else (None, {})
        return Found(
            round(create_ms, 1),
            round(zoom_ms, 1),
            [seen.lag_ms[key] for key in first],
            [seen.lag_ms[key] for key in zoomed],
            round(sum(map(Meter.cpu_s.fget, spent)), 2),  # type: ignore[attr-defined]
            round(span_s, 2),
            self.rate * self.agents,
            len(keys),
            sum(not seen.right(key) for key in keys),
            spark_s,
            compared,
        )

    def _query(self, select: str) -> str:
        return f"{select} ORDER BY posts DESC LIMIT {TOP} WINDOWING {self.window} SECONDS LATENESS 0 SECONDS"

    async def _read(self, fleet: ControlFleet, seen: Seen) -> None:
        async with fleet.client() as client:
            async for window in client.subscribe(JOB):
                seen.hear(window)

    async def _windows(
        self, seen: Seen, version: int, since: float, tasks: Sequence[asyncio.Task[None]]
    ) -> list[tuple[int, int]]:
        """Wait for so many windows of a version that begin after a moment."""

        def there() -> list[tuple[int, int]] | None:
            for task in tasks:
                if task.done():
                    task.result()
            found = seen.of(version, round(since * 1e6))
            return found[: self.windows] if len(found) >= self.windows else None

        limit = (self.windows + 2) * self.window + WAIT_SECS
        return await until(there, lambda: f"{self.windows} windows of version {version}", limit)

    def _compare(self, fleet: ControlFleet, keys: Sequence[tuple[int, int]]) -> tuple[float, dict[str, int]]:
        """Seconds of ``elf compare`` over these windows, and how many came out how."""
        starts = [start_us for _, start_us in keys]
        begin, end = (_moment(us) for us in (min(starts), max(starts) + self.window * 1_000_000))
        command = [sys.executable, "-P", "-m", "elf.cli.main", "compare", JOB, "--json"]
        command += ["--from", begin, "--to", end]
        command += ["--connect", fleet.running[-1].address, "--cluster", CLUSTER]
        began = time.perf_counter()
        done = subprocess.run(command, capture_output=True, env=environment(), check=False)
        took = round(time.perf_counter() - began, 2)
        lines = done.stdout.splitlines()
        if not lines or not lines[-1].startswith(b"{"):
            said = done.stderr.decode(errors="replace").strip().splitlines()
            raise ElfError(f"elf compare {JOB}: {said[-1] if said else f'status {done.returncode}'}")
        counts: dict[str, int] = json.loads(lines[-1])["counts"]
        return took, counts


def check_spark() -> None:
    """Raise ``UserError`` where Spark cannot run: it, or Java, is not there."""
    from elf.cli.compare import check_spark as check
    from spark_backend.java import ensure

    check()
    ensure()


def _moment(us: int) -> str:
    """As posts have it."""
    stamp = datetime.fromtimestamp(us / 1e6, UTC).isoformat(timespec="milliseconds")
    return stamp.replace("+00:00", "Z")


def _settings(folder: Path) -> dict[str, object]:
    """Of an agent that reads posts."""
    stream = {
        "include": [str(folder / "*.jsonl")],
        "format": "json",
        "timestamp": "created_at",
        "idle_timeout_secs": 3600,
    }
    return {"streams": {STREAM: stream}}


async def _write(fleet: ControlFleet, blocks: Sequence[Block], seen: Seen) -> None:
    """A batch a second beside each agent, those of different agents at different moments of it."""
    turns = [fleet.places[first::TICKS] for first in range(TICKS)]
    chosen, began, number = cycle(blocks), time.monotonic(), 0
    while True:
        for place in turns[number % TICKS]:
            _append(place, next(chosen), seen)
        number += 1
        await asyncio.sleep(max(0.0, began + number / TICKS - time.monotonic()))


def _append(place: Place, block: Block, seen: Seen) -> None:
    now_us = time.time_ns() // 1_000_000 * 1_000
    place.clicks.write(block.at(now_us))
    seen.wrote(now_us, block)
