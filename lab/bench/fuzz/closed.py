"""A fleet of real agents with keys at work while somebody says what should not be said: the stranger has no
key, the reader one with the role ``read`` alone.

Beside each agent lines are written all the time, and one job counts them: a window is right when it has all
lines of all agents (``lab.bench.failover.Ledger``). After each *stretch* of frames the agents' counts must be
those that the attacker expects, the windows must be right up to then, every agent must say that it is ready,
and members and jobs must be those of the beginning. What an agent has grown by is measured from the end of
the first stretch on.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Final, Protocol, cast

import psutil

from elf.addresses import split_address
from elf.client import Client, connect
from elf.errors import ElfError
from elf.security.folder import load
from elf.wire.clients import ONE_SHOT_PREFIX
from lab.bench.control_fleet import CLUSTER, STREAM, ControlFleet, on_fleet, until
from lab.bench.failover import JOB, Ledger, write_lines
from lab.bench.fuzz.found import Found, FuzzKeys
from lab.bench.fuzz.frames import KINDS, Frames, Kind, resealed
from lab.bench.fuzz.reader import Reader, said_by_clients
from lab.bench.fuzz.stranger import KNOCKS, Knock, Stranger
from lab.bench.fuzz.target import Target
from lab.bench.fuzz.values import Known
from lab.bench.security import PERSON, enrol

AGENTS: Final = 3
READER: Final = "rita"
STRETCH: Final = 100_000
WINDOW_MS: Final = 1_000
LINE_SECS: Final = 0.05
SETTLE_SECS: Final = 300.0
"""For agents to have counted everything, and for windows to come."""
ASKED_SECS: Final = 20.0
QUOTAS: Final = {"selects": 4, "statements_per_sec": 20}
"""Of one creator: some of what a reader sends are statements, and what they ask for is work."""
REAL_MS: Final = 20_000
"""Of a simulated fleet's time: what its agents say in it is what is damaged and changed."""
CLIENTS_RARE: Final = 10
"""One of so many real frames is a client's."""
_COUNT: Final = re.compile(r'^elf_(\w+)_total\{(?:reason|kind)="(\w+)"\} (\S+)$', re.M)
Counts = Counter[tuple[str, str]]


class Attacker(Protocol):
    """Says what should not be said. ``expected``: what agents are to count as refused, by reason; ``taken``:
    what they are to take for a message, by type; ``connections``: how many were made and came to nothing."""

    expected: Counter[str]
    taken: Counter[str]
    connections: int

    def send(self, frames: int) -> int:
        """About so many; how many."""


def kinds_of(keys: FuzzKeys) -> tuple[str, ...]:
    """The kinds of frames that who has these keys sends."""
    return KNOCKS if keys == FuzzKeys.NONE else KINDS


def attack(scratch: Path, keys: FuzzKeys, kind: str, frames: int, seed: int, share: float) -> Found:
    """So many frames of one kind to a fleet of its own."""
    folder = scratch / f"{keys}-{kind}-{time.monotonic_ns()}"
    own = folder.with_name(f"{folder.name}-keys")
    names = [f"web-{number:03}" for number in range(AGENTS)]
    enrol(own, names, {PERSON: ("admin",), READER: ("read",)})
    more = {name: {"security": "keys", "keys": str(own / name), "quotas": QUOTAS} for name in names}

    async def work(fleet: ControlFleet) -> Found:
        async with AtWork(fleet, own / PERSON) as at_work:
            attacker = _attacker(fleet, own, keys, kind, seed, share)
            return await at_work.bear(attacker, frames)

    return on_fleet(folder, AGENTS, work, more=more, keys=str(own / PERSON))


