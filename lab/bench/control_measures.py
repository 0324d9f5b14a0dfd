"""``elf bench control``: how fast a fleet of real agents does what its jobs' masters tell it.

So many ``elf-agent`` processes on loopback, forked from one that has imported everything
(``agents.preload``), or with ``--hosts`` as many agents in a few processes. Each figure is over several
times; p50 and p99 are the least values that half, or 99 of 100, do not exceed.

A figure is measured by a function, from a fleet that is ready to milliseconds, which leaves the fleet as it
found it, but for event time. ``MEASURES`` names them in the order in which they run.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, TypeVar

from typer import Option

from elf.client import Client
from elf.errors import ElfError, UserError
from lab.bench import bundling
from lab.bench.control_fleet import FIRST_US, SECOND_US, ControlFleet, on_and_on, on_fleet, until
from lab.bench.options import Agents, Hosts
from lab.bench.runner import Bench, Figure, Report, Scratch, percentiles

T = TypeVar("T")
Measure = Callable[[ControlFleet, Client, int], Awaitable[list[float]]]
"""A fleet, a client of one of its agents, how many times; milliseconds, one for each time (or more)."""

OPERATORS: Final = {
    "top_products": "product, SUM(clicks) AS n FROM clicks GROUP BY product ORDER BY n DESC LIMIT 10",
    "stores": "store, COUNT(*) AS n FROM clicks GROUP BY store",
    "games": "product, MAX(user) AS n FROM clicks WHERE store == 'video_games' GROUP BY product",
    "users": "store, AVG(user) AS n, MIN(user) AS least FROM clicks GROUP BY store",
}
"""Four jobs of one second each, at once."""

SEPARATE: Final = {
    "max": "product, MAX(user) AS n FROM clicks GROUP BY product ORDER BY n DESC LIMIT 10",
    "min": "product, MIN(user) AS n FROM clicks GROUP BY product ORDER BY n LIMIT 10",
    "sum": "product, SUM(clicks) AS n FROM clicks GROUP BY product",
    "avg": "product, AVG(user) AS n FROM clicks GROUP BY product",
}
"""The operators of the paper's Figure 12: ``max`` and ``min`` are cut to the first ten, ``sum`` and ``avg``
are not."""

CYCLE: Final = """
import time

from elf.job import Job


class Cycle(Job):
    every = 0.1

    def start(self):
        self.epoch, self.began, self.waiting, self.sum = 0, 0.0, set(), 0

    def on_timer(self):
        if self.is_root and (not self.waiting or time.monotonic() - self.began > 5):
            self.began = time.monotonic()
            self.multicast(self.epoch + 1)

    def on_multicast(self, app, epoch):
        self.epoch, self.waiting = epoch, set(self.children)
        self.sum = int(not self.is_root)
        self.up()

    def on_recv(self, node, message):
        if message[0] == self.epoch and node in self.waiting:
            self.waiting.discard(node)
            self.sum += message[1]
            self.up()

    def up(self):
        if self.waiting:
            return
        if self.is_root:
            print(1e3 * (time.monotonic() - self.began), self.sum)
        elif self.parent:
            self.send_to(self.parent, [self.epoch, self.sum])
"""
"""Each agent counts for one, and the master beside them for none: so it sees whether an epoch has come from
all of them."""

ANSWERS: Final = """
from elf.job import Job


class Answers(Job):
    def deliver(self, app, message):
        return message + 1
"""

ASKS: Final = """
import time

from elf.job import Job, QueryFailed


class Asks(Job):
    every = 0.05

    def on_timer(self):
        if self.is_root:
            began = time.monotonic()
            try:
                found = self.query("answers", 4)
            except QueryFailed:
                return
            print(1e3 * (time.monotonic() - began), found)
