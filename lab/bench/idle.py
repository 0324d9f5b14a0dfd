"""``elf bench idle``: what an agent takes from its host while nobody writes a line.

One real ``elf-agent`` process, first without a job, then with one: it was asked for the job itself (so it has
parsed the statement), is its job group and its master, and has committed windows of the one line that was
written. CPU is user and system time over the span; PSS is the kernel's proportional share, RSS is what PSS
would be if no other process mapped the same libraries. So this process imports none of them: run it where no
other agent runs.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Final

import psutil
import yaml
from typer import Option

from elf.cli.processes import Child, Processes, ended, environment, free_ports
from elf.errors import ElfError
from lab.bench.runner import Bench, Figure, Report, Scratch

SETTLE_SECS: Final = 5.0
START_SECS: Final = 30.0
RETRY_SECS: Final = 0.5
JOB: Final = "CREATE JOB busy AS SELECT page, COUNT(*) AS n FROM log GROUP BY page WINDOWING 5 SECONDS"
UNITS: Final = {"cpu_percent": "% of a core", "pss_mib": "MiB PSS"}


@dataclass(frozen=True)
class Idle(Bench[str, dict[str, float]]):
    """An agent without a job, and then with one."""

    seconds: Annotated[float, Option("--seconds", min=1, help="How long each time.")] = 30

    def sides(self, scratch: Scratch) -> Mapping[str, Callable[[], dict[str, float]]]:
        """An agent that is ready; it gets its job between the two."""
        agent = _Agent(scratch.enter_context(ended()), scratch.folder)

        def busy() -> dict[str, float]:
            agent.give_job()
            return agent.measure(self.seconds)

        return {"no_job": lambda: agent.measure(self.seconds), "one_job": busy}

    def report(self, runs: Mapping[str, Sequence[dict[str, float]]]) -> Report:
        """Both of them."""
        found = {name: run for name, (run,) in runs.items()}
        return Report(
            {"seconds": self.seconds, **found},
            [
                Figure(f"an idle agent, {name.replace('_', ' ')}", one[fact], unit)
                for name, one in found.items()
                for fact, unit in UNITS.items()
            ],
        )


class _Agent:
    """An agent that is ready."""

    def __init__(self, processes: Processes, folder: Path) -> None:
        self._processes, self._folder = processes, folder
        self._address, self._http = (f"127.0.0.1:{port}" for port in free_ports(2))
        config = {
            "agent": {"name": "idle", "listen": self._address},
            "data_dir": str(folder / "data"),
            "http": {"listen": self._http},
            "log": {"level": "warning"},
            "streams": {
                "log": {"include": [str(folder / "*.log")], "format": "json", "idle_timeout_secs": 1}
            },
        }
        path = folder / "elf.yaml"
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        self._child: Child = processes.start(
            "the agent", "agents.main", ["--config", str(path)], folder / "agent.said"
        )
        self._until(self._ready, "does not become ready")

    def measure(self, seconds: float) -> dict[str, float]:
        """Its figures over a span, after a while in which it comes to rest."""
        agent = psutil.Process(self._child.process.pid)
        time.sleep(SETTLE_SECS)
        began, before = time.monotonic(), agent.cpu_times()
        time.sleep(seconds)
        secs, after, memory = time.monotonic() - began, agent.cpu_times(), agent.memory_full_info()
        cpu = after.user + after.system - before.user - before.system
        return {
            "cpu_percent": round(100 * cpu / secs, 2),
            "pss_mib": round(memory.pss / (1 << 20), 1),
            "rss_mib": round(memory.rss / (1 << 20), 1),
            "threads": agent.num_threads(),
        }

    def give_job(self) -> None:
        """Write a line, create the job, wait for its first window."""
        line = {"ts": datetime.now(UTC).isoformat(), "page": "/"}
        (self._folder / "a.log").write_text(json.dumps(line) + "\n", encoding="utf-8")
        self._perform(JOB)
        self._perform("SUBSCRIBE busy", "--windows", "1")

    def _perform(self, *statement: str) -> None:
        """A statement, again until the agent is ready for it."""
        command = [sys.executable, "-P", "-m", "elf.cli.main", "sql", "--connect", self._address, "-e"]

        def ask() -> bool:
            done = subprocess.run([*command, *statement], capture_output=True, env=environment(), check=False)
            return done.returncode == 0

        self._until(ask, f"does not perform {statement[0]}")

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self._http}/ready", timeout=START_SECS) as answer:
                return bool(answer.status == HTTPStatus.OK)
        except OSError:
            return False

    def _until(self, done: Callable[[], bool], else_: str) -> None:
        deadline = time.monotonic() + START_SECS
        while not done():
            self._processes.check([self._child])
            if time.monotonic() > deadline:
                raise ElfError(f"the agent {else_} within {START_SECS:.0f} seconds")
            time.sleep(RETRY_SECS)
