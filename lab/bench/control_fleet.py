"""The fleet of ``elf bench control``: real agents on loopback, a log beside each, and what they say of
themselves.

Times come from the agents: each line of an agent's own log says when something happened there, and one
machine has one clock. Nothing is asked of them while something is measured.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

import msgspec
import yaml

from elf.cli.processes import Agent, Agents, Processes, ended
from elf.client import Client, connect
from elf.errors import ElfError

T = TypeVar("T")
CLUSTER: Final = "bench"
STREAM: Final = "clicks"
LISTEN_SECS: Final = 60.0
WAIT_SECS: Final = 60.0
"""For whatever the agents are to do: beyond it the bench gives up."""
POLL_SECS: Final = 0.02
FIRST_US: Final = 1_767_225_600_000_000
"""Event time of the first line. It is the bench's own: windows end when a line says so."""
SECOND_US: Final = 1_000_000
STORES: Final = ("video_games", "toys", "books")
"""In turn, by the numbers of users (``line_of``)."""


@dataclass(frozen=True)
class Said:
    """A line of an agent's log: whose, when (seconds since the epoch), what, and all of it."""

    agent: str
    at: float
    event: str
    facts: dict[str, object]


class Place:
    """One agent and the log that it follows; ``log``: what it says, or the agents of its process."""

    def __init__(self, folder: Path, name: str, log: Path | None = None) -> None:
        self.name = name
        self.folder = folder / name
        self.folder.mkdir()
        self.log = log or self.folder / "agent.log"
        self.clicks: BinaryIO = (self.folder / "clicks.jsonl").open("ab", buffering=0)

    def config(
        self,
        bootstrap: str | None,
        detect: str = "default",
        listen: str = "127.0.0.1:0",
        more: Mapping[str, object] | None = None,
    ) -> Path:
        """Its configuration: as in any fleet, but for ports that the system chooses, and ``more``."""
        config = {
            "agent": {"name": self.name, "listen": listen},
            "cluster": {"name": CLUSTER, "bootstrap": [bootstrap] if bootstrap else [], "detect": detect},
            "data_dir": str(self.folder / "data"),
            "http": {"listen": "127.0.0.1:0"},
            "log": {"level": "debug"},
            "streams": {
                STREAM: {
                    "include": [str(self.folder / "*.jsonl")],
                    "format": "json",
                    "idle_timeout_secs": 3600,  # windows end by what is written, and by nothing else
                }
            },
            **(more or {}),
        }
        path = self.folder / "elf.yaml"
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        return path

    def close(self) -> None:
        self.clicks.close()


class Listener:
    """Reads what agents say in one log."""

    def __init__(self, log: Path) -> None:
        log.touch()
        self._read: BinaryIO = log.open("rb")
        self._rest = b""

    def said(self) -> list[Said]:
        """What is new."""
        *lines, self._rest = (self._rest + self._read.read()).split(b"\n")
        found = []
        for line in lines:
            try:
                facts = msgspec.json.decode(line, type=dict[str, object])
                at = datetime.fromisoformat(str(facts["timestamp"])).timestamp()
                found.append(Said(str(facts["agent"]), at, str(facts.get("event")), facts))
            except (msgspec.DecodeError, KeyError, ValueError):
                continue  # a line of a library, or a traceback
        return found

    def close(self) -> None:
        self._read.close()


