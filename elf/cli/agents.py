"""Real agents on this machine, forked from one process that has imported everything (``agents.preload``)."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from elf.cli.processes import ROOT, Processes
from elf.errors import ElfError

POLL_SECS: Final = 0.005


class _Event(msgspec.Struct, frozen=True):
    """A line of ``agents.preload``."""

    event: str
    name: str
    pid: int = 0
    at: float = 0.0
    address: str = ""
    http: str | None = None
    status: int = 0


@dataclass
class Agent:
    """One of them. ``address`` is empty until it listens; ``began`` is the clock's time before its fork."""

    name: str
    log: Path
    of: Agents
    pid: int | None = None
    began: float = 0.0
    address: str = ""
    http: str | None = None
    ended: int | None = None

    def status(self) -> int | None:
        """How it ended (minus the signal's number for one that was killed); None while it runs."""
        self.of.look()
        return self.ended


class Agents:
    """All agents of one command, of the elf at ``root``; they end with their starter, which is one of its
    ``Processes``."""

    def __init__(self, processes: Processes, log: Path, root: Path = ROOT) -> None:
        self._processes = processes
        name = "the agents' starter"
        self._starter = processes.start(name, "agents.preload", [], log, talks=True, root=root)
        self._agents: dict[str, Agent] = {}
        self._read = b""
        if self._starter.process.stdout is not None:
            os.set_blocking(self._starter.process.stdout.fileno(), False)

    def start(self, name: str, config: Path, log: Path) -> Agent:
        """Start an agent; nobody waits for it. Raises ``ElfError`` when the starter is gone."""
        return self.start_beside({name: config}, log)[0]

    def start_beside(self, configs: Mapping[str, Path], log: Path) -> list[Agent]:
        """The same for several that share a process, and its log."""
        (name, config), *others = configs.items()
        said = {"name": name, "config": str(config), "log": str(log)}
        beside = {"beside": {name: str(config) for name, config in others}} if others else {}
        order = json.dumps(said | beside) + "\n"
        orders = self._starter.process.stdin
        if orders is None:
            raise ElfError("the agents' starter takes no orders")
        try:
            orders.write(order.encode())
            orders.flush()
        except BrokenPipeError:
            self._starter.process.wait()
            self._processes.check([self._starter])
        started = {name: Agent(name, log, self) for name in configs}
        self._agents |= started
        return list(started.values())

    def look(self) -> None:
        """Hear what has become of them. Raises ``ElfError`` when the starter is gone."""
        self._processes.check([self._starter])
        told = self._starter.process.stdout
        while told is not None and (data := told.read(1 << 16)):
            *lines, self._read = (self._read + data).split(b"\n")
            for line in lines:
                self._hear(msgspec.json.decode(line, type=_Event))

    def _hear(self, event: _Event) -> None:
        agent = self._agents[event.name]
        match event.event:
            case "started":
                agent.pid, agent.began = event.pid, event.at
            case "listening":
                agent.address, agent.http = event.address, event.http
            case "ended":
                agent.ended = event.status

    async def listening(self, agents: Sequence[Agent], limit_secs: float) -> None:
        """Wait until all of these can be reached."""
        deadline = time.monotonic() + limit_secs
        while not all(agent.address for agent in agents):
            self._processes.check(agents)
            if time.monotonic() > deadline:
                names = ", ".join(agent.name for agent in agents if not agent.address)
                raise ElfError(f"not all agents listen after {limit_secs:g} s; missing: {names}")
            await asyncio.sleep(POLL_SECS)