"""

LINES: Final = 20
"""Beside each agent, in each window."""

PAUSE_SECS: Final = 0.1
"""Between two times, so that one does not hear the end of the other; drawn anew each time up to twice that,
so that it is no period of anything in an agent."""


async def submit(fleet: ControlFleet, client: Client, rounds: int) -> list[float]:
    """CREATE JOB sent → its answer, which comes when the last agent has said that its worker is active."""
    found = []
    for number in range(rounds):
        began = time.perf_counter()
        await client.sql(create(f"submit_{number}", OPERATORS["top_products"]))
        found.append(1e3 * (time.perf_counter() - began))
        await client.sql(f"DROP JOB submit_{number}")
        await _pause()
    return found


async def notify(fleet: ControlFleet, client: Client, rounds: int) -> list[float]:
    """The master sends a notice → the last agent has logged it."""
    await client.sql(create("noticed", OPERATORS["stores"]))
    found = []
    for number in range(5 * rounds):
        fleet.forget()
        text = f"discount {number}"
        await client.sql(f"NOTIFY JOB noticed '{text}'")
        heard = await fleet.heard("a notice", lambda said, text=text: said.facts["text"] == text)  # type: ignore[misc]
        found.append(max(1e3 * said.at - _number(said.facts["sent_ms"]) for said in heard))
        await _pause()
    await client.sql("DROP JOB noticed")
    return found


async def filters(fleet: ControlFleet, client: Client, rounds: int) -> list[float]:
    """ALTER JOB with another WHERE sent → the last agent computes by it."""
    select = "SELECT store, COUNT(*) AS n FROM clicks WHERE user >= {} GROUP BY store"
    await client.sql(create("filtered", select.removeprefix("SELECT ").format(0)))
    found = []
    for number in range(1, rounds + 1):
        words = f"AS {select.format(number)} WINDOWING 1 SECONDS LATENESS 0 SECONDS"
        found.append(await _altered(fleet, client, f"ALTER JOB filtered {words}"))
    await client.sql("DROP JOB filtered")
    return found


async def code(fleet: ControlFleet, client: Client, rounds: int) -> list[float]:
    """ALTER JOB with another map function sent → the last agent has tried it and computes by it."""
    await client.sql(create("coded", OPERATORS["stores"]))
    found = []
    with tempfile.TemporaryDirectory(prefix="elf-bench-") as folder:
        file = Path(folder) / "map.py"
        for number in range(rounds + 1):
            file.write_text(f"def map(batch):\n    return batch.slice(0, {10**6 + number})\n")
            took = await _altered(fleet, client, f"ALTER JOB coded SET FUNCTION map FROM '{file}'")
            found += [took] if number else []  # the first starts the processes that functions run in
    await client.sql("DROP JOB coded")
    return found


async def _altered(fleet: ControlFleet, client: Client, statement: str) -> float:
    fleet.forget()
    began = time.time()
    await client.sql(statement)
    applied = await fleet.heard("a flow is computed", since=began)
    await _pause()
    return 1e3 * (max(said.at for said in applied) - began)


async def window(fleet: ControlFleet, client: Client, rounds: int, after: int = 0) -> list[float]:
    """The last agent has read the line that ends a window → its result is at the subscriber; four jobs.
    ``after``: seconds of event time that the fleet has seen."""
    found = await windows(fleet, client, OPERATORS, 2 * rounds, after)
    return [ms for took in found.values() for ms in took]


async def operators(fleet: ControlFleet, client: Client, rounds: int) -> dict[str, list[float]]:
    """The same of each of the paper's operators: while its job runs alone, and while all four run."""
    found, after = {}, 0
    for name, query in SEPARATE.items():
        alone = await windows(fleet, client, {name: query}, 2 * rounds, after)
        found[f"{name}_ms"] = alone[name]
        after += 2 * rounds + 1
    together = await windows(fleet, client, SEPARATE, 2 * rounds, after)
    return found | {f"{name}_together_ms": together[name] for name in SEPARATE}


