"""``elf bench jobs``: what many jobs cost of which few are different, beside those few alone.

Two fleets of real agents, one after the other: one with a job of each different query, one with all jobs,
each query asked so many times under other names (only the latter where all differ). Jobs of equal fragments
share a flow, its tree and its panes; equal jobs share their windows too. The same lines are written beside
both. Measured are the creation of the jobs (so many statements at once, as from one program) and, once all of
them run, so many windows: CPU time of the agents, their messages and waits for the disk, a window; what an
agent has in memory afterwards; and whose masters are where. At the end all jobs of one query are read: they
must say the same, each window once, and ``lag_ms`` is how long after its end a window was at the reader.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Annotated, Final

from typer import Option

from elf.client import Client, Window
from elf.errors import ElfError, UserError
from lab.bench import options
from lab.bench.control_fleet import ControlFleet, on_fleet, written
from lab.bench.metered import Meter, read, resident_mib
from lab.bench.runner import Bench, Figure, Report, Scratch, percentiles, ratio

READ_WINDOWS: Final = 1
"""Of each of the jobs that are compared."""
TRIES: Final = 5
"""Of a statement that was not answered in time."""
A_WINDOW: Final = {"cpu_s": "CPU s", "messages": "messages"}


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


@dataclass(frozen=True)
class Jobs(Bench[str, Found]):
    """Two fleets. Each line is a chunk of its own: it costs the same however many jobs read it."""

    jobs: options.Jobs = 1000
    distinct: Annotated[int, Option("--distinct", min=1, help="Different queries among them.")] = 50
    agents: options.Agents = 3
    window: options.WindowSeconds = 5
    windows: Annotated[int, Option("--windows", min=1, help="How many are measured.")] = 6
    at_once: Annotated[int, Option("--at-once", min=1, help="Statements under way.")] = 8
    hosts: options.Hosts = 0
    lines: Annotated[float, Option("--lines", min=0.1, help="Lines a second, of all agents.")] = 15.0

    def __post_init__(self) -> None:
        """Raises ``UserError``."""
        if self.distinct > self.jobs:
            raise UserError(f"{self.distinct} different jobs of {self.jobs}: give --jobs as many or more")

    def sides(self, scratch: Scratch) -> Mapping[str, Callable[[], Found]]:
        """A fleet each. Raises ``ElfError`` when one does not do what it is asked, or equal jobs differ."""

        def side(name: str, jobs: int) -> Callable[[], Found]:
            folder = scratch.folder / name
            return lambda: on_fleet(
                folder, self.agents, lambda fleet: self._measure(fleet, jobs), hosts=self.hosts
            )

        alone = {} if self.distinct == self.jobs else {"distinct": side("distinct", self.distinct)}
        return {**alone, "all": side("all", self.jobs)}

    def report(self, runs: Mapping[str, Sequence[Found]]) -> Report:
        """Both fleets, side by side; one, where all jobs differ."""
        said = {name: self._figures(one) for name, (one,) in runs.items()}
        spent = {
            key: [_sum(one.spent, key) / self.windows for (one,) in reversed(list(runs.values()))]
            for key in A_WINDOW
        }
        what = f"{self.jobs} jobs of {self.distinct} queries on {self.agents} agents"
        return Report(
            {
                **asdict(self),
                **said,
                "ratios": {
                    f"{key}_a_window": ratio(all_, few, 2)
                    for key, (all_, *alone) in spent.items()
                    for few in alone
                },
            },
            [
                Figure(
                    what,
                    all_,
                    f"{A_WINDOW[key]} a window",
                    {f"the {self.distinct} alone": few for few in alone},
                )
                for key, (all_, *alone) in spent.items()
            ],
        )

    async def _measure(self, fleet: ControlFleet, jobs: int) -> Found:
        await fleet.start()
        async with written(fleet, 1, len(fleet.places) / self.lines), fleet.client() as client:
            before, began = await read(fleet.running), time.perf_counter()
            took, again = await self._create(client, jobs)
            create_s = time.perf_counter() - began
            created = [a.since(b) for a, b in zip(await read(fleet.running), before, strict=True)]
            await self._read_equal(client, jobs)  # so all of them have begun
            before, now = await read(fleet.running), time.time()
            await asyncio.sleep(self.windows * self.window - (time.time() - now))
            spent = [a.since(b) for a, b in zip(await read(fleet.running), before, strict=True)]
            mib = resident_mib(fleet.running)
            lags = await self._read_equal(client, jobs)
            listed = (await client.sql("SHOW JOBS")).table
            if listed is None or listed.num_rows != jobs:
                raise ElfError(f"of {jobs} jobs SHOW JOBS lists {0 if listed is None else listed.num_rows}")
        loads = Counter(listed["master"].to_pylist())
        masters = dict(sorted(Counter(loads[agent.address] for agent in fleet.running).items()))
        loops = _sum(created, "loop_s")
        return Found(create_s, percentiles(took), loops, again, spent, mib, masters, percentiles(lags))

    async def _create(self, client: Client, jobs: int) -> tuple[list[float], int]:
        """Create all; (milliseconds that each statement took, statements that had to be said again)."""
        numbers, took, again = iter(range(jobs)), [], 0

        async def create() -> None:
            nonlocal again
            for number in numbers:
                began = time.perf_counter()
                for left in reversed(range(TRIES)):
                    try:
                        await client.sql(self._statement(number))
                        break
                    except ElfError as error:
                        if "exists already" in str(error):
                            break  # it was created, and the answer came too late
                        again += 1
                        if not left:
                            raise
                took.append(1e3 * (time.perf_counter() - began))

        await asyncio.gather(*(create() for _ in range(self.at_once)))
        return took, again

    def _statement(self, number: int) -> str:
        """The same query for all numbers that are equal modulo ``distinct``."""
        least = number % self.distinct
        query = (
            f"SELECT store, COUNT(*) AS n, SUM(clicks) AS c FROM clicks WHERE user >= {least} GROUP BY store"
        )
        return f"CREATE JOB job_{number} AS {query} WINDOWING {self.window} SECONDS LATENESS 0 SECONDS"

    async def _read_equal(self, client: Client, jobs: int) -> list[float]:
        """Read some windows of all jobs of the first query: how long after its end each came, in ms. Raises
        ``ElfError`` when two of one window differ."""
        names = [f"job_{number}" for number in range(0, jobs, self.distinct)]
        heard: dict[object, list[Window]] = {}
        lags: list[float] = []

        async def hear(name: str) -> None:
            async for window in client.subscribe(name, READ_WINDOWS + 1):
                if window.end is not None and not window.revision:
                    heard.setdefault(window.end, []).append(window)
                    lags.append(1e3 * (time.time() - window.end.timestamp()))

        limit = (READ_WINDOWS + 3) * self.window + 60
        with suppress(TimeoutError):
            async with asyncio.timeout(limit):
                await asyncio.gather(*map(hear, names))
                for end, windows in heard.items():
                    if len({str(window.table.to_pydict()) for window in windows}) != 1:
                        raise ElfError(f"equal jobs differ in the window that ends at {end}")
                return lags
        raise ElfError(f"not all of {len(names)} equal jobs have {READ_WINDOWS} windows after {limit} s")

    def _figures(self, found: Found) -> dict[str, object]:
        """For people and for JSON. Sums of all agents, but for the disk, whose waits are an agent's own."""
        spent, windows = found.spent, self.windows
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
            "fsyncs_per_s": round(max(one.fsyncs for one in spent) / (windows * self.window), 1),
            "mib": max(found.mib),
            "masters": found.masters,
            "lag_ms": found.lag_ms,
        }


def _sum(spent: Sequence[Meter], what: str) -> float:
    return float(sum(getattr(one, what) for one in spent))
