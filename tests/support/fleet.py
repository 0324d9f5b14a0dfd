"""A fleet of real ``elf-agent`` processes on loopback, each with a data folder, a port and a log file of its
own. What a fleet starts with is forked by ``agents.preload``, so that each need not import everything; who
joins later or comes back is started by the command line.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import yaml

from elf.cli.processes import EVENT_SECS, Agents, Processes, free_ports

STREAM = "clicks"
PRODUCTS = ("Angry Birds", "Tetris", "Myst", "Doom", "Pong")
ELF_AGENT = "agents.main"


class Process(Protocol):
    """Of a ``Popen`` what tests need."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float) -> int: ...

    def send_signal(self, sig: int) -> None: ...


class Forked:
    """An agent whose parent is the starter."""

    def __init__(self, name: str, config: Path, log: Path) -> None:
        self._agent = starter().start(name, config, log)
        while self._agent.pid is None:
            assert self.poll() is None
            time.sleep(EVENT_SECS)
        self.pid = self._agent.pid

    def poll(self) -> int | None:
        return self._agent.status()

    def wait(self, timeout: float) -> int:
        deadline = time.monotonic() + timeout
        while (status := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(self._agent.name, timeout)
            time.sleep(EVENT_SECS)
        return status

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, sig)


@functools.cache
def starter() -> Agents:
    """The one that forks agents for all tests of this process, and ends with it."""
    opened = ExitStack()
    atexit.register(opened.close)
    folder = opened.enter_context(tempfile.TemporaryDirectory())
    processes = Processes()
    opened.callback(processes.stop)
    return Agents(processes, Path(folder) / "log")


