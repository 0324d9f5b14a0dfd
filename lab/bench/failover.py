"""``elf bench failover``: agents are struck while they work; how long until the next correct window?

So many real agents on loopback; beside each a log that grows all the time, whether its agent lives or not.
One job counts the lines of each log a window, so a window is *correct* when each agent that it covers has
the count that was written. Each strike is at the job's master or, in turn, at another agent (or at several at
once, with or without the master): SIGKILL, SIGTERM with a start at once (as in a rolling restart), or SIGSTOP
for ten seconds. Measured is the time from it until the first correct window that ends after it is at a
subscriber. Killed agents are started again then, and the next strike waits until windows name nobody as
missing, and so many agents keep the log and the job that as many may die. At the end each window is judged by
its last revision: those in which a line is missing are lost, those with a line too many wrong.

With ``--from`` it is a rolling upgrade: agents begin as those of another checkout of elf, and each restart is
one of this elf, until all are.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

from typer import Option

from elf.cli.processes import Agent
from elf.client import Client, Window, connect
from elf.client.results import facts_of
from elf.errors import ElfError, UserError
from lab.bench.control_fleet import CLUSTER, ControlFleet, on_fleet, until
from lab.bench.runner import Bench, Figure, Report, Scratch, percentiles


class Detect(StrEnum):
    """``elf bench failover --detect``, and an agent's ``cluster.detect``"""

    DEFAULT = "default"
    FAST = "fast"


class Strike(StrEnum):
    """``elf bench failover --by``"""

    KILL = "kill"
    TERM = "term"
    STOP = "stop"


JOB: Final = "alive"
LINES_PER_S: Final = 100
"""Of all agents together: each line is a chunk of its own, and two cores are to do other things too."""
WAIT_SECS: Final = 90.0
"""For whatever the agents are to do: beyond it the bench gives up."""
STOPPED_SECS: Final = 10.0
"""How long an agent is held by SIGSTOP."""
SIGNALS: Final = {"kill": signal.SIGKILL, "term": signal.SIGTERM, "stop": signal.SIGSTOP}
WHOM: Final = {"master_ms": "the job's master", "other_ms": "another agent", "recovery_ms": "all"}
CALM: Final = 2
"""Windows in a row that name nobody as missing, before the next kill."""


