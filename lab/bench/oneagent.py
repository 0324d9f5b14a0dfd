"""One real ``elf-agent`` process, which a bench starts, asks and stops.

Nothing is imported here that takes memory: see ``lab.bench.idle``.
"""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Final

import psutil
import yaml

from elf.cli.processes import Child, Processes, environment, free_ports
from elf.errors import ElfError

START_SECS: Final = 60.0
RETRY_SECS: Final = 0.5


class OneAgent:
    """One life after the other, under the same addresses."""

    _child: Child

    def __init__(self, processes: Processes, folder: Path) -> None:
        self._processes, self._folder = processes, folder
        self.address, self.http = (f"127.0.0.1:{port}" for port in free_ports(2))

    def run(self, name: str, http: Mapping[str, object], settings: Mapping[str, object]) -> None:
        """Start it without an archive, unless the settings have one; it is ready then. Raises
        ``ElfError``."""
        config = {
            "agent": {"name": name, "listen": self.address},
            "archive": {"enabled": False},
            "http": {"listen": self.http, **http},
            "log": {"level": "warning"},
            **settings,
        }
        path = self._folder / "elf.yaml"
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        said = self._folder / "agent.said"
        self._child = self._processes.start("the agent", "agents.main", ["--config", str(path)], said)
        self._until(self._ready, "does not become ready")

    @property
    def process(self) -> psutil.Process:
        return psutil.Process(self._child.process.pid)

    def stop(self) -> None:
        self._processes.stop([self._child])

    def perform(self, *statement: str) -> None:
        """A statement, again until the agent is ready for it; a job that is there already is well. Raises
        ``ElfError``."""
        command = [sys.executable, "-P", "-m", "elf.cli.main", "sql", "--connect", self.address, "-e"]

        def ask() -> bool:
            done = subprocess.run(
                [*command, *statement], capture_output=True, text=True, env=environment(), check=False
            )
            return done.returncode == 0 or "exists already" in done.stderr

        self._until(ask, f"does not perform {statement[0][:80]}")

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self.http}/ready", timeout=START_SECS) as answer:
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