async def windows(
    fleet: ControlFleet, client: Client, queries: Mapping[str, str], count: int, after: int
) -> dict[str, list[float]]:
    """So many windows of jobs that run together: by job, what each window took, in ms."""
    for name, query in queries.items():
        await client.sql(create(name, query))
    arrived: dict[tuple[str, int], float] = {}
    readers = [asyncio.create_task(_subscribe(client, name, arrived)) for name in queries]
    await asyncio.sleep(2 * PAUSE_SECS)
    found: dict[str, list[float]] = {name: [] for name in queries}
    try:
        for number in range(1, count + 1):
            fleet.forget()
            start = FIRST_US + (after + number) * SECOND_US
            written = fleet.write(start + LINES * 1000, LINES)
            await fleet.heard("lines read", since=written)
            await _pause()
            written = fleet.write(start + SECOND_US, 1)
            read = await fleet.heard("lines read", since=written)
            wanted = {name: (name, start) for name in queries}

            def there(wanted: Mapping[str, tuple[str, int]] = wanted) -> bool:
                for reader in readers:
                    if reader.done():
                        reader.result()
                        raise ElfError("a subscription has ended by itself")
                return all(one in arrived for one in wanted.values())

            await until(there, lambda: "a window's results", poll_secs=0.005)
            last = max(said.at for said in read)
            for name, one in wanted.items():
                found[name].append(1e3 * (arrived[one] - last))
            await _pause()
    finally:
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
    for name in queries:
        await client.sql(f"DROP JOB {name}")
    return found


async def cycle(fleet: ControlFleet, client: Client, rounds: int) -> list[float]:
    """The master of a job in Python multicasts an epoch → it has what all agents answered, summed up the
    tree."""
    agents = str(len(fleet.places))
    found = await _printed(fleet, client, "cycle", CYCLE, lambda words: words[1:] == [agents], 5 * rounds + 1)
    return found[1:]  # in the first the job's processes start


async def bundles(fleet: ControlFleet, client: Client, rounds: int) -> list[float]:
    """The master of product bundling begins an epoch → it has the users of all agents. There are as many
    edges as a window has before anything is measured, and more come every half second."""
    agents, rng = str(len(fleet.places)), random.Random(1)

    def write() -> None:
        now = time.time_ns() // 1000
        for place in fleet.places:
            place.clicks.write(b"".join(bundling.edge_of(now, rng) for _ in range(bundling.EDGES)))

    async with on_and_on(write, bundling.EVERY_SECS):
        await _submit(client, "bundling", bundling.JOB)
        count = bundling.BEFORE + 5 * rounds
        found = await fleet.printed("bundling", lambda words: words[1:2] == [agents], count)
    await client.sql("DROP JOB bundling")
    return [float(words[0]) for words in found[bundling.BEFORE :]]


async def route(fleet: ControlFleet, client: Client, rounds: int) -> list[float]:
    """The master of a job in Python asks that of another → it has the reply."""
    await _submit(client, "answers", ANSWERS)
    found = await _printed(fleet, client, "asks", ASKS, lambda words: words[1:] == ["5"], 5 * rounds)
    await client.sql("DROP JOB answers")
    return found


MEASURES: Final[Mapping[str, Measure]] = {
    "submit_ms": submit,
    "notify_ms": notify,
    "window_ms": window,
    "cycle_ms": cycle,
    "route_ms": route,
    "filter_ms": filters,
    "code_ms": code,
    "bundling_ms": bundles,
}
"""The last has lines of now, and leaves the fleet beyond the event time of the others."""


TITLES: Final = {
    "ready_ms": "from the last agent's start until all are ready",
    "submit_ms": "CREATE JOB, until the last worker is there",
    "notify_ms": "a notice, until the last agent has it",
    "window_ms": "a window's end to its result, 4 jobs",
    "cycle_ms": "an epoch of a cycle",
    "bundling_ms": "product bundling, an epoch",
    "route_ms": "a query to another job's master and back",
    "filter_ms": "a changed filter, until the last agent has applied it",
    "code_ms": "changed code, until the last agent has applied it",
    **{f"{name}_ms": f"a window's end to its result, {name} alone" for name in SEPARATE},
    **{f"{name}_together_ms": f"a window's end to its result, {name} of four" for name in SEPARATE},
}