@dataclass
class Ledger:
    """What was written, and what the windows say of it. Windows go by their start, in ms."""

    window_ms: int
    written: dict[int, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    last: dict[int, Window] = field(default_factory=dict)
    """Each window's last revision."""
    came: list[tuple[float, int]] = field(default_factory=list)
    """(Clock's time, window) of each window's first word, in the order in which they came."""
    doubled: int = 0
    incomplete: int = 0
    """Windows whose first word missed somebody."""

    def line(self, at_ms: int, agent: str) -> None:
        """A line with this event time was written beside an agent."""
        counts = self.written[at_ms - at_ms % self.window_ms]
        counts[agent] = counts.get(agent, 0) + 1

    def hear(self, window: Window) -> None:
        """A subscriber has it; several subscribers have the same one, and one only."""
        if window.start is None:
            raise ElfError(f"a window of {JOB} has no start")
        start = round(window.start.timestamp() * 1e3)
        known = self.last.get(start)
        if known is None:
            self.came.append((time.time(), start))
            self.incomplete += bool(_missing(window))
        elif known.revision == window.revision and _counts(known) != _counts(window):
            self.doubled += 1
        if known is None or window.revision > known.revision:
            self.last[start] = window

    def correct(self, start: int) -> bool:
        """Whether all that are covered have what was written, and who is missing no more than that."""
        window = self.last[start]
        found, missing = _counts(window), _missing(window)
        return found.keys() <= self.written[start].keys() and all(
            found.get(agent, 0) == count or (agent in missing and found.get(agent, 0) < count)
            for agent, count in self.written[start].items()
        )

    def complete(self, start: int) -> bool:
        """Whether it has every line."""
        return start in self.last and _counts(self.last[start]) == self.written[start]

    def calm(self) -> bool:
        """Whether the last windows miss nobody."""
        recent = [start for _, start in self.came[-CALM:]]
        return len(recent) == CALM and all(self.complete(start) for start in recent)

    def starts(self) -> range:
        """All windows from the first to the last that anybody has heard of."""
        return range(min(self.last), max(self.last) + 1, self.window_ms)


async def write_lines(fleet: ControlFleet, ledger: Ledger, pause_secs: float) -> None:
    """A line beside every agent, again and again."""
    while True:
        at_ms = time.time_ns() // 1_000_000
        ts = datetime.fromtimestamp(at_ms / 1e3, UTC).isoformat(timespec="milliseconds")
        for place in fleet.places:
            place.clicks.write(json.dumps({"ts": ts, "agent": place.name}).encode() + b"\n")
            ledger.line(at_ms, place.name)
        await asyncio.sleep(pause_secs)


def _counts(window: Window) -> dict[str, int]:
    return dict(zip(window.table["agent"].to_pylist(), window.table["n"].to_pylist(), strict=True))


def _missing(window: Window) -> frozenset[str]:
    names = window.status.get("missing")
    return frozenset(str(name) for name in names) if isinstance(names, list) else frozenset()


@dataclass(frozen=True)
class Struck:
    """What came of it: the windows that are judged; ``took``: ms of each strike, by victim."""

    ledger: Ledger
    judged: range
    took: dict[str, list[float]]


@dataclass(frozen=True)
class Failover(Bench[str, Struck]):
    """One fleet that is struck, and every window judged."""

    agents: Annotated[int, Option("--agents", min=3, help="How many agents.")] = 16
    strikes: Annotated[int, Option("--strikes", min=1, help="How often one of them is struck.")] = 6
    by: Annotated[Strike, Option("--by", help="SIGKILL, SIGTERM, or SIGSTOP for 10 s.")] = Strike.KILL
    window_ms: Annotated[int, Option("--window-ms", min=100, help="Length of a window.")] = 1000
    detect: Annotated[Detect, Option("--detect", help="The agents' cluster.detect.")] = Detect.DEFAULT
    seed: Annotated[int, Option("--seed", help="Which agents are struck, and when.")] = 1
    at_once: Annotated[int, Option("--at-once", min=1, max=2, help="How many are struck at once.")] = 1
    before: Annotated[
        str | None, Option("--from", help="A checkout of an earlier elf: upgrade the agents from it.")
    ] = None

    def __post_init__(self) -> None:
        """Raises ``UserError``."""
        if self.agents <= 2 * self.at_once:
            least = 2 * self.at_once + 1
            raise UserError(f"--at-once {self.at_once}: a majority must live: give --agents {least} or more")
        if self.before is not None:
            self._checkout(self.before)

    def _checkout(self, path: str) -> Path:
        """Where agents are upgraded from."""
        root = Path(path).absolute()
        if not (root / "agents" / "preload.py").is_file():
            raise UserError(f"--from {path}: no checkout of elf there (git worktree add PATH COMMIT)")
        if (self.by, self.at_once, self.strikes) != ("term", 1, self.agents):
            raise UserError(
                "--from: each agent is restarted once; give --by term, and as many --strikes as --agents"
            )
        return root

    def sides(self, scratch: Scratch) -> Mapping[str, Callable[[], Struck]]:
        """One fleet. Raises ``ElfError`` when it does not come back."""
        before = None if self.before is None else self._checkout(self.before)
        return {
            "elf": lambda: on_fleet(
                scratch.folder / "fleet",
                self.agents,
                lambda fleet: Striking(fleet, self).run(self.strikes),
                detect=self.detect.value,
                before=before,
            )
        }

    def report(self, runs: Mapping[str, Sequence[Struck]]) -> Report:
        """A problem when a window was wrong, lost or doubled."""
        (struck,) = runs["elf"]
        ledger, starts = struck.ledger, struck.judged
        lost = sum(not ledger.complete(start) for start in starts)
        wrong = sum(start in ledger.last and not ledger.correct(start) for start in starts)
        took = {**struck.took, "recovery": [ms for found in struck.took.values() for ms in found]}
        found = {f"{name}_ms": percentiles(ms) for name, ms in took.items() if ms}
        judged = {"windows": len(starts), "wrong": wrong, "lost": lost, "doubled": ledger.doubled}
        said = f"of {len(starts)} windows {wrong} wrong, {lost} lost, {ledger.doubled} doubled"
        what = (
            f"{self.agents} agents, {self.by}, detect {self.detect}, until the next correct window (p50, p99)"
        )
        return Report(
            {**asdict(self), **found, "incomplete": ledger.incomplete, **judged},
            [Figure(f"{what}: {WHOM[name]}", (one["p50"], one["p99"]), "ms") for name, one in found.items()],
            problems=[said] if wrong or lost or ledger.doubled else [],
        )


class Striking:
    """One fleet that is struck."""

    def __init__(self, fleet: ControlFleet, bench: Failover) -> None:
        self.fleet = fleet
        self.ledger = Ledger(bench.window_ms)
        self._by, self._at_once = bench.by, bench.at_once
        self._once, self._upgraded = bench.before is not None, set[str]()
        self._rng = random.Random(bench.seed)
        self._reader: Agent | None = None
        self._reads = False
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self, strikes: int) -> Struck:
        """So many strikes, the first at the job's master."""
        took: dict[str, list[float]] = {"master": [], "other": []}
        await self.fleet.start()
        began = time.time()
        written = write_lines(self.fleet, self.ledger, len(self.fleet.places) / LINES_PER_S)
        self._tasks.append(asyncio.create_task(written))
        try:
            await self.fleet.heard("lines read", since=began)  # of which agents know the columns
            query = "SELECT agent, COUNT(*) AS n FROM clicks GROUP BY agent"
            windowing = f"WINDOWING {self.ledger.window_ms} MILLISECONDS LATENESS 0 SECONDS"
            async with self.fleet.client() as client:
                await client.sql(f"CREATE JOB {JOB} AS {query} {windowing}")
            self._read_at(self.fleet.running[-1])
            for number in range(strikes):
                victim = "other" if number % 2 else "master"
                took[victim].append(await self._strike(victim))
            judged, complete = self.ledger.starts(), self.ledger.complete
            await _sign(lambda: all(map(complete, judged)), "all lines being in their windows")
            return Struck(self.ledger, judged, took)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _read_at(self, agent: Agent) -> None:
        """Subscribe there; whoever was subscribed to before goes on until its agent dies."""
        self._reader, self._reads = agent, False
        self._tasks.append(asyncio.create_task(self._read(agent)))

    async def _read(self, agent: Agent) -> None:
        with suppress(ElfError):  # it may be killed: then another one is read
            async with connect(agent.address, cluster=CLUSTER) as client:
                async for window in client.subscribe(JOB):
                    self.ledger.hear(window)
                    self._reads |= agent is self._reader

    async def _kept(self) -> None:
        """Wait until so many may die: a killed one comes back as a member of no group for a moment."""
        deadline = time.monotonic() + WAIT_SECS
        enough = 2 * self._at_once + 1
        while not await self._voters() >= enough:
            if time.monotonic() > deadline:
                raise ElfError(f"the log and {JOB} are not kept by {enough} agents after {WAIT_SECS:g} s")
            await asyncio.sleep(0.1)

    async def _voters(self) -> int:
        """How many agents keep the log, and the job: the lesser of the two."""
        try:
            async with self.fleet.client() as client:
                members = await self._rows(client, "SHOW MEMBERS")
                kept_by = facts_of(await client.sql(f"DESCRIBE {JOB}")).get("kept by", "")
        except ElfError:  # its master has just moved, say
            return 0
        return min(sum(bool(one["log"]) for one in members), len(kept_by.split(", ")))

    @staticmethod
    async def _rows(client: Client, statement: str) -> list[dict[str, object]]:
        table = (await client.sql(statement)).table
        return table.to_pylist() if table is not None else []

    async def _strike(self, victim: str) -> float:
        """Strike some, wait for the next correct window, and see that they are well again: ms from the one to
        the other."""
        await _sign(self.ledger.calm, "windows that miss nobody")
        await self._kept()
        struck_ones = self._chosen(victim)
        spared = [one for one in self.fleet.running if one not in struck_ones]
        if self._reader in struck_ones:
            heard = len(self.ledger.came)
            self._read_at(self._rng.choice(spared))
            await _sign(lambda: self._reads and len(self.ledger.came) > heard, "a new reader's windows")
        await asyncio.sleep(self._rng.random())
        at, *_ = [self.fleet.signal(agent, SIGNALS[self._by]) for agent in struck_ones]
        names = " and ".join(agent.name for agent in struck_ones)
        waiting = _sign(lambda: self._after(at), f"a correct window after {names} was struck")
        if self._by == "stop":
            took = await waiting
            await asyncio.sleep(max(0.0, at + STOPPED_SECS - time.time()))
            for agent in struck_ones:
                self.fleet.signal(agent, signal.SIGCONT)
            return took
        took_by = asyncio.create_task(waiting)
        for agent in struck_ones:
            await self.fleet.gone(agent)
        if self._by == "kill":
            await asyncio.wait([took_by])
        for agent in struck_ones:
            await self.fleet.restart(agent)
            self._upgraded.add(agent.name)
        return await took_by

    def _chosen(self, victim: str) -> list[Agent]:
        """The job's master or not, and so many others that those are all who are struck at once."""
        master = self.ledger.last[self.ledger.came[-1][1]].master
        there = [one for one in self.fleet.running if not self._once or one.name not in self._upgraded]
        others = [one for one in there if one.address != master]
        first = [one for one in there if one.address == master]
        if others and (victim == "other" or not first):
            return self._rng.sample(others, self._at_once)
        return [*first, *self._rng.sample(others, self._at_once - 1)]

    def _after(self, killed: float) -> float | None:
        """From then until the first correct window came that ends later, in ms; None: there is none yet."""
        for came, start in self.ledger.came:
            if came > killed and start + self.ledger.window_ms > 1e3 * killed and self.ledger.correct(start):
                return 1e3 * (came - killed)
        return None


async def _sign(done: Callable[[], float | None], of: str) -> float:
    return await until(done, lambda: of, WAIT_SECS, 0.01)
