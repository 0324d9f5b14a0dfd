"""What every demo needs: a folder, a fleet on loopback that gathers, and a watch on its processes while the
story is told.

The fleet: eight agents, seven beside shops that log clicks, one beside a web server; or, for an application,
some that log what it wants. Each has a data folder and a log file of its own, as if it were alone on its
host; the first one bootstraps the fleet, the others know only its address.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import yaml

from elf.cli.processes import Agent, Agents, Child, Processes, Running, free_ports
from elf.client import Client, connect
from elf.errors import ElfError, UserError

CLUSTER: Final = "demo"
CLICKS: Final = "clicks"
ACCESS: Final = "access"
POSTS: Final = "posts"
STREAMS: Final = (*[CLICKS] * 7, ACCESS)
GENERATOR_SECS_MAX: Final = 600
"""A generator ends by itself after this, should it be forgotten."""

GATHER_SECS: Final = 45.0
"""How long the agents have to find each other."""
POLL_SECS: Final = 0.25
T = TypeVar("T")


@dataclass(frozen=True)
class Place:
    """One agent and the log that it follows."""

    name: str
    address: str
    stream: str
    config: Path
    log: Path
    data: Path


@dataclass(frozen=True)
class Fleet:
    """What runs."""

    places: tuple[Place, ...]
    agents: tuple[Agent, ...]
    generators: tuple[Child, ...]


def places(folder: Path, streams: tuple[str, ...] = STREAMS) -> tuple[Place, ...]:
    """Where everything is, an agent for each of these streams, on ports that are free now."""
    found = []
    for number, (stream, port) in enumerate(zip(streams, free_ports(len(streams)), strict=True), 1):
        name = f"agent-{number}"
        home = folder / name
        suffix = "log" if stream == ACCESS else "jsonl"
        found.append(
            Place(
                name,
                f"127.0.0.1:{port}",
                stream,
                home / "elf.yaml",
                home / "logs" / f"{stream}.{suffix}",
                home / "data",
            )
        )
    return tuple(found)


def config_of(place: Place, bootstrap: str | None) -> dict[str, object]:
    """An agent's configuration, as its YAML file has it."""
    return {
        "agent": {"name": place.name, "listen": place.address},
        "cluster": {"name": CLUSTER, "bootstrap": [bootstrap] if bootstrap else [], "retry_join_secs": 0.5},
        "data_dir": str(place.data),
        "http": {"listen": None},
        "log": {"level": "info", "format": "console"},
        "streams": {
            place.stream: {
                "include": [str(place.log)],
                "format": "combined" if place.stream == ACCESS else "json",
            }
        },
    }


def start(processes: Processes, layout: tuple[Place, ...], rate: float) -> Fleet:
    """Start the generators and the agents; nobody is waited for."""
    for place in layout:
        place.log.parent.mkdir(parents=True)
        founder = layout[0].address
        config = config_of(place, None if place.address == founder else founder)
        place.config.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    generators = tuple(_generator(processes, place, number, rate) for number, place in enumerate(layout, 1))
    starter = Agents(processes, layout[0].config.parents[1] / "starter.log")
    agents = tuple(starter.start(place.name, place.config, _said(place)) for place in layout)
    return Fleet(layout, agents, generators)


def _generator(processes: Processes, place: Place, seed: int, rate: float) -> Child:
    args = ["generate", place.stream, "--out", str(place.log), "--seed", str(seed)]
    args += ["--rate", str(rate), "--seconds", str(GENERATOR_SECS_MAX)]
    log = place.config.with_name("generator.log")
    return processes.start(f"the generator of {place.name}", "elf.cli.main", args, log)


def _said(place: Place) -> Path:
    return place.config.with_name("agent.log")


@contextmanager
def workplace(keep: Path | None) -> Iterator[Path]:
    """A folder that is gone afterwards, or the one that is to be kept."""
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="elf-demo-", ignore_cleanup_errors=True) as folder:
            yield Path(folder)
        return
    if keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise UserError(f"{keep} is there already; --keep wants a new or empty folder")
    keep.mkdir(parents=True, exist_ok=True)
    yield keep.resolve()


async def told(processes: Processes, fleet: Fleet, story: Coroutine[Any, Any, T]) -> T:
    """What a story comes to. Ends with an error when one of the fleet's processes does."""
    telling = asyncio.ensure_future(story)
    watch = asyncio.ensure_future(_watch(processes, (*fleet.agents, *fleet.generators)))
    try:
        await asyncio.wait({telling, watch}, return_when=asyncio.FIRST_COMPLETED)
        if watch.done() and not telling.done():
            watch.result()
        return await telling
    finally:
        for task in (telling, watch):
            task.cancel()
        await asyncio.gather(telling, watch, return_exceptions=True)


async def _watch(processes: Processes, children: tuple[Running, ...]) -> None:
    """Ends, with an error, when a process does."""
    while True:
        processes.check(children)
        await asyncio.sleep(POLL_SECS)


async def reached(place: Place, began: float) -> Client:
    """A client of an agent that may still be starting."""
    while True:
        client = connect(place.address, cluster=CLUSTER)
        try:
            return await client.open()
        except ElfError as error:
            if time.monotonic() - began > GATHER_SECS:
                raise ElfError(f"{place.name} did not come up within {GATHER_SECS:g} s: {error}") from None
            await asyncio.sleep(POLL_SECS)


async def gathered(client: Client, fleet: Fleet, began: float) -> None:
    """Until every agent is a live member of its stream, with something read."""
    wanted = {(place.stream, place.name) for place in fleet.places}
    while True:
        members = (await client.sql("SHOW MEMBERS")).table
        rows = members.to_pylist() if members is not None else []
        missing = wanted - {(row["stream"], row["agent"]) for row in rows if row["state"] == "live"}
        if not missing:
            return
        if time.monotonic() - began > GATHER_SECS:
            names = ", ".join(sorted(name for _, name in missing))
            raise ElfError(f"not all agents are members after {GATHER_SECS:g} s; missing: {names}")
        await asyncio.sleep(POLL_SECS)