@dataclass
class Agent:
    """One agent: its configuration, its process if it runs, and the rows that were written beside it."""

    name: str
    folder: Path
    port: int
    http_port: int
    bootstrap: tuple[str, ...]
    process: Process | None = None
    written: list[tuple[int, str, int]] = field(default_factory=list)
    advertise: str = ""
    """Where others reach it, if it is not where it listens."""
    module: str = ELF_AGENT
    """What runs."""
    pattern: str = "clicks.log"
    """Which files of its folder it follows."""
    shared: tuple[str, ...] = ()
    """Others see its files."""
    cluster: str = "test"
    quiet: dict[str, dict[str, str]] = field(default_factory=dict)
    """Streams whose logs are not there yet, and the columns that are declared of them."""
    functions: dict[str, object] = field(default_factory=dict)
    """Whose code it runs, and what that may take."""
    more: dict[str, object] = field(default_factory=dict)
    """Other settings."""

    @property
    def reached(self) -> str:
        return self.advertise or self.address

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        return self.folder / "logs" / "clicks.log"

    def write_config(self) -> Path:
        (self.folder / "logs").mkdir(parents=True, exist_ok=True)
        config = {
            "agent": {"name": self.name, "listen": self.address, "advertise": self.reached},
            "cluster": {"name": self.cluster, "bootstrap": list(self.bootstrap)},
            "data_dir": str(self.folder / "data"),
            "streams": {
                STREAM: {
                    "include": [str(self.log.with_name(self.pattern))],
                    "format": "json",
                    "lateness_secs": 0.5,
                    "idle_timeout_secs": 2,
                    "shared": list(self.shared),
                },
                **{
                    name: {
                        "include": [str(self.folder / f"{name}.log")],
                        "format": "json",
                        "columns": columns,
                    }
                    for name, columns in self.quiet.items()
                },
            },
            "archive": {"path": str(self.folder / "archive"), "roll_secs": 5},
            "http": {"listen": f"127.0.0.1:{self.http_port}"},
            "functions": self.functions,
            "outputs": {"allow": ["http:", f"file:{self.folder.parent}", f"delta:{self.folder.parent}"]},
            "protocol": {"straggler_min_secs": 2, "cut_interval_secs": 1, "copy_after_secs": 1},
            **self.more,
        }
        path = self.folder / "elf.yaml"
        path.write_text(yaml.safe_dump(config))
        return path

    def start(self) -> None:
        """By the command line."""
        path = self.write_config()
        with (self.folder / "stderr").open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", self.module, "--config", str(path)], stdout=errors, stderr=errors
            )

    def fork(self) -> None:
        """As one of many."""
        self.process = Forked(str(self.folder), self.write_config(), self.folder / "stderr")

    def kill(self) -> None:
        """SIGKILL: nothing is said, nothing is saved."""
        self._end(signal.SIGKILL)

    def terminate(self) -> int:
        return self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> int:
        if self.process is None:
            raise AssertionError(f"{self.name} does not run")
        self.process.send_signal(number)
        status = self.process.wait(20)
        self.process = None
        return status

    def said(self) -> str:
        return (self.folder / "stderr").read_text()

    def fetched(self, path: str) -> str:
        """What it says over HTTP. Raises ``OSError``."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}{path}", timeout=10) as answer:
            return str(answer.read().decode())

    def metric(self, name: str, **labels: str) -> float:
        """The sum of its metric of that name, of all that have these labels."""
        wanted = {f'{label}="{value}"' for label, value in labels.items()}
        found = re.findall(rf"^elf_{name}(?:{{(.*)}})? (\S+)$", self.fetched("/metrics"), re.MULTILINE)
        return sum(float(value) for said, value in found if wanted <= set(said.split(",")))

    def append(self, rows: Iterable[tuple[int, str, int]]) -> None:
        """Log rows: (event time in µs, product, clicks)."""
        with self.log.open("a") as log:
            for ts, product, clicks in rows:
                moment = datetime.fromtimestamp(ts / 1e6, UTC).isoformat(timespec="milliseconds")
                self.written.append((ts, product, clicks))
                row = {"created_at": moment, "id": len(self.written), "store": "video_games"}
                log.write(json.dumps({**row, "product": product, "clicks_count": clicks}) + "\n")


class Fleet:
    """Agents and one writer thread for all their logs."""

    def __init__(self, folder: Path, count: int, seed: int = 1) -> None:
        ports = free_ports(2 * count)
        first = f"127.0.0.1:{ports[0]}"
        self.agents = [
            Agent(f"web-{i}", folder / f"web-{i}", ports[2 * i], ports[2 * i + 1], () if i == 0 else (first,))
            for i in range(count)
        ]
        self._rng = random.Random(seed)
        self._writing = threading.Event()
        self._writer = threading.Thread(target=self._write, daemon=True)

    def start(self) -> None:
        for agent in self.agents:
            agent.write_config()
            agent.log.touch()
            if agent.module == ELF_AGENT:
                agent.fork()
            else:
                agent.start()

    def begin_writing(self) -> None:
        self._writing.set()
        self._writer.start()

    def end_writing(self) -> int:
        """The event time (µs) by which everything is written."""
        self._writing.clear()
        self._writer.join()
        return time.time_ns() // 1000

    def _write(self) -> None:
        while self._writing.is_set():
            now = time.time_ns() // 1_000_000 * 1000
            for agent in self.agents:
                rows = [
                    (
                        now - self._rng.randrange(0, 300) * 1000,
                        self._rng.choice(PRODUCTS),
                        self._rng.randrange(5),
                    )
                    for _ in range(self._rng.randrange(4))
                ]
                agent.append(rows)
            time.sleep(0.1)  # ten times a second, people click

    def agent_at(self, address: str) -> Agent:
        return next(agent for agent in self.agents if agent.reached == address)

    def truth(self, start_us: int, end_us: int, without: Iterable[str] = ()) -> dict[str, int]:
        """Clicks by product in ``[start, end)``, over the logs of all agents but those named."""
        clicks: Counter[str] = Counter()
        for agent in self.agents:
            if agent.name in without:
                continue
            for ts, product, count in agent.written:
                if start_us <= ts < end_us:
                    clicks[product] += count
        return dict(clicks)

    def stop(self) -> None:
        self._writing.clear()
        for agent in self.agents:
            if agent.process is not None:
                agent.kill()


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True
