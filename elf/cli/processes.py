"""Child processes that are gone afterwards, whatever happens.

Each runs in a session of its own, so that Ctrl-C reaches only us, and what it starts itself belongs to its
process group. The process is asked to stop (what it has started is its own to stop), and then its group is
killed. It is waited for only after that: until then its id can be nobody else's.

``Agents`` are real agents on this machine, forked from one process that has imported everything
(``agents.preload``).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final, Protocol

import msgspec

from elf.errors import ElfError
from elf.security.loopback import LOOPBACK_VARIABLE

STOP_SECS: Final = 8.0
"""After so long a process that was asked to stop is killed."""

ROOT: Final = Path(__file__).parents[2]
"""The place that this very code was imported from."""
POLL_SECS: Final = 0.05
TAIL_LINES: Final = 12
_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

EVENT_SECS: Final = 0.005
PORTS: Final = range(20_000, 32_768)
"""Below those that Linux, Windows and macOS give to connections."""
_CHANCE: Final = random.SystemRandom()


@dataclass
class Child:
    """A process of ours; ``log`` has what it says (None: it says it to the terminal)."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path | None

    def status(self) -> int | None:
        """How it ended (minus the signal's number for one that was killed); None while it runs."""
        if self.process.returncode is not None:
            return self.process.returncode
        ended = os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return None
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status

    def signal(self, number: signal.Signals, *, group: bool) -> None:
        """To the process or to its whole group; nothing once it was waited for."""
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                (os.killpg if group else os.kill)(self.process.pid, number)


class Running(Protocol):
    """What can be looked at, whoever is its parent."""

    @property
    def name(self) -> str: ...

    @property
    def log(self) -> Path | None: ...

    def status(self) -> int | None:
        """How it ended; None while it runs."""


class Processes:
    """All children of one command."""

    def __init__(self) -> None:
        self._children: list[Child] = []

    def start(
        self,
        name: str,
        module: str,
        args: Sequence[str],
        log: Path | None,
        *,
        talks: bool = False,
        root: Path = ROOT,
    ) -> Child:
        """Start a module of this installation, or of the checkout at ``root``, in this Python. Variables for
        agents (``ELF_…``) are not handed on. ``talks``: its standard input and output are pipes to us, only
        its errors go to the log.
        """
        command = [sys.executable, "-P", "-m", module, *args]
        return self.run(name, command, log, talks=talks, env=environment(root))

    def run(
        self,
        name: str,
        command: Sequence[str],
        log: Path | None,
        *,
        talks: bool = False,
        env: Mapping[str, str] | None = None,
    ) -> Child:
        """Start any command; ``env``: None hands ours on. Raises ``OSError`` when there is none."""
        with contextlib.ExitStack() as opened:
            out = opened.enter_context(log.open("ab")) if log is not None else None
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE if talks else subprocess.DEVNULL,
                stdout=subprocess.PIPE if talks else out,
                stderr=out if talks else subprocess.STDOUT if out is not None else None,
                env=env,
                start_new_session=True,
            )
        child = Child(name, process, log)
        self._children.append(child)
        return child

    def check(self, children: Sequence[Running]) -> None:
        """Raise ``ElfError`` with the end of its log when one of these is not running."""
        for child in children:
            status = child.status()
            if status is not None:
                raise ElfError(f"{child.name} stopped with status {status}{_tail(child.log)}")

    def stop(self, children: Sequence[Child] | None = None) -> None:
        """Stop these, or all; returns when they are gone. Two threads may stop the same ones."""
        chosen = list(self._children if children is None else children)
        for child in chosen:
            child.signal(signal.SIGTERM, group=False)
        deadline = time.monotonic() + STOP_SECS
        while any(child.status() is None for child in chosen) and time.monotonic() < deadline:
            time.sleep(POLL_SECS)
        for child in chosen:
            child.signal(signal.SIGKILL, group=True)
            child.process.wait()
            for pipe in (child.process.stdin, child.process.stdout):
                if pipe is not None:
                    pipe.close()
            with contextlib.suppress(ValueError):
                self._children.remove(child)


@contextlib.contextmanager
def ended() -> Iterator[Processes]:
    """Processes that are gone after the block: at its end, on errors, on Ctrl-C, SIGTERM and SIGHUP.

    SIGINT too gets a handler of ours: a shell starts what is in the background with it ignored.
    """
    before = {number: signal.signal(number, _interrupt) for number in _ENDING}
    processes = Processes()
    try:
        yield processes
    finally:
        for number in _ENDING:
            signal.signal(number, signal.SIG_IGN)  # an impatient second Ctrl-C would leave some behind
        processes.stop()
        for number, handler in before.items():
            signal.signal(number, handler)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on; all are held until all are found, so that they differ. Systems give
    others to connections, so these stay free while whoever is to listen there is dead."""
    with contextlib.ExitStack() as held:
        return [_held_port(held) for _ in range(count)]


def _held_port(held: contextlib.ExitStack) -> int:
    for port in _CHANCE.sample(PORTS, len(PORTS)):
        with contextlib.suppress(OSError):
            held.enter_context(socket.create_server(("127.0.0.1", port)))
            return port
    raise OSError(f"all ports from {PORTS[0]} to {PORTS[-1]} are in use")


def environment(root: Path = ROOT) -> dict[str, str]:
    """Ours, without variables for agents but that of this machine's key, and with the place that the code is
    to be imported from."""
    ours = {name for name in os.environ if name.startswith("ELF_")} - {LOOPBACK_VARIABLE}
    env = {name: value for name, value in os.environ.items() if name not in ours}
    paths = [str(root), *filter(None, [env.get("PYTHONPATH")])]
    return {**env, "PYTHONPATH": os.pathsep.join(paths)}


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _tail(log: Path | None) -> str:
    """The last lines of a log, indented under the error."""
    if log is None or not log.exists():
        return ""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL_LINES:]
    return (
        "; the end of its log:" + "".join(f"\n  {line}" for line in lines) if lines else " and said nothing"
    )


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
            await asyncio.sleep(EVENT_SECS)
