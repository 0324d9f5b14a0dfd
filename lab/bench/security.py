"""``elf bench security``: what keys cost. Two fleets stand beside each other on loopback, one without keys
(``security: open``) and one with those of an authority. They take turns: while one makes windows the other
rests. So what else the machine does meets both alike, and the difference of two turns that follow each other
says more than either.

Measured are how soon a window's result is there, how much CPU a window takes, how much of it in the threads
of libzmq, which encrypt, and how much CPU rows take on their way from logs to windows. Where the machine is
too busy for the delay of a window to say anything, that of a message there and back between two agents does.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import msgspec
import psutil
from typer import Option

from elf.cli.processes import ended
from elf.client import Client
from elf.errors import ElfError
from elf.security.certificates import Certificate, Kind, ServerKeys, Signed, sign
from elf.security.files import write
from elf.security.folder import IDENTITY_FILE, KEY_FILE, Identity, write_json
from elf.security.keys import KeyPair, curve_of_secret, seal, shown
from elf.security.principals import Principal, Security
from elf.security.roles import Role
from elf.transport.zeromq import ZeroMqTransport
from lab.bench.control_fleet import CLUSTER, FIRST_US, SECOND_US, ControlFleet, line_of
from lab.bench.control_measures import create, window
from lab.bench.options import Agents, Hosts, Repeat
from lab.bench.runner import Bench, Figure, Report, Scratch, median, percentiles

PERSON: Final = "bench"
LASTS_SECS: Final = 86_400
SIDES: Final = ("open", "keys")
ROW_US: Final = 20
"""Of event time between two rows beside an agent: 50,000 a second."""
ROWS_FROM_US: Final = FIRST_US + 100_000 * SECOND_US
"""Event time of the first rows, after all windows of which the delay was measured."""
APART_SECS: Final = 10
"""Of event time between the last row of a turn and the first one of the next."""
HOPS: Final = 300
"""Messages there and back in a turn."""
MESSAGE: Final = b"m" * 1_024
"""As long as what goes up a tree of four jobs of a few groups."""
_ZEROMQ: Final = "ZMQbg/IO"
"""How libzmq's threads that send and receive are called."""


class Turn(msgspec.Struct, frozen=True):
    """Of one fleet: milliseconds from each window's end to its result, and milliseconds of CPU a window: of
    its agents, and of their libzmq."""

    windows: tuple[float, ...]
    cpu: float
    zeromq: float

    @property
    def p99(self) -> float:
        return percentiles(self.windows)["p99"]

    @property
    def p50(self) -> float:
        return percentiles(self.windows)["p50"]


class Spent(msgspec.Struct, frozen=True):
    """By side: its turns; microseconds of messages there and back, a median a turn; and of each turn seconds,
    and seconds of CPU of all agents, for the rows."""

    turns: dict[str, list[Turn]]
    hops: dict[str, list[float]]
    through: dict[str, list[tuple[float, float]]]