def _attacker(
    fleet: ControlFleet, own: Path, keys: FuzzKeys, kind: str, seed: int, share: float
) -> Stranger | Reader:
    rng, addresses = random.Random(seed), [agent.address for agent in fleet.running]
    reader = load(own / READER)
    words = [*addresses, *(agent.name for agent in fleet.running), JOB, STREAM, READER, PERSON]
    frames = Frames(rng, CLUSTER, lambda: rng.choice(["", *addresses]), Known(words))
    frames.maker.share = share
    simulated = Target(seed)
    simulated.go_on(REAL_MS)
    agents = [resealed(one, CLUSTER, rng.choice(addresses)) for one in simulated.frames.real]
    clients = said_by_clients(reader)
    frames.real.extend(agents + clients * max(len(agents) // (CLIENTS_RARE * len(clients)), 1))
    if keys == FuzzKeys.READER:
        return Reader(cast("Kind", kind), rng, addresses, reader, frames)
    doors = [split_address(one) for one in addresses]
    return Stranger(cast("Knock", kind), rng, doors, reader.identity.fleet.key, frames)


class AtWork:
    """A fleet, its lines, and who reads its windows."""

    def __init__(self, fleet: ControlFleet, keys: Path) -> None:
        self._fleet = fleet
        self._keys = keys
        self._ledger = Ledger(WINDOW_MS)
        self._tasks: list[asyncio.Task[None]] = []
        self._client: Client
        """One for all questions: a connection that comes and goes is counted too."""
        self._before: Counts = Counter()
        self._facts: list[str] = []
        self._resident: dict[str, int] = {}

    async def __aenter__(self) -> AtWork:
        await self._fleet.start()
        addresses = ",".join(agent.address for agent in self._fleet.running)
        self._client = connect(addresses, cluster=CLUSTER, keys=self._keys)
        began = time.time()
        self._tasks.append(asyncio.create_task(write_lines(self._fleet, self._ledger, LINE_SECS)))
        await self._fleet.heard("lines read", since=began)
        await self._client.open()
        query = f"SELECT agent, COUNT(*) AS n FROM {STREAM} GROUP BY agent"
        windowing = f"WINDOWING {WINDOW_MS} MILLISECONDS LATENESS 0 SECONDS"
        await self._client.sql(f"CREATE JOB {JOB} AS {query} {windowing}")
        self._tasks.append(asyncio.create_task(self._read()))
        await until(self._ledger.calm, lambda: "windows", SETTLE_SECS)
        self._facts = await self._known()
        self._before = await self._counts()
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._client.close()

    async def bear(self, attacker: Attacker, frames: int) -> Found:
        """So many frames, in stretches. Stops at the first stretch after which something is wrong."""
        found = Found()
        while found.frames < frames:
            stretch = min(STRETCH, frames - found.frames)
            began = time.perf_counter()
            try:
                found.frames += await asyncio.to_thread(attacker.send, stretch)
                await self._judge(found, attacker)
            except ElfError as error:
                found.stops.append(str(error))
            found.seconds += time.perf_counter() - began
            if found.stops or found.lost or found.stood_still or found.changed:
                break
        found.connections, found.taken = attacker.connections, attacker.taken
        return found

    async def _judge(self, found: Found, attacker: Attacker) -> None:
        """What there is after a stretch, told to ``found``. Raises ``ElfError`` where nobody answers."""
        for task in self._tasks:
            if task.done():
                task.result()
        await self._counted(found, attacker)
        await self._right(found)
        for agent in self._fleet.running:
            if agent.http is None or await asyncio.to_thread(_asked, agent.http, "/ready") is None:
                found.stops.append(f"{agent.name} is not ready")
        if (now := await self._known()) != self._facts:
            found.changed.append(f"{self._facts} is {now}")
        for agent in self._fleet.running:
            resident = psutil.Process(agent.pid).memory_info().rss
            found.resident_bytes = max(found.resident_bytes, resident)
            least = self._resident.setdefault(agent.name, resident)
            found.grown_bytes = max(found.grown_bytes, resident - least)

    async def _counted(self, found: Found, attacker: Attacker) -> None:
        """Wait until the agents' counts are what was sent."""
        deadline = time.monotonic() + SETTLE_SECS
        while True:
            now = await self._counts() - self._before
            found.faults = _of(now, "messages_faulted")
            found.skipped = _of(now, "records_skipped")
            ended, refused = _of(now, "handshakes_failed"), _of(now, "messages_refused")
            refused["misshapen"] = _of(now, "messages_misshapen").total()
            found.refused = +(ended + refused) if attacker.connections else +refused
            all_ended = not attacker.connections or ended.total() == attacker.connections
            if all_ended and +refused == attacker.expected:
                return
            if time.monotonic() > deadline:
                was = f"{attacker.connections} connections, {dict(attacker.expected)}"
                found.lost.append(f"agents count {dict(found.refused)}, and there were {was}")
                return
            await asyncio.sleep(0.2)

    async def _right(self, found: Found) -> None:
        """Wait until all windows so far are right, and a new one."""
        now, ledger = time.time() * 1e3, self._ledger

        def seen() -> bool:
            return (
                bool(ledger.last) and max(ledger.last) > now and all(map(ledger.complete, self._until(now)))
            )

        try:
            await until(seen, lambda: "right windows", SETTLE_SECS)
        except ElfError:
            late = [start for start in self._until(now) if not ledger.complete(start)]
            found.stood_still += max(ledger.last) <= now
            found.changed += [
                f"the window at {one} is {ledger.last.get(one)}, not {ledger.written[one]}"
                for one in late[:3]
            ]
        found.windows = sum(map(ledger.complete, self._until(now)))

    def _until(self, now: float) -> range:
        """Starts of the windows that have ended."""
        return range(min(self._ledger.last), int(now) // WINDOW_MS * WINDOW_MS, WINDOW_MS)

    # -- the fleet -------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        async for window in self._client.subscribe(JOB):
            self._ledger.hear(window)

    async def _known(self) -> list[str]:
        """Members, their states and addresses, and jobs but for those of a SELECT."""
        members, jobs = [await _rows(self._client, f"SHOW {what}") for what in ("MEMBERS", "JOBS")]
        found = [f"{row['agent']} {row['state']} {row['address']}" for row in members]
        return sorted(
            found + [str(row["job"]) for row in jobs if not str(row["job"]).startswith(ONE_SHOT_PREFIX)]
        )

    async def _counts(self) -> Counts:
        """What all agents count together. Raises ``ElfError`` where one does not answer."""
        found: Counts = Counter()
        for agent in self._fleet.running:
            text = await asyncio.to_thread(_asked, agent.http or "", "/metrics")
            if text is None:
                raise ElfError(f"{agent.name} does not answer")
            for name, reason, count in _COUNT.findall(text):
                found[name, reason] += int(float(count))
        return found


async def _rows(client: Client, statement: str) -> list[dict[str, object]]:
    table = (await client.sql(statement)).table
    return [] if table is None else table.to_pylist()


def _of(counts: Counts, name: str) -> Counter[str]:
    return Counter({reason: count for (one, reason), count in counts.items() if one == name})


def _asked(address: str, path: str) -> str | None:
    """What an agent answers over HTTP; None: nothing, or no."""
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=ASKED_SECS) as answer:
            return str(answer.read().decode())
    except OSError:
        return None