class ControlFleet:
    """``size`` agents. ``hosts``: the first has a process of its own, all others share so many; 0: each has
    its own. ``ready_ms``: from the moment when the last process began until all were ready. ``before``:
    another checkout of elf, which they are of until they are restarted. ``more``: other settings, by agent;
    ``keys``: those that clients show."""

    def __init__(
        self,
        processes: Processes,
        folder: Path,
        size: int,
        detect: str = "default",
        before: Path | None = None,
        hosts: int = 0,
        more: Mapping[str, Mapping[str, object]] | None = None,
        keys: str | None = None,
    ) -> None:
        self._more = more or {}
        self._keys = keys
        logs = [folder / f"host-{number:03}.log" for number in range(min(hosts, size) or size)]
        self.places = [Place(folder, f"web-{number:03}", logs[number % len(logs)]) for number in range(size)]
        self._listeners = [Listener(log) for log in logs]
        self.ready_ms = 0.0
        self.running: list[Agent] = []
        self._detect = detect
        self._processes = processes
        self._agents = Agents(processes, folder / "starter.log")
        self._before = Agents(processes, folder / "before.log", before) if before else self._agents
        self._said: list[Said] = []

    async def start(self) -> None:
        """Start all; returns when all are ready and have read a line."""
        self.write(FIRST_US, 1)
        founder = self._start(self.places[:1], None)
        await self._before.listening(founder, LISTEN_SECS)
        others = self._start(self.places[1:], founder[0].address)
        await self._before.listening(others, LISTEN_SECS)
        ready = await self.heard("agent is ready")
        await self.heard("lines read")
        last = max(agent.began for agent in self.running)
        self.ready_ms = 1e3 * (max(said.at for said in ready) - last)

    def _start(self, places: Sequence[Place], bootstrap: str | None) -> list[Agent]:
        by_log: dict[Path, dict[str, Path]] = {}
        for place in places:
            by_log.setdefault(place.log, {})[place.name] = place.config(
                bootstrap, self._detect, more=self._more.get(place.name)
            )
        new = [agent for log, configs in by_log.items() for agent in self._before.start_beside(configs, log)]
        self.running += sorted(new, key=lambda agent: agent.name)
        return new

    def signal(self, agent: Agent, number: signal.Signals) -> float:
        """Send a signal; the clock's time when it was sent."""
        if agent.pid is None:
            raise ElfError(f"{agent.name} has no process")
        at = time.time()
        os.kill(agent.pid, number)
        return at

    async def gone(self, agent: Agent) -> None:
        """Wait until one that was killed, or asked to stop, is gone."""
        self.running.remove(agent)
        while agent.status() is None:
            await asyncio.sleep(POLL_SECS)

    async def restart(self, agent: Agent) -> Agent:
        """Start one that is gone again, where it was, with its data folder; returns when it listens."""
        place = next(place for place in self.places if place.name == agent.name)
        other = self.running[0].address if self.running else None
        config = place.config(other, self._detect, agent.address, self._more.get(place.name))
        new = self._agents.start(place.name, config, place.log)
        self.running.append(new)
        await self._agents.listening([new], LISTEN_SECS)
        return new

    def client(self, number: int = -1) -> Client:
        """A client of one of the agents, by default of the last: not of the founder."""
        return connect(self.running[number].address, cluster=CLUSTER, keys=self._keys)

    def write(self, first_us: int, lines: int) -> float:
        """Beside every agent: so many lines from this event time on; the clock's time before the first is
        written."""
        at = time.time()
        for number, place in enumerate(self.places):
            rows = [line_of(first_us + 1000 * row, number + row) for row in range(lines)]
            place.clicks.write(b"".join(rows))
        return at

    async def heard(
        self, event: str, where: Callable[[Said], bool] = lambda _: True, since: float = 0.0
    ) -> list[Said]:
        """Wait until every agent has said this; the first time (from ``since`` on) that each did."""
        found: dict[str, Said] = {}

        def all_said() -> list[Said] | None:
            found.clear()
            for said in self._listen():
                if said.event == event and said.at >= since and where(said):
                    found.setdefault(said.agent, said)
            return list(found.values()) if len(found) == len(self.places) else None

        def silent() -> str:
            names = sorted({place.name for place in self.places} - found.keys())
            return f"every agent saying {event!r}, but for {_some(names)}"

        return await until(all_said, silent)

    async def printed(self, job: str, wanted: Callable[[list[str]], bool], count: int) -> list[list[str]]:
        """Wait until a job in Python has printed so many lines that are wanted, on whichever agents; the
        words of each."""

        def lines() -> list[list[str]] | None:
            printed = [said.event.split() for said in self._listen() if said.facts.get("job") == job]
            found = [words for words in printed if wanted(words)]
            return found[:count] if len(found) >= count else None

        return await until(lines, lambda: f"{count} lines that job {job} has printed")

    def _listen(self) -> list[Said]:
        self._processes.check(self.running)
        for listener in self._listeners:
            self._said += listener.said()
        return self._said

    def forget(self) -> None:
        """What was said so far is not wanted any more."""
        self._said.clear()

    def close(self) -> None:
        for place in self.places:
            place.close()
        for listener in self._listeners:
            listener.close()


async def until(
    done: Callable[[], T | None],
    what: Callable[[], str],
    limit_secs: float = WAIT_SECS,
    poll_secs: float = POLL_SECS,
) -> T:
    """Wait until this has a result that is true. Raises ``ElfError``, which says of what there is no sign."""
    deadline = time.monotonic() + limit_secs
    while not (found := done()):
        if time.monotonic() > deadline:
            raise ElfError(f"no sign of {what()} after {limit_secs:g} s")
        await asyncio.sleep(poll_secs)
    return found


def on_fleet(
    folder: Path,
    size: int,
    work: Callable[[ControlFleet], Coroutine[None, None, T]],
    *,
    detect: str = "default",
    before: Path | None = None,
    hosts: int = 0,
    more: Mapping[str, Mapping[str, object]] | None = None,
    keys: str | None = None,
) -> T:
    """Do this with a fleet of so many agents (see ``ControlFleet``) in a new folder; they are gone then."""
    folder.mkdir()
    with ended() as processes:
        fleet = ControlFleet(processes, folder, size, detect, before, hosts, more, keys)
        try:
            return asyncio.run(work(fleet))
        finally:
            fleet.close()


@asynccontextmanager
async def on_and_on(write: Callable[[], object], every_secs: float) -> AsyncIterator[None]:
    """Do this again and again, as long as the block goes on."""

    async def writes() -> None:
        while True:
            write()
            await asyncio.sleep(every_secs)

    writing = asyncio.create_task(writes())
    try:
        yield
    finally:
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)


@asynccontextmanager
async def written(fleet: ControlFleet, lines: int, every_secs: float) -> AsyncIterator[None]:
    """Beside every agent so many lines with the time of the clock, again and again."""
    async with on_and_on(lambda: fleet.write(time.time_ns() // 1000, lines), every_secs):
        yield


def line_of(us: int, number: int) -> bytes:
    ts = datetime.fromtimestamp(us / 1e6, UTC).isoformat(timespec="milliseconds")
    store, product = STORES[number % len(STORES)], f"product {number % 50}"
    row = {"ts": ts, "product": product, "store": store, "user": number, "clicks": 1}
    return json.dumps(row).encode() + b"\n"


def _some(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