@dataclass(frozen=True)
class SecurityCost(Bench[str, Spent]):
    """Open and with keys."""

    agents: Agents = 16
    hosts: Hosts = 0
    pairs: Annotated[int, Option("--pairs", min=1, help="Turns of each fleet.")] = 8
    rounds: Annotated[int, Option("--rounds", min=1, help="Windows in a turn, by two, each of 4 jobs.")] = 13
    rows: Annotated[int, Option("--rows", min=1, help="Lines beside each agent in a turn.")] = 100_000
    repeat: Repeat = 1

    def sides(self, scratch: Scratch) -> Mapping[str, Callable[[], Spent]]:
        """Both fleets at once, new ones for each run."""
        return {"both": lambda: self._run(scratch.folder / f"run-{time.monotonic_ns()}")}

    def _run(self, folder: Path) -> Spent:
        names = [f"web-{number:03}" for number in range(self.agents)]
        keys = folder / "keys-of"
        enrol(keys, names)
        more: dict[str, dict[str, dict[str, object]]] = {
            "open": {name: {"security": "open"} for name in names},
            "keys": {name: {"security": "keys", "keys": str(keys / name)} for name in names},
        }
        shows = {"open": "none", "keys": str(keys / PERSON)}
        with contextlib.ExitStack() as opened:
            processes, fleets = opened.enter_context(ended()), dict[str, ControlFleet]()
            for side in SIDES:
                (folder / side).mkdir()
                fleets[side] = ControlFleet(
                    processes, folder / side, self.agents, hosts=self.hosts, more=more[side], keys=shows[side]
                )
                opened.callback(fleets[side].close)
            return asyncio.run(self._measure(fleets))

    async def _measure(self, fleets: Mapping[str, ControlFleet]) -> Spent:
        found = Spent(
            turns={s: [] for s in SIDES}, hops={s: [] for s in SIDES}, through={s: [] for s in SIDES}
        )
        async with contextlib.AsyncExitStack() as opened:
            clients = {}
            for side, fleet in fleets.items():
                await fleet.start()
                clients[side] = await opened.enter_async_context(fleet.client())
            for number in range(self.pairs):
                for side in SIDES if number % 2 else reversed(SIDES):
                    after = number * (2 * self.rounds + 1)
                    found.turns[side].append(await _turn(fleets[side], clients[side], self.rounds, after))
                    found.hops[side].append(statistics.median(await _hops(with_keys=side == "keys")))
            for client in clients.values():
                await client.sql(create("through", "store, COUNT(*) AS n FROM clicks GROUP BY store"))
            for number in range(self.pairs):
                for side in SIDES if number % 2 else reversed(SIDES):
                    found.through[side].append(await _through(fleets[side], clients[side], self.rows, number))
        return found

    def report(self, runs: Mapping[str, Sequence[Spent]]) -> Report:
        """Of the delays the differences of turns that follow each other: quartiles."""
        (spent,) = runs.values()
        turns = {side: [turn for one in spent for turn in one.turns[side]] for side in SIDES}
        pairs = list(zip(turns["open"], turns["keys"], strict=True))
        delays = {side: percentiles([d for turn in of for d in turn.windows]) for side, of in turns.items()}
        wall, cpu = (
            {side: [turn[place] for one in spent for turn in one.through[side]] for side in SIDES}
            for place in (0, 1)
        )
        rows = self.rows * self.agents
        a_second = {side: rows / statistics.median(of) for side, of in cpu.items()}
        hops = {side: [turn for one in spent for turn in one.hops[side]] for side in SIDES}
        hop = {side: round(statistics.median(of)) for side, of in hops.items()}
        used = {side: median(of, "cpu") for side, of in turns.items()}
        zeromq = {side: median(of, "zeromq") for side, of in turns.items()}
        return Report(
            {
                "agents": self.agents,
                "rows": rows,
                "pairs": len(pairs),
                "windows_a_turn": len(pairs[0][0].windows),
                "windows_ms": delays,
                "p99_more_ms": _quartiles([keys.p99 - plain.p99 for plain, keys in pairs]),
                "p50_more_ms": _quartiles([keys.p50 - plain.p50 for plain, keys in pairs]),
                "there_and_back_us": hop,
                "there_and_back_more_us": _quartiles(
                    [keys - plain for plain, keys in zip(hops["open"], hops["keys"], strict=True)]
                ),
                "cpu_ms_a_window": used,
                "zeromq_ms_a_window": zeromq,
                "throughput_ratio": _ratios(wall),
                "cpu_ratio": _ratios(cpu),
            },
            [
                Figure(
                    f"{self.agents} agents with keys: a window's end to its result (p50, p99)",
                    (delays["keys"]["p50"], delays["keys"]["p99"]),
                    "ms",
                    {"open": delays["open"]["p50"]},
                ),
                Figure(
                    "a message of 1 KiB there and back between agents with keys",
                    hop["keys"],
                    "µs",
                    {"open": hop["open"]},
                ),
                Figure(
                    f"{self.agents} agents with keys: CPU of libzmq's threads, a window",
                    zeromq["keys"],
                    "ms",
                    {"open": zeromq["open"], "all threads": used["keys"]},
                ),
                Figure(
                    f"{self.agents} agents with keys: from logs to windows",
                    a_second["keys"],
                    "rows a CPU second",
                    {"open": a_second["open"]},
                ),
            ],
            details={
                "turns": {
                    side: [[turn.p50, turn.p99, turn.cpu, turn.zeromq] for turn in of]
                    for side, of in turns.items()
                }
            },
        )


def _quartiles(found: Sequence[float]) -> dict[str, float]:
    """The median, and between which values the middle half lies."""
    low, middle, high = statistics.quantiles([*found, *found], n=4, method="inclusive")
    return {"median": round(middle, 2), "from": round(low, 2), "to": round(high, 2)}