Only = Annotated[
    list[str] | None, Option("--only", metavar="NAME", help="Measure this only (notify, …); repeat it.")
]
Operators = Annotated[
    bool, Option("--operators", help="Measure max, min, sum and avg instead, alone and together.")
]


def wanted_of(only: Sequence[str] | None, known: Mapping[str, T]) -> dict[str, T]:
    """The measures of these names, all if None; ``known`` are those that there are. Raises ``UserError``."""
    for name in only or ():
        if f"{name}_ms" not in known:
            there = ", ".join(one.removesuffix("_ms") for one in known)
            raise UserError(f"--only {name}: there are {there}")
    return {name: one for name, one in known.items() if not only or name.removesuffix("_ms") in only}


@dataclass(frozen=True)
class Control(Bench[str, dict[str, dict[str, float]]]):
    """One fleet, and everything so many times."""

    agents: Agents = 16
    rounds: Annotated[int, Option("--rounds", min=1, help="How often each thing is done.")] = 15
    hosts: Hosts = 0
    only: Only = None
    operators: Operators = False

    def __post_init__(self) -> None:
        """Raises ``UserError``."""
        wanted_of(self.only, MEASURES)

    def sides(self, scratch: Scratch) -> Mapping[str, Callable[[], dict[str, dict[str, float]]]]:
        """One fleet. Raises ``ElfError`` when it does not do what is asked of it."""
        folder = scratch.folder / "fleet"
        return {"elf": lambda: on_fleet(folder, self.agents, self._measure, hosts=self.hosts)}

    async def _measure(self, fleet: ControlFleet) -> dict[str, dict[str, float]]:
        await fleet.start()
        found = {"ready_ms": percentiles([fleet.ready_ms])}
        async with fleet.client() as client:
            if self.operators:
                taken = await operators(fleet, client, self.rounds)
                return found | {name: percentiles(ms) for name, ms in taken.items()}
            for name, measure in wanted_of(self.only, MEASURES).items():
                found[name] = percentiles(await measure(fleet, client, self.rounds))
        return found

    def report(self, runs: Mapping[str, Sequence[dict[str, dict[str, float]]]]) -> Report:
        """Percentiles of each."""
        (found,) = runs["elf"]
        return Report(
            {"agents": self.agents, "hosts": self.hosts, "ready_ms": round(found["ready_ms"]["max"], 1)}
            | {name: one for name, one in found.items() if name != "ready_ms"},
            [
                Figure(f"{self.agents} agents: {TITLES[name]} (p50, p99)", (one["p50"], one["p99"]), "ms")
                for name, one in found.items()
            ],
        )


async def _printed(
    fleet: ControlFleet,
    client: Client,
    job: str,
    text: str,
    wanted: Callable[[list[str]], bool],
    count: int,
) -> list[float]:
    """What a job measures itself and prints, as milliseconds and a word that says whether it counts."""
    fleet.forget()
    await _submit(client, job, text)
    found = await fleet.printed(job, wanted, count)
    await client.sql(f"DROP JOB {job}")
    return [float(words[0]) for words in found]


async def _submit(client: Client, job: str, text: str) -> None:
    await client.submit(text, f"{job}.py", job)


def create(name: str, query: str, how: str = "") -> str:
    return f"CREATE JOB {name} AS SELECT {query} WINDOWING 1 SECONDS LATENESS 0 SECONDS {how}"


async def _pause() -> None:
    await asyncio.sleep(PAUSE_SECS * 2 * random.random())


async def _subscribe(client: Client, job: str, arrived: dict[tuple[str, int], float]) -> None:
    """Note when each window of a job comes."""
    async for one in client.subscribe(job):
        if one.start is not None:
            arrived.setdefault((job, round(one.start.timestamp() * 1e6)), time.time())


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
