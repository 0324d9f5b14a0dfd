"""``elf bench security``: what keys cost. The same fleet on loopback without keys (``security: open``) and
with those of an authority, in turn: how soon a window's result is there, and how much CPU rows take on their
way from logs to windows.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import msgspec
import psutil
from typer import Option

from elf.client import Client
from elf.errors import ElfError
from elf.security.certificates import Certificate, Kind, Signed, sign
from elf.security.files import write
from elf.security.folder import IDENTITY_FILE, KEY_FILE, Identity, write_json
from elf.security.keys import KeyPair, curve_of_secret, seal, shown
from elf.security.roles import Role
from lab.bench.control_fleet import CLUSTER, FIRST_US, SECOND_US, ControlFleet, line_of, on_fleet
from lab.bench.control_measures import create, window
from lab.bench.options import Agents, Repeat
from lab.bench.runner import Bench, Figure, Report, Scratch, median, percentiles, ratio

PERSON: Final = "bench"
LASTS_SECS: Final = 86_400
ROW_US: Final = 20
"""Of event time between two rows beside an agent: 50,000 a second."""
ROWS_FROM_US: Final = FIRST_US + 100_000 * SECOND_US
"""Event time of the rows, after all windows of which the delay was measured."""


class Spent(msgspec.Struct, frozen=True):
    """Milliseconds from each window's end to its result; seconds, and seconds of CPU of all agents, for the
    rows."""

    windows: tuple[float, ...]
    seconds: float
    cpu: float


@dataclass(frozen=True)
class SecurityCost(Bench[str, Spent]):
    """Open and with keys."""

    agents: Agents = 16
    rounds: Annotated[int, Option("--rounds", min=1, help="Windows, by two, whose delay is measured.")] = 15
    rows: Annotated[int, Option("--rows", min=1, help="Lines beside each agent.")] = 100_000
    repeat: Repeat = 3

    def sides(self, scratch: Scratch) -> Mapping[str, Callable[[], Spent]]:
        """A fleet of its own for each run."""
        return {side: partial(self._run, scratch.folder, side) for side in ("open", "keys")}

    def _run(self, scratch: Path, side: str) -> Spent:
        folder = scratch / f"{side}-{time.monotonic_ns()}"
        names = [f"web-{number:03}" for number in range(self.agents)]
        keys = folder.with_name(f"{folder.name}-keys")
        if side == "keys":
            enrol(keys, names)
            more = {name: {"security": "keys", "keys": str(keys / name)} for name in names}
        else:
            more = {name: {"security": "open"} for name in names}
        shows = str(keys / PERSON) if side == "keys" else "none"
        return on_fleet(folder, self.agents, self._measure, more=more, keys=shows)

    async def _measure(self, fleet: ControlFleet) -> Spent:
        await fleet.start()
        async with fleet.client() as client:
            delays = await window(fleet, client, self.rounds)
            seconds, cpu = await _through(fleet, client, self.rows)
        return Spent(tuple(delays), seconds, cpu)

    def report(self, runs: Mapping[str, Sequence[Spent]]) -> Report:
        """The delay of all windows together; of throughput the medians."""
        delays = {
            side: percentiles([delay for one in found for delay in one.windows])
            for side, found in runs.items()
        }
        cpu = {side: median(found, "cpu") for side, found in runs.items()}
        wall = {side: median(found, "seconds") for side, found in runs.items()}
        rows = self.rows * self.agents
        return Report(
            {
                "agents": self.agents,
                "rows": rows,
                "windows_ms": delays,
                "p99_more_ms": round(delays["keys"]["p99"] - delays["open"]["p99"], 2),
                "p50_more_ms": round(delays["keys"]["p50"] - delays["open"]["p50"], 2),
                "throughput_ratio": ratio(wall["open"], wall["keys"]),
                "cpu_ratio": ratio(cpu["open"], cpu["keys"]),
            },
            [
                Figure(
                    f"{self.agents} agents with keys: a window's end to its result (p50, p99)",
                    (delays["keys"]["p50"], delays["keys"]["p99"]),
                    "ms",
                    {"open": delays["open"]["p50"]},
                ),
                Figure(
                    f"{self.agents} agents with keys: from logs to windows",
                    rows / cpu["keys"],
                    "rows a CPU second",
                    {"open": rows / cpu["open"]},
                ),
            ],
        )


async def _through(fleet: ControlFleet, client: Client, rows: int) -> tuple[float, float]:
    """Until so many lines beside each agent are in windows: seconds, and seconds of CPU."""
    lines = [line_of(ROWS_FROM_US + ROW_US * row, row) for row in range(rows)]
    last = line_of(ROWS_FROM_US + ROW_US * rows + 5 * SECOND_US, 0)
    blob = b"".join(lines) + last
    await client.sql(create("through", "store, COUNT(*) AS n FROM clicks GROUP BY store"))
    wanted, came = rows * len(fleet.places), 0
    processes = [psutil.Process(agent.pid) for agent in fleet.running if agent.pid is not None]
    before, began = _cpu(processes), time.perf_counter()
    for place in fleet.places:
        place.clicks.write(blob)
    async for one in client.subscribe("through"):
        if one.start is not None and round(one.start.timestamp() * 1e6) >= ROWS_FROM_US:
            came += sum(one.table["n"].to_pylist())
        if came >= wanted:
            return time.perf_counter() - began, _cpu(processes) - before
    raise ElfError("the subscription has ended by itself")


def _cpu(processes: Sequence[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def enrol(folder: Path, hosts: Sequence[str]) -> None:
    """A folder of keys for each of these agents, and for ``PERSON``, who may do everything."""
    authority, fleet, now = KeyPair.new(), curve_of_secret(os.urandom(32)), int(time.time())
    pairs = {name: KeyPair.new() for name in (*hosts, PERSON)}

    def certificate(name: str, pair: KeyPair) -> Signed:
        kind: Kind = "person" if name == PERSON else "agent"
        roles: tuple[Role, ...] = ("admin",) if name == PERSON else ()
        made = Certificate(CLUSTER, kind, name, pair.public, roles, now, now + LASTS_SECS)
        return sign(authority, made)

    signed = {name: certificate(name, pair) for name, pair in pairs.items()}
    roster = tuple(signed.values())
    for name, pair in pairs.items():
        write(folder / name / KEY_FILE, (shown(pair.seed) + "\n").encode())
        sealed = b"" if name == PERSON else seal(pair.public, fleet.secret)
        identity = Identity(CLUSTER, authority.public, signed[name], fleet.public, sealed, roster)
        write_json(folder / name / IDENTITY_FILE, identity)