def _ratios(times: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """The speed with keys by that without, of turns that follow each other: quartiles."""
    return _quartiles([plain / keys for plain, keys in zip(times["open"], times["keys"], strict=True)])


async def _turn(fleet: ControlFleet, client: Client, rounds: int, after: int) -> Turn:
    processes = _processes(fleet)
    cpu, zeromq = _cpu(processes), _cpu_of_zeromq(processes)
    delays = await window(fleet, client, rounds, after)
    each = 1e3 / (2 * rounds)
    return Turn(
        tuple(delays),
        round((_cpu(processes) - cpu) * each, 2),
        round((_cpu_of_zeromq(processes) - zeromq) * each, 2),
    )


async def _hops(*, with_keys: bool) -> list[float]:
    """Microseconds until a message is there and the answer is back, between two transports of one loop."""
    ends = []
    pairs = [KeyPair.new().curve for _ in range(2)]
    server, known = KeyPair.new().curve, {pair.public: Principal("agent", "web") for pair in pairs}
    for own in pairs:
        security = Security(own, server.public, server.secret, known.get) if with_keys else None
        ends.append(await ZeroMqTransport.listen("127.0.0.1:0", security=security))
    one, other = ends
    found = []
    try:
        for number in range(HOPS + 20):  # the first ones find connections that are not made yet
            began = time.perf_counter()
            one.send(other.address, [MESSAGE])
            await other.receive()
            other.send(one.address, [MESSAGE])
            await one.receive()
            if number >= 20:
                found.append(1e6 * (time.perf_counter() - began))
    finally:
        for end in ends:
            await end.close()
    return found


async def _through(fleet: ControlFleet, client: Client, rows: int, number: int) -> tuple[float, float]:
    """Until so many lines beside each agent are in windows: seconds, and seconds of CPU."""
    from_us = ROWS_FROM_US + number * (ROW_US * rows // SECOND_US + APART_SECS) * SECOND_US
    lines = [line_of(from_us + ROW_US * row, row) for row in range(rows)]
    blob = b"".join([*lines, line_of(from_us + ROW_US * rows + 5 * SECOND_US, 0)])
    wanted, came = rows * len(fleet.places), 0
    processes = _processes(fleet)
    before, began = _cpu(processes), time.perf_counter()
    for place in fleet.places:
        place.clicks.write(blob)
    async for one in client.subscribe("through"):
        if one.start is not None and round(one.start.timestamp() * 1e6) >= from_us:
            came += sum(one.table["n"].to_pylist())
        if came >= wanted:
            return time.perf_counter() - began, _cpu(processes) - before
    raise ElfError("the subscription has ended by itself")


def _processes(fleet: ControlFleet) -> list[psutil.Process]:
    return [psutil.Process(pid) for pid in {agent.pid for agent in fleet.running if agent.pid is not None}]


def _cpu(processes: Sequence[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def _cpu_of_zeromq(processes: Sequence[psutil.Process]) -> float:
    """Seconds, as Linux counts them for each thread."""
    found = 0
    for process in processes:
        for task in Path(f"/proc/{process.pid}/task").iterdir():
            if (task / "comm").read_text().startswith(_ZEROMQ):
                found += int((task / "schedstat").read_text().split()[0])
    return found / 1e9


def enrol(
    folder: Path, hosts: Sequence[str], persons: Mapping[str, tuple[Role, ...]] = {PERSON: ("admin",)}
) -> None:
    """A folder of keys for each of these agents, and for persons with their roles."""
    authority, fleet, now = KeyPair.new(), curve_of_secret(os.urandom(32)), int(time.time())
    pairs = {name: KeyPair.new() for name in (*hosts, *persons)}

    def certificate(name: str, pair: KeyPair) -> Signed:
        kind: Kind = "person" if name in persons else "agent"
        made = Certificate(CLUSTER, kind, name, pair.public, persons.get(name, ()), now, now + LASTS_SECS)
        return sign(authority, made)

    signed = {name: certificate(name, pair) for name, pair in pairs.items()}
    roster = tuple(signed.values())
    for name, pair in pairs.items():
        write(folder / name / KEY_FILE, (shown(pair.seed) + "\n").encode())
        sealed = b"" if name in persons else seal(pair.public, fleet.secret)
        identity = Identity(CLUSTER, authority.public, signed[name], ServerKeys(fleet.public), sealed, roster)
        write_json(folder / name / IDENTITY_FILE, identity)
