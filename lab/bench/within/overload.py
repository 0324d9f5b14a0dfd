"""An agent that gets more than it can do, beside what an oracle could do with the same CPU.

What a line takes is measured before, by the CPU in which the agent does a backlog: with all jobs that promise
something, when they do not promise it yet, and with half of them. So a line takes ``shared`` by itself and
``each`` for each of those jobs; what windows without lines take is counted apart. What can be done is the
rate at which the backlog was done. Then an oracle, which knows all of this and what comes, does as many
(line, job) pairs as the CPU is for that the agent has got, and none late.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from elf.client import Client, Window
from elf.errors import ElfError
from lab.bench.control_fleet import ControlFleet, on_fleet
from lab.bench.metered import Meter, read
from lab.bench.runner import percentiles
from lab.bench.within.kept import STREAM, stream_of, windows_of
from lab.bench.within.load import Load

JOBS: Final = 8
"""That promise something, all equally dear."""
PATTERNS: Final = 10
"""Regular expressions of each, which replace every word."""
ALIKE: Final = (1_000,)
UNLIKE: Final = (100, 1_000, 5_000)
"""What jobs promise, in turns (ms)."""
IDLE_RATE: Final = 50.0
BACKLOG: Final = 20_000
SETTLES_SECS: Final = 20.0
"""Of an overload, that are not counted: until weights are found and the backlog is gone."""
WARM_SECS: Final = 10.0
IDLE_SECS: Final = 10.0
LINGER_SECS: Final = 13.0
"""Until a flow that nobody reads has ended."""
PAUSE_SECS: Final = 3.0
DRAIN_SECS: Final = 120.0
LEAST: Final = 0.05
"""Of the pairs that come: an oracle that can do less tells nothing."""
WAIT_SECS: Final = 5.0


class Costs(msgspec.Struct, frozen=True):
    """CPU seconds for a line, and for a second of windows without lines."""

    shared: float
    each: float
    idle: float

    def pairs(self, lines: float, cpu_s: float, secs: float) -> float:
        """How many (line, job) an oracle does of so many lines; 0: next to none, as others have the cores."""
        able = (cpu_s - self.idle * secs - self.shared * lines) / self.each
        return 0.0 if able < LEAST * JOBS * lines else min(JOBS * lines, able)


class Overloaded(msgspec.Struct, frozen=True):
    """``could``: what can be done, ``rate``: what came, lines a second; ``of_oracle``: (line, job) pairs that
    were mapped in windows within the bound, beside an oracle's (None: that had no CPU for any); ``in_time``:
    the share of windows; ``sampled``: of the pairs; each once weights have settled, and from the first second
    on; ``core``: how much of a core the agent got; ``loop_share``: of that, the thread that has its loop, and
    plans."""

    could: float
    rate: float
    of_oracle: float | None
    in_time: float
    sampled: float
    of_oracle_all: float | None
    in_time_all: float
    core: float
    loop_share: float
    in_time_each: dict[str, float] = {}
    """By bound, once weights have settled."""
    took_each: dict[str, dict[str, float]] = {}
    """Percentiles of how long windows took (ms), the same."""


def promise_of(number: int, bounds: Sequence[int]) -> int:
    """What a job promises."""
    return bounds[number % len(bounds)]


def job_of(number: int) -> str:
    """A query that is dear by its rows and not by its groups; no two are one flow."""
    sums = ", ".join(
        f"SUM(LENGTH(REGEXP_REPLACE(text, '([a-z])([0-9]+)', '{number}{n}\\2\\1'))) AS s{n}"
        for n in range(PATTERNS)
    )
    return f"SELECT COUNT(*) AS n, {sums} FROM {STREAM} WINDOWING 1 SECONDS LATENESS 0 SECONDS"


def overloaded(folder: Path, times: float, seconds: float, bounds: Sequence[int] = ALIKE) -> Overloaded:
    """``times``: of what can be done. Raises ``ElfError``."""
    more = {"web-000": stream_of(folder / "web-000")}
    return on_fleet(folder, 1, lambda fleet: _overloaded(fleet, times, seconds, bounds), more=more)


async def _overloaded(fleet: ControlFleet, times: float, seconds: float, bounds: Sequence[int]) -> Overloaded:
    await fleet.start()
    load = Load([fleet.places[0].clicks], IDLE_RATE)
    async with fleet.client() as client:
        async with load.on():
            await _jobs(client, range(JOBS))
            await asyncio.sleep(WARM_SECS)
            idle = await _cpu_of(fleet, lambda: asyncio.sleep(IDLE_SECS)) / IDLE_SECS
        whole, could = await _drained(fleet, client, load)
        async with load.on():
            for number in range(JOBS // 2, JOBS):
                await client.sql(f"DROP JOB plain{number}")
            await asyncio.sleep(LINGER_SECS)
        half, _ = await _drained(fleet, client, load)
        each = max(whole - half, 0.05 * whole) / (JOBS - JOBS // 2)
        costs = Costs(max(0.0, whole - JOBS * each), each, idle)
        async with load.on():
            for number in range(JOBS // 2):
                await client.sql(f"DROP JOB plain{number}")
            await _jobs(client, range(JOBS), bounds)
            reads = (windows_of(client, f"plain{n}", seconds + WAIT_SECS) for n in range(JOBS))
            reading = [asyncio.create_task(one) for one in reads]
            load.rate = times * could
            meters: list[tuple[float, Meter]] = []
            for secs in (0.0, SETTLES_SECS, seconds - SETTLES_SECS):
                await asyncio.sleep(secs)
                (meter,) = await read(fleet.running)
                meters.append((time.time(), meter))
            load.rate = IDLE_RATE
            windows = [
                (promise_of(number, bounds), one)
                for number, found in enumerate(await asyncio.gather(*reading))
                for one in found
            ]
    return judged(windows, costs, (could, times * could), meters)


async def _cpu_of(fleet: ControlFleet, work: Callable[[], Awaitable[None]]) -> float:
    """CPU seconds of the agent while this is done."""
    (before,) = await read(fleet.running)
    await work()
    (after,) = await read(fleet.running)
    return after.since(before).cpu_s


async def _jobs(client: Client, numbers: range, bounds: Sequence[int] = ()) -> None:
    for number in numbers:
        promise = ""
        if bounds:
            within = promise_of(number, bounds)
            promise = f" WITHIN {within} MILLISECONDS FOR 99 PERCENT BEST EFFORT"
        await client.sql(f"CREATE JOB plain{number} AS {job_of(number)}{promise}")


async def _drained(fleet: ControlFleet, client: Client, load: Load) -> tuple[float, float]:
    """CPU seconds that a line takes of those that come at once, for one window; and how many are done in a
    second."""
    await asyncio.sleep(PAUSE_SECS)
    at = int(time.time()) + 1
    reading = asyncio.create_task(_window_of(client, at))
    await asyncio.sleep(at - time.time())
    backlog = load.lines.take(at * 1_000_000, BACKLOG) + load.lines.take((at + 1) * 1_000_000, 1)

    took: list[float] = []

    async def done() -> None:
        began = time.monotonic()
        fleet.places[0].clicks.write(backlog)
        try:
            await asyncio.wait_for(reading, DRAIN_SECS)
        except TimeoutError as error:
            raise ElfError(f"{BACKLOG:,} lines are not done after {DRAIN_SECS:g} s") from error
        took.append(time.monotonic() - began)

    cpu_s = await _cpu_of(fleet, done)
    return cpu_s / BACKLOG, BACKLOG / took[0]


async def _window_of(client: Client, start: int) -> None:
    async for window in client.subscribe("plain0"):
        if window.start is not None and window.start.timestamp() == start:
            return


def judged(
    windows: Sequence[tuple[int, Window]],
    costs: Costs,
    rates: tuple[float, float],
    meters: Sequence[tuple[float, Meter]],
) -> Overloaded:
    """``windows``: with what their jobs promise. ``meters``: before the overload, when weights have settled,
    and after it."""

    def kept(bound: int, window: Window) -> bool:
        return _count(window, "took_ms") <= bound

    def share(first: tuple[float, Meter], last: tuple[float, Meter]) -> tuple[float | None, float, float]:
        """Pairs beside an oracle's, windows in time, pairs left out; of the windows within that time."""
        begin, end = -(-first[0] // 1), last[0] // 1
        there = of(begin, end)
        there_in_time = [one for bound, one in there if kept(bound, one)]
        done = sum(_count(one, "rows_in") - _count(one, "sampled") for one in there_in_time)
        pairs, left_out = (sum(_count(one, name) for _, one in there) for name in ("rows_in", "sampled"))
        secs = last[0] - first[0]
        oracle = costs.pairs(rates[1] * secs, last[1].since(first[1]).cpu_s, secs) * (end - begin) / secs
        in_time = len(there_in_time) / (JOBS * (end - begin))
        of_oracle = round(done / oracle, 3) if oracle else None
        return of_oracle, round(in_time, 3), round(left_out / max(1, pairs), 3)

    def of(begin: float, end: float) -> list[tuple[int, Window]]:
        return [one for one in windows if one[1].start and begin <= one[1].start.timestamp() < end]

    begun, settled, ended = meters
    each = of(-(-settled[0] // 1), ended[0] // 1)
    spent, secs = ended[1].since(begun[1]), ended[0] - begun[0]
    of_all, in_time_all, _ = share(begun, ended)
    return Overloaded(
        round(rates[0]),
        round(rates[1]),
        *share(settled, ended),
        of_all,
        in_time_all,
        round(spent.cpu_s / secs, 3),
        round(spent.loop_s / max(spent.cpu_s, 0.01), 4),
        {
            str(bound): round(statistics.mean(kept(*one) for one in each if one[0] == bound), 3)
            for bound in sorted({bound for bound, _ in each})
        },
        {
            str(bound): percentiles([_count(one, "took_ms") for of, one in each if of == bound])
            for bound in sorted({bound for bound, _ in each})
        },
    )


def _count(window: Window, name: str) -> int:
    return int(str(window.status[name]))
